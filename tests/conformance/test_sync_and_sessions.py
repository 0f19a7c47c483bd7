"""Syncs, heartbeats, leaving and sessions (C34-C49)."""

import pytest

from rallypoint.coordinator.core import invariants
from rallypoint.coordinator.core.commands import Rules, TimerKind
from rallypoint.coordinator.core.group import State
from rallypoint.protocol import messages as m
from rallypoint.protocol.errors import ErrorCode
from rallypoint.protocol.opaque import EMPTY, OpaqueJson
from tests.conformance.group_harness import GroupHarness, consumer


def completing(**more: int) -> tuple[GroupHarness, str, str]:
    harness = GroupHarness()
    leader, first = harness.join_new(**more)
    follower, second = harness.join_new(**more)
    harness.advance_until_answered(first, second)
    assert harness.state() is State.COMPLETING_REBALANCE
    return harness, leader, follower


def test_c34_each_gets_its_own_part() -> None:
    harness, leader, follower = completing()
    first = harness.sync(leader, assignments={leader: [0], follower: [1]})
    second = harness.sync(follower)
    assert (harness.answer(first).assignment.value, harness.answer(second).assignment.value) == ([0], [1])
    assert harness.state() is State.STABLE


def test_c35_a_follower_waits_for_the_leader() -> None:
    harness, leader, follower = completing()
    waiting = harness.sync(follower)
    harness.advance(5_000)
    assert harness.waits(waiting)
    harness.sync(leader, assignments={leader: [0], follower: [1]})
    assert harness.answer(waiting).assignment.value == [1]


def test_who_has_the_end_of_a_phase_waits_no_more_and_has_a_full_session() -> None:
    harness = GroupHarness()
    (leader, first), (follower, second) = harness.join_new(session_ms=7_000), harness.join_new(session_ms=9_000)
    harness.advance_until_answered(first, second)
    invariants.check(harness.group)
    assert harness.group.parked == {}
    assert sessions(harness) == {leader: 7_000, follower: 9_000}
    waiting = harness.sync(follower)
    harness.advance(5_000)
    assert harness.group.parked.keys() == {waiting}
    harness.sync(leader, assignments={leader: [0], follower: [1]})
    invariants.check(harness.group)
    assert harness.group.parked == {}
    assert sessions(harness) == {leader: 7_000, follower: 9_000}


def sessions(harness: GroupHarness) -> dict[str, int]:
    """How long each member's session goes on from now."""
    return {member.member_id: member.deadline_ms - harness.now_ms for member in harness.group.members.values()}


def test_c36_whom_the_leader_forgot_gets_nothing_and_a_ghost_is_ignored() -> None:
    harness, leader, follower = completing()
    harness.sync(leader, assignments={leader: [0], "ghost": [1]})
    assert harness.answer(harness.sync(follower)).assignment == EMPTY
    assert "ghost" not in harness.group.members


def test_c37_a_second_assignment_of_a_generation_is_not_taken() -> None:
    harness = GroupHarness()
    leader, follower = harness.stable()
    held = harness.answer(harness.sync(leader)).assignment
    again = harness.answer(harness.sync(leader, assignments={leader: ["other"], follower: ["other"]}))
    assert again.assignment == held != OpaqueJson.of(["other"])


def test_c38_a_sync_while_preparing_is_called_back() -> None:
    harness = GroupHarness()
    leader, follower = harness.stable()
    harness.join(leader)
    assert harness.code(harness.sync(follower)) is ErrorCode.REBALANCE_IN_PROGRESS


def test_c39_a_sync_is_fenced() -> None:
    harness = GroupHarness()
    assert harness.code(harness.sync("m", 1)) is ErrorCode.UNKNOWN_MEMBER_ID
    leader, _ = harness.stable()
    assert harness.code(harness.sync(leader, 2)) is ErrorCode.ILLEGAL_GENERATION
    assert harness.code(harness.sync("stranger")) is ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize("other", [{"protocol_type": "x"}, {"protocol_name": "x"}])
def test_c40_a_sync_names_the_groups_protocol(other: dict[str, str | None]) -> None:
    harness, leader, _ = completing()
    call = harness.sync(leader, **other)  # type: ignore[arg-type]
    assert harness.code(call) is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert harness.answer(call).field == next(iter(other))
    assert harness.state() is State.COMPLETING_REBALANCE


@pytest.mark.parametrize(
    "unsaid", [("protocol_type",), ("protocol_name",), ("protocol_type", "protocol_name")], ids=str
)
def test_a_sync_need_not_name_the_groups_protocol(unsaid: tuple[str, ...]) -> None:
    """Source: `ClassicGroup.validateSyncGroup`. Clients before version 5 of Kafka's SyncGroup cannot name it."""
    harness, leader, follower = completing()
    harness.sync(leader, assignments={follower: [1]}, **dict.fromkeys(unsaid))
    given = harness.answer(harness.sync(follower, **dict.fromkeys(unsaid)))
    assert (given.protocol_type, given.assignment.value) == ("consumer", [1])


def test_a_sync_is_a_sign_of_life() -> None:
    """Kafka's new coordinator starts the session again at a heartbeat and a commit alone."""
    harness = GroupHarness()
    leader, follower = harness.stable()
    session_ms = harness.group.members[follower].terms.session_timeout_ms
    for _ in range(3):
        harness.advance(session_ms - 1)
        assert harness.code(harness.heartbeat(leader)) is ErrorCode.NONE
        assert harness.code(harness.sync(follower)) is ErrorCode.NONE
    assert harness.group.members.keys() == {leader, follower}


def test_c41_heartbeats_do_not_save_who_never_syncs() -> None:
    harness, leader, follower = completing(rebalance_ms=1_500)
    harness.sync(leader, assignments={leader: [0]})
    assert harness.state() is State.STABLE
    harness.advance(1_499)
    assert harness.code(harness.heartbeat(follower)) is ErrorCode.NONE
    assert harness.group.members.keys() == {leader, follower}
    harness.advance(1)
    assert harness.group.members.keys() == {leader}
    assert harness.state() is State.PREPARING_REBALANCE
    assert harness.code(harness.heartbeat(leader)) is ErrorCode.REBALANCE_IN_PROGRESS


def test_a_leader_that_never_syncs_is_replaced() -> None:
    harness, leader, follower = completing()
    waiting = harness.sync(follower)
    for _ in range(12):
        harness.advance(1_000)
        if leader in harness.group.members:
            harness.heartbeat(leader)
    assert harness.code(waiting) is ErrorCode.REBALANCE_IN_PROGRESS
    answer = harness.answer(harness.join(follower))
    assert (answer.leader, answer.generation_id) == (follower, 2)


def test_c42_heartbeats_by_state() -> None:
    harness, leader, follower = completing()
    assert harness.code(harness.heartbeat(leader)) is ErrorCode.NONE
    harness.settle_generation(leader, follower)
    assert harness.code(harness.heartbeat(leader)) is ErrorCode.NONE
    harness.join(leader)
    assert harness.code(harness.heartbeat(follower)) is ErrorCode.REBALANCE_IN_PROGRESS
    harness.leave(leader, follower)
    assert harness.state() is State.EMPTY
    assert harness.code(harness.heartbeat(leader)) is ErrorCode.UNKNOWN_MEMBER_ID
    other = GroupHarness()
    assert other.code(other.heartbeat("m", 1)) is ErrorCode.UNKNOWN_MEMBER_ID


def test_c43_heartbeats_of_other_generations_are_refused() -> None:
    harness = GroupHarness()
    leader, _ = harness.stable()
    for generation in (0, 2):
        assert harness.code(harness.heartbeat(leader, generation)) is ErrorCode.ILLEGAL_GENERATION


def test_c44_heartbeats_keep_a_session() -> None:
    harness = GroupHarness()
    leader, follower = harness.stable(session_ms=1_000)
    for _ in range(10):
        harness.advance(300)
        harness.heartbeat(leader)
        harness.heartbeat(follower)
    assert harness.state() is State.STABLE
    assert len(harness.group.members) == 2


def test_c45_a_silent_member_is_out() -> None:
    harness = GroupHarness()
    leader, follower = harness.stable(session_ms=1_000)
    for _ in range(3):
        harness.advance(300)
        harness.heartbeat(leader)
    assert follower in harness.group.members
    harness.advance(100)
    assert follower not in harness.group.members
    assert harness.state() is State.PREPARING_REBALANCE


def test_c46_one_of_two_leaves() -> None:
    harness = GroupHarness()
    leader, follower = harness.stable()
    harness.leave(follower)
    assert harness.state() is State.PREPARING_REBALANCE
    assert harness.answer(harness.join(leader)).generation_id == 2


def test_who_left_is_not_back_after_the_next_assignment_and_a_crash() -> None:
    harness = GroupHarness()
    leader, follower = harness.stable()
    harness.leave(follower)
    harness.join(leader)
    harness.settle_generation(leader)
    harness.crash()
    assert harness.group.members.keys() == {leader}


def test_c47_the_last_one_leaves() -> None:
    harness = GroupHarness()
    leader, _ = harness.join_new()
    harness.advance(3_000)
    harness.settle_generation(leader)
    harness.leave(leader)
    assert harness.state() is State.EMPTY
    assert (harness.group.generation_id, harness.group.protocol_name, harness.group.protocol_type) == (
        2,
        None,
        "consumer",
    )


def test_c48_entries_of_a_leave_have_results_of_their_own() -> None:
    harness = GroupHarness()
    leader, follower = harness.stable()
    answer = harness.answer(harness.leave(follower, "unknown", follower))
    codes = [x.error_code for x in answer.members]
    assert codes == [ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.UNKNOWN_MEMBER_ID]
    assert harness.answer(harness.join(leader)).generation_id == 2


def test_an_entry_of_a_leave_is_judged_as_if_those_before_it_had_gone() -> None:
    """So a wrong pair is told FENCED even where its member went before, and an instance id that went is nobody's."""
    harness = GroupHarness()
    leader, static = harness.stable(instance="i")
    entries = [(leader, None), (leader, "i"), ("", "i"), (static, "i"), ("", "i")]
    request = m.LeaveRequest(members=tuple(m.LeaveMember(member_id=x, group_instance_id=of) for x, of in entries))
    codes = [x.error_name for x in harness.answer(harness.call(request)).members]
    assert codes == ["NONE", "FENCED_INSTANCE_ID", "NONE", "UNKNOWN_MEMBER_ID", "UNKNOWN_MEMBER_ID"]
    assert harness.state() is State.EMPTY


def test_c49_leaving_a_group_that_is_not_there() -> None:
    harness = GroupHarness()
    answer = harness.answer(harness.leave("m"))
    assert isinstance(answer, m.LeaveAnswer)
    assert [x.error_code for x in answer.members] == [ErrorCode.UNKNOWN_MEMBER_ID]


def test_a_waiting_join_of_a_leaver_is_answered() -> None:
    harness = GroupHarness()
    leader, follower = harness.stable()
    waiting = harness.join(leader)
    harness.leave(leader)
    assert harness.code(waiting) is ErrorCode.UNKNOWN_MEMBER_ID
    assert harness.answer(waiting).member_id == ""
    assert harness.answer(harness.join(follower)).leader == follower


def test_a_waiting_sync_of_a_leaver_is_answered() -> None:
    """Source: `removeMemberAndUpdateClassicGroup`, which answers a waiting join alone."""
    harness, _, follower = completing()
    waiting = harness.sync(follower)
    assert harness.waits(waiting)
    harness.leave(follower)
    assert harness.code(waiting) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_waiting_heartbeat_hears_of_a_rebalance_at_once() -> None:
    harness = GroupHarness()
    leader, follower = harness.stable()
    waiting = harness.heartbeat(leader, wait_ms=4_000)
    assert harness.waits(waiting)
    harness.leave(follower)
    assert harness.code(waiting) is ErrorCode.REBALANCE_IN_PROGRESS


def test_a_waiting_heartbeat_is_cut_to_half_the_session_and_keeps_it() -> None:
    harness = GroupHarness()
    leader, follower = harness.stable(session_ms=4_000)
    for _ in range(4):
        waiting = [harness.heartbeat(member, wait_ms=60_000) for member in (leader, follower)]
        harness.advance(1_999)
        assert all(harness.waits(call) for call in waiting)
        harness.advance(1)
        assert [harness.code(call) for call in waiting] == [ErrorCode.NONE] * 2
    assert harness.state() is State.STABLE


def test_a_heartbeat_whose_client_hung_up_counts_once() -> None:
    harness = GroupHarness()
    leader, follower = harness.stable(session_ms=4_000)
    harness.hang_up(harness.heartbeat(follower, wait_ms=2_000))
    harness.advance(2_000)
    harness.heartbeat(leader)
    harness.advance(1_999)
    assert follower in harness.group.members
    harness.advance(1)
    assert harness.group.members.keys() == {leader}


def test_a_second_sync_of_a_waiting_member_answers_the_first_at_once() -> None:
    harness, leader, follower = completing()
    first = harness.sync(follower)
    second = harness.sync(follower)
    assert harness.answer(first).superseded
    harness.sync(leader, assignments={follower: [1]})
    assert harness.answer(second).assignment.value == [1]


def test_a_sync_that_waited_long_enough_asks_again() -> None:
    harness, leader, follower = completing()
    first = harness.sync(follower, max_wait_ms=100)
    harness.advance(100)
    assert harness.answer(first) == m.WaitingAnswer()
    harness.sync(leader, assignments={follower: [1]})
    assert harness.answer(harness.sync(follower)).assignment.value == [1]


def test_a_topic_that_grows_rebalances_those_who_subscribe() -> None:
    harness = GroupHarness(partition_counts={"t": 4, "other": 1})
    leader, follower = harness.stable()
    waiting = harness.heartbeat(leader, wait_ms=4_000)
    harness.topics(t=4, other=2)
    assert harness.state() is State.STABLE
    harness.topics(t=8, other=2)
    assert harness.code(waiting) is ErrorCode.REBALANCE_IN_PROGRESS
    harness.join(leader)
    harness.join(follower)
    harness.settle_generation(leader, follower)
    harness.topics(t=8, other=2)
    assert harness.state() is State.STABLE


def test_a_quiet_group_is_never_rebalanced() -> None:
    harness = GroupHarness(partition_counts={"t": 4})
    leader, follower = harness.stable()
    for _ in range(500):
        harness.advance(3_000)
        harness.heartbeat(leader)
        harness.heartbeat(follower)
    assert (harness.state(), harness.group.generation_id) == (State.STABLE, 1)


def test_a_group_that_is_gone_leaves_no_timer() -> None:
    harness = GroupHarness(rules=Rules(group_min_session_timeout_ms=1, group_join_linger_ms=0))
    leader, follower = harness.stable()
    harness.join()
    harness.heartbeat(leader, wait_ms=1_000)
    harness.leave(leader, follower)
    harness.advance(20_000)
    assert harness.state() is State.EMPTY
    assert [key.kind for key in harness.timers] == [TimerKind.RETENTION]
    assert not harness.group.parked
    assert not harness.group.requests
    harness.advance(600_000)
    assert (harness.state(), harness.timers) == (State.DEAD, {})


def test_a_rebalance_of_a_group_that_still_awaits_a_sync_leaves_no_timer_of_the_old_generation() -> None:
    harness, leader, follower = completing()
    harness.sync(leader, assignments={leader: [0], follower: [1]})
    assert harness.state() is State.STABLE
    harness.leave(leader, follower)
    assert harness.state() is State.EMPTY
    assert [key.kind for key in harness.timers] == [TimerKind.RETENTION]


def test_changed_metadata_is_compared_as_json_not_as_text() -> None:
    harness = GroupHarness()
    _, follower = harness.stable()
    same = OpaqueJson.of({"topics": ["t"]})
    assert same == consumer("t")
    assert harness.answer(harness.join(follower, protocols=(("range", same),))).generation_id == 1


def test_a_rebalance_takes_the_timer_of_the_syncs_away_also_from_a_stable_group() -> None:
    """KAFKA-7196's class: what is set for a phase goes with it. Here the follower has not asked for its assignment."""
    harness, leader, other = completing()
    harness.sync(leader, assignments={})
    assert (harness.state(), harness.group.pending_sync) == (State.STABLE, {other})
    harness.join(leader)
    assert harness.state() is State.PREPARING_REBALANCE
    assert not [key for key in harness.timers if key.kind is TimerKind.SYNC]
