"""Between the wire and the assignors: subscriptions and assignments in both of their shapes. Pure.

What others wrote is read with patience: a member whose metadata says nothing readable gets no partitions, but does
not stop the leader, or one faulty client would stop every group member in turn as each became leader.
"""

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType

from pydantic import JsonValue, ValidationError

from assignors.contract import Assignment as SharedOut
from assignors.contract import Assignor, GroupSpec, MemberSubscription, TopicPartition
from protocol.messages import ConsumerAssignment, ConsumerSubscription, JoinedMember, SyncAssignment
from protocol.opaque import EMPTY, OpaqueJson

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
    """What a member told, for the assignor; no topics where it is unreadable."""
    try:
        told = ConsumerSubscription.model_validate(member.metadata.value)
    except ValidationError:
        return MemberSubscription(topics=(), group_instance_id=member.group_instance_id)
    return MemberSubscription(
        topics=told.topics,
        group_instance_id=member.group_instance_id,
        owned=_flat(told.owned_partitions),
        generation_id=told.generation_id,
        rack_id=told.rack_id,
        user_data=told.user_data,
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


def share_out(
    assignor: Assignor,
    members: Sequence[JoinedMember],
    partitions_per_topic: Mapping[str, int],
    replica_racks: Mapping[str, Racks] = NO_RACKS,
) -> tuple[SyncAssignment, ...]:
    """Run the assignor as leader; one entry for each member. `replica_racks`: as in `GroupSpec`.

    ValueError where the assignor breaks its contract: a partition given twice or that does not exist, a stranger, a
    member left out. Whatever the assignor itself raises passes through.
    """
    subscriptions = {member.member_id: subscription_of(member) for member in members}
    shared = assignor.assign(GroupSpec(dict(partitions_per_topic), subscriptions, dict(replica_racks)))
    _check(shared, subscriptions, partitions_per_topic, assignor.name)
    return tuple(
        SyncAssignment(
            member_id=member_id,
            assignment=OpaqueJson.of(
                ConsumerAssignment(partitions=_by_topic(part)).model_dump(mode="json", exclude_none=True)
            ),
        )
        for member_id, part in shared.items()
    )


def read_assignment(assignment: OpaqueJson) -> tuple[frozenset[TopicPartition], JsonValue]:
    """The partitions a member was given, and the user data beside them. Null (the leader gave nothing) is no
    partitions. ValueError where it is something else than an assignment.
    """
    if assignment == EMPTY:
        return frozenset(), None
    told = ConsumerAssignment.model_validate(assignment.value)
    return frozenset(_flat(told.partitions)), told.user_data


def _by_topic(partitions: Iterable[TopicPartition]) -> dict[str, tuple[int, ...]]:
    by_topic: dict[str, list[int]] = {}
    for topic, partition in sorted(partitions):
        by_topic.setdefault(topic, []).append(partition)
    return {topic: tuple(numbers) for topic, numbers in by_topic.items()}


def _flat(by_topic: Mapping[str, Iterable[int]]) -> tuple[TopicPartition, ...]:
    return tuple((topic, partition) for topic, numbers in sorted(by_topic.items()) for partition in numbers)


def _check(
    shared: SharedOut,
    subscriptions: Mapping[str, MemberSubscription],
    partitions_per_topic: Mapping[str, int],
    name: str,
) -> None:
    if shared.keys() != subscriptions.keys():
        odd = sorted(shared.keys() ^ subscriptions.keys())[0]
        raise ValueError(f"assignor {name!r} left out a member or named a stranger: {odd!r}")
    given: set[TopicPartition] = set()
    for part in shared.values():
        for topic_partition in part:
            topic, partition = topic_partition
            if topic_partition in given:
                raise ValueError(f"assignor {name!r} gave {topic}-{partition} twice")
            if not 0 <= partition < partitions_per_topic.get(topic, 0):
                raise ValueError(f"assignor {name!r} gave {topic}-{partition}, which does not exist")
            given.add(topic_partition)
