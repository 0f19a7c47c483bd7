"""The assignor `sticky`: as even as the subscriptions allow, and with the fewest moves of all equally even assignments.

The package `balancing` does the work. DESIGN.md proves that the result is optimal.
"""

from typing import ClassVar

from rallypoint.assignors.balancing.balance import balance
from rallypoint.assignors.balancing.from_counts import assignment_from_counts
from rallypoint.assignors.balancing.owned_partitions import undisputed_owned
from rallypoint.assignors.balancing.partition_classes import partition_classes_of
from rallypoint.assignors.contract import Assignment, Assignor, GroupSpec


class StickyAssignor(Assignor):
    """Replaces Kafka's `StickyAssignor`: at least as even, with the fewest possible moves."""

    name: ClassVar[str] = "sticky"

    def assign(self, spec: GroupSpec) -> Assignment:
        """Assign all partitions, by three goals in strict order of priority.

        1. Even counts: no sequence of moves leads from a member to one with two partitions fewer.
        2. Few moves: as few owned partitions as possible (`owned_partitions.undisputed_owned`) change their member.
        3. Racks: as many partitions as possible go to a member with a replica in its rack, if racks are known.

        The result does not depend on the order of the spec's mappings. Owned partitions that do not exist, and topics
        without subscribers, are ignored. Raises nothing.
        Cost: with equal subscriptions O(partitions + members log members). Otherwise O(partitions + e) for each step of
        `balancing`, where e is the number of subscribed topics of all members.
        """
        classes = partition_classes_of(spec)
        owned = undisputed_owned(spec, classes)
        return assignment_from_counts(classes, owned, balance(classes, owned))
