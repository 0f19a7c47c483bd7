"""Which check comes first where more than one would refuse, and what keeps a session.

Sources are names of Apache Kafka's own code, of `GroupMetadataManager` where nothing else stands before the dot.
"""

import pytest

from rallypoint.coordinator.core.commands import Rules
from rallypoint.coordinator.core.group import Group, State
from rallypoint.protocol import messages as m
from rallypoint.protocol.errors import ErrorCode
from rallypoint.protocol.limits import OFFSET_MIN
from tests.conformance.group_harness import GroupHarness, consumer

LONG_MS = 60_000


def completing(**more: int) -> tuple[GroupHarness, str, str]:
    harness = GroupHarness()
    leader, first = harness.join_new(**more)
    follower, second = harness.join_new(**more)
    harness.advance_until_answered(first, second)
    return harness, leader, follower


# --- sync and heartbeat ----------------------------------------------------------------------------------------------


def test_a_followers_assignments_are_ignored() -> None:
    """Source: `classicGroupSyncToExistingGroup`, CompletingRebalance: only the leader's are stored."""
    harness, leader, follower = completing()
    waiting = harness.sync(follower, assignments={leader: "stolen", follower: "all"})
    assert (harness.waits(waiting), harness.state()) == (True, State.COMPLETING_REBALANCE)
    call = harness.sync(leader, assignments={leader: "mine", follower: "yours"})
    assert [harness.answer(x).assignment.value for x in (call, waiting)] == ["mine", "yours"]
    again = harness.sync(follower, assignments={follower: "all"})
    assert harness.answer(again).assignment.value == "yours"


def test_no_assignments_at_all_are_assignments_of_nothing() -> None:
    """Source: `classicGroupSyncToExistingGroup` warns of them, and hands them out."""
    harness, leader, follower = completing()
    call = harness.sync(leader, assignments={})
    assert [harness.answer(x).assignment.value for x in (call, harness.sync(follower))] == [None, None]
    assert harness.state() is State.STABLE


@pytest.mark.parametrize("state", [State.PREPARING_REBALANCE, State.STABLE])
def test_a_sync_is_asked_for_member_then_generation_then_protocol_then_state(state: State) -> None:
    """Source: `ClassicGroup.validateSyncGroup`; only who passes it hears of the rebalance."""
    harness = GroupHarness()
    leader, _ = harness.stable()
    if state is State.PREPARING_REBALANCE:
        harness.join(leader)
    assert harness.code(harness.sync("stranger", 9, protocol_name="x")) is ErrorCode.UNKNOWN_MEMBER_ID
    assert harness.code(harness.sync(leader, 9, protocol_name="x")) is ErrorCode.ILLEGAL_GENERATION
    assert harness.code(harness.sync(leader, 0)) is ErrorCode.ILLEGAL_GENERATION
    assert harness.code(harness.sync(leader, protocol_name="x")) is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    is_called_back = state is State.PREPARING_REBALANCE
    assert harness.code(harness.sync(leader)) is (ErrorCode.REBALANCE_IN_PROGRESS if is_called_back else ErrorCode.NONE)


def test_a_heartbeat_of_another_generation_is_refused_before_it_hears_of_the_rebalance() -> None:
    """Source: `ClassicGroup.validateHeartbeat` comes before the state is looked at."""
    harness = GroupHarness()
    leader, follower = harness.stable()
    harness.join(leader)
    assert harness.code(harness.heartbeat("stranger", 9)) is ErrorCode.UNKNOWN_MEMBER_ID
    assert harness.code(harness.heartbeat(follower, 0)) is ErrorCode.ILLEGAL_GENERATION
    assert harness.code(harness.heartbeat(follower, 2)) is ErrorCode.ILLEGAL_GENERATION
    assert harness.code(harness.heartbeat(follower, 1)) is ErrorCode.REBALANCE_IN_PROGRESS


def test_who_did_not_sync_in_time_is_out_and_nobody_else() -> None:
    """Source: `expirePendingSync`: exactly those, in CompletingRebalance; who waits for them is called back."""
    harness = GroupHarness()
    leader, first = harness.join_new(session_ms=LONG_MS)
    waits, second = harness.join_new(session_ms=LONG_MS)
    silent, third = harness.join_new(session_ms=LONG_MS)
    harness.advance_until_answered(first, second, third)
    call = harness.sync(waits)
    harness.advance(9_999)
    assert (harness.waits(call), harness.state()) == (True, State.COMPLETING_REBALANCE)
    harness.advance(1)
    assert harness.code(call) is ErrorCode.REBALANCE_IN_PROGRESS
    assert harness.group.members.keys() == {waits}
    assert {leader, silent} & harness.group.members.keys() == set()


def test_the_time_to_sync_is_counted_anew_in_each_generation() -> None:
    """Source: `schedulePendingSync` carries the generation, `expirePendingSync` does nothing for another one."""
    harness, leader, follower = completing(session_ms=LONG_MS)
    harness.advance(9_000)
    harness.join(follower, protocols=(("range", consumer("u")),), session_ms=LONG_MS)
    harness.join(leader, session_ms=LONG_MS)
    assert (harness.state(), harness.group.generation_id) == (State.COMPLETING_REBALANCE, 2)
    harness.advance(9_999)
    assert harness.group.members.keys() == {leader, follower}
    harness.advance(1)
    assert not harness.group.members


def test_a_sync_that_is_answered_begins_a_session_for_who_waited_and_who_asked_later() -> None:
    """Source: `ClassicGroup.completeSyncFuture` with `rescheduleClassicGroupMemberHeartbeat`; in Stable the old one."""
    harness, leader, follower = completing(session_ms=4_000)
    waiting = harness.sync(follower)
    harness.advance(3_000)
    harness.sync(leader, assignments={})
    assert harness.code(waiting) is ErrorCode.NONE
    harness.advance(3_999)
    assert follower in harness.group.members, "it waited, so nothing was counted"
    harness.sync(follower)
    harness.advance(3_999)
    assert follower in harness.group.members
    harness.advance(1)
    assert not harness.group.members


# --- commits ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("state", [State.COMPLETING_REBALANCE, State.STABLE, State.PREPARING_REBALANCE])
def test_a_commit_is_asked_for_member_then_generation_then_state(state: State) -> None:
    """Source: `ClassicGroup.validateOffsetCommit`: whoever says anything of itself is held against all of it."""
    harness, leader, follower = completing(session_ms=LONG_MS)
    if state is not State.COMPLETING_REBALANCE:
        harness.settle_generation(leader, follower)
    if state is State.PREPARING_REBALANCE:
        harness.join(leader, session_ms=LONG_MS)
    assert harness.state() is state
    assert harness.code(harness.commit("stranger", 9)) is ErrorCode.UNKNOWN_MEMBER_ID
    assert harness.code(harness.commit("", 1)) is ErrorCode.UNKNOWN_MEMBER_ID
    assert harness.code(harness.commit("", -1)) is ErrorCode.UNKNOWN_MEMBER_ID
    assert harness.code(harness.commit("", -1, instance="nobody's")) is ErrorCode.UNKNOWN_MEMBER_ID
    assert harness.code(harness.commit(leader, 9)) is ErrorCode.ILLEGAL_GENERATION
    assert harness.code(harness.commit(leader, -1)) is ErrorCode.ILLEGAL_GENERATION
    is_refused = state is State.COMPLETING_REBALANCE
    assert harness.code(harness.commit(leader, 1)) is (
        ErrorCode.REBALANCE_IN_PROGRESS if is_refused else ErrorCode.NONE
    )


def test_a_commit_of_an_instance_without_a_member_is_fenced_where_somebody_has_the_instance() -> None:
    """Source: `ClassicGroup.validateMember`; an instance id is something said of itself."""
    harness = GroupHarness()
    harness.stable(instance="b")
    assert harness.code(harness.commit("", -1, instance="b")) is ErrorCode.FENCED_INSTANCE_ID


@pytest.mark.parametrize(("member_id", "instance"), [("", None), ("m", None), ("", "b"), ("m", "b")])
def test_without_members_a_simple_commit_is_taken_whoever_sends_it(member_id: str, instance: str | None) -> None:
    """Source: `ClassicGroup.validateOffsetCommit`, Empty; a group that is not there is made by it."""
    harness = GroupHarness()
    assert harness.commit_code(harness.commit(member_id, -1, offset=4, instance=instance)) == ErrorCode.NONE
    assert (harness.state(), harness.fetch()) == (State.EMPTY, {"t": {0: 4}})
    harness.leave(*harness.stable())
    assert harness.commit_code(harness.commit(member_id, -1, offset=5, instance=instance)) == ErrorCode.NONE
    refused = harness.code(harness.commit(member_id, harness.group.generation_id, offset=6, instance=instance))
    assert refused is ErrorCode.UNKNOWN_MEMBER_ID, "who claims a generation claims to be a member"
    assert harness.fetch() == {"t": {0: 5}}


def test_an_offset_may_be_any_number_and_go_back() -> None:
    """Source: `OffsetMetadataManager.commitOffset` looks at the metadata's length, and not at the offset."""
    harness = GroupHarness()
    leader, _ = harness.stable()
    for offset in (7, 3, 0, -1, OFFSET_MIN):
        assert harness.commit_code(harness.commit(leader, 1, offset=offset)) == ErrorCode.NONE
        assert harness.fetch() == {"t": {0: offset}}


def test_metadata_is_counted_in_characters() -> None:
    """Source: `OffsetMetadataManager.validateOffsetMetadata`."""
    harness = GroupHarness()
    leader, _ = harness.stable()
    assert harness.commit_code(harness.commit(leader, 1, metadata="ü" * 4_096)) == ErrorCode.NONE
    assert harness.commit_code(harness.commit(leader, 1, metadata="u" * 4_097)) == ErrorCode.OFFSET_METADATA_TOO_LARGE


def test_committed_offsets_are_told_in_every_state_and_to_anybody() -> None:
    """Source: `OffsetMetadataManager.fetchOffsets`, which asks for nothing but the group."""
    harness = GroupHarness()
    assert harness.fetch() == {}
    harness.commit("", -1, offset=3)
    told = [harness.fetch()]
    leader, first = harness.join_new(session_ms=LONG_MS)
    told.append(harness.fetch())
    harness.advance_until_answered(first)
    told.append(harness.fetch())
    harness.settle_generation(leader)
    told.append(harness.fetch())
    assert told == [{"t": {0: 3}}] * 4
    answer = harness.answer(harness.call(m.FetchRequest(topics=("elsewhere",))))
    assert answer.offsets == {"elsewhere": {}}


def test_a_commit_that_is_taken_keeps_the_session_and_a_refused_one_does_not() -> None:
    """Source: `OffsetMetadataManager.validateOffsetCommit` reschedules the heartbeat: Stable and PreparingRebalance."""
    harness, leader, follower = completing(session_ms=4_000)
    harness.settle_generation(leader, follower)
    harness.advance(3_000)
    harness.commit(leader, 1)
    harness.commit(follower, 9)
    harness.advance(1_000)
    assert harness.group.members.keys() == {leader}
    assert harness.state() is State.PREPARING_REBALANCE
    harness.advance(2_000)
    harness.commit(leader, 1)
    harness.advance(3_999)
    assert harness.group.members.keys() == {leader}
    harness.advance(1)
    assert not harness.group.members


# --- the empty group id ----------------------------------------------------------------------------------------------


def test_a_group_whose_id_is_empty_has_offsets_and_no_members() -> None:
    """Source: `GroupCoordinatorService`: commits, fetches, descriptions and deletions refuse no id but null."""
    harness = GroupHarness(rules=Rules(group_min_session_timeout_ms=1, group_join_linger_ms=0), group=Group(""))
    for call in (
        harness.join(),
        harness.join("m"),
        harness.sync("m", 1),
        harness.heartbeat("m", 1),
        harness.leave("m"),
    ):
        assert harness.code(call) is ErrorCode.INVALID_GROUP_ID
    assert harness.commit_code(harness.commit("", -1, offset=8)) == ErrorCode.NONE
    assert harness.fetch() == {"t": {0: 8}}
    assert harness.answer(harness.describe()).state == State.EMPTY
    assert harness.code(harness.delete_offsets("t")) is ErrorCode.NONE
    assert harness.code(harness.delete_group()) is ErrorCode.NONE
    assert harness.state() is State.DEAD


# --- what a crash forgets --------------------------------------------------------------------------------------------


def test_ids_that_were_handed_out_are_forgotten_with_a_crash() -> None:
    """Source: `GroupMetadataManager` stores no pending members."""
    harness = GroupHarness()
    leader, follower = harness.stable()
    pending = harness.answer(harness.join()).member_id
    harness.crash()
    assert harness.code(harness.join(pending)) is ErrorCode.UNKNOWN_MEMBER_ID
    assert (harness.state(), set(harness.group.members)) == (State.STABLE, {leader, follower})


def test_a_crash_while_members_are_asked_to_join_leaves_the_generation_that_was() -> None:
    """Source: PreparingRebalance is never stored; `onLoaded` gives every member a full session."""
    harness = GroupHarness()
    leader, follower = harness.stable()
    harness.join(leader, protocols=(("range", consumer("u")),))
    assert harness.state() is State.PREPARING_REBALANCE
    harness.crash()
    assert (harness.state(), harness.group.generation_id, harness.group.leader) == (State.STABLE, 1, leader)
    assert [harness.code(harness.heartbeat(member, 1)) for member in (leader, follower)] == [ErrorCode.NONE] * 2
    assert harness.group.topics == frozenset({"t"}), "what was said and not stored is not there"
