"""A rebalance that goes on without those that it waits for: at an operator's word, and after a time that one has set.

Kafka has neither: there the members' rebalance timeouts alone end a join phase. What follows then is Kafka's rule.
"""

import pytest

from rallypoint.coordinator.core.commands import Rules, TimerFired, TimerKind, Trigger
from rallypoint.coordinator.core.effects import Failure, JoinPhaseEnded, MembersRemoved, RebalanceBegan
from rallypoint.coordinator.core.group import State
from rallypoint.protocol import admin_messages as admin
from rallypoint.protocol.errors import ErrorCode
from tests.conformance.group_harness import GroupHarness


def answered(harness: GroupHarness, call: int) -> admin.ProceedAnswer:
    answer = harness.answer(call)
    assert isinstance(answer, admin.ProceedAnswer), answer
    return answer


def who(answer: admin.ProceedAnswer) -> list[tuple[str, str]]:
    return [(entry.awaited_for, entry.member_id) for entry in answer.left_out]


# --- an operator's word ----------------------------------------------------------------------------------------------


def test_whoever_is_awaited_is_left_out_and_the_others_form_a_generation() -> None:
    harness = GroupHarness()
    leader, follower = harness.stable()
    waiting = harness.join(leader)
    under_way = harness.group.rebalance_id
    answer = answered(harness, harness.proceed("slow"))
    assert (who(answer), answer.left_out_count, answer.rebalance_id) == ([("join", follower)], 1, under_way)
    assert harness.answer(waiting).generation_id == harness.group.generation_id == 2
    assert list(harness.group.members) == [leader]
    assert harness.code(harness.heartbeat(follower)) is ErrorCode.UNKNOWN_MEMBER_ID
    assert MembersRemoved("g", Trigger.MEMBER_LEFT_OUT, (follower,), 1, "slow") in harness.events
    newest = harness.rebalances()[0]
    assert [(x.trigger, x.reason) for x in newest.further] == [
        ("member_left_out", f"an operator let the group go on without {follower}: slow")
    ]


def test_with_nobody_there_to_go_on_it_is_refused() -> None:
    harness = GroupHarness()
    leader, follower = harness.stable()
    harness.start_rebalance()
    before = dict(harness.log)
    call = harness.proceed()
    failure = harness.answer(call)
    assert isinstance(failure, Failure)
    assert (failure.code, failure.detail) == (
        ErrorCode.INVALID_REQUEST,
        "Nobody has joined the rebalance yet, so there is nobody to go on with.",
    )
    assert (harness.log, set(harness.group.members)) == (before, {leader, follower})


@pytest.mark.parametrize("state", ["absent", "empty", "stable"])
def test_where_no_rebalance_is_under_way_nothing_is_to_do(state: str) -> None:
    harness = GroupHarness()
    if state == "absent":
        assert harness.code(harness.proceed()) is ErrorCode.GROUP_ID_NOT_FOUND
        return
    leader, follower = harness.stable()
    if state == "empty":
        harness.leave(leader, follower)
    before = dict(harness.log)
    answer = answered(harness, harness.proceed())
    assert (answer.rebalance_id, answer.left_out, harness.log) == (None, (), before)


def test_static_members_and_ids_that_were_handed_out_are_left_out_too() -> None:
    harness = GroupHarness()
    leader, static = harness.stable(instance="i")
    pending = harness.answer(harness.join()).member_id
    waiting = harness.join(leader)
    answer = answered(harness, harness.proceed())
    assert who(answer) == [("join", static), ("join", pending)]
    assert not harness.waits(waiting)
    assert harness.code(harness.join(pending)) is ErrorCode.UNKNOWN_MEMBER_ID
    assert harness.code(harness.join(static, instance="i")) is ErrorCode.UNKNOWN_MEMBER_ID
    again = harness.join(instance="i")
    assert harness.waits(again), "it comes back as a new member, and its slot is free"


def test_the_leader_is_awaited_and_another_one_leads() -> None:
    harness = GroupHarness()
    leader, follower = harness.stable()
    third, waiting = harness.join_new()
    joined = harness.join(follower)
    assert who(answered(harness, harness.proceed())) == [("join", leader)]
    assert harness.answer(joined).leader == follower
    assert harness.answer(waiting).leader == follower
    assert set(harness.group.members) == {follower, third}


def test_a_leader_that_brings_no_assignment_is_left_out_and_all_join_again() -> None:
    harness = GroupHarness()
    leader, follower = harness.stable()
    harness.join(leader)
    harness.join(follower)
    assert harness.state() is State.COMPLETING_REBALANCE
    waiting = harness.sync(follower)
    harness.events.clear()
    answer = answered(harness, harness.proceed("hangs"))
    assert who(answer) == [("assignment", leader)]
    began = [event for event in harness.events if isinstance(event, RebalanceBegan)]
    assert [(x.trigger, x.rebalance_id) for x in began] == [(Trigger.MEMBER_LEFT_OUT, answer.rebalance_id)]
    assert (harness.code(waiting), harness.state()) == (ErrorCode.REBALANCE_IN_PROGRESS, State.PREPARING_REBALANCE)
    assert list(harness.group.members) == [follower]


def test_in_the_initial_delay_it_ends_the_delay() -> None:
    harness = GroupHarness()
    member, waiting = harness.join_new()
    answer = answered(harness, harness.proceed())
    assert (answer.left_out, answer.rebalance_id) == ((), 1)
    assert harness.answer(waiting).leader == member


def test_a_dry_run_leaves_nobody_out() -> None:
    harness = GroupHarness()
    leader, follower = harness.stable()
    waiting = harness.join(leader)
    before, events = dict(harness.log), len(harness.events)
    answer = answered(harness, harness.proceed(dry_run=True))
    assert (who(answer), answer.dry_run, answer.rebalance_id) == ([("join", follower)], True, 2)
    assert (harness.waits(waiting), harness.log, len(harness.events)) == (True, before, events)


def test_a_crash_does_not_bring_back_whom_it_left_out() -> None:
    harness = GroupHarness()
    leader, _ = harness.stable()
    harness.join(leader)
    harness.proceed()
    harness.crash()
    assert list(harness.group.members) == [leader]
    assert harness.state() is State.PREPARING_REBALANCE, "what it owned is nobody's"


def test_in_a_freeze_nobody_is_awaited() -> None:
    harness = GroupHarness()
    leader, follower = harness.stable()
    harness.freeze(5_000)
    newcomer, waiting = harness.join_new()
    answer = answered(harness, harness.proceed())
    assert (answer.rebalance_id, answer.left_out) == (None, ())
    assert harness.waits(waiting)
    assert set(harness.group.members) == {leader, follower, newcomer}


# --- the longest wait for joins --------------------------------------------------------------------------------------


def test_the_wait_for_joins_ends_before_the_members_own_and_says_so() -> None:
    harness = GroupHarness()
    leader, follower = harness.stable(rebalance_ms=60_000)
    assert harness.answer(harness.join_wait(4_000)) == admin.JoinWaitAnswer(
        group_id="g", join_wait_max_ms=4_000, is_default=False
    )
    waiting = harness.join(leader, rebalance_ms=60_000)
    beat = harness.answer(harness.heartbeat(follower))
    assert (beat.code, beat.rejoin_within_ms) == (ErrorCode.REBALANCE_IN_PROGRESS, 4_000)
    harness.advance(3_999)
    assert harness.waits(waiting)
    assert harness.answer(harness.heartbeat(follower)).rejoin_within_ms == 1
    harness.advance(1)
    assert harness.answer(waiting).generation_id == 2
    ended = [event for event in harness.events if isinstance(event, JoinPhaseEnded)]
    assert (ended[-1].duration_ms, ended[-1].member_count) == (4_000, 1)
    assert [(x.trigger, x.reason) for x in harness.rebalances()[0].further] == [
        ("member_left_out", f"left out after 4000 ms, for join_wait_max_ms is 4000: {follower}")
    ]
    assert harness.code(harness.heartbeat(follower)) is ErrorCode.UNKNOWN_MEMBER_ID


def test_with_nobody_there_it_waits_on_until_one_comes_or_the_members_own_time_is_over() -> None:
    harness = GroupHarness()
    leader, follower = harness.stable(rebalance_ms=60_000, session_ms=300_000)
    harness.join_wait(4_000)
    harness.start_rebalance()
    harness.advance(10_000)
    assert set(harness.group.members) == {leader, follower}
    waiting = harness.join(leader, rebalance_ms=60_000, session_ms=300_000)
    harness.advance(3_000)
    assert harness.answer(waiting).generation_id == 2
    assert list(harness.group.members) == [leader]
    harness.settle_generation(leader)
    harness.start_rebalance()
    harness.advance(60_000)
    assert harness.state() is State.EMPTY, "nobody came in the members' own time"


def test_static_members_keep_their_slots() -> None:
    harness = GroupHarness()
    leader, static = harness.stable(instance="i", session_ms=300_000, rebalance_ms=60_000)
    harness.join_wait(4_000)
    waiting = harness.join(leader, session_ms=300_000, rebalance_ms=60_000)
    harness.advance(4_000)
    assert [x.member_id for x in harness.answer(waiting).members] == [leader, static]
    assert harness.rebalances()[0].further_count == 0


def test_it_counts_for_a_phase_under_way_and_can_be_taken_back() -> None:
    harness = GroupHarness()
    leader, _ = harness.stable(rebalance_ms=60_000, session_ms=300_000)
    waiting = harness.join(leader, rebalance_ms=60_000, session_ms=300_000)
    harness.advance(5_000)
    harness.join_wait(20_000)
    harness.join_wait(None)
    harness.advance(20_000)
    assert harness.waits(waiting)
    harness.join_wait(4_000)
    harness.advance(0)
    assert harness.answer(waiting).generation_id == 2


@pytest.mark.parametrize(("rebalance_ms", "wait_ms"), [(8_000, 20_000), (5_000, None)])
def test_a_timer_that_fired_behind_the_store_ends_no_phase_that_was_moved_before_its_turn(
    rebalance_ms: int, wait_ms: int | None
) -> None:
    """The call to change the wait came first, and waited for the store, too."""
    harness = GroupHarness()
    leader, _ = harness.stable(rebalance_ms=rebalance_ms, session_ms=300_000)
    harness.join_wait(5_000)
    waiting = harness.join(leader, rebalance_ms=rebalance_ms, session_ms=300_000)
    (key,) = [key for key in harness.timers if key.kind is TimerKind.JOIN]
    harness.now_ms += 5_000
    del harness.timers[key]
    harness.join_wait(wait_ms)
    harness.tell(TimerFired(key))
    if rebalance_ms > 5_000:
        assert harness.waits(waiting)
        harness.advance(3_000)
    assert harness.answer(waiting).generation_id == 2
    assert [key for key in harness.timers if key.kind is TimerKind.JOIN] == []


def test_it_is_stored_and_the_settings_have_one_for_all() -> None:
    harness = GroupHarness(rules=Rules(group_min_session_timeout_ms=1, group_join_linger_ms=0, join_wait_max_ms=7_000))
    harness.stable(rebalance_ms=60_000)
    assert harness.answer(harness.describe()).join_wait_max_ms == 7_000
    harness.join_wait(4_000)
    harness.crash()
    assert harness.answer(harness.describe()).join_wait_max_ms == 4_000
    assert harness.answer(harness.join_wait(None)) == admin.JoinWaitAnswer(
        group_id="g", join_wait_max_ms=7_000, is_default=True
    )
    harness.crash()
    assert (harness.answer(harness.describe()).join_wait_max_ms, "hold" in str(list(harness.log))) == (7_000, False)


@pytest.mark.parametrize("wait_ms", [0, 2_999])
def test_one_in_which_a_member_may_not_hear_of_the_rebalance_is_refused(wait_ms: int) -> None:
    harness = GroupHarness()
    harness.stable()
    failure = harness.answer(harness.join_wait(wait_ms))
    assert (failure.code, failure.field) == (ErrorCode.INVALID_REQUEST, "join_wait_max_ms")
    assert "must be 3000 or more, which is heartbeat_interval_ms" in failure.detail
    assert harness.answer(harness.describe()).join_wait_max_ms is None


def test_a_group_that_is_not_there_has_none() -> None:
    harness = GroupHarness()
    assert harness.code(harness.join_wait(5_000)) is ErrorCode.GROUP_ID_NOT_FOUND
