"""Deletion by an operator: a whole group, or the committed offsets of topics.

Only a group without members can be deleted. In a group of consumers, offsets can be deleted only if no member can be
using them.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import islice

from rallypoint.coordinator.core import holding, rebalance_history
from rallypoint.coordinator.core import records as r
from rallypoint.coordinator.core import transient_facts as t
from rallypoint.coordinator.core.commands import Call, DecisionContext, OffsetsDeleted, TopicsDeleted
from rallypoint.coordinator.core.decision import Draft, retention_timer
from rallypoint.coordinator.core.effects import Failure, GroupRemoved, LargeDeletion, OffsetsRemoved, Removal
from rallypoint.coordinator.core.group import Group, check_empty, check_exists
from rallypoint.coordinator.core.membership import drop_pending
from rallypoint.coordinator.core.subscription import CONSUMER
from rallypoint.protocol import admin_messages as admin
from rallypoint.protocol import messages as m
from rallypoint.protocol.errors import ErrorCode

DELETED_AT_ONCE_MAX = 5_000
"""Offsets that one step takes away: some 5 ms. The others follow in steps of their own, before anything else."""


def delete_group(group: Group, call: Call, context: DecisionContext, draft: Draft) -> None:
    """Delete a group without members, with its offsets."""
    failure = check_empty(group)
    if failure is not None:
        draft.reply(call, failure)
        return
    if group.offset_count > DELETED_AT_ONCE_MAX:
        forget_offsets(
            group, list(islice(_offsets_of(group, group.offsets), DELETED_AT_ONCE_MAX)), Removal.DELETED, draft
        )
        draft.again = call
        return
    remove_group(group, Removal.DELETED, context, draft)
    draft.reply(call, admin.DeletedGroup(group_id=group.group_id))


def _offsets_of(group: Group, topics: Iterable[str]) -> Iterator[tuple[str, int]]:
    for topic in topics:
        for partition in group.offsets.get(topic, ()):
            yield topic, partition


def remove_group(group: Group, cause: Removal, context: DecisionContext, draft: Draft) -> None:
    """Remove an Empty group with all of its records. Its pending member ids are void.

    Cost: one record for each committed offset.
    """
    for member_id in group.pending:
        drop_pending(member_id, draft)
    for topic, partitions in group.offsets.items():
        for partition in partitions:
            draft.fact(r.OffsetForgotten(group.group_id, topic, partition))
    for stored in group.stored_members.values():
        draft.fact(r.MemberForgotten(group.group_id, stored.member_id, stored.generation_id))
    rebalance_history.forget_all(group, draft)
    holding.forget(group, draft)
    if group.deletions_stored:
        draft.fact(r.DeletionsForgotten(group.group_id))
    draft.fact(r.GroupForgotten(group.group_id))
    draft.fact(t.GroupDied(context.now_ms))
    draft.cancel_timer(retention_timer())
    draft.notify(GroupRemoved(group.group_id, cause))


def delete_offsets(group: Group, call: Call, request: admin.DeleteOffsetsRequest, draft: Draft) -> None:
    """Delete what is committed of the topics, and of the partitions. Each partition that is named, or has a commit, has
    a result; there need not be a commit.

    A group of consumers that has members keeps the offsets of topics that they subscribe to, or may subscribe to.
    Errors: INVALID_REQUEST where nothing is named, GROUP_ID_NOT_FOUND; NON_EMPTY_GROUP where the members are of another
    type, for nobody can tell what they read.
    """
    failure = check_exists(group) if group.protocol_type == CONSUMER else check_empty(group)
    if not request.topics and not request.partitions:
        failure = Failure(ErrorCode.INVALID_REQUEST, "Name a topic, or partitions as TOPIC:NUMBER.", field="topic")
    if failure is not None:
        draft.reply(call, failure)
        return
    deleted: list[tuple[str, int]] = []
    results: dict[str, dict[int, m.PartitionResult]] = {}
    for topic, partitions in _named(group, request).items():
        result = _SUBSCRIBED if subscribes(group, topic) else _DELETED
        results[topic] = dict.fromkeys(sorted(partitions), result)
        if result is _DELETED and not request.dry_run:
            committed = group.offsets.get(topic, {})
            deleted.extend((topic, partition) for partition in results[topic] if partition in committed)
    is_large = sum(map(len, results.values())) > DELETED_AT_ONCE_MAX
    answer = (LargeDeletion.model_construct if is_large else admin.DeleteOffsetsAnswer)(
        offsets=results, dry_run=request.dry_run
    )
    go_on(OffsetsDeleted(call, deleted, 0, answer), group, draft)


def _named(group: Group, request: admin.DeleteOffsetsRequest) -> dict[str, set[int]]:
    """The partitions by topic: of a whole topic those with a commit."""
    named: dict[str, set[int]] = {topic: set(group.offsets.get(topic, ())) for topic in request.topics}
    for text in request.partitions:
        topic, _, number = text.rpartition(":")
        named.setdefault(topic, set()).add(int(number))
    return named


def go_on(command: OffsetsDeleted, group: Group, draft: Draft) -> None:
    """Delete the next of a call's offsets, and answer it with the last."""
    end = command.at + DELETED_AT_ONCE_MAX
    forget_offsets(group, command.partitions[command.at : end], Removal.DELETED, draft)
    if end < len(command.partitions):
        draft.again = replace(command, at=end)
    else:
        draft.reply(command.call, command.answer)


def forget_deleted_topics(group: Group, context: DecisionContext, draft: Draft) -> None:
    """Take away what is committed of topics that were deleted since the group last heard of deletions.

    Whoever reads them; of a topic that was registered again, what was committed before. The group heard of deletions in
    every step, so all that stands now is from before. Cost: a look at each deleted topic.
    """
    topics = (topic for topic, version in context.deleted_topics.items() if version > group.deletions_seen)
    gone = list(islice(_offsets_of(group, topics), DELETED_AT_ONCE_MAX + 1))
    forget_offsets(group, sorted(gone[:DELETED_AT_ONCE_MAX]), Removal.TOPIC_DELETED, draft)
    if len(gone) > DELETED_AT_ONCE_MAX:
        draft.again = TopicsDeleted()
        return
    draft.fact(t.DeletionsSeen(context.deletions))


def keep_apart(group: Group, topics: Iterable[str], context: DecisionContext, draft: Draft) -> None:
    """Offsets of these topics are written now: a load must not take them for what stood before a topic's deletion."""
    if any(context.deleted_topics.get(topic, 0) > group.deletions_stored for topic in topics):
        draft.fact(r.DeletionsRecord(group.group_id, context.deletions))


def subscribes(group: Group, topic: str) -> bool:
    """Whether some member subscribes to the topic, or could, because what it subscribes to cannot be read."""
    return group.unreadable_count > 0 or topic in group.topics


def forget_offsets(group: Group, partitions: Sequence[tuple[str, int]], cause: Removal, draft: Draft) -> None:
    """Take committed offsets away, and say so; nothing where there are none."""
    for topic, partition in partitions:
        draft.fact(r.OffsetForgotten(group.group_id, topic, partition))
    if partitions:
        draft.notify(OffsetsRemoved(group.group_id, tuple(partitions), cause))


_DELETED = m.PartitionResult(error_code=ErrorCode.NONE, error_name=ErrorCode.NONE.name)
_SUBSCRIBED = m.PartitionResult(
    error_code=ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, error_name=ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC.name
)
