"""One run: a seed's plan, carried out on virtual time with the real coordinator and real members, then judged.

    chaos     actions and faults, by the plan
    calm      no more faults: every group must come to rest in time (I7)
    quiet     nothing new happens: no rebalance (I9)
    growth    a topic grows: one more round, and every partition has an owner
    end       everyone leaves: nothing may be left (I8); the service drains; a load finds what the log says (I10)

Checkers see every append, call, answer and event, and look into the node's memory after each turn of the loop in
which a command may have been applied.
"""

import asyncio
import logging
import random
from collections.abc import AsyncIterator, Coroutine, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from assignors.contract import Assignor
from assignors.range import RangeAssignor
from assignors.roundrobin import RoundRobinAssignor
from coordinator.core.commands import GroupLoaded, Moment
from coordinator.core.decide import step
from coordinator.core.effects import Event, Failure, GroupChanged, RebalanceBegan
from coordinator.core.group import State as GroupState
from coordinator.runtime.loading import stored_groups
from coordinator.runtime.shard import ShardState
from coordinator.storage.contract import BatchLimits, Write
from member.core import events as ev
from member.core.states import State
from member.options import MemberOptions
from protocol import messages as m
from protocol import operations as ops
from tests.simulation import checkers
from tests.simulation.client import Client
from tests.simulation.disk import SLOW_MS, Disk, PowerCut
from tests.simulation.loop import VirtualLoop
from tests.simulation.network import Answer, Asked, Door, Exchange, Network, raise_its_fault
from tests.simulation.node import EPOCH_MS, Node, member_ids
from tests.simulation.plan import NETWORK_FAULTS, Plan, plan_of
from tests.simulation.stranger import lie
from tests.simulation.trace import Trace, Violation

STALL_MS = (500, 3_000, 15_000)
NODE_STALL_MS = (200, 1_500)
NODE_STALL_GAP_S = 5
POLL_MS = 250
GROWTH_MAX = 12
TOPICS = {"t": 3, "u": 2}


@dataclass(frozen=True, slots=True)
class Result:
    """How a run went. `violation` is None where every law held."""

    seed: int
    digest: str
    turns: int
    calls: int
    virtual_ms: int
    faults: dict[str, int]
    violation: Violation | None
    lines: list[str] = field(default_factory=list)


def run(seed: int, *, verbose: bool = False) -> Result:
    """Carry out one seed's plan."""
    plan = plan_of(seed)
    chance = random.Random(f"run {seed}")
    trace = Trace(verbose=verbose)
    loop = VirtualLoop(random.Random(f"order {seed}") if plan.shuffles else None)
    world = World(plan, chance, trace, loop)
    heard = _Faults(world)
    logger = logging.getLogger("coordinator")
    before = logger.propagate, logger.level
    logger.propagate = False
    logger.setLevel(logging.ERROR)
    logger.addHandler(heard)
    asyncio.set_event_loop(loop)
    violation: Violation | None = None
    try:
        loop.run_until_complete(world.live())
    except Violation as found:
        violation = found
    except Exception as error:
        violation = Violation("NoFault", f"{type(error).__name__}: {error}")
        violation.__cause__ = error
    finally:
        logger.removeHandler(heard)
        logger.propagate, logger.level = before
        logger.setLevel(before[1])
        _dispose(loop)
    return Result(
        seed,
        trace.digest,
        loop.turns,
        world.network.calls,
        round(loop.time() * 1000),
        dict(trace.faults),
        violation,
        [] if violation is None else trace.lines(),
    )


def _dispose(loop: VirtualLoop) -> None:
    """Whatever of a failed run is still there ends unseen."""
    loop.after_turn = None
    loop.fault = None
    loop.set_exception_handler(lambda loop, context: None)
    try:
        for _ in range(5):
            for task in asyncio.all_tasks(loop):
                task.cancel()
            loop.call_soon(loop.stop)
            loop.run_forever()
    finally:
        asyncio.set_event_loop(None)
        loop.close()


class _Faults(logging.Handler):
    """The coordinator logs its own faults with a traceback; each is a violation."""

    def __init__(self, world: "World") -> None:
        super().__init__(logging.ERROR)
        self._world = world

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info and record.exc_info[1] is not None:
            error = record.exc_info[1]
            fault = Violation("NoFault", f"{record.getMessage()}: {type(error).__name__}: {error}")
            fault.__cause__ = error
            self._world.loop.fault = self._world.loop.fault or fault


class World(Door):
    """Everything that takes part in a run."""

    def __init__(self, plan: Plan, chance: random.Random, trace: Trace, loop: VirtualLoop) -> None:
        self.plan = plan
        self.chance = chance
        self.trace = trace
        self.loop = loop
        self.sight = checkers.Sight(plan)
        self.i2 = checkers.I2SyncAnswers(self.sight)
        self.i6 = checkers.I6Answers(self.sight)
        self.i7 = checkers.I7Liveness(self.sight)
        self.i8 = checkers.I8Leaks(self.sight)
        self.i9 = checkers.I9Quiet(self.sight)
        self.i10 = checkers.I10Store(self.sight)
        self.checkers: list[checkers.Checker] = [
            checkers.I1Generations(self.sight),
            self.i2,
            checkers.I3Commits(self.sight),
            checkers.I4Fencing(self.sight),
            checkers.I5Instances(self.sight),
            self.i6,
            self.i7,
            self.i8,
            self.i9,
            self.i10,
            checkers.GroupInvariants(self.sight),
            checkers.MembersBelieve(self.sight, self.i2),
        ]
        slow_ms = max(SLOW_MS) if plan.rates["store_slow"] else 0
        stall_ms = max(NODE_STALL_MS) if "node_stall" in plan.weights else 0
        self.i6.slack_ms += 4 * (plan.store_delay_max_ms + slow_ms) + stall_ms + plan.clock_jitter_ms
        self._hooks = {
            name: [
                getattr(checker, name)
                for checker in self.checkers
                if getattr(type(checker), name) is not getattr(checkers.Checker, name)
            ]
            for name in ("stored", "asked", "answered", "hung_up", "happened", "turned", "node_began", "believed")
        }
        self.disk = Disk(plan, chance, self._stored, self._disk_fault)
        self.network = Network(loop, chance, trace, {kind: plan.rates[kind] for kind in NETWORK_FAULTS}, self)
        self.node: Node | None = None
        self.clients: list[Client] = []
        self.away: list[MemberOptions] = []
        self.is_calm = False
        self._ids = member_ids()
        self._numbers = count(1)
        self._offsets = count(1)
        self._nodes = count(1)
        self._looked_at = 0
        self._background: list[asyncio.Task[Any]] = []
        loop.after_turn = self._after_turn

    # --- what checkers are told --------------------------------------------------------------------------------------

    @property
    def now_ms(self) -> int:
        return round(self.loop.time() * 1000)

    def _tell(self, hook: str, *args: Any) -> None:
        self.sight.now_ms = self.now_ms
        try:
            for listen in self._hooks[hook]:
                listen(*args)
        except Violation as violation:
            # Not raised here, for the service would take it for a fault of its own; the run ends with this turn.
            self.loop.fault = self.loop.fault or violation

    def _stored(self, space: str, writes: Sequence[Write]) -> None:
        for key, value in writes:
            self.trace.note(self.now_ms, f"   {space} {key.decode()} = {None if value is None else value.decode()}")
        for group_id in self.sight.fold.take(writes):
            self._tell("stored", group_id, self.sight.fold.group(group_id))

    def _disk_fault(self, kind: str, text: str) -> None:
        self.trace.fault(self.now_ms, kind, text)

    def asked(self, asked: Asked) -> None:
        self._tell("asked", asked)

    def answered(self, asked: Asked, answer: Answer) -> None:
        self.sight.number = self.network.next_number()
        self._tell("answered", asked, answer)

    def hung_up(self, asked: Asked) -> None:
        self._tell("hung_up", asked)

    def _happened(self, event: Event) -> None:
        if isinstance(event, RebalanceBegan):
            self.trace.note(self.now_ms, f"   {event.group_id} rebalances: {event.reason}")
        elif isinstance(event, GroupChanged):
            summary = event.summary
            self.trace.note(self.now_ms, f"   {event.summary.group_id} is {summary.state} {summary.generation_id}")
        self._tell("happened", event)

    def _believed(self, client: Client) -> None:
        self._tell("believed", client)

    def _after_turn(self) -> None:
        node = self.node
        if node is None or not node.is_up or node.clock.asked == self._looked_at:
            return
        self._looked_at = node.clock.asked
        if node.service.phase == "ready":
            self._tell("turned", node, list(node.loaded()))

    # --- the node ----------------------------------------------------------------------------------------------------

    def begin_node(self) -> None:
        if self.node is not None and self.node.is_up:
            return
        self.sight.number = self.network.next_number()
        self._tell("node_began")
        number = next(self._nodes)
        self.trace.note(self.now_ms, f"   node {number} begins")
        self.node = self.sight.node = self.network.node = Node(
            number, self.plan, self.loop, self.disk, self._happened, self._ids
        )
        self._looked_at = 0
        if "topic_grows" in self.plan.weights and self.sight.fold.topics.keys() == TOPICS.keys():
            # While the groups are loaded, perhaps.
            self.loop.call_later(self.chance.choice([1, 30, 1_000]) / 1000, self._grow_perhaps)

    def _grow_perhaps(self) -> None:
        if not self.is_calm and self.chance.random() < 0.3:
            self._grow(self.chance.choice(sorted(TOPICS)))

    async def kill_node(self) -> None:
        if self.node is None or not self.node.is_up:
            return
        self.trace.fault(self.now_ms, "crash", f"node {self.node.number}")
        self.disk.at_next_append = None
        self.node.kill()
        self.network.reset_all()
        await asyncio.sleep(0.001)
        await self.check_load()
        self.loop.call_later(self.chance.choice([1, 500, 4_000]) / 1000, self.begin_node)

    async def drain_node(self) -> None:
        if self.node is None or not self.node.is_up or self.node.service.phase != "ready":
            return
        self.trace.fault(self.now_ms, "drain", f"node {self.node.number}")
        await self.node.drain()
        await asyncio.sleep(0.002)
        self.i6.all_answered()
        self.network.reset_all()
        await self.check_load()
        self.loop.call_later(self.chance.choice([1, 500, 4_000]) / 1000, self.begin_node)

    async def check_load(self) -> None:
        """I10: what the real load makes of the store, group by group, held against the fold."""
        counts = {topic: record.partitions for topic, record in self.sight.fold.topics.items()}
        now_ms = EPOCH_MS + self.now_ms
        for shard in range(self.plan.shards):
            values = self.disk.contents.space(f"shard-{shard}").values
            async for groups in stored_groups(_Reading(values, self.plan), b""):
                for stored in groups:
                    group = stored.restore()
                    # With the counts that the assignment was made for, so that nothing follows from the load itself.
                    seen = {} if group.header is None else dict(group.header.partition_counts)
                    step(group, GroupLoaded(), Moment(now_ms, self.plan.rules, seen))
                    self.i10.loaded(group)
        self.trace.note(self.now_ms, f"   the store was read; topics {counts}")

    # --- clients -----------------------------------------------------------------------------------------------------

    def running(self) -> list[Client]:
        return [client for client in self.clients if client.runs]

    def start_client(self, options: MemberOptions | None = None) -> None:
        if len(self.running()) >= self.plan.members_max:
            return
        chosen = self._new_options() if options is None else options
        assignors: tuple[Assignor, ...] = tuple(_ASSIGNORS[name] for name in chosen.assignors)
        client = Client(
            f"c{next(self._numbers)}",
            chosen,
            assignors,
            loop=self.loop,
            network=self.network,
            chance=self.chance,
            trace=self.trace,
            numbers=self._numbers,
            on_view=self._believed,
        )
        self.clients.append(client)
        self.sight.clients.append(client)
        who = f"{chosen.group_id} {chosen.group_instance_id or 'dynamic'} {chosen.topics}"
        self.trace.note(self.now_ms, f"   {client.name} starts: {who}")
        client.feed(ev.Started())

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
            client_id=f"m{next(self._numbers)}",
            group_instance_id=instance,
            assignors=chance.choice([("range", "roundrobin"), ("roundrobin", "range")]),
            session_timeout_ms=session_ms,
            rebalance_timeout_ms=chance.choice(plan.rebalance_timeouts_ms),
            heartbeat_wait_ms=chance.choice([0, 20_000, 20_000]),
            request_timeout_ms=chance.choice([1_000, 2_000]),
            park_wait_ms=chance.choice([1_000, 3_000, 20_000]),
            leave_timeout_ms=1_000,
            call_timeout_ms=10_000,
        )

    def _pick(self) -> Client | None:
        running = self.running()
        return self.chance.choice(running) if running else None

    # --- actions -----------------------------------------------------------------------------------------------------

    def act(self, kind: str) -> None:
        """One action of the plan; one that finds nobody to act on does nothing."""
        chance = self.chance
        client = self._pick()
        match kind:
            case "start":
                self.start_client()
            case "come_back":
                if self.away:
                    self.start_client(self.away.pop(chance.randrange(len(self.away))))
            case "topic_grows":
                self._grow(chance.choice(sorted(TOPICS)))
            case "lie":
                self._lie()
            case "crash":
                self._do(self.kill_node())
            case "crash_at_append":
                self._cut_power_at_next_append()
            case "drain":
                self._do(self.drain_node())
            case "node_stall":
                # One after the other, so that a call meets one of them at the most where it must be answered.
                node = self.node
                if node is not None and node.is_up and node.clock.stalled_until + NODE_STALL_GAP_S < self.loop.time():
                    for_ms = chance.choice(NODE_STALL_MS)
                    self.trace.fault(self.now_ms, "node_stall", f"{for_ms} ms")
                    node.clock.stalled_until = self.loop.time() + for_ms / 1000
            case "fetch":
                group_id = chance.choice(self.plan.groups)
                self._say("reader", group_id, ops.FETCH, m.FetchRequest())
            case _ if client is not None:
                self._act_on(kind, client)

    def _act_on(self, kind: str, client: Client) -> None:
        chance = self.chance
        match kind:
            case "leave":
                client.feed(ev.LeaveRequested("done", stay=False))
            case "stop_static" if client.options.group_instance_id is not None:
                client.feed(ev.LeaveRequested(None, stay=True))
                self.away.append(client.options)
            case "commit":
                client.commit(next(self._offsets))
            case "rejoin":
                client.feed(ev.RejoinRequested("asked to"))
            case "resubscribe":
                client.feed(ev.SubscriptionChanged(chance.choice([("t",), ("t", "u"), ("u",)]), None))
            case "vanish" | "cut_off":
                self.trace.fault(self.now_ms, kind, client.name)
                client.vanish(cut_off=kind == "cut_off")
                self.away.append(client.options)
            case "stall":
                for_ms = chance.choice(STALL_MS)
                self.trace.fault(self.now_ms, kind, f"{client.name} {for_ms} ms")
                client.stall(for_ms)
            case "duplicate" if client.options.group_instance_id is not None:
                self.trace.fault(self.now_ms, kind, client.name)
                self.start_client(client.options)
            case "slow_callback":
                self.trace.fault(self.now_ms, kind, client.name)
                client.callback_ms = chance.choice([1, 800, 6_000])

    def _grow(self, topic: str) -> None:
        partitions = self._partitions(topic)
        if partitions < GROWTH_MAX:
            self.trace.fault(self.now_ms, "topic_grows", topic)
            self._do(self._put_topic(topic, partitions + 1))

    def _cut_power_at_next_append(self) -> None:
        is_stored = self.chance.random() < 0.5
        self.disk.at_next_append = PowerCut(is_stored, lambda: self._do(self.kill_node()))
        if self.chance.random() < 0.5:
            # Of the registry, perhaps: then nobody has told the groups.
            self._grow(self.chance.choice(sorted(TOPICS)))

    def _partitions(self, topic: str) -> int:
        """As they are registered in the store."""
        return self.sight.fold.topics[topic].partitions

    async def _put_topic(self, topic: str, partitions: int) -> None:
        node = self.node
        if node is None or not node.is_up:
            return
        answer = await node.service.put_topic(topic, m.PutTopicRequest(partitions=partitions))
        if not isinstance(answer, Failure):
            self.trace.note(self.now_ms, f"   {topic} has {answer.partitions} partitions")

    def _do(self, work: Coroutine[Any, Any, None]) -> None:
        task = self.loop.create_task(work)
        task.add_done_callback(raise_its_fault)
        self._background.append(task)

    def _lie(self) -> None:
        group_id = self.chance.choice(self.plan.groups)
        seen = None if self.node is None else self.node.group(group_id)
        operation, body = lie(self.chance, self.plan, None if seen is None else seen.group, next(self._offsets))
        self.trace.fault(self.now_ms, "lie", operation.name)
        self._say("stranger", group_id, operation, body)

    def _say(self, who: str, group_id: str, operation: ops.Operation, body: m.RequestModel) -> None:
        exchange = Exchange(who, group_id, operation, body, lambda outcome: None)
        self.network.send(exchange, self.chance.choice([300, 5_000]))

    # --- the run -----------------------------------------------------------------------------------------------------

    async def live(self) -> None:
        """From the first start to the last check."""
        self.begin_node()
        await asyncio.sleep(0.001)
        for topic, partitions in TOPICS.items():
            await self._register(topic, partitions)
        kinds, weights = list(self.plan.weights), list(self.plan.weights.values())
        for kind in self.chance.choices(kinds, weights, k=self.plan.actions):
            gap_ms = self.chance.choice([0, 1, self.plan.gap_ms, 2 * self.plan.gap_ms])
            await asyncio.sleep(gap_ms / 1000)
            self.act(kind)
            self.i6.overdue()
        await self._calm_down()
        for group_id in self.plan.groups:
            self._check_owners(group_id)
        await self._stay_quiet()
        await self._see_growth()
        await self._end()

    async def _register(self, topic: str, partitions: int) -> None:
        """The topics a run begins with; a drive that fails is asked again."""
        while topic not in self.sight.fold.topics:
            await self._put_topic(topic, partitions)
            await asyncio.sleep(0.1)

    async def _calm_down(self) -> None:
        self.trace.note(self.now_ms, "== calm")
        self.is_calm = True
        self.disk.heal()
        self.network.heal()
        for client in self.clients:
            client.callback_ms = 1
            client.go_on()
        while self.node is None or not self.node.is_up or self.node.service.phase != "ready":
            self.begin_node()
            await asyncio.sleep(0.1)
        self.node.clock.stalled_until = 0.0
        await asyncio.gather(*self._background, return_exceptions=True)
        # What was late arrives, and what follows from it begins.
        await asyncio.sleep(0.01)
        if not self.running():
            self.start_client()
        await self._wait_settled()

    def _bound_ms(self) -> int:
        return 3 * max(self.plan.rebalance_timeouts_ms) + max(self.plan.session_timeouts_ms)

    async def _wait_settled(self) -> None:
        until_ms = self.now_ms + self._bound_ms()
        while (why := self._unsettled()) is not None:
            if self.now_ms > until_ms:
                self.i7.late(f"after {self._bound_ms()} ms of calm: {why}")
            await asyncio.sleep(POLL_MS / 1000)
            self.i6.overdue()

    def _unsettled(self) -> str | None:
        """Why the world is not at rest yet; None where it is."""
        assert self.node is not None
        known = self.node.service.list_topics()
        if isinstance(known, Failure) or any(x.partitions != self._partitions(x.topic) for x in known.topics):
            return f"the registry is behind the store: {known}"
        for shard in self.node.shards:
            if shard.state is not ShardState.ACTIVE or shard._reloads:
                return f"shard {shard.number} is {shard.state}: {shard.error}"
        for group_id in self.plan.groups:
            members = {client.machine.member_id for client in self.running() if client.group_id == group_id}
            seen = self.node.group(group_id)
            if seen is None:
                if members:
                    return f"{group_id} is not loaded, but {sorted(members)} run"
                continue
            if not seen.is_idle:
                return f"a change of {group_id} is being stored"
            group = seen.group
            wanted = GroupState.STABLE if members else (GroupState.EMPTY, GroupState.DEAD)
            if group.state not in wanted or group.members.keys() != members or group.pending:
                who = f"with {sorted(group.members)}, pending {sorted(group.pending)}, while {sorted(members)} run"
                return f"{group_id} is {group.state} {who}"
        for client in self.running():
            if client.state is not State.STABLE or client.held is None:
                return f"{client.name} is {client.state.value}: {client.machine.last_failure}"
        return None

    async def _stay_quiet(self) -> None:
        self.trace.note(self.now_ms, "== quiet")
        self.i9.is_quiet = True
        for _ in range(4):
            await asyncio.sleep((max(self.plan.session_timeouts_ms) / 3 + 500) / 1000)
            self.i6.overdue()
        why = self._unsettled()
        if why is not None:
            self.i9.fail(why)
        self.i9.is_quiet = False

    async def _see_growth(self) -> None:
        self.trace.note(self.now_ms, "== growth")
        before = {c.name: c.held.generation_id for c in self.running() if c.held is not None}
        for topic in TOPICS:
            await self._put_topic(topic, self._partitions(topic) + 1)
        await asyncio.sleep(POLL_MS / 1000)
        await self._wait_settled()
        for client in self.running():
            if client.held is not None and client.held.generation_id <= before.get(client.name, 0):
                self.i7.late(f"{client.name} did not hear that a topic grew")
        for group_id in self.plan.groups:
            self._check_owners(group_id)

    def _check_owners(self, group_id: str) -> None:
        """Each registered partition of the topics that somebody wants has an owner (`MembersBelieve`: only one)."""
        owners: dict[tuple[str, int], str] = {}
        topics: set[str] = set()
        for client in self.running():
            if client.group_id == group_id and client.held is not None:
                owners.update(dict.fromkeys(client.held.partitions, client.name))
                topics.update(client.machine._topics)
        wanted = {(topic, p) for topic in topics for p in range(self._partitions(topic))}
        if owners.keys() != wanted:
            self.i7.late(
                f"{group_id}: without an owner, or with one it should not have: {sorted(owners.keys() ^ wanted)}"
            )

    async def _end(self) -> None:
        self.trace.note(self.now_ms, "== end")
        for group_id in self.plan.groups:
            self._say("reader", group_id, ops.FETCH, m.FetchRequest())
        for client in self.running():
            client.feed(ev.LeaveRequested("the end", stay=False))
        await asyncio.sleep((max(self.plan.rules.group_initial_rebalance_delay_ms, 0) + 3_000) / 1000)
        assert self.node is not None
        self.i8.idle(self.node, self.plan.groups)
        await self.node.drain()
        await asyncio.sleep(0.002)
        self.i6.all_answered()
        await self.check_load()
        await asyncio.sleep(0.1)
        left = [task.get_name() for task in asyncio.all_tasks(self.loop) if task is not asyncio.current_task()]
        if left:
            self.i8.fail(f"{len(left)} tasks are left when everything has ended")


_ASSIGNORS: dict[str, Assignor] = {"range": RangeAssignor(), "roundrobin": RoundRobinAssignor()}


class _Reading:
    """A store's contents to be read, while nobody owns them; `Space` as far as a load needs it."""

    epoch = 0

    def __init__(self, values: dict[bytes, bytes], plan: Plan) -> None:
        self._values = values
        self._rows = plan.page_rows
        self.limits: BatchLimits = plan.limits

    async def scan(self, prefix: bytes) -> AsyncIterator[Sequence[tuple[bytes, bytes]]]:
        rows = [(key, self._values[key]) for key in sorted(self._values) if key.startswith(prefix)]
        for start in range(0, len(rows), self._rows):
            yield rows[start : start + self._rows]

    async def append(self, writes: Sequence[Write]) -> None:
        raise AssertionError("a reading stores nothing")

    async def release(self) -> None:
        """Nothing is owned."""
