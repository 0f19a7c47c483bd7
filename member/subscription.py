"""Between the wire and the assignors: subscriptions and assignments in both of their shapes. Pure.

What others wrote is read with patience: a member whose metadata says nothing readable gets no partitions, but does
not stop the leader, or one faulty client would stop every group member in turn as each became leader.
"""

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from pydantic import JsonValue

from rallypoint.assignors import validity
from rallypoint.assignors.contract import Assignor, GroupSpec, MemberSubscription, TopicPartition
from rallypoint.protocol import consumer_bytes
from rallypoint.protocol.messages import ConsumerAssignment, ConsumerSubscription, JoinedMember, SyncAssignment
from rallypoint.protocol.opaque import EMPTY, OpaqueJson
from rallypoint.protocol.opaque_bytes import is_in_bytes

Racks = Sequence[Sequence[str]]
"""Of one topic: by partition the racks of its replicas, the leader's first. Empty or missing: not known."""

NO_RACKS: Mapping[str, Racks] = MappingProxyType({})


def metadata_of(
    topics: Iterable[str],
    owned: Iterable[TopicPartition],
    generation_id: int,
    rack_id: str | None,
    user_data: JsonValue,
) -> OpaqueJson:
    """What a member tells the leader. The same arguments in any order give the same text, which the coordinator
    compares to see whether a subscription changed.
    """
    subscription = ConsumerSubscription(
        topics=tuple(sorted(set(topics))),
        owned_partitions=_by_topic(owned),
        generation_id=generation_id,
        rack_id=rack_id,
        user_data=user_data,
    )
    return OpaqueJson.of(subscription.model_dump(mode="json", exclude_none=True))


def subscription_of(member: JoinedMember) -> MemberSubscription:
    """A member's subscription, for the assignor; no topics if it is unreadable."""
    try:
        metadata = consumer_bytes.read_subscription(member.metadata)
    except ValueError:
        return MemberSubscription(topics=(), group_instance_id=member.group_instance_id)
    return MemberSubscription(
        topics=metadata.topics,
        group_instance_id=member.group_instance_id,
        owned=_flat(metadata.owned_partitions),
        generation_id=metadata.generation_id,
        rack_id=metadata.rack_id,
        user_data=metadata.user_data,
    )


def topics_of(members: Iterable[JoinedMember]) -> frozenset[str]:
    """Every topic that somebody in the group subscribes to."""
    return frozenset(topic for member in members for topic in subscription_of(member).topics)


def check_racks(replica_racks: Mapping[str, Racks]) -> None:
    """ValueError unless it is lists of lists of texts; a text in place of a list would be read letter by letter."""
    for topic, racks in replica_racks.items():
        if not _is_list(racks) or not all(
            _is_list(one) and all(isinstance(rack, str) for rack in one) for one in racks
        ):
            raise ValueError(f"replica_racks: {topic}: not a list with a list of racks for each partition")


def _is_list(value: object) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str | bytes)


def assign_partitions(
    assignor: Assignor,
    members: Sequence[JoinedMember],
    leader_id: str,
    partitions_per_topic: Mapping[str, int],
    replica_racks: Mapping[str, Racks] = NO_RACKS,
) -> tuple[SyncAssignment, ...]:
    """Run the assignor as leader; one entry for each member, in bytes for one that told its metadata in bytes.
    `replica_racks`: as in `GroupSpec`. The leader's own entry says which counts this was made for.

    Raises `assignors.validity.InvalidAssignment` if the assignor breaks its contract: nothing of such a result is
    ever submitted. Whatever the assignor itself raises passes through.
    """
    subscriptions = {member.member_id: subscription_of(member) for member in members}
    result = validity.run(assignor, GroupSpec(dict(partitions_per_topic), subscriptions, dict(replica_racks)))
    made_for = {topic: partitions_per_topic.get(topic, 0) for topic in sorted(topics_of(members))}
    told = {member.member_id: member.metadata for member in members}
    return tuple(
        SyncAssignment(
            member_id=member_id,
            assignment=_in_the_form_of(
                told[member_id],
                ConsumerAssignment(
                    partitions=_by_topic(part),
                    user_data=result.user_data.get(member_id),
                    partition_counts=made_for if member_id == leader_id else None,
                ),
            ),
        )
        for member_id, part in result.assignment.items()
    )


def _in_the_form_of(metadata: OpaqueJson, assignment: ConsumerAssignment) -> OpaqueJson:
    """The assignment of a member with this metadata: who speaks bytes is answered in bytes."""
    if is_in_bytes(metadata):
        return consumer_bytes.write_assignment(assignment)
    return OpaqueJson.of(assignment.model_dump(mode="json", exclude_none=True))


class Given(NamedTuple):
    """What a member was given, as in `Assignment`."""

    partitions: frozenset[TopicPartition] = frozenset()
    user_data: JsonValue = None
    partition_counts: Mapping[str, int] | None = None


def read_assignment(assignment: OpaqueJson) -> Given:
    """What a member was given. Null (the leader gave nothing) is no partitions. ValueError if it is something else
    than an assignment.
    """
    if assignment == EMPTY:
        return Given()
    metadata = consumer_bytes.read_assignment(assignment)
    return Given(frozenset(_flat(metadata.partitions)), metadata.user_data, metadata.partition_counts)


def _by_topic(partitions: Iterable[TopicPartition]) -> dict[str, tuple[int, ...]]:
    by_topic: dict[str, list[int]] = {}
    for topic, partition in sorted(partitions):
        by_topic.setdefault(topic, []).append(partition)
    return {topic: tuple(numbers) for topic, numbers in by_topic.items()}


def _flat(by_topic: Mapping[str, Iterable[int]]) -> tuple[TopicPartition, ...]:
    return tuple((topic, partition) for topic, numbers in sorted(by_topic.items()) for partition in numbers)
