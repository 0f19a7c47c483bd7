"""From counts to partitions: which partitions of a class each member keeps, and which it gets."""

from collections.abc import Sequence

from rallypoint.assignors.balancing.assignment_counts import AssignmentCounts, Counts
from rallypoint.assignors.balancing.partition_classes import PartitionClasses
from rallypoint.assignors.contract import Assignment


def assignment_from_counts(
    classes: PartitionClasses, owned: Sequence[Sequence[int]], counts: AssignmentCounts
) -> Assignment:
    """The assignment with these counts in which members keep as many of their owned partitions as the counts allow.

    If a member gets fewer partitions of a class than it owned, it keeps the first ones. The remaining partitions of a
    class go round-robin to its members in order of topic and number, so that a member gets partitions of many topics.
    Cost: O(partitions + members that get any, for each class and turn).
    """
    kept = [_kept(numbers, classes.class_of, counts.held[member]) for member, numbers in enumerate(owned)]
    nobodys = bytearray(b"\1") * len(classes.partitions)
    for numbers in kept:
        for number in numbers:
            nobodys[number] = 0
    pools: list[list[int]] = [[] for _ in classes.sizes]
    for number, class_id in enumerate(classes.class_of):
        if nobodys[number]:
            pools[class_id].append(number)
    takers: list[Counts] = [{} for _ in classes.sizes]
    for member, by_class in enumerate(counts.held):
        for class_id, count in by_class.items():
            more = count - counts.owned[member].get(class_id, 0)
            if more > 0:
                takers[class_id][member] = more
    given = [list(numbers) for numbers in kept]
    for pool, wanted in zip(pools, takers, strict=True):
        for number, member in zip(pool, _turns(wanted), strict=True):
            given[member].append(number)
    partitions = classes.partitions
    return {
        member_id: tuple([partitions[number] for number in sorted(numbers)])
        for member_id, numbers in zip(classes.members, given, strict=True)
    }


def _kept(numbers: Sequence[int], class_of: Sequence[int], held: Counts) -> list[int]:
    left = dict(held)
    kept = []
    for number in numbers:
        class_id = class_of[number]
        count = left.get(class_id, 0)
        if count:
            left[class_id] = count - 1
            kept.append(number)
    return kept


def _turns(wanted: Counts) -> list[int]:
    """The members of `wanted` in round-robin order, each as often as it says."""
    turns: list[int] = []
    while wanted:
        turns += wanted
        wanted = {member: count - 1 for member, count in wanted.items() if count > 1}
    return turns
