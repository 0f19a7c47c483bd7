"""A join phase that new members have come to lingers for more of them, and for nobody else."""

import pytest

from rallypoint.coordinator.core.commands import Rules, TimerKind
from rallypoint.coordinator.core.group import State
from rallypoint.coordinator.core.linger import QUIET_MS
from tests.conformance.desk import Desk

LINGER_MS = 250


def desk(delay_ms: int = 0, linger_ms: int = LINGER_MS) -> Desk:
    return Desk(
        rules=Rules(
            group_min_session_timeout_ms=1,
            group_initial_rebalance_delay_ms=delay_ms,
            group_join_linger_ms=linger_ms,
        )
    )


def lingers(d: Desk) -> int:
    return sum(key.kind is TimerKind.LINGER for key in d.timers)


def test_a_member_that_comes_alone_waits_until_it_has_been_quiet_and_no_longer() -> None:
    d = desk()
    _, call = d.join_new()
    d.advance(QUIET_MS - 1)
    assert d.waits(call)
    d.advance(1)
    assert d.answer(call).generation_id == 1
    assert lingers(d) == 0


def test_members_that_start_together_make_one_generation() -> None:
    d = desk()
    first_id, first = d.join_new()
    d.advance(QUIET_MS - 1)
    second_id, second = d.join_new()
    d.advance(QUIET_MS - 1)
    third_id, third = d.join_new()
    d.advance(QUIET_MS)
    assert [d.answer(call).generation_id for call in (first, second, third)] == [1, 1, 1]
    assert [member.member_id for member in d.answer(first).members] == [first_id, second_id, third_id]


def test_static_members_that_need_no_id_are_waited_for_as_well() -> None:
    d = desk()
    calls = []
    for name in "abc":
        calls.append(d.join(instance=name))
        d.advance(QUIET_MS - 1)
    assert all(map(d.waits, calls))
    d.advance(QUIET_MS)
    assert [d.answer(call).generation_id for call in calls] == [1, 1, 1]


def test_to_join_with_an_id_that_was_handed_out_tells_of_nobody_else() -> None:
    d = desk()
    d.join_new()
    late = d.answer(d.join()).member_id
    d.advance(QUIET_MS + 5)
    call = d.join(late)
    assert d.answer(call).generation_id == 1


def test_the_longer_they_have_been_coming_the_longer_a_gap_may_be() -> None:
    d = desk()
    calls = [d.join_new()[1]]
    for _ in range(5):
        d.advance(QUIET_MS - 2)
        calls.append(d.join_new()[1])
    half = 5 * (QUIET_MS - 2) // 2
    assert half > QUIET_MS
    d.advance(half - 1)
    assert all(map(d.waits, calls))
    d.advance(1)
    assert {d.answer(call).generation_id for call in calls} == {1}


def test_however_many_come_a_phase_that_everyone_has_joined_ends_in_its_time() -> None:
    d = desk()
    calls: list[int] = []
    while not calls or d.waits(calls[0]):
        calls.append(d.join_new()[1])
        d.advance(QUIET_MS // 2)
    assert d.rebalances()[0].join_phase_ms == LINGER_MS


def test_a_round_of_a_stable_group_lingers_where_a_member_is_new() -> None:
    d = desk()
    leader, follower = d.stable()
    _, new = d.join_new()
    calls = [d.join(leader), d.join(follower)]
    assert all(map(d.waits, [new, *calls]))
    d.advance(QUIET_MS)
    assert {d.answer(call).generation_id for call in [new, *calls]} == {d.group.generation_id}


def test_a_round_to_which_nobody_new_has_come_ends_at_once() -> None:
    d = desk()
    leader, follower = d.stable()
    d.advance(QUIET_MS)
    generation_id = d.group.generation_id
    calls = [d.join(leader), d.join(follower)]
    assert [d.answer(call).generation_id for call in calls] == [generation_id + 1] * 2


def test_members_who_come_late_to_a_round_do_not_lengthen_it() -> None:
    d = desk()
    leader, follower = d.stable()
    d.join_new()
    d.advance(LINGER_MS)
    calls = [d.join(leader), d.join(follower)]
    assert not any(map(d.waits, calls))


def test_a_group_that_all_have_left_does_not_linger() -> None:
    d = desk()
    member_id, _ = d.join_new()
    d.leave(member_id)
    assert d.state() is State.EMPTY
    assert lingers(d) == 0


def test_a_join_phase_that_its_own_time_ends_leaves_no_timer_behind() -> None:
    d = desk()
    _, call = d.join_new(rebalance_ms=10)
    assert lingers(d) == 1
    d.advance(10)
    assert d.answer(call).generation_id == 1
    assert lingers(d) == 0


def test_the_initial_delay_has_its_own_rule() -> None:
    d = desk(delay_ms=3_000)
    _, call = d.join_new()
    assert lingers(d) == 0
    d.advance(3_000)
    assert d.answer(call).generation_id == 1


@pytest.mark.parametrize("instance", [None, "a"])
def test_without_a_linger_a_phase_ends_with_its_last_join_as_in_kafka(instance: str | None) -> None:
    d = desk(linger_ms=0)
    call = d.join_new()[1] if instance is None else d.join(instance=instance)
    assert d.answer(call).generation_id == 1


def test_a_crash_forgets_a_linger() -> None:
    d = desk()
    d.join_new()
    d.crash()
    assert d.group.lingers_until_ms is None
    assert lingers(d) == 0
