"""The life of a cooperative member, rule by rule, in virtual time: it keeps what it owns while it joins."""

from typing import Any

import pytest

from rallypoint.assignors.cooperative_sticky import CooperativeStickyAssignor
from rallypoint.assignors.range import RangeAssignor
from rallypoint.member import errors
from rallypoint.member.core import events as ev
from rallypoint.member.core.actions import CallBack, Send
from rallypoint.member.core.events import Callback
from rallypoint.member.core.machine import Membership
from rallypoint.member.core.outcomes import Answered, Outcome, Refused
from rallypoint.member.core.states import State
from rallypoint.protocol import messages as m
from rallypoint.protocol.errors import ErrorCode
from rallypoint.protocol.opaque import OpaqueJson
from tests.member.core.membership_harness import (
    BEATEN,
    GONE,
    LEFT,
    MembershipHarness,
    joined,
    located,
    options,
    refused,
    synced,
    waiting,
)

ASSIGNED, REVOKED, LOST = Callback.ASSIGNED, Callback.REVOKED, Callback.LOST
REBALANCES = refused(ErrorCode.REBALANCE_IN_PROGRESS)
COMMITTED = Answered(m.CommitAnswer(offsets={}))


COOPERATIVE = (CooperativeStickyAssignor(),)


def cooperative(**changes: Any) -> MembershipHarness:
    return MembershipHarness(offers=COOPERATIVE, **changes)


def given(*numbers: int, topic: str = "clicks") -> Outcome:
    return synced(OpaqueJson.of({"partitions": {topic: list(numbers)} if numbers else {}}))


def stable(*numbers: int, **changes: Any) -> MembershipHarness:
    """A follower of generation 1 that owns these, `on_assigned` has returned."""
    harness = cooperative(**changes).to_syncing()
    harness.answer("sync", given(*numbers))
    harness.callback_ended()
    return harness


def joining(*numbers: int, **changes: Any) -> MembershipHarness:
    """It owns these and joins again, for the group rebalances."""
    harness = stable(*numbers, **changes)
    harness.answer("heartbeat", REBALANCES)
    return harness


def next_generation(harness: MembershipHarness, generation_id: int, *numbers: int) -> None:
    harness.answer("join", joined(generation_id))
    harness.answer("sync", given(*numbers))


def reported_owned(harness: MembershipHarness) -> tuple[dict[str, list[int]], int]:
    """What the join that is on the wire says of ownership."""
    value = harness.body("join").protocols[0].metadata.value
    return value["owned_partitions"], value["generation_id"]


def numbers(partitions: frozenset[tuple[str, int]]) -> list[int]:
    return sorted(number for _, number in partitions)


def owned(harness: MembershipHarness) -> list[int] | None:
    held = harness.held()
    return None if held is None else numbers(held.partitions)


def shape(call: CallBack) -> tuple[Callback, int, list[int], list[int]]:
    held = call.assignment
    return call.callback, held.generation_id, numbers(held.partitions), numbers(held.kept)


def story(harness: MembershipHarness) -> list[tuple[Callback, int, list[int], list[int]]]:
    """Callbacks after the first: which, generation, what it is about, what is kept besides."""
    return [shape(call) for call in harness.callbacks[1:]]


# --- keeping ---------------------------------------------------------------------------------------------------------


def test_a_rebalance_is_joined_at_once_and_nothing_is_given_up() -> None:
    harness = joining(0, 1)
    assert (harness.state(), list(harness.open), owned(harness)) == (State.JOINING, ["join"], [0, 1])
    assert reported_owned(harness) == ({"clicks": [0, 1]}, 1)
    assert story(harness) == []
    next_generation(harness, 2, 0, 1)
    assert (harness.state(), owned(harness)) == (State.STABLE, [0, 1])
    assert story(harness) == [(ASSIGNED, 2, [], [0, 1])]
    harness.callback_ended()
    assert set(harness.open) == {"heartbeat"}, "nobody waits for anything, so there is no further rebalance"
    assert harness.body("heartbeat").generation_id == 2


def test_a_rule_that_is_eager_or_a_wish_to_be_makes_an_eager_member() -> None:
    mixed = Membership(options(), (CooperativeStickyAssignor(), RangeAssignor()))
    wished = Membership(options(eager=True), COOPERATIVE)
    assert (mixed.cooperative, wished.cooperative) == (False, False)
    assert Membership(options(), COOPERATIVE).cooperative


def test_an_eager_member_of_a_cooperative_group_gives_up_first_and_names_nothing() -> None:
    harness = stable(0, 1, eager=True)
    harness.answer("heartbeat", REBALANCES)
    assert harness.state() is State.REVOKING
    harness.callback_ended()
    assert reported_owned(harness) == ({}, -1)
    assert owned(harness) is None


def test_what_others_are_to_have_is_given_up_first_and_then_joined_about() -> None:
    harness = joining(0, 1, 2)
    next_generation(harness, 2, 1, 3)
    assert (harness.state(), harness.machine.rebalance_pending) == (State.REVOKING, True)
    assert story(harness) == [(REVOKED, 2, [0, 2], [1])]
    assert owned(harness) == [0, 1, 2], "still at work on them; not on what is added"
    assert harness.body("heartbeat").wait_ms == 0
    harness.commit(1, 1, 0, 2)
    assert harness.body("commit").generation_id == 2, "under the new generation, for the old one is over"
    harness.answer("commit", COMMITTED)
    assert "join" not in harness.open, "only the end of the callback says that they are free"
    harness.callback_ended()
    assert story(harness)[1:] == [(ASSIGNED, 2, [3], [1])]
    assert (harness.state(), owned(harness), reported_owned(harness)) == (
        State.JOINING,
        [1, 3],
        ({"clicks": [1, 3]}, 2),
    )
    harness.callback_ended()
    next_generation(harness, 3, 1, 3)
    assert (harness.state(), story(harness)[2:]) == (State.STABLE, [(ASSIGNED, 3, [], [1, 3])])


def test_a_rebalance_during_on_revoked_is_met_by_the_join_that_follows_anyway() -> None:
    harness = joining(0, 1)
    next_generation(harness, 2, 0)
    harness.answer("heartbeat", REBALANCES)
    harness.wait(3_000)
    assert (harness.state(), harness.body("heartbeat").generation_id) == (State.REVOKING, 2)
    harness.answer("heartbeat", REBALANCES)
    joins = len(harness.bodies("join"))
    harness.callback_ended()
    assert len(harness.bodies("join")) == joins + 1
    assert harness.machine.member_id == "m-1"


def test_a_rebalance_while_on_assigned_runs_takes_nothing_back() -> None:
    harness = cooperative().to_syncing()
    harness.answer("sync", given(0, 1))
    harness.answer("heartbeat", REBALANCES)
    assert (harness.state(), reported_owned(harness)) == (State.JOINING, ({"clicks": [0, 1]}, 1))
    next_generation(harness, 2, 0)
    assert story(harness) == [(REVOKED, 2, [1], [0])]
    harness.feed(ev.CallbackEnded(ASSIGNED, 1))
    assert harness.state() is State.REVOKING
    harness.feed(ev.CallbackEnded(REVOKED, 2))
    assert harness.state() is State.JOINING


def test_bug_19_kafka_14016_a_sync_that_must_join_again_drops_nothing() -> None:
    harness = joining(0, 1)
    before = reported_owned(harness)
    for generation_id in (2, 3, 4):
        harness.answer("join", joined(generation_id))
        harness.answer("sync", REBALANCES)
        assert (harness.state(), owned(harness), reported_owned(harness)) == (State.JOINING, [0, 1], before)
        assert story(harness) == []
        assert harness.machine.generation_id == generation_id
    next_generation(harness, 5, 0, 1)
    assert harness.state() is State.STABLE


def test_a_leader_that_must_join_again_while_it_assigns_drops_nothing() -> None:
    harness = joining(0)
    harness.answer("join", joined(2, leader="m-1"))
    harness.wait(3_000)
    harness.answer("heartbeat", REBALANCES)
    assert (harness.state(), owned(harness), reported_owned(harness)) == (State.JOINING, [0], ({"clicks": [0]}, 1))


def test_a_rule_that_never_rests_is_joined_for_more_and_more_slowly() -> None:
    harness = joining(0, 1)
    gaps = []
    for generation_id in range(2, 12):
        next_generation(harness, generation_id, generation_id % 2)  # always the other one
        if harness.callbacks[-1].callback is REVOKED:
            harness.callback_ended()
        harness.callback_ended()
        began = harness.now
        while "join" not in harness.open:
            harness.wait(10)
        gaps.append(harness.now - began)
    assert gaps[0] == 0
    assert gaps[-1] >= 1_000
    assert gaps == sorted(gaps)


# --- commits between two generations ---------------------------------------------------------------------------------


def test_a_commit_while_the_group_waits_for_joins_goes_out_under_the_old_generation() -> None:
    harness = joining(0, 1)
    harness.commit(1, 1)
    assert harness.body("commit").generation_id == 1
    harness.answer("commit", COMMITTED)
    assert harness.settled == {1: COMMITTED}


@pytest.mark.parametrize("code", [ErrorCode.ILLEGAL_GENERATION, ErrorCode.REBALANCE_IN_PROGRESS])
def test_bug_22_librdkafka_4059_a_commit_that_came_too_late_waits_for_the_next_generation(code: ErrorCode) -> None:
    harness = joining(0, 1)
    harness.commit(1, 1)
    harness.answer("commit", refused(code))
    assert (harness.settled, owned(harness), "commit" in harness.open) == ({}, [0, 1], False)
    harness.answer("join", joined(2))
    assert "commit" not in harness.open, "the new generation takes none before its assignment"
    harness.answer("sync", given(0, 1))
    assert harness.body("commit").generation_id == 2
    harness.answer("commit", COMMITTED)
    assert (harness.settled, "held:1" in harness.timers) == ({1: COMMITTED}, False)
    assert LOST not in [callback for callback, _ in harness.called()]


def test_a_commit_while_syncing_waits_and_goes_on_where_the_sync_fails() -> None:
    harness = joining(0)
    harness.answer("join", joined(2))
    harness.commit(1, 1)
    assert "commit" not in harness.open
    harness.answer("sync", REBALANCES)
    assert harness.body("commit").generation_id == 2, "the group waits for joins again, and takes it"


def test_a_commit_that_waited_for_a_partition_that_is_gone_is_refused() -> None:
    harness = joining(0, 1)
    harness.answer("join", joined(2))
    harness.commit(1, 1, 1)
    harness.answer("sync", given(0))
    assert harness.body("commit").generation_id == 2, "on_revoked still runs"
    harness.answer("commit", GONE)
    harness.callback_ended()
    harness.commit(2, 1, 1)
    outcome = harness.settled[2]
    assert isinstance(outcome, Refused)
    assert outcome.problem.error_code == ErrorCode.ILLEGAL_GENERATION


def test_a_late_answer_to_a_commit_is_repeated_under_the_new_generation_only_for_what_is_still_owned() -> None:
    harness = joining(0, 1)
    harness.commit(1, 1, 0)
    kept = harness.open.pop("commit")
    harness.commit(2, 1, 1)
    gone = harness.open.pop("commit")
    next_generation(harness, 2, 0)
    harness.callback_ended()
    late = refused(ErrorCode.ILLEGAL_GENERATION)
    harness.feed(ev.CallEnded(gone.call_id, late))
    outcome = harness.settled[2]
    assert isinstance(outcome, Refused)
    assert "does not own clicks-1" in outcome.problem.detail
    harness.feed(ev.CallEnded(kept.call_id, late))
    assert harness.body("commit").generation_id == 2


def test_a_commit_does_not_wait_for_ever() -> None:
    harness = joining(0, call_timeout_ms=2_000)
    harness.answer("join", joined(2))
    harness.commit(1, 1)
    harness.wait(1_999)
    assert harness.settled == {}
    harness.wait(1)
    outcome = harness.settled[1]
    assert isinstance(outcome, Refused)
    assert outcome.problem.error_code == ErrorCode.REBALANCE_IN_PROGRESS
    harness.commit(2, 1)
    harness.feed(ev.CallAbandoned(2))
    assert "held:2" not in harness.timers


def test_in_a_settled_generation_a_refusal_goes_to_the_caller() -> None:
    harness = stable(0)
    for ticket, code in enumerate([ErrorCode.ILLEGAL_GENERATION, ErrorCode.REBALANCE_IN_PROGRESS]):
        harness.commit(ticket, 1)
        harness.answer("commit", refused(code))
        assert harness.settled[ticket] == refused(code)
    assert (harness.state(), owned(harness)) == (State.STABLE, [0])


# --- losing ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", [ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION])
@pytest.mark.parametrize("call", ["heartbeat", "join", "sync"])
def test_a_member_that_the_group_has_dropped_loses_everything_once(call: str, code: ErrorCode) -> None:
    harness = stable(0, 1) if call == "heartbeat" else joining(0, 1)
    if call == "sync":
        harness.answer("join", joined(2))
    harness.answer(call, refused(code))
    assert story(harness) == [(LOST, 1, [0, 1], [])]
    assert (harness.state(), owned(harness), reported_owned(harness)) == (State.JOINING, None, ({}, -1))
    assert harness.body("join").member_id == ("" if code is ErrorCode.UNKNOWN_MEMBER_ID else "m-1")
    assert "session" not in harness.timers


@pytest.mark.parametrize("code", [ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION])
def test_dropped_while_a_part_is_given_up_the_rest_is_lost_and_nothing_is_added(code: ErrorCode) -> None:
    harness = joining(0, 1)
    next_generation(harness, 2, 0, 2)
    harness.answer("heartbeat", refused(code))
    assert story(harness) == [(REVOKED, 2, [1], [0]), (LOST, 2, [0], [])]
    assert (harness.state(), harness.open) == (State.REVOKING, {})
    harness.feed(ev.CallbackEnded(REVOKED, 2))
    assert (harness.state(), reported_owned(harness), len(harness.callbacks)) == (State.JOINING, ({}, -1), 3)


def test_a_fatal_answer_loses_what_is_not_being_given_up() -> None:
    harness = joining(0, 1)
    next_generation(harness, 2, 0)
    harness.answer("heartbeat", refused(ErrorCode.FENCED_INSTANCE_ID))
    assert story(harness) == [(REVOKED, 2, [1], [0]), (LOST, 2, [0], [])]
    assert isinstance(harness.machine.error, errors.Fenced)
    fenced = joining(0, 1)
    fenced.answer("join", refused(ErrorCode.FENCED_INSTANCE_ID))
    assert story(fenced) == [(LOST, 1, [0, 1], [])]


def test_a_join_that_is_answered_keeps_alive_what_is_owned() -> None:
    harness = joining(0)
    for _ in range(20):
        harness.wait(15_000)
        harness.answer("join", waiting())
    harness.answer("join", joined(2))
    for _ in range(20):
        harness.wait(15_000)
        harness.answer("sync", waiting())
    assert (harness.state(), owned(harness), story(harness)) == (State.SYNCING, [0], [])


def test_the_answer_to_a_join_or_sync_of_an_owner_is_due_twice_within_its_session() -> None:
    harness = joining(0, session_timeout_ms=6_000)
    for name in ("join", "sync"):
        call = harness.open[name]
        assert isinstance(call, Send)
        assert (harness.body(name).max_wait_ms, call.timeout_ms) == (1_500, 2_500)
        if name == "join":
            harness.answer("join", joined(2))


@pytest.mark.parametrize("stage", ["join", "sync"])
def test_silence_for_a_session_loses_what_is_owned_while_the_call_goes_on(stage: str) -> None:
    harness = joining(0, 1)
    if stage == "sync":
        harness.answer("join", joined(2))
    harness.wait(44_999)
    assert story(harness) == []
    harness.wait(1)
    assert story(harness) == [(LOST, 1, [0, 1], [])]
    harness.open.pop("list_rebalances", None)  # asked after ten seconds, for the log alone
    assert (owned(harness), list(harness.open)) == (None, [stage]), "another call would not be heard either"
    assert len(harness.warnings) == 1
    if stage == "join":
        harness.answer("join", joined(2))
    else:
        harness.answer("sync", given(0))
        assert owned(harness) is None, "what was sent a session ago says nothing of now"
    harness.answer("sync", given(0))
    # The leader believes that 1 is owned, and nobody owns it now: it must hear that 1 is free.
    assert story(harness)[1:] == [(ASSIGNED, 2, [0], [])]
    assert (harness.state(), reported_owned(harness)) == (State.JOINING, ({"clicks": [0]}, 2))


def test_silence_while_a_part_is_given_up_loses_the_rest() -> None:
    harness = joining(0, 1)
    next_generation(harness, 2, 0)
    harness.wait(45_000)
    assert story(harness) == [(REVOKED, 2, [1], [0]), (LOST, 2, [0], [])]


def test_a_coordinator_that_is_gone_is_looked_up_and_nothing_is_lost() -> None:
    harness = joining(0)
    before = harness.body("join")
    harness.answer("join", GONE)
    assert (harness.state(), owned(harness)) == (State.FINDING, [0])
    harness.answer("coordinator", located("http://node-2"))
    assert (harness.state(), harness.body("join"), harness.url("join")) == (State.JOINING, before, "http://node-2")


# --- leaving, failing ------------------------------------------------------------------------------------------------


def test_a_leave_gives_up_everything_first() -> None:
    harness = stable(0, 1)
    harness.feed(ev.LeaveRequested("done", stay=False))
    assert story(harness) == [(REVOKED, 1, [0, 1], [])]
    harness.callback_ended()
    assert list(harness.open) == ["leave"]
    harness.answer("leave", LEFT)
    assert (harness.state(), harness.timers) == (State.LEFT, {})


def test_a_leave_while_it_joins_gives_up_under_the_old_generation() -> None:
    harness = joining(0, 1)
    harness.feed(ev.LeaveRequested(None, stay=False))
    assert (harness.state(), story(harness)) == (State.REVOKING, [(REVOKED, 1, [0, 1], [])])
    assert list(harness.open) == ["heartbeat"], "the join is given up; the member must live on for its commit"
    harness.commit(1, 1)
    assert harness.body("commit").generation_id == 1
    harness.answer("commit", COMMITTED)
    harness.answer("heartbeat", REBALANCES)
    harness.callback_ended()
    assert list(harness.open) == ["leave"]


def test_a_leave_while_it_syncs_lets_the_round_end_for_nothing_can_be_committed_before() -> None:
    harness = joining(0, 1)
    harness.answer("join", joined(2))
    harness.feed(ev.LeaveRequested(None, stay=False))
    assert (harness.state(), list(harness.open)) == (State.SYNCING, ["sync"])
    harness.answer("sync", given(0, 5))
    assert story(harness) == [(REVOKED, 1, [0, 1], [])], "what is given now is never taken"
    assert harness.body("heartbeat").generation_id == 2
    harness.callback_ended()
    assert list(harness.open) == ["leave"]


@pytest.mark.parametrize("how", ["late", "another", "lost"])
def test_a_leave_while_it_syncs_does_not_wait_for_ever(how: str) -> None:
    harness = joining(0)
    harness.answer("join", joined(2))
    harness.feed(ev.LeaveRequested(None, stay=False))
    if how == "late":
        harness.wait(4_999)
        assert harness.state() is State.SYNCING
        harness.wait(1)
    elif how == "another":
        harness.answer("sync", REBALANCES)
    else:
        harness.answer("sync", refused(ErrorCode.ILLEGAL_GENERATION))
    if how == "lost":
        assert story(harness) == [(LOST, 1, [0], [])]
    else:
        assert (harness.state(), story(harness)) == (State.REVOKING, [(REVOKED, 1, [0], [])])
        harness.callback_ended()
    assert list(harness.open) == ["leave"]


def test_a_leave_while_a_part_is_given_up_gives_up_the_rest_and_takes_nothing() -> None:
    harness = joining(0, 1)
    next_generation(harness, 2, 0, 3)
    harness.feed(ev.LeaveRequested(None, stay=False))
    harness.callback_ended()
    assert story(harness) == [(REVOKED, 2, [1], [0]), (REVOKED, 2, [0], [])]
    harness.callback_ended()
    assert list(harness.open) == ["leave"]
    assert len(harness.callbacks) == 3


def test_on_assigned_that_fails_gives_up_what_was_taken_before_and_fails() -> None:
    harness = joining(0)
    next_generation(harness, 2, 0, 1)
    harness.callback_ended(OSError("disk full"))
    assert story(harness) == [(ASSIGNED, 2, [1], [0]), (REVOKED, 2, [0], [])]
    harness.callback_ended()
    harness.answer("leave", LEFT)
    assert isinstance(harness.machine.error, errors.CallbackFailed)


def test_on_assigned_that_fails_later_than_the_next_generation_came_fails_all_the_same() -> None:
    harness = cooperative().to_syncing()
    harness.answer("sync", given(0))
    harness.answer("heartbeat", REBALANCES)
    next_generation(harness, 2, 0, 1)
    harness.feed(ev.CallbackEnded(ASSIGNED, 1, OSError("disk full")))
    assert story(harness)[1:] == [(REVOKED, 2, [1], [])], "0 was never taken"
    lost = stable(0)
    lost.answer("heartbeat", refused(ErrorCode.UNKNOWN_MEMBER_ID))
    lost.feed(ev.CallbackEnded(ASSIGNED, 1, OSError("disk full")))
    assert lost.state() is State.JOINING, "of what is lost already it is no news"


def test_an_unreadable_assignment_gives_up_before_the_leave() -> None:
    harness = joining(0)
    harness.answer("join", joined(2))
    harness.answer("sync", synced(OpaqueJson.of("x")))
    assert story(harness) == [(REVOKED, 1, [0], [])]
    harness.callback_ended()
    harness.answer("leave", LEFT)
    assert isinstance(harness.machine.error, errors.UnreadableAssignment)


def test_an_assignor_that_fails_gives_up_before_the_leave() -> None:
    harness = joining(0)
    harness.answer("join", joined(2, leader="m-1"))
    harness.feed(ev.AssignmentFailed(harness.open.pop("assign").call_id, KeyError("x"), retriable=False))
    assert story(harness) == [(REVOKED, 1, [0], [])]
    harness.callback_ended()
    assert list(harness.open) == ["leave"]


# --- another subscription --------------------------------------------------------------------------------------------


def test_what_nobody_here_subscribes_to_any_more_is_given_up_before_the_join() -> None:
    harness = cooperative(topics=("clicks", "orders")).to_syncing()
    harness.answer("sync", synced(OpaqueJson.of({"partitions": {"clicks": [0], "orders": [1]}})))
    harness.callback_ended()
    harness.feed(ev.SubscriptionChanged(("clicks",), None))
    assert harness.callbacks[-1].assignment.partitions == {("orders", 1)}
    assert harness.state() is State.REVOKING
    harness.callback_ended()
    assert (harness.state(), reported_owned(harness)) == (State.JOINING, ({"clicks": [0]}, 1))


def test_more_topics_cost_nothing() -> None:
    harness = stable(0)
    harness.feed(ev.SubscriptionChanged(("clicks", "orders"), None))
    assert (harness.state(), reported_owned(harness), story(harness)) == (State.JOINING, ({"clicks": [0]}, 1), [])


@pytest.mark.parametrize("stage", ["join", "202", "sync", "again"])
def test_another_subscription_in_the_middle_of_a_round_follows_after_it(stage: str) -> None:
    harness = joining(0)
    if stage in {"sync", "again"}:
        harness.answer("join", joined(2))
    harness.feed(ev.SubscriptionChanged(("orders",), None))
    if stage == "202":
        harness.wait(15_000)
        harness.answer("join", waiting())
        assert harness.body("join").protocols[0].metadata.value["topics"] == ["clicks"]
    if stage in {"join", "202"}:
        harness.answer("join", joined(2))
    harness.answer("sync", REBALANCES if stage == "again" else given(0))
    assert harness.callbacks[-1].callback is REVOKED
    assert owned(harness) == [0]
    harness.feed(ev.CallbackEnded(REVOKED, harness.callbacks[-1].assignment.generation_id))
    assert harness.body("join").protocols[0].metadata.value["topics"] == ["orders"]
    assert reported_owned(harness)[0] == {}


def test_a_quiet_group_stays_quiet() -> None:
    harness = stable(0)
    joins = len(harness.bodies("join"))
    for _ in range(100):
        harness.wait(20_000)
        harness.answer("heartbeat", BEATEN)
    assert len(harness.bodies("join")) == joins
