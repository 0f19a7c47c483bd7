"""Who may keep what: the partitions that members say they had, sorted into claims that count and claims that do not.

A member that missed a rebalance comes back with what it had before, while somebody newer has it. The generation that
each member names decides. Nothing here knows of balance: a claim that counts may still be moved.
"""

from collections.abc import Iterator

from assignors.contract import GroupSpec
from assignors.kinds import Kinds

NOBODY = -1
DISPUTED = -2


def claims_of(spec: GroupSpec, kinds: Kinds) -> list[list[int]]:
    """By member, the numbers of the partitions that it has a claim to, ascending. No partition stands twice.

    The claim of the highest generation counts, however low it is (-1 where a member names none); of two members at
    that generation neither's does. It lapses where its member no longer subscribes to the topic, or the partition is
    no more, and does not fall to a lower one: who had the partition before has lost it.
    Cost: O(owned partitions of all members + partitions).
    Source: Kafka's `AbstractStickyAssignor` as of 4.1.1. With equal subscriptions that one drops all claims older than
    the group's newest; here, as in its other branch, an old claim that nobody disputes counts.
    """
    owners = [NOBODY] * len(kinds.partitions)
    generations = [0] * len(kinds.partitions)
    for member, number, generation in claimed(spec, kinds):
        if owners[number] == NOBODY or generation > generations[number]:
            owners[number], generations[number] = member, generation
        elif generation == generations[number] and owners[number] != member:
            owners[number] = DISPUTED
    claims: list[list[int]] = [[] for _ in kinds.members]
    for topic, numbers in kinds.numbers.items():
        subscribers = set(kinds.subscribers[topic])
        for number in numbers:
            if owners[number] in subscribers:
                claims[owners[number]].append(number)
    return claims


def claimed(spec: GroupSpec, kinds: Kinds) -> Iterator[tuple[int, int, int]]:
    """All that members say they own of what there is: member, number of the partition, generation."""
    for member, member_id in enumerate(kinds.members):
        subscription = spec.subscriptions[member_id]
        for topic, partition in subscription.owned:
            numbers = kinds.numbers.get(topic)
            if numbers is not None and 0 <= partition < len(numbers):
                yield member, numbers.start + partition, subscription.generation_id
