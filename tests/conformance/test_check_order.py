"""Which check comes first where more than one would refuse, and what keeps a session.

Sources are names of Apache Kafka's own code, of `GroupMetadataManager` where nothing else stands before the dot.
"""

import pytest

from rallypoint.coordinator.core.commands import Rules
from rallypoint.coordinator.core.group import Group, State
from rallypoint.protocol import messages as m
from rallypoint.protocol.errors import ErrorCode
from rallypoint.protocol.limits import OFFSET_MIN
from tests.conformance.desk import Desk, consumer

LONG_MS = 60_000


def completing(**more: int) -> tuple[Desk, str, str]:
    d = Desk()
    leader, first = d.join_new(**more)
    follower, second = d.join_new(**more)
    d.advance_until_answered(first, second)
    return d, leader, follower


# --- sync and heartbeat ----------------------------------------------------------------------------------------------


def test_a_followers_assignments_are_ignored() -> None:
    """Source: `classicGroupSyncToExistingGroup`, CompletingRebalance: only the leader's are stored."""
    d, leader, follower = completing()
    waiting = d.sync(follower, assignments={leader: "stolen", follower: "all"})
    assert (d.waits(waiting), d.state()) == (True, State.COMPLETING_REBALANCE)
    call = d.sync(leader, assignments={leader: "mine", follower: "yours"})
    assert [d.answer(x).assignment.value for x in (call, waiting)] == ["mine", "yours"]
    again = d.sync(follower, assignments={follower: "all"})
    assert d.answer(again).assignment.value == "yours"


def test_no_assignments_at_all_are_assignments_of_nothing() -> None:
    """Source: `classicGroupSyncToExistingGroup` warns of them, and hands them out."""
    d, leader, follower = completing()
    call = d.sync(leader, assignments={})
    assert [d.answer(x).assignment.value for x in (call, d.sync(follower))] == [None, None]
    assert d.state() is State.STABLE


@pytest.mark.parametrize("state", [State.PREPARING_REBALANCE, State.STABLE])
def test_a_sync_is_asked_for_member_then_generation_then_protocol_then_state(state: State) -> None:
    """Source: `ClassicGroup.validateSyncGroup`; only who passes it hears of the rebalance."""
    d = Desk()
    leader, _ = d.stable()
    if state is State.PREPARING_REBALANCE:
        d.join(leader)
    assert d.code(d.sync("stranger", 9, protocol_name="x")) is ErrorCode.UNKNOWN_MEMBER_ID
    assert d.code(d.sync(leader, 9, protocol_name="x")) is ErrorCode.ILLEGAL_GENERATION
    assert d.code(d.sync(leader, 0)) is ErrorCode.ILLEGAL_GENERATION
    assert d.code(d.sync(leader, protocol_name="x")) is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    is_called_back = state is State.PREPARING_REBALANCE
    assert d.code(d.sync(leader)) is (ErrorCode.REBALANCE_IN_PROGRESS if is_called_back else ErrorCode.NONE)


def test_a_heartbeat_of_another_generation_is_refused_before_it_hears_of_the_rebalance() -> None:
    """Source: `ClassicGroup.validateHeartbeat` comes before the state is looked at."""
    d = Desk()
    leader, follower = d.stable()
    d.join(leader)
    assert d.code(d.heartbeat("stranger", 9)) is ErrorCode.UNKNOWN_MEMBER_ID
    assert d.code(d.heartbeat(follower, 0)) is ErrorCode.ILLEGAL_GENERATION
    assert d.code(d.heartbeat(follower, 2)) is ErrorCode.ILLEGAL_GENERATION
    assert d.code(d.heartbeat(follower, 1)) is ErrorCode.REBALANCE_IN_PROGRESS


def test_who_did_not_sync_in_time_is_out_and_nobody_else() -> None:
    """Source: `expirePendingSync`: exactly those, in CompletingRebalance; who waits for them is called back."""
    d = Desk()
    leader, first = d.join_new(session_ms=LONG_MS)
    waits, second = d.join_new(session_ms=LONG_MS)
    silent, third = d.join_new(session_ms=LONG_MS)
    d.advance_until_answered(first, second, third)
    call = d.sync(waits)
    d.advance(9_999)
    assert (d.waits(call), d.state()) == (True, State.COMPLETING_REBALANCE)
    d.advance(1)
    assert d.code(call) is ErrorCode.REBALANCE_IN_PROGRESS
    assert d.group.members.keys() == {waits}
    assert {leader, silent} & d.group.members.keys() == set()


def test_the_time_to_sync_is_counted_anew_in_each_generation() -> None:
    """Source: `schedulePendingSync` carries the generation, `expirePendingSync` does nothing for another one."""
    d, leader, follower = completing(session_ms=LONG_MS)
    d.advance(9_000)
    d.join(follower, protocols=(("range", consumer("u")),), session_ms=LONG_MS)
    d.join(leader, session_ms=LONG_MS)
    assert (d.state(), d.group.generation_id) == (State.COMPLETING_REBALANCE, 2)
    d.advance(9_999)
    assert d.group.members.keys() == {leader, follower}
    d.advance(1)
    assert not d.group.members


def test_a_sync_that_is_answered_begins_a_session_for_who_waited_and_who_asked_later() -> None:
    """Source: `ClassicGroup.completeSyncFuture` with `rescheduleClassicGroupMemberHeartbeat`; in Stable the old one."""
    d, leader, follower = completing(session_ms=4_000)
    waiting = d.sync(follower)
    d.advance(3_000)
    d.sync(leader, assignments={})
    assert d.code(waiting) is ErrorCode.NONE
    d.advance(3_999)
    assert follower in d.group.members, "it waited, so nothing was counted"
    d.sync(follower)
    d.advance(3_999)
    assert follower in d.group.members
    d.advance(1)
    assert not d.group.members


# --- commits ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("state", [State.COMPLETING_REBALANCE, State.STABLE, State.PREPARING_REBALANCE])
def test_a_commit_is_asked_for_member_then_generation_then_state(state: State) -> None:
    """Source: `ClassicGroup.validateOffsetCommit`: whoever says anything of itself is held against all of it."""
    d, leader, follower = completing(session_ms=LONG_MS)
    if state is not State.COMPLETING_REBALANCE:
        d.settle_generation(leader, follower)
    if state is State.PREPARING_REBALANCE:
        d.join(leader, session_ms=LONG_MS)
    assert d.state() is state
    assert d.code(d.commit("stranger", 9)) is ErrorCode.UNKNOWN_MEMBER_ID
    assert d.code(d.commit("", 1)) is ErrorCode.UNKNOWN_MEMBER_ID
    assert d.code(d.commit("", -1)) is ErrorCode.UNKNOWN_MEMBER_ID
    assert d.code(d.commit("", -1, instance="nobody's")) is ErrorCode.UNKNOWN_MEMBER_ID
    assert d.code(d.commit(leader, 9)) is ErrorCode.ILLEGAL_GENERATION
    assert d.code(d.commit(leader, -1)) is ErrorCode.ILLEGAL_GENERATION
    is_refused = state is State.COMPLETING_REBALANCE
    assert d.code(d.commit(leader, 1)) is (ErrorCode.REBALANCE_IN_PROGRESS if is_refused else ErrorCode.NONE)


def test_a_commit_of_an_instance_without_a_member_is_fenced_where_somebody_has_the_instance() -> None:
    """Source: `ClassicGroup.validateMember`; an instance id is something said of itself."""
    d = Desk()
    d.stable(instance="b")
    assert d.code(d.commit("", -1, instance="b")) is ErrorCode.FENCED_INSTANCE_ID


@pytest.mark.parametrize(("member_id", "instance"), [("", None), ("m", None), ("", "b"), ("m", "b")])
def test_without_members_a_simple_commit_is_taken_whoever_sends_it(member_id: str, instance: str | None) -> None:
    """Source: `ClassicGroup.validateOffsetCommit`, Empty; a group that is not there is made by it."""
    d = Desk()
    assert d.commit_code(d.commit(member_id, -1, offset=4, instance=instance)) == ErrorCode.NONE
    assert (d.state(), d.fetch()) == (State.EMPTY, {"t": {0: 4}})
    d.leave(*d.stable())
    assert d.commit_code(d.commit(member_id, -1, offset=5, instance=instance)) == ErrorCode.NONE
    refused = d.code(d.commit(member_id, d.group.generation_id, offset=6, instance=instance))
    assert refused is ErrorCode.UNKNOWN_MEMBER_ID, "who claims a generation claims to be a member"
    assert d.fetch() == {"t": {0: 5}}


def test_an_offset_may_be_any_number_and_go_back() -> None:
    """Source: `OffsetMetadataManager.commitOffset` looks at the metadata's length, and not at the offset."""
    d = Desk()
    leader, _ = d.stable()
    for offset in (7, 3, 0, -1, OFFSET_MIN):
        assert d.commit_code(d.commit(leader, 1, offset=offset)) == ErrorCode.NONE
        assert d.fetch() == {"t": {0: offset}}


def test_metadata_is_counted_in_characters() -> None:
    """Source: `OffsetMetadataManager.validateOffsetMetadata`."""
    d = Desk()
    leader, _ = d.stable()
    assert d.commit_code(d.commit(leader, 1, metadata="ü" * 4_096)) == ErrorCode.NONE
    assert d.commit_code(d.commit(leader, 1, metadata="u" * 4_097)) == ErrorCode.OFFSET_METADATA_TOO_LARGE


def test_committed_offsets_are_told_in_every_state_and_to_anybody() -> None:
    """Source: `OffsetMetadataManager.fetchOffsets`, which asks for nothing but the group."""
    d = Desk()
    assert d.fetch() == {}
    d.commit("", -1, offset=3)
    told = [d.fetch()]
    leader, first = d.join_new(session_ms=LONG_MS)
    told.append(d.fetch())
    d.advance_until_answered(first)
    told.append(d.fetch())
    d.settle_generation(leader)
    told.append(d.fetch())
    assert told == [{"t": {0: 3}}] * 4
    answer = d.answer(d.call(m.FetchRequest(topics=("elsewhere",))))
    assert answer.offsets == {"elsewhere": {}}


def test_a_commit_that_is_taken_keeps_the_session_and_a_refused_one_does_not() -> None:
    """Source: `OffsetMetadataManager.validateOffsetCommit` reschedules the heartbeat: Stable and PreparingRebalance."""
    d, leader, follower = completing(session_ms=4_000)
    d.settle_generation(leader, follower)
    d.advance(3_000)
    d.commit(leader, 1)
    d.commit(follower, 9)
    d.advance(1_000)
    assert d.group.members.keys() == {leader}
    assert d.state() is State.PREPARING_REBALANCE
    d.advance(2_000)
    d.commit(leader, 1)
    d.advance(3_999)
    assert d.group.members.keys() == {leader}
    d.advance(1)
    assert not d.group.members


# --- the empty group id ----------------------------------------------------------------------------------------------


def test_a_group_whose_id_is_empty_has_offsets_and_no_members() -> None:
    """Source: `GroupCoordinatorService`: commits, fetches, descriptions and deletions refuse no id but null."""
    d = Desk(rules=Rules(group_min_session_timeout_ms=1, group_join_linger_ms=0), group=Group(""))
    for call in (d.join(), d.join("m"), d.sync("m", 1), d.heartbeat("m", 1), d.leave("m")):
        assert d.code(call) is ErrorCode.INVALID_GROUP_ID
    assert d.commit_code(d.commit("", -1, offset=8)) == ErrorCode.NONE
    assert d.fetch() == {"t": {0: 8}}
    assert d.answer(d.describe()).state == State.EMPTY
    assert d.code(d.delete_offsets("t")) is ErrorCode.NONE
    assert d.code(d.delete_group()) is ErrorCode.NONE
    assert d.state() is State.DEAD


# --- what a crash forgets --------------------------------------------------------------------------------------------


def test_ids_that_were_handed_out_are_forgotten_with_a_crash() -> None:
    """Source: `GroupMetadataManager` stores no pending members."""
    d = Desk()
    leader, follower = d.stable()
    pending = d.answer(d.join()).member_id
    d.crash()
    assert d.code(d.join(pending)) is ErrorCode.UNKNOWN_MEMBER_ID
    assert (d.state(), set(d.group.members)) == (State.STABLE, {leader, follower})


def test_a_crash_while_members_are_asked_to_join_leaves_the_generation_that_was() -> None:
    """Source: PreparingRebalance is never stored; `onLoaded` gives every member a full session."""
    d = Desk()
    leader, follower = d.stable()
    d.join(leader, protocols=(("range", consumer("u")),))
    assert d.state() is State.PREPARING_REBALANCE
    d.crash()
    assert (d.state(), d.group.generation_id, d.group.leader) == (State.STABLE, 1, leader)
    assert [d.code(d.heartbeat(member, 1)) for member in (leader, follower)] == [ErrorCode.NONE] * 2
    assert d.group.topics == frozenset({"t"}), "what was said and not stored is not there"
