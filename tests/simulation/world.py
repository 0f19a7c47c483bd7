"""Everything that takes part in a run: the disk, the node, the wires, the clients, and the judge who sees them all."""

import asyncio
import random
from collections.abc import AsyncIterator, Coroutine, Sequence
from dataclasses import replace
from itertools import count
from typing import Any, ClassVar, Literal

from rallypoint.assignors.contract import Assignor
from rallypoint.assignors.cooperative_sticky import CooperativeStickyAssignor
from rallypoint.assignors.range import RangeAssignor
from rallypoint.assignors.roundrobin import RoundRobinAssignor
from rallypoint.coordinator.core import holding
from rallypoint.coordinator.core.commands import DecisionContext, GroupLoaded
from rallypoint.coordinator.core.decide import step
from rallypoint.coordinator.core.effects import (
    Event,
    Failure,
    GroupChanged,
    GroupRemoved,
    MembersWent,
    OffsetsRemoved,
    RebalanceBegan,
    Removal,
)
from rallypoint.coordinator.runtime.loading.stored_groups import StoredGroup, stored_groups
from rallypoint.coordinator.storage.contract import BatchLimits, Write
from rallypoint.member.core import events as ev
from rallypoint.member.core.states import State
from rallypoint.member.options import MemberOptions
from rallypoint.protocol import admin_messages as admin
from rallypoint.protocol import messages as m
from rallypoint.protocol import operations as ops
from rallypoint.protocol.errors import ErrorCode
from tests.simulation.checker import Sight, TopicDeletion
from tests.simulation.checkers import Judge
from tests.simulation.client import Client
from tests.simulation.damage import damage, foreseen, is_damaged, is_foreseen
from tests.simulation.disk import HANGS_MS, SLOW_MS, Disk
from tests.simulation.link import Link
from tests.simulation.loop import VirtualLoop
from tests.simulation.network import Answer, ApiCall, Exchange, HttpApi, Network, raise_its_fault
from tests.simulation.node import EPOCH_MS, Node, member_ids
from tests.simulation.plan import CLOCK_STEPS_MS, LATE_FAULTS, LINE_FAULTS, NETWORK_FAULTS, Plan
from tests.simulation.trace import Trace, Violation

GROWTH_MAX = 20
TOPICS = {"t": 3, "u": 2}
"""The topics of a run, with the partitions they begin with."""


_DONE_BY_OPERATORS = (
    admin.DeletedGroup, admin.DeleteOffsetsAnswer, admin.ResetOffsetsAnswer, admin.RemoveMembersAnswer,
    admin.ProceedAnswer, admin.JoinWaitAnswer,
)  # fmt: skip


class World(HttpApi):
    """Everything that takes part in a run."""

    def __init__(self, plan: Plan, chance: random.Random, trace: Trace, loop: VirtualLoop) -> None:
        self.plan = plan
        self.chance = chance
        self.trace = trace
        self.loop = loop
        rates = {kind: plan.rates[kind] for kind in (*NETWORK_FAULTS, *LATE_FAULTS, *LINE_FAULTS)}
        late_chance = random.Random(f"late {plan.seed}")
        self.network = Network(loop, chance, trace, rates, self, late_chance)
        self.sight = Sight(plan, self.network.callers_at_api)
        self.judge = Judge(self.sight)
        slow_ms = max(SLOW_MS) if plan.rates["store_slow"] else 0
        hang_ms = max(HANGS_MS) if plan.rates["store_hangs"] else 0
        self.judge.i6.slack_ms += plan.clock_jitter_ms
        self.judge.i6.store_ms = 4 * (plan.store_delay_max_ms + slow_ms + hang_ms)
        self.judge.i19.slack_ms += plan.clock_jitter_ms + self.judge.i6.store_ms
        self.disk = Disk(plan, chance, self._stored, self._disk_fault)
        if is_damaged(plan):
            damage(plan, self.disk.contents)
        if is_foreseen(plan):
            for (keyspace, key), value in foreseen(plan).items():
                self.disk.contents.keyspace(keyspace).values[key] = value
        self.node: Node | None = None
        self.clients: list[Client] = []
        self.away: list[MemberOptions] = []
        self.elsewhere: dict[str, int] = dict.fromkeys(TOPICS, 0)
        """By topic the partitions that it has beside those in the registry."""
        self.is_calm = False
        self.is_over = False
        """The run has ended, and what is still there is taken down: that is no part of it."""
        self._clock_chance = random.Random(f"clock steps {plan.seed}")
        self._is_behind = False
        self._line_chance = random.Random(f"lines {plan.seed}")
        self.links: list[Link] = []
        self._ids = member_ids()
        self.numbers = count(1)
        self.offsets = count(1)
        self._nodes = count(1)
        self._looked_at = 0
        self.background: list[asyncio.Task[Any]] = []
        loop.after_turn = self._after_turn

    # --- what checkers are told --------------------------------------------------------------------------------------

    @property
    def now_ms(self) -> int:
        return round(self.loop.time() * 1000)

    def _tell(self, hook: str, *args: Any, **named: Any) -> None:
        if self.is_over:
            return
        self.sight.now_ms = self.now_ms
        try:
            self.judge.tell(hook, *args, **named)
        except Violation as violation:
            # Not raised here, for the service would take it for a fault of its own; the run ends with this turn.
            self.loop.fault = self.loop.fault or violation

    def _stored(self, keyspace: str, writes: Sequence[Write]) -> None:
        for key, value in writes:
            self.trace.note(self.now_ms, f"   {keyspace} {key.decode()} = {None if value is None else value.decode()}")
        for group_id in self.sight.fold.take(writes):
            self._tell("stored", group_id, self.sight.fold.group(group_id))

    def _disk_fault(self, kind: str, text: str) -> None:
        self.trace.fault(self.now_ms, kind, text)
        plan = self.plan
        if plan.channel_share and "cut" in plan.weights and not self.is_calm and self._line_chance.random() < 0.2:
            # While the group that this makes unloaded is reloaded, perhaps.
            self.loop.call_later(self._line_chance.choice([0, 1, 5, 60]) / 1000, self._lose_a_client_perhaps)

    def _lose_a_client_perhaps(self) -> None:
        """Its connection is lost; with its process, or it comes back at once."""
        for client in self.running():
            if client.link is None or client.link.line is None or self.is_calm:
                continue
            if "vanish" in self.plan.weights and self._line_chance.random() < 0.3:
                self.vanish(client, cut_off=False)
            else:
                self.trace.fault(self.now_ms, "cut", client.link.name)
                client.link.cut("both")
            return

    def vanish(self, client: Client, *, cut_off: bool) -> None:
        """The process dies, with all members in it; they may come back."""
        self.trace.fault(self.now_ms, "cut_off" if cut_off else "vanish", client.name)
        for mate in self.mates_of(client):
            self.away.extend([mate.options] if mate.runs else [])
            mate.vanish(cut_off=cut_off)

    def on_call(self, api_call: ApiCall) -> None:
        self._tell("on_call", api_call)

    def on_answer(self, api_call: ApiCall, answer: Answer) -> None:
        if isinstance(answer, _DONE_BY_OPERATORS):
            self.trace.happened(self.now_ms, type(answer).__name__.removesuffix("Answer"), api_call.group_id)
        self.sight.number = self.network.next_number()
        self._tell("on_answer", api_call, answer)

    def waits(self, api_call: ApiCall) -> None:
        self._tell("waits", api_call)

    def hung_up(self, api_call: ApiCall, *, connection_lost: bool = False) -> None:
        self._tell("hung_up", api_call, connection_lost)

    def framed(self, line: int, call_id: int | str) -> None:
        self._tell("framed", line, call_id)

    def rested(self, line: int) -> None:
        self._tell("rested", line)

    def sent(self, line: int, said: dict[str, Any]) -> None:
        self.trace.note(self.now_ms, f"   line {line} < {str(said)[:120]}")
        self._tell("sent", line, said)

    def went(self, event: MembersWent) -> None:
        self._tell("went", event)

    def dropped(self, line: int, group_id: str, member_id: str) -> None:
        self._tell("dropped", line, group_id, member_id)

    def channel_ended(self, line: int, by_client: bool) -> None:
        self._tell("channel_ended", line, by_client)

    def _happened(self, event: Event) -> None:
        if isinstance(event, RebalanceBegan):
            self.trace.note(self.now_ms, f"   {event.group_id} rebalances: {event.reason}")
        elif isinstance(event, GroupChanged):
            summary = event.summary
            self.trace.note(self.now_ms, f"   {event.summary.group_id} is {summary.state} {summary.generation_id}")
        elif isinstance(event, GroupRemoved | OffsetsRemoved) and event.cause is not Removal.DELETED:
            self.trace.happened(self.now_ms, event.cause, event.group_id)
        self._tell("happened", event)

    def _believed(self, client: Client) -> None:
        self._tell("believed", client)

    def _heard(self, client: Client, generation_id: int, state: State, before_id: int) -> None:
        self._tell("heard", client, generation_id, state, before_id)

    def _after_turn(self) -> None:
        node = self.node
        if node is None or not node.is_up or node.clock.asked == self._looked_at:
            return
        self._looked_at = node.clock.asked
        if node.service.phase == "ready":
            self._tell("turned", node, list(node.loaded()))

    # --- the node ----------------------------------------------------------------------------------------------------

    def stall_node(self, for_ms: int) -> None:
        """The process stands still for so long, unless it does already, or none runs."""
        node = self.node
        if node is None or not node.is_up or node.clock.stalled_s:
            return
        self.trace.fault(self.now_ms, "node_stall", f"{for_ms} ms")
        self.sight.stalls.begin(self.now_ms, for_ms)
        self._is_behind = True
        node.clock.stall(for_ms)

    def end_stall(self) -> None:
        """The node goes on at once."""
        if self.node is not None and self.node.clock.stalled_s:
            self.sight.stalls.end(self.now_ms)
            self.node.clock.go_on()

    async def _running_node(self) -> Node | None:
        """The node that is up, when it goes on; None where there is none."""
        node = self.node
        if node is not None and node.is_up:
            await node.clock.running.wait()
        return node if node is not None and node.is_up else None

    def begin_node(self) -> None:
        """A new process begins, unless one runs."""
        if self.node is not None and self.node.is_up:
            return
        self.sight.number = self.network.next_number()
        self.sight.stalls.end(self.now_ms)
        self._tell("node_began")
        number = next(self._nodes)
        self.trace.note(self.now_ms, f"   node {number} begins")
        self.node = self.sight.node = self.network.node = Node(
            number,
            self.plan,
            self.loop,
            self.disk,
            self._happened,
            self._ids,
            self.network,
            self,
            self._epoch_ms(),
        )
        self._looked_at = 0
        if "topic_grows" in self.plan.weights and self.sight.fold.topics.keys() == TOPICS.keys():
            # While the groups are loaded, perhaps.
            for _ in range(2):
                self.loop.call_later(self.chance.randint(1, 200) / 1000, self._grow_perhaps)

    def _epoch_ms(self) -> int:
        """The wall clock of a node that begins: the one before's, or put ahead or back."""
        if self._is_behind:
            # The clock of the one before did not count its stalls, so this one's begins ahead of it.
            self._is_behind = False
            self.sight.clock_steps.append(self.now_ms)
        last_ms = EPOCH_MS if self.node is None else self.node.clock.epoch_ms
        chance = self._clock_chance
        if self.node is None or chance.random() >= self.plan.clock_steps:
            return last_ms
        step_ms = chance.choice(CLOCK_STEPS_MS)
        self.sight.clock_steps.append(self.now_ms)
        self.trace.fault(self.now_ms, "clock_step", f"{step_ms} ms")
        return last_ms + step_ms

    def _grow_perhaps(self) -> None:
        if not self.is_calm and self.chance.random() < 0.5:
            self.grow(self.chance.choice(sorted(TOPICS)))

    async def kill_node(self) -> None:
        """The process is killed, and begins again after a while."""
        if self.node is None or not self.node.is_up:
            return
        self.trace.fault(self.now_ms, "crash", f"node {self.node.number}")
        self.disk.at_next_append = None
        self.sight.stalls.end(self.now_ms)
        self.node.kill()
        self.network.reset_all()
        await asyncio.sleep(0.001)
        await self.check_load()
        self.loop.call_later(self.chance.choice([1, 500, 4_000]) / 1000, self.begin_node)

    async def drain_node(self) -> None:
        """The process ends in good order, and begins again after a while."""
        node = await self._running_node()
        if node is None or node.service.phase != "ready":
            return
        self.trace.fault(self.now_ms, "drain", f"node {node.number}")
        await node.drain()
        await asyncio.sleep(0.002)
        self.judge.i6.all_answered()
        self.network.reset_all()
        await self.check_load()
        self.loop.call_later(self.chance.choice([1, 500, 4_000]) / 1000, self.begin_node)

    async def check_load(self) -> None:
        """I10: what the real load makes of the store, group by group, held against the fold."""
        counts = {topic: record.partitions for topic, record in self.sight.fold.topics.items()}
        assert self.node is not None
        now_ms = self.node.clock.epoch_ms + self.now_ms
        rules = replace(self.plan.rules, group_max_size=2**31 - 1)
        for shard in range(self.plan.shards):
            values = self.disk.contents.keyspace(f"shard-{shard}").values
            is_newer = is_foreseen(self.plan)
            reading = _Reading(values, self.plan)
            async for page in stored_groups(reading, b"", lambda _: True, of_newer_minor=is_newer):
                for stored in page:
                    if not isinstance(stored, StoredGroup):
                        self.judge.i18.met(shard, stored)
                        continue
                    if not (stored.records or stored.leftovers):
                        # What a newer release has left of a group that is gone is no group.
                        continue
                    group = await stored.restore()
                    # With the counts that the assignment was made for, just before the end of a freeze, whatever the
                    # clock says, and with a place for everyone, so that nothing follows from the load itself.
                    seen = {} if group.header is None else dict(group.header.partition_counts)
                    frozen_until_ms = holding.frozen_until(group)
                    at_ms = now_ms if frozen_until_ms is None else frozen_until_ms - 1
                    if any(one.removed for one in group.stored_members.values()):
                        # What they owned is nobody's, so a rebalance follows from the load itself.
                        self.judge.i10.compare(group)
                        step(group, GroupLoaded(), DecisionContext(at_ms, rules, seen))
                        self.judge.i10.loaded_without_the_removed(group)
                        continue
                    step(group, GroupLoaded(), DecisionContext(at_ms, rules, seen))
                    self.judge.i10.loaded(group)
        for (keyspace, key), value in foreseen(self.plan).items() if is_foreseen(self.plan) else ():
            self.judge.i18.kept(keyspace, key, value, self.disk.contents.keyspace(keyspace).values.get(key))
        self.trace.note(self.now_ms, f"   the store was read; topics {counts}")

    # --- clients -----------------------------------------------------------------------------------------------------

    def running(self) -> list[Client]:
        """Clients whose member has not ended."""
        return [client for client in self.clients if client.runs]

    def start_client(self, options: MemberOptions | None = None) -> None:
        """A process with a member begins, unless the plan has enough of them."""
        if len(self.running()) >= self.plan.members_max:
            return
        chosen = self._new_options() if options is None else options
        assignors: tuple[Assignor, ...] = tuple(_ASSIGNORS[str(name)] for name in chosen.assignors)
        client = Client(
            f"c{next(self.numbers)}",
            chosen,
            assignors,
            loop=self.loop,
            network=self.network,
            chance=self.chance,
            trace=self.trace,
            numbers=self.numbers,
            on_view=self._believed,
            on_push=self._heard,
            link=self._link(),
            beats_in_batches=self.plan.beats_in_batches and not chosen.heartbeat_wait_ms,
            elsewhere=self.elsewhere,
            looks_for_growth=self.plan.counts_elsewhere,
        )
        self.clients.append(client)
        who = f"{chosen.group_id} {chosen.group_instance_id or 'dynamic'} {chosen.topics}"
        self.trace.note(self.now_ms, f"   {client.name} starts: {who}")
        client.feed(ev.Started())
        client.learn_of_channel()

    def _link(self) -> Link | None:
        """The channel of a process that begins, or of one that takes another member; None for one on HTTP."""
        chance, plan = self._line_chance, self.plan
        if chance.random() >= plan.channel_share:
            return None
        with_room = [link for link in self.links if link.has_room]
        if with_room and chance.random() < 0.6:
            return chance.choice(with_room)
        name = f"p{len(self.links) + 1}"
        link = Link(name, self.loop, self.network, chance, plan.client_ping_ms, plan.mates_max)
        self.links.append(link)
        return link

    def mates_of(self, client: Client) -> list[Client]:
        """Who is in the same process, itself too."""
        return [one for one in self.clients if one is client or (one.link is client.link is not None)]

    def cut_all_lines(self) -> None:
        """What stands between all clients and the node begins again: each channel ends, as both sides see."""
        for link in self.links:
            link.cut("both")

    def _new_options(self) -> MemberOptions:
        chance, plan = self.chance, self.plan
        group_id = chance.choice(plan.groups)
        taken = {c.options.group_instance_id for c in self.running() if c.group_id == group_id}
        free = [f"i{number}" for number in range(plan.members_max) if f"i{number}" not in taken]
        instance = chance.choice(free) if free and chance.random() < 0.4 else None
        session_ms = chance.choice(plan.session_timeouts_ms)
        return MemberOptions(
            coordinator="http://node-1",
            group_id=group_id,
            topics=chance.choice([("t",), ("t",), ("t", "u"), ("u",)]),
            client_id=f"m{next(self.numbers)}",
            group_instance_id=instance,
            assignors=chance.choice(plan.offers),
            session_timeout_ms=session_ms,
            disconnect_grace_ms=self._line_chance.choice(plan.graces_ms),
            rebalance_timeout_ms=chance.choice(plan.rebalance_timeouts_ms),
            heartbeat_wait_ms=chance.choice([0, 20_000, 20_000]),
            request_timeout_ms=chance.choice([1_000, 2_000]),
            park_wait_ms=chance.choice([1_000, 3_000, 20_000]),
            leave_timeout_ms=1_000,
            call_timeout_ms=10_000,
        )

    # --- topics ------------------------------------------------------------------------------------------------------

    def grow(self, topic: str) -> None:
        """The topic gets one partition more, up to a limit."""
        count = self.partitions(topic)
        if count < GROWTH_MAX:
            self.trace.fault(self.now_ms, "topic_grows", topic)
            self.do(self.put_topic(topic, count + 1))

    def grow_elsewhere(self, topic: str) -> None:
        """The topic gets one partition more, of which the registry hears nothing."""
        if self.elsewhere[topic] < GROWTH_MAX:
            self.trace.fault(self.now_ms, "grows_elsewhere", topic)
            self.elsewhere[topic] += 1

    def partitions(self, topic: str) -> int:
        """As they are registered in the store; 0 where the topic is not."""
        record = self.sight.fold.topics.get(topic)
        return 0 if record is None else record.partitions

    def counted(self) -> dict[str, int]:
        """What members count: the registered partitions, and those beside them."""
        return {topic: record.partitions + self.elsewhere[topic] for topic, record in self.sight.fold.topics.items()}

    async def put_topic(self, topic: str, partitions: int) -> None:
        """Register so many partitions, if a node runs; it may fail."""
        node = await self._running_node()
        if node is None:
            return
        answer = await node.service.put_topic(topic, m.PutTopicRequest(partitions=partitions))
        if not isinstance(answer, Failure):
            self.trace.note(self.now_ms, f"   {topic} has {answer.partitions} partitions")

    async def delete_topic(self, topic: str) -> None:
        """Take the topic out of the registry, if a node runs; it may fail, and may be done all the same."""
        node = await self._running_node()
        if node is None:
            return
        deletion = TopicDeletion(self.network.next_number(), topic, self.sight.fold.deleted.get(topic, 0))
        self._tell("deleting", deletion)
        answer = await node.service.delete_topic(topic)
        self.sight.number = self.network.next_number()
        if isinstance(answer, Failure):
            is_not_there = answer.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            is_under_way = answer.limit_name == "storage_append_timeout_ms"
            self._tell("deleted", deletion, False if is_not_there else None, is_under_way=is_under_way)
        else:
            self.trace.happened(self.now_ms, "DeletedTopic", topic)
            self._tell("deleted", deletion, True)

    async def register(self, topic: str, partitions: int) -> None:
        """The topics a run begins with; a drive that fails is asked again."""
        while topic not in self.sight.fold.topics:
            await self.put_topic(topic, partitions)
            await asyncio.sleep(0.1)

    # --- what others may use -----------------------------------------------------------------------------------------

    def do(self, work: Coroutine[Any, Any, None]) -> None:
        """Beside everything else; what it raises ends the run."""
        task = self.loop.create_task(work)
        task.add_done_callback(raise_its_fault)
        self.background.append(task)

    def say(self, who: str, group_id: str, operation: ops.Operation, body: m.RequestModel | None) -> None:
        """A request whose answer nobody reads."""
        exchange = Exchange(who, group_id, operation, body, lambda outcome: None)
        self.network.send(exchange, self.chance.choice([300, 5_000]))


class NotHeldBack(RoundRobinAssignor):
    """As somebody may write it who has not read on: members keep what they have, and others are given it."""

    name: ClassVar[str] = "not-held-back"
    protocol: ClassVar[Literal["eager", "cooperative"]] = "cooperative"


_ASSIGNORS: dict[str, Assignor] = {
    assignor.name: assignor
    for assignor in (RangeAssignor(), RoundRobinAssignor(), CooperativeStickyAssignor(), NotHeldBack())
}


class _Reading:
    """A store's contents to be read, while nobody owns them; `Keyspace` as far as a load needs it."""

    epoch = 0

    def __init__(self, values: dict[bytes, bytes], plan: Plan) -> None:
        self._values = values
        self._rows = plan.page_rows
        self.limits: BatchLimits = plan.limits

    async def scan(self, prefix: bytes) -> AsyncIterator[Sequence[tuple[bytes, bytes]]]:
        rows = [(key, self._values[key]) for key in sorted(self._values) if key.startswith(prefix)]
        for start in range(0, len(rows), self._rows):
            yield rows[start : start + self._rows]

    def is_current(self) -> bool:
        return True

    async def append(self, writes: Sequence[Write]) -> None:
        raise AssertionError("a reading stores nothing")

    async def release(self) -> None:
        """Nothing is owned."""
