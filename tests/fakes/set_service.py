"""Real groups in memory behind a real API, under settings and limits by name."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count
from typing import Any

from rallypoint.coordinator.http.security import SecurityPolicy
from rallypoint.coordinator.limits import NAMES, limits_of
from rallypoint.coordinator.runtime.contract import NodeAddress, ShardOwnership, SoleOwner
from rallypoint.coordinator.runtime.event_loop.clock import Clock, SystemClock
from rallypoint.coordinator.runtime.service import Service
from rallypoint.coordinator.settings import load_settings
from rallypoint.coordinator.storage.memory import MemoryStore
from tests.fakes.api_server import ApiClient, open_api
from tests.fakes.faulty_store import FaultyStore
from tests.fakes.service_harness import Watcher

BASE: dict[str, Any] = {
    "storage": "memory:",
    "group_initial_rebalance_delay_ms": 0,
    "group_join_linger_ms": 0,
    "parked_call_max_wait_ms": 0,
}
"""Nothing waits, unless a test wants it to."""


@asynccontextmanager
async def open_service(
    store: FaultyStore | None = None,
    policy: SecurityPolicy | None = None,
    clock: Clock | None = None,
    ownership: ShardOwnership | None = None,
    **given: Any,
) -> AsyncIterator[ApiClient]:
    """Serve until the block ends. `given` are settings and limits by name; no bound holds for limits."""
    named = {**BASE, **given}
    settings = load_settings({name: value for name, value in named.items() if name not in NAMES})
    limits = limits_of(settings, {name: value for name, value in named.items() if name in NAMES})
    address = NodeAddress("node-1", "http://127.0.0.1:1")
    ids = count()
    store = FaultyStore(MemoryStore()) if store is None else store
    service = Service(
        store,
        clock=SystemClock() if clock is None else clock,
        ownership=SoleOwner(address) if ownership is None else ownership,
        address=address,
        rules=limits.rules,
        shards=2,
        draw_id=lambda: str(next(ids)),
        observer=Watcher(),
        capacity=limits.capacity,
    )
    await service.start()
    async with open_api(
        service,
        policy=policy,
        channel_limits=limits.channels,
        limits=limits.bodies,
        requests=limits.requests,
        connections=limits.connections,
    ) as api:
        try:
            yield api
        finally:
            await service.drain()
            await store.close()
