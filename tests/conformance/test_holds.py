"""Rebalances held back by a freeze or a cool-down, and let go as one. Ours throughout; Kafka holds nothing."""

from dataclasses import replace
from typing import Any

import pytest

from rallypoint.coordinator.core import invariants
from rallypoint.coordinator.core.commands import Rules, TimerKind
from rallypoint.coordinator.core.effects import GroupFrozen, GroupThawed, RebalanceBegan, RebalanceHeld
from rallypoint.coordinator.core.group import State
from rallypoint.protocol import admin_messages as admin
from rallypoint.protocol import messages as m
from rallypoint.protocol.errors import ErrorCode
from tests.conformance.group_harness import GroupHarness, consumer

RULES = Rules(group_min_session_timeout_ms=1, group_join_linger_ms=0, parked_call_max_wait_ms=10_000_000)
LONG: dict[str, Any] = {"session_ms": 600_000}
FREEZE_MS = 60_000


def frozen(duration_ms: int = FREEZE_MS, **second: Any) -> tuple[GroupHarness, str, str]:
    """A Stable group of a leader and a follower, frozen."""
    harness = GroupHarness(rules=RULES)
    leader, follower = harness.stable(**(LONG | second))
    assert harness.code(harness.freeze(duration_ms)) is ErrorCode.NONE
    return harness, leader, follower


def held(harness: GroupHarness) -> list[str]:
    return [cause.trigger for cause in harness.answer(harness.describe()).held]


def begun(harness: GroupHarness) -> int:
    return sum(isinstance(event, RebalanceBegan) for event in harness.events)


def still(harness: GroupHarness) -> bool:
    """The generation stands, and the group is as it should be."""
    invariants.check(harness.group)
    return (harness.state(), harness.group.generation_id, begun(harness)) == (State.STABLE, 1, 1)


# --- what holds ------------------------------------------------------------------------------------------------------


def test_a_freeze_is_bounded_named_and_seen() -> None:
    harness, *_ = frozen()
    assert harness.answer(harness.calls) == admin.FreezeAnswer(
        group_id="g", frozen_until_ms=harness.now_ms + FREEZE_MS, reason=None, held_count=0, freeze_until="time"
    )
    refused = harness.answer(harness.freeze(RULES.rebalance_freeze_max_ms + 1))
    assert (refused.code, refused.field) == (ErrorCode.INVALID_REQUEST, "duration_ms")
    assert "rebalance_freeze_max_ms" in refused.detail
    assert (refused.limit, refused.limit_name) == (RULES.rebalance_freeze_max_ms, "rebalance_freeze_max_ms")
    refused = harness.answer(harness.cooldown(RULES.rebalance_cooldown_max_ms + 1))
    assert (refused.code, refused.field) == (ErrorCode.INVALID_REQUEST, "cooldown_ms")
    assert harness.code(harness.freeze(RULES.rebalance_freeze_max_ms, "deploy" * 100)) is ErrorCode.NONE
    described = harness.answer(harness.describe())
    assert described.frozen_until_ms == harness.now_ms + RULES.rebalance_freeze_max_ms
    assert described.freeze_reason == ("deploy" * 100)[:255]
    assert [type(e) for e in harness.events if isinstance(e, GroupFrozen)] == [GroupFrozen] * 2


def test_all_that_would_start_a_rebalance_is_held_and_one_starts_when_the_freeze_is_over() -> None:
    harness, leader, follower = frozen()
    third, third_join = harness.join_new()
    leader_join = harness.join(leader)
    harness.leave(follower)
    harness.topics(t=9)
    assert held(harness) == ["member_joined", "leader_rejoined", "member_left", "topic_changed"]
    assert still(harness)
    assert [e.trigger.value for e in harness.events if isinstance(e, RebalanceHeld)] == held(harness)
    harness.advance(FREEZE_MS - 1)
    assert still(harness)
    harness.advance(1)
    assert harness.state() is State.COMPLETING_REBALANCE, "the two that are left have joined already"
    assert (begun(harness), harness.group.generation_id) == (2, 2)
    assert {harness.answer(leader_join).generation_id, harness.answer(third_join).generation_id} == {2}
    newest = harness.rebalances()[0]
    assert (newest.trigger, newest.member_id, newest.further_count) == ("member_joined", third, 3)
    assert [x.trigger for x in newest.further] == ["leader_rejoined", "member_left", "topic_changed"]
    assert newest.began_at_ms == harness.now_ms
    assert held(harness) == []
    assert harness.group.hold is None
    assert ("hold",) not in harness.log, "a freeze that is over is not kept"
    assert [e for e in harness.events if isinstance(e, GroupThawed)] == [GroupThawed("g", lifted=False)]


def test_a_freeze_that_held_nothing_ends_without_a_rebalance() -> None:
    harness, leader, follower = frozen()
    harness.advance(FREEZE_MS)
    assert still(harness)
    assert harness.group.hold is None
    assert not [key for key in harness.timers if key.kind is TimerKind.HOLD]
    assert harness.code(harness.heartbeat(leader)) is harness.code(harness.heartbeat(follower)) is ErrorCode.NONE


@pytest.mark.parametrize("how", ["delete", "zero"])
def test_an_operator_lifts_the_freeze_and_what_was_held_starts_at_once(how: str) -> None:
    harness, _, follower = frozen()
    harness.leave(follower)
    answer = harness.answer(harness.thaw() if how == "delete" else harness.freeze(0))
    assert answer == admin.FreezeAnswer(group_id="g", frozen_until_ms=None, reason=None, held_count=0)
    assert (harness.state(), begun(harness)) == (State.PREPARING_REBALANCE, 2)
    assert GroupThawed("g", lifted=True) in harness.events
    assert not [key for key in harness.timers if key.kind is TimerKind.HOLD]
    again = harness.answer(harness.thaw())
    assert again.held_count == 0, "a group that is not frozen stays as it is"
    assert sum(isinstance(e, GroupThawed) for e in harness.events) == 1


def test_a_second_freeze_replaces_the_first_longer_or_shorter() -> None:
    harness, _, follower = frozen()
    harness.leave(follower)
    harness.freeze(2 * FREEZE_MS)
    harness.advance(FREEZE_MS)
    assert still(harness)
    harness.freeze(1_000)
    harness.advance(999)
    assert still(harness)
    harness.advance(1)
    assert harness.state() is State.PREPARING_REBALANCE


# --- who waits, and who goes on --------------------------------------------------------------------------------------


def test_a_new_member_waits_and_has_no_rights() -> None:
    harness, leader, follower = frozen()
    third, join = harness.join_new(session_ms=10_000)
    assert harness.waits(join)
    for call in (
        harness.heartbeat(third, 1),
        harness.sync(third, 1),
        harness.commit(third, 1),
        harness.commit(third, -1),
    ):
        assert harness.code(call) is ErrorCode.ILLEGAL_GENERATION
    assert harness.fetch() == {}
    assert harness.code(harness.heartbeat(leader)) is ErrorCode.NONE
    assert harness.code(harness.commit(follower)) is ErrorCode.NONE
    assert harness.code(harness.sync(follower)) is ErrorCode.NONE


def test_a_new_member_goes_on_waiting_by_asking_again_and_is_counted_once() -> None:
    harness, *_ = frozen()
    third, first = harness.join_new(max_wait_ms=1_000, session_ms=5_000)
    for _ in range(10):
        harness.advance(1_000)
        assert isinstance(harness.answer(first), m.WaitingAnswer)
        first = harness.join(third, max_wait_ms=1_000, session_ms=5_000)
    assert held(harness) == ["member_joined"]
    assert third in harness.group.members
    harness.thaw()
    assert harness.waits(first)


def test_a_new_member_that_does_not_ask_again_expires() -> None:
    harness, *_ = frozen()
    third, _ = harness.join_new(max_wait_ms=1_000, session_ms=5_000)
    harness.advance(6_100)
    assert third not in harness.group.members
    assert held(harness) == ["member_joined", "member_expired"]


def test_the_time_that_a_new_member_may_wait_counts_from_the_beginning_of_its_rebalance() -> None:
    harness, leader, _ = frozen(RULES.rebalance_freeze_max_ms, rebalance_ms=400_000, session_ms=1_800_000)
    third, join = harness.join_new(session_ms=10_000)
    harness.advance(RULES.rebalance_freeze_max_ms - 1)
    assert harness.waits(join), "the five minutes of a new member are over, and it is not to blame"
    harness.advance(1)
    assert harness.state() is State.PREPARING_REBALANCE
    harness.advance(RULES.new_member_join_timeout_ms - 1)
    assert third in harness.group.members
    harness.advance(1)
    assert third not in harness.group.members, "in a join phase they count"
    assert harness.code(join) is ErrorCode.UNKNOWN_MEMBER_ID
    assert leader in harness.group.members


def test_a_leader_that_joins_again_waits_and_the_assignment_stands() -> None:
    harness, leader, follower = frozen()
    join = harness.join(leader, request_id="once")
    assert harness.waits(join)
    repeated = harness.join(leader, request_id="once")
    assert harness.answer(join).superseded
    again = harness.join(leader)
    assert harness.answer(repeated).superseded
    assert harness.waits(again)
    assert held(harness) == ["leader_rejoined"], "to ask again is no other reason"
    assert harness.code(harness.heartbeat(follower)) is ErrorCode.NONE
    assert harness.answer(harness.sync(follower)).assignment.value == {"partitions": {"t": [1]}}
    assert still(harness)


def test_a_member_with_another_subscription_waits_also_when_it_says_it_twice() -> None:
    harness, _, follower = frozen()
    other = (("range", consumer("u")),)
    join = harness.join(follower, protocols=other)
    again = harness.join(follower, protocols=other)
    assert harness.waits(again), "it said the same as before, but what it said is not what it was given"
    assert harness.answer(join).superseded
    assert held(harness) == ["subscription_changed"]
    harness.join(follower, protocols=(("range", consumer("u", "v")),))
    assert held(harness) == ["subscription_changed"] * 2
    assert still(harness)


def test_a_member_that_leaves_or_expires_is_out_at_once() -> None:
    harness, leader, follower = frozen(session_ms=20_000)
    third_call = harness.commit(follower)
    assert harness.code(third_call) is ErrorCode.NONE
    for _ in range(3):
        harness.advance(10_000)
        harness.heartbeat(leader)
    assert follower not in harness.group.members
    assert harness.code(harness.heartbeat(follower, 1)) is ErrorCode.UNKNOWN_MEMBER_ID
    assert harness.code(harness.commit(follower, 1)) is ErrorCode.UNKNOWN_MEMBER_ID
    assert held(harness) == ["member_expired"]
    assert still(harness)
    assert [x.member_id for x in harness.answer(harness.describe()).members] == [leader]


def test_a_member_that_asked_for_no_part_is_out_though_the_group_is_frozen() -> None:
    harness = GroupHarness(rules=RULES)
    leader, follower = harness.stable()
    harness.join(leader)
    harness.join(follower)
    harness.sync(leader, assignments={leader: {"partitions": {"t": [0]}}})
    harness.freeze(FREEZE_MS)
    for _ in range(10):
        harness.advance(1_100)
        harness.heartbeat(leader)
        harness.heartbeat(follower)
    assert follower not in harness.group.members
    assert held(harness) == ["sync_timed_out"]
    assert harness.state() is State.STABLE


def test_who_joined_anew_need_not_ask_for_the_part_it_leaves() -> None:
    harness = GroupHarness(rules=RULES)
    leader, follower = harness.stable(**LONG)
    harness.join(leader, **LONG)
    harness.join(follower, **LONG)
    harness.sync(leader, assignments={leader: {"partitions": {"t": [0]}}})
    harness.freeze(FREEZE_MS)
    harness.join(follower, protocols=(("range", consumer("u")),))
    harness.advance(30_000)
    assert follower in harness.group.members
    assert held(harness) == ["subscription_changed"]


# --- what never waits ------------------------------------------------------------------------------------------------


def test_a_hold_protects_nobody_once_the_last_member_of_the_generation_has_gone() -> None:
    harness, leader, follower = frozen()
    third, join = harness.join_new()
    harness.leave(leader)
    assert harness.waits(join)
    harness.leave(follower)
    assert harness.answer(join).leader == third
    assert (harness.state(), harness.group.generation_id) == (State.COMPLETING_REBALANCE, 2)
    newest = harness.rebalances()[0]
    assert (newest.trigger, newest.further_count) == ("member_left", 2)
    assert harness.answer(harness.describe()).frozen_until_ms is not None, "the freeze goes on for what is Stable next"


def test_when_everyone_has_gone_the_group_is_empty_frozen_or_not_and_may_form_anew() -> None:
    harness, leader, follower = frozen()
    harness.leave(leader, follower)
    assert harness.state() is State.EMPTY
    third, join = harness.join_new()
    harness.advance_until_answered(join)
    harness.sync(third, assignments={third: {"partitions": {"t": [0]}}})
    assert (harness.state(), harness.group.generation_id) == (State.STABLE, 3)
    harness.join_new()
    assert held(harness) == ["member_joined"], "what is Stable now is frozen as before"


@pytest.mark.parametrize("state", [State.PREPARING_REBALANCE, State.COMPLETING_REBALANCE])
def test_a_rebalance_under_way_goes_on_to_its_end(state: State) -> None:
    harness = GroupHarness(rules=RULES)
    leader, follower = harness.stable(session_ms=60_000)
    harness.join(leader)
    if state is State.COMPLETING_REBALANCE:
        harness.join(follower)
    harness.freeze(FREEZE_MS)
    third, _ = harness.join_new()
    assert harness.state() is State.PREPARING_REBALANCE
    for who in (leader, follower):
        harness.join(who)
    assert harness.state() is State.COMPLETING_REBALANCE
    harness.settle_generation(leader, follower, third)
    harness.leave(third)
    assert (harness.state(), held(harness)) == (State.STABLE, ["member_left"])


def test_an_operators_word_is_not_held_and_takes_along_what_was() -> None:
    harness, leader, follower = frozen()
    third, _ = harness.join_new()
    assert harness.answer(harness.start_rebalance()).started
    assert harness.state() is State.PREPARING_REBALANCE
    newest = harness.rebalances()[0]
    assert (newest.trigger, [x.member_id for x in newest.further]) == ("operator", [third])
    harness.join(leader, **LONG)
    harness.join(follower, **LONG)
    harness.settle_generation(leader, follower, third)
    harness.leave(third)
    assert held(harness) == ["member_left"], "the freeze stands"
    harness.advance(FREEZE_MS)
    assert harness.state() is State.PREPARING_REBALANCE


# --- static members --------------------------------------------------------------------------------------------------


def test_a_static_member_that_comes_back_the_same_is_not_held_up() -> None:
    harness, leader, old = frozen(instance="i")
    harness.join_new()
    join = harness.join("", instance="i")
    new = harness.answer(join).member_id
    assert new != old
    assert harness.answer(join).generation_id == 1
    assert harness.answer(harness.sync(new, instance="i")).assignment.value == {"partitions": {"t": [1]}}
    assert harness.code(harness.heartbeat(old, instance="i")) is ErrorCode.FENCED_INSTANCE_ID
    assert still(harness)
    assert leader in harness.group.members


def test_a_static_member_that_came_with_the_freeze_is_not_given_a_part_by_coming_back() -> None:
    harness, *_ = frozen()
    first = harness.join("", instance="i")
    second = harness.join("", instance="i")
    assert harness.code(first) is ErrorCode.FENCED_INSTANCE_ID
    assert harness.waits(second), "its slot has no part in the generation"
    holder_id = harness.group.static_members["i"]
    assert harness.code(harness.commit(holder_id, 1, instance="i")) is ErrorCode.ILLEGAL_GENERATION
    assert still(harness)


def test_a_static_member_with_another_subscription_waits_in_its_slot() -> None:
    harness, leader, _ = frozen(instance="i")
    join = harness.join("", instance="i", protocols=(("range", consumer("u")),))
    assert harness.waits(join)
    assert held(harness) == ["static_member_replaced"]
    again = harness.join("", instance="i", protocols=(("range", consumer("u")),))
    assert harness.code(join) is ErrorCode.FENCED_INSTANCE_ID
    assert harness.waits(again)
    harness.thaw()
    harness.join(leader)
    assert harness.answer(again).generation_id == 2
    invariants.check(harness.group)


def test_a_vote_of_those_who_wait_does_not_count_for_the_present_protocol() -> None:
    harness = GroupHarness(rules=RULES)
    both = (("range", consumer("t")), ("roundrobin", consumer("t")))
    turned = (("roundrobin", consumer("t")), ("range", consumer("t")))
    first, join = harness.join_new(protocols=both, session_ms=600_000)
    slot = harness.join("", instance="i", protocols=both)
    harness.advance_until_answered(join, slot)
    harness.settle_generation(first, harness.answer(slot).member_id)
    harness.freeze(FREEZE_MS)
    for _ in range(3):
        harness.join_new(protocols=turned)
    assert harness.code(harness.join("", instance="i", protocols=both)) is ErrorCode.NONE, "nothing moved for the slot"
    assert harness.group.protocol_name == "range"


# --- crashes ---------------------------------------------------------------------------------------------------------


def test_a_crash_does_not_thaw_and_what_was_a_reason_becomes_one_again() -> None:
    harness, leader, follower = frozen(session_ms=10_000)
    _, join = harness.join_new()
    harness.leave(follower)
    harness.topics(t=7)
    assert len(held(harness)) == 3
    harness.advance(5_000)
    harness.heartbeat(leader)
    harness.answers[join] = m.HeartbeatAnswer()  # Its process' call is cut off.
    harness.crash()
    invariants.check(harness.group)
    assert harness.answer(harness.describe()).frozen_until_ms == harness.now_ms + FREEZE_MS - 5_000
    assert harness.group.members.keys() == {leader, follower}, "who had left is back until its session ends"
    assert held(harness) == ["topic_changed"]
    for _ in range(3):
        harness.advance(5_000)
        assert harness.code(harness.heartbeat(leader)) is ErrorCode.NONE
    assert held(harness) == ["topic_changed", "member_expired"]
    _, join = harness.join_new(max_wait_ms=100_000)
    for _ in range(8):
        harness.advance(5_000)
        harness.heartbeat(leader)
    assert harness.state() is State.PREPARING_REBALANCE
    newest = harness.rebalances()[0]
    assert (newest.rebalance_id, newest.trigger, newest.further_count) == (2, "topic_changed", 2)


def test_a_freeze_whose_end_the_process_slept_through_ends_with_the_load() -> None:
    harness, leader, _ = frozen(session_ms=1_000_000)
    harness.topics(t=7)
    harness.timers.clear()
    harness.now_ms += 2 * FREEZE_MS
    harness.crash()
    assert harness.group.hold is None
    assert harness.state() is State.PREPARING_REBALANCE
    assert leader in harness.group.members
    invariants.check(harness.group)


# --- cool-down -------------------------------------------------------------------------------------------------------


def test_the_cool_down_holds_from_the_end_of_a_rebalance() -> None:
    harness = GroupHarness(rules=replace(RULES, rebalance_cooldown_ms=20_000))
    leader, follower = harness.stable(**LONG)
    assert harness.answer(harness.describe()).cooling_until_ms == harness.now_ms + 20_000
    harness.advance(15_000)
    third, join = harness.join_new()
    harness.leave(follower)
    assert held(harness) == ["member_joined", "member_left"]
    harness.advance(4_999)
    assert still(harness)
    harness.advance(1)
    assert harness.state() is State.PREPARING_REBALANCE
    harness.join(leader, **LONG)
    assert harness.answer(join).generation_id == 2
    harness.settle_generation(leader, third)
    harness.advance(20_000)
    harness.leave(third)
    assert harness.state() is State.PREPARING_REBALANCE, "the first cause after the cool-down waits for nothing"
    assert harness.answer(harness.describe()).cooling_until_ms is None


def test_a_group_has_a_cool_down_of_its_own() -> None:
    harness = GroupHarness(rules=RULES)
    leader, follower = harness.stable(**LONG)
    assert harness.answer(harness.cooldown(30_000)) == admin.CooldownAnswer(
        group_id="g", cooldown_ms=30_000, is_default=False
    )
    assert harness.answer(harness.describe()).cooldown_ms == 30_000
    harness.leave(follower)
    assert held(harness) == ["member_left"]
    harness.crash()
    assert harness.answer(harness.describe()).cooldown_ms == 30_000
    harness.leave(follower)
    assert (held(harness), harness.state()) == (["member_left"], State.STABLE), (
        "the time of the last rebalance is stored"
    )
    assert harness.answer(harness.cooldown(None)) == admin.CooldownAnswer(group_id="g", cooldown_ms=0, is_default=True)
    assert harness.state() is State.PREPARING_REBALANCE, "nothing holds any more"
    assert ("hold",) not in harness.log
    assert leader in harness.group.members


def test_a_group_may_have_none_where_the_settings_have_one() -> None:
    harness = GroupHarness(rules=replace(RULES, rebalance_cooldown_ms=20_000))
    _, follower = harness.stable()
    harness.cooldown(0)
    harness.leave(follower)
    assert harness.state() is State.PREPARING_REBALANCE


@pytest.mark.parametrize("who", ["operator", "nobody is left"])
def test_what_starts_in_spite_of_a_cool_down_leaves_no_timer_behind(who: str) -> None:
    harness = GroupHarness(rules=replace(RULES, rebalance_cooldown_ms=20_000))
    leader, follower = harness.stable(**LONG)
    harness.leave(follower)
    assert [key for key in harness.timers if key.kind is TimerKind.HOLD]
    if who == "operator":
        assert harness.answer(harness.start_rebalance()).started
    else:
        harness.leave(leader)
    assert harness.state() is (State.PREPARING_REBALANCE if who == "operator" else State.EMPTY)
    assert not [key for key in harness.timers if key.kind is TimerKind.HOLD]
    assert harness.rebalances()[0].further_count == 1


def test_a_freeze_and_a_cool_down_hold_until_both_are_over() -> None:
    harness = GroupHarness(rules=replace(RULES, rebalance_cooldown_ms=20_000))
    _, follower = harness.stable(**LONG)
    harness.freeze(5_000)
    harness.leave(follower)
    harness.advance(5_000)
    assert still(harness)
    assert harness.group.hold is None, "the freeze itself is over in its own time"
    answer = harness.answer(harness.thaw())
    assert answer.held_count == 1, "the cool-down goes on"
    harness.advance(15_000)
    assert harness.state() is State.PREPARING_REBALANCE


# --- a deploy --------------------------------------------------------------------------------------------------------


def deploy(harness: GroupHarness, members: int, *, is_frozen: bool) -> int:
    """One member after the other leaves, and comes back as a new process; everyone behaves. Rebalances that began."""
    waiting: dict[str, int] = {}
    running: list[str] = []

    def turn() -> None:
        """Everyone reads its answer and does what follows from it."""
        for who, call in list(waiting.items()):
            if not harness.waits(call):
                del waiting[who]
                if isinstance(harness.answer(call), m.WaitingAnswer):
                    waiting[who] = harness.join(who, session_ms=60_000, rebalance_ms=60_000)
        if harness.state() is State.COMPLETING_REBALANCE:
            harness.sync(harness.group.leader or "", assignments={who: {"partitions": {"t": []}} for who in running})
        for who in running:
            if who in harness.group.pending_sync:
                harness.sync(who)
            if who not in waiting and harness.code(harness.heartbeat(who)) is ErrorCode.REBALANCE_IN_PROGRESS:
                waiting[who] = harness.join(who, session_ms=60_000, rebalance_ms=60_000)

    def come() -> None:
        who, call = harness.join_new(session_ms=60_000, rebalance_ms=60_000)
        running.append(who)
        waiting[who] = call

    def live(ms: int) -> None:
        for _ in range(ms // 500):
            harness.advance(500)
            turn()

    for _ in range(members):
        come()
    live(10_000)
    assert (harness.state(), len(harness.group.members)) == (State.STABLE, members)
    harness.events.clear()
    if is_frozen:
        harness.freeze(harness.rules.rebalance_freeze_max_ms)
    for _ in range(members):
        gone = running.pop(0)
        harness.leave(gone)
        waiting.pop(gone, None)
        live(5_000)
        come()
        live(5_000)
    if is_frozen:
        harness.thaw()
    live(120_000)
    assert (harness.state(), set(harness.group.members)) == (State.STABLE, set(running))
    invariants.check(harness.group)
    return begun(harness)


@pytest.mark.parametrize(
    ("rules", "is_frozen", "expected"),
    [
        (RULES, False, 40),
        (replace(RULES, rebalance_cooldown_ms=60_000), False, 4),
        # The last of the old members goes, and nobody is left to be protected; then the last new one comes.
        (RULES, True, 2),
    ],
    ids=["nothing-holds", "cool-down", "freeze"],
)
def test_a_deploy_of_twenty_members_is_not_forty_rebalances(rules: Rules, is_frozen: bool, expected: int) -> None:
    """Ten seconds for each of twenty members: 200 s in all, one going and one coming for each."""
    assert deploy(GroupHarness(rules=rules), 20, is_frozen=is_frozen) == expected
