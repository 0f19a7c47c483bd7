"""What is taken away, and what goes with it: a whole group.

Only a group without members can go. What is stored of it goes in the same batch as the answer rests on.
"""

from coordinator.core import notes as n
from coordinator.core import records as r
from coordinator.core.commands import Call, Moment
from coordinator.core.decision import Draft
from coordinator.core.effects import GroupRemoved, Removal
from coordinator.core.group import Group
from coordinator.core.membership import drop_pending
from coordinator.core.presence import check_empty
from protocol import messages as m


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
    draft.fact(r.GroupForgotten(group.group_id))
    draft.fact(n.GroupDied(moment.now_ms))
    draft.notify(GroupRemoved(group.group_id, cause))
