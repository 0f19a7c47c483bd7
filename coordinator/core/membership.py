"""Membership of a group: joins, leaves, sessions, pending member ids, static members that come back.

`rebalance` decides what a change of membership means for the other members.
"""

from rallypoint.coordinator.core import capacity, rebalance, rebalance_history
from rallypoint.coordinator.core import records as r
from rallypoint.coordinator.core import transient_facts as t
from rallypoint.coordinator.core.commands import (
    Call,
    ConnectionLost,
    DecisionContext,
    GroupRequest,
    HangUp,
    Rebalance,
    Trigger,
    caller_of,
)
from rallypoint.coordinator.core.decision import (
    Draft,
    call_timer,
    grace_timer,
    pending_timer,
    retention_timer,
    session_timer,
)
from rallypoint.coordinator.core.effects import Failure, GroupCreated, MemberCame, MemberReplaced, SessionExpired
from rallypoint.coordinator.core.group import (
    DEAD,
    PREPARING_REBALANCE,
    CallKind,
    Group,
    Member,
    MemberTerms,
    Offered,
    State,
)
from rallypoint.coordinator.core.moves import OwnerNames
from rallypoint.coordinator.core.network import network_of
from rallypoint.coordinator.core.subscription import topics_of, wants_the_same
from rallypoint.protocol import messages as m
from rallypoint.protocol.errors import ErrorCode
from rallypoint.protocol.ids import new_member_id
from rallypoint.protocol.limits import REASON_LENGTH_MAX


def check_member(group: Group, member_id: str, group_instance_id: str | None) -> Failure | None:
    """The check that join with an id, sync, heartbeat, leave and commit share; None where it passes.

    An instance id that is given must be known, and be this member's; then the member must be.
    """
    if group_instance_id is not None:
        holder_id = group.static_members.get(group_instance_id)
        if holder_id is None:
            return Failure(
                ErrorCode.UNKNOWN_MEMBER_ID,
                f"No member with group_instance_id {group_instance_id!r} is in the group.",
                field="group_instance_id",
            )
        if holder_id != member_id:
            return Failure(
                ErrorCode.FENCED_INSTANCE_ID,
                f"Another member has taken over group_instance_id {group_instance_id!r}.",
                field="member_id",
                member_id=member_id,
            )
    if member_id not in group.members:
        return Failure(ErrorCode.UNKNOWN_MEMBER_ID, f"The group has no member {member_id!r}.", field="member_id")
    return None


def _because(trigger: Trigger, reason: str, member: Member) -> Rebalance:
    return Rebalance(trigger, reason, member.member_id, client_id=member.client_id, host=member.host)


def reason_of(reason: str | None) -> str:
    """A client's own words for people to read, cut to the length Kafka keeps."""
    return "not provided" if not reason else reason[:REASON_LENGTH_MAX]


# --- join ------------------------------------------------------------------------------------------------------------


def join(group: Group, call: Call, request: m.JoinRequest, context: DecisionContext, draft: Draft) -> None:
    """Decide a join: refuse it, hand out an id, answer it at once, or let it wait for the end of the join phase."""
    failure = (
        _check_join(group, request, context)
        or capacity.check_subscription(request, context.rules)
        or capacity.check_group_topics(group, request, context.rules)
    )
    if failure is not None:
        draft.reply(call, failure)
        return
    if _is_superseded(group, request):
        draft.reply(call, _SUPERSEDED)
        return
    if _is_used_up(group, request):
        draft.reply(call, rebalance.in_progress(group, group.join_until_ms, context.now_ms))
        return
    if request.request_id is not None and _repeat(group, call, request, context, draft):
        return
    if group.state is DEAD and request.member_id:
        draft.refuse(call, ErrorCode.UNKNOWN_MEMBER_ID, "The group does not exist.", field="member_id")
        return
    if _refuse_for_capacity(group, call, request, context, draft):
        return
    failure = _check_protocols(group, request)
    if failure is not None:
        draft.reply(call, failure)
        return
    if group.state is DEAD:
        create(group, context, draft)
    if not request.member_id:
        _join_without_id(group, call, request, context, draft)
    elif request.member_id in group.pending and request.group_instance_id is None:
        draft.cancel_timer(pending_timer(request.member_id))
        _add(group, call, request, request.member_id, context, draft)
    else:
        _join_again(group, call, request, context, draft)


def _check_join(group: Group, request: m.JoinRequest, context: DecisionContext) -> Failure | None:
    rules = context.rules
    if not group.group_id:
        return Failure(ErrorCode.INVALID_GROUP_ID, "The group id must not be empty.", field="group_id")
    low, high = rules.group_min_session_timeout_ms, rules.group_max_session_timeout_ms
    if not low <= request.session_timeout_ms <= high:
        limit_name = (
            "group_min_session_timeout_ms" if request.session_timeout_ms < low else "group_max_session_timeout_ms"
        )
        return Failure(
            ErrorCode.INVALID_SESSION_TIMEOUT,
            f"session_timeout_ms must be from {low} to {high}, not {request.session_timeout_ms}; see {limit_name}.",
            field="session_timeout_ms",
            limit=getattr(rules, limit_name),
            limit_name=limit_name,
        )
    return None


def _check_protocols(group: Group, request: m.JoinRequest) -> Failure | None:
    """In a group without members any type and list will do, if they are not empty. Else they must fit everyone's."""
    if group.state is DEAD or group.state is State.EMPTY:
        if not request.protocol_type:
            return _inconsistent("protocol_type must not be empty.", "protocol_type")
        if not request.protocols:
            return _inconsistent("protocols must name at least one protocol.", "protocols")
        return None
    if request.protocol_type != group.protocol_type:
        return _inconsistent(
            f"The group's protocol_type is {group.protocol_type!r}, not {request.protocol_type!r}.", "protocol_type"
        )
    if not group.supports_any(protocol.name for protocol in request.protocols):
        return _inconsistent("No protocol offered is supported by every member of the group.", "protocols")
    return None


def _inconsistent(detail: str, field: str) -> Failure:
    return Failure(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, detail, field=field)


def _refuse_for_capacity(
    group: Group, call: Call, request: m.JoinRequest, context: DecisionContext, draft: Draft
) -> bool:
    """Refuse a member too many. Ids handed out do not count, so they can overshoot and are refused at their join."""
    failure = capacity.check_members(group, request, context.rules)
    if failure is None:
        return False
    draft.reply(call, failure)
    member_id = capacity.joining_member_id(group, request)
    if member_id in group.members:
        member = group.members[member_id]
        draft.remove_member(member, failure)
        if group.is_active:
            draft.then.append(_because(Trigger.OVER_CAPACITY, f"there was no place left for {member_id}", member))
    elif member_id in group.pending:
        drop_pending(member_id, draft)
    return True


def create(group: Group, context: DecisionContext, draft: Draft) -> None:
    """Let the group exist, Empty, of no type yet: what the first join or the first simple commit does."""
    draft.fact(
        r.GroupRecord(
            group_id=group.group_id,
            protocol_type=None,
            protocol_name=None,
            generation_id=0,
            highest_generation_id=0,
            leader=None,
            state_at_ms=context.now_ms,
        )
    )
    draft.fact(t.GroupInitialized(context.now_ms))
    draft.notify(GroupCreated(group.group_id))
    draft.set_timer(retention_timer(), context.now_ms + context.rules.offsets_retention_check_interval_ms)


_SUPERSEDED = Failure(
    ErrorCode.REBALANCE_IN_PROGRESS,
    "The member has joined again since; this join is dropped and the newer one stands.",
    superseded=True,
)


def _is_superseded(group: Group, request: m.JoinRequest) -> bool:
    """A join that was held up on its way, and comes after a later one of its member: what it says, its claims above
    all, is of the past, and its session goes on as it was.

    Told by `attempt`; of the join without an id that gave a static member its id, by its `request_id`: taken for a new
    one it would take the slot over, and fence its own sender.
    """
    if request.member_id:
        member = group.members.get(request.member_id)
        last = None if member is None else member.terms.attempt
        return request.attempt is not None and last is not None and request.attempt < last
    holder_id = group.static_members.get(request.group_instance_id or "")
    return (
        holder_id is not None
        and request.request_id is not None
        and request.request_id == group.members[holder_id].first_request_id
        and request.request_id != group.members[holder_id].terms.request_id
    )


def _is_used_up(group: Group, request: m.JoinRequest) -> bool:
    """An attempt that has been part of a rebalance, or was answered without one, comes again amid another rebalance.

    Its member may have had the answer: then it is at work on what it was given since, and this copy was held up on its
    way. If it has not, it makes another attempt. So an attempt counts for one rebalance, whatever comes late, and
    whichever node or process answered it. Without an `attempt` a join counts for the rebalance that it comes to.
    """
    if request.attempt is None or group.state is not PREPARING_REBALANCE:
        return False
    member = group.members.get(request.member_id)
    if not request.member_id:
        # The join without an id by which a static member got its own: taken for a new one it would take the slot over.
        holder_id = group.static_members.get(request.group_instance_id or "")
        member = None if holder_id is None else group.members[holder_id]
        if member is None or request.request_id is None or request.request_id != member.terms.request_id:
            return False
    return member is not None and not member.joined and member.terms.attempt == request.attempt


def _repeat(group: Group, call: Call, request: m.JoinRequest, context: DecisionContext, draft: Draft) -> bool:
    """A join whose request_id is remembered gets its first answer again and moves nothing; false: it is no repeat."""
    assert request.request_id is not None
    member_id = group.requests.get(request.request_id)
    if member_id is None or request.member_id not in ("", member_id):
        return False
    member = group.members.get(member_id)
    is_of_handed_out = member is None or (
        member.group_instance_id is None and member.first_request_id == request.request_id
    )
    if not request.member_id and is_of_handed_out:
        draft.reply(call, _member_id_required(member_id))
        return True
    if member is None:
        # The id that was handed out comes to join, under the request id that asked for it.
        return False
    if member.joined:
        _wait_for_phase(group, call, request, member, context, draft)
        return True
    if group.is_active:
        draft.supersede(member.join_call)
        draft.extend_session(member, context)
        draft.reply(call, rebalance.join_answer(group, member, context))
        return True
    # A newer phase began before this answer was read: of a client that counts no attempts, the join is one for that.
    return False


def _member_id_required(member_id: str) -> Failure:
    return Failure(
        ErrorCode.MEMBER_ID_REQUIRED,
        "Join again with the member_id of this answer.",
        member_id=member_id,
        generation_id=-1,
    )


def _join_without_id(group: Group, call: Call, request: m.JoinRequest, context: DecisionContext, draft: Draft) -> None:
    member_id = new_member_id(request.client_id, request.group_instance_id, call.random_part)
    if request.group_instance_id is None:
        network = network_of(call.host)
        found = capacity.check_pending(group, network, context.rules)
        if isinstance(found, Failure):
            draft.reply(call, found)
            return
        if found is not None:
            _lapse(group, found, draft)
        deadline_ms = context.now_ms + min(request.session_timeout_ms, context.rules.group_pending_timeout_ms)
        draft.fact(t.PendingAdded(member_id, request.request_id, network, context.now_ms, deadline_ms))
        draft.set_timer(pending_timer(member_id), deadline_ms)
        draft.reply(call, _member_id_required(member_id))
        return
    holder_id = group.static_members.get(request.group_instance_id)
    if holder_id is None:
        _add(group, call, request, member_id, context, draft)
    else:
        _take_over(group, call, request, group.members[holder_id], member_id, context, draft)


def _terms(request: m.JoinRequest) -> MemberTerms:
    return MemberTerms(
        protocols=tuple(Offered(protocol.name, protocol.metadata) for protocol in request.protocols),
        session_timeout_ms=request.session_timeout_ms,
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        disconnect_grace_ms=request.disconnect_grace_ms,
        request_id=request.request_id,
        attempt=request.attempt,
    )


def _topics(request: m.JoinRequest) -> frozenset[str] | None:
    """Consumers say the same under each protocol they offer, so the first one serves."""
    return topics_of(request.protocol_type, request.protocols[0].metadata)


def _topics_again(group: Group, member: Member, request: m.JoinRequest) -> frozenset[str] | None:
    """The same, not read again where the member says what it said."""
    if (
        request.protocol_type == group.protocol_type
        and member.terms.protocols
        and member.terms.protocols[0].metadata == request.protocols[0].metadata
    ):
        return member.topics
    return _topics(request)


def _add(
    group: Group, call: Call, request: m.JoinRequest, member_id: str, context: DecisionContext, draft: Draft
) -> None:
    join_deadline_ms = context.now_ms + context.rules.new_member_join_timeout_ms
    _store_replacement(group, call, request, member_id, draft)
    draft.fact(
        t.MemberAdded(
            member_id=member_id,
            group_instance_id=request.group_instance_id,
            client_id=request.client_id,
            host=call.host,
            protocol_type=request.protocol_type,
            terms=_terms(request),
            topics=_topics(request),
            at_ms=context.now_ms,
            join_deadline_ms=join_deadline_ms,
        )
    )
    draft.fact(t.MemberJoined(member_id, context.now_ms))
    draft.notify(
        MemberCame(group.group_id, OwnerNames(member_id, request.group_instance_id, request.client_id, call.host))
    )
    draft.set_timer(session_timer(member_id), join_deadline_ms)
    draft.park(call, member_id, CallKind.JOIN, _wait_until(request.max_wait_ms, context))
    reason = f"member {member_id} joined: {reason_of(request.reason)}"
    came = Rebalance(Trigger.MEMBER_JOINED, reason, member_id, client_id=request.client_id, host=call.host)
    if group.state is PREPARING_REBALANCE:
        # As of most that form a group: it is one cause more, and nothing follows.
        rebalance_history.add_cause(group, rebalance_history.cause_of(came, context), draft)
    else:
        draft.then.append(came)


def _wait_until(max_wait_ms: int | None, context: DecisionContext) -> int:
    limit = context.rules.parked_call_max_wait_ms
    return context.now_ms + (limit if max_wait_ms is None else min(max_wait_ms, limit))


def _wait_for_phase(
    group: Group, call: Call, request: m.JoinRequest, member: Member, context: DecisionContext, draft: Draft
) -> None:
    """The member has joined the phase; this call is now where the answer goes."""
    draft.supersede(member.join_call)
    draft.park(call, member.member_id, CallKind.JOIN, _wait_until(request.max_wait_ms, context))
    deadline_ms = member.join_deadline_ms if member.is_new else context.now_ms + request.session_timeout_ms
    draft.start_session(member, deadline_ms)


def _join_again(group: Group, call: Call, request: m.JoinRequest, context: DecisionContext, draft: Draft) -> None:
    """A known member joins again; what follows depends on the state and on whether it says anything new."""
    failure = check_member(group, request.member_id, request.group_instance_id)
    if failure is not None:
        draft.reply(call, failure)
        return
    member = group.members[request.member_id]
    changed = t.MemberChanged(member.member_id, _terms(request), _topics_again(group, member, request))
    same = changed.terms.protocols == _comparable(group, member, changed.terms)
    if group.state is PREPARING_REBALANCE or member.joined:
        draft.fact(changed)
        draft.fact(t.MemberJoined(member.member_id, context.now_ms))
        _wait_for_phase(group, call, request, member, context, draft)
        if changed.topics != member.topics:
            # Not its whole metadata: what it owns may stand there, and changes with every rebalance.
            draft.then.append(
                _because(Trigger.SUBSCRIPTION_CHANGED, _said(Trigger.SUBSCRIPTION_CHANGED, request), member)
            )
        return
    leads = member.member_id == group.leader
    if same and (group.state is State.COMPLETING_REBALANCE or not leads):
        # Timeouts of the request are ignored, as in Kafka; but the request id is the last one from now on, and what
        # a load had forgotten of the protocols is known again.
        draft.fact(_reminded(member, changed.terms))
        _store_attempt(group, request, draft)
        draft.reply(call, rebalance.join_answer(group, member, context))
        draft.extend_session(member, context)
        return
    trigger = Trigger.LEADER_REJOINED if same else Trigger.SUBSCRIPTION_CHANGED
    draft.fact(changed)
    draft.fact(t.MemberJoined(member.member_id, context.now_ms))
    _wait_for_phase(group, call, request, member, context, draft)
    draft.then.append(_because(trigger, _said(trigger, request), member))


def _said(trigger: Trigger, request: m.JoinRequest) -> str:
    return f"{trigger.replace('_', ' ')} ({request.member_id}): {reason_of(request.reason)}"


def _comparable(group: Group, member: Member, terms: MemberTerms) -> tuple[Offered, ...]:
    """What to hold a join's protocols against. Of a member that came back from the store only the protocol in use is
    known: then the others are taken as they are now.
    """
    known = member.terms.protocols
    if len(known) == 1 and len(terms.protocols) > 1 and _is_stored_form(group, member):
        return tuple(known[0] if offered.name == known[0].name else offered for offered in terms.protocols)
    return known


def _is_stored_form(group: Group, member: Member) -> bool:
    stored = group.stored_members.get(member.member_id)
    return stored is not None and member.terms.protocols == (Offered(group.protocol_name or "", stored.metadata),)


def _reminded(member: Member, said: MemberTerms) -> t.MemberChanged:
    """The member's terms as they were, but for what a join that moves nothing still brings."""
    terms = member.terms._replace(protocols=said.protocols, request_id=said.request_id, attempt=said.attempt)
    return t.MemberChanged(member.member_id, terms, member.topics)


def _store_attempt(group: Group, request: m.JoinRequest, draft: Draft) -> None:
    """The attempt is answered and no rebalance follows, so no other record says so: after a crash, a copy of it that
    was held up on its way would count as a new join. Until a generation is stored, the leader's sync stores it.
    """
    stored = group.stored_members.get(request.member_id)
    is_newer = stored is not None and request.attempt is not None and request.attempt != stored.attempt
    if stored is not None and is_newer and group.state is State.STABLE:
        draft.fact(stored._replace(request_id=request.request_id, attempt=request.attempt))


def _take_over(
    group: Group,
    call: Call,
    request: m.JoinRequest,
    old: Member,
    member_id: str,
    context: DecisionContext,
    draft: Draft,
) -> None:
    """A static member comes back without its id: its slot gets a new member id, and the old one is fenced.

    In Stable nothing moves if the protocol in use stays the same, and what the member wants under it: the new id is
    stored with the old assignment. (Kafka compares the protocol alone, and misses a changed subscription.)
    """
    fenced = Failure(
        ErrorCode.FENCED_INSTANCE_ID,
        f"Another member has taken over group_instance_id {old.group_instance_id!r}.",
        member_id=old.member_id,
    )
    for call_id in (old.join_call, old.sync_call, old.heartbeat_call):
        draft.answer_parked(call_id, fenced)
    terms = _terms(request)
    name = group.protocol_name
    unchanged = (
        group.state is State.STABLE
        # One that has joined waits for the next rebalance, while that is held back.
        and not old.joined
        and rebalance.choose_protocol(group, group.of_generation(), group.leader, instead={old.member_id: terms})
        == name
        and wants_the_same(group.protocol_type, old.terms.metadata_of(name), terms.metadata_of(name))
    )
    leads = group.leader == old.member_id
    replaced = t.StaticMemberReplaced(
        old_member_id=old.member_id,
        new_member_id=member_id,
        client_id=request.client_id,
        host=call.host,
        terms=terms,
        topics=_topics(request),
        skip_assignment=unchanged and leads,
    )
    draft.cancel_timer(session_timer(old.member_id))
    draft.cancel_grace(old)
    assert old.group_instance_id is not None
    draft.notify(MemberReplaced(group.group_id, old.group_instance_id, old.member_id, member_id))
    if unchanged:
        rebalance.store_replacement(group, old, replaced, draft)
        draft.fact(replaced)
        _start_session_of(member_id, request, context, draft)
        draft.reply(call, rebalance.replacement_answer(group, replaced, context))
        return
    _store_replacement(group, call, request, member_id, draft)
    draft.fact(replaced)
    draft.fact(t.MemberJoined(member_id, context.now_ms))
    draft.park(call, member_id, CallKind.JOIN, _wait_until(request.max_wait_ms, context))
    _start_session_of(member_id, request, context, draft)
    reason = f"static member {old.group_instance_id} was replaced: {reason_of(request.reason)}"
    draft.then.append(
        Rebalance(Trigger.STATIC_MEMBER_REPLACED, reason, member_id, client_id=request.client_id, host=call.host)
    )


def _store_replacement(group: Group, call: Call, request: m.JoinRequest, member_id: str, draft: Draft) -> None:
    if request.group_instance_id is not None:
        rebalance.store_static_member(
            group,
            request.group_instance_id,
            member_id=member_id,
            client_id=request.client_id,
            host=call.host,
            terms=_terms(request),
            draft=draft,
        )


def _start_session_of(member_id: str, request: m.JoinRequest, context: DecisionContext, draft: Draft) -> None:
    deadline_ms = context.now_ms + request.session_timeout_ms
    draft.fact(t.SessionSet(member_id, deadline_ms))
    draft.set_timer(session_timer(member_id), deadline_ms)


# --- leave -----------------------------------------------------------------------------------------------------------


def leave(group: Group, call: Call, request: m.LeaveRequest, context: DecisionContext, draft: Draft) -> None:
    """Each entry has a result of its own; whoever goes, goes in one step, and one rebalance follows at most."""
    if not group.group_id:
        draft.refuse(call, ErrorCode.INVALID_GROUP_ID, "The group id must not be empty.", field="group_id")
        return
    gone: set[str] = set()
    reasons: list[str] = []
    results = [_leave_one(group, entry, gone, reasons, draft) for entry in request.members]
    draft.reply(call, m.LeaveAnswer(members=tuple(results)))
    members = gone & group.members.keys()
    if members:
        who = ", ".join(sorted(gone)[:5]) + (f" and {len(gone) - 5} more" if len(gone) > 5 else "")
        left = f"{'member' if len(gone) == 1 else 'members'} {who} left: {reasons[0]}"
        draft.then.append(_because(Trigger.MEMBER_LEFT, left, group.members[min(members)]))


def _leave_one(group: Group, entry: m.LeaveMember, gone: set[str], reasons: list[str], draft: Draft) -> m.LeftMember:
    member_id = entry.member_id
    holder_id = None if entry.group_instance_id is None else group.static_members.get(entry.group_instance_id)
    if not member_id and holder_id is not None:
        # An administrator removes a static member by its instance id alone.
        member_id = holder_id
    code = ErrorCode.NONE
    if member_id in group.pending and member_id not in gone:
        drop_pending(member_id, draft)
        gone.add(member_id)
    elif holder_id in gone:
        # Who had this instance id was named before, and is as good as gone.
        code = ErrorCode.UNKNOWN_MEMBER_ID
    else:
        failure = check_member(group, member_id, entry.group_instance_id)
        if failure is not None:
            code = failure.code
        elif member_id in gone:
            code = ErrorCode.UNKNOWN_MEMBER_ID
        else:
            left = Failure(ErrorCode.UNKNOWN_MEMBER_ID, "The member has left the group.", member_id="")
            draft.remove_member(group.members[member_id], left)
            gone.add(member_id)
            reasons.append(reason_of(entry.reason))
    return m.LeftMember(
        member_id=entry.member_id,
        group_instance_id=entry.group_instance_id,
        error_code=code,
        error_name=code.name,
    )


def drop_pending(member_id: str, draft: Draft) -> None:
    """An id that was handed out is void, and holds nobody up any longer."""
    draft.fact(t.PendingDropped(member_id))
    draft.cancel_timer(pending_timer(member_id))


# --- heartbeats and sessions -----------------------------------------------------------------------------------------


def heartbeat(group: Group, call: Call, request: m.HeartbeatRequest, context: DecisionContext, draft: Draft) -> None:
    """A member lives. Its session starts again; with `wait_ms` the call waits for the next rebalance."""
    if not group.group_id:
        draft.refuse(call, ErrorCode.INVALID_GROUP_ID, "The group id must not be empty.", field="group_id")
        return
    member_id = request.member_id
    failure = check_member(group, member_id, request.group_instance_id) or check_generation(
        group, request.generation_id, member_id
    )
    if failure is not None:
        draft.reply(call, failure)
        return
    member = group.members[member_id]
    draft.extend_session(member, context)
    if group.state is PREPARING_REBALANCE:
        draft.reply(call, rebalance.in_progress(group, group.join_until_ms, context.now_ms))
    elif request.wait_ms:
        draft.supersede(member.heartbeat_call)
        wait_ms = min(request.wait_ms, member.terms.session_timeout_ms // 2)
        draft.park(call, member.member_id, CallKind.HEARTBEAT, _wait_until(wait_ms, context))
    else:
        draft.reply(call, HEARD)


HEARD = m.HeartbeatAnswer()


def check_generation(group: Group, generation_id: int, member_id: str) -> Failure | None:
    """The generation must be the current one, and the known member have a part in it; None where it is so.

    A new member that waits while rebalances are held back has none, whatever generation it says.
    """
    if generation_id == group.generation_id:
        if group.is_active and group.members[member_id].is_new:
            detail = "The member has no part in the generation yet: its join waits for the next one."
            return Failure(
                ErrorCode.ILLEGAL_GENERATION, detail, field="generation_id", generation_id=group.generation_id
            )
        return None
    return Failure(
        ErrorCode.ILLEGAL_GENERATION,
        f"The group is at generation {group.generation_id}, not {generation_id}.",
        field="generation_id",
        generation_id=group.generation_id,
    )


def remove_outlived(group: Group, draft: Draft) -> None:
    """A restored group has the members of its backup, in a generation that others have followed. None of them stays:
    where they are now, and what they own, is not known.
    """
    for member_id in group.stored_members:
        draft.fact(t.MemberRemoved(member_id))
    count = len(group.stored_members)
    reason = f"the store was restored from a backup, in which the group had {count} members"
    draft.then.append(Rebalance(Trigger.STORE_RESTORED, reason))


def session_fired(
    group: Group, member_id: str, heard_at_ms: int | None, context: DecisionContext, draft: Draft
) -> None:
    """A session's timer fired: it may be early, since a heartbeat does not move it; or the member may be waiting."""
    member = group.members.get(member_id)
    if member is None:
        return
    until_ms = session_until_ms(group, member, heard_at_ms, context.now_ms)
    if context.now_ms < until_ms:
        draft.fact(t.SessionSet(member_id, until_ms))
        draft.set_timer(session_timer(member_id), until_ms)
        return
    expired = Failure(ErrorCode.UNKNOWN_MEMBER_ID, "The member's session has expired.", member_id="")
    draft.remove_member(member, expired)
    draft.notify(SessionExpired(group.group_id, member_id))
    draft.then.append(_because(Trigger.MEMBER_EXPIRED, f"the session of {member_id} expired", member))


def session_until_ms(group: Group, member: Member, heard_at_ms: int | None, now_ms: int) -> int:
    """When the session ends of a member whose session timer fires now. If that is not after `now_ms`, it is over.

    `heard_at_ms`: when something came last on the channel of the member, of which the group was not told; None if there
    is no such channel. It counts from when it came. Of a member at rest on a channel nothing else is heard.
    """
    # What holds a rebalance back is no fault of a new member's, so its time to join counts in a join phase alone.
    is_timed = member.is_new and group.state is PREPARING_REBALANCE
    if is_timed and now_ms >= member.join_deadline_ms:
        return member.deadline_ms
    if member.waits:
        until_ms = now_ms + member.terms.session_timeout_ms
        if is_timed:
            until_ms = min(until_ms, member.join_deadline_ms)
    elif heard_at_ms is not None:
        until_ms = heard_at_ms + member.terms.session_timeout_ms
    else:
        until_ms = member.deadline_ms
    return max(until_ms, member.deadline_ms)


def pending_fired(group: Group, member_id: str, context: DecisionContext, draft: Draft) -> None:
    """An id that was handed out was not used in time."""
    pending = group.pending.get(member_id)
    if pending is None or context.now_ms < pending.deadline_ms:
        return
    _lapse(group, member_id, draft)


def _lapse(group: Group, member_id: str, draft: Draft) -> None:
    """Nobody has joined with the pending id. A later join with it is refused, and its sender asks for another id."""
    drop_pending(member_id, draft)
    draft.notify(SessionExpired(group.group_id, member_id, pending=True))


def call_fired(group: Group, call_id: int, context: DecisionContext, draft: Draft) -> None:
    """A waiting call has waited long enough: a heartbeat succeeds, and a join or sync gets 202 and is sent again."""
    parked = group.parked.get(call_id)
    if parked is None:
        return
    member = group.members[parked.member_id]
    if parked.kind is CallKind.HEARTBEAT:
        draft.answer_parked(call_id, HEARD)
        draft.extend_session(member, context)
        return
    draft.answer_parked(call_id, m.WaitingAnswer(member_id=member.member_id if parked.kind is CallKind.JOIN else None))
    draft.start_session(member, context.now_ms + member.terms.session_timeout_ms)


# --- connections -----------------------------------------------------------------------------------------------------


def connection_lost(group: Group, command: ConnectionLost, context: DecisionContext, draft: Draft) -> None:
    """The connection that carried the member is gone. What came on it last was not told of before.

    If the member's own side has ended it, the member has its grace to come back. A static member is away on purpose
    more often than not, so it has a grace only where its join asked for one. The session goes on beside it, and may end
    before.
    """
    member_id = command.member_id
    member = group.members.get(member_id)
    if member is None:
        return
    if command.heard_at_ms is not None and not member.is_new:
        deadline_ms = command.heard_at_ms + member.terms.session_timeout_ms
        if deadline_ms > member.deadline_ms:
            draft.fact(t.SessionSet(member_id, deadline_ms))
    if not command.by_client:
        return
    grace_ms = member.terms.disconnect_grace_ms
    if grace_ms is None:
        if member.group_instance_id is not None:
            return
        grace_ms = context.rules.disconnect_grace_ms
    deadline_ms = context.now_ms + grace_ms
    draft.fact(t.GraceSet(member_id, deadline_ms))
    draft.set_timer(grace_timer(member_id), deadline_ms)


def come_back(group: Group, request: GroupRequest, draft: Draft) -> None:
    """Any call of a member whose connection was lost ends its grace, whatever the call is answered."""
    member_id = caller_of(request)
    if not member_id and isinstance(request, m.JoinRequest) and request.request_id is not None:
        # A first join that comes again, before its sender has learnt its id.
        member_id = group.requests.get(request.request_id, "")
    member = group.members.get(member_id)
    if member is not None and member.grace_deadline_ms is not None:
        draft.fact(t.GraceSet(member.member_id, None))
        draft.cancel_grace(member)


def grace_fired(group: Group, member_id: str, heard_at_ms: int | None, context: DecisionContext, draft: Draft) -> None:
    """The member has not come back in its grace, so it is dead. It was never away if a call of it waits elsewhere."""
    member = group.members.get(member_id)
    if member is None or member.grace_deadline_ms is None or context.now_ms < member.grace_deadline_ms:
        return
    if member.is_connected or heard_at_ms is not None:
        draft.fact(t.GraceSet(member_id, None))
        return
    detail = "The member's connection was lost, and it did not come back in time."
    draft.remove_member(member, Failure(ErrorCode.UNKNOWN_MEMBER_ID, detail, member_id=""))
    draft.notify(SessionExpired(group.group_id, member_id, disconnected=True))
    draft.then.append(_because(Trigger.MEMBER_EXPIRED, f"the connection of {member_id} was lost", member))


def hang_up(group: Group, command: HangUp, context: DecisionContext, draft: Draft) -> None:
    """The client of a waiting call is gone: its pending response is dropped, and the member's session runs again.

    A heartbeat that waited was counted when it came; that nobody reads its answer is no sign of life.
    """
    call_id = command.call_id
    parked = group.parked.get(call_id)
    if parked is None:
        return
    draft.fact(t.CallUnparked(call_id))
    draft.cancel_timer(call_timer(call_id))
    if command.connection_lost:
        connection_lost(group, ConnectionLost(parked.member_id), context, draft)
    if parked.kind is not CallKind.HEARTBEAT:
        member = group.members[parked.member_id]
        draft.start_session(member, context.now_ms + member.terms.session_timeout_ms)
