"""Calls that wait: what a 202, a hang-up and a newer call take away, and what they do not. By the HTTP contract: having
joined, or having asked, is a fact of the member, and the waiting call is only where the answer goes.
"""

import pytest

from rallypoint.coordinator.core.commands import Rules
from rallypoint.coordinator.core.group import State
from rallypoint.protocol import messages as m
from rallypoint.protocol.errors import ErrorCode
from tests.conformance.group_harness import GroupHarness


def completing() -> tuple[GroupHarness, str, str]:
    """The leader assigns; the follower's session is of four seconds."""
    harness = GroupHarness()
    leader, first = harness.join_new(session_ms=60_000, rebalance_ms=30_000)
    follower, second = harness.join_new(session_ms=4_000, rebalance_ms=30_000)
    harness.advance_until_answered(first, second)
    return harness, leader, follower


@pytest.mark.parametrize("how", ["a hang-up", "a 202"])
def test_without_its_letter_kind_the_session_of_who_waits_for_the_leader_runs(how: str) -> None:
    harness, leader, follower = completing()
    call = harness.sync(follower, max_wait_ms=9_000)
    harness.advance(9_000 if how == "a 202" else 8_000)
    assert follower in harness.group.members, "while the call waits, its session does not run"
    if how == "a 202":
        assert harness.answer(call) == m.WaitingAnswer(member_id=None)
    else:
        harness.hang_up(call)
    harness.advance(3_999)
    assert harness.group.members.keys() == {leader, follower}
    harness.advance(1)
    assert harness.group.members.keys() == {leader}


def test_a_sync_that_polls_is_told_at_once_and_counts_all_the_same() -> None:
    harness, leader, follower = completing()
    call = harness.sync(follower, max_wait_ms=0)
    harness.advance(0)
    assert harness.answer(call) == m.WaitingAnswer(member_id=None)
    harness.sync(leader, assignments={follower: "yours"})
    for _ in range(11):
        harness.advance(3_000)
        harness.heartbeat(follower)
    assert harness.state() is State.STABLE, "it has asked, so nobody is awaited when the time to sync is over"
    assert harness.answer(harness.sync(follower, max_wait_ms=0)).assignment.value == "yours"


def test_no_call_waits_longer_than_the_service_lets_it() -> None:
    harness, leader, follower = completing()
    harness.rules = Rules(group_min_session_timeout_ms=1, group_join_linger_ms=0, parked_call_max_wait_ms=5_000)
    sync, heartbeat = harness.sync(follower, max_wait_ms=60_000), harness.heartbeat(leader, wait_ms=20_000)
    harness.advance(4_999)
    assert (harness.waits(sync), harness.waits(heartbeat)) == (True, True)
    harness.advance(1)
    assert (harness.answer(sync), harness.answer(heartbeat)) == (m.WaitingAnswer(member_id=None), m.HeartbeatAnswer())
    join = harness.join_new(session_ms=60_000, rebalance_ms=30_000, max_wait_ms=60_000)[1]
    harness.advance(4_999)
    assert harness.waits(join)
    harness.advance(1)
    assert isinstance(harness.answer(join), m.WaitingAnswer)


def test_a_newer_heartbeat_takes_over_the_waiting() -> None:
    harness = GroupHarness()
    leader, follower = harness.stable(session_ms=60_000)
    first = harness.heartbeat(follower, wait_ms=20_000)
    second = harness.heartbeat(follower, wait_ms=20_000)
    assert (harness.answer(first).superseded, harness.waits(second)) == (True, True)
    harness.join(leader)
    assert harness.code(second) is ErrorCode.REBALANCE_IN_PROGRESS
    assert not harness.answer(second).superseded


def test_a_waiting_heartbeat_that_is_answered_begins_the_session_anew() -> None:
    harness = GroupHarness()
    leader, follower = harness.stable(session_ms=8_000)
    call = harness.heartbeat(follower, wait_ms=4_000)
    for _ in range(5):
        harness.advance(2_000)
        harness.heartbeat(leader)
    assert harness.answer(call) == m.HeartbeatAnswer()
    harness.advance(1_999)
    assert follower in harness.group.members
    harness.advance(1)
    assert harness.group.members.keys() == {leader}
