"""A rebalance of the group: everyone joins, a generation is made, the leader's assignment is stored and handed out.

start      from Empty, CompletingRebalance or Stable into PreparingRebalance
settle     after every step: is the join phase complete?
complete   the end of a join phase: a new generation, or nobody left
sync       the leader submits, the followers wait for it
"""

from collections import Counter
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from operator import itemgetter
from typing import NamedTuple, Self, cast

from rallypoint.coordinator.core import explanation, holding, linger, movement, rebalance_history, roster
from rallypoint.coordinator.core import records as r
from rallypoint.coordinator.core import transient_facts as t
from rallypoint.coordinator.core.commands import (
    Call,
    CompleteJoinPhase,
    DecisionContext,
    PrepareAssignment,
    Prepared,
    Rebalance,
    TimerKey,
    TimerKind,
    Trigger,
)
from rallypoint.coordinator.core.decision import Draft, call_timer, join_timer, session_timer, sync_timer
from rallypoint.coordinator.core.effects import (
    ENCODED_AT_ONCE_CHARACTERS,
    CancelTimer,
    Failure,
    JoinPhaseEnded,
    LargeJoin,
    OneEffect,
    RebalanceBegan,
    Reply,
    SetTimer,
    SyncPhaseEnded,
)
from rallypoint.coordinator.core.group import (
    DEAD,
    PREPARING_REBALANCE,
    STABLE,
    CallKind,
    Group,
    Member,
    MemberTerms,
    State,
    check_exists,
    named,
)
from rallypoint.protocol import admin_messages as admin
from rallypoint.protocol import messages as m
from rallypoint.protocol.errors import ErrorCode
from rallypoint.protocol.opaque import EMPTY, OpaqueJson

LEFT_OUT_NAMED_MAX = 3
"""Members that did not join in time of which the names are remembered."""
PREPARED_AT_ONCE_MAX = 1_000
"""Members whose records are made in one step."""

CHARACTERS_OF_NAMES = 200
"""What a member's names in an answer take as long as, of its metadata, to be put into words."""

# --- start -----------------------------------------------------------------------------------------------------------


def start(group: Group, command: Rebalance, context: DecisionContext, draft: Draft) -> None:
    """Ask everyone to join again, unless that is held back. Where everyone is asked already, only the cause is kept."""
    if group.state is DEAD:
        return
    if group.state is PREPARING_REBALANCE:
        rebalance_history.add_cause(group, rebalance_history.cause_of(command, context), draft)
        return
    if holding.hold(group, command, context, draft):
        return
    if group.is_active:
        # Also of a Stable group: some of its members may not have asked for their assignment yet.
        draft.cancel_timer(sync_timer(group))
    cause = group.held[0] if command.was_held else rebalance_history.cause_of(command, context)
    more_count = group.held_count - command.was_held
    holding.let_go(group, draft)
    started = t.RebalanceStarted(
        at_ms=context.now_ms,
        rebalance_id=rebalance_history.begin(group, cause, context, draft),
        join_deadline_ms=context.now_ms + context.rules.new_member_join_timeout_ms,
        further=group.held[1:] if command.was_held else group.held,
        further_count=more_count,
    )
    delay_ms = context.rules.group_initial_rebalance_delay_ms
    if group.state is State.EMPTY and delay_ms:
        left_ms = max(group.rebalance_timeout_ms - delay_ms, 0)
        until_ms = context.now_ms + delay_ms
        draft.fact(replace(started, until_ms=until_ms, initial_window_ms=delay_ms, initial_left_ms=left_ms))
    else:
        until_ms = context.now_ms + wait_for_joins_ms(group, holding.join_wait_of(group, context))
        draft.fact(replace(started, until_ms=until_ms))
    draft.set_timer(_next_phase(TimerKind.JOIN, group), until_ms)
    _call_back(group, until_ms, context, draft)
    reason = f"{command.reason}; {more_count} more held until now" if more_count else command.reason
    draft.notify(
        RebalanceBegan(
            group.group_id, command.trigger, command.member_id, group.generation_id, reason, started.rebalance_id,
            until_ms - context.now_ms,
        )
    )  # fmt: skip


def wait_for_joins_ms(group: Group, join_wait_max_ms: int | None) -> int:
    """How long a join phase waits for members, where an operator lets it wait so long at most."""
    timeout_ms = group.rebalance_timeout_ms
    return timeout_ms if join_wait_max_ms is None else min(timeout_ms, join_wait_max_ms)


def _next_phase(kind: TimerKind, group: Group) -> TimerKey:
    """The fact that begins or ends a phase counts it; its timer carries the new count."""
    return TimerKey(kind, phase=group.phase + 1)


def in_progress(group: Group, until_ms: int | None, now_ms: int) -> Failure:
    """The answer to whoever must join again. `until_ms`: when the join phase ends at the latest, None where members are
    not in one.
    """
    return Failure(
        ErrorCode.REBALANCE_IN_PROGRESS,
        "The group is rebalancing: join again.",
        generation_id=group.generation_id,
        rejoin_within_ms=None if until_ms is None else max(0, until_ms - now_ms),
    )


def refuse_assignments(group: Group, now_ms: int) -> Failure | None:
    """Why no leader can submit a list of assignments now, whoever it is; None where one may.

    In Stable one is taken too: a leader that did not hear the answer sends its list again.
    """
    if group.is_active:
        return None
    if group.state is State.PREPARING_REBALANCE:
        return in_progress(group, group.join_until_ms, now_ms)
    return Failure(ErrorCode.UNKNOWN_MEMBER_ID, "The group has no members.", field="member_id")


def _call_back(group: Group, until_ms: int, context: DecisionContext, draft: Draft) -> None:
    """Every waiting sync and heartbeat learns of the rebalance now; their members' sessions start again."""
    answer = in_progress(group, until_ms, context.now_ms)
    for parked_id, parked in list(group.parked.items()):
        if parked.kind is CallKind.JOIN:
            continue
        draft.answer_parked(parked_id, answer)
        member = group.members[parked.member_id]
        draft.start_session(member, context.now_ms + member.terms.session_timeout_ms)


def topics_changed(group: Group, context: DecisionContext, draft: Draft) -> None:
    """A subscribed topic has other partitions than the present assignment was made for: a new one is needed.

    Told at every change of the registry and after every load, so a change just before a crash is not forgotten.
    """
    if not group.is_active:
        return
    counts = counts_seen(group, context)
    if counts == group.partition_counts:
        return
    changed = sorted(
        topic
        for topic in counts.keys() | group.partition_counts.keys()
        if counts.get(topic) != group.partition_counts.get(topic)
    )
    what = ", ".join(f"{topic} has {counts.get(topic, 0)} partitions" for topic in changed[:5])
    draft.then.append(Rebalance(Trigger.TOPIC_CHANGED, f"subscribed topics changed: {what}"))


def counts_seen(group: Group, context: DecisionContext) -> dict[str, int]:
    """The registered partitions of the topics that the group subscribes to."""
    return _counts_of(group, group.topics, context)


def _counts_of(group: Group, topics: Iterable[str], context: DecisionContext) -> dict[str, int]:
    """By topic, in order. Of a topic of which the registry cannot tell, the count that the group knew last."""
    known, kept, unreadable = context.partition_counts, group.partition_counts, context.unreadable_topics
    # Members may name many more topics than are registered.
    found = sorted([topic for topic in topics if topic in known or topic in unreadable])
    counts = {topic: known.get(topic, kept.get(topic) if topic in unreadable else None) for topic in found}
    return {topic: count for topic, count in counts.items() if count is not None}


# --- the end of a join phase -----------------------------------------------------------------------------------------


def may_be_over(group: Group) -> bool:
    """Every member has done what the present phase waits for. During the initial delay, its timer alone ends it; where
    it lingers for ids that are out, that is looked at when the linger ends, and not with each of them.
    """
    if group.state is PREPARING_REBALANCE:
        lingers_for_ids = bool(group.pending) and group.lingers_until_ms is not None
        return group.initial_window_ms is None and group.all_joined and not lingers_for_ids
    return group.is_active and not group.pending_sync


def settle(group: Group, context: DecisionContext, draft: Draft) -> None:
    """End what is over: complete the join phase, or wait for nobody's sync any more.

    A join phase that new members have come to, or may, lingers for them.
    """
    if not may_be_over(group):
        return
    if group.state is State.PREPARING_REBALANCE:
        if linger.linger(group, context, draft):
            return
        draft.cancel_timer(join_timer(group))
        complete(group, context, draft)
    else:
        draft.cancel_timer(sync_timer(group))


def join_fired(group: Group, phase: int, context: DecisionContext, draft: Draft) -> None:
    """The time to join is over; during the initial delay, a window of it."""
    if group.state is not State.PREPARING_REBALANCE or phase != group.phase:
        return
    if context.now_ms < group.join_until_ms:
        return  # it fired behind an append, and was moved by a call that stood before it
    is_extended = group.new_member_in_window or bool(roster.missing(group))
    if group.initial_window_ms is not None and is_extended and group.initial_left_ms:
        window_ms = min(context.rules.group_initial_rebalance_delay_ms, group.initial_left_ms)
        left_ms = max(group.initial_left_ms - group.initial_window_ms, 0)
        draft.fact(t.InitialDelayExtended(window_ms, left_ms))
        _wait_until(context.now_ms + window_ms, group, draft)
        return
    if group.initial_window_ms is None and _leaves_out(group, context, draft):
        return
    complete_now(group, context, draft)


def _wait_until(until_ms: int, group: Group, draft: Draft) -> None:
    draft.fact(t.JoinPhaseUntil(until_ms))
    draft.set_timer(join_timer(group), until_ms)


def _leaves_out(group: Group, context: DecisionContext, draft: Draft) -> bool:
    """The time is over that an operator lets the group wait, before the members' own: who has not joined is left out,
    and the list of rebalances says so. With nobody there to go on, it waits on. False: it was the members' own time.
    """
    timeout_ms = group.rebalance_timeout_ms
    waited_ms = context.now_ms - group.phase_began_ms
    join_wait_max_ms = holding.join_wait_of(group, context)
    if join_wait_max_ms is None or waited_ms >= timeout_ms:
        return False
    if not group.joined_count:
        _wait_until(
            min(context.now_ms + context.rules.heartbeat_interval_ms, group.phase_began_ms + timeout_ms), group, draft
        )
        return True
    late = [member for member in group.by_seniority() if not member.joined and member.group_instance_id is None]
    if late:
        who = named(member.member_id for member in late)
        reason = f"left out after {waited_ms} ms, for join_wait_max_ms is {join_wait_max_ms}: {who}"
        draft.then.append(_left_out(reason, late[0]))
    draft.then.append(CompleteJoinPhase())
    return True


def _left_out(reason: str, first: Member) -> Rebalance:
    return Rebalance(
        Trigger.MEMBER_LEFT_OUT, reason, first.member_id, client_id=first.client_id, host=first.host
    )  # fmt: skip


def set_join_wait(
    group: Group, call: Call, request: admin.JoinWaitRequest, context: DecisionContext, draft: Draft
) -> None:  # fmt: skip
    """Set the group's own longest wait for joins, or leave it to the settings. It holds for a phase under way, too.

    Errors: INVALID_REQUEST for one in which members may not hear of the rebalance, GROUP_ID_NOT_FOUND.
    """
    wanted, least_ms = request.join_wait_max_ms, context.rules.heartbeat_interval_ms
    failure = check_exists(group)
    if failure is None and wanted is not None and wanted < least_ms:
        detail = (
            f"join_wait_max_ms must be {least_ms} or more, which is heartbeat_interval_ms:"
            " a member may hear of a rebalance that late."
        )
        failure = Failure(ErrorCode.INVALID_REQUEST, detail, field="join_wait_max_ms")
    if failure is not None:
        draft.reply(call, failure)
        return
    holding.store(group, lambda stands: replace(stands, join_wait_max_ms=wanted), draft)
    in_force = context.rules.join_wait_max_ms if wanted is None else wanted
    draft.reply(
        call, admin.JoinWaitAnswer(group_id=group.group_id, join_wait_max_ms=in_force, is_default=wanted is None)
    )
    if group.state is State.PREPARING_REBALANCE and group.initial_window_ms is None:
        until_ms = group.phase_began_ms + wait_for_joins_ms(group, in_force)
        _wait_until(max(context.now_ms, until_ms), group, draft)


def complete_now(group: Group, context: DecisionContext, draft: Draft) -> None:
    """End the join phase, if it has not ended meanwhile."""
    if group.state is State.PREPARING_REBALANCE:
        draft.cancel_timer(join_timer(group))
        complete(group, context, draft)


def complete(group: Group, context: DecisionContext, draft: Draft) -> None:
    """End the join phase: dynamic members that have not joined are removed, and the others form a new generation.

    Where only static members are left and none of them has come back, the phase goes on and they are waited for again.
    """
    linger.stop(group, draft)
    absent = [x for x in group.members.values() if not x.joined and x.group_instance_id is None]
    staying = [x for x in group.by_seniority() if x.joined or x.group_instance_id is not None]
    leader = next((member for member in staying if member.joined), None)
    gone = Failure(ErrorCode.UNKNOWN_MEMBER_ID, "The member did not join the rebalance in time.", member_id="")
    for member in absent:
        draft.remove_member(member, gone)
    if staying and leader is None:
        # The generation that they know stays theirs.
        wait_ms = max(context.rules.heartbeat_interval_ms, *(x.terms.rebalance_timeout_ms for x in staying))
        _wait_until(context.now_ms + wait_ms, group, draft)
        return
    generation_id = max(group.generation_id, group.highest_generation_id, context.generation_floor) + 1
    if leader is None:
        _empty(group, generation_id, context, draft)
    else:
        _begin_generation(group, staying, absent, leader, generation_id, context, draft)
    duration_ms = context.now_ms - group.phase_began_ms
    rebalance_id = rebalance_history.last_id(group)
    draft.notify(JoinPhaseEnded(group.group_id, generation_id, duration_ms, len(staying), rebalance_id))


def _empty(group: Group, generation_id: int, context: DecisionContext, draft: Draft) -> None:
    for stored in group.stored_members.values():
        draft.fact(r.MemberForgotten(group.group_id, stored.member_id, stored.generation_id))
    draft.fact(
        r.GroupRecord(
            group_id=group.group_id,
            protocol_type=group.protocol_type,
            protocol_name=None,
            generation_id=generation_id,
            highest_generation_id=generation_id,
            leader=None,
            state_at_ms=context.now_ms,
        )
    )
    rebalance_history.end_empty(group, generation_id, context, draft)
    draft.fact(t.Emptied(context.now_ms, generation_id))


class NextMember(NamedTuple):
    """A member at the end of a phase. `deadline_ms` is that of its session, if the timer has to move."""

    member_id: str
    call_id: int | None
    deadline_ms: int | None

    @classmethod
    def of(cls, member: Member, call_id: int | None, context: DecisionContext) -> Self:
        """The member, whose session restarts now."""
        deadline_ms = context.now_ms + member.terms.session_timeout_ms
        return cls(member.member_id, call_id, deadline_ms if deadline_ms < member.deadline_ms else None)


def _begin_generation(
    group: Group,
    staying: list[Member],
    absent: list[Member],
    leader: Member,
    generation_id: int,
    context: DecisionContext,
    draft: Draft,
) -> None:
    protocol_name = choose_protocol(group, staying, leader.member_id)
    if len(staying) == len(group.members):
        subscribed = group.topics
    else:
        subscribed = frozenset().union(*{member.topics for member in staying if member.topics is not None})
    counts = _counts_of(group, subscribed, context)
    # The number is used up before anyone hears of it: after a crash it is never given to another generation.
    draft.fact(_header(group, context, highest_generation_id=generation_id))
    rebalance_history.make(group, generation_id, len(staying), context, draft)
    left_out = tuple(explanation.name_of(member.client_id, member.member_id) for member in absent[:LEFT_OUT_NAMED_MAX])
    draft.fact(
        t.PhaseCompleted(context.now_ms, generation_id, protocol_name, leader.member_id, counts, left_out, len(absent))
    )
    said = _what_is_said(staying, protocol_name)
    protocol_type = group.protocol_type or ""

    def effects_of(member: NextMember) -> Iterator[OneEffect]:
        if member.deadline_ms is not None:
            yield SetTimer(session_timer(member.member_id), member.deadline_ms)
        if member.call_id is not None:
            yield CancelTimer(call_timer(member.call_id))
            members = _listing(said) if member.member_id == leader_id else ()
            answer = _join_answer_of(members)(
                generation_id=generation_id,
                protocol_type=protocol_type,
                protocol_name=protocol_name,
                leader=leader_id,
                member_id=member.member_id,
                members=members,
                heartbeat_interval_ms=context.rules.heartbeat_interval_ms,
            )
            yield Reply(member.call_id, answer)

    leader_id = leader.member_id
    draft.each([NextMember.of(member, member.join_call, context) for member in staying], effects_of)
    deadline_ms = context.now_ms + max(member.terms.rebalance_timeout_ms for member in staying)
    draft.set_timer(_next_phase(TimerKind.SYNC, group), deadline_ms)


def _header(group: Group, context: DecisionContext, *, highest_generation_id: int) -> r.GroupRecord:
    """The stored header with this highest generation. A group of offsets that was loaded without one gets it now."""
    header = group.header or r.GroupRecord(
        group_id=group.group_id,
        protocol_type=None,
        protocol_name=None,
        generation_id=0,
        highest_generation_id=0,
        leader=None,
        state_at_ms=context.now_ms,
    )
    return replace(header, highest_generation_id=highest_generation_id)


def choose_protocol(
    group: Group,
    members: Iterable[Member],
    leader: str | None,
    *,
    instead: Mapping[str, MemberTerms] | None = None,
) -> str:
    """The protocol that most members put first among those that all support; ties go by the leader's order, then name.

    `instead` takes some members' terms as they would be. Where no protocol is common, as after a load that forgot the
    members' other protocols, the group's present one stands.
    """
    lists: Counter[tuple[str, ...]] = Counter()
    order: dict[str, int] = {}
    for member in members:
        terms = member.terms if instead is None else instead.get(member.member_id, member.terms)
        names = tuple([offered.name for offered in terms.protocols])
        lists[names] += 1
        if member.member_id == leader:
            order = {name: at for at, name in enumerate(names)}
    candidates = set.intersection(*map(set, lists)) if lists else set()
    votes: Counter[str] = Counter()
    for names, count in lists.items():
        first = next((name for name in names if name in candidates), None)
        if first is not None:
            votes[first] += count
    if not votes:
        return group.protocol_name or ""
    return min(votes, key=lambda name: (-votes[name], order.get(name, len(order)), name))


def _what_is_said(members: Iterable[Member], protocol_name: str | None) -> list[tuple[str, str | None, OpaqueJson]]:
    """Of each member its id, its instance id and its metadata, as they are now."""
    return [(x.member_id, x.group_instance_id, x.terms.metadata_of(protocol_name)) for x in members]


def _listing(said: Sequence[tuple[str, str | None, OpaqueJson]]) -> tuple[m.JoinedMember, ...]:
    """As the leader is told. Cost: 3 µs a member."""
    return tuple(
        m.JoinedMember(member_id=member_id, group_instance_id=group_instance_id, metadata=metadata)
        for member_id, group_instance_id, metadata in said
    )


def _join_answer_of(members: tuple[m.JoinedMember, ...]) -> type[m.JoinAnswer]:
    """The kind of an answer with these. Cost: a look at the lengths of what they say."""
    size = sum([len(member.metadata.text) for member in members]) + CHARACTERS_OF_NAMES * len(members)
    return m.JoinAnswer if size <= ENCODED_AT_ONCE_CHARACTERS else LargeJoin


def join_answer(group: Group, member: Member, context: DecisionContext) -> m.JoinAnswer:
    """The answer to a member that joins the present generation; the leader's lists every member."""
    leads = member.member_id == group.leader
    listing = _listing(_what_is_said(group.of_generation(), group.protocol_name)) if leads else ()
    return _join_answer_of(listing)(
        generation_id=group.generation_id,
        protocol_type=group.protocol_type or "",
        protocol_name=group.protocol_name or "",
        leader=group.leader or "",
        member_id=member.member_id,
        skip_assignment=leads and member.skip_assignment,
        members=listing,
        heartbeat_interval_ms=context.rules.heartbeat_interval_ms,
    )


# --- a static member that came back to a stable group ----------------------------------------------------------------


def store_replacement(group: Group, old: Member, replaced: t.StaticMemberReplaced, draft: Draft) -> None:
    """Store the slot under its new id, so that the new one is still the right one after a crash."""
    assert group.header is not None
    stored = group.stored_members.get(old.member_id)
    if stored is not None:
        draft.fact(r.MemberForgotten(group.group_id, old.member_id, stored.generation_id))
    draft.fact(
        _member_record(
            group,
            member_id=replaced.new_member_id,
            member=old,
            host=replaced.host,
            client_id=replaced.client_id,
            terms=replaced.terms,
            assignment=old.assignment,
            first_request_id=replaced.terms.request_id,
        )
    )
    leader = replaced.new_member_id if group.leader == old.member_id else group.leader
    draft.fact(_stable_header(group, group.header.state_at_ms, leader))


def store_static_member(
    group: Group, instance: str, *, member_id: str, client_id: str, host: str, terms: MemberTerms, draft: Draft
) -> None:
    """The slot is a new id's in a rebalance that is not stored yet: what is stored of the slot goes to it as it stands.

    Else an old id, replaced or gone since, would come back with a crash, or with an append that fails, and fence the
    live process for good. The old metadata stays with the old assignment, so that what the new process says is held
    against it; for the same reason its request id is not kept, nor its attempt, which counts from the beginning.
    """
    old_id = group.stored_instances.get(instance)
    if old_id is None or group.header is None:
        return
    stored = group.stored_members[old_id]
    draft.fact(r.MemberForgotten(group.group_id, old_id, stored.generation_id))
    draft.fact(
        stored._replace(
            member_id=member_id,
            client_id=client_id,
            host=host,
            session_timeout_ms=terms.session_timeout_ms,
            rebalance_timeout_ms=terms.rebalance_timeout_ms,
            disconnect_grace_ms=terms.disconnect_grace_ms,
            request_id=None,
            attempt=None,
            first_request_id=None,
        )
    )
    if group.header.leader == old_id:
        draft.fact(replace(group.header, leader=member_id))


def replacement_answer(group: Group, replaced: t.StaticMemberReplaced, context: DecisionContext) -> m.JoinAnswer:
    """Nothing moved: the new id goes on in the generation. If it leads, it learns so, and that nothing is to assign."""
    leads = group.leader == replaced.old_member_id
    listing = tuple(
        m.JoinedMember(
            member_id=replaced.new_member_id if taken_over else member.member_id,
            group_instance_id=member.group_instance_id,
            metadata=(replaced.terms if taken_over else member.terms).metadata_of(group.protocol_name),
        )
        for member in group.of_generation()
        for taken_over in (member.member_id == replaced.old_member_id,)
    )
    return _join_answer_of(listing if leads else ())(
        generation_id=group.generation_id,
        protocol_type=group.protocol_type or "",
        protocol_name=group.protocol_name or "",
        leader=replaced.new_member_id if leads else group.leader or "",
        member_id=replaced.new_member_id,
        skip_assignment=leads,
        members=listing if leads else (),
        heartbeat_interval_ms=context.rules.heartbeat_interval_ms,
    )


# --- sync ------------------------------------------------------------------------------------------------------------


def sync(group: Group, call: Call, request: m.SyncRequest, context: DecisionContext, draft: Draft) -> None:
    """A member that passed the common checks asks for its assignment of the present generation."""
    if group.state is PREPARING_REBALANCE:
        draft.reply(call, in_progress(group, group.join_until_ms, context.now_ms))
        return
    member = group.members[request.member_id]
    if group.state is not STABLE and member.member_id == group.leader:
        prepare_assignment(group, PrepareAssignment(call, _prepare(group, request)), context, draft)
        return
    draft.fact(t.SyncSeen(member.member_id))
    draft.supersede(member.sync_call)
    if group.state is STABLE:
        draft.start_session(member, context.now_ms + member.terms.session_timeout_ms)
        draft.reply(call, _sync_answer(group, member.assignment))
    else:
        limit_ms = context.rules.parked_call_max_wait_ms
        wait_ms = limit_ms if request.max_wait_ms is None else min(request.max_wait_ms, limit_ms)
        draft.park(call, member.member_id, CallKind.SYNC, context.now_ms + wait_ms)


def check_protocol(group: Group, request: m.SyncRequest) -> Failure | None:
    """Type and name of the protocol must be the group's, where the request says them."""
    for field, given, held in (
        ("protocol_type", request.protocol_type, group.protocol_type),
        ("protocol_name", request.protocol_name, group.protocol_name),
    ):
        if given is not None and given != held:
            detail = f"The group's {field} is {held!r}, not {given!r}."
            return Failure(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, detail, field=field)
    return None


def _given(request: m.SyncRequest) -> dict[str, OpaqueJson]:
    return {entry.member_id: entry.assignment for entry in request.assignments}


def prepare_assignment(
    group: Group, command: PrepareAssignment, context: DecisionContext, draft: Draft
) -> None:  # fmt: skip
    """Go on with the work. Once it is done, the leader's assignment is stored."""
    try:
        next(command.work)
    except StopIteration as done:
        _store(group, command.call, done.value, context, draft)
    else:
        draft.again = command


def _prepare(group: Group, request: m.SyncRequest) -> Generator[None, None, Prepared]:
    """Count what the assignment moves, and make the records. Yields where a step of this size is enough.

    Only members whose record changed are written, so that the store's work grows with the change and not with the
    group. Another attempt to join is a change: after a crash, only what is stored tells a late copy of it from a new
    one.
    """
    given = _given(request)
    moved = yield from movement.count_moves(group, given, PREPARED_AT_ONCE_MAX)
    records: list[r.MemberRecord | r.MemberForgotten] = [
        r.MemberForgotten(group.group_id, stored.member_id, stored.generation_id)
        for stored in group.stored_members.values()
        if stored.member_id not in group.members
    ]
    for at, member in enumerate(group.by_seniority()):
        if at % PREPARED_AT_ONCE_MAX == 0 and len(group.members) > PREPARED_AT_ONCE_MAX:
            yield
        records += _changed_records(group, member, given.get(member.member_id, EMPTY))
    if len(group.members) > PREPARED_AT_ONCE_MAX:
        yield
    return Prepared(moved, records)


def _store(group: Group, call: Call, prepared: Prepared, context: DecisionContext, draft: Draft) -> None:
    """The leader's assignment is stored, then handed to everyone who waits for it.

    Whom the leader forgot gets nothing; whom the group does not know is ignored.
    """
    moved = prepared.moved
    partitions_moved = None if moved is None else moved.lost_count
    request = cast(m.SyncRequest, call.request)
    given = _given(request)
    draft.fact(t.SyncSeen(request.member_id))
    draft.supersede(group.members[request.member_id].sync_call)
    draft.facts += prepared.records
    leader = group.members[request.member_id]
    protocol_type, protocol_name = group.protocol_type or "", group.protocol_name or ""

    def effects_of(member: NextMember) -> Iterator[OneEffect]:
        if member.deadline_ms is not None:
            yield SetTimer(session_timer(member.member_id), member.deadline_ms)
        if member.call_id is not None:
            yield CancelTimer(call_timer(member.call_id))
            assignment = given.get(member.member_id, EMPTY)
            answer = m.SyncAnswer(protocol_type=protocol_type, protocol_name=protocol_name, assignment=assignment)
            yield Reply(member.call_id, answer)

    draft.reply(call, _sync_answer(group, given.get(request.member_id, EMPTY)))
    draft.extend_session(leader, context)
    waiting = [x for x in group.by_seniority() if x.sync_call is not None and x is not leader]
    draft.each([NextMember.of(member, member.sync_call, context) for member in waiting], effects_of)
    draft.fact(_stable_header(group, context.now_ms, group.leader))
    rebalance_history.end(group, partitions_moved, context, draft)
    draft.fact(t.Stabilised(context.now_ms))
    draft.notify(
        SyncPhaseEnded(
            group.group_id,
            group.generation_id,
            context.now_ms - group.phase_began_ms,
            rebalance_history.last_id(group),
            partitions_moved,
        )
    )
    if moved is not None and moved.moves:
        rebalance_history.notify_moved(group, moved.moves, draft)


def _changed_records(
    group: Group, member: Member, assignment: OpaqueJson
) -> Sequence[r.MemberRecord | r.MemberForgotten]:
    """What is to be written of a member; nothing where it is stored like that."""
    record = _member_record(
        group,
        member_id=member.member_id,
        member=member,
        host=member.host,
        client_id=member.client_id,
        terms=member.terms,
        assignment=assignment,
        # Of another member the id was handed out before it joined: a late join without one takes nothing over.
        first_request_id=None if member.group_instance_id is None else member.first_request_id,
    )
    stored = group.stored_members.get(member.member_id)
    if stored is not None:
        if stored.assignment.text == assignment.text and _same_but_generation(stored, record):
            return ()
        if stored.generation_id != record.generation_id:
            return r.MemberForgotten(group.group_id, member.member_id, stored.generation_id), record
    return (record,)


def _member_record(
    group: Group,
    *,
    member_id: str,
    member: Member,
    host: str,
    client_id: str,
    terms: MemberTerms,
    assignment: OpaqueJson,
    first_request_id: str | None,
) -> r.MemberRecord:
    return r.MemberRecord(
        group_id=group.group_id,
        member_id=member_id,
        generation_id=group.generation_id,
        seniority=member.seniority,
        group_instance_id=member.group_instance_id,
        client_id=client_id,
        host=host,
        session_timeout_ms=terms.session_timeout_ms,
        rebalance_timeout_ms=terms.rebalance_timeout_ms,
        disconnect_grace_ms=terms.disconnect_grace_ms,
        metadata=terms.metadata_of(group.protocol_name),
        assignment=assignment,
        request_id=terms.request_id,
        attempt=terms.attempt,
        first_request_id=first_request_id,
    )


def _same_but_generation(stored: r.MemberRecord, record: r.MemberRecord) -> bool:
    return bool(_CONTENT_OF(stored) == _CONTENT_OF(record))


_CONTENT_OF = itemgetter(
    *(at for at, name in enumerate(r.MemberRecord._fields) if name not in ("generation_id", "request_id"))
)


def _stable_header(group: Group, state_at_ms: int, leader: str | None) -> r.GroupRecord:
    return r.GroupRecord(
        group_id=group.group_id,
        protocol_type=group.protocol_type,
        protocol_name=group.protocol_name,
        generation_id=group.generation_id,
        highest_generation_id=group.highest_generation_id,
        leader=leader,
        state_at_ms=state_at_ms,
        partition_counts=dict(group.partition_counts),
    )


def _sync_answer(group: Group, assignment: OpaqueJson) -> m.SyncAnswer:
    return m.SyncAnswer(
        protocol_type=group.protocol_type or "", protocol_name=group.protocol_name or "", assignment=assignment
    )


def sync_fired(group: Group, phase: int, draft: Draft) -> None:
    """Removes the members that have not synced in time, whether they send heartbeats or not."""
    if not group.is_active or phase != group.phase or not group.pending_sync:
        return
    gone = Failure(ErrorCode.UNKNOWN_MEMBER_ID, "The member did not ask for its assignment in time.", member_id="")
    late = sorted(group.pending_sync)
    first = group.members[late[0]]
    for member_id in late:
        draft.remove_member(group.members[member_id], gone)
    who = ", ".join(late[:5]) + (f" and {len(late) - 5} more" if len(late) > 5 else "")
    reason = f"no sync in time from: {who}"
    draft.then.append(
        Rebalance(Trigger.SYNC_TIMED_OUT, reason, first.member_id, client_id=first.client_id, host=first.host)
    )
