"""What operators take away: a whole group, or the committed offsets of topics.

Only a group without members can go. Of a group of consumers, offsets can go that none of them can be using.
"""

from collections.abc import Iterable

from coordinator.core import holding, rounds
from coordinator.core import notes as n
from coordinator.core import records as r
from coordinator.core.commands import Call, Moment
from coordinator.core.decision import Draft, expiry_timer
from coordinator.core.effects import GroupRemoved, OffsetsRemoved, Removal
from coordinator.core.group import CONSUMER, Group
from coordinator.core.membership import drop_pending
from coordinator.core.presence import check_empty, check_exists
from protocol import messages as m
from protocol.errors import ErrorCode


def delete_group(group: Group, call: Call, moment: Moment, draft: Draft) -> None:
    """Delete a group without members, with its offsets."""
    failure = check_empty(group)
    if failure is not None:
        draft.reply(call, failure)
        return
    bury(group, Removal.DELETED, moment, draft)
    draft.reply(call, m.DeletedGroup(group_id=group.group_id))


def bury(group: Group, cause: Removal, moment: Moment, draft: Draft) -> None:
    """Take an Empty group away with all that is stored of it. Ids that it handed out are void.

    Cost: one record for each committed offset, in one batch.
    """
    for member_id in group.pending:
        drop_pending(member_id, draft)
    for topic, partitions in group.offsets.items():
        for partition in partitions:
            draft.fact(r.OffsetForgotten(group.group_id, topic, partition))
    for stored in group.stored_members.values():
        draft.fact(r.MemberForgotten(group.group_id, stored.member_id, stored.generation_id))
    rounds.forget_all(group, draft)
    holding.forget(group, draft)
    if group.deletions_stored:
        draft.fact(r.DeletionsForgotten(group.group_id))
    draft.fact(r.GroupForgotten(group.group_id))
    draft.fact(n.GroupDied(moment.now_ms))
    draft.cancel_timer(expiry_timer())
    draft.notify(GroupRemoved(group.group_id, cause))


def delete_offsets(group: Group, call: Call, request: m.DeleteOffsetsRequest, draft: Draft) -> None:
    """Delete what is committed of the topics. Each partition with a commit has a result.

    A group of consumers that has members keeps the offsets of topics that they subscribe to, or may subscribe to.
    Errors: NON_EMPTY_GROUP where the members are of another type, for nobody can tell what they read.
    """
    failure = check_exists(group) if group.protocol_type == CONSUMER else check_empty(group)
    if failure is not None:
        draft.reply(call, failure)
        return
    deleted: list[tuple[str, int]] = []
    results: dict[str, dict[int, m.PartitionResult]] = {}
    for topic in dict.fromkeys(request.topics):
        partitions = sorted(group.offsets.get(topic, ()))
        result = _SUBSCRIBED if subscribes(group, topic) else _DELETED
        results[topic] = dict.fromkeys(partitions, result)
        if result is _DELETED:
            deleted.extend((topic, partition) for partition in partitions)
    forget_offsets(group, deleted, Removal.DELETED, draft)
    draft.reply(call, m.DeleteOffsetsAnswer(offsets=results))


def forget_deleted_topics(group: Group, moment: Moment, draft: Draft) -> None:
    """Take away what is committed of topics that were deleted since the group last heard of deletions.

    Whoever reads them; of a topic that was registered anew, what was committed before. The group heard of deletions in
    every step, so all that stands now is from before. Cost: a look at each deleted topic.
    """
    gone = [
        (topic, partition)
        for topic, version in moment.deleted_topics.items()
        if version > group.deletions_seen
        for partition in sorted(group.offsets.get(topic, ()))
    ]
    forget_offsets(group, gone, Removal.TOPIC_DELETED, draft)
    draft.fact(n.DeletionsSeen(moment.deletions))


def keep_apart(group: Group, topics: Iterable[str], moment: Moment, draft: Draft) -> None:
    """Offsets of these topics are written now: a load must not take them for what stood before a topic's deletion."""
    if any(moment.deleted_topics.get(topic, 0) > group.deletions_stored for topic in topics):
        draft.fact(r.DeletionsRecord(group.group_id, moment.deletions))


def subscribes(group: Group, topic: str) -> bool:
    """Whether some member subscribes to the topic, or could, because what it subscribes to cannot be read."""
    return group.unreadable_count > 0 or topic in group.subscribers


def forget_offsets(group: Group, partitions: list[tuple[str, int]], cause: Removal, draft: Draft) -> None:
    """Take committed offsets away, and say so; nothing where there are none."""
    for topic, partition in partitions:
        draft.fact(r.OffsetForgotten(group.group_id, topic, partition))
    if partitions:
        draft.notify(OffsetsRemoved(group.group_id, tuple(partitions), cause))


_DELETED = m.PartitionResult(error_code=ErrorCode.NONE, error_name=ErrorCode.NONE.name)
_SUBSCRIBED = m.PartitionResult(
    error_code=ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, error_name=ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC.name
)
