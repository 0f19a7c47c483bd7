"""The topic registry of a node that follows another one, and then owns it."""

import asyncio

import pytest

from rallypoint.coordinator.core.records import LayoutRecord
from rallypoint.coordinator.runtime.topic_registry import RegistryKeeper
from rallypoint.coordinator.storage.contract import REGISTRY_KEYSPACE, AppendDoubtful
from tests.fakes.manual_clock import ManualClock, settle
from tests.fakes.service_harness import RULES, SHARDS
from tests.fakes.shared_memory import SharedContents, SharedMemoryStore


def keeper_over(store: SharedMemoryStore, clock: ManualClock) -> RegistryKeeper:
    return RegistryKeeper(
        store, clock, LayoutRecord(SHARDS), lambda *_: None, RULES, lambda: False, 5_000, clock.now_ms, store
    )


async def test_a_follower_that_met_a_fault_does_not_begin_again_beside_the_owner() -> None:
    clock, store = ManualClock(), SharedMemoryStore(SharedContents(), "n1")
    store.follow_faults = 2
    keeper = keeper_over(store, clock)
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


async def test_a_registry_that_was_acquired_and_could_not_be_loaded_is_given_back() -> None:
    clock, store = ManualClock(), SharedMemoryStore(SharedContents(), "n1")
    keeper = keeper_over(store, clock)
    opening = asyncio.create_task(keeper.open())
    await settle()
    store.next_append_fails_with = AppendDoubtful("no answer")
    with pytest.raises(AppendDoubtful):
        await keeper.take()
    assert owned_epoch(keeper) is None, "it is not taken for one that is owned"
    assert REGISTRY_KEYSPACE not in store.contents.owners, "another node may load it"
    await keeper.take()
    await opening
    assert owned_epoch(keeper) == store.contents.owners[REGISTRY_KEYSPACE].epoch
    assert keeper.is_loaded
    await keeper.close()


def owned_epoch(keeper: RegistryKeeper) -> int | None:
    return keeper.epoch
