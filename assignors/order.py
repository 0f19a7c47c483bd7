"""The orders that all assignors share: of strings, of members, and of the subscribers of each topic.

Two leaders that order differently hand out different partitions, so these orders are part of the protocol. They are
those of Kafka's Java clients.
"""

from collections.abc import Mapping

from rallypoint.assignors.contract import GroupSpec, MemberSubscription


def java_order(text: str) -> bytes:
    """A sort key that orders strings as Java does: by UTF-16 code units.

    It differs from Python's order where a character beyond U+FFFF meets one in U+E000..U+FFFF: its surrogates sort
    first. A lone surrogate counts as itself.
    Source: the contract of `java.lang.String.compareTo`.
    """
    return text.encode("utf-16-be", "surrogatepass")


def members_in_order(subscriptions: Mapping[str, MemberSubscription]) -> list[str]:
    """Member ids: first the static members by instance id, then the dynamic ones by member id.

    A static member that returns under a new member id therefore keeps its place, and so its partitions. An empty
    instance id is static. Members with the same instance id, which a coordinator never lets into one group, are
    ordered by member id.
    Source: Kafka's `AbstractPartitionAssignor.MemberInfo`; the last rule is ours, Kafka leaves it to the map's order.
    """

    def key(member_id: str) -> tuple[bool, bytes, bytes]:
        instance_id = subscriptions[member_id].group_instance_id
        return instance_id is None, b"" if instance_id is None else java_order(instance_id), java_order(member_id)

    return sorted(subscriptions, key=key)


def subscribers_by_topic(spec: GroupSpec, members: list[str]) -> dict[str, list[int]]:
    """Each topic that exists and is subscribed to, with its subscribers as ascending positions in `members`.

    The topics come in `java_order`, so whoever walks through them appends to every member's list in sorted order.
    Cost: O(subscribed topics of all members + topics log topics).
    """
    positions: dict[str, list[int]] = {}
    for position, member_id in enumerate(members):
        for topic in set(spec.subscriptions[member_id].topics):
            if topic in spec.partitions_per_topic:
                positions.setdefault(topic, []).append(position)
    return {topic: positions[topic] for topic in sorted(positions, key=java_order)}
