"""A shard knows for how long it was not served: what its groups keep does not grow old meanwhile."""

from dataclasses import replace

import pytest

from rallypoint.coordinator.core.records import RunningTimeRecord
from rallypoint.coordinator.runtime.running_time import TRIED_AGAIN_MS
from rallypoint.coordinator.storage.codec import RUNNING_TIME_KEY, decode
from rallypoint.coordinator.storage.memory import MemoryContents
from tests.fakes.faulty_store import Fault
from tests.fakes.manual_clock import ManualClock
from tests.fakes.room import DESCRIBE, RULES, SHARDS, Room, commit, committed, join

LOOK_MS = 60_000
KEPT_MS = 3_600_000
YEAR_MS = 365 * 24 * 3_600_000
OWN_RULES = replace(
    RULES,
    offsets_retention_ms=KEPT_MS,
    offsets_retention_check_interval_ms=LOOK_MS,
)


async def life(contents: MemoryContents | None = None, at_ms: int = 1_700_000_000_000) -> Room:
    return await Room(contents, rules=OWN_RULES, clock=ManualClock(at_ms)).start()


async def next_life(room: Room, clock_moves_ms: int) -> Room:
    await room.service.drain()
    return await life(room.contents, room.clock.now_ms() + clock_moves_ms)


def written(room: Room) -> list[RunningTimeRecord]:
    records = [decode(w.key, w.value or b"") for _, writes in room.store.appends for w in writes if w.key == b"p"]
    return [record for record in records if isinstance(record, RunningTimeRecord)]


@pytest.mark.parametrize("clock_moves_ms", [-20 * YEAR_MS, -YEAR_MS, 0, 3 * LOOK_MS, 24 * KEPT_MS, 20 * YEAR_MS])
async def test_a_start_with_the_clock_elsewhere_deletes_nothing_that_is_minutes_old(clock_moves_ms: int) -> None:
    room = await life()
    await room.now("g", commit(7))
    await room.clock.run(5 * LOOK_MS)
    room = await next_life(room, clock_moves_ms)
    await room.clock.run(KEPT_MS - 15 * LOOK_MS)
    assert await committed(room, "g") == {0: 7}
    await room.clock.run(20 * LOOK_MS)
    assert await committed(room, "g") == {}
    await room.service.drain()


@pytest.mark.parametrize("clock_moves_ms", [-YEAR_MS, 0, LOOK_MS, 10 * LOOK_MS, YEAR_MS])
async def test_an_idle_service_that_is_often_started_anew_forgets_in_time(clock_moves_ms: int) -> None:
    room = await life()
    await room.now("g", commit(7))
    for _ in range(KEPT_MS // (5 * LOOK_MS) + 1):
        await room.clock.run(5 * LOOK_MS)
        room = await next_life(room, clock_moves_ms)
    await room.clock.run(3 * LOOK_MS)
    assert await committed(room, "g") == {}
    await room.service.drain()


async def test_a_clock_that_was_put_back_keeps_nobody_out() -> None:
    room = await life()
    await room.form("g", "a", "b")
    room = await next_life(room, -20 * YEAR_MS)
    newcomer = await room.new_id("g", "c")
    waits = room.ask("g", join("c", newcomer))
    await room.clock.run(0)
    assert (await room.now("g", DESCRIBE)).state == "PreparingRebalance"  # type: ignore[union-attr]
    await room.service.drain()
    await waits


async def test_it_is_written_before_the_first_that_is_stored_and_once_in_an_interval_then() -> None:
    room = await life()
    await room.clock.run(10 * LOOK_MS)
    assert room.store.appends == [], "a shard without groups writes nothing"
    await room.now("g", commit(7))
    [(_, first)] = room.store.appends
    assert next(write.key for write in first) == RUNNING_TIME_KEY
    await room.clock.run(30 * LOOK_MS)
    assert 28 <= len(written(room)) <= 32
    stored = written(room)[-1]
    assert room.clock.now_ms() < stored.ran_until_ms <= room.clock.now_ms() + 2 * LOOK_MS
    before = len(written(room))
    for offset in range(50):
        await room.now("g", commit(offset))
    assert len(written(room)) <= before + 1, "commits are no reason"
    await room.service.drain()


async def test_a_write_that_fails_is_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    room = await life()
    await room.now("g", commit(7))
    before = len(written(room))
    room.store.faults.append(Fault.NOT_STORED)
    while not caplog.records:
        await room.clock.run(1_000)
    assert "running time" in caplog.text
    await room.clock.run(TRIED_AGAIN_MS + LOOK_MS)
    assert len(written(room)) > before
    assert await committed(room, "g") == {0: 7}
    await room.service.drain()


async def test_a_load_that_finds_groups_writes_it_for_their_shards() -> None:
    room = await life()
    for number in range(20):
        await room.now(f"g{number}", commit(7))
    await room.service.drain()
    after = Room(room.contents, rules=OWN_RULES, clock=ManualClock(room.clock.now_ms() + YEAR_MS))
    await after.service.start()
    records = written(after)
    assert len(records) == SHARDS
    assert {record.pauses[-1].ran_again_ms for record in records} == {after.clock.now_ms()}
    await after.service.drain()
