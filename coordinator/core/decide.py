"""The entry to the core: what follows from a command, and the step that writes it.

    decide(group, command, context) -> Draft      reads the group, changes nothing
    step(group, command, context) -> Decision     decides, applies, follows up; all that the runtime calls

A step is decided in links: a command's facts are written before what follows from them (`Rebalance`, then `Settle`) is
decided, so each rule reads a group that is as it says it is.
"""

from collections import deque
from collections.abc import Sequence
from typing import NamedTuple, cast

from rallypoint.coordinator.core import (
    capacity,
    deletion,
    description,
    holding,
    linger,
    membership,
    movement,
    offsets,
    rebalance,
    rebalance_history,
    removal,
    reset,
    retention,
    roster,
)
from rallypoint.coordinator.core import records as r
from rallypoint.coordinator.core import transient_facts as t
from rallypoint.coordinator.core.apply import Fact, apply
from rallypoint.coordinator.core.commands import (
    AssignmentRequest,
    Call,
    Command,
    CompleteJoinPhase,
    ConnectionLost,
    DecisionContext,
    DeleteGroupRequest,
    DescribeRequest,
    GroupLoaded,
    HangUp,
    ListRebalancesRequest,
    OffsetsDeleted,
    PrepareAssignment,
    Rebalance,
    Settle,
    ThawRequest,
    TimerFired,
    TimerKey,
    TimerKind,
    TopicsChanged,
    TopicsDeleted,
)
from rallypoint.coordinator.core.decision import RECORD_TYPES, Draft, hold_timer, session_timer
from rallypoint.coordinator.core.effects import (
    Effect,
    GroupChanged,
    GroupSummary,
    MembersWent,
    Notify,
    OwnersLoaded,
    SetTimer,
)
from rallypoint.coordinator.core.group import DEAD, PREPARING_REBALANCE, Group, State
from rallypoint.coordinator.core.records import GroupFact
from rallypoint.coordinator.core.running_time import ran_ms
from rallypoint.protocol import admin_messages as admin
from rallypoint.protocol import messages as m
from rallypoint.protocol.errors import ErrorCode

_QUIET: frozenset[type] = frozenset(
    (
        t.SessionSet,
        t.GraceSet,
        t.CallParked,
        t.CallUnparked,
        t.DeletionsSeen,
        r.OffsetRecord,
        r.OffsetForgotten,
        r.DeletionsRecord,
    )
)
"""Facts that show in no list and complete no phase."""
_UNSEEN: frozenset[type] = _QUIET | {
    t.MemberJoined,
    t.SyncSeen,
    t.PendingAdded,
    t.PendingDropped,
    t.LingerSet,
}
"""Facts that show in no list, but may complete a phase."""


SETTLED_WITH_MAX = 1_000
"""Members of a group whose join phase is completed in the step of the last join."""

SESSION_LOOKS_MS = 100
"""Timers of sessions that are renewed fire together, before the sessions end: one wake-up for all within so long. A
member that was silent until then has its timer set again, to the end of its session."""


class Decision(NamedTuple):
    """What a step made. The records must be durable before any effect is released; effects are in order.

    `again`: to be stepped next, before anything that waits. A `Settle` follows from the command, which is over; any
    other one is a part of it, and what it asked for is not answered before.
    """

    records: Sequence[GroupFact]
    effects: Sequence[Effect]
    again: Command | None = None


NOTHING_DECIDED = Decision((), ())


def step(group: Group, command: Command, context: DecisionContext) -> Decision:
    """Decide a command and write it, with all that follows from it, into the group. Bad input is a coded reply."""
    if group.deletions_seen < context.deletions and group.state is not DEAD:
        forgotten = decide(group, _TOPICS_DELETED, context)
        if forgotten.again is not None:
            return _part(group, forgotten, command)
        return _step_in_links(group, forgotten, [] if isinstance(command, TopicsDeleted) else [command], context)
    draft = decide(group, command, context)
    facts = draft.facts
    if not facts and draft.again is None and not draft.then:
        return Decision((), draft.effects)  # so it is with each fetch
    if draft.again is not None:
        return _part(group, draft, draft.again)
    if draft.then or _may_be_seen(group, facts):
        decision = _step_in_links(group, draft, [], context, is_settled=isinstance(command, Settle))
        if isinstance(command, GroupLoaded) and group.deletions_seen < context.deletions:
            # In parts, like any other that a group hears of; nothing that waits comes between.
            assert decision.again is None, "nobody has joined a group that was just loaded"
            return decision._replace(again=_TOPICS_DELETED)
        return decision
    # Most calls, and all but a few of those that come by the thousand: no list shows it, and nothing follows but that a
    # phase may be over.
    records: list[GroupFact] = []
    is_quiet = _is_quiet(facts)
    _write(group, facts, records)
    decision = Decision(records, draft.effects)
    if is_quiet or isinstance(command, Settle) or not rebalance.may_be_over(group):
        return decision
    if _is_much_to_settle(group):
        return decision._replace(again=_SETTLE)
    return _step_in_links(group, decide(group, _SETTLE, context), [], context, behind=decision, is_settled=True)


def renew_session(group: Group, member_id: str, heard_at_ms: int | None, now_ms: int) -> int | None:
    """Handle a session's timer without a step, if the member lives: write when its session ends.

    Returns when the timer is to fire next. Returns None if a step has to decide; then nothing is written.

    `heard_at_ms`: as in `TimerFired`. Ten thousand members at rest need no more than this of their groups.
    """
    member = group.members.get(member_id)
    if member is None:
        return None
    until_ms = membership.session_until_ms(group, member, heard_at_ms, now_ms)
    if until_ms <= now_ms:
        return None
    apply(group, t.SessionSet(member_id, until_ms))
    looks_at_ms = until_ms - until_ms % SESSION_LOOKS_MS
    return looks_at_ms if looks_at_ms > now_ms else until_ms


def _part(group: Group, draft: Draft, again: Command) -> Decision:
    """A part of a large change: nothing follows from it but the next one, and no list shows it."""
    assert not draft.then, "what follows is decided after the last part"
    assert _is_quiet(draft.facts), "what a list shows changes in the last part"
    records: list[GroupFact] = []
    _write(group, draft.facts, records)
    return Decision(records, draft.effects, again)


def _step_in_links(
    group: Group,
    draft: Draft,
    later: list[Command],
    context: DecisionContext,
    *,
    behind: Decision = NOTHING_DECIDED,
    is_settled: bool = False,
) -> Decision:
    """The step that begins with this draft. `later` comes before what follows from it. `behind`: what the step made
    before this draft. `is_settled`: the draft settles the phase, which happens once in a step.
    """
    links: deque[Command] = deque(later)
    records = list(behind.records)
    effects = list(behind.effects)
    before: GroupSummary | None = None
    was_settled, is_settled = is_settled, True
    again: Command | None = None
    has_come_or_gone = False
    while True:
        links.extend(draft.then)
        effects.extend(draft.effects)
        if not was_settled and not _is_quiet(draft.facts):
            is_settled = False
        if before is None and _may_be_seen(group, draft.facts):
            before = group.shown or description.summary_of(group)
        _write(group, draft.facts, records)
        if roster.is_waited_for(group.hold) and not _WHO_IS_THERE.isdisjoint(map(type, draft.facts)):
            has_come_or_gone = True
        if draft.again is not None:
            links.appendleft(draft.again)
        if not links and has_come_or_gone:
            # Before the join phase is tested: the end of a freeze may end it, or begin one.
            has_come_or_gone = False
            if roster.has_come(group):
                links.append(_REVIEW)
        if not links and not is_settled:
            # After all that follows, however far: what a timer lets go may start a rebalance that everyone has joined.
            is_settled = was_settled = True
            if rebalance.may_be_over(group):
                if _is_much_to_settle(group):
                    again = _SETTLE
                else:
                    links.append(_SETTLE)
        if not links:
            break
        draft = decide(group, links.popleft(), context)
    if before is not None:
        after = group.shown = description.summary_of(group)
        if after != before:
            effects.append(Notify(GroupChanged(after)))
    return Decision(records, effects, again)


def _is_much_to_settle(group: Group) -> bool:
    """Everyone has joined, and to make a generation of so many takes a step of its own."""
    return group.state is PREPARING_REBALANCE and len(group.members) > SETTLED_WITH_MAX


def _may_be_seen(group: Group, facts: list[Fact]) -> bool:
    """Some of them may show in a list. Where a member says what it said of its topics, nobody sees that."""
    if _UNSEEN.issuperset(map(type, facts)):
        return False
    for fact in facts:
        if type(fact) not in _UNSEEN and not (
            isinstance(fact, t.MemberChanged) and fact.topics == group.members[fact.member_id].topics
        ):
            return True
    return False


def _is_quiet(facts: list[Fact]) -> bool:
    """Facts have no subclasses."""
    return _QUIET.issuperset(map(type, facts))


_WHO_IS_THERE: frozenset[type] = frozenset((t.MemberAdded, t.MemberRemoved, t.StaticMemberReplaced))
"""Facts by which members come or go."""
_REVIEW = TimerFired(hold_timer())
_SETTLE = Settle()
_TOPICS_DELETED = TopicsDeleted()


def _write(group: Group, facts: list[Fact], records: list[GroupFact]) -> None:
    for fact in facts:
        apply(group, fact)
    # Facts have no subclasses.
    records += cast("list[GroupFact]", [fact for fact in facts if type(fact) in RECORD_TYPES])


def decide(group: Group, command: Command, context: DecisionContext) -> Draft:
    """What follows from the command in the group as it is. Changes nothing."""
    draft = Draft()
    match command:
        case Call():
            membership.come_back(group, command.request, draft)
            _decide_call(group, command, context, draft)
        case TimerFired(key=key, heard_at_ms=heard_at_ms):
            _decide_timer(group, key, heard_at_ms, context, draft)
        case HangUp():
            membership.hang_up(group, command, context, draft)
        case ConnectionLost():
            membership.connection_lost(group, command, context, draft)
        case Rebalance():
            rebalance.start(group, command, context, draft)
        case CompleteJoinPhase():
            rebalance.complete_now(group, context, draft)
        case Settle():
            rebalance.settle(group, context, draft)
        case OffsetsDeleted():
            deletion.go_on(command, group, draft)
        case PrepareAssignment():
            rebalance.prepare_assignment(group, command, context, draft)
        case TopicsDeleted():
            deletion.forget_deleted_topics(group, context, draft)
        case TopicsChanged():
            rebalance.topics_changed(group, context, draft)
        case GroupLoaded():
            _decide_loaded(group, context, draft)
    if draft.gone:
        rebalance_history.notify_given_up(group, draft)
        draft.notify(MembersWent(group.group_id, tuple(movement.names_of(member) for member in draft.gone)))
    return draft


def _decide_call(group: Group, call: Call, context: DecisionContext, draft: Draft) -> None:
    match call.request:
        case m.HeartbeatRequest() as request:
            membership.heartbeat(group, call, request, context, draft)
        case m.CommitRequest() as request:
            offsets.commit(group, call, request, context, draft)
        case m.FetchRequest() as request:
            offsets.fetch(group, call, request, draft)
        case m.JoinRequest() as request:
            membership.join(group, call, request, context, draft)
        case m.SyncRequest() as request:
            _decide_sync(group, call, request, context, draft)
        case m.LeaveRequest() as request:
            membership.leave(group, call, request, context, draft)
        case admin.DeleteOffsetsRequest() as request:
            deletion.delete_offsets(group, call, request, draft)
        case admin.ResetOffsetsRequest() as request:
            reset.reset(group, call, request, context, draft)
        case DescribeRequest():
            description.describe(group, call, context, draft)
        case AssignmentRequest():
            description.present_assignment(group, call, draft)
        case DeleteGroupRequest():
            deletion.delete_group(group, call, context, draft)
        case ListRebalancesRequest():
            rebalance_history.list_rebalances(group, call, context, draft)
        case admin.StartRebalanceRequest() as request:
            holding.start_rebalance(group, call, request, context, draft)
        case admin.FreezeRequest() as request:
            holding.freeze(group, call, request, context, draft)
        case ThawRequest():
            holding.thaw(group, call, context, draft)
        case admin.CooldownRequest() as request:
            holding.set_cooldown(group, call, request, context, draft)
        case admin.RemoveMembersRequest() as request:
            removal.remove_members(group, call, request, context, draft)
        case admin.ProceedRequest() as request:
            removal.proceed(group, call, request, context, draft)
        case admin.JoinWaitRequest() as request:
            rebalance.set_join_wait(group, call, request, context, draft)


def _decide_sync(group: Group, call: Call, request: m.SyncRequest, context: DecisionContext, draft: Draft) -> None:
    if not group.group_id:
        draft.refuse(call, ErrorCode.INVALID_GROUP_ID, "The group id must not be empty.", field="group_id")
        return
    failure = (
        membership.check_member(group, request.member_id, request.group_instance_id)
        or membership.check_generation(group, request.generation_id, request.member_id)
        or rebalance.check_protocol(group, request)
    )
    if failure is not None:
        draft.reply(call, failure)
        return
    rebalance.sync(group, call, request, context, draft)


def _decide_timer(group: Group, key: TimerKey, heard_at_ms: int | None, context: DecisionContext, draft: Draft) -> None:
    match key.kind:
        case TimerKind.SESSION:
            membership.session_fired(group, key.subject, heard_at_ms, context, draft)
        case TimerKind.PENDING:
            membership.pending_fired(group, key.subject, context, draft)
        case TimerKind.CALL:
            membership.call_fired(group, int(key.subject), context, draft)
        case TimerKind.JOIN:
            rebalance.join_fired(group, key.phase, context, draft)
        case TimerKind.SYNC:
            rebalance.sync_fired(group, key.phase, draft)
        case TimerKind.RETENTION:
            retention.check(group, context, draft)
        case TimerKind.GRACE:
            membership.grace_fired(group, key.subject, heard_at_ms, context, draft)
        case TimerKind.HOLD:
            holding.review(group, context, draft)
        case TimerKind.LINGER:
            linger.linger_fired(group, key.phase, draft)


def _decide_loaded(group: Group, context: DecisionContext, draft: Draft) -> None:
    """The group goes on from its records: each member has one full session to be heard of."""
    assert group.state is State.DEAD, "a group is loaded once, from nothing"
    stable_ms = 0 if group.header is None else ran_ms(group.header.state_at_ms, context.now_ms, context.running)
    draft.fact(t.GroupRestored(context.now_ms - stable_ms))
    if group.header is not None or group.offsets:
        holding.bound_freeze(group, context, draft)
    if group.header is not None and group.header.generation_id <= context.generation_floor and group.stored_members:
        membership.remove_outlived(group, draft)
    elif group.header is not None:
        removal.go_on_without(group, draft)
        sessions = [
            (one.member_id, context.now_ms + one.session_timeout_ms)
            for one in group.stored_members.values()
            if not one.removed
        ]
        for member_id, deadline_ms in sessions:
            draft.fact(t.SessionSet(member_id, deadline_ms))
        owners = [(movement.names_of(one), one.assignment) for one in group.stored_members.values()]
        if owners:
            draft.notify(OwnersLoaded(group.group_id, group.header.protocol_type or "", tuple(owners)))
        draft.each(sessions, lambda session: (SetTimer(session_timer(session[0]), session[1]),))
        capacity.refuse_surplus(group, context.rules, draft)
    if group.header is not None or group.offsets:
        retention.arm_after_load(group, context, draft)
    if group.offsets:
        offsets.notify_loaded(group, draft)
    draft.then.append(TopicsChanged())
    if holding.frozen_until(group) is not None:
        draft.then.append(TimerFired(hold_timer()))
