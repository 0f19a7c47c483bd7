"""The course of a run: a cluster forms, the plan's steps come, everything heals and comes to rest, one more move that
members must not feel, and the end.
"""

import asyncio

from rallypoint.coordinator.runtime.condition import ShardState
from rallypoint.coordinator.storage.cluster_codec import decode_placement
from rallypoint.coordinator.storage.contract import REGISTRY_KEYSPACE, shard_keyspace
from rallypoint.member.core import events as ev
from rallypoint.member.core.states import State
from rallypoint.protocol.group_hash import shard_of_group
from tests.simulation.cluster.etcd_link import KEYS
from tests.simulation.cluster.node import ClusterNode
from tests.simulation.cluster.plan import NODE_IDS
from tests.simulation.cluster.world import ClusterWorld
from tests.simulation.trace import Violation

FORMS_WITHIN_S = 60.0
RESTS_WITHIN_S = 150.0
"""The longest pause, a lease, the waits between tries, a load, a session and a rebalance, each more than once."""
LOOK_S = 0.25
QUIET_S = 6.0
ANSWERS_WITHIN_S = 70.0
"""Of a node: more than any call may be parked."""


class ClusterStages:
    """Of one world."""

    def __init__(self, world: ClusterWorld) -> None:
        self._world = world

    async def live(self) -> None:
        """The whole run."""
        await self._form()
        await self._steps()
        self._say("healed")
        self._world.heal()
        await self._rest("after the faults")
        await self._move()
        await self._end()

    def _say(self, stage: str) -> None:
        self._world.trace.note(self._world.now_ms, f"== {stage}")

    async def _form(self) -> None:
        world = self._world
        for node_id in NODE_IDS:
            world.want(node_id)
            world.begin_node(node_id)
            await asyncio.sleep(world.chance.choice([0, 0.5]))
        try:
            async with asyncio.timeout(FORMS_WITHIN_S):
                await world.register_topics()
        except TimeoutError:
            raise Violation("ComesToRest", f"no topic could be registered within {FORMS_WITHIN_S} s") from None

    async def _steps(self) -> None:
        world = self._world
        began_ms = world.now_ms
        for step in sorted(world.plan.steps, key=lambda step: step.at_ms):
            await asyncio.sleep(max(0, began_ms + step.at_ms - world.now_ms) / 1000)
            world.act(step)

    # --- rest --------------------------------------------------------------------------------------------------------

    async def _rest(self, when: str) -> None:
        """ComesToRest: with no more faults every shard gets to its preferred node, and every group to its members, and
        then nothing moves where nothing happens. What the faults have begun may end first, as a session does.
        """
        loop = self._world.loop
        until_s = loop.time() + RESTS_WITHIN_S
        why: str | None = "never looked"
        since_s, stood = loop.time(), self._standing()
        while why is not None or loop.time() - since_s < QUIET_S:
            await asyncio.sleep(LOOK_S)
            why, stands = self.why_not_at_rest(), self._standing()
            if why is not None or stands != stood:
                since_s, stood = loop.time(), stands
            if loop.time() > until_s:
                raise Violation("ComesToRest", f"{when}, {RESTS_WITHIN_S} s later: {why or 'something still moves'}")

    def _standing(self) -> tuple[dict[str, set[int]], dict[str, int]]:
        return self._generations(), self._epochs()

    def why_not_at_rest(self) -> str | None:
        """What is still missing."""
        return self._why_not_placed() or self._why_not_stable()

    def _why_not_placed(self) -> str | None:
        world = self._world
        stored = world.etcd.newest(KEYS.fact("placement"))
        if stored is None:
            return "there is no placement"
        placement = decode_placement(stored.value)
        for node in world.nodes.values():
            if not node.is_up or not node.process.is_running or node.service is None:
                return f"{node.name} does not run"
        for keyspace in (REGISTRY_KEYSPACE, *map(shard_keyspace, range(world.plan.shards))):
            order = placement.orders[keyspace]
            # Where all nodes drain, each keeps what it has.
            takes = [one for one in order if not placement.nodes[one].is_draining]
            owner = world.etcd.newest(KEYS.owner(keyspace))
            node_id = None if owner is None else owner.value.decode()
            if node_id is None or node_id != (takes or [node_id])[0]:
                return f"{keyspace} should be {(takes or list(order))[0]}'s, and its owner is {owner}"
            if (missing := self._why_not_served(keyspace, world.nodes[node_id])) is not None:
                return missing
        return self._why_topics_differ()

    def _why_not_served(self, keyspace: str, owner: ClusterNode) -> str | None:
        assert owner.service is not None
        if keyspace == REGISTRY_KEYSPACE:
            return None if keyspace in owner.service.open_keyspaces() else f"{owner.name} has not opened the registry"
        shard = owner.shards[int(keyspace.removeprefix("shard-"))]
        if shard.state is not ShardState.ACTIVE or shard.why_not_current() is not None:
            return f"{owner.name} has {keyspace} {shard.state.value}"
        others = [
            node.name
            for node in self._world.nodes.values()
            if node is not owner and node.shards[shard.number].state is not ShardState.ABSENT
        ]
        return f"{keyspace} is {owner.name}'s, and {others} have it, too" if others else None

    def _why_topics_differ(self) -> str | None:
        """Every node knows the registry as it is stored."""
        stored = {topic: record.partitions for topic, record in self._world.sight.fold.topics.items()}
        for node in self._world.nodes.values():
            assert node.service is not None
            known = node.service._registry.registry.partition_counts
            if dict(known) != stored:
                return f"{node.name} knows the topics {dict(known)}; stored are {stored}"
        return None

    def _why_not_stable(self) -> str | None:
        for client in self._world.running():
            if client.is_stalled:
                return f"{client.name} of {client.group_id} stands still, and may not know yet what it has lost"
            if client.state is not State.STABLE or client.held is None:
                return f"{client.name} of {client.group_id} is {client.state.value}"
        for group_id, generations in self._generations().items():
            if len(generations) > 1:
                return f"the members of {group_id} are in generations {sorted(generations)}"
            if generations and (why := self._why_not_shared_out(group_id) or self._who_is_missed(group_id)) is not None:
                return why
        return None

    def _who_is_missed(self, group_id: str) -> str | None:
        """A static member that died in the faults keeps its place, and ends the rest, until its session is over."""
        running = [client for client in self._world.running() if client.group_id == group_id]
        stored = self._world.sight.fold.group(group_id).members
        if len(stored) != len(running):
            return f"{group_id} has the members {sorted(stored)}, and {len(running)} of them run"
        return None

    def _why_not_shared_out(self, group_id: str) -> str | None:
        world = self._world
        mine = [client for client in world.running() if client.group_id == group_id]
        topics = {topic for client in mine for topic in client.options.topics}
        wanted = {(topic, p) for topic in topics for p in range(world.sight.fold.topics[topic].partitions)}
        owned = [one for client in mine if client.held is not None for one in client.held.partitions]
        if sorted(owned) != sorted(wanted):
            return f"of {group_id} is owned {sorted(owned)}, wanted {sorted(wanted)}"
        return None

    def _generations(self) -> dict[str, set[int]]:
        found: dict[str, set[int]] = {group_id: set() for group_id in self._world.plan.basis.groups}
        for client in self._world.running():
            found[client.group_id].add(client.machine.generation_id)
        return found

    def _epochs(self) -> dict[str, int]:
        keyspaces = (REGISTRY_KEYSPACE, *map(shard_keyspace, range(self._world.plan.shards)))
        found = {name: self._world.etcd.newest(KEYS.owner(name)) for name in keyspaces}
        return {name: 0 if owner is None else owner.mod_revision for name, owner in found.items()}

    # --- a move that members must not feel ---------------------------------------------------------------------------

    async def _move(self) -> None:
        """NoRebalance: where only its node changes, a group goes on in its generation."""
        world = self._world
        for _ in range(2):
            world.start_client()
        await self._rest("with a few more members")
        before = self._generations()
        node = self._node_to_move()
        self._say(f"{world.plan.movement} of {node.name}")
        await self._move_away(node)
        await self._rest(f"after the {world.plan.movement}")
        if (now := self._generations()) != before:
            raise Violation("NoRebalance", f"by the {world.plan.movement} of {node.name} {before} became {now}")

    def _node_to_move(self) -> ClusterNode:
        """One that serves a group with members, if there is one."""
        world = self._world
        for client in world.running():
            shard = shard_of_group(client.group_id, world.plan.shards)
            for node in world.nodes.values():
                if node.shards[shard].state is ShardState.ACTIVE:
                    return node
        return world.nodes[NODE_IDS[0]]

    async def _move_away(self, node: ClusterNode) -> None:
        world = self._world
        match world.plan.movement:
            case "drain":
                node.drain()
            case "kill":
                world.kill(node, world.chance.choice([1, 500, 3_000]))
            case "pause":
                node.pause(world.plan.lease_ttl_ms / 1000 + 1)
            case "operator_drain" as kind:
                await world.change_placement(kind, node.node_id, 0)
                await self._rest("while a node is drained by an operator")
                await world.change_placement("operator_undrain", node.node_id, 0)
            case kind:
                to = NODE_IDS[(NODE_IDS.index(node.node_id) + 1) % len(NODE_IDS)]
                for shard in range(world.plan.shards):
                    await world.change_placement(kind, to, shard)
        await asyncio.sleep(world.plan.lease_ttl_ms / 1000 + 1)

    # --- the end -----------------------------------------------------------------------------------------------------

    async def _end(self) -> None:
        world = self._world
        self._say("end")
        for group_id in world.plan.basis.groups:
            for node_id in NODE_IDS:
                world.fetch(group_id, node_id)
        await asyncio.sleep(1)
        world.laws.every_answer.none_older_than(world.now_ms - round(ANSWERS_WITHIN_S * 1000))
        for client in world.running():
            client.feed(ev.LeaveRequested("the end", stay=False))
        await asyncio.sleep(3)
        for node_id in NODE_IDS:
            world.want(node_id, is_wanted=False)
            node = world.nodes[node_id]
            node.drain()
            await self._until_ended(node)

    async def _until_ended(self, node: ClusterNode) -> None:
        until_s = self._world.loop.time() + 60
        while not node.has_ended:
            if self._world.loop.time() > until_s:
                raise Violation("EndsClean", f"{node.name} does not stop")
            await asyncio.sleep(LOOK_S)
        await asyncio.sleep(0.01)
        left = [str(task.get_coro()) for task in (*node.process.pending(), *node.lease_thread.pending())]
        if left:
            raise Violation("EndsClean", f"{node.name} has stopped and leaves {left}")
