"""Progress: committing offsets, fenced by member and generation, and reading them back."""

from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import cast

from rallypoint.coordinator.core import rebalance
from rallypoint.coordinator.core import records as r
from rallypoint.coordinator.core.capacity import offsets_room
from rallypoint.coordinator.core.commands import Call, DecisionContext, Rules
from rallypoint.coordinator.core.decision import Draft
from rallypoint.coordinator.core.deletion import keep_apart
from rallypoint.coordinator.core.effects import Failure, LargeFetch, Notify, OffsetsCommitted, OffsetsLoaded
from rallypoint.coordinator.core.group import COMPLETING_REBALANCE, DEAD, Group, State
from rallypoint.coordinator.core.membership import check_generation, check_member, create
from rallypoint.protocol import messages as m
from rallypoint.protocol.errors import ErrorCode
from rallypoint.protocol.limits import PARTITION_MAX

ANSWERED_AT_ONCE_MAX = 2_000
"""Committed offsets that an answer holds as a model. It takes some 8 ms; more are put into words slice by slice."""
LOADED_PART_MAX = 100
"""Offsets that one event tells of after a load. It weighs as much as an answer, which is what a slice is counted in."""
NO_COUNT = PARTITION_MAX + 1
"""Of a topic that nobody registered: whatever partition is taken."""


def commit(group: Group, call: Call, request: m.CommitRequest, context: DecisionContext, draft: Draft) -> None:
    """Take the offsets of a current member, or of nobody for a group without members. Each partition has a result.

    PreparingRebalance still takes the old generation's offsets, so that work can be finished before it is handed over.
    """
    failure = _check_committer(group, request)
    if failure is not None:
        draft.reply(call, failure)
        return
    if group.state is DEAD:
        create(group, context, draft)
    member = group.members.get(request.member_id)
    if member is not None:
        draft.extend_session(member, context)
    taken: list[tuple[str, int, int]] = []
    results: dict[str, dict[int, m.PartitionResult]] = {}
    room = offsets_room(group, context.rules)
    # Looked up once: each name costs a commit of ten thousand partitions half a millisecond.
    record, fact, group_id, now_ms = r.OffsetRecord, draft.fact, group.group_id, context.now_ms
    length_max = context.rules.offset_metadata_max_bytes
    for topic, partitions in request.offsets.items():
        answers = results[topic] = {}
        held = group.offsets.get(topic, ())
        count = context.partition_counts.get(topic, NO_COUNT)
        for partition, wanted in partitions.items():
            metadata, is_held = wanted.metadata, partition in held
            if partition < count and len(metadata) <= length_max and (is_held or room > 0):
                room -= not is_held
                answers[partition] = TAKEN
                fact(record(group_id, topic, partition, wanted.offset, wanted.leader_epoch, metadata, now_ms))
                taken.append((topic, partition, wanted.offset))
            else:
                answers[partition] = _why_not(partition < count, len(metadata) <= length_max, context.rules)
    draft.reply(call, _answer_of(results))
    if taken:
        if context.deleted_topics:
            keep_apart(group, {topic for topic, _, _ in taken}, context, draft)
        draft.notify(OffsetsCommitted(group.group_id, tuple(taken), now_ms))


def _answer_of(results: dict[str, dict[int, m.PartitionResult]]) -> m.CommitAnswer:
    """The answer to a commit. Most are of one partition, and taken; those answers are cached."""
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
    if group.state is DEAD:
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
    if group.state is COMPLETING_REBALANCE:
        return rebalance.in_progress(group, None, now_ms=0)
    return None


def _why_not(is_there: bool, is_short: bool, rules: Rules) -> m.PartitionResult:
    """Why the offset is not taken. A registered topic must have the partition; one that nobody registered is taken as
    it comes. Metadata is counted in characters, as Kafka does. A partition that the group has committed before needs
    no room.
    """
    if not is_there:
        return _refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    if not is_short:
        limit = rules.offset_metadata_max_bytes
        return _refused(ErrorCode.OFFSET_METADATA_TOO_LARGE, limit, "offset_metadata_max_bytes")
    return _refused(ErrorCode.THROTTLING_QUOTA_EXCEEDED, rules.group_offsets_max, "group_offsets_max")


def _refused(code: ErrorCode, limit: int | None = None, setting: str | None = None) -> m.PartitionResult:
    return m.PartitionResult(error_code=code, error_name=code.name, limit=limit, setting=setting)


TAKEN = m.PartitionResult(error_code=ErrorCode.NONE, error_name=ErrorCode.NONE.name)


def notify_loaded(group: Group, draft: Draft) -> None:
    """Tell whoever watches with which offsets the group goes on, in parts. Cost here: a copy of their list."""
    records = [record for of_topic in group.offsets.values() for record in of_topic.values()]
    starts = range(0, len(records), LOADED_PART_MAX)

    def tell(start: int) -> Iterator[Notify]:
        some = records[start : start + LOADED_PART_MAX]
        told = tuple([(of.topic, of.partition, of.offset, of.commit_at_ms) for of in some])
        yield Notify(OffsetsLoaded(group_id, told, 1 + start // LOADED_PART_MAX, len(starts)))

    group_id = group.group_id
    draft.each(starts, tell)


def fetch(group: Group, call: Call, request: m.FetchRequest, draft: Draft) -> None:
    """Committed offsets, of the topics named or of all; needs no membership and works in every state."""
    wanted = dict.fromkeys(request.topics or group.offsets)
    if is_many(group, wanted):
        draft.reply(call, LargeFetch.model_construct(offsets=as_they_stand(group, wanted)))
    else:
        draft.reply(call, m.FetchAnswer(offsets={topic: committed(group, topic) for topic in wanted}))


def is_many(group: Group, topics: Iterable[str]) -> bool:
    """Whether these are more committed offsets than an answer holds that is made in one go."""
    return group.offset_count > ANSWERED_AT_ONCE_MAX and (
        sum(len(group.offsets.get(topic, ())) for topic in topics) > ANSWERED_AT_ONCE_MAX
    )


def as_they_stand(group: Group, topics: Iterable[str]) -> dict[str, dict[int, m.CommittedOffset]]:
    """The records of these, copied, without order: they have the same fields as what is shown of them.

    Cost: a hundredth of what it takes to put them into words.
    """
    return {topic: cast(dict[int, m.CommittedOffset], dict(group.offsets.get(topic, {}))) for topic in topics}


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
