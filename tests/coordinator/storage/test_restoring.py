"""What a backup says before it is a store again."""

import pytest

from rallypoint.coordinator.core import records as r
from rallypoint.coordinator.storage.codec import decode, encode
from rallypoint.coordinator.storage.contract import REGISTRY_KEYSPACE, StoredDataInvalid
from rallypoint.coordinator.storage.restoring import (
    CLOCK_BEHIND_MAX_S,
    EPOCH_MS,
    Replaced,
    look_through,
    look_through_replaced,
    writes_of,
)

NOW_MS = EPOCH_MS + 5_000_999
UNREAD = Replaced(0, "there was no store")


def rows(*records: r.Record) -> list[tuple[str, bytes, bytes]]:
    return [("s", write.key, write.value) for write in map(encode, records) if write.value is not None]


def header(group_id: str, highest: int) -> r.GroupRecord:
    return r.GroupRecord(group_id, "consumer", None, 0, highest, None, 0)


def offset(group_id: str, partition: int) -> r.OffsetRecord:
    return r.OffsetRecord(group_id, "t", partition, 1, None, "", 0)


def test_the_floor_is_the_clock_s() -> None:
    restored = look_through(
        rows(header("g", 7), offset("g", 0), offset("simple", 1), r.RegistryRecord(3)), UNREAD, NOW_MS
    )
    assert (restored.generation_floor, restored.groups, restored.offsets) == (5_000, 2, 2)
    ((keyspace, write),) = writes_of(restored)
    assert (keyspace, decode(write.key, write.value or b"")) == (REGISTRY_KEYSPACE, r.GenerationFloorRecord(5_000))


def test_it_is_above_that_of_an_earlier_restore_of_the_same_backup() -> None:
    first = look_through(rows(header("g", 7)), UNREAD, NOW_MS)
    second = look_through(rows(header("g", 7)), UNREAD, NOW_MS + 1_000)
    assert second.generation_floor > first.generation_floor


@pytest.mark.parametrize("known", [header("g", 5_000), r.GenerationFloorRecord(5_000)])
def test_a_clock_that_is_behind_what_is_stored_is_refused(known: r.Record) -> None:
    with pytest.raises(StoredDataInvalid, match="clock of this machine cannot be right"):
        look_through(rows(known), UNREAD, NOW_MS)
    assert look_through(rows(known), UNREAD, NOW_MS + 1_000).generation_floor == 5_001


def test_it_is_above_all_that_the_store_that_is_replaced_has_handed_out() -> None:
    replaced = look_through_replaced(rows(header("g", 5_060), r.GenerationFloorRecord(5_001)))
    assert replaced == Replaced(5_060, "")
    restored = look_through(rows(header("g", 7)), replaced, NOW_MS)
    assert (restored.generation_floor, restored.unread) == (5_060, "")
    of_floor = look_through_replaced(rows(header("g", 7), r.GenerationFloorRecord(5_001)))
    assert of_floor == Replaced(5_001, "")


def test_a_clock_may_be_behind_what_was_read_but_not_far() -> None:
    replaced = Replaced(5_000 + CLOCK_BEHIND_MAX_S, "")
    assert look_through([], replaced, NOW_MS).generation_floor == replaced.highest_generation
    with pytest.raises(StoredDataInvalid, match="clock of this machine cannot be right"):
        look_through([], Replaced(replaced.highest_generation + 1, ""), NOW_MS)


def test_where_not_all_was_read_the_clock_has_to_be_ahead_of_what_is_known() -> None:
    replaced = look_through_replaced([*rows(header("g", 5_000)), ("s", b"g/h/h", b"?")])
    assert replaced == Replaced(5_000, "1 of its records cannot be read")
    with pytest.raises(StoredDataInvalid, match="clock of this machine cannot be right"):
        look_through([], replaced, NOW_MS)
    restored = look_through([], replaced, NOW_MS + 1_000)
    assert (restored.generation_floor, restored.unread) == (5_001, replaced.unread)


@pytest.mark.parametrize("now_ms", [0, EPOCH_MS, EPOCH_MS + 2**31 * 1_000])
def test_a_clock_far_off_is_refused(now_ms: int) -> None:
    with pytest.raises(StoredDataInvalid, match="clock of this machine cannot be right"):
        look_through([], UNREAD, now_ms)


def test_another_format_is_refused() -> None:
    with pytest.raises(StoredDataInvalid, match="its format is 2, of Rallypoint 3"):
        look_through(rows(r.FormatRecord(2, 0, "3.0")), UNREAD, NOW_MS)


def test_records_that_cannot_be_read_are_named_and_kept() -> None:
    there = [*rows(header("g", 7)), ("s", b"g/h/h", b"?"), ("s", b"z", b"of a newer minor")]
    restored = look_through(there, UNREAD, NOW_MS)
    assert (restored.groups, restored.unreadable) == (1, (b"g/h/h",))
