"""How many partitions of each class each member has while a group is balanced, as a flow network with costs.

Members and partition classes are the nodes. An edge from a member to a class gives up one partition of the class. An
edge from a class to a member takes one. A path between two members therefore moves load from the first to the last, and
leaves the loads of those between unchanged. Giving up an owned partition costs `REVOCATION_COST`. Taking a partition
without a replica in the member's rack costs `RACK_MISS_COST`. Undoing either has the negative cost.
"""

from collections.abc import Sequence

from rallypoint.assignors.balancing.partition_classes import PartitionClasses

RACK_MISS_COST = 1 << 20
"""A partition without a replica in its member's rack. More than any path has edges, so the number of edges counts
last."""

REVOCATION_COST = 1 << 40
"""An owned partition that its member gives up. More than all rack misses of any path."""

Counts = dict[int, int]
"""Partitions by class id, or by member."""


class AssignmentCounts:
    """The counts of each member. Nodes of the network are numbers: first the members, then the classes.

    `loads`: partitions by member.
    `held`: by member, how many partitions of each class it has. Without zeros.
    `owned`: by member, how many partitions of each class it owned before.
    `deficits`: by class, the members that hold less of it than they owned, and how much less.
    `free`: by class, the partitions that no member owned. `take` does not change it.
    `near`, `far`: by class, its subscribers with and without a replica in their rack.
    """

    def __init__(self, classes: PartitionClasses, owned: Sequence[Sequence[int]]) -> None:
        """Begin with every member holding what it owned. `owned`: by member, the numbers of its owned partitions."""
        self.near, self.far = classes.near, classes.far
        self.is_far = [frozenset(members) for members in classes.far]
        self.member_count = len(classes.members)
        self.node_count = self.member_count + len(classes.sizes)
        self.loads = [len(numbers) for numbers in owned]
        self.owned = [_count(numbers, classes.class_of, len(classes.sizes)) for numbers in owned]
        self.held = [dict(by_class) for by_class in self.owned]
        self.deficits: list[Counts] = [{} for _ in classes.sizes]
        self.free = list(classes.sizes)
        for by_class in self.owned:
            for class_id, count in by_class.items():
                self.free[class_id] -= count

    def give_edge(self, member: int, class_id: int) -> tuple[int, int]:
        """Cost of the edge from a member to a class, and its capacity at that cost."""
        held, owned = self.held[member].get(class_id, 0), self.owned[member].get(class_id, 0)
        refund = RACK_MISS_COST if member in self.is_far[class_id] else 0
        return (-refund, held - owned) if held > owned else (REVOCATION_COST - refund, held)

    def take_edge(self, class_id: int, member: int) -> tuple[int, int]:
        """Cost of the edge from a class to a member, and its capacity at that cost."""
        price = RACK_MISS_COST if member in self.is_far[class_id] else 0
        lost = self.deficits[class_id].get(member, 0)
        return (price - REVOCATION_COST, lost) if lost else (price, 1 << 60)

    def give(self, member: int, class_id: int, count: int) -> None:
        """Take partitions of a class from a member, which must hold them."""
        left = self.held[member][class_id] - count
        if left:
            self.held[member][class_id] = left
        else:
            del self.held[member][class_id]
        self.loads[member] -= count
        self._compare(member, class_id, left)

    def take(self, class_id: int, member: int, count: int) -> None:
        """Give partitions of a class to a member."""
        held = self.held[member].get(class_id, 0) + count
        self.held[member][class_id] = held
        self.loads[member] += count
        self._compare(member, class_id, held)

    def _compare(self, member: int, class_id: int, held: int) -> None:
        lost = self.owned[member].get(class_id, 0) - held
        if lost > 0:
            self.deficits[class_id][member] = lost
        else:
            self.deficits[class_id].pop(member, None)


def _count(numbers: Sequence[int], class_of: Sequence[int], class_count: int) -> Counts:
    if class_count == 1:
        return {0: len(numbers)} if numbers else {}
    by_class: Counts = {}
    for number in numbers:
        class_id = class_of[number]
        by_class[class_id] = by_class.get(class_id, 0) + 1
    return by_class
