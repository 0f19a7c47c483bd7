"""The door of the core: what follows from a command, and the step that writes it.

    decide(group, command, moment) -> Draft      reads the group, changes nothing
    step(group, command, moment) -> Decision     decides, applies, follows up; all that the runtime calls

A step is decided in links: a command's facts are written before what follows from them (`Rebalance`, then `Settle`) is
decided, so each rule reads a group that is as it says it is.
"""

from collections import deque
from collections.abc import Sequence
from typing import NamedTuple, cast

from coordinator.core import (
    capacity,
    deletion,
    description,
    expiry,
    holding,
    membership,
    newcomers,
    offsets,
    rebalance,
    reset,
    rounds,
)
from coordinator.core import notes as n
from coordinator.core import records as r
from coordinator.core.apply import Fact, apply
from coordinator.core.commands import (
    AssignmentRequest,
    Call,
    Command,
    ConnectionLost,
    DeleteGroupRequest,
    DescribeRequest,
    GroupLoaded,
    HangUp,
    ListRebalancesRequest,
    Moment,
    Rebalance,
    Settle,
    ThawRequest,
    TimerFired,
    TimerKey,
    TimerKind,
    TopicsChanged,
    TopicsDeleted,
)
from coordinator.core.decision import RECORD_TYPES, Draft, hold_timer, session_timer
from coordinator.core.effects import Effect, GroupChanged, GroupSummary, Notify, OffsetsLoaded
from coordinator.core.group import Group, State
from coordinator.core.records import GroupFact
from protocol import messages as m
from protocol.errors import ErrorCode

_QUIET: frozenset[type] = frozenset(
    (
        n.SessionSet,
        n.GraceSet,
        n.CallParked,
        n.CallUnparked,
        n.DeletionsSeen,
        r.OffsetRecord,
        r.OffsetForgotten,
        r.DeletionsRecord,
    )
)
"""Facts that show in no list and complete no phase."""
_UNSEEN: frozenset[type] = _QUIET | {
    n.MemberJoined,
    n.SyncSeen,
    n.PendingAdded,
    n.PendingDropped,
    n.NewcomersAwaited,
}
"""Facts that show in no list, but may complete a phase."""


class Decision(NamedTuple):
    """What a step made. The records must be durable before any effect is released; effects are in order."""

    records: Sequence[GroupFact]
    effects: Sequence[Effect]


def step(group: Group, command: Command, moment: Moment) -> Decision:
    """Decide a command and write it, with all that follows from it, into the group. Bad input is a coded reply."""
    if group.deletions_seen < moment.deletions and group.state is not State.DEAD:
        return _step_in_links(group, decide(group, _TOPICS_DELETED, moment), [command], moment)
    draft = decide(group, command, moment)
    if draft.then or not _is_quiet(draft.facts):
        return _step_in_links(group, draft, [], moment)
    # Most calls, and all but a few of those that come by the thousand: nothing follows, and no list shows it.
    records: list[GroupFact] = []
    _write(group, draft.facts, records)
    return Decision(records, draft.effects)


def _step_in_links(group: Group, draft: Draft, later: list[Command], moment: Moment) -> Decision:
    """The step that begins with this draft. `later` comes before what follows from it."""
    links: deque[Command] = deque(later)
    records: list[GroupFact] = []
    effects: list[Effect] = []
    before: GroupSummary | None = None
    is_settled, was_settled = True, False
    while True:
        links.extend(draft.then)
        effects.extend(draft.effects)
        if not was_settled and not _is_quiet(draft.facts):
            is_settled = False
        if before is None and _may_be_seen(group, draft.facts):
            before = description.summary_of(group)
        _write(group, draft.facts, records)
        if not links and not is_settled:
            # After all that follows, however far: what a timer lets go may start a rebalance that everyone has joined.
            is_settled = was_settled = True
            if rebalance.is_phase_over(group):
                links.append(_SETTLE)
        if not links:
            break
        draft = decide(group, links.popleft(), moment)
    if before is not None:
        after = description.summary_of(group)
        if after != before:
            effects.append(Notify(GroupChanged(after)))
    return Decision(records, effects)


def _may_be_seen(group: Group, facts: list[Fact]) -> bool:
    """Some of them may show in a list. Where a member says what it said of its topics, nobody sees that."""
    return any(
        type(fact) not in _UNSEEN
        and not (isinstance(fact, n.MemberChanged) and fact.topics == group.members[fact.member_id].topics)
        for fact in facts
    )


def _is_quiet(facts: list[Fact]) -> bool:
    """Facts have no subclasses."""
    return _QUIET.issuperset(map(type, facts))


_SETTLE = Settle()
_TOPICS_DELETED = TopicsDeleted()


def _write(group: Group, facts: list[Fact], records: list[GroupFact]) -> None:
    for fact in facts:
        apply(group, fact)
        if type(fact) in RECORD_TYPES:
            records.append(cast(GroupFact, fact))


def decide(group: Group, command: Command, moment: Moment) -> Draft:
    """What follows from the command in the group as it is. Changes nothing."""
    draft = Draft()
    match command:
        case Call():
            membership.come_back(group, command.request, draft)
            _decide_call(group, command, moment, draft)
        case TimerFired(key=key):
            _decide_timer(group, key, moment, draft)
        case HangUp():
            membership.hang_up(group, command, moment, draft)
        case ConnectionLost(member_id=member_id):
            membership.connection_lost(group, member_id, moment, draft)
        case Rebalance():
            rebalance.start(group, command, moment, draft)
        case Settle():
            rebalance.settle(group, moment, draft)
        case TopicsDeleted():
            deletion.forget_deleted_topics(group, moment, draft)
        case TopicsChanged():
            rebalance.topics_changed(group, moment, draft)
        case GroupLoaded():
            _decide_loaded(group, moment, draft)
    return draft


def _decide_call(group: Group, call: Call, moment: Moment, draft: Draft) -> None:
    match call.request:
        case m.HeartbeatRequest() as request:
            membership.heartbeat(group, call, request, moment, draft)
        case m.CommitRequest() as request:
            offsets.commit(group, call, request, moment, draft)
        case m.JoinRequest() as request:
            membership.join(group, call, request, moment, draft)
        case m.SyncRequest() as request:
            _decide_sync(group, call, request, moment, draft)
        case m.LeaveRequest() as request:
            membership.leave(group, call, request, moment, draft)
        case m.FetchRequest() as request:
            offsets.fetch(group, call, request, draft)
        case m.DeleteOffsetsRequest() as request:
            deletion.delete_offsets(group, call, request, draft)
        case m.ResetOffsetsRequest() as request:
            reset.reset(group, call, request, moment, draft)
        case DescribeRequest():
            description.describe(group, call, moment, draft)
        case AssignmentRequest():
            description.tell_assignment(group, call, draft)
        case DeleteGroupRequest():
            deletion.delete_group(group, call, moment, draft)
        case ListRebalancesRequest():
            rounds.list_rebalances(group, call, moment, draft)
        case m.StartRebalanceRequest() as request:
            holding.start_rebalance(group, call, request, moment, draft)
        case m.FreezeRequest() as request:
            holding.freeze(group, call, request, moment, draft)
        case ThawRequest():
            holding.thaw(group, call, moment, draft)
        case m.CooldownRequest() as request:
            holding.set_cooldown(group, call, request, moment, draft)


def _decide_sync(group: Group, call: Call, request: m.SyncRequest, moment: Moment, draft: Draft) -> None:
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
    rebalance.sync(group, call, request, moment, draft)


def _decide_timer(group: Group, key: TimerKey, moment: Moment, draft: Draft) -> None:
    match key.kind:
        case TimerKind.SESSION:
            membership.session_fired(group, key.subject, moment, draft)
        case TimerKind.PENDING:
            membership.pending_fired(group, key.subject, moment, draft)
        case TimerKind.CALL:
            membership.call_fired(group, int(key.subject), moment, draft)
        case TimerKind.JOIN:
            rebalance.join_fired(group, key.phase, moment, draft)
        case TimerKind.SYNC:
            rebalance.sync_fired(group, key.phase, draft)
        case TimerKind.EXPIRY:
            expiry.check(group, moment, draft)
        case TimerKind.GRACE:
            membership.grace_fired(group, key.subject, moment, draft)
        case TimerKind.HOLD:
            holding.review(group, moment, draft)
        case TimerKind.NEWCOMERS:
            newcomers.look_again(group, key.phase, draft)


def _decide_loaded(group: Group, moment: Moment, draft: Draft) -> None:
    """The group goes on from its records: each member has one full session to be heard of."""
    assert group.state is State.DEAD, "a group is loaded once, from nothing"
    draft.fact(n.GroupRestored(moment.now_ms))
    if group.header is not None:
        for stored in group.stored_members.values():
            deadline_ms = moment.now_ms + stored.session_timeout_ms
            draft.fact(n.SessionSet(stored.member_id, deadline_ms))
            draft.set_timer(session_timer(stored.member_id), deadline_ms)
        capacity.refuse_surplus(group, moment.rules, draft)
    if group.header is not None or group.offsets:
        expiry.arm_after_load(group, moment, draft)
    if group.offsets:
        offsets_now = tuple((o.topic, o.partition, o.offset) for of in group.offsets.values() for o in of.values())
        draft.notify(OffsetsLoaded(group.group_id, offsets_now))
    if group.deletions_seen < moment.deletions:
        draft.then.append(_TOPICS_DELETED)
    draft.then.append(TopicsChanged())
    if holding.frozen_until(group) is not None:
        draft.then.append(TimerFired(hold_timer()))
