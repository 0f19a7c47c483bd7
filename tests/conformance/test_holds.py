"""Rebalances held back by a freeze or a cool-down, and let go as one. Ours throughout; Kafka holds nothing."""

from dataclasses import replace
from typing import Any

import pytest

from rallypoint.coordinator.core import invariants
from rallypoint.coordinator.core.commands import Rules, TimerKind
from rallypoint.coordinator.core.effects import GroupFrozen, GroupThawed, RebalanceBegan, RebalanceHeld
from rallypoint.coordinator.core.group import State
from rallypoint.protocol import messages as m
from rallypoint.protocol.errors import ErrorCode
from tests.conformance.desk import Desk, consumer

RULES = Rules(group_min_session_timeout_ms=1, group_join_linger_ms=0, parked_call_max_wait_ms=10_000_000)
LONG: dict[str, Any] = {"session_ms": 600_000}
FREEZE_MS = 60_000


def frozen(duration_ms: int = FREEZE_MS, **second: Any) -> tuple[Desk, str, str]:
    """A Stable group of a leader and a follower, frozen."""
    d = Desk(rules=RULES)
    leader, follower = d.stable(**(LONG | second))
    assert d.code(d.freeze(duration_ms)) is ErrorCode.NONE
    return d, leader, follower


def held(d: Desk) -> list[str]:
    return [cause.trigger for cause in d.answer(d.describe()).held]


def begun(d: Desk) -> int:
    return sum(isinstance(event, RebalanceBegan) for event in d.events)


def still(d: Desk) -> bool:
    """The generation stands, and the group is as it should be."""
    invariants.check(d.group)
    return (d.state(), d.group.generation_id, begun(d)) == (State.STABLE, 1, 1)


# --- what holds ------------------------------------------------------------------------------------------------------


def test_a_freeze_is_bounded_named_and_seen() -> None:
    d, *_ = frozen()
    assert d.answer(d.calls) == m.FreezeAnswer(
        group_id="g", frozen_until_ms=d.now_ms + FREEZE_MS, reason=None, held_count=0
    )
    refused = d.answer(d.freeze(RULES.rebalance_freeze_max_ms + 1))
    assert (refused.code, refused.field) == (ErrorCode.INVALID_REQUEST, "duration_ms")
    assert "rebalance_freeze_max_ms" in refused.detail
    assert (refused.limit, refused.limit_name) == (RULES.rebalance_freeze_max_ms, "rebalance_freeze_max_ms")
    refused = d.answer(d.cooldown(RULES.rebalance_cooldown_max_ms + 1))
    assert (refused.code, refused.field) == (ErrorCode.INVALID_REQUEST, "cooldown_ms")
    assert d.code(d.freeze(RULES.rebalance_freeze_max_ms, "deploy" * 100)) is ErrorCode.NONE
    described = d.answer(d.describe())
    assert described.frozen_until_ms == d.now_ms + RULES.rebalance_freeze_max_ms
    assert described.freeze_reason == ("deploy" * 100)[:255]
    assert [type(e) for e in d.events if isinstance(e, GroupFrozen)] == [GroupFrozen] * 2


def test_all_that_would_start_a_rebalance_is_held_and_one_starts_when_the_freeze_is_over() -> None:
    d, leader, follower = frozen()
    third, third_join = d.join_new()
    leader_join = d.join(leader)
    d.leave(follower)
    d.topics(t=9)
    assert held(d) == ["member_joined", "leader_rejoined", "member_left", "topic_changed"]
    assert still(d)
    assert [e.trigger.value for e in d.events if isinstance(e, RebalanceHeld)] == held(d)
    d.advance(FREEZE_MS - 1)
    assert still(d)
    d.advance(1)
    assert d.state() is State.COMPLETING_REBALANCE, "the two that are left have joined already"
    assert (begun(d), d.group.generation_id) == (2, 2)
    assert {d.answer(leader_join).generation_id, d.answer(third_join).generation_id} == {2}
    newest = d.rebalances()[0]
    assert (newest.trigger, newest.member_id, newest.further_count) == ("member_joined", third, 3)
    assert [x.trigger for x in newest.further] == ["leader_rejoined", "member_left", "topic_changed"]
    assert newest.began_at_ms == d.now_ms
    assert held(d) == []
    assert d.group.hold is None
    assert ("hold",) not in d.log, "a freeze that is over is not kept"
    assert [e for e in d.events if isinstance(e, GroupThawed)] == [GroupThawed("g", lifted=False)]


def test_a_freeze_that_held_nothing_ends_without_a_rebalance() -> None:
    d, leader, follower = frozen()
    d.advance(FREEZE_MS)
    assert still(d)
    assert d.group.hold is None
    assert not [key for key in d.timers if key.kind is TimerKind.HOLD]
    assert d.code(d.heartbeat(leader)) is d.code(d.heartbeat(follower)) is ErrorCode.NONE


@pytest.mark.parametrize("how", ["delete", "zero"])
def test_an_operator_lifts_the_freeze_and_what_was_held_starts_at_once(how: str) -> None:
    d, _, follower = frozen()
    d.leave(follower)
    answer = d.answer(d.thaw() if how == "delete" else d.freeze(0))
    assert answer == m.FreezeAnswer(group_id="g", frozen_until_ms=None, reason=None, held_count=0)
    assert (d.state(), begun(d)) == (State.PREPARING_REBALANCE, 2)
    assert GroupThawed("g", lifted=True) in d.events
    assert not [key for key in d.timers if key.kind is TimerKind.HOLD]
    again = d.answer(d.thaw())
    assert again.held_count == 0, "a group that is not frozen stays as it is"
    assert sum(isinstance(e, GroupThawed) for e in d.events) == 1


def test_a_second_freeze_replaces_the_first_longer_or_shorter() -> None:
    d, _, follower = frozen()
    d.leave(follower)
    d.freeze(2 * FREEZE_MS)
    d.advance(FREEZE_MS)
    assert still(d)
    d.freeze(1_000)
    d.advance(999)
    assert still(d)
    d.advance(1)
    assert d.state() is State.PREPARING_REBALANCE


# --- who waits, and who goes on --------------------------------------------------------------------------------------


def test_a_new_member_waits_and_has_no_rights() -> None:
    d, leader, follower = frozen()
    third, join = d.join_new(session_ms=10_000)
    assert d.waits(join)
    for call in (d.heartbeat(third, 1), d.sync(third, 1), d.commit(third, 1), d.commit(third, -1)):
        assert d.code(call) is ErrorCode.ILLEGAL_GENERATION
    assert d.fetch() == {}
    assert d.code(d.heartbeat(leader)) is ErrorCode.NONE
    assert d.code(d.commit(follower)) is ErrorCode.NONE
    assert d.code(d.sync(follower)) is ErrorCode.NONE


def test_a_new_member_goes_on_waiting_by_asking_again_and_is_counted_once() -> None:
    d, *_ = frozen()
    third, first = d.join_new(max_wait_ms=1_000, session_ms=5_000)
    for _ in range(10):
        d.advance(1_000)
        assert isinstance(d.answer(first), m.WaitingAnswer)
        first = d.join(third, max_wait_ms=1_000, session_ms=5_000)
    assert held(d) == ["member_joined"]
    assert third in d.group.members
    d.thaw()
    assert d.waits(first)


def test_a_new_member_that_does_not_ask_again_expires() -> None:
    d, *_ = frozen()
    third, _ = d.join_new(max_wait_ms=1_000, session_ms=5_000)
    d.advance(6_100)
    assert third not in d.group.members
    assert held(d) == ["member_joined", "member_expired"]


def test_the_time_that_a_new_member_may_wait_counts_from_the_beginning_of_its_round() -> None:
    d, leader, _ = frozen(RULES.rebalance_freeze_max_ms, rebalance_ms=400_000, session_ms=1_800_000)
    third, join = d.join_new(session_ms=10_000)
    d.advance(RULES.rebalance_freeze_max_ms - 1)
    assert d.waits(join), "the five minutes of a new member are over, and it is not to blame"
    d.advance(1)
    assert d.state() is State.PREPARING_REBALANCE
    d.advance(RULES.new_member_join_timeout_ms - 1)
    assert third in d.group.members
    d.advance(1)
    assert third not in d.group.members, "in a join phase they count"
    assert d.code(join) is ErrorCode.UNKNOWN_MEMBER_ID
    assert leader in d.group.members


def test_a_leader_that_joins_again_waits_and_the_assignment_stands() -> None:
    d, leader, follower = frozen()
    join = d.join(leader, request_id="once")
    assert d.waits(join)
    repeated = d.join(leader, request_id="once")
    assert d.answer(join).superseded
    again = d.join(leader)
    assert d.answer(repeated).superseded
    assert d.waits(again)
    assert held(d) == ["leader_rejoined"], "to ask again is no other reason"
    assert d.code(d.heartbeat(follower)) is ErrorCode.NONE
    assert d.answer(d.sync(follower)).assignment.value == {"partitions": {"t": [1]}}
    assert still(d)


def test_a_member_with_another_subscription_waits_also_when_it_says_it_twice() -> None:
    d, _, follower = frozen()
    other = (("range", consumer("u")),)
    join = d.join(follower, protocols=other)
    again = d.join(follower, protocols=other)
    assert d.waits(again), "it said the same as before, but what it said is not what it was given"
    assert d.answer(join).superseded
    assert held(d) == ["subscription_changed"]
    d.join(follower, protocols=(("range", consumer("u", "v")),))
    assert held(d) == ["subscription_changed"] * 2
    assert still(d)


def test_a_member_that_leaves_or_expires_is_out_at_once() -> None:
    d, leader, follower = frozen(session_ms=20_000)
    third_call = d.commit(follower)
    assert d.code(third_call) is ErrorCode.NONE
    for _ in range(3):
        d.advance(10_000)
        d.heartbeat(leader)
    assert follower not in d.group.members
    assert d.code(d.heartbeat(follower, 1)) is ErrorCode.UNKNOWN_MEMBER_ID
    assert d.code(d.commit(follower, 1)) is ErrorCode.UNKNOWN_MEMBER_ID
    assert held(d) == ["member_expired"]
    assert still(d)
    assert [x.member_id for x in d.answer(d.describe()).members] == [leader]


def test_a_member_that_asked_for_no_part_is_out_though_the_group_is_frozen() -> None:
    d = Desk(rules=RULES)
    leader, follower = d.stable()
    d.join(leader)
    d.join(follower)
    d.sync(leader, assignments={leader: {"partitions": {"t": [0]}}})
    d.freeze(FREEZE_MS)
    for _ in range(10):
        d.advance(1_100)
        d.heartbeat(leader)
        d.heartbeat(follower)
    assert follower not in d.group.members
    assert held(d) == ["sync_timed_out"]
    assert d.state() is State.STABLE


def test_who_joined_anew_need_not_ask_for_the_part_it_leaves() -> None:
    d = Desk(rules=RULES)
    leader, follower = d.stable(**LONG)
    d.join(leader, **LONG)
    d.join(follower, **LONG)
    d.sync(leader, assignments={leader: {"partitions": {"t": [0]}}})
    d.freeze(FREEZE_MS)
    d.join(follower, protocols=(("range", consumer("u")),))
    d.advance(30_000)
    assert follower in d.group.members
    assert held(d) == ["subscription_changed"]


# --- what never waits ------------------------------------------------------------------------------------------------


def test_a_hold_protects_nobody_once_the_last_member_of_the_generation_has_gone() -> None:
    d, leader, follower = frozen()
    third, join = d.join_new()
    d.leave(leader)
    assert d.waits(join)
    d.leave(follower)
    assert d.answer(join).leader == third
    assert (d.state(), d.group.generation_id) == (State.COMPLETING_REBALANCE, 2)
    newest = d.rebalances()[0]
    assert (newest.trigger, newest.further_count) == ("member_left", 2)
    assert d.answer(d.describe()).frozen_until_ms is not None, "the freeze goes on for what is Stable next"


def test_when_everyone_has_gone_the_group_is_empty_frozen_or_not_and_may_form_anew() -> None:
    d, leader, follower = frozen()
    d.leave(leader, follower)
    assert d.state() is State.EMPTY
    third, join = d.join_new()
    d.advance_until_answered(join)
    d.sync(third, assignments={third: {"partitions": {"t": [0]}}})
    assert (d.state(), d.group.generation_id) == (State.STABLE, 3)
    d.join_new()
    assert held(d) == ["member_joined"], "what is Stable now is frozen as before"


@pytest.mark.parametrize("state", [State.PREPARING_REBALANCE, State.COMPLETING_REBALANCE])
def test_a_round_under_way_goes_on_to_its_end(state: State) -> None:
    d = Desk(rules=RULES)
    leader, follower = d.stable(session_ms=60_000)
    d.join(leader)
    if state is State.COMPLETING_REBALANCE:
        d.join(follower)
    d.freeze(FREEZE_MS)
    third, _ = d.join_new()
    assert d.state() is State.PREPARING_REBALANCE
    for who in (leader, follower):
        d.join(who)
    assert d.state() is State.COMPLETING_REBALANCE
    d.settle_generation(leader, follower, third)
    d.leave(third)
    assert (d.state(), held(d)) == (State.STABLE, ["member_left"])


def test_an_operators_word_is_not_held_and_takes_along_what_was() -> None:
    d, leader, follower = frozen()
    third, _ = d.join_new()
    assert d.answer(d.start_rebalance()).started
    assert d.state() is State.PREPARING_REBALANCE
    newest = d.rebalances()[0]
    assert (newest.trigger, [x.member_id for x in newest.further]) == ("operator", [third])
    d.join(leader, **LONG)
    d.join(follower, **LONG)
    d.settle_generation(leader, follower, third)
    d.leave(third)
    assert held(d) == ["member_left"], "the freeze stands"
    d.advance(FREEZE_MS)
    assert d.state() is State.PREPARING_REBALANCE


# --- static members --------------------------------------------------------------------------------------------------


def test_a_static_member_that_comes_back_the_same_is_not_held_up() -> None:
    d, leader, old = frozen(instance="i")
    d.join_new()
    join = d.join("", instance="i")
    new = d.answer(join).member_id
    assert new != old
    assert d.answer(join).generation_id == 1
    assert d.answer(d.sync(new, instance="i")).assignment.value == {"partitions": {"t": [1]}}
    assert d.code(d.heartbeat(old, instance="i")) is ErrorCode.FENCED_INSTANCE_ID
    assert still(d)
    assert leader in d.group.members


def test_a_static_member_that_came_with_the_freeze_is_not_given_a_part_by_coming_back() -> None:
    d, *_ = frozen()
    first = d.join("", instance="i")
    second = d.join("", instance="i")
    assert d.code(first) is ErrorCode.FENCED_INSTANCE_ID
    assert d.waits(second), "its seat has no part in the generation"
    seated = d.group.static_members["i"]
    assert d.code(d.commit(seated, 1, instance="i")) is ErrorCode.ILLEGAL_GENERATION
    assert still(d)


def test_a_static_member_with_another_subscription_waits_in_its_seat() -> None:
    d, leader, _ = frozen(instance="i")
    join = d.join("", instance="i", protocols=(("range", consumer("u")),))
    assert d.waits(join)
    assert held(d) == ["static_member_replaced"]
    again = d.join("", instance="i", protocols=(("range", consumer("u")),))
    assert d.code(join) is ErrorCode.FENCED_INSTANCE_ID
    assert d.waits(again)
    d.thaw()
    d.join(leader)
    assert d.answer(again).generation_id == 2
    invariants.check(d.group)


def test_a_vote_of_those_who_wait_does_not_count_for_the_present_protocol() -> None:
    d = Desk(rules=RULES)
    both = (("range", consumer("t")), ("roundrobin", consumer("t")))
    turned = (("roundrobin", consumer("t")), ("range", consumer("t")))
    first, join = d.join_new(protocols=both, session_ms=600_000)
    seat = d.join("", instance="i", protocols=both)
    d.advance_until_answered(join, seat)
    d.settle_generation(first, d.answer(seat).member_id)
    d.freeze(FREEZE_MS)
    for _ in range(3):
        d.join_new(protocols=turned)
    assert d.code(d.join("", instance="i", protocols=both)) is ErrorCode.NONE, "nothing moved for the seat"
    assert d.group.protocol_name == "range"


# --- crashes ---------------------------------------------------------------------------------------------------------


def test_a_crash_does_not_thaw_and_what_was_a_reason_becomes_one_again() -> None:
    d, leader, follower = frozen(session_ms=10_000)
    _, join = d.join_new()
    d.leave(follower)
    d.topics(t=7)
    assert len(held(d)) == 3
    d.advance(5_000)
    d.heartbeat(leader)
    d.answers[join] = m.HeartbeatAnswer()  # Its process' call is cut off.
    d.crash()
    invariants.check(d.group)
    assert d.answer(d.describe()).frozen_until_ms == d.now_ms + FREEZE_MS - 5_000
    assert d.group.members.keys() == {leader, follower}, "who had left is back until its session ends"
    assert held(d) == ["topic_changed"]
    for _ in range(3):
        d.advance(5_000)
        assert d.code(d.heartbeat(leader)) is ErrorCode.NONE
    assert held(d) == ["topic_changed", "member_expired"]
    _, join = d.join_new(max_wait_ms=100_000)
    for _ in range(8):
        d.advance(5_000)
        d.heartbeat(leader)
    assert d.state() is State.PREPARING_REBALANCE
    newest = d.rebalances()[0]
    assert (newest.rebalance_id, newest.trigger, newest.further_count) == (2, "topic_changed", 2)


def test_a_freeze_whose_end_the_process_slept_through_ends_with_the_load() -> None:
    d, leader, _ = frozen(session_ms=1_000_000)
    d.topics(t=7)
    d.timers.clear()
    d.now_ms += 2 * FREEZE_MS
    d.crash()
    assert d.group.hold is None
    assert d.state() is State.PREPARING_REBALANCE
    assert leader in d.group.members
    invariants.check(d.group)


# --- cool-down -------------------------------------------------------------------------------------------------------


def test_the_cool_down_holds_from_the_end_of_a_rebalance() -> None:
    d = Desk(rules=replace(RULES, rebalance_cooldown_ms=20_000))
    leader, follower = d.stable(**LONG)
    assert d.answer(d.describe()).cooling_until_ms == d.now_ms + 20_000
    d.advance(15_000)
    third, join = d.join_new()
    d.leave(follower)
    assert held(d) == ["member_joined", "member_left"]
    d.advance(4_999)
    assert still(d)
    d.advance(1)
    assert d.state() is State.PREPARING_REBALANCE
    d.join(leader, **LONG)
    assert d.answer(join).generation_id == 2
    d.settle_generation(leader, third)
    d.advance(20_000)
    d.leave(third)
    assert d.state() is State.PREPARING_REBALANCE, "the first cause after the cool-down waits for nothing"
    assert d.answer(d.describe()).cooling_until_ms is None


def test_a_group_has_a_cool_down_of_its_own() -> None:
    d = Desk(rules=RULES)
    leader, follower = d.stable(**LONG)
    assert d.answer(d.cooldown(30_000)) == m.CooldownAnswer(group_id="g", cooldown_ms=30_000, is_default=False)
    assert d.answer(d.describe()).cooldown_ms == 30_000
    d.leave(follower)
    assert held(d) == ["member_left"]
    d.crash()
    assert d.answer(d.describe()).cooldown_ms == 30_000
    d.leave(follower)
    assert (held(d), d.state()) == (["member_left"], State.STABLE), "the time of the last rebalance is stored"
    assert d.answer(d.cooldown(None)) == m.CooldownAnswer(group_id="g", cooldown_ms=0, is_default=True)
    assert d.state() is State.PREPARING_REBALANCE, "nothing holds any more"
    assert ("hold",) not in d.log
    assert leader in d.group.members


def test_a_group_may_have_none_where_the_settings_have_one() -> None:
    d = Desk(rules=replace(RULES, rebalance_cooldown_ms=20_000))
    _, follower = d.stable()
    d.cooldown(0)
    d.leave(follower)
    assert d.state() is State.PREPARING_REBALANCE


@pytest.mark.parametrize("who", ["operator", "nobody is left"])
def test_what_starts_in_spite_of_a_cool_down_leaves_no_timer_behind(who: str) -> None:
    d = Desk(rules=replace(RULES, rebalance_cooldown_ms=20_000))
    leader, follower = d.stable(**LONG)
    d.leave(follower)
    assert [key for key in d.timers if key.kind is TimerKind.HOLD]
    if who == "operator":
        assert d.answer(d.start_rebalance()).started
    else:
        d.leave(leader)
    assert d.state() is (State.PREPARING_REBALANCE if who == "operator" else State.EMPTY)
    assert not [key for key in d.timers if key.kind is TimerKind.HOLD]
    assert d.rebalances()[0].further_count == 1


def test_a_freeze_and_a_cool_down_hold_until_both_are_over() -> None:
    d = Desk(rules=replace(RULES, rebalance_cooldown_ms=20_000))
    _, follower = d.stable(**LONG)
    d.freeze(5_000)
    d.leave(follower)
    d.advance(5_000)
    assert still(d)
    assert d.group.hold is None, "the freeze itself is over in its own time"
    answer = d.answer(d.thaw())
    assert answer.held_count == 1, "the cool-down goes on"
    d.advance(15_000)
    assert d.state() is State.PREPARING_REBALANCE


# --- a deploy --------------------------------------------------------------------------------------------------------


def deploy(d: Desk, members: int, *, is_frozen: bool) -> int:
    """One member after the other leaves, and comes back as a new process; everyone behaves. Rebalances that began."""
    waiting: dict[str, int] = {}
    running: list[str] = []

    def turn() -> None:
        """Everyone reads its answer and does what follows from it."""
        for who, call in list(waiting.items()):
            if not d.waits(call):
                del waiting[who]
                if isinstance(d.answer(call), m.WaitingAnswer):
                    waiting[who] = d.join(who, session_ms=60_000, rebalance_ms=60_000)
        if d.state() is State.COMPLETING_REBALANCE:
            d.sync(d.group.leader or "", assignments={who: {"partitions": {"t": []}} for who in running})
        for who in running:
            if who in d.group.pending_sync:
                d.sync(who)
            if who not in waiting and d.code(d.heartbeat(who)) is ErrorCode.REBALANCE_IN_PROGRESS:
                waiting[who] = d.join(who, session_ms=60_000, rebalance_ms=60_000)

    def come() -> None:
        who, call = d.join_new(session_ms=60_000, rebalance_ms=60_000)
        running.append(who)
        waiting[who] = call

    def live(ms: int) -> None:
        for _ in range(ms // 500):
            d.advance(500)
            turn()

    for _ in range(members):
        come()
    live(10_000)
    assert (d.state(), len(d.group.members)) == (State.STABLE, members)
    d.events.clear()
    if is_frozen:
        d.freeze(d.rules.rebalance_freeze_max_ms)
    for _ in range(members):
        gone = running.pop(0)
        d.leave(gone)
        waiting.pop(gone, None)
        live(5_000)
        come()
        live(5_000)
    if is_frozen:
        d.thaw()
    live(120_000)
    assert (d.state(), set(d.group.members)) == (State.STABLE, set(running))
    invariants.check(d.group)
    return begun(d)


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
    assert deploy(Desk(rules=rules), 20, is_frozen=is_frozen) == expected
