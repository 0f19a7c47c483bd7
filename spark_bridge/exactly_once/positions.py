"""Which rows of a batch are new, and the positions of its partitions afterwards. No database, no Spark, no waiting.

The rule: for each partition the database holds the next offset to write. Rows below it were written before, by any
driver; rows at or above it were not. This needs no fencing, because every batch begins at or below that position: a
driver plans from what it wrote itself, or from offsets that were committed after the rows were in the database.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from rallypoint.spark_bridge.offsets import TopicPartition


class FreshRows:
    """The rows of a batch that were not written before, in the order in which they come. To be read once, to the end.

    `ends` says meanwhile, for each partition that had a row, where it stands once all are written; never behind `seen`.
    """

    def __init__(
        self, rows: Iterable[Sequence[Any]], columns: Sequence[str], seen: Mapping[TopicPartition, int]
    ) -> None:
        """`columns` are the names of the rows' values; `topic`, `partition` and `offset` are among them."""
        self._rows = iter(rows)
        self._places = tuple(columns.index(name) for name in ("topic", "partition", "offset"))
        self._seen = seen
        self.ends: dict[TopicPartition, int] = {}
        self.read = 0
        self.skipped = 0
        self.exhausted = False

    def __iter__(self) -> Iterator[Sequence[Any]]:
        topic_at, partition_at, offset_at = self._places
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
        """The positions that change: partition, where it stood (None: nowhere yet), where it stands now.

        In an order that is the same for everybody, so that two transactions cannot wait for each other.
        """
        return [(tp, self._seen.get(tp), end) for tp, end in sorted(self.ends.items()) if end > self._seen.get(tp, 0)]
