"""Turns the ranges of a batch into Spark's input partitions, one for each task. Pure: a replay reads the same records,
in any number of tasks.

A task has a fixed cost (a Python worker, a client of the source), so small ranges are combined; a large range is split
over several tasks. Spark's names are used where they mean the same: `minPartitions`, `maxRecordsPerPartition`.
"""

import itertools
from collections.abc import Iterable, Sequence
from heapq import heapify, heapreplace

from rallypoint.spark_bridge.offsets import Range

SMALL_OFFSETS = 20_000
"""A task that reads fewer offsets than this costs more than it gains: see docs/spark.md for figures."""

LARGE_OFFSETS = 100_000
"""Tasks are not much larger than this, because the parallelism may have grown since the session began."""


def size(ranges: Iterable[Range]) -> int:
    """How many offsets they cover."""
    return sum(one.end - one.start for one in ranges)


def input_partitions(
    ranges: Sequence[Range],
    *,
    parallelism: int,
    min_partitions: int | None = None,
    max_records: int | None = None,
) -> list[list[Range]]:
    """The ranges of each task, every list in order of topic, partition and offset, none of them empty.

    `ranges`: the batch.
    `parallelism`: how many tasks run at a time. More tasks are made only if they are large.
    `min_partitions`: at least so many tasks, if there are so many offsets.
    `max_records`: the most offsets of one task.
    """
    pieces = [piece for one in ranges for piece in _pieces(one, max_records)]
    if min_partitions is not None and len(pieces) < min_partitions:
        return [[piece] for piece in _split_by_share(pieces, min_partitions)]
    total = size(pieces)
    worth = min(-(-total // SMALL_OFFSETS), parallelism)
    tasks = max(worth, -(-total // min(LARGE_OFFSETS, max_records or LARGE_OFFSETS)), min_partitions or 1)
    if tasks > parallelism:
        # Tasks run in rounds of `parallelism`, and a last round that is not full would leave the others idle.
        tasks = -(-tasks // parallelism) * parallelism
    if tasks >= len(pieces):
        return [[piece] for piece in pieces]
    return _put_together(pieces, tasks, max_records)


def _pieces(one: Range, most: int | None) -> list[Range]:
    """A range cut into nearly equal pieces of at most so many offsets."""
    count = one.end - one.start
    return [one] if most is None or count <= most else _cut(one, -(-count // most))


def _cut(one: Range, parts: int) -> list[Range]:
    count = one.end - one.start
    bounds = [one.start + count * part // parts for part in range(parts + 1)]
    return [one._replace(start=start, end=end) for start, end in itertools.pairwise(bounds) if start < end]


def _split_by_share(pieces: Sequence[Range], wanted: int) -> list[Range]:
    """At least `wanted` pieces, by size; fewer only if there are fewer offsets."""
    total = size(pieces)
    parts = [max(-(-(one.end - one.start) * wanted // total), 1) for one in pieces]
    return [part for one, count in zip(pieces, parts, strict=True) for part in _cut(one, count)]


def _put_together(pieces: Sequence[Range], tasks: int, most: int | None) -> list[list[Range]]:
    """The largest first, each to the task with the least; where that would be more than `most`, to one of its own."""
    loads = [(0, task) for task in range(tasks)]
    heapify(loads)
    groups: list[list[Range]] = [[] for _ in range(tasks)]
    for piece in sorted(pieces, key=lambda one: (one.start - one.end, one)):
        load, task = loads[0]
        grown = load + piece.end - piece.start
        if most is not None and grown > most:
            groups.append([piece])
        else:
            groups[task].append(piece)
            heapreplace(loads, (grown, task))
    return sorted(sorted(group) for group in groups if group)
