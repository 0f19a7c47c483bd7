"""Records in memory, as a source for consumers of both kinds. Offsets count from 0; topics are known."""

from collections.abc import Mapping
from typing import Generic, TypeVar

from rallypoint.member.consumer.contract import Fetched, OffsetOutOfRange, TopicPartition

R = TypeVar("R")


class BlockingMemorySource(Generic[R]):
    """Records in memory, for `BlockingConsumer`. Its methods may be called from any thread.

    Args:
        partitions: The topics, each with its number of partitions.
    """

    def __init__(self, partitions: Mapping[str, int]) -> None:
        self._slots: dict[str, list[list[tuple[R, ...]]]] = {
            topic: [[] for _ in range(n)] for topic, n in partitions.items()
        }
        self._firsts: dict[TopicPartition, int] = {}

    def append(self, topic: str, partition: int, *records: R) -> None:
        """Add records to the end of a partition."""
        self._slots[topic][partition].extend((record,) for record in records)

    def skip(self, topic: str, partition: int, count: int) -> None:
        """Leave the next `count` offsets of a partition without a record, as transaction markers and compaction do."""
        self._slots[topic][partition].extend(() for _ in range(count))

    def grow(self, topic: str, partitions: int) -> None:
        """Let a topic have so many partitions. Creates the topic if it does not exist."""
        known = self._slots.setdefault(topic, [])
        known.extend([] for _ in range(partitions - len(known)))

    def forget_below(self, topic: str, partition: int, offset: int) -> None:
        """Delete the records below `offset`, as retention does."""
        self._firsts[topic, partition] = offset

    def read(self, topic: str, partition: int, offset: int, record_count_max: int) -> Fetched[R]:
        """As `BlockingSource.read`; returns at once."""
        slots = self._slots[topic][partition]
        first = self._firsts.get((topic, partition), 0)
        if not first <= offset <= len(slots):
            raise OffsetOutOfRange(f"{topic}-{partition} has the offsets {first} to {len(slots)}, not {offset}")
        found = slots[offset : offset + record_count_max]
        return Fetched(tuple(record for slot in found for record in slot), offset + len(found))

    def earliest(self, topic: str, partition: int) -> int:
        """As `BlockingSource.earliest`."""
        return self._firsts.get((topic, partition), 0)

    def latest(self, topic: str, partition: int) -> int:
        """As `BlockingSource.latest`."""
        return len(self._slots[topic][partition])

    def partition_counts(self, topics: frozenset[str] | None) -> Mapping[str, int]:
        """As `BlockingCountedSource` says."""
        return {
            topic: len(partitions) for topic, partitions in self._slots.items() if topics is None or topic in topics
        }


class MemorySource(Generic[R]):
    """As `BlockingMemorySource`, for `Consumer`.

    Args:
        partitions: The topics, each with its number of partitions.
    """

    def __init__(self, partitions: Mapping[str, int]) -> None:
        self._source = BlockingMemorySource[R](partitions)
        self.append = self._source.append
        self.skip = self._source.skip
        self.grow = self._source.grow
        self.forget_below = self._source.forget_below

    async def read(self, topic: str, partition: int, offset: int, record_count_max: int) -> Fetched[R]:
        """As `Source.read`; returns at once."""
        return self._source.read(topic, partition, offset, record_count_max)

    async def earliest(self, topic: str, partition: int) -> int:
        """As `Source.earliest`."""
        return self._source.earliest(topic, partition)

    async def latest(self, topic: str, partition: int) -> int:
        """As `Source.latest`."""
        return self._source.latest(topic, partition)

    async def partition_counts(self, topics: frozenset[str] | None) -> Mapping[str, int]:
        """As `CountedSource` says."""
        return self._source.partition_counts(topics)
