"""The rules of MetaQ (Metamorphosis): `metaq-default` in runs, `metaq-consistent-hash` on a circle.

In MetaQ a partition's name is its broker and its number there, `0-3`, and both lists come sorted as strings. A group of
this project has no brokers: partition n stands for `0-n`, and partitions come in the order of their numbers.
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
"""Points on the circle for each consumer; four of them come from one digest."""

BROKER = "0"
"""The broker in the names of a group's partitions."""


def allocate_default(partitions: Sequence[str], consumers: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Each consumer gets a run of neighbouring partitions, in the order given; the first get one more.

    Surplus consumers get none. Errors: AllocationError without consumers, or with one that is listed twice.
    Source: Metamorphosis' `DefaultLoadBalanceStrategy`.
    """
    check_consumers(consumers)
    return allocate(partitions, consumers, runs(len(partitions), len(consumers)))


def allocate_by_hash(partitions: Sequence[str], consumers: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Each partition goes to the consumer whose point on the circle comes next; a consumer's keep the order given.

    The topic has no part in it. Errors: AllocationError as in `allocate_default`.
    Source: Metamorphosis' `ConsisHashStrategy`, whose circle is that of Ketama: 160 points for each consumer.
    """
    check_consumers(consumers)
    return allocate(partitions, consumers, hashed_owners(Ring(_points(consumers)), partitions))


def hashed_owners(ring: Ring, partitions: Iterable[str]) -> list[int]:
    """The position of each partition's consumer. Cost: a digest for each partition."""
    return [ring.owner(_word(digest(partition), 0)) for partition in partitions]


class MetaqDefaultAssignor(Assignor):
    """MetaQ's default rule, topic by topic. With the order of partitions by number it gives what plain `range` does."""

    name: ClassVar[str] = "metaq-default"
    reads_owned_partitions: ClassVar[bool] = False

    def assign(self, spec: GroupSpec) -> Assignment:
        """Give each subscriber of a topic a run of its partitions; the first subscribers get one more.

        Errors: none. Cost: as `range` without racks. Source: as `allocate_default`.
        """
        return assign_by_topic(spec, lambda consumers: lambda _, partitions: runs(partitions, len(consumers)))


class MetaqConsistentHashAssignor(Assignor):
    """MetaQ's consistent hash, topic by topic: when a member comes or goes, only its own partitions move."""

    name: ClassVar[str] = "metaq-consistent-hash"
    reads_owned_partitions: ClassVar[bool] = False

    def assign(self, spec: GroupSpec) -> Assignment:
        """Give each partition to the subscriber whose point comes next. How many each gets is left to the hash.

        Partition n of two topics with the same subscribers goes to the same member, whatever their sizes.
        Errors: none. Cost: 40 digests for each subscriber, again for topics with other subscribers, and one for each
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
    """One of the four unsigned 32-bit numbers of a digest, its lowest byte first."""
    return int.from_bytes(digested[4 * word : 4 * word + 4], "little")
