"""Subscriptions and assignments of consumers, as assignors and look-ups need them. Pure.

To the rules both are opaque JSON. This module parses them, and only when a query needs their content.
"""

from collections.abc import Iterable

from rallypoint.assignors.contract import MemberSubscription, TopicPartition
from rallypoint.coordinator.core.effects import Failure
from rallypoint.coordinator.core.subscription import CONSUMER
from rallypoint.protocol import admin_messages as admin
from rallypoint.protocol.consumer_bytes import read_assignment, read_subscription
from rallypoint.protocol.errors import ErrorCode
from rallypoint.protocol.opaque import EMPTY


class Unreadable(Exception):  # noqa: N818 - a reason to refuse, on its way to the answer
    """The partitions of the group cannot be read. `failure` is the answer."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.detail)
        self.failure = failure


def check_consumers(group: admin.DescribeAnswer) -> None:
    """Raise Unreadable unless it is a group of consumers, or one that never had members."""
    if group.protocol_type not in {"", CONSUMER}:
        detail = f"The group is of protocol type {group.protocol_type!r}; who has what is known of consumers alone."
        raise Unreadable(Failure(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, detail))


def assigned_to(member: admin.DescribedMember) -> admin.TopicPartitions:
    """The partitions that the member was given, as its leader wrote them: in any order, and perhaps one of them twice.

    Raises Unreadable where that is no consumer's assignment.
    """
    if member.assignment == EMPTY:
        return {}
    try:
        return read_assignment(member.assignment).partitions
    except ValueError as error:
        detail = f"The assignment of member {member.member_id!r} is not that of a consumer."
        failure = Failure(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, detail, member_id=member.member_id)
        raise Unreadable(failure) from error


def flat(partitions: admin.TopicPartitions) -> tuple[TopicPartition, ...]:
    """One after the other, sorted, each once."""
    return tuple((topic, partition) for topic in sorted(partitions) for partition in sorted(set(partitions[topic])))


def subscription_of(
    member: admin.DescribedMember, owned: tuple[TopicPartition, ...], generation_id: int
) -> MemberSubscription:
    """What the member would tell the leader now, with what it owns. No topics where that is unreadable."""
    try:
        told = read_subscription(member.metadata)
    except ValueError:
        return MemberSubscription(topics=(), group_instance_id=member.group_instance_id)
    return MemberSubscription(
        topics=told.topics,
        group_instance_id=member.group_instance_id,
        owned=owned,
        generation_id=generation_id,
        rack_id=told.rack_id,
        user_data=told.user_data,
    )


def by_topic(partitions: Iterable[TopicPartition]) -> admin.TopicPartitions:
    """As answers have them: the topics sorted, each one's partitions as they come."""
    found: dict[str, list[int]] = {}
    for topic, partition in partitions:
        found.setdefault(topic, []).append(partition)
    return {topic: tuple(found[topic]) for topic in sorted(found)}


def assigned_counts(shares: Iterable[Iterable[TopicPartition]]) -> dict[str, int]:
    """How many partitions each topic must have at least, by what is assigned of it."""
    counts: dict[str, int] = {}
    for share in shares:
        for topic, partition in share:
            if partition >= counts.get(topic, 0):
                counts[topic] = partition + 1
    return counts
