"""Decides which rows of a batch are new, and computes the positions of its partitions afterwards. Pure.

The database holds the next offset to write for each partition. Rows below it were written before, by any driver; rows
at or above it were not. This needs no fencing, because every batch begins at or below that position: a driver plans
from what it wrote itself, or from offsets that were committed after the rows were in the database.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from rallypoint.spark_bridge.offsets import TopicPartition


class FreshRows:
    """The rows of a batch that were not written before, in their order. Iterate over it once, to the end.

    `ends`: the position of each partition with a row after these rows are written; never less than in `seen`.
    `read`: how many rows were read.
    `skipped`: how many of them were written before.
    `exhausted`: whether all rows were read.
    """

    def __init__(
        self, rows: Iterable[Sequence[Any]], columns: Sequence[str], seen: Mapping[TopicPartition, int]
    ) -> None:
        """Filter `rows` by the positions `seen`.

        `columns`: the names of the rows' values, with `topic`, `partition` and `offset` among them.
        """
        self._rows = iter(rows)
        self._key_indexes = tuple(columns.index(name) for name in ("topic", "partition", "offset"))
        self._seen = seen
        self.ends: dict[TopicPartition, int] = {}
        self.read = 0
        self.skipped = 0
        self.exhausted = False

    def __iter__(self) -> Iterator[Sequence[Any]]:
        topic_at, partition_at, offset_at = self._key_indexes
        for row in self._rows:
            self.read += 1
            tp, offset = (row[topic_at], row[partition_at]), row[offset_at]
            position = self._seen.get(tp, 0)
            self.ends[tp] = max(self.ends.get(tp, position), offset + 1)
            if offset < position:
                self.skipped += 1
            else:
                yield row
        self.exhausted = True

    @property
    def moves(self) -> list[tuple[TopicPartition, int | None, int]]:
        """The positions that change: the partition, its old position (None if it had none), and its new one.

        They are sorted, so that two transactions cannot deadlock.
        """
        return [(tp, self._seen.get(tp), end) for tp, end in sorted(self.ends.items()) if end > self._seen.get(tp, 0)]
