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
"""A task that reads fewer offsets than this costs more than it gains. See docs/spark.md for measurements."""

LARGE_OFFSETS = 100_000
"""Tasks are not much larger than this, because the parallelism may have grown since the session began."""


def size(ranges: Iterable[Range]) -> int:
    """How many offsets the ranges cover."""
    return sum(one.end - one.start for one in ranges)


def input_partitions(
    ranges: Sequence[Range],
    *,
    parallelism: int,
    min_partitions: int | None = None,
    max_records: int | None = None,
) -> list[list[Range]]:
    """The ranges of each task, in order of topic, partition and offset. No list is empty.

    `ranges`: the batch.
    `parallelism`: how many tasks run at a time. There are more tasks only if they are large.
    `min_partitions`: the fewest tasks, if there are enough offsets.
    `max_records`: the most offsets of one task.
    """
    chunks = [chunk for one in ranges for chunk in _chunks(one, max_records)]
    if min_partitions is not None and len(chunks) < min_partitions:
        return [[chunk] for chunk in _split_proportionally(chunks, min_partitions)]
    total = size(chunks)
    worth = min(-(-total // SMALL_OFFSETS), parallelism)
    tasks = max(worth, -(-total // min(LARGE_OFFSETS, max_records or LARGE_OFFSETS)), min_partitions or 1)
    if tasks > parallelism:
        # `parallelism` tasks run at a time. If their number is no multiple of it, some cores are idle in the end.
        tasks = -(-tasks // parallelism) * parallelism
    if tasks >= len(chunks):
        return [[chunk] for chunk in chunks]
    return _combine(chunks, tasks, max_records)


def _chunks(one: Range, most: int | None) -> list[Range]:
    """Split a range into nearly equal chunks of at most `most` offsets."""
    count = one.end - one.start
    return [one] if most is None or count <= most else _split(one, -(-count // most))


def _split(one: Range, parts: int) -> list[Range]:
    count = one.end - one.start
    bounds = [one.start + count * part // parts for part in range(parts + 1)]
    return [one._replace(start=start, end=end) for start, end in itertools.pairwise(bounds) if start < end]


def _split_proportionally(chunks: Sequence[Range], wanted: int) -> list[Range]:
    """Split into at least `wanted` chunks, in proportion to size; fewer only if there are fewer offsets."""
    total = size(chunks)
    parts = [max(-(-(one.end - one.start) * wanted // total), 1) for one in chunks]
    return [part for one, count in zip(chunks, parts, strict=True) for part in _split(one, count)]


def _combine(chunks: Sequence[Range], tasks: int, most: int | None) -> list[list[Range]]:
    """Add the largest chunk first to the task with the fewest offsets; to a new task if that would exceed `most`."""
    loads = [(0, task) for task in range(tasks)]
    heapify(loads)
    groups: list[list[Range]] = [[] for _ in range(tasks)]
    for chunk in sorted(chunks, key=lambda one: (one.start - one.end, one)):
        load, task = loads[0]
        grown = load + chunk.end - chunk.start
        if most is not None and grown > most:
            groups.append([chunk])
        else:
            groups[task].append(chunk)
            heapreplace(loads, (grown, task))
    return sorted(sorted(group) for group in groups if group)
