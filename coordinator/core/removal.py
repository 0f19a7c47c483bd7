"""Members that an operator takes out of a group, which they may join again: by name, or as those that are awaited.

What an operator was told is not taken back by a crash: the stored record of a member that is removed says so, and a
load leaves the member out, too. What it owned is nobody's then, so a rebalance follows that load.
"""

from collections.abc import Iterable

from rallypoint.coordinator.core import holding, rebalance_history
from rallypoint.coordinator.core import transient_facts as t
from rallypoint.coordinator.core.commands import Call, CompleteJoinPhase, DecisionContext, Rebalance, Trigger
from rallypoint.coordinator.core.decision import Draft
from rallypoint.coordinator.core.effects import MEMBERS_TOLD_MAX, Failure, MembersRemoved
from rallypoint.coordinator.core.group import Group, Member, State, check_exists, named
from rallypoint.coordinator.core.membership import drop_pending, reason_of
from rallypoint.protocol import admin_messages as admin
from rallypoint.protocol.errors import ErrorCode


def remove_members(
    group: Group, call: Call, request: admin.RemoveMembersRequest, context: DecisionContext, draft: Draft
) -> None:  # fmt: skip
    """Take the members out that are named by member id or instance id; one rebalance follows for all of them.

    Each entry has a result of its own. Errors of the whole: GROUP_ID_NOT_FOUND.
    """
    failure = check_exists(group)
    if failure is not None:
        draft.reply(call, failure)
        return
    gone: dict[str, None] = {}
    results = tuple([_result(group, _find(group, name, gone), name, gone) for name in request.members])
    members = [group.members[member_id] for member_id in gone if member_id in group.members]
    held_until_ms = holding.held_until(group, context, without=gone) if members else None
    draft.reply(
        call,
        admin.RemoveMembersAnswer(
            group_id=group.group_id,
            members=results,
            rebalance_id=None if request.dry_run or held_until_ms else _rebalance_id(group, members),
            held_until_ms=held_until_ms,
            dry_run=request.dry_run,
        ),
    )
    if not gone or request.dry_run:
        return
    why = reason_of(request.reason)
    take_out(group, gone, Trigger.MEMBER_REMOVED, why, draft)
    if members:
        first = members[0]
        reason = f"an operator removed {named(gone)}: {why}"
        draft.then.append(
            Rebalance(Trigger.MEMBER_REMOVED, reason, first.member_id, client_id=first.client_id, host=first.host)
        )


def _find(group: Group, name: str, gone: dict[str, None]) -> str | None:
    """The member that the name is of, or the pending id; None where it is of nobody who is still there."""
    member_id = name if name in group.members or name in group.pending else group.static_members.get(name)
    return None if member_id in gone else member_id


def _result(group: Group, member_id: str | None, name: str, gone: dict[str, None]) -> admin.RemovedMember:
    member = group.members.get(member_id or "")
    code = ErrorCode.UNKNOWN_MEMBER_ID if member_id is None else ErrorCode.NONE
    if member_id is not None:
        gone[member_id] = None
    return admin.RemovedMember(
        member_id=member_id or name,
        group_instance_id=None if member is None else member.group_instance_id,
        client_id=None if member is None else member.client_id,
        error_code=code,
        error_name=code.name,
    )


def _rebalance_id(group: Group, members: list[Member]) -> int | None:
    """Of the rebalance that there is when these are gone; None where nobody goes."""
    if not members:
        return None
    return rebalance_history.last_id(group) + (group.state is not State.PREPARING_REBALANCE)


def take_out(group: Group, gone: Iterable[str], trigger: Trigger, reason: str, draft: Draft) -> None:
    """These members and pending ids are out of the group, and a crash does not bring them back."""
    removed = Failure(ErrorCode.UNKNOWN_MEMBER_ID, f"An operator has removed the member: {reason}", member_id="")
    told = list(gone)
    for member_id in told:
        if member_id in group.pending:
            drop_pending(member_id, draft)
            continue
        stored = group.stored_members.get(member_id)
        if stored is not None:
            draft.fact(stored._replace(removed=True))
        draft.remove_member(group.members[member_id], removed)
    draft.notify(MembersRemoved(group.group_id, trigger, tuple(told[:MEMBERS_TOLD_MAX]), len(told), reason))


def proceed(group: Group, call: Call, request: admin.ProceedRequest, context: DecisionContext, draft: Draft) -> None:
    """Let the rebalance go on without those that it waits for: members and ids that have not joined, static ones too;
    or the leader that does not bring the assignment, after which the others join again.

    Where no rebalance is under way, nothing is to do. Errors: INVALID_REQUEST where nobody has joined yet, so that
    there is nobody to go on with; GROUP_ID_NOT_FOUND.
    """
    awaited = rebalance_history.awaited(group)
    if group.state is not State.PREPARING_REBALANCE:
        # The others wait for the leader alone.
        awaited = [(what, who) for what, who in awaited if what == "assignment" and group.state is not State.STABLE]
    failure = check_exists(group)
    if failure is None and group.state is State.PREPARING_REBALANCE and not group.joined_count:
        detail = "Nobody has joined the rebalance yet, so there is nobody to go on with."
        failure = Failure(ErrorCode.INVALID_REQUEST, detail)
    if failure is not None:
        draft.reply(call, failure)
        return
    begins_another = bool(awaited) and group.state is State.COMPLETING_REBALANCE
    rebalance_id = (
        rebalance_history.last_id(group) + 1 if begins_another and not request.dry_run else group.rebalance_id
    )
    draft.reply(
        call,
        admin.ProceedAnswer(
            group_id=group.group_id,
            rebalance_id=rebalance_id,
            left_out=rebalance_history.listings_of(group, awaited),
            left_out_count=len(awaited),
            dry_run=request.dry_run,
        ),
    )
    if request.dry_run or (not awaited and group.state is not State.PREPARING_REBALANCE):
        return
    why = reason_of(request.reason)
    gone = [who if isinstance(who, str) else who.member_id for _, who in awaited]
    if gone:
        take_out(group, gone, Trigger.MEMBER_LEFT_OUT, why, draft)
        first = next((who for _, who in awaited if isinstance(who, Member)), None)
        draft.then.append(
            Rebalance(
                Trigger.MEMBER_LEFT_OUT,
                f"an operator let the group go on without {named(gone)}: {why}",
                None if first is None else first.member_id,
                client_id=None if first is None else first.client_id,
                host=None if first is None else first.host,
            )
        )
    if group.state is State.PREPARING_REBALANCE:
        draft.then.append(CompleteJoinPhase())


def go_on_without(group: Group, draft: Draft) -> None:
    """At a load: those whom an operator had removed, when no assignment without them was stored yet, stay out."""
    gone = [stored for stored in group.stored_members.values() if stored.removed]
    if not gone:
        return
    for stored in gone:
        draft.fact(t.MemberRemoved(stored.member_id))
    first = gone[0]
    reason = f"an operator had removed {named(stored.member_id for stored in gone)}"
    draft.then.append(
        Rebalance(Trigger.MEMBER_REMOVED, reason, first.member_id, client_id=first.client_id, host=first.host)
    )
