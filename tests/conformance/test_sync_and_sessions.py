"""Syncs, heartbeats, leaving and sessions (C34-C49)."""

import pytest

from rallypoint.coordinator.core import invariants
from rallypoint.coordinator.core.commands import Rules, TimerKind
from rallypoint.coordinator.core.group import State
from rallypoint.protocol import messages as m
from rallypoint.protocol.errors import ErrorCode
from rallypoint.protocol.opaque import EMPTY, OpaqueJson
from tests.conformance.desk import Desk, consumer


def completing(**more: int) -> tuple[Desk, str, str]:
    d = Desk()
    leader, first = d.join_new(**more)
    follower, second = d.join_new(**more)
    d.advance_until_answered(first, second)
    assert d.state() is State.COMPLETING_REBALANCE
    return d, leader, follower


def test_c34_each_gets_its_own_part() -> None:
    d, leader, follower = completing()
    first = d.sync(leader, assignments={leader: [0], follower: [1]})
    second = d.sync(follower)
    assert (d.answer(first).assignment.value, d.answer(second).assignment.value) == ([0], [1])
    assert d.state() is State.STABLE


def test_c35_a_follower_waits_for_the_leader() -> None:
    d, leader, follower = completing()
    waiting = d.sync(follower)
    d.advance(5_000)
    assert d.waits(waiting)
    d.sync(leader, assignments={leader: [0], follower: [1]})
    assert d.answer(waiting).assignment.value == [1]


def test_who_has_the_end_of_a_phase_waits_no_more_and_has_a_full_session() -> None:
    d = Desk()
    (leader, first), (follower, second) = d.join_new(session_ms=7_000), d.join_new(session_ms=9_000)
    d.advance_until_answered(first, second)
    invariants.check(d.group)
    assert d.group.parked == {}
    assert sessions(d) == {leader: 7_000, follower: 9_000}
    waiting = d.sync(follower)
    d.advance(5_000)
    assert d.group.parked.keys() == {waiting}
    d.sync(leader, assignments={leader: [0], follower: [1]})
    invariants.check(d.group)
    assert d.group.parked == {}
    assert sessions(d) == {leader: 7_000, follower: 9_000}


def sessions(d: Desk) -> dict[str, int]:
    """How long each member's session goes on from now."""
    return {member.member_id: member.deadline_ms - d.now_ms for member in d.group.members.values()}


def test_c36_whom_the_leader_forgot_gets_nothing_and_a_ghost_is_ignored() -> None:
    d, leader, follower = completing()
    d.sync(leader, assignments={leader: [0], "ghost": [1]})
    assert d.answer(d.sync(follower)).assignment == EMPTY
    assert "ghost" not in d.group.members


def test_c37_a_second_assignment_of_a_generation_is_not_taken() -> None:
    d = Desk()
    leader, follower = d.stable()
    held = d.answer(d.sync(leader)).assignment
    again = d.answer(d.sync(leader, assignments={leader: ["other"], follower: ["other"]}))
    assert again.assignment == held != OpaqueJson.of(["other"])


def test_c38_a_sync_while_preparing_is_called_back() -> None:
    d = Desk()
    leader, follower = d.stable()
    d.join(leader)
    assert d.code(d.sync(follower)) is ErrorCode.REBALANCE_IN_PROGRESS


def test_c39_a_sync_is_fenced() -> None:
    d = Desk()
    assert d.code(d.sync("m", 1)) is ErrorCode.UNKNOWN_MEMBER_ID
    leader, _ = d.stable()
    assert d.code(d.sync(leader, 2)) is ErrorCode.ILLEGAL_GENERATION
    assert d.code(d.sync("stranger")) is ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize("other", [{"protocol_type": "x"}, {"protocol_name": "x"}, {"protocol_name": None}])
def test_c40_a_sync_names_the_groups_protocol(other: dict[str, str | None]) -> None:
    d, leader, _ = completing()
    call = d.sync(leader, **other)  # type: ignore[arg-type]
    assert d.code(call) is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert d.answer(call).field == next(iter(other))
    assert d.state() is State.COMPLETING_REBALANCE


def test_c41_heartbeats_do_not_save_who_never_syncs() -> None:
    d, leader, follower = completing(rebalance_ms=1_500)
    d.sync(leader, assignments={leader: [0]})
    assert d.state() is State.STABLE
    d.advance(1_499)
    assert d.code(d.heartbeat(follower)) is ErrorCode.NONE
    assert d.group.members.keys() == {leader, follower}
    d.advance(1)
    assert d.group.members.keys() == {leader}
    assert d.state() is State.PREPARING_REBALANCE
    assert d.code(d.heartbeat(leader)) is ErrorCode.REBALANCE_IN_PROGRESS


def test_a_leader_that_never_syncs_is_replaced() -> None:
    d, leader, follower = completing()
    waiting = d.sync(follower)
    for _ in range(12):
        d.advance(1_000)
        if leader in d.group.members:
            d.heartbeat(leader)
    assert d.code(waiting) is ErrorCode.REBALANCE_IN_PROGRESS
    answer = d.answer(d.join(follower))
    assert (answer.leader, answer.generation_id) == (follower, 2)


def test_c42_heartbeats_by_state() -> None:
    d, leader, follower = completing()
    assert d.code(d.heartbeat(leader)) is ErrorCode.NONE
    d.settle_generation(leader, follower)
    assert d.code(d.heartbeat(leader)) is ErrorCode.NONE
    d.join(leader)
    assert d.code(d.heartbeat(follower)) is ErrorCode.REBALANCE_IN_PROGRESS
    d.leave(leader, follower)
    assert d.state() is State.EMPTY
    assert d.code(d.heartbeat(leader)) is ErrorCode.UNKNOWN_MEMBER_ID
    other = Desk()
    assert other.code(other.heartbeat("m", 1)) is ErrorCode.UNKNOWN_MEMBER_ID


def test_c43_heartbeats_of_other_generations_are_refused() -> None:
    d = Desk()
    leader, _ = d.stable()
    for generation in (0, 2):
        assert d.code(d.heartbeat(leader, generation)) is ErrorCode.ILLEGAL_GENERATION


def test_c44_heartbeats_keep_a_session() -> None:
    d = Desk()
    leader, follower = d.stable(session_ms=1_000)
    for _ in range(10):
        d.advance(300)
        d.heartbeat(leader)
        d.heartbeat(follower)
    assert d.state() is State.STABLE
    assert len(d.group.members) == 2


def test_c45_a_silent_member_is_out() -> None:
    d = Desk()
    leader, follower = d.stable(session_ms=1_000)
    for _ in range(3):
        d.advance(300)
        d.heartbeat(leader)
    assert follower in d.group.members
    d.advance(100)
    assert follower not in d.group.members
    assert d.state() is State.PREPARING_REBALANCE


def test_c46_one_of_two_leaves() -> None:
    d = Desk()
    leader, follower = d.stable()
    d.leave(follower)
    assert d.state() is State.PREPARING_REBALANCE
    assert d.answer(d.join(leader)).generation_id == 2


def test_who_left_is_not_back_after_the_next_assignment_and_a_crash() -> None:
    d = Desk()
    leader, follower = d.stable()
    d.leave(follower)
    d.join(leader)
    d.settle_generation(leader)
    d.crash()
    assert d.group.members.keys() == {leader}


def test_c47_the_last_one_leaves() -> None:
    d = Desk()
    leader, _ = d.join_new()
    d.advance(3_000)
    d.settle_generation(leader)
    d.leave(leader)
    assert d.state() is State.EMPTY
    assert (d.group.generation_id, d.group.protocol_name, d.group.protocol_type) == (2, None, "consumer")


def test_c48_entries_of_a_leave_have_results_of_their_own() -> None:
    d = Desk()
    leader, follower = d.stable()
    answer = d.answer(d.leave(follower, "unknown", follower))
    codes = [x.error_code for x in answer.members]
    assert codes == [ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.UNKNOWN_MEMBER_ID]
    assert d.answer(d.join(leader)).generation_id == 2


def test_an_entry_of_a_leave_is_judged_as_if_those_before_it_had_gone() -> None:
    """So a wrong pair is told FENCED even where its member went before, and an instance id that went is nobody's."""
    d = Desk()
    leader, static = d.stable(instance="i")
    entries = [(leader, None), (leader, "i"), ("", "i"), (static, "i"), ("", "i")]
    request = m.LeaveRequest(members=tuple(m.LeaveMember(member_id=x, group_instance_id=of) for x, of in entries))
    codes = [x.error_name for x in d.answer(d.call(request)).members]
    assert codes == ["NONE", "FENCED_INSTANCE_ID", "NONE", "UNKNOWN_MEMBER_ID", "UNKNOWN_MEMBER_ID"]
    assert d.state() is State.EMPTY


def test_c49_leaving_a_group_that_is_not_there() -> None:
    d = Desk()
    answer = d.answer(d.leave("m"))
    assert isinstance(answer, m.LeaveAnswer)
    assert [x.error_code for x in answer.members] == [ErrorCode.UNKNOWN_MEMBER_ID]


def test_a_waiting_join_of_a_leaver_is_answered() -> None:
    d = Desk()
    leader, follower = d.stable()
    waiting = d.join(leader)
    d.leave(leader)
    assert d.code(waiting) is ErrorCode.UNKNOWN_MEMBER_ID
    assert d.answer(waiting).member_id == ""
    assert d.answer(d.join(follower)).leader == follower


def test_a_waiting_heartbeat_hears_of_a_rebalance_at_once() -> None:
    d = Desk()
    leader, follower = d.stable()
    waiting = d.heartbeat(leader, wait_ms=4_000)
    assert d.waits(waiting)
    d.leave(follower)
    assert d.code(waiting) is ErrorCode.REBALANCE_IN_PROGRESS


def test_a_waiting_heartbeat_is_cut_to_half_the_session_and_keeps_it() -> None:
    d = Desk()
    leader, follower = d.stable(session_ms=4_000)
    for _ in range(4):
        waiting = [d.heartbeat(member, wait_ms=60_000) for member in (leader, follower)]
        d.advance(1_999)
        assert all(d.waits(call) for call in waiting)
        d.advance(1)
        assert [d.code(call) for call in waiting] == [ErrorCode.NONE] * 2
    assert d.state() is State.STABLE


def test_a_heartbeat_whose_client_hung_up_counts_once() -> None:
    d = Desk()
    leader, follower = d.stable(session_ms=4_000)
    d.hang_up(d.heartbeat(follower, wait_ms=2_000))
    d.advance(2_000)
    d.heartbeat(leader)
    d.advance(1_999)
    assert follower in d.group.members
    d.advance(1)
    assert d.group.members.keys() == {leader}


def test_a_second_sync_of_a_waiting_member_answers_the_first_at_once() -> None:
    d, leader, follower = completing()
    first = d.sync(follower)
    second = d.sync(follower)
    assert d.answer(first).superseded
    d.sync(leader, assignments={follower: [1]})
    assert d.answer(second).assignment.value == [1]


def test_a_sync_that_waited_long_enough_asks_again() -> None:
    d, leader, follower = completing()
    first = d.sync(follower, max_wait_ms=100)
    d.advance(100)
    assert d.answer(first) == m.WaitingAnswer()
    d.sync(leader, assignments={follower: [1]})
    assert d.answer(d.sync(follower)).assignment.value == [1]


def test_a_topic_that_grows_rebalances_those_who_subscribe() -> None:
    d = Desk(partition_counts={"t": 4, "other": 1})
    leader, follower = d.stable()
    waiting = d.heartbeat(leader, wait_ms=4_000)
    d.topics(t=4, other=2)
    assert d.state() is State.STABLE
    d.topics(t=8, other=2)
    assert d.code(waiting) is ErrorCode.REBALANCE_IN_PROGRESS
    d.join(leader)
    d.join(follower)
    d.settle_generation(leader, follower)
    d.topics(t=8, other=2)
    assert d.state() is State.STABLE


def test_a_quiet_group_is_never_rebalanced() -> None:
    d = Desk(partition_counts={"t": 4})
    leader, follower = d.stable()
    for _ in range(500):
        d.advance(3_000)
        d.heartbeat(leader)
        d.heartbeat(follower)
    assert (d.state(), d.group.generation_id) == (State.STABLE, 1)


def test_a_group_that_is_gone_leaves_no_timer() -> None:
    d = Desk(rules=Rules(group_min_session_timeout_ms=1, group_join_linger_ms=0))
    leader, follower = d.stable()
    d.join()
    d.heartbeat(leader, wait_ms=1_000)
    d.leave(leader, follower)
    d.advance(20_000)
    assert d.state() is State.EMPTY
    assert [key.kind for key in d.timers] == [TimerKind.RETENTION]
    assert not d.group.parked
    assert not d.group.requests
    d.advance(600_000)
    assert (d.state(), d.timers) == (State.DEAD, {})


def test_a_rebalance_of_a_group_that_still_awaits_a_sync_leaves_no_timer_of_the_old_generation() -> None:
    d, leader, follower = completing()
    d.sync(leader, assignments={leader: [0], follower: [1]})
    assert d.state() is State.STABLE
    d.leave(leader, follower)
    assert d.state() is State.EMPTY
    assert [key.kind for key in d.timers] == [TimerKind.RETENTION]


def test_changed_metadata_is_compared_as_json_not_as_text() -> None:
    d = Desk()
    _, follower = d.stable()
    same = OpaqueJson.of({"topics": ["t"]})
    assert same == consumer("t")
    assert d.answer(d.join(follower, protocols=(("range", same),))).generation_id == 1


def test_a_rebalance_takes_the_timer_of_the_syncs_away_also_from_a_stable_group() -> None:
    """KAFKA-7196's class: what is set for a phase goes with it. Here the follower has not asked for its assignment."""
    d, leader, other = completing()
    d.sync(leader, assignments={})
    assert (d.state(), d.group.pending_sync) == (State.STABLE, {other})
    d.join(leader)
    assert d.state() is State.PREPARING_REBALANCE
    assert not [key for key in d.timers if key.kind is TimerKind.SYNC]
