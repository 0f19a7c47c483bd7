"""Members whose connection is lost: how long they are waited for, and what ends the wait."""

import pytest

from rallypoint.coordinator.core.commands import ConnectionLost, Rules, TimerKind, Trigger
from rallypoint.coordinator.core.effects import RebalanceBegan, SessionExpired
from rallypoint.coordinator.core.group import State
from rallypoint.protocol.errors import ErrorCode
from tests.conformance.group_harness import GroupHarness


def graces(group_harness: GroupHarness) -> dict[str, int]:
    return {
        key.subject: at - group_harness.now_ms
        for key, at in group_harness.timers.items()
        if key.kind is TimerKind.GRACE
    }


def of_lost(group_harness: GroupHarness) -> list[SessionExpired]:
    return [event for event in group_harness.events if isinstance(event, SessionExpired)]


def test_a_member_that_does_not_come_back_is_dead_after_its_grace_and_not_its_session() -> None:
    harness = GroupHarness()
    leader, follower = harness.stable(session_ms=60_000)
    harness.lose_connection(follower)
    assert graces(harness) == {follower: 2_000}
    harness.advance(1_999)
    assert follower in harness.group.members
    harness.advance(1)
    assert follower not in harness.group.members
    assert of_lost(harness) == [SessionExpired("g", follower, disconnected=True)]
    began = [event for event in harness.events if isinstance(event, RebalanceBegan)][-1]
    assert (began.trigger, began.member_id) == (Trigger.MEMBER_EXPIRED, follower)
    assert began.reason == f"the connection of {follower} was lost"
    assert harness.code(harness.heartbeat(leader)) is ErrorCode.REBALANCE_IN_PROGRESS
    assert harness.code(harness.heartbeat(follower)) is ErrorCode.UNKNOWN_MEMBER_ID
    assert graces(harness) == {}


def test_the_grace_is_that_of_the_members_join_and_else_the_rule() -> None:
    harness = GroupHarness(rules=Rules(group_min_session_timeout_ms=1, group_join_linger_ms=0, disconnect_grace_ms=700))
    _, follower = harness.stable(grace_ms=300)
    leader = harness.group.leader
    assert leader is not None
    harness.lose_connection(follower)
    harness.lose_connection(leader)
    assert graces(harness) == {follower: 300, leader: 700}


def test_without_any_grace_it_is_dead_at_once() -> None:
    harness = GroupHarness()
    _, follower = harness.stable(grace_ms=0)
    harness.lose_connection(follower)
    harness.advance(0)
    assert follower not in harness.group.members


@pytest.mark.parametrize("word", ["heartbeat", "wrong heartbeat", "commit", "sync", "join"])
def test_any_call_of_the_member_ends_the_grace(word: str) -> None:
    harness = GroupHarness()
    _, follower = harness.stable(session_ms=60_000)
    harness.lose_connection(follower)
    harness.advance(1_999)
    match word:
        case "heartbeat":
            harness.heartbeat(follower)
        case "wrong heartbeat":
            assert harness.code(harness.heartbeat(follower, 7)) is ErrorCode.ILLEGAL_GENERATION
        case "commit":
            harness.commit(follower)
        case "sync":
            harness.sync(follower)
        case "join":
            harness.join(follower, session_ms=60_000)
    assert graces(harness) == {}
    harness.advance(50_000)
    assert follower in harness.group.members


def test_who_has_called_and_waits_to_be_told_is_not_away() -> None:
    harness = GroupHarness()
    _, follower = harness.stable(session_ms=60_000)
    harness.lose_connection(follower)
    harness.heard_at_ms[follower] = harness.now_ms + 1_000
    harness.advance(2_000)
    assert follower in harness.group.members
    assert graces(harness) == {}


@pytest.mark.parametrize("heard_after_ms", [0, 1, 9_999])
def test_a_call_that_waits_to_be_told_is_a_sign_of_life_as_of_when_it_came(heard_after_ms: int) -> None:
    harness = GroupHarness()
    _, follower = harness.stable(session_ms=10_000)
    began_ms = harness.now_ms
    harness.heard_at_ms[follower] = began_ms + heard_after_ms
    harness.advance(9_999 + heard_after_ms)
    assert follower in harness.group.members
    harness.advance(1)
    assert follower not in harness.group.members


@pytest.mark.parametrize("by_client", [True, False])
def test_what_came_last_on_a_connection_that_is_gone_counts_for_the_session(by_client: bool) -> None:
    """Of a member at rest the group has heard nothing else, and afterwards nobody can be asked."""
    harness = GroupHarness()
    _, follower = harness.stable(session_ms=10_000)
    harness.heard_at_ms[follower] = harness.now_ms + 8_000
    harness.advance(9_000)
    heard_at_ms = harness.now_ms
    del harness.heard_at_ms[follower]
    harness.tell(ConnectionLost(follower, by_client, heard_at_ms))
    assert bool(graces(harness)) == by_client
    harness.advance(1_999)
    assert follower in harness.group.members
    harness.advance(8_000)
    assert (follower in harness.group.members) == (not by_client)
    harness.advance(1)
    assert follower not in harness.group.members


@pytest.mark.parametrize("now_ms", [-1_000_000, 0, 1_000_000])
def test_a_session_of_which_nothing_was_heard_ends_whatever_the_year(now_ms: int) -> None:
    """A clock that is not set may stand before 1970."""
    harness = GroupHarness(now_ms=now_ms)
    _, follower = harness.stable(session_ms=10_000)
    harness.advance(9_999)
    assert follower in harness.group.members
    harness.advance(1)
    assert follower not in harness.group.members


def test_a_call_of_another_member_does_not() -> None:
    harness = GroupHarness()
    leader, follower = harness.stable(session_ms=60_000)
    harness.lose_connection(follower)
    harness.heartbeat(leader)
    harness.advance(2_000)
    assert follower not in harness.group.members


def test_a_second_loss_begins_the_grace_anew() -> None:
    harness = GroupHarness()
    _, follower = harness.stable(session_ms=60_000)
    harness.lose_connection(follower)
    harness.advance(1_500)
    harness.heartbeat(follower)
    harness.lose_connection(follower)
    harness.advance(1_999)
    assert follower in harness.group.members
    harness.advance(1)
    assert follower not in harness.group.members


def test_the_session_may_end_before_the_grace() -> None:
    harness = GroupHarness()
    _, follower = harness.stable(session_ms=10_000, grace_ms=60_000)
    harness.lose_connection(follower)
    harness.advance(10_000)
    assert SessionExpired("g", follower) in of_lost(harness)
    assert follower not in harness.group.members
    assert graces(harness) == {}


def test_a_static_member_has_a_grace_only_where_it_asks_for_one() -> None:
    harness = GroupHarness()
    _, static = harness.stable(instance="one", session_ms=60_000)
    harness.lose_connection(static)
    assert graces(harness) == {}
    harness.advance(30_000)
    assert static in harness.group.members

    harness = GroupHarness()
    _, static = harness.stable(instance="one", session_ms=60_000, grace_ms=500)
    harness.lose_connection(static)
    harness.advance(500)
    assert static not in harness.group.members


def test_a_static_member_that_comes_back_without_its_id_leaves_no_grace_behind() -> None:
    harness = GroupHarness()
    _, static = harness.stable(instance="one", session_ms=60_000, grace_ms=500)
    harness.lose_connection(static)
    back = harness.join(instance="one", session_ms=60_000, grace_ms=500)
    assert graces(harness) == {}
    harness.advance(5_000)
    assert harness.group.static_members["one"] == harness.answer(back).member_id
    assert harness.group.static_members["one"] in harness.group.members


def test_who_waits_on_another_connection_was_never_away() -> None:
    harness = GroupHarness()
    _, follower = harness.stable(session_ms=60_000)
    waiting = harness.heartbeat(follower, wait_ms=20_000)
    harness.lose_connection(follower)
    harness.advance(2_000)
    assert harness.waits(waiting)
    assert follower in harness.group.members
    harness.hang_up(waiting)
    harness.advance(50_000)
    assert follower in harness.group.members, "its grace was over, so the session alone decides"


def test_calls_of_the_lost_connection_lose_their_pending_responses_only() -> None:
    harness = GroupHarness()
    leader, follower = harness.stable(session_ms=60_000)
    lost = harness.join(leader, session_ms=60_000)
    harness.hang_up(lost)
    harness.lose_connection(leader)
    assert harness.group.members[leader].joined
    harness.advance(1_000)
    # It has joined the phase already, so the other one's join ends it; its own answer waits for it.
    other = harness.join(follower, session_ms=60_000)
    assert harness.state() is State.COMPLETING_REBALANCE
    again = harness.join(leader, session_ms=60_000)
    assert harness.answer(again).generation_id == harness.answer(other).generation_id
    assert graces(harness) == {}


def test_a_first_join_whose_connection_is_lost_is_found_by_its_call() -> None:
    harness = GroupHarness()
    first = harness.join(instance="one", session_ms=60_000, grace_ms=500, request_id="r")
    (member_id,) = harness.group.members
    harness.hang_up(first, connection_lost=True)
    assert graces(harness) == {member_id: 500}
    # It comes again, and does not know its id yet.
    harness.join(instance="one", session_ms=60_000, grace_ms=500, request_id="r")
    assert graces(harness) == {}
    assert list(harness.group.members) == [member_id]


def test_a_loss_of_nobody_is_nothing() -> None:
    harness = GroupHarness()
    harness.stable()
    before = len(harness.events)
    harness.lose_connection("nobody")
    harness.lose_connection("")
    GroupHarness().lose_connection("a")
    assert (graces(harness), len(harness.events)) == ({}, before)


def test_a_crash_forgets_the_loss_and_the_session_alone_decides() -> None:
    harness = GroupHarness()
    _, follower = harness.stable(session_ms=60_000)
    harness.lose_connection(follower)
    harness.crash()
    assert graces(harness) == {}
    harness.advance(59_999)
    assert follower in harness.group.members
    harness.advance(1)
    assert follower not in harness.group.members


def test_a_leave_ends_the_grace_with_the_member() -> None:
    harness = GroupHarness()
    _, follower = harness.stable()
    harness.lose_connection(follower)
    harness.leave(follower)
    assert graces(harness) == {}


def test_while_rebalances_are_held_the_loss_of_a_member_is_held_too() -> None:
    harness = GroupHarness()
    _, follower = harness.stable(session_ms=60_000)
    harness.freeze(100_000)
    harness.lose_connection(follower)
    harness.advance(2_000)
    assert follower not in harness.group.members
    assert harness.state() is State.STABLE
    assert harness.group.held_count == 1
