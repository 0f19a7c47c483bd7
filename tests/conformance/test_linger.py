"""A join phase that new members have come to lingers for more of them, and for nobody else."""

import pytest

from rallypoint.coordinator.core.commands import Rules, TimerKind
from rallypoint.coordinator.core.group import State
from rallypoint.coordinator.core.linger import QUIET_MS
from tests.conformance.group_harness import GroupHarness

LINGER_MS = 250


def group_harness(delay_ms: int = 0, linger_ms: int = LINGER_MS) -> GroupHarness:
    return GroupHarness(
        rules=Rules(
            group_min_session_timeout_ms=1,
            group_initial_rebalance_delay_ms=delay_ms,
            group_join_linger_ms=linger_ms,
        )
    )


def lingers(harness: GroupHarness) -> int:
    return sum(key.kind is TimerKind.LINGER for key in harness.timers)


def test_a_member_that_comes_alone_waits_until_it_has_been_quiet_and_no_longer() -> None:
    harness = group_harness()
    _, call = harness.join_new()
    harness.advance(QUIET_MS - 1)
    assert harness.waits(call)
    harness.advance(1)
    assert harness.answer(call).generation_id == 1
    assert lingers(harness) == 0


def test_members_that_start_together_make_one_generation() -> None:
    harness = group_harness()
    first_id, first = harness.join_new()
    harness.advance(QUIET_MS - 1)
    second_id, second = harness.join_new()
    harness.advance(QUIET_MS - 1)
    third_id, third = harness.join_new()
    harness.advance(QUIET_MS)
    assert [harness.answer(call).generation_id for call in (first, second, third)] == [1, 1, 1]
    assert [member.member_id for member in harness.answer(first).members] == [first_id, second_id, third_id]


def test_static_members_that_need_no_id_are_waited_for_as_well() -> None:
    harness = group_harness()
    calls = []
    for name in "abc":
        calls.append(harness.join(instance=name))
        harness.advance(QUIET_MS - 1)
    assert all(map(harness.waits, calls))
    harness.advance(QUIET_MS)
    assert [harness.answer(call).generation_id for call in calls] == [1, 1, 1]


def test_to_join_with_an_id_that_was_handed_out_tells_of_nobody_else() -> None:
    harness = group_harness()
    harness.join_new()
    late = harness.answer(harness.join()).member_id
    harness.advance(QUIET_MS + 5)
    call = harness.join(late)
    assert harness.answer(call).generation_id == 1


def test_the_longer_they_have_been_coming_the_longer_a_gap_may_be() -> None:
    harness = group_harness()
    calls = [harness.join_new()[1]]
    for _ in range(5):
        harness.advance(QUIET_MS - 2)
        calls.append(harness.join_new()[1])
    half = 5 * (QUIET_MS - 2) // 2
    assert half > QUIET_MS
    harness.advance(half - 1)
    assert all(map(harness.waits, calls))
    harness.advance(1)
    assert {harness.answer(call).generation_id for call in calls} == {1}


def test_however_many_come_a_phase_that_everyone_has_joined_ends_in_its_time() -> None:
    harness = group_harness()
    calls: list[int] = []
    while not calls or harness.waits(calls[0]):
        calls.append(harness.join_new()[1])
        harness.advance(QUIET_MS // 2)
    assert harness.rebalances()[0].join_phase_ms == LINGER_MS


def test_a_rebalance_of_a_stable_group_lingers_where_a_member_is_new() -> None:
    harness = group_harness()
    leader, follower = harness.stable()
    _, new = harness.join_new()
    calls = [harness.join(leader), harness.join(follower)]
    assert all(map(harness.waits, [new, *calls]))
    harness.advance(QUIET_MS)
    assert {harness.answer(call).generation_id for call in [new, *calls]} == {harness.group.generation_id}


def test_a_rebalance_to_which_nobody_new_has_come_ends_at_once() -> None:
    harness = group_harness()
    leader, follower = harness.stable()
    harness.advance(QUIET_MS)
    generation_id = harness.group.generation_id
    calls = [harness.join(leader), harness.join(follower)]
    assert [harness.answer(call).generation_id for call in calls] == [generation_id + 1] * 2


def test_members_who_come_late_to_a_rebalance_do_not_lengthen_it() -> None:
    harness = group_harness()
    leader, follower = harness.stable()
    harness.join_new()
    harness.advance(LINGER_MS)
    calls = [harness.join(leader), harness.join(follower)]
    assert not any(map(harness.waits, calls))


def test_a_group_that_all_have_left_does_not_linger() -> None:
    harness = group_harness()
    member_id, _ = harness.join_new()
    harness.leave(member_id)
    assert harness.state() is State.EMPTY
    assert lingers(harness) == 0


def test_a_join_phase_that_its_own_time_ends_leaves_no_timer_behind() -> None:
    harness = group_harness()
    _, call = harness.join_new(rebalance_ms=10)
    assert lingers(harness) == 1
    harness.advance(10)
    assert harness.answer(call).generation_id == 1
    assert lingers(harness) == 0


def test_the_initial_delay_has_its_own_rule() -> None:
    harness = group_harness(delay_ms=3_000)
    _, call = harness.join_new()
    assert lingers(harness) == 0
    harness.advance(3_000)
    assert harness.answer(call).generation_id == 1


@pytest.mark.parametrize("instance", [None, "a"])
def test_without_a_linger_a_phase_ends_with_its_last_join_as_in_kafka(instance: str | None) -> None:
    harness = group_harness(linger_ms=0)
    call = harness.join_new()[1] if instance is None else harness.join(instance=instance)
    assert harness.answer(call).generation_id == 1


def test_a_crash_forgets_a_linger() -> None:
    harness = group_harness()
    harness.join_new()
    harness.crash()
    assert harness.group.lingers_until_ms is None
    assert lingers(harness) == 0
