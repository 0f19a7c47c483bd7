"""Progress: committing offsets, fenced by member and generation, and reading them back."""

from functools import lru_cache

from coordinator.core import rebalance
from coordinator.core import records as r
from coordinator.core.capacity import offsets_room
from coordinator.core.commands import Call, Moment
from coordinator.core.decision import Draft
from coordinator.core.deletion import keep_apart
from coordinator.core.effects import Failure, OffsetsCommitted
from coordinator.core.group import Group, State
from coordinator.core.membership import check_generation, check_member, create
from protocol import messages as m
from protocol.errors import ErrorCode

SIMPLE_GENERATION = -1
"""The generation of a commit that belongs to no member."""


def commit(group: Group, call: Call, request: m.CommitRequest, moment: Moment, draft: Draft) -> None:
    """Take the offsets of a current member, or of nobody for a group without members. Each partition has a result.

    PreparingRebalance still takes the old generation's offsets, so that work can be finished before it is handed over.
    """
    failure = _check_committer(group, request)
    if failure is not None:
        draft.reply(call, failure)
        return
    if group.state is State.DEAD:
        create(group, moment, draft)
    member = group.members.get(request.member_id)
    if member is not None:
        draft.extend_session(member, moment)
    taken: list[tuple[str, int, int]] = []
    results: dict[str, dict[int, m.PartitionResult]] = {}
    room = offsets_room(group, moment.rules)
    for topic, partitions in request.offsets.items():
        results[topic] = {}
        held = group.offsets.get(topic, ())
        for partition, wanted in partitions.items():
            is_held = partition in held
            refused = _check_partition(topic, partition, wanted, is_held or room > 0, moment)
            results[topic][partition] = refused or TAKEN
            if refused is None:
                room -= not is_held
                draft.fact(_record(group, topic, partition, wanted, moment))
                taken.append((topic, partition, wanted.offset))
    draft.reply(call, _answer_of(results))
    if taken:
        if moment.deleted_topics:
            keep_apart(group, {topic for topic, _, _ in taken}, moment, draft)
        draft.notify(OffsetsCommitted(group.group_id, tuple(taken)))


def _answer_of(results: dict[str, dict[int, m.PartitionResult]]) -> m.CommitAnswer:
    """Most commits are of one partition, and taken: to make and check such an answer anew costs as much as the rule."""
    if len(results) == 1:
        ((topic, partitions),) = results.items()
        if len(partitions) == 1:
            ((partition, result),) = partitions.items()
            if result is TAKEN:
                return _taken(topic, partition)
    return m.CommitAnswer(offsets=results)


@lru_cache(maxsize=4096)
def _taken(topic: str, partition: int) -> m.CommitAnswer:
    return m.CommitAnswer(offsets={topic: {partition: TAKEN}})


def _check_committer(group: Group, request: m.CommitRequest) -> Failure | None:
    if group.state is State.DEAD:
        if request.generation_id < 0:
            return None
        return Failure(ErrorCode.ILLEGAL_GENERATION, "The group does not exist.", field="generation_id")
    if request.generation_id < 0 and group.state is State.EMPTY:
        return None
    if request.generation_id < 0 and not request.member_id and request.group_instance_id is None:
        return Failure(
            ErrorCode.UNKNOWN_MEMBER_ID,
            "The group has members, so a commit needs a member_id and its generation_id.",
            field="member_id",
        )
    failure = check_member(group, request.member_id, request.group_instance_id) or check_generation(
        group, request.generation_id, request.member_id
    )
    if failure is not None:
        return failure
    if group.state is State.COMPLETING_REBALANCE:
        return rebalance.in_progress(group)
    return None


def _check_partition(
    topic: str, partition: int, wanted: m.OffsetCommit, has_room: bool, moment: Moment
) -> m.PartitionResult | None:
    """A registered topic must have the partition; one that nobody registered is taken as it comes. None: it is taken.

    A partition that the group has committed before needs no room.
    """
    rules = moment.rules
    count = moment.partition_counts.get(topic)
    if count is not None and partition >= count:
        return _refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    # Counted in characters, as Kafka does.
    if len(wanted.metadata) > rules.offset_metadata_max_bytes:
        limit = rules.offset_metadata_max_bytes
        return _refused(ErrorCode.OFFSET_METADATA_TOO_LARGE, limit, "offset_metadata_max_bytes")
    if not has_room:
        return _refused(ErrorCode.THROTTLING_QUOTA_EXCEEDED, rules.group_offsets_max, "group_offsets_max")
    return None


def _refused(code: ErrorCode, limit: int | None = None, setting: str | None = None) -> m.PartitionResult:
    return m.PartitionResult(error_code=code, error_name=code.name, limit=limit, setting=setting)


def _record(group: Group, topic: str, partition: int, wanted: m.OffsetCommit, moment: Moment) -> r.OffsetRecord:
    return r.OffsetRecord(
        group_id=group.group_id,
        topic=topic,
        partition=partition,
        offset=wanted.offset,
        leader_epoch=wanted.leader_epoch,
        metadata=wanted.metadata,
        commit_at_ms=moment.now_ms,
    )


TAKEN = m.PartitionResult(error_code=ErrorCode.NONE, error_name=ErrorCode.NONE.name)


def fetch(group: Group, call: Call, request: m.FetchRequest, draft: Draft) -> None:
    """Committed offsets, of the topics named or of all; needs no membership and works in every state."""
    wanted = request.topics or tuple(group.offsets)
    draft.reply(call, m.FetchAnswer(offsets={topic: committed(group, topic) for topic in wanted}))


def committed(group: Group, topic: str) -> dict[int, m.CommittedOffset]:
    """What stands committed of a topic, by partition."""
    return {
        partition: m.CommittedOffset(
            offset=record.offset,
            leader_epoch=record.leader_epoch,
            metadata=record.metadata,
            commit_at_ms=record.commit_at_ms,
        )
        for partition, record in sorted(group.offsets.get(topic, {}).items())
    }
