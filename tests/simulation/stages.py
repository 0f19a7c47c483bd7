"""The stages of a run.

chaos     actions and faults, by the plan
calm      no more faults: every group must come to rest in time (I7)
quiet     nothing new happens: no rebalance (I9)
growth    a topic grows, first where only members count it: one more rebalance, and every partition has an owner
end       everyone leaves: nothing may be left (I8); the service drains; a load finds what the log says (I10)
"""

import asyncio

from rallypoint.coordinator.core.effects import Failure
from rallypoint.coordinator.core.group import State as GroupState
from rallypoint.coordinator.runtime.condition import ShardState
from rallypoint.member.core import events as ev
from rallypoint.member.core.states import State
from rallypoint.member.core.topic_growth import growth
from rallypoint.protocol import messages as m
from rallypoint.protocol import operations as ops
from tests.simulation.actions import Actions
from tests.simulation.client import LOOK_MS
from tests.simulation.plan import COOLDOWN_MAX_MS, FREEZE_MAX_MS
from tests.simulation.world import TOPICS, World

POLL_MS = 250


class Stages:
    """Of one world."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._calm_at_ms = 0

    async def live(self) -> None:
        """From the first start to the last check."""
        self._world.begin_node()
        await asyncio.sleep(0.001)
        for topic, partitions in TOPICS.items():
            await self._world.register(topic, partitions)
        actions = Actions(self._world)
        kinds, weights = list(self._world.plan.weights), list(self._world.plan.weights.values())
        for kind in self._world.chance.choices(kinds, weights, k=self._world.plan.actions):
            gap_ms = self._world.chance.choice([0, 1, self._world.plan.gap_ms, 2 * self._world.plan.gap_ms])
            await asyncio.sleep(gap_ms / 1000)
            actions.act(kind)
            self._world.judge.i6.overdue()
        if "crash_at_append" in kinds and self._world.chance.random() < 0.5:
            # As the last thing, so that no later rebalance makes up for a growth that nobody noticed.
            actions.grow_and_lose_power()
            await asyncio.sleep(0.01)
        await self._calm_down()
        for group_id in self._world.plan.groups:
            self._check_owners(group_id)
        await self._stay_quiet()
        if self._world.plan.counts_elsewhere:
            await self._see_growth_elsewhere()
        await self._see_growth()
        await self._end()

    async def _calm_down(self) -> None:
        self._world.trace.note(self._world.now_ms, "== calm")
        self._world.is_calm = True
        self._calm_at_ms = self._world.now_ms
        self._world.disk.heal()
        # Before the wires heal, or what waits at a node that stands still would come in the middle of the quiet.
        self._world.end_stall()
        self._world.network.heal()
        for client in self._world.clients:
            client.callback_ms = 1
            client.go_on()
        await asyncio.gather(*self._world.background, return_exceptions=True)
        while self._world.node is None or not self._world.node.is_up or self._world.node.service.phase != "ready":
            self._world.begin_node()
            await asyncio.sleep(0.1)
        # What was late arrives, and what follows from it begins.
        await asyncio.sleep(0.01)
        if not self._world.running():
            self._world.start_client()
        await self._wait_settled()

    def _bound_ms(self) -> int:
        """Of I7. What holds rebalances back is bounded too: one freeze, and a cool-down after each of three."""
        plan = self._world.plan
        held_ms = 3 * COOLDOWN_MAX_MS if "cooldown" in plan.weights or plan.rules.rebalance_cooldown_ms else 0
        held_ms += FREEZE_MAX_MS if {"freeze", "freeze_until"} & plan.weights.keys() else 0
        return 3 * max(plan.rebalance_timeouts_ms) + max(plan.session_timeouts_ms) + held_ms

    async def _wait_settled(self) -> None:
        until_ms = self._world.now_ms + self._bound_ms()
        while (why := self._unsettled()) is not None:
            if self._world.now_ms > until_ms:
                self._world.judge.i7.late(f"after {self._bound_ms()} ms of calm: {why}")
            await asyncio.sleep(POLL_MS / 1000)
            self._world.judge.i6.overdue()

    def _unsettled(self) -> str | None:
        """Why the world is not at rest yet; None where it is."""
        assert self._world.node is not None
        if self._world.node.service._registry._tasks:
            return "a change of the registry is being stored"
        known = self._world.node.service.list_topics()
        stored = {topic: record.partitions for topic, record in self._world.sight.fold.topics.items()}
        if isinstance(known, Failure) or {x.topic: x.partitions for x in known.topics} != stored:
            return f"the registry is behind the store: {known}"
        for shard in self._world.node.shards:
            if shard.state is not ShardState.ACTIVE or shard._reloads:
                return f"shard {shard.number} is {shard.state}: {shard.why_unavailable()}"
        for group_id in self._world.plan.groups:
            members = {client.machine.member_id for client in self._world.running() if client.group_id == group_id}
            seen = self._world.node.group(group_id)
            if seen is None:
                if members:
                    return f"{group_id} is not loaded, but {sorted(members)} run"
                continue
            if not seen.is_idle:
                return f"a change of {group_id} is being stored"
            group = seen.group
            if group.held:
                return f"a rebalance of {group_id} is held back: {group.held[0].reason}"
            wanted = GroupState.STABLE if members else (GroupState.EMPTY, GroupState.DEAD)
            if group.state not in wanted or group.members.keys() != members or group.pending:
                who = f"with {sorted(group.members)}, pending {sorted(group.pending)}, while {sorted(members)} run"
                return f"{group_id} is {group.state} {who}"
        for client in self._world.running():
            if client.waits_since(self._calm_at_ms):
                return f"{client.name} waits for the answer to a heartbeat that was late"
            is_in_doubt = client.is_in_doubt and self._world.plan.lets_all_wait
            if client.state is not State.STABLE or client.held is None or is_in_doubt:
                return f"{client.name} is {client.state.value}: {client.machine.last_failure}"
            if client.held.leader and (grown := growth(client.held.partition_counts, self._world.counted())):
                return f"{client.name} has not assigned what there is: {grown}"
        return None

    async def _stay_quiet(self) -> None:
        self._world.trace.note(self._world.now_ms, "== quiet")
        self._world.judge.i9.is_quiet = True
        for part in range(4):
            if part == 1:
                # A blip, of which every member comes back in its grace: it moves nothing.
                self._world.cut_all_lines()
            elif part == 2:
                # What a line still held is read after what is said on the next one, and moves nothing either.
                for client in self._world.running():
                    if client.link is not None and not client.is_on_http:
                        client.leave_a_heartbeat_behind()
            await asyncio.sleep((max(self._world.plan.session_timeouts_ms) / 3 + 500) / 1000)
            self._world.judge.i6.overdue()
        why = self._unsettled()
        if why is not None:
            self._world.judge.i9.fail(why)
        self._world.judge.i9.is_quiet = False

    async def _see_growth(self) -> None:
        self._world.trace.note(self._world.now_ms, "== growth")
        before = {c.name: c.held.generation_id for c in self._world.running() if c.held is not None}
        for topic in TOPICS:
            await self._world.put_topic(topic, self._world.partitions(topic) + 1)
        await asyncio.sleep(POLL_MS / 1000)
        await self._wait_settled()
        for client in self._world.running():
            if client.held is not None and client.held.generation_id <= before.get(client.name, 0):
                self._world.judge.i7.late(f"{client.name} did not hear that a topic grew")
        for group_id in self._world.plan.groups:
            self._check_owners(group_id)

    async def _see_growth_elsewhere(self) -> None:
        """Where a leader is static its process begins again meanwhile, and finds its assignment in place."""
        self._world.trace.note(self._world.now_ms, "== growth elsewhere")
        away = [
            client
            for client in self._world.running()
            if client.held is not None and client.held.leader and client.options.group_instance_id is not None
        ]
        for client in away:
            client.feed(ev.LeaveRequested(None, stay=True))
        await asyncio.sleep(POLL_MS / 1000)
        for topic in TOPICS:
            self._world.grow_elsewhere(topic)
        for client in away:
            self._world.start_client(client.options)
        await asyncio.sleep(2 * LOOK_MS / 1000)
        await self._wait_settled()
        for group_id in self._world.plan.groups:
            self._check_owners(group_id)

    def _check_owners(self, group_id: str) -> None:
        """Each partition of the topics that somebody wants has an owner (`MembersBelieve`: only one)."""
        owners: dict[tuple[str, int], str] = {}
        topics: set[str] = set()
        for client in self._world.running():
            if client.group_id == group_id and client.held is not None:
                owners.update(dict.fromkeys(client.held.partitions, client.name))
                topics.update(client.machine._topics)
        counts = self._world.counted()
        wanted = {(topic, p) for topic in topics for p in range(counts.get(topic, 0))}
        if owners.keys() != wanted:
            self._world.judge.i7.late(
                f"{group_id}: without an owner, or with one it should not have: {sorted(owners.keys() ^ wanted)}"
            )

    async def _end(self) -> None:
        self._world.trace.note(self._world.now_ms, "== end")
        for group_id in self._world.plan.groups:
            self._world.say("reader", group_id, ops.FETCH, m.FetchRequest())
        for client in self._world.running():
            client.feed(ev.LeaveRequested("the end", stay=False))
        plan = self._world.plan
        unheard_ms = 0 if plan.takes_all_calls else self._bound_ms()
        await asyncio.sleep((plan.rules.group_initial_rebalance_delay_ms + 3_000 + unheard_ms) / 1000)
        assert self._world.node is not None
        self._world.judge.i8.idle(self._world.node, self._world.plan.groups)
        await self._world.node.drain()
        await asyncio.sleep(0.002)
        self._world.judge.i6.all_answered()
        self._world.judge.i13.nothing_left(self._world.node)
        await self._world.check_load()
        await asyncio.sleep(0.1)
        left = [task.get_name() for task in asyncio.all_tasks(self._world.loop) if task is not asyncio.current_task()]
        if left:
            self._world.judge.i8.fail(f"{len(left)} tasks are left when everything has ended")
