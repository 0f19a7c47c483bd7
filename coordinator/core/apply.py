"""The only writer of a group's state, live and at load: one fact at a time, no decision.

A fact says what happened, and `apply` writes it into the group. It never refuses a fact: the rules decided before
whether it may happen.
"""

from collections.abc import Callable
from typing import Any, TypeVar

from rallypoint.coordinator.core import records as r
from rallypoint.coordinator.core import transient_facts as t
from rallypoint.coordinator.core.group import (
    JOINS_KEPT_MAX,
    LEGAL_MOVES,
    CallKind,
    Group,
    JoinNotes,
    Member,
    MemberTerms,
    Offered,
    Parked,
    Pending,
    State,
    Subscription,
    topics_bytes,
    words_bytes,
)
from rallypoint.coordinator.core.subscription import topics_of
from rallypoint.protocol.opaque import OpaqueJson

Fact = t.Note | r.GroupFact

CAUSES_KEPT_MAX = 10
"""Causes of a rebalance, held or further ones, of which more is kept than their number."""


_Writing = TypeVar("_Writing", bound=Callable[[Any, Group], None])

_WRITING: dict[type[object], Callable[[Any, Group], None]] = {}
"""What writes a fact, by the fact's own type: facts have no subclasses."""


def apply(group: Group, fact: Fact) -> None:
    """Write one fact into the group. Cost O(1), except the end of a phase and of a load: O(members)."""
    _WRITING[type(fact)](fact, group)


def _writes(kind: type[object]) -> Callable[[_Writing], _Writing]:
    """The function writes facts of this kind, as the only one."""

    def enter(writing: _Writing) -> _Writing:
        assert kind not in _WRITING, kind
        _WRITING[kind] = writing
        return writing

    return enter


def _move(group: Group, to: State, at_ms: int) -> None:
    assert to in LEGAL_MOVES[group.state], f"{group.group_id}: {group.state} -> {to}"
    group.state = to
    group.state_at_ms = at_ms


# --- records ---------------------------------------------------------------------------------------------------------


@_writes(r.GroupRecord)
def _group_record(fact: r.GroupRecord, group: Group) -> None:
    group.header = fact
    group.highest_generation_id = fact.highest_generation_id


@_writes(r.GroupForgotten)
def _group_forgotten(fact: r.GroupForgotten, group: Group) -> None:
    group.header = None


@_writes(r.MemberRecord)
def _member_record(fact: r.MemberRecord, group: Group) -> None:
    group.stored_members[fact.member_id] = fact
    instance = fact.group_instance_id
    if instance is not None and not fact.removed:
        group.stored_instances[instance] = fact.member_id
    elif instance is not None and group.stored_instances.get(instance) == fact.member_id:
        # Whoever comes for the slot is a new member of the group.
        del group.stored_instances[instance]
    member = group.members.get(fact.member_id)
    if member is not None:
        member.assignment = fact.assignment
    if group.state is State.DEAD and group.header is not None:
        # As it is loaded. The members are made in one go, which must not have to read the words of all.
        _read(group, group.header.protocol_type, fact.metadata)


def _read(group: Group, protocol_type: str | None, metadata: OpaqueJson) -> frozenset[str] | None:
    """Most say the same, word by word; and of those that do not, most mean the same topics."""
    read, said = group.read_ahead, (protocol_type, metadata)
    if said not in read:
        topics = topics_of(protocol_type, metadata)
        read[said] = None if topics is None else _subscription(group, topics).topics
    return read[said]


@_writes(r.MemberForgotten)
def _member_forgotten(fact: r.MemberForgotten, group: Group) -> None:
    stored = group.stored_members.get(fact.member_id)
    # The record of a newer generation may have come first: a batch has no order among its keys.
    if stored is not None and stored.generation_id == fact.generation_id:
        del group.stored_members[fact.member_id]
        instance = stored.group_instance_id
        # The slot may be another's already.
        if instance is not None and group.stored_instances.get(instance) == fact.member_id:
            del group.stored_instances[instance]


@_writes(r.OffsetRecord)
def _offset_record(fact: r.OffsetRecord, group: Group) -> None:
    of_topic = group.offsets.setdefault(fact.topic, {})
    if fact.partition not in of_topic:
        group.offset_count += 1
    of_topic[fact.partition] = fact


@_writes(r.OffsetForgotten)
def _offset_forgotten(fact: r.OffsetForgotten, group: Group) -> None:
    of_topic = group.offsets.get(fact.topic, {})
    if of_topic.pop(fact.partition, None) is not None:
        group.offset_count -= 1
    if not of_topic:
        group.offsets.pop(fact.topic, None)


@_writes(r.RebalanceRecord)
def _rebalance_record(fact: r.RebalanceRecord, group: Group) -> None:
    group.rebalances[fact.rebalance_id] = fact


@_writes(r.RebalanceForgotten)
def _rebalance_forgotten(fact: r.RebalanceForgotten, group: Group) -> None:
    group.rebalances.pop(fact.rebalance_id, None)
    group.join_notes.pop(fact.rebalance_id, None)


@_writes(r.HoldRecord)
def _hold_record(fact: r.HoldRecord, group: Group) -> None:
    group.hold = fact


@_writes(r.HoldForgotten)
def _hold_forgotten(fact: r.HoldForgotten, group: Group) -> None:
    group.hold = None


@_writes(r.DeletionsRecord)
def _deletions_record(fact: r.DeletionsRecord, group: Group) -> None:
    group.deletions_stored = fact.version
    group.deletions_seen = max(group.deletions_seen, fact.version)


@_writes(r.DeletionsForgotten)
def _deletions_forgotten(fact: r.DeletionsForgotten, group: Group) -> None:
    group.deletions_stored = 0


@_writes(t.DeletionsSeen)
def _deletions_seen(fact: t.DeletionsSeen, group: Group) -> None:
    group.deletions_seen = fact.version


# --- the group -------------------------------------------------------------------------------------------------------


@_writes(t.GroupInitialized)
def _group_created(fact: t.GroupInitialized, group: Group) -> None:
    _move(group, State.EMPTY, fact.at_ms)


@_writes(t.GroupRestored)
def _group_restored(fact: t.GroupRestored, group: Group) -> None:
    header = group.header
    # The store has them in the order of their keys, which are texts.
    group.rebalances = dict(sorted(group.rebalances.items()))
    if header is None:
        # Offsets without a header are a simple group; nothing at all is no group.
        group.stored_members.clear()
        group.stored_instances.clear()
        _forget_read_ahead(group)
        if group.offsets:
            _move(group, State.EMPTY, fact.at_ms)
        else:
            group.rebalances.clear()
            group.hold = None
        return
    group.protocol_type = header.protocol_type
    group.protocol_name = header.protocol_name
    group.generation_id = header.generation_id
    group.leader = header.leader
    group.partition_counts = dict(header.partition_counts)
    for stored in sorted(group.stored_members.values(), key=lambda record: record.seniority):
        topics = _read(group, header.protocol_type, stored.metadata)
        _add_member(group, _member_of(stored, group.protocol_name or "", topics))
    _forget_read_ahead(group)
    group.next_seniority = 1 + max((member.seniority for member in group.members.values()), default=-1)
    _move(group, State.STABLE if group.members else State.EMPTY, fact.at_ms)


def _forget_read_ahead(group: Group) -> None:
    """Of what was read, only what members say counts."""
    group.read_ahead.clear()
    for subscription in [one for one in group.subscriptions.values() if not one.count]:
        _drop(group, subscription)


@_writes(t.Overfilled)
def _overfilled(fact: t.Overfilled, group: Group) -> None:
    group.surplus = set(fact.member_ids)


@_writes(t.GroupDied)
def _group_died(fact: t.GroupDied, group: Group) -> None:
    _move(group, State.DEAD, fact.at_ms)
    group.phase += 1
    group.protocol_type = None
    group.generation_id = 0
    group.highest_generation_id = 0
    group.next_seniority = 0
    group.deletions_seen = 0


def _member_of(stored: r.MemberRecord, protocol_name: str, topics: frozenset[str] | None) -> Member:
    """A member as it comes back from the store: the protocols it did not use are forgotten."""
    return Member(
        member_id=stored.member_id,
        group_instance_id=stored.group_instance_id,
        client_id=stored.client_id,
        host=stored.host,
        seniority=stored.seniority,
        terms=MemberTerms(
            protocols=(Offered(protocol_name, stored.metadata),),
            session_timeout_ms=stored.session_timeout_ms,
            rebalance_timeout_ms=stored.rebalance_timeout_ms,
            disconnect_grace_ms=stored.disconnect_grace_ms,
            request_id=stored.request_id,
            attempt=stored.attempt,
        ),
        topics=topics,
        assignment=stored.assignment,
        is_new=False,
        first_request_id=stored.first_request_id,
    )


@_writes(t.RebalanceStarted)
def _rebalance_started(fact: t.RebalanceStarted, group: Group) -> None:
    _move(group, State.PREPARING_REBALANCE, fact.at_ms)
    group.phase += 1
    group.phase_began_ms = fact.at_ms
    group.pending_sync.clear()
    group.rebalance_id = fact.rebalance_id
    group.held, group.held_count = (), 0
    group.further, group.further_count = fact.further, fact.further_count
    for member in group.members.values():
        if member.is_new:
            member.join_deadline_ms = fact.join_deadline_ms
    group.join_until_ms = fact.until_ms
    group.initial_window_ms = fact.initial_window_ms
    group.initial_left_ms = fact.initial_left_ms
    group.new_member_in_window = False


@_writes(t.JoinPhaseUntil)
def _join_phase_until(fact: t.JoinPhaseUntil, group: Group) -> None:
    group.join_until_ms = fact.until_ms


@_writes(t.CauseHeld)
def _cause_held(fact: t.CauseHeld, group: Group) -> None:
    group.held = (*group.held, fact.cause)[:CAUSES_KEPT_MAX]
    group.held_count += 1


@_writes(t.CauseAdded)
def _cause_added(fact: t.CauseAdded, group: Group) -> None:
    group.further = (*group.further, fact.cause)[:CAUSES_KEPT_MAX]
    group.further_count += 1


@_writes(t.InitialDelayExtended)
def _initial_delay_extended(fact: t.InitialDelayExtended, group: Group) -> None:
    group.initial_window_ms = fact.window_ms
    group.initial_left_ms = fact.left_ms
    group.new_member_in_window = False


@_writes(t.LingerSet)
def _linger_set(fact: t.LingerSet, group: Group) -> None:
    group.lingers_until_ms = fact.until_ms


@_writes(t.PhaseCompleted)
def _phase_completed(fact: t.PhaseCompleted, group: Group) -> None:
    _note_joins(group, fact)
    _move(group, State.COMPLETING_REBALANCE, fact.at_ms)
    group.phase += 1
    group.phase_began_ms = fact.at_ms
    group.initial_window_ms = None
    group.generation_id = fact.generation_id
    group.protocol_name = fact.protocol_name
    group.leader = fact.leader
    group.partition_counts = dict(fact.partition_counts)
    group.joined_count = 0
    group.pending_sync = set(group.members)
    for member in group.members.values():
        member.joined = False
        member.is_new = False
        member.skip_assignment = False
        member.deadline_ms = fact.at_ms + member.terms.session_timeout_ms
        if member.join_call is not None:
            del group.parked[member.join_call]
            member.join_call = None


def _note_joins(group: Group, fact: t.PhaseCompleted) -> None:
    """Remember who joined when. The oldest are forgotten where it is too much together."""
    if group.rebalance_id is None:
        return
    group.join_notes[group.rebalance_id] = JoinNotes(group.joins_so_far(), fact.left_out, fact.left_out_count)
    count = sum(len(notes.joined) for notes in group.join_notes.values())
    while count > JOINS_KEPT_MAX:
        count -= len(group.join_notes.pop(next(iter(group.join_notes))).joined)


@_writes(t.Emptied)
def _emptied(fact: t.Emptied, group: Group) -> None:
    _move(group, State.EMPTY, fact.at_ms)
    group.phase += 1
    group.initial_window_ms = None
    group.generation_id = fact.generation_id
    group.protocol_name = None
    group.leader = None
    group.partition_counts = {}
    _end_rebalance(group)


@_writes(t.Stabilised)
def _stabilised(fact: t.Stabilised, group: Group) -> None:
    _move(group, State.STABLE, fact.at_ms)
    _end_rebalance(group)
    for member in group.members.values():
        if member.sync_call is not None:
            member.deadline_ms = fact.at_ms + member.terms.session_timeout_ms
            del group.parked[member.sync_call]
            member.sync_call = None


def _end_rebalance(group: Group) -> None:
    group.rebalance_id = None
    group.further, group.further_count = (), 0


# --- members ---------------------------------------------------------------------------------------------------------


def _names(terms: MemberTerms) -> list[str]:
    return [offered.name for offered in terms.protocols]


def _count_terms(group: Group, member: Member, sign: int) -> None:
    for name in {offered.name for offered in member.terms.protocols}:
        group.supporters[name] += sign
        if not group.supporters[name]:
            del group.supporters[name]
    if member.topics is None:
        group.unreadable_count += sign
        return
    subscription = _subscription(group, member.topics)
    member.topics = subscription.topics
    subscription.count += sign
    group.metadata_bytes += sign * subscription.size_bytes
    if not subscription.count:
        _drop(group, subscription)


def _drop(group: Group, subscription: Subscription) -> None:
    del group.subscriptions[subscription.topics]
    group.named_count -= len(subscription.topics)
    group.together = group.each_once = None


def _subscription(group: Group, topics: frozenset[str]) -> Subscription:
    """The group's own one of these topics, so that thousands of members that say the same share it."""
    found = group.subscriptions.get(topics)
    if found is None:
        found = group.subscriptions[topics] = Subscription(topics, topics_bytes(topics))
        group.named_count += len(topics)
        group.together = group.each_once = None
    return found


def _add_member(group: Group, member: Member) -> None:
    group.members[member.member_id] = member
    group.take_place(member)
    if member.group_instance_id is not None:
        group.static_members[member.group_instance_id] = member.member_id
    for request_id in (member.first_request_id, member.terms.request_id):
        if request_id is not None:
            group.requests[request_id] = member.member_id
    _count_terms(group, member, +1)
    group.metadata_bytes += words_bytes(member.terms.protocols)


def _remove_member(group: Group, member: Member) -> None:
    del group.members[member.member_id]
    if member.group_instance_id is not None:
        group.static_members.pop(member.group_instance_id, None)
    for request_id in (member.first_request_id, member.terms.request_id):
        if request_id is not None and group.requests.get(request_id) == member.member_id:
            del group.requests[request_id]
    group.pending_sync.discard(member.member_id)
    group.surplus.discard(member.member_id)
    if member.joined:
        group.joined_count -= 1
    _count_terms(group, member, -1)
    group.metadata_bytes -= words_bytes(member.terms.protocols)


@_writes(t.PendingAdded)
def _pending_added(fact: t.PendingAdded, group: Group) -> None:
    group.pending[fact.member_id] = Pending(fact.member_id, fact.request_id, fact.network, fact.deadline_ms)
    group.pending_of_networks.setdefault(fact.network, {})[fact.member_id] = None
    group.came_at_ms = fact.at_ms
    if fact.request_id is not None:
        group.requests[fact.request_id] = fact.member_id


def _take_pending(group: Group, member_id: str) -> Pending | None:
    pending = group.pending.pop(member_id, None)
    if pending is not None:
        of_network = group.pending_of_networks[pending.network]
        del of_network[member_id]
        if not of_network:
            del group.pending_of_networks[pending.network]
    return pending


@_writes(t.PendingDropped)
def _pending_dropped(fact: t.PendingDropped, group: Group) -> None:
    pending = _take_pending(group, fact.member_id)
    assert pending is not None
    if pending.request_id is not None and group.requests.get(pending.request_id) == fact.member_id:
        del group.requests[pending.request_id]


@_writes(t.MemberAdded)
def _member_added(fact: t.MemberAdded, group: Group) -> None:
    pending = _take_pending(group, fact.member_id)
    if pending is None or group.state is not State.PREPARING_REBALANCE:
        group.came_at_ms = fact.at_ms
    if not group.members:
        group.protocol_type = fact.protocol_type
    _add_member(
        group,
        Member(
            member_id=fact.member_id,
            group_instance_id=fact.group_instance_id,
            client_id=fact.client_id,
            host=fact.host,
            seniority=group.next_seniority,
            terms=fact.terms,
            topics=fact.topics,
            deadline_ms=fact.join_deadline_ms,
            join_deadline_ms=fact.join_deadline_ms,
            came_at_ms=fact.at_ms,
            first_request_id=fact.terms.request_id if pending is None else pending.request_id,
        ),
    )
    group.next_seniority += 1
    if group.leader is None:
        group.leader = fact.member_id
    if group.initial_window_ms is not None:
        group.new_member_in_window = True


@_writes(t.MemberChanged)
def _member_changed(fact: t.MemberChanged, group: Group) -> None:
    member = group.members[fact.member_id]
    old_request_id = member.terms.request_id
    if old_request_id is not None and old_request_id != member.first_request_id:
        group.requests.pop(old_request_id, None)
    is_counted = member.topics == fact.topics and _names(member.terms) == _names(fact.terms)
    if not is_counted:
        _count_terms(group, member, -1)
    group.metadata_bytes -= words_bytes(member.terms.protocols)
    group.metadata_bytes += words_bytes(fact.terms.protocols)
    member.terms = fact.terms
    member.skip_assignment = False
    if not is_counted:
        member.topics = fact.topics
        _count_terms(group, member, +1)
    if fact.terms.request_id is not None:
        group.requests[fact.terms.request_id] = fact.member_id


@_writes(t.StaticMemberReplaced)
def _member_replaced(fact: t.StaticMemberReplaced, group: Group) -> None:
    old = group.members[fact.old_member_id]
    awaited_sync = old.member_id in group.pending_sync
    _remove_member(group, old)
    _add_member(
        group,
        Member(
            member_id=fact.new_member_id,
            group_instance_id=old.group_instance_id,
            client_id=fact.client_id,
            host=fact.host,
            seniority=old.seniority,
            terms=fact.terms,
            topics=fact.topics,
            assignment=old.assignment,
            is_new=old.is_new,
            skip_assignment=fact.skip_assignment,
            deadline_ms=old.deadline_ms,
            join_deadline_ms=old.join_deadline_ms,
            came_at_ms=old.came_at_ms,
            first_request_id=fact.terms.request_id,
        ),
    )
    if awaited_sync:
        group.pending_sync.add(fact.new_member_id)
    if group.leader == fact.old_member_id:
        group.leader = fact.new_member_id


@_writes(t.MemberRemoved)
def _member_removed(fact: t.MemberRemoved, group: Group) -> None:
    _remove_member(group, group.members[fact.member_id])
    if group.leader == fact.member_id:
        group.leader = group.eldest()


@_writes(t.MemberJoined)
def _member_joined(fact: t.MemberJoined, group: Group) -> None:
    member = group.members[fact.member_id]
    group.surplus.discard(fact.member_id)
    if not member.joined:
        member.phase_joined_ms = fact.at_ms
        member.joined = True
        group.joined_count += 1
    # While a rebalance is held back: it waits for a newer assignment than the one that it has not asked for.
    group.pending_sync.discard(fact.member_id)


@_writes(t.SessionSet)
def _session_set(fact: t.SessionSet, group: Group) -> None:
    group.members[fact.member_id].deadline_ms = fact.deadline_ms


@_writes(t.GraceSet)
def _grace_set(fact: t.GraceSet, group: Group) -> None:
    group.members[fact.member_id].grace_deadline_ms = fact.deadline_ms


@_writes(t.SyncSeen)
def _sync_seen(fact: t.SyncSeen, group: Group) -> None:
    group.pending_sync.discard(fact.member_id)


# --- pending responses ------------------------------------------------------------------------------------------------


def _set_waiting_call(member: Member, kind: CallKind, call_id: int | None) -> None:
    if kind is CallKind.JOIN:
        member.join_call = call_id
    elif kind is CallKind.SYNC:
        member.sync_call = call_id
    else:
        member.heartbeat_call = call_id


@_writes(t.CallParked)
def _call_parked(fact: t.CallParked, group: Group) -> None:
    group.parked[fact.call_id] = Parked(fact.member_id, fact.kind)
    _set_waiting_call(group.members[fact.member_id], fact.kind, fact.call_id)


@_writes(t.CallUnparked)
def _call_unparked(fact: t.CallUnparked, group: Group) -> None:
    parked = group.parked.pop(fact.call_id, None)
    if parked is not None and parked.member_id in group.members:
        _set_waiting_call(group.members[parked.member_id], parked.kind, None)
