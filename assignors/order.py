"""The orders that all assignors share: of strings, of members, and of the subscribers of each topic.

Leaders with different orders would assign differently, so these orders are part of the protocol. They are those of
Kafka's Java clients.
"""

from collections.abc import Iterable, Mapping

from rallypoint.assignors.contract import GroupSpec, MemberSubscription


def java_order(text: str) -> bytes:
    """A sort key that orders strings as Java does: by UTF-16 code units.

    It differs from Python's order if a character beyond U+FFFF is compared with one in U+E000..U+FFFF: its surrogates
    sort first. A lone surrogate counts as itself.
    Source: the contract of `java.lang.String.compareTo`.
    """
    return text.encode("utf-16-be", "surrogatepass")


def in_java_order(names: Iterable[str]) -> tuple[str, ...]:
    """The names, sorted by `java_order`."""
    return tuple(sorted(names, key=java_order))


def members_in_order(subscriptions: Mapping[str, MemberSubscription]) -> list[str]:
    """Member ids: first the static members by instance id, then the dynamic ones by member id.

    So a static member that returns under a new member id keeps its rank, and its partitions. An empty instance id
    counts as static. Members with the same instance id, which a coordinator never accepts, are ordered by member id.
    Source: Kafka's `AbstractPartitionAssignor.MemberInfo`; the last rule is ours, Kafka leaves it to the map's order.
    """

    def key(member_id: str) -> tuple[bool, bytes, bytes]:
        instance_id = subscriptions[member_id].group_instance_id
        return instance_id is None, b"" if instance_id is None else java_order(instance_id), java_order(member_id)

    return sorted(subscriptions, key=key)


def subscribers_by_topic(spec: GroupSpec, members: list[str]) -> dict[str, list[int]]:
    """Each existing topic with subscribers, and these as ascending indexes in `members`.

    The topics are in `java_order`, so a rule that iterates over them appends to each member's list in sorted order.
    Cost: O(subscribed topics of all members + topics log topics).
    """
    positions: dict[str, list[int]] = {}
    for position, member_id in enumerate(members):
        for topic in set(spec.subscriptions[member_id].topics):
            if topic in spec.partitions_per_topic:
                positions.setdefault(topic, []).append(position)
    return {topic: positions[topic] for topic in sorted(positions, key=java_order)}
