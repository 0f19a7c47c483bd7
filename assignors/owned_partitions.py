"""Who may keep what: which of the partitions that members name as their own still count.

A member that missed a rebalance comes back with what it had before, while a newer member has it. The generation that
each member names decides. Nothing here knows of balance: an owned partition that counts may still be moved.
"""

from collections.abc import Iterator

from rallypoint.assignors.contract import GroupSpec
from rallypoint.assignors.kinds import Kinds

NOBODY = -1
DISPUTED = -2


def undisputed_owned(spec: GroupSpec, kinds: Kinds) -> list[list[int]]:
    """By member, the numbers of the partitions that it owns, ascending. No partition stands twice.

    The member with the highest generation owns a partition, however low that is (-1 if a member names none). If two
    members name it for that generation, neither owns it. Nobody owns it if that member no longer subscribes to the
    topic, or the partition no longer exists: the member with the next lower generation has lost it.
    Cost: O(owned partitions of all members + partitions).
    Source: Kafka's `AbstractStickyAssignor` as of 4.1.1. With equal subscriptions that one drops all owned partitions
    older than the group's newest generation; here, as in its other branch, an old one that nobody disputes counts.
    """
    owners = [NOBODY] * len(kinds.partitions)
    generations = [0] * len(kinds.partitions)
    for member, number, generation in reported_owned(spec, kinds):
        if owners[number] == NOBODY or generation > generations[number]:
            owners[number], generations[number] = member, generation
        elif generation == generations[number] and owners[number] != member:
            owners[number] = DISPUTED
    owned: list[list[int]] = [[] for _ in kinds.members]
    for topic, numbers in kinds.numbers.items():
        subscribers = set(kinds.subscribers[topic])
        for number in numbers:
            if owners[number] in subscribers:
                owned[owners[number]].append(number)
    return owned


def reported_owned(spec: GroupSpec, kinds: Kinds) -> Iterator[tuple[int, int, int]]:
    """All existing partitions that members name as their own: member, number of the partition, generation."""
    for member, member_id in enumerate(kinds.members):
        subscription = spec.subscriptions[member_id]
        for topic, partition in subscription.owned:
            numbers = kinds.numbers.get(topic)
            if numbers is not None and 0 <= partition < len(numbers):
                yield member, numbers.start + partition, subscription.generation_id
