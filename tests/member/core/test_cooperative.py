"""The life of a cooperative member, rule by rule, in virtual time: it keeps what it owns while it joins."""

from typing import Any

import pytest

from assignors.cooperative_sticky import CooperativeStickyAssignor
from assignors.range import RangeAssignor
from member import errors
from member.core import events as ev
from member.core.actions import CallBack, Send
from member.core.events import Callback
from member.core.machine import Membership
from member.core.outcomes import Answered, Outcome, Refused
from member.core.states import State
from protocol import messages as m
from protocol.errors import ErrorCode
from protocol.opaque import OpaqueJson
from tests.member.core.player import BEATEN, GONE, LEFT, Player, joined, located, options, refused, synced, waiting

ASSIGNED, REVOKED, LOST = Callback.ASSIGNED, Callback.REVOKED, Callback.LOST
REBALANCES = refused(ErrorCode.REBALANCE_IN_PROGRESS)
COMMITTED = Answered(m.CommitAnswer(offsets={}))


COOPERATIVE = (CooperativeStickyAssignor(),)


def cooperative(**changes: Any) -> Player:
    return Player(offers=COOPERATIVE, **changes)


def given(*numbers: int, topic: str = "clicks") -> Outcome:
    return synced(OpaqueJson.of({"partitions": {topic: list(numbers)} if numbers else {}}))


def stable(*numbers: int, **changes: Any) -> Player:
    """A follower of generation 1 that owns these, `on_assigned` has returned."""
    player = cooperative(**changes).to_syncing()
    player.answer("sync", given(*numbers))
    player.callback_ended()
    return player


def joining(*numbers: int, **changes: Any) -> Player:
    """It owns these and joins again, for the group rebalances."""
    player = stable(*numbers, **changes)
    player.answer("heartbeat", REBALANCES)
    return player


def next_generation(player: Player, generation_id: int, *numbers: int) -> None:
    player.answer("join", joined(generation_id))
    player.answer("sync", given(*numbers))


def told(player: Player) -> tuple[dict[str, list[int]], int]:
    """What the join that is on the wire says of ownership."""
    value = player.body("join").protocols[0].metadata.value
    return value["owned_partitions"], value["generation_id"]


def numbers(partitions: frozenset[tuple[str, int]]) -> list[int]:
    return sorted(number for _, number in partitions)


def owned(player: Player) -> list[int] | None:
    held = player.held()
    return None if held is None else numbers(held.partitions)


def shape(call: CallBack) -> tuple[Callback, int, list[int], list[int]]:
    held = call.assignment
    return call.callback, held.generation_id, numbers(held.partitions), numbers(held.kept)


def story(player: Player) -> list[tuple[Callback, int, list[int], list[int]]]:
    """Callbacks after the first: which, generation, what it is about, what is kept besides."""
    return [shape(call) for call in player.callbacks[1:]]


# --- keeping ---------------------------------------------------------------------------------------------------------


def test_a_rebalance_is_joined_at_once_and_nothing_is_given_up() -> None:
    player = joining(0, 1)
    assert (player.state(), list(player.open), owned(player)) == (State.JOINING, ["join"], [0, 1])
    assert told(player) == ({"clicks": [0, 1]}, 1)
    assert story(player) == []
    next_generation(player, 2, 0, 1)
    assert (player.state(), owned(player)) == (State.STABLE, [0, 1])
    assert story(player) == [(ASSIGNED, 2, [], [0, 1])]
    player.callback_ended()
    assert set(player.open) == {"heartbeat"}, "nobody waits for anything, so there is no further round"
    assert player.body("heartbeat").generation_id == 2


def test_a_rule_that_is_eager_or_a_wish_to_be_makes_an_eager_member() -> None:
    mixed = Membership(options(), (CooperativeStickyAssignor(), RangeAssignor()))
    wished = Membership(options(eager=True), COOPERATIVE)
    assert (mixed.cooperative, wished.cooperative) == (False, False)
    assert Membership(options(), COOPERATIVE).cooperative


def test_an_eager_member_of_a_cooperative_group_gives_up_first_and_claims_nothing() -> None:
    player = stable(0, 1, eager=True)
    player.answer("heartbeat", REBALANCES)
    assert player.state() is State.REVOKING
    player.callback_ended()
    assert told(player) == ({}, -1)
    assert owned(player) is None


def test_what_others_are_to_have_is_given_up_first_and_then_joined_about() -> None:
    player = joining(0, 1, 2)
    next_generation(player, 2, 1, 3)
    assert (player.state(), player.machine.rebalance_pending) == (State.REVOKING, True)
    assert story(player) == [(REVOKED, 2, [0, 2], [1])]
    assert owned(player) == [0, 1, 2], "still at work on them; not on what is added"
    assert player.body("heartbeat").wait_ms == 0
    player.commit(1, 1, 0, 2)
    assert player.body("commit").generation_id == 2, "under the new generation, for the old one is over"
    player.answer("commit", COMMITTED)
    assert "join" not in player.open, "only the end of the callback says that they are free"
    player.callback_ended()
    assert story(player)[1:] == [(ASSIGNED, 2, [3], [1])]
    assert (player.state(), owned(player), told(player)) == (State.JOINING, [1, 3], ({"clicks": [1, 3]}, 2))
    player.callback_ended()
    next_generation(player, 3, 1, 3)
    assert (player.state(), story(player)[2:]) == (State.STABLE, [(ASSIGNED, 3, [], [1, 3])])


def test_a_rebalance_during_on_revoked_is_met_by_the_join_that_follows_anyway() -> None:
    player = joining(0, 1)
    next_generation(player, 2, 0)
    player.answer("heartbeat", REBALANCES)
    player.wait(3_000)
    assert (player.state(), player.body("heartbeat").generation_id) == (State.REVOKING, 2)
    player.answer("heartbeat", REBALANCES)
    joins = len(player.bodies("join"))
    player.callback_ended()
    assert len(player.bodies("join")) == joins + 1
    assert player.machine.member_id == "m-1"


def test_a_rebalance_while_on_assigned_runs_takes_nothing_back() -> None:
    player = cooperative().to_syncing()
    player.answer("sync", given(0, 1))
    player.answer("heartbeat", REBALANCES)
    assert (player.state(), told(player)) == (State.JOINING, ({"clicks": [0, 1]}, 1))
    next_generation(player, 2, 0)
    assert story(player) == [(REVOKED, 2, [1], [0])]
    player.feed(ev.CallbackEnded(ASSIGNED, 1))
    assert player.state() is State.REVOKING
    player.feed(ev.CallbackEnded(REVOKED, 2))
    assert player.state() is State.JOINING


def test_bug_19_kafka_14016_a_sync_that_must_join_again_drops_nothing() -> None:
    player = joining(0, 1)
    before = told(player)
    for generation_id in (2, 3, 4):
        player.answer("join", joined(generation_id))
        player.answer("sync", REBALANCES)
        assert (player.state(), owned(player), told(player)) == (State.JOINING, [0, 1], before)
        assert story(player) == []
        assert player.machine.generation_id == generation_id
    next_generation(player, 5, 0, 1)
    assert player.state() is State.STABLE


def test_a_leader_that_must_join_again_while_it_assigns_drops_nothing() -> None:
    player = joining(0)
    player.answer("join", joined(2, leader="m-1"))
    player.wait(3_000)
    player.answer("heartbeat", REBALANCES)
    assert (player.state(), owned(player), told(player)) == (State.JOINING, [0], ({"clicks": [0]}, 1))


def test_a_rule_that_never_rests_is_joined_for_more_and_more_slowly() -> None:
    player = joining(0, 1)
    gaps = []
    for generation_id in range(2, 12):
        next_generation(player, generation_id, generation_id % 2)  # always the other one
        if player.callbacks[-1].callback is REVOKED:
            player.callback_ended()
        player.callback_ended()
        began = player.now
        while "join" not in player.open:
            player.wait(10)
        gaps.append(player.now - began)
    assert gaps[0] == 0
    assert gaps[-1] >= 1_000
    assert gaps == sorted(gaps)


# --- commits between two generations ---------------------------------------------------------------------------------


def test_a_commit_while_the_group_waits_for_joins_goes_out_under_the_old_generation() -> None:
    player = joining(0, 1)
    player.commit(1, 1)
    assert player.body("commit").generation_id == 1
    player.answer("commit", COMMITTED)
    assert player.settled == {1: COMMITTED}


@pytest.mark.parametrize("code", [ErrorCode.ILLEGAL_GENERATION, ErrorCode.REBALANCE_IN_PROGRESS])
def test_bug_22_librdkafka_4059_a_commit_that_came_too_late_waits_for_the_next_generation(code: ErrorCode) -> None:
    player = joining(0, 1)
    player.commit(1, 1)
    player.answer("commit", refused(code))
    assert (player.settled, owned(player), "commit" in player.open) == ({}, [0, 1], False)
    player.answer("join", joined(2))
    assert "commit" not in player.open, "the new generation takes none before its assignment"
    player.answer("sync", given(0, 1))
    assert player.body("commit").generation_id == 2
    player.answer("commit", COMMITTED)
    assert (player.settled, "held:1" in player.timers) == ({1: COMMITTED}, False)
    assert LOST not in [callback for callback, _ in player.called()]


def test_a_commit_while_syncing_waits_and_goes_on_where_the_sync_fails() -> None:
    player = joining(0)
    player.answer("join", joined(2))
    player.commit(1, 1)
    assert "commit" not in player.open
    player.answer("sync", REBALANCES)
    assert player.body("commit").generation_id == 2, "the group waits for joins again, and takes it"


def test_a_commit_that_waited_for_a_partition_that_is_gone_is_refused() -> None:
    player = joining(0, 1)
    player.answer("join", joined(2))
    player.commit(1, 1, 1)
    player.answer("sync", given(0))
    assert player.body("commit").generation_id == 2, "on_revoked still runs"
    player.answer("commit", GONE)
    player.callback_ended()
    player.commit(2, 1, 1)
    outcome = player.settled[2]
    assert isinstance(outcome, Refused)
    assert outcome.problem.error_code == ErrorCode.ILLEGAL_GENERATION


def test_a_late_answer_to_a_commit_is_repeated_under_the_new_generation_only_for_what_is_still_owned() -> None:
    player = joining(0, 1)
    player.commit(1, 1, 0)
    kept = player.open.pop("commit")
    player.commit(2, 1, 1)
    gone = player.open.pop("commit")
    next_generation(player, 2, 0)
    player.callback_ended()
    late = refused(ErrorCode.ILLEGAL_GENERATION)
    player.feed(ev.CallEnded(gone.call_id, late))
    outcome = player.settled[2]
    assert isinstance(outcome, Refused)
    assert "does not own clicks-1" in outcome.problem.detail
    player.feed(ev.CallEnded(kept.call_id, late))
    assert player.body("commit").generation_id == 2


def test_a_commit_does_not_wait_for_ever() -> None:
    player = joining(0, call_timeout_ms=2_000)
    player.answer("join", joined(2))
    player.commit(1, 1)
    player.wait(1_999)
    assert player.settled == {}
    player.wait(1)
    outcome = player.settled[1]
    assert isinstance(outcome, Refused)
    assert outcome.problem.error_code == ErrorCode.REBALANCE_IN_PROGRESS
    player.commit(2, 1)
    player.feed(ev.CallAbandoned(2))
    assert "held:2" not in player.timers


def test_in_a_settled_generation_a_refusal_goes_to_the_caller() -> None:
    player = stable(0)
    for ticket, code in enumerate([ErrorCode.ILLEGAL_GENERATION, ErrorCode.REBALANCE_IN_PROGRESS]):
        player.commit(ticket, 1)
        player.answer("commit", refused(code))
        assert player.settled[ticket] == refused(code)
    assert (player.state(), owned(player)) == (State.STABLE, [0])


# --- losing ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", [ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION])
@pytest.mark.parametrize("call", ["heartbeat", "join", "sync"])
def test_a_member_that_the_group_has_dropped_loses_everything_once(call: str, code: ErrorCode) -> None:
    player = stable(0, 1) if call == "heartbeat" else joining(0, 1)
    if call == "sync":
        player.answer("join", joined(2))
    player.answer(call, refused(code))
    assert story(player) == [(LOST, 1, [0, 1], [])]
    assert (player.state(), owned(player), told(player)) == (State.JOINING, None, ({}, -1))
    assert player.body("join").member_id == ("" if code is ErrorCode.UNKNOWN_MEMBER_ID else "m-1")
    assert "session" not in player.timers


@pytest.mark.parametrize("code", [ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION])
def test_dropped_while_a_part_is_given_up_the_rest_is_lost_and_nothing_is_added(code: ErrorCode) -> None:
    player = joining(0, 1)
    next_generation(player, 2, 0, 2)
    player.answer("heartbeat", refused(code))
    assert story(player) == [(REVOKED, 2, [1], [0]), (LOST, 2, [0], [])]
    assert (player.state(), player.open) == (State.REVOKING, {})
    player.feed(ev.CallbackEnded(REVOKED, 2))
    assert (player.state(), told(player), len(player.callbacks)) == (State.JOINING, ({}, -1), 3)


def test_a_fatal_answer_loses_what_is_not_being_given_up() -> None:
    player = joining(0, 1)
    next_generation(player, 2, 0)
    player.answer("heartbeat", refused(ErrorCode.FENCED_INSTANCE_ID))
    assert story(player) == [(REVOKED, 2, [1], [0]), (LOST, 2, [0], [])]
    assert isinstance(player.machine.error, errors.Fenced)
    fenced = joining(0, 1)
    fenced.answer("join", refused(ErrorCode.FENCED_INSTANCE_ID))
    assert story(fenced) == [(LOST, 1, [0, 1], [])]


def test_a_join_that_is_answered_keeps_alive_what_is_owned() -> None:
    player = joining(0)
    for _ in range(20):
        player.wait(15_000)
        player.answer("join", waiting())
    player.answer("join", joined(2))
    for _ in range(20):
        player.wait(15_000)
        player.answer("sync", waiting())
    assert (player.state(), owned(player), story(player)) == (State.SYNCING, [0], [])


def test_the_answer_to_a_join_or_sync_of_an_owner_is_due_twice_within_its_session() -> None:
    player = joining(0, session_timeout_ms=6_000)
    for name in ("join", "sync"):
        call = player.open[name]
        assert isinstance(call, Send)
        assert (player.body(name).max_wait_ms, call.timeout_ms) == (2_000, 3_000)
        if name == "join":
            player.answer("join", joined(2))


@pytest.mark.parametrize("stage", ["join", "sync"])
def test_silence_for_a_session_loses_what_is_owned_while_the_call_goes_on(stage: str) -> None:
    player = joining(0, 1)
    if stage == "sync":
        player.answer("join", joined(2))
    player.wait(44_999)
    assert story(player) == []
    player.wait(1)
    assert story(player) == [(LOST, 1, [0, 1], [])]
    assert (owned(player), list(player.open)) == (None, [stage]), "another call would not be heard either"
    assert len(player.warnings) == 1
    if stage == "join":
        player.answer("join", joined(2))
    player.answer("sync", given(0))
    # The leader went by a claim to 1 that nobody stands behind now: it must hear that 1 is free.
    assert story(player)[1:] == [(ASSIGNED, 2, [0], [])]
    assert (player.state(), told(player)) == (State.JOINING, ({"clicks": [0]}, 2))


def test_silence_while_a_part_is_given_up_loses_the_rest() -> None:
    player = joining(0, 1)
    next_generation(player, 2, 0)
    player.wait(45_000)
    assert story(player) == [(REVOKED, 2, [1], [0]), (LOST, 2, [0], [])]


def test_a_coordinator_that_is_gone_is_looked_up_and_nothing_is_lost() -> None:
    player = joining(0)
    before = player.body("join")
    player.answer("join", GONE)
    assert (player.state(), owned(player)) == (State.FINDING, [0])
    player.answer("coordinator", located("http://node-2"))
    assert (player.state(), player.body("join"), player.url("join")) == (State.JOINING, before, "http://node-2")


# --- leaving, failing ------------------------------------------------------------------------------------------------


def test_a_leave_gives_up_everything_first() -> None:
    player = stable(0, 1)
    player.feed(ev.LeaveRequested("done", stay=False))
    assert story(player) == [(REVOKED, 1, [0, 1], [])]
    player.callback_ended()
    assert list(player.open) == ["leave"]
    player.answer("leave", LEFT)
    assert (player.state(), player.timers) == (State.LEFT, {})


def test_a_leave_while_it_joins_gives_up_under_the_old_generation() -> None:
    player = joining(0, 1)
    player.feed(ev.LeaveRequested(None, stay=False))
    assert (player.state(), story(player)) == (State.REVOKING, [(REVOKED, 1, [0, 1], [])])
    assert list(player.open) == ["heartbeat"], "the join is given up; the member must live on for its commit"
    player.commit(1, 1)
    assert player.body("commit").generation_id == 1
    player.answer("commit", COMMITTED)
    player.answer("heartbeat", REBALANCES)
    player.callback_ended()
    assert list(player.open) == ["leave"]


def test_a_leave_while_it_syncs_lets_the_round_end_for_nothing_can_be_committed_before() -> None:
    player = joining(0, 1)
    player.answer("join", joined(2))
    player.feed(ev.LeaveRequested(None, stay=False))
    assert (player.state(), list(player.open)) == (State.SYNCING, ["sync"])
    player.answer("sync", given(0, 5))
    assert story(player) == [(REVOKED, 1, [0, 1], [])], "what is given now is never taken"
    assert player.body("heartbeat").generation_id == 2
    player.callback_ended()
    assert list(player.open) == ["leave"]


@pytest.mark.parametrize("how", ["late", "another", "lost"])
def test_a_leave_while_it_syncs_does_not_wait_for_ever(how: str) -> None:
    player = joining(0)
    player.answer("join", joined(2))
    player.feed(ev.LeaveRequested(None, stay=False))
    if how == "late":
        player.wait(4_999)
        assert player.state() is State.SYNCING
        player.wait(1)
    elif how == "another":
        player.answer("sync", REBALANCES)
    else:
        player.answer("sync", refused(ErrorCode.ILLEGAL_GENERATION))
    if how == "lost":
        assert story(player) == [(LOST, 1, [0], [])]
    else:
        assert (player.state(), story(player)) == (State.REVOKING, [(REVOKED, 1, [0], [])])
        player.callback_ended()
    assert list(player.open) == ["leave"]


def test_a_leave_while_a_part_is_given_up_gives_up_the_rest_and_takes_nothing() -> None:
    player = joining(0, 1)
    next_generation(player, 2, 0, 3)
    player.feed(ev.LeaveRequested(None, stay=False))
    player.callback_ended()
    assert story(player) == [(REVOKED, 2, [1], [0]), (REVOKED, 2, [0], [])]
    player.callback_ended()
    assert list(player.open) == ["leave"]
    assert len(player.callbacks) == 3


def test_on_assigned_that_fails_gives_up_what_was_taken_before_and_fails() -> None:
    player = joining(0)
    next_generation(player, 2, 0, 1)
    player.callback_ended(OSError("disk full"))
    assert story(player) == [(ASSIGNED, 2, [1], [0]), (REVOKED, 2, [0], [])]
    player.callback_ended()
    player.answer("leave", LEFT)
    assert isinstance(player.machine.error, errors.CallbackFailed)


def test_on_assigned_that_fails_later_than_the_next_generation_came_fails_all_the_same() -> None:
    player = cooperative().to_syncing()
    player.answer("sync", given(0))
    player.answer("heartbeat", REBALANCES)
    next_generation(player, 2, 0, 1)
    player.feed(ev.CallbackEnded(ASSIGNED, 1, OSError("disk full")))
    assert story(player)[1:] == [(REVOKED, 2, [1], [])], "0 was never taken"
    lost = stable(0)
    lost.answer("heartbeat", refused(ErrorCode.UNKNOWN_MEMBER_ID))
    lost.feed(ev.CallbackEnded(ASSIGNED, 1, OSError("disk full")))
    assert lost.state() is State.JOINING, "of what is lost already it is no news"


def test_an_unreadable_assignment_gives_up_before_the_leave() -> None:
    player = joining(0)
    player.answer("join", joined(2))
    player.answer("sync", synced(OpaqueJson.of("x")))
    assert story(player) == [(REVOKED, 1, [0], [])]
    player.callback_ended()
    player.answer("leave", LEFT)
    assert isinstance(player.machine.error, errors.UnreadableAssignment)


def test_an_assignor_that_fails_gives_up_before_the_leave() -> None:
    player = joining(0)
    player.answer("join", joined(2, leader="m-1"))
    player.feed(ev.AssignmentFailed(player.open.pop("assign").call_id, KeyError("x"), retriable=False))
    assert story(player) == [(REVOKED, 1, [0], [])]
    player.callback_ended()
    assert list(player.open) == ["leave"]


# --- another subscription --------------------------------------------------------------------------------------------


def test_what_nobody_here_subscribes_to_any_more_is_given_up_before_the_join() -> None:
    player = cooperative(topics=("clicks", "orders")).to_syncing()
    player.answer("sync", synced(OpaqueJson.of({"partitions": {"clicks": [0], "orders": [1]}})))
    player.callback_ended()
    player.feed(ev.SubscriptionChanged(("clicks",), None))
    assert player.callbacks[-1].assignment.partitions == {("orders", 1)}
    assert player.state() is State.REVOKING
    player.callback_ended()
    assert (player.state(), told(player)) == (State.JOINING, ({"clicks": [0]}, 1))


def test_more_topics_cost_nothing() -> None:
    player = stable(0)
    player.feed(ev.SubscriptionChanged(("clicks", "orders"), None))
    assert (player.state(), told(player), story(player)) == (State.JOINING, ({"clicks": [0]}, 1), [])


@pytest.mark.parametrize("stage", ["join", "202", "sync", "again"])
def test_another_subscription_in_the_middle_of_a_round_follows_after_it(stage: str) -> None:
    player = joining(0)
    if stage in {"sync", "again"}:
        player.answer("join", joined(2))
    player.feed(ev.SubscriptionChanged(("orders",), None))
    if stage == "202":
        player.wait(15_000)
        player.answer("join", waiting())
        assert player.body("join").protocols[0].metadata.value["topics"] == ["clicks"]
    if stage in {"join", "202"}:
        player.answer("join", joined(2))
    player.answer("sync", REBALANCES if stage == "again" else given(0))
    assert player.callbacks[-1].callback is REVOKED
    assert owned(player) == [0]
    player.feed(ev.CallbackEnded(REVOKED, player.callbacks[-1].assignment.generation_id))
    assert player.body("join").protocols[0].metadata.value["topics"] == ["orders"]
    assert told(player)[0] == {}


def test_a_quiet_group_stays_quiet() -> None:
    player = stable(0)
    joins = len(player.bodies("join"))
    for _ in range(100):
        player.wait(20_000)
        player.answer("heartbeat", BEATEN)
    assert len(player.bodies("join")) == joins
