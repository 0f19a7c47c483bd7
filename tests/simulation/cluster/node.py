"""One life of a node of the cluster: the real service, the real rules of ownership and the real engine for etcd."""

import asyncio
import random
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

from rallypoint.coordinator.core.cluster.records import NodeAnnouncement
from rallypoint.coordinator.core.commands import Rules
from rallypoint.coordinator.core.effects import Event
from rallypoint.coordinator.runtime.cluster.member_node import MemberNode
from rallypoint.coordinator.runtime.condition import ShardState
from rallypoint.coordinator.runtime.contract import NodeAddress, NodeCapacity
from rallypoint.coordinator.runtime.event_loop.clock import NS_A_MS, SystemClock
from rallypoint.coordinator.runtime.service import Service
from rallypoint.coordinator.runtime.shard import Shard
from rallypoint.coordinator.storage.contract import AppendMetrics, BatchLimits, StorageError
from rallypoint.coordinator.storage.etcd.store import EtcdStore
from tests.simulation.cluster.channels import NodeChannels
from tests.simulation.cluster.etcd_link import KEYS, EtcdLink
from tests.simulation.cluster.processes import ClusterLoop, Process, ProcessDriver
from tests.simulation.node import EPOCH_MS, Seen, _seen

DRAIN_TIMEOUT_S = 10.0
GOODBYE_TIMEOUT_S = 3.0


class ClusterNode:
    """A process. `on_end` is called when it has ended by itself: after a drain, or because it could not start."""

    def __init__(
        self,
        node_id: str,
        life: int,
        loop: ClusterLoop,
        link: EtcdLink,
        *,
        rules: Rules,
        capacity: NodeCapacity,
        limits: BatchLimits,
        shards: int,
        lease_ttl_ms: int,
        clock_rate: float,
        wall_ahead_ms: int,
        ids: Iterator[int],
        chance: random.Random,
        on_end: Callable[["ClusterNode", str], None],
        on_event: Callable[["ClusterNode", Event], None],
        channels_of: Callable[["ClusterNode"], NodeChannels] | None = None,
    ) -> None:
        """`on_event` is told of what the service lets be seen. `channels_of`: makes its server of channels, if it has
        one.
        """
        self.node_id = node_id
        self.name = f"{node_id}.{life}"
        self.url = f"http://{node_id}"
        self.link = link
        self.process = Process(loop, self.name)
        self.lease_thread = Process(loop, f"{self.name} lease", self.process)
        self.service: Service | None = None
        self.member: MemberNode | None = None
        self.has_ended = False
        self._loop = loop
        self._store: EtcdStore | None = None
        self._rules = rules
        self._capacity = capacity
        self._limits = limits
        self._shards = shards
        self._lease_ttl_ms = lease_ttl_ms
        self._rate = clock_rate
        self._wall_ahead_ms = wall_ahead_ms
        self._ids = ids
        self._chance = chance
        self._on_end = on_end
        self._on_event = on_event
        self._channels_of = channels_of
        self.api: NodeChannels | None = None
        self._drains = asyncio.Event()
        self._life = self.process.spawn(self._live())
        self._life.add_done_callback(_raise_its_fault)

    @property
    def is_up(self) -> bool:
        """The process is there, paused or not."""
        return not self.process.is_dead and not self.has_ended

    @property
    def shards(self) -> list[Shard]:
        """Of its service; none before it has one."""
        return [] if self.service is None else self.service._shards

    def shard_of(self, group_id: str) -> Shard | None:
        """The group's shard here."""
        return None if self.service is None else self.shards[self.service._shard_of(group_id)]

    def group(self, group_id: str) -> Seen | None:
        """A group that this node serves at this instant."""
        shard = self.shard_of(group_id)
        if shard is None or shard.state is not ShardState.ACTIVE or shard.why_not_current() is not None:
            return None
        executor = shard.executors.get(group_id)
        return None if executor is None else _seen(executor)

    # --- what happens to it ------------------------------------------------------------------------------------------

    def pause(self, for_s: float) -> None:
        """The whole process stands still, or its machine."""
        self.process.pause(for_s)
        self.lease_thread.pause(for_s)

    def stall(self, for_s: float) -> None:
        """Its event loop stands still; the thread of its lease does not."""
        self.process.pause(for_s)

    def kill(self) -> None:
        """Its memory is gone. What it has sent to etcd may still arrive."""
        self.process.kill()
        self.lease_thread.kill()

    def drain(self) -> None:
        """As a SIGTERM does it."""
        self.process.run(self._drains.set)

    # --- its life ----------------------------------------------------------------------------------------------------

    async def _live(self) -> None:
        try:
            self._store = await EtcdStore.open(
                self.link,
                ProcessDriver(self.lease_thread),
                prefix=KEYS.prefix,
                node_id=self.node_id,
                identity=self.url.encode(),
                lease_ttl_ms=self._lease_ttl_ms,
                clock_ms=lambda: round(self._loop.time() * 1000 * self._rate),
                limits=self._limits,
                chance=self._chance,
            )
        except StorageError as error:
            self._ended(f"could not open the store: {error}")
            return
        await self._serve(self._store)
        self._ended("stopped")

    async def _serve(self, store: EtcdStore) -> None:
        clock = SystemClock(
            real_ns=self._real_ns,
            wall_ns=lambda: self._real_ns() + (EPOCH_MS + self._wall_ahead_ms) * NS_A_MS,
        )
        address = NodeAddress(self.node_id, self.url)
        announcement = NodeAnnouncement(self.node_id, self.url, None, "0", 1, 0, 0)
        self.member = MemberNode(store, announcement, shards=self._shards, clock=clock)
        self.service = Service(
            store,
            clock=clock,
            ownership=self.member,
            address=address,
            rules=self._rules,
            shards=self._shards,
            draw_id=lambda: f"{next(self._ids):05}",
            observer=self,
            capacity=self._capacity,
        )
        if self._channels_of is not None:
            self.api = self._channels_of(self)
        starting = asyncio.create_task(self.service.start())
        draining = asyncio.create_task(self._drains.wait())
        await asyncio.wait([starting, draining], return_when=asyncio.FIRST_COMPLETED)
        if starting.done():
            starting.result()
            await draining
        else:
            starting.cancel()
            await asyncio.wait([starting])
        await _within(DRAIN_TIMEOUT_S / 2, self.member.drain())
        if self.api is not None:
            await self.api.channels.warn_of_drain()
        await _within(DRAIN_TIMEOUT_S, self.service.drain())
        if self.api is not None:
            await _within(GOODBYE_TIMEOUT_S, self.api.channels.close())
        await self.member.close()
        await store.close()

    def _real_ns(self) -> int:
        return round(self._loop.time() * 1_000_000_000)

    def _ended(self, why: str) -> None:
        self.has_ended = True
        self._on_end(self, why)

    # --- as Observer -------------------------------------------------------------------------------------------------

    def event(self, event: Event) -> None:
        self._on_event(self, event)

    def appended(self, append_metrics: AppendMetrics) -> None:
        """The laws look at the store."""


async def _within(seconds: float, work: Coroutine[Any, Any, None]) -> None:
    try:
        async with asyncio.timeout(seconds):
            await work
    except TimeoutError:
        return


def _raise_its_fault(task: "asyncio.Task[None]") -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        raise error
