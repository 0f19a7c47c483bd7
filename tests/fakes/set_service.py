"""Real groups in memory behind a real door, under settings as a person would give them."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count
from typing import Any

from coordinator.http.inputs import BodyLimits
from coordinator.http.security import SecurityPolicy
from coordinator.main import capacity_of, connection_limits_of, request_limits_of, rules_of, session_limits_of
from coordinator.runtime.clock import SystemClock
from coordinator.runtime.ownership import NodeAddress, SoleOwner
from coordinator.runtime.service import Service
from coordinator.settings import load_settings
from coordinator.storage.memory import MemoryStore
from tests.fakes.door_server import DoorClient, open_door
from tests.fakes.faulty_store import FaultyStore
from tests.fakes.room import Watcher

BASE: dict[str, Any] = {"storage": "memory:", "group_initial_rebalance_delay_ms": 0, "parked_call_max_wait_ms": 0}
"""Nothing waits, unless a test wants it to."""


@asynccontextmanager
async def open_service(
    store: FaultyStore | None = None, policy: SecurityPolicy | None = None, **given: Any
) -> AsyncIterator[DoorClient]:
    """Serve until the block ends. `given` are settings by name."""
    settings = load_settings({**BASE, **given})
    address = NodeAddress("node-1", "http://127.0.0.1:1")
    ids = count()
    store = FaultyStore(MemoryStore()) if store is None else store
    service = Service(
        store,
        clock=SystemClock(),
        ownership=SoleOwner(address),
        address=address,
        rules=rules_of(settings),
        shards=2,
        draw_id=lambda: str(next(ids)),
        observer=Watcher(),
        capacity=capacity_of(settings),
    )
    await service.start()
    async with open_door(
        service,
        policy=policy,
        session_limits=session_limits_of(settings),
        limits=BodyLimits(settings.max_body_bytes, settings.max_sync_bytes, settings.body_timeout_ms),
        requests=request_limits_of(settings),
        connections=connection_limits_of(settings),
    ) as door:
        try:
            yield door
        finally:
            await service.drain()
            await store.close()
