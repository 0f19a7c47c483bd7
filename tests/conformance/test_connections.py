"""Members whose connection is lost: how long they are waited for, and what ends the wait."""

import pytest

from rallypoint.coordinator.core.commands import Rules, TimerKind, Trigger
from rallypoint.coordinator.core.effects import RebalanceBegan, SessionExpired
from rallypoint.coordinator.core.group import State
from rallypoint.protocol.errors import ErrorCode
from tests.conformance.desk import Desk


def graces(desk: Desk) -> dict[str, int]:
    return {key.subject: at - desk.now_ms for key, at in desk.timers.items() if key.kind is TimerKind.GRACE}


def of_lost(desk: Desk) -> list[SessionExpired]:
    return [event for event in desk.events if isinstance(event, SessionExpired)]


def test_a_member_that_does_not_come_back_is_dead_after_its_grace_and_not_its_session() -> None:
    d = Desk()
    leader, follower = d.stable(session_ms=60_000)
    d.lose_connection(follower)
    assert graces(d) == {follower: 2_000}
    d.advance(1_999)
    assert follower in d.group.members
    d.advance(1)
    assert follower not in d.group.members
    assert of_lost(d) == [SessionExpired("g", follower, disconnected=True)]
    began = [event for event in d.events if isinstance(event, RebalanceBegan)][-1]
    assert (began.trigger, began.member_id) == (Trigger.MEMBER_EXPIRED, follower)
    assert began.reason == f"the connection of {follower} was lost"
    assert d.code(d.heartbeat(leader)) is ErrorCode.REBALANCE_IN_PROGRESS
    assert d.code(d.heartbeat(follower)) is ErrorCode.UNKNOWN_MEMBER_ID
    assert graces(d) == {}


def test_the_grace_is_that_of_the_members_join_and_else_the_rule() -> None:
    d = Desk(rules=Rules(group_min_session_timeout_ms=1, group_join_linger_ms=0, disconnect_grace_ms=700))
    _, follower = d.stable(grace_ms=300)
    leader = d.group.leader
    assert leader is not None
    d.lose_connection(follower)
    d.lose_connection(leader)
    assert graces(d) == {follower: 300, leader: 700}


def test_without_any_grace_it_is_dead_at_once() -> None:
    d = Desk()
    _, follower = d.stable(grace_ms=0)
    d.lose_connection(follower)
    d.advance(0)
    assert follower not in d.group.members


@pytest.mark.parametrize("word", ["heartbeat", "wrong heartbeat", "commit", "sync", "join"])
def test_any_call_of_the_member_ends_the_grace(word: str) -> None:
    d = Desk()
    _, follower = d.stable(session_ms=60_000)
    d.lose_connection(follower)
    d.advance(1_999)
    match word:
        case "heartbeat":
            d.heartbeat(follower)
        case "wrong heartbeat":
            assert d.code(d.heartbeat(follower, 7)) is ErrorCode.ILLEGAL_GENERATION
        case "commit":
            d.commit(follower)
        case "sync":
            d.sync(follower)
        case "join":
            d.join(follower, session_ms=60_000)
    assert graces(d) == {}
    d.advance(50_000)
    assert follower in d.group.members


def test_who_has_called_and_waits_to_be_told_is_not_away() -> None:
    d = Desk()
    _, follower = d.stable(session_ms=60_000)
    d.lose_connection(follower)
    d.heard_at_ms[follower] = d.now_ms + 1_000
    d.advance(2_000)
    assert follower in d.group.members
    assert graces(d) == {}


@pytest.mark.parametrize("heard_after_ms", [0, 1, 9_999])
def test_a_call_that_waits_to_be_told_is_a_sign_of_life_as_of_when_it_came(heard_after_ms: int) -> None:
    d = Desk()
    _, follower = d.stable(session_ms=10_000)
    began_ms = d.now_ms
    d.heard_at_ms[follower] = began_ms + heard_after_ms
    d.advance(9_999 + heard_after_ms)
    assert follower in d.group.members
    d.advance(1)
    assert follower not in d.group.members


def test_a_call_of_another_member_does_not() -> None:
    d = Desk()
    leader, follower = d.stable(session_ms=60_000)
    d.lose_connection(follower)
    d.heartbeat(leader)
    d.advance(2_000)
    assert follower not in d.group.members


def test_a_second_loss_begins_the_grace_anew() -> None:
    d = Desk()
    _, follower = d.stable(session_ms=60_000)
    d.lose_connection(follower)
    d.advance(1_500)
    d.heartbeat(follower)
    d.lose_connection(follower)
    d.advance(1_999)
    assert follower in d.group.members
    d.advance(1)
    assert follower not in d.group.members


def test_the_session_may_end_before_the_grace() -> None:
    d = Desk()
    _, follower = d.stable(session_ms=10_000, grace_ms=60_000)
    d.lose_connection(follower)
    d.advance(10_000)
    assert SessionExpired("g", follower) in of_lost(d)
    assert follower not in d.group.members
    assert graces(d) == {}


def test_a_static_member_has_a_grace_only_where_it_asks_for_one() -> None:
    d = Desk()
    _, static = d.stable(instance="one", session_ms=60_000)
    d.lose_connection(static)
    assert graces(d) == {}
    d.advance(30_000)
    assert static in d.group.members

    d = Desk()
    _, static = d.stable(instance="one", session_ms=60_000, grace_ms=500)
    d.lose_connection(static)
    d.advance(500)
    assert static not in d.group.members


def test_a_static_member_that_comes_back_without_its_id_leaves_no_grace_behind() -> None:
    d = Desk()
    _, static = d.stable(instance="one", session_ms=60_000, grace_ms=500)
    d.lose_connection(static)
    back = d.join(instance="one", session_ms=60_000, grace_ms=500)
    assert graces(d) == {}
    d.advance(5_000)
    assert d.group.static_members["one"] == d.answer(back).member_id
    assert d.group.static_members["one"] in d.group.members


def test_who_waits_on_another_connection_was_never_away() -> None:
    d = Desk()
    _, follower = d.stable(session_ms=60_000)
    waiting = d.heartbeat(follower, wait_ms=20_000)
    d.lose_connection(follower)
    d.advance(2_000)
    assert d.waits(waiting)
    assert follower in d.group.members
    d.hang_up(waiting)
    d.advance(50_000)
    assert follower in d.group.members, "its grace was over, so the session alone decides"


def test_calls_of_the_lost_connection_lose_their_pending_responses_only() -> None:
    d = Desk()
    leader, follower = d.stable(session_ms=60_000)
    lost = d.join(leader, session_ms=60_000)
    d.hang_up(lost)
    d.lose_connection(leader)
    assert d.group.members[leader].joined
    d.advance(1_000)
    # It has joined the phase already, so the other one's join ends it; its own answer waits for it.
    other = d.join(follower, session_ms=60_000)
    assert d.state() is State.COMPLETING_REBALANCE
    again = d.join(leader, session_ms=60_000)
    assert d.answer(again).generation_id == d.answer(other).generation_id
    assert graces(d) == {}


def test_a_first_join_whose_connection_is_lost_is_found_by_its_call() -> None:
    d = Desk()
    first = d.join(instance="one", session_ms=60_000, grace_ms=500, request_id="r")
    (member_id,) = d.group.members
    d.hang_up(first, connection_lost=True)
    assert graces(d) == {member_id: 500}
    # It comes again, and does not know its id yet.
    d.join(instance="one", session_ms=60_000, grace_ms=500, request_id="r")
    assert graces(d) == {}
    assert list(d.group.members) == [member_id]


def test_a_loss_of_nobody_is_nothing() -> None:
    d = Desk()
    d.stable()
    before = len(d.events)
    d.lose_connection("nobody")
    d.lose_connection("")
    Desk().lose_connection("a")
    assert (graces(d), len(d.events)) == ({}, before)


def test_a_crash_forgets_the_loss_and_the_session_alone_decides() -> None:
    d = Desk()
    _, follower = d.stable(session_ms=60_000)
    d.lose_connection(follower)
    d.crash()
    assert graces(d) == {}
    d.advance(59_999)
    assert follower in d.group.members
    d.advance(1)
    assert follower not in d.group.members


def test_a_leave_ends_the_grace_with_the_member() -> None:
    d = Desk()
    _, follower = d.stable()
    d.lose_connection(follower)
    d.leave(follower)
    assert graces(d) == {}


def test_while_rebalances_are_held_the_loss_of_a_member_is_held_too() -> None:
    d = Desk()
    _, follower = d.stable(session_ms=60_000)
    d.freeze(100_000)
    d.lose_connection(follower)
    d.advance(2_000)
    assert follower not in d.group.members
    assert d.state() is State.STABLE
    assert d.group.held_count == 1
