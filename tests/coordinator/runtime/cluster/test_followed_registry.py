"""The topic registry of a node that follows another one, and then owns it."""

import asyncio

from rallypoint.coordinator.core.records import LayoutRecord
from rallypoint.coordinator.runtime.topic_registry import RegistryKeeper
from tests.fakes.manual_clock import ManualClock, settle
from tests.fakes.service_harness import RULES, SHARDS
from tests.fakes.shared_memory import SharedContents, SharedMemoryStore


async def test_a_follower_that_met_a_fault_does_not_begin_again_beside_the_owner() -> None:
    clock, store = ManualClock(), SharedMemoryStore(SharedContents(), "n1")
    store.follow_faults = 2
    keeper = RegistryKeeper(
        store, clock, LayoutRecord(SHARDS), lambda *_: None, RULES, lambda: False, 5_000, store, lambda: None
    )
    opening = asyncio.create_task(keeper.open())
    await settle()
    assert store.follow_faults == 0, "the second fault costs a wait"
    store.acquiring.clear()
    taking = asyncio.create_task(keeper.take())
    await clock.run(60_000)
    store.acquiring.set()
    await taking
    await opening
    await clock.run(60_000)
    assert store.followed_count == 0
    await keeper.close()
