"""Decides which of the owned partitions that members report still count.

A member that missed a rebalance reports partitions that another member has taken since. The reported generations
decide between them. A partition that counts may still be moved by the balance.
"""

from collections.abc import Iterator

from rallypoint.assignors.balancing.partition_classes import PartitionClasses
from rallypoint.assignors.contract import GroupSpec

NOBODY = -1
DISPUTED = -2


def undisputed_owned(spec: GroupSpec, classes: PartitionClasses) -> list[list[int]]:
    """The numbers of each member's owned partitions, ascending. Each partition has at most one owner.

    The member that reports a partition with the highest generation owns it, even if that generation is old; it is -1 if
    the member reports none. If two members report it with this generation, nobody owns it. Nobody owns it either if
    that member no longer subscribes to the topic or the partition no longer exists: a member with a lower generation
    has lost it.

    Cost: O(owned partitions of all members + partitions).
    Source: Kafka's `AbstractStickyAssignor` as of 4.1.1. With equal subscriptions Kafka drops all owned partitions
    older than the group's newest generation. Here, as in Kafka's other branch, an undisputed old one counts.
    """
    owners = [NOBODY] * len(classes.partitions)
    generations = [0] * len(classes.partitions)
    for member, number, generation in reported_owned(spec, classes):
        if owners[number] == NOBODY or generation > generations[number]:
            owners[number], generations[number] = member, generation
        elif generation == generations[number] and owners[number] != member:
            owners[number] = DISPUTED
    owned: list[list[int]] = [[] for _ in classes.members]
    for topic, numbers in classes.numbers.items():
        subscribers = set(classes.subscribers[topic])
        for number in numbers:
            if owners[number] in subscribers:
                owned[owners[number]].append(number)
    return owned


def reported_owned(spec: GroupSpec, classes: PartitionClasses) -> Iterator[tuple[int, int, int]]:
    """All existing partitions that members report as owned: member, number of the partition, generation."""
    for member, member_id in enumerate(classes.members):
        subscription = spec.subscriptions[member_id]
        for topic, partition in subscription.owned:
            numbers = classes.numbers.get(topic)
            if numbers is not None and 0 <= partition < len(numbers):
                yield member, numbers.start + partition, subscription.generation_id
