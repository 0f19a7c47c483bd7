"""Spark's books: what a checkpoint says of a query's batches."""

import json
import os
from pathlib import Path

from examples.handover.books import Batch, BatchProgress, planned_again, read_batches, read_progress
from rallypoint.spark_bridge.offsets import Position, Range, StreamOffset


def plan(checkpoint: Path, number: int, end: StreamOffset, at_ms: int) -> None:
    """Write a batch's offset as Spark does."""
    write(checkpoint / "offsets" / str(number), at_ms, f'v1\n{{"batchTimestampMs":1}}\n{json.dumps(end.to_dict())}')


def complete(checkpoint: Path, number: int, at_ms: int) -> None:
    write(checkpoint / "commits" / str(number), at_ms, "v1\n{}")


def write(path: Path, at_ms: int, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    (path.parent / f".{path.name}.crc").touch()
    os.utime(path, ns=(at_ms * 1_000_000,) * 2)


def offset(taken: dict[int, int], **ends: int) -> StreamOffset:
    """`p0=5` is partition 0 read up to 5."""
    return StreamOffset(
        checkpoint_id="l",
        partitions={("t", int(name[1:])): Position(end, 1) for name, end in ends.items()},
        taken={("t", partition): start for partition, start in taken.items()},
    )


def test_a_query_that_has_planned_nothing(tmp_path: Path) -> None:
    assert read_progress(tmp_path) == BatchProgress()
    assert read_batches(tmp_path, "A") == ()


def test_a_batch_is_on_its_way_until_it_is_complete(tmp_path: Path) -> None:
    plan(tmp_path, 0, offset({0: 0}, p0=5), 1_000)
    assert read_progress(tmp_path) == BatchProgress(0, 0, in_flight=True, writing=True)
    complete(tmp_path, 0, 1_500)
    assert read_progress(tmp_path) == BatchProgress(1, 0, written=True)


def test_a_batch_without_a_record_is_no_sight_of_a_driver_at_work(tmp_path: Path) -> None:
    plan(tmp_path, 0, offset({0: 7}, p0=7), 1_000)
    complete(tmp_path, 0, 1_500)
    assert read_progress(tmp_path) == BatchProgress(0, 0, written=True)
    plan(tmp_path, 1, offset({}, p0=8), 2_000)
    complete(tmp_path, 1, 2_500)
    assert read_progress(tmp_path) == BatchProgress(1, 1, written=True)


def test_batches_are_read_with_their_ranges_and_times(tmp_path: Path) -> None:
    plan(tmp_path, 0, offset({0: 0, 1: 7}, p0=5, p1=7), 1_000)
    complete(tmp_path, 0, 1_500)
    plan(tmp_path, 1, offset({}, p0=6, p1=9), 2_000)
    first, second = read_batches(tmp_path, "B")
    assert (first.batch, first.ranges, first.records) == (Batch("B", 0), (Range("t", 0, 0, 5),), 5)
    assert (first.planned_at_ms, first.complete_at_ms) == (1_000, 1_500)
    assert second.ranges == (Range("t", 0, 5, 6), Range("t", 1, 7, 9))
    assert (second.planned_at_ms, second.complete_at_ms) == (2_000, None)


def test_what_stands_in_two_batches_is_counted(tmp_path: Path) -> None:
    plan(tmp_path / "A", 0, offset({0: 0}, p0=10), 1)
    plan(tmp_path / "B", 0, offset({0: 6}, p0=12), 2)
    books = [batch for name in "AB" for batch in read_batches(tmp_path / name, name)]
    assert planned_again(books[:1]) == 0
    assert planned_again(books) == 4
