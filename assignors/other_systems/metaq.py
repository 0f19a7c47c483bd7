"""The rules of MetaQ (Metamorphosis): contiguous runs, and consistent hashing.

In MetaQ the name of a partition is its broker and its number there, `0-3`, and both lists are sorted as strings. Here
groups have no brokers: partition n has the name `0-n`, and partitions are sorted by number.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import ClassVar

from rallypoint.assignors.contract import Assignment, Assignor, GroupSpec
from rallypoint.assignors.other_systems.allocation import (
    Ring,
    Rule,
    allocate,
    assign_by_topic,
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


class MetaqDefaultAssignor(Assignor):
    """MetaQ's default rule, topic by topic. With partitions sorted by number, it equals `range` without racks."""

    name: ClassVar[str] = "metaq-default"
    reads_owned_partitions: ClassVar[bool] = False

    def assign(self, spec: GroupSpec) -> Assignment:
        """Give each subscriber of a topic a contiguous run of its partitions; the first ones get one more.

        Raises nothing. Cost: as `range` without racks. Source: as `allocate_default`.
        """
        return assign_by_topic(spec, lambda consumers: lambda _, partitions: runs(partitions, len(consumers)))


class MetaqConsistentHashAssignor(Assignor):
    """MetaQ's consistent hashing, topic by topic: when a member joins or leaves, only its own partitions move."""

    name: ClassVar[str] = "metaq-consistent-hash"
    reads_owned_partitions: ClassVar[bool] = False

    def assign(self, spec: GroupSpec) -> Assignment:
        """Give each partition to the subscriber with the next point on the ring. The counts depend on the hash.

        Partition n of two topics with the same subscribers goes to the same member.
        Raises nothing. Cost: 40 digests for each subscriber in each distinct set of subscribers, and one for each
        partition. Source: as `allocate_by_hash`.
        """

        def rule_for(consumers: list[str]) -> Rule:
            ring = Ring(_points(consumers))
            return lambda _, partitions: hashed_owners(ring, (f"{BROKER}-{n}" for n in range(partitions)))

        return assign_by_topic(spec, rule_for)


def _points(consumers: Sequence[str]) -> Iterator[tuple[int, int]]:
    for position, consumer in enumerate(consumers):
        for repetition in range(VIRTUAL_NODES // 4):
            digested = digest(f"{consumer}-{repetition}")
            for word in range(4):
                yield _word(digested, word), position


def _word(digested: bytes, word: int) -> int:
    """One of the four unsigned 32-bit numbers of a digest, little-endian."""
    return int.from_bytes(digested[4 * word : 4 * word + 4], "little")
