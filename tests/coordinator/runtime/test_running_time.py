"""A shard knows for how long it was not served: what its groups keep does not grow old meanwhile."""

from dataclasses import replace

import pytest

from rallypoint.coordinator.core.records import RunningTimeRecord
from rallypoint.coordinator.runtime.loading.running_time import TRIED_AGAIN_MS
from rallypoint.coordinator.storage.codec import RUNNING_TIME_KEY, decode
from rallypoint.coordinator.storage.memory import MemoryContents
from tests.fakes.faulty_store import Fault
from tests.fakes.manual_clock import ManualClock
from tests.fakes.service_harness import DESCRIBE, RULES, SHARDS, ServiceHarness, commit, committed, join

LOOK_MS = 60_000
KEPT_MS = 3_600_000
YEAR_MS = 365 * 24 * 3_600_000
OWN_RULES = replace(
    RULES,
    offsets_retention_ms=KEPT_MS,
    offsets_retention_check_interval_ms=LOOK_MS,
)


async def life(contents: MemoryContents | None = None, at_ms: int = 1_700_000_000_000) -> ServiceHarness:
    return await ServiceHarness(contents, rules=OWN_RULES, clock=ManualClock(at_ms)).start()


async def next_life(harness: ServiceHarness, clock_moves_ms: int) -> ServiceHarness:
    await harness.service.drain()
    return await life(harness.contents, harness.clock.now_ms() + clock_moves_ms)


def written(harness: ServiceHarness) -> list[RunningTimeRecord]:
    records = [decode(w.key, w.value or b"") for _, writes in harness.store.appends for w in writes if w.key == b"p"]
    return [record for record in records if isinstance(record, RunningTimeRecord)]


@pytest.mark.parametrize("clock_moves_ms", [-20 * YEAR_MS, -YEAR_MS, 0, 3 * LOOK_MS, 24 * KEPT_MS, 20 * YEAR_MS])
async def test_a_start_with_the_clock_elsewhere_deletes_nothing_that_is_minutes_old(clock_moves_ms: int) -> None:
    harness = await life()
    await harness.now("g", commit(7))
    await harness.clock.run(5 * LOOK_MS)
    harness = await next_life(harness, clock_moves_ms)
    await harness.clock.run(KEPT_MS - 15 * LOOK_MS)
    assert await committed(harness, "g") == {0: 7}
    await harness.clock.run(20 * LOOK_MS)
    assert await committed(harness, "g") == {}
    await harness.service.drain()


@pytest.mark.parametrize("clock_moves_ms", [-YEAR_MS, 0, LOOK_MS, 10 * LOOK_MS, YEAR_MS])
async def test_an_idle_service_that_is_often_started_anew_forgets_in_time(clock_moves_ms: int) -> None:
    harness = await life()
    await harness.now("g", commit(7))
    for _ in range(KEPT_MS // (5 * LOOK_MS) + 1):
        await harness.clock.run(5 * LOOK_MS)
        harness = await next_life(harness, clock_moves_ms)
    await harness.clock.run(3 * LOOK_MS)
    assert await committed(harness, "g") == {}
    await harness.service.drain()


async def test_a_clock_that_was_put_back_keeps_nobody_out() -> None:
    harness = await life()
    await harness.form("g", "a", "b")
    harness = await next_life(harness, -20 * YEAR_MS)
    newcomer = await harness.new_id("g", "c")
    waits = harness.ask("g", join("c", newcomer))
    await harness.clock.run(0)
    assert (await harness.now("g", DESCRIBE)).state == "PreparingRebalance"  # type: ignore[union-attr]
    await harness.service.drain()
    await waits


async def test_it_is_written_before_the_first_that_is_stored_and_once_in_an_interval_then() -> None:
    harness = await life()
    await harness.clock.run(10 * LOOK_MS)
    assert harness.store.appends == [], "a shard without groups writes nothing"
    await harness.now("g", commit(7))
    [(_, first)] = harness.store.appends
    assert next(write.key for write in first) == RUNNING_TIME_KEY
    await harness.clock.run(30 * LOOK_MS)
    assert 28 <= len(written(harness)) <= 32
    stored = written(harness)[-1]
    assert harness.clock.now_ms() < stored.ran_until_ms <= harness.clock.now_ms() + 2 * LOOK_MS
    before = len(written(harness))
    for offset in range(50):
        await harness.now("g", commit(offset))
    assert len(written(harness)) <= before + 1, "commits are no reason"
    await harness.service.drain()


async def test_a_write_that_fails_is_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    harness = await life()
    await harness.now("g", commit(7))
    before = len(written(harness))
    harness.store.faults.append(Fault.NOT_STORED)
    while not caplog.records:
        await harness.clock.run(1_000)
    assert "running time" in caplog.text
    await harness.clock.run(TRIED_AGAIN_MS + LOOK_MS)
    assert len(written(harness)) > before
    assert await committed(harness, "g") == {0: 7}
    await harness.service.drain()


async def test_a_load_that_finds_groups_writes_it_for_their_shards() -> None:
    harness = await life()
    for number in range(20):
        await harness.now(f"g{number}", commit(7))
    await harness.service.drain()
    after = ServiceHarness(harness.contents, rules=OWN_RULES, clock=ManualClock(harness.clock.now_ms() + YEAR_MS))
    await after.service.start()
    records = written(after)
    assert len(records) == SHARDS
    assert {record.pauses[-1].ran_again_ms for record in records} == {after.clock.now_ms()}
    await after.service.drain()
