"""Invariants of a group between any two steps. Tests and simulations check them; the service does not.

Each check raises AssertionError with the group's id and the violation. It looks at everything in the group.
"""

from collections import Counter
from collections.abc import Iterable

from rallypoint.coordinator.core.description import summary_of
from rallypoint.coordinator.core.group import CallKind, Group, Member, State, topics_bytes, words_bytes
from rallypoint.coordinator.core.records import Outcome


def check(group: Group) -> None:
    """Counts are what a recount gives, pending responses and their index agree, and the state fits who is there."""
    _check_counts(group)
    _check_waiting_calls(group)
    _check_state(group)
    _check_identities(group)
    _check_rebalances(group)
    assert group.shown in (None, summary_of(group)), group.group_id


def _check_counts(group: Group) -> None:
    members = group.members.values()
    assert group.joined_count == sum(member.joined for member in members), group.group_id
    eldest = min(members, key=lambda member: member.seniority, default=None)
    assert group.eldest() == (None if eldest is None else eldest.member_id), group.group_id
    assert group.supporters == _supporters(members), group.group_id
    _check_subscriptions(group)
    assert group.unreadable_count == sum(member.topics is None for member in members), group.group_id
    metadata_bytes = sum(topics_bytes(member.topics) + words_bytes(member.terms.protocols) for member in members)
    assert group.metadata_bytes == metadata_bytes, group.group_id
    assert group.pending_sync <= group.members.keys(), group.group_id
    assert group.surplus <= {member.member_id for member in members if not member.joined}, group.group_id
    assert group.offset_count == sum(map(len, group.offsets.values())), group.group_id


def _check_subscriptions(group: Group) -> None:
    said = Counter(member.topics for member in group.members.values() if member.topics is not None)
    assert {topics: kept.count for topics, kept in group.subscriptions.items()} == said, group.group_id
    assert group.named_count == sum(map(len, said)), group.group_id
    assert group.topics == {topic for topics in said for topic in topics}, group.group_id
    assert group.distinct_subscriptions == (None if group.unreadable_count else said.keys()), group.group_id
    assert not group.read_ahead, group.group_id


def _supporters(members: Iterable[Member]) -> Counter[str]:
    count: Counter[str] = Counter()
    for member in members:
        count.update({offered.name for offered in member.terms.protocols})
    return count


def _check_waiting_calls(group: Group) -> None:
    waiting = {}
    for member in group.members.values():
        for kind, call_id in (
            (CallKind.JOIN, member.join_call),
            (CallKind.SYNC, member.sync_call),
            (CallKind.HEARTBEAT, member.heartbeat_call),
        ):
            if call_id is not None:
                assert call_id not in waiting, f"{group.group_id}: call {call_id} waits twice"
                waiting[call_id] = (member.member_id, kind)
    assert waiting == {call_id: (p.member_id, p.kind) for call_id, p in group.parked.items()}, group.group_id


def _check_state(group: Group) -> None:
    where = f"{group.group_id} is {group.state}"
    if group.state in (State.EMPTY, State.DEAD):
        assert not group.members, where
        assert group.leader is None, where
        assert group.protocol_name is None, where
    if group.state is State.DEAD:
        left = (group.header, group.stored_members, group.offsets, group.pending, group.requests, group.protocol_type)
        assert not any(left), where
        assert group.generation_id == group.highest_generation_id == 0, where
    assert (group.leader is None) == (not group.members), where
    assert group.leader is None or group.leader in group.members, where
    if group.is_active:
        assert group.protocol_name, where
        assert not group.joined_count or group.held_count, where
        assert group.header is not None, where
        assert group.highest_generation_id >= group.generation_id, where
    if group.state is State.STABLE:
        of_generation = {member.member_id for member in group.of_generation()}
        assert group.held_count or of_generation == group.members.keys(), where
        assert of_generation <= group.stored_members.keys(), where
        assert group.held_count or of_generation == group.stored_members.keys(), where
    for member in group.members.values():
        if member.join_call is not None:
            assert member.joined, f"{where}: {member.member_id} waits for a phase that it has not joined"
            assert group.state is State.PREPARING_REBALANCE or group.held_count, where
        if member.sync_call is not None:
            assert group.state is State.COMPLETING_REBALANCE, where
    if group.lingers_until_ms is not None:
        assert group.state is State.PREPARING_REBALANCE, f"{where}, and lingers"
    elif group.state is State.PREPARING_REBALANCE and group.initial_window_ms is None:
        assert not group.all_joined, f"{where}, but everyone has joined"


def _check_identities(group: Group) -> None:
    slots = {x.group_instance_id: x.member_id for x in group.members.values() if x.group_instance_id is not None}
    assert group.static_members == slots, group.group_id
    stored = {
        x.group_instance_id: x.member_id
        for x in group.stored_members.values()
        if x.group_instance_id is not None and not x.removed
    }
    assert not any(x.removed and x.member_id in group.members for x in group.stored_members.values()), group.group_id
    assert group.stored_instances == stored, group.group_id
    assert not group.pending.keys() & group.members.keys(), group.group_id
    of_networks = {member_id: network for network, ids in group.pending_of_networks.items() for member_id in ids}
    assert of_networks == {member_id: pending.network for member_id, pending in group.pending.items()}, group.group_id
    assert all(group.pending_of_networks.values()), group.group_id
    known = group.pending.keys() | group.members.keys()
    assert set(group.requests.values()) <= known, group.group_id
    seniorities = [member.seniority for member in group.members.values()]
    assert len(set(seniorities)) == len(seniorities), group.group_id


def _check_rebalances(group: Group) -> None:
    where = f"{group.group_id} is {group.state}"
    rebalances = group.rebalances
    assert list(rebalances) == sorted(rebalances), where
    assert all(key == record.rebalance_id for key, record in rebalances.items()), where
    under_way = group.state in (State.PREPARING_REBALANCE, State.COMPLETING_REBALANCE)
    assert (group.rebalance_id is not None) == under_way, f"{where}, and rebalance {group.rebalance_id} is under way"
    if group.rebalance_id is not None:
        present = rebalances[group.rebalance_id]
        assert present.rebalance_id == max(rebalances), where
        assert present.outcome is Outcome.IN_PROGRESS, where
        assert (present.generation_id is None) == (group.state is State.PREPARING_REBALANCE), where
    if group.state is State.DEAD:
        assert not rebalances, where
        assert group.hold is None, where
        assert not group.deletions_stored, where
    assert len(group.held) <= group.held_count, where
    assert len(group.further) <= group.further_count, where
    assert bool(group.held) == bool(group.held_count), where
    if group.held:
        # A hold protects an assignment that somebody uses.
        assert group.state is State.STABLE, where
        assert group.of_generation(), f"{where}, and a hold protects nobody"
