"""Calls that wait: what a 202, a hang-up and a newer call take away, and what they do not. By the HTTP contract: having
joined, or having asked, is a fact of the member, and the waiting call is only where the answer goes.
"""

import pytest

from rallypoint.coordinator.core.commands import Rules
from rallypoint.coordinator.core.group import State
from rallypoint.protocol import messages as m
from rallypoint.protocol.errors import ErrorCode
from tests.conformance.desk import Desk


def completing() -> tuple[Desk, str, str]:
    """The leader assigns; the follower's session is of four seconds."""
    d = Desk()
    leader, first = d.join_new(session_ms=60_000, rebalance_ms=30_000)
    follower, second = d.join_new(session_ms=4_000, rebalance_ms=30_000)
    d.advance_until_answered(first, second)
    return d, leader, follower


@pytest.mark.parametrize("how", ["a hang-up", "a 202"])
def test_without_its_letter_kind_the_session_of_who_waits_for_the_leader_runs(how: str) -> None:
    d, leader, follower = completing()
    call = d.sync(follower, max_wait_ms=9_000)
    d.advance(9_000 if how == "a 202" else 8_000)
    assert follower in d.group.members, "while the call waits, its session does not run"
    if how == "a 202":
        assert d.answer(call) == m.WaitingAnswer(member_id=None)
    else:
        d.hang_up(call)
    d.advance(3_999)
    assert d.group.members.keys() == {leader, follower}
    d.advance(1)
    assert d.group.members.keys() == {leader}


def test_a_sync_that_polls_is_told_at_once_and_counts_all_the_same() -> None:
    d, leader, follower = completing()
    call = d.sync(follower, max_wait_ms=0)
    d.advance(0)
    assert d.answer(call) == m.WaitingAnswer(member_id=None)
    d.sync(leader, assignments={follower: "yours"})
    for _ in range(11):
        d.advance(3_000)
        d.heartbeat(follower)
    assert d.state() is State.STABLE, "it has asked, so nobody is awaited when the time to sync is over"
    assert d.answer(d.sync(follower, max_wait_ms=0)).assignment.value == "yours"


def test_no_call_waits_longer_than_the_service_lets_it() -> None:
    d, leader, follower = completing()
    d.rules = Rules(group_min_session_timeout_ms=1, group_join_linger_ms=0, parked_call_max_wait_ms=5_000)
    sync, heartbeat = d.sync(follower, max_wait_ms=60_000), d.heartbeat(leader, wait_ms=20_000)
    d.advance(4_999)
    assert (d.waits(sync), d.waits(heartbeat)) == (True, True)
    d.advance(1)
    assert (d.answer(sync), d.answer(heartbeat)) == (m.WaitingAnswer(member_id=None), m.HeartbeatAnswer())
    join = d.join_new(session_ms=60_000, rebalance_ms=30_000, max_wait_ms=60_000)[1]
    d.advance(4_999)
    assert d.waits(join)
    d.advance(1)
    assert isinstance(d.answer(join), m.WaitingAnswer)


def test_a_newer_heartbeat_takes_over_the_waiting() -> None:
    d = Desk()
    leader, follower = d.stable(session_ms=60_000)
    first = d.heartbeat(follower, wait_ms=20_000)
    second = d.heartbeat(follower, wait_ms=20_000)
    assert (d.answer(first).superseded, d.waits(second)) == (True, True)
    d.join(leader)
    assert d.code(second) is ErrorCode.REBALANCE_IN_PROGRESS
    assert not d.answer(second).superseded


def test_a_waiting_heartbeat_that_is_answered_begins_the_session_anew() -> None:
    d = Desk()
    leader, follower = d.stable(session_ms=8_000)
    call = d.heartbeat(follower, wait_ms=4_000)
    for _ in range(5):
        d.advance(2_000)
        d.heartbeat(leader)
    assert d.answer(call) == m.HeartbeatAnswer()
    d.advance(1_999)
    assert follower in d.group.members
    d.advance(1)
    assert d.group.members.keys() == {leader}
