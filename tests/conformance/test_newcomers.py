"""Newcomers at the door: a join phase with a new member waits a moment for who has connected and not called a group."""

from coordinator.core.commands import Rules, TimerKind
from coordinator.core.group import State
from coordinator.core.newcomers import LOOK_INTERVAL_MS, WAITED_MAX_MS
from tests.conformance.desk import Desk


def desk(delay_ms: int = 0) -> Desk:
    return Desk(rules=Rules(group_min_session_timeout_ms=1, group_initial_rebalance_delay_ms=delay_ms), newcomers=True)


def looks(d: Desk) -> int:
    return sum(key.kind is TimerKind.NEWCOMERS for key in d.timers)


def test_while_somebody_is_at_the_door_the_first_round_stays_open() -> None:
    d = desk()
    first_id, first = d.join_new()
    second_id, second = d.join_new()
    assert d.waits(first)
    assert d.state() is State.PREPARING_REBALANCE
    d.newcomers = False
    third_id, third = d.join_new()
    assert [d.answer(call).generation_id for call in (first, second, third)] == [1, 1, 1]
    assert [member.member_id for member in d.answer(first).members] == [first_id, second_id, third_id]
    assert looks(d) == 0


def test_whoever_turns_out_to_want_something_else_is_noticed_at_the_next_look() -> None:
    d = desk()
    _, call = d.join_new()
    d.advance(LOOK_INTERVAL_MS * 3)
    d.newcomers = False
    assert d.waits(call)
    d.advance(LOOK_INTERVAL_MS)
    assert d.answer(call).generation_id == 1
    assert looks(d) == 0


def test_no_round_waits_longer_for_newcomers_than_three_seconds_from_its_beginning() -> None:
    d = desk()
    _, call = d.join_new()
    d.advance(WAITED_MAX_MS - 1)
    assert d.waits(call)
    d.advance(LOOK_INTERVAL_MS)
    assert d.answer(call).generation_id == 1


def test_a_round_of_a_stable_group_waits_too_where_a_member_is_new() -> None:
    d = desk()
    leader, follower = d.stable()
    _, new = d.join_new()
    calls = [d.join(leader), d.join(follower)]
    assert all(map(d.waits, [new, *calls]))
    d.newcomers = False
    d.advance(LOOK_INTERVAL_MS)
    assert {d.answer(call).generation_id for call in [new, *calls]} == {d.group.generation_id}


def test_a_round_without_a_new_member_waits_for_nobody() -> None:
    d = desk()
    leader, follower = d.stable()
    generation_id = d.group.generation_id
    calls = [d.join(leader), d.join(follower)]
    assert [d.answer(call).generation_id for call in calls] == [generation_id + 1] * 2


def test_a_join_phase_that_its_own_time_ends_leaves_no_look_behind() -> None:
    d = desk()
    _, call = d.join_new(rebalance_ms=10)
    assert looks(d) == 1
    d.advance(10)
    assert d.answer(call).generation_id == 1
    assert looks(d) == 0


def test_the_initial_delay_has_its_own_rule() -> None:
    d = desk(delay_ms=3_000)
    _, call = d.join_new()
    assert looks(d) == 0
    d.advance(3_000)
    assert d.answer(call).generation_id == 1


def test_a_crash_forgets_who_was_at_the_door() -> None:
    d = desk()
    d.join_new()
    d.crash()
    assert not d.group.awaits_newcomers
    assert looks(d) == 0
