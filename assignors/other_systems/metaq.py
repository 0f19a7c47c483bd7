"""The rules of MetaQ (Metamorphosis): contiguous runs, and consistent hashing.

In MetaQ the name of a partition is its broker and its number there, `0-3`, and both lists are sorted as strings. Here
groups have no brokers: partition n has the name `0-n`, and partitions are sorted by number.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import ClassVar

from rallypoint.assignors.other_systems.allocation import (
    Ring,
    Rule,
    RunsAssignor,
    TopicAssignor,
    allocate,
    check_consumers,
    digest,
    runs,
)

VIRTUAL_NODES = 160
"""Points on the hash ring for each consumer. One digest yields four of them."""

BROKER = "0"
"""The broker in the names of a group's partitions."""


def allocate_default(partitions: Sequence[str], consumers: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Give each consumer a contiguous run of the partitions in the given order; the first ones get one more.

    Surplus consumers get none. Raises AllocationError if there are no consumers or one is listed twice.
    Source: Metamorphosis' `DefaultLoadBalanceStrategy`.
    """
    check_consumers(consumers)
    return allocate(partitions, consumers, runs(len(partitions), len(consumers)))


def allocate_by_hash(partitions: Sequence[str], consumers: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Give each partition to the consumer with the next point on the ring. A consumer's partitions keep their order.

    The topic is not part of the hash. Raises AllocationError as `allocate_default` does.
    Source: Metamorphosis' `ConsisHashStrategy`, whose ring is that of Ketama: 160 points for each consumer.
    """
    check_consumers(consumers)
    return allocate(partitions, consumers, hashed_owners(Ring(_points(consumers)), partitions))


def hashed_owners(ring: Ring, partitions: Iterable[str]) -> list[int]:
    """The index of each partition's consumer. Cost: a digest for each partition."""
    return [ring.owner(_word(digest(partition), 0)) for partition in partitions]


class MetaqDefaultAssignor(RunsAssignor):
    """MetaQ's default rule, topic by topic. With partitions sorted by number, it equals `range` without racks.

    Source: as `allocate_default`.
    """

    name: ClassVar[str] = "metaq-default"


class MetaqConsistentHashAssignor(TopicAssignor):
    """MetaQ's consistent hashing, topic by topic: when a member joins or leaves, only its own partitions move.

    The counts depend on the hash. Partition n of two topics with the same subscribers goes to the same member.
    Source: as `allocate_by_hash`.
    """

    name: ClassVar[str] = "metaq-consistent-hash"

    def rule_for(self, consumers: list[str]) -> Rule:
        """The next point on the ring. Cost: 40 digests for each subscriber, and one for each partition."""
        ring = Ring(_points(consumers))
        return lambda _, partitions: hashed_owners(ring, (f"{BROKER}-{n}" for n in range(partitions)))


def _points(consumers: Sequence[str]) -> Iterator[tuple[int, int]]:
    for position, consumer in enumerate(consumers):
        for repetition in range(VIRTUAL_NODES // 4):
            digested = digest(f"{consumer}-{repetition}")
            for word in range(4):
                yield _word(digested, word), position


def _word(digested: bytes, word: int) -> int:
    """One of the four unsigned 32-bit numbers of a digest, little-endian."""
    return int.from_bytes(digested[4 * word : 4 * word + 4], "little")
