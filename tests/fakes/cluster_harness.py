"""Several nodes over one shared store in memory, each with the real service, on one clock that a test moves."""

import asyncio
from itertools import count
from typing import Any

from rallypoint.coordinator.core.cluster.records import NodeAnnouncement
from rallypoint.coordinator.core.commands import Rules
from rallypoint.coordinator.core.effects import Failure
from rallypoint.coordinator.runtime.cluster.member_node import MemberNode
from rallypoint.coordinator.runtime.contract import NodeAddress, NodeCapacity
from rallypoint.coordinator.runtime.service import Phase, Service
from rallypoint.coordinator.storage.contract import REGISTRY_KEYSPACE, shard_keyspace
from rallypoint.protocol import messages as m
from rallypoint.protocol.errors import ErrorCode
from rallypoint.protocol.group_hash import shard_of_group
from rallypoint.protocol.opaque import OpaqueJson
from tests.fakes.manual_clock import ManualClock, settle
from tests.fakes.service_harness import RULES, Watcher, heartbeat, join, sync
from tests.fakes.shared_memory import SharedContents, SharedMemoryStore

SHARDS = 12


class ClusterNode:
    """One life of a node."""

    def __init__(
        self, cluster: "Cluster", node_id: str, rack: str | None = None, format_minor: int = 0, shards: int = SHARDS
    ) -> None:
        self.node_id = node_id
        self.cluster = cluster
        self.store = SharedMemoryStore(cluster.contents, node_id)
        self.watcher = Watcher()
        address = NodeAddress(node_id, f"http://{node_id}")
        announcement = NodeAnnouncement(node_id, address.url, rack, "0", 1, format_minor, 0)
        self.member = MemberNode(self.store, announcement, shards=shards, clock=cluster.clock)
        ids = cluster.ids
        self.service = Service(
            self.store,
            clock=cluster.clock,
            ownership=self.member,
            address=address,
            rules=cluster.rules,
            shards=shards,
            draw_id=lambda: f"{next(ids):04}",
            observer=self.watcher,
            capacity=cluster.capacity,
        )
        self.starting: asyncio.Task[None] | None = None

    async def start(self) -> "ClusterNode":
        self.starting = asyncio.create_task(self.service.start())
        await settle()
        return self

    @property
    def shards(self) -> set[int]:
        """Those that it has loaded."""
        return {shard for shard in range(SHARDS) if shard_keyspace(shard) in self.service.open_keyspaces()}

    @property
    def has_registry(self) -> bool:
        return REGISTRY_KEYSPACE in self.service.open_keyspaces()

    async def ask(self, group_id: str, request: Any) -> Any:
        """A call that must be answered without any time passing."""
        task = asyncio.create_task(self.service.call(group_id, request, host="198.51.100.7"))
        await settle()
        assert task.done(), f"{request} waits"
        return task.result()

    async def stop(self) -> None:
        """As a SIGTERM does it."""
        draining = asyncio.create_task(self.member.drain())
        await self.cluster.clock.run(1_000)
        assert draining.done(), "the drain has not ended"
        await self.cut_short()

    async def cut_short(self) -> None:
        assert self.starting is not None
        self.starting.cancel()
        await self.service.drain()
        await self.member.close()
        await self.store.close()
        del self.cluster.nodes[self.node_id]
        await settle()


class Cluster:
    """Nodes by id."""

    def __init__(self, rules: Rules = RULES) -> None:
        self.contents = SharedContents()
        self.clock = ManualClock()
        self.rules = rules
        self.ids = count(1)
        self.capacity = NodeCapacity()
        self.nodes: dict[str, ClusterNode] = {}

    async def start(
        self, *node_ids: str, rack: str | None = None, format_minor: int = 0, quiet_ms: int = 10_000
    ) -> None:
        for node_id in node_ids:
            self.nodes[node_id] = await ClusterNode(self, node_id, rack, format_minor).start()
        await self.clock.run(quiet_ms)

    def __getitem__(self, node_id: str) -> ClusterNode:
        return self.nodes[node_id]

    async def end(self) -> None:
        for node in list(self.nodes.values()):
            node.store.is_cut = False
            await node.cut_short()
        assert self.clock.now_ms()

    def coordinator_of(self, group_id: str) -> ClusterNode:
        """As a look-up at any node finds it; all must agree."""
        found = {
            node.service.find_coordinators(m.CoordinatorRequest(group_ids=(group_id,))).coordinators[0].node_id
            for node in self.nodes.values()
            if node.service.phase is Phase.READY and not node.store.is_cut
        }
        assert len(found) == 1, found
        (node_id,) = found
        assert node_id is not None
        return self.nodes[node_id]

    def check_owned_once(self) -> None:
        """Every shard and the registry is loaded by exactly one node."""
        loaded = [shard for node in self.nodes.values() for shard in node.shards]
        assert sorted(loaded) == list(range(SHARDS)), sorted(loaded)
        assert sum(node.has_registry for node in self.nodes.values()) == 1

    async def form(self, group_id: str) -> tuple[str, int]:
        """A Stable group of one member: its id and its generation."""
        node = self.coordinator_of(group_id)
        refused = await node.ask(group_id, join("a", ""))
        assert isinstance(refused, Failure), refused
        assert refused.code is ErrorCode.MEMBER_ID_REQUIRED, refused
        member_id = refused.member_id
        assert member_id
        joined = await node.ask(group_id, join("a", member_id))
        assert isinstance(joined, m.JoinAnswer), joined
        shares = (m.SyncAssignment(member_id=member_id, assignment=OpaqueJson.of("mine")),)
        synced = await node.ask(group_id, sync(member_id, joined.generation_id, shares))
        assert isinstance(synced, m.SyncAnswer), synced
        return member_id, joined.generation_id

    def group_on(self, node_id: str) -> str:
        """A group id that the node coordinates."""
        return next(
            group_id
            for group_id in (f"group-{number}" for number in range(1_000))
            if shard_of_group(group_id, SHARDS) in self.nodes[node_id].shards
        )


def beat(member_id: str, generation_id: int) -> Any:
    return heartbeat(member_id, generation_id)
