"""What an operator hears of a coordinator that is lost: one line where another takes over soon, and never nothing."""

from collections.abc import Callable
from typing import Any

from rallypoint.member.core import events as ev
from rallypoint.member.core.outcomes import Answered, Outcome
from rallypoint.protocol import messages as m
from rallypoint.protocol import operations as ops
from rallypoint.protocol.errors import ErrorCode
from tests.member.core.membership_harness import BEATEN, COMMIT, GONE, MembershipHarness, located, refused
from tests.member.core.test_failover import NOBODY, A, B, C, settled_at_a

RESTS = Answered(m.HeartbeatAnswer(channel_keeps_session=True))
LOST = "the channel with http://a is lost: reset"
STEP_MS = 10
CALLS = ("heartbeat", "leave", "join", "commit")


def lost_a(**changes: Any) -> MembershipHarness:
    """A is gone since 3,000 ms, with its channel."""
    harness = settled_at_a(**changes)
    harness.wait(3_000)
    harness.feed(ev.ChannelLost(A, "reset"))
    harness.answer("heartbeat", GONE)
    return harness


def go_on(
    harness: MembershipHarness, until_ms: int, found: Outcome, *, until: Callable[[], bool] = lambda: False
) -> None:
    """Until then, or until that: each look-up has this answer, and calls to A fail."""
    while harness.now < until_ms and not until():
        if "coordinator" in harness.open:
            harness.answer("coordinator", found)
        for name in CALLS:
            if name in harness.open and harness.url(name) == A:
                harness.answer(name, GONE)
        harness.wait(STEP_MS)


def be_found_at_b(harness: MembershipHarness, name: str = "heartbeat") -> None:
    go_on(harness, harness.now + 5_000, located(B), until=lambda: name in harness.open and harness.url(name) == B)


def test_a_member_at_rest_asks_the_coordinator_that_it_missed() -> None:
    """Its channel is well, so nothing else would go there: a move an hour later is none after an hour of loss."""
    harness = settled_at_a()
    harness.wait(3_000)
    harness.answer("heartbeat", RESTS)
    harness.ask(1, ops.COMMIT, COMMIT)
    harness.answer("commit", GONE)
    harness.feed(ev.CallAbandoned(1))
    harness.answer("coordinator", located(A))
    harness.answer("heartbeat", RESTS)
    assert harness.warnings == [f"coordinator {A} answers after 0.0 s: commit at {A}: connection refused"]
    for _ in range(360):
        harness.wait(10_000)
        harness.feed(ev.ChannelHeard(A, harness.now))
    harness.feed(ev.GroupUnloaded(A, B))
    harness.answer("heartbeat", RESTS)
    assert (len(harness.warnings), harness.notes) == (1, [f"coordinator moved from {A} to {B}"])


def test_a_session_that_is_over_first_has_its_cause_beside_it() -> None:
    harness = lost_a(session_timeout_ms=9_000)
    go_on(harness, 12_000, NOBODY)
    (line,) = harness.warnings
    assert line.startswith(f"{LOST}; no coordinator has answered for ")


def test_a_leave_that_nobody_answers_has_its_cause_beside_it() -> None:
    harness = lost_a()
    harness.feed(ev.LeaveRequested("done", stay=False))
    harness.callback_ended()
    go_on(harness, 20_000, NOBODY, until=lambda: harness.done is not None)
    assert harness.done is not None
    *_, unanswered, cause = harness.warnings
    assert unanswered == "the leave was not answered; the session will expire instead"
    assert cause == f"{LOST}; no coordinator has answered since"


def test_a_loss_is_told_by_ten_seconds_though_no_call_fails() -> None:
    """B is named and hangs: a call to it may take a minute."""
    harness = lost_a(request_timeout_ms=60_000, session_timeout_ms=200_000)
    go_on(harness, 9_000, NOBODY)
    be_found_at_b(harness)
    go_on(harness, 12_900, located(B))
    assert harness.warnings == []
    go_on(harness, 13_100, located(B))
    assert harness.warnings == [f"{LOST}; no coordinator has answered for 10.0 s"]


def test_a_coordinator_that_holds_a_join_back_is_not_missed_meanwhile() -> None:
    harness = settled_at_a()
    harness.wait(3_000)
    harness.answer("heartbeat", refused(ErrorCode.REBALANCE_IN_PROGRESS))
    harness.callback_ended()
    harness.answer("join", GONE)
    go_on(harness, 9_000, NOBODY)
    be_found_at_b(harness, "join")
    sent_at_ms = harness.now
    go_on(harness, sent_at_ms + 15_000, located(B))
    assert harness.warnings == []
    harness.answer("join", refused(ErrorCode.MEMBER_ID_REQUIRED, member_id="m-2"))
    (line,) = harness.warnings
    told, _, why = line.partition(" after ")
    assert told == f"coordinator moved from {A} to {B}"
    lasted, _, reason = why.partition(" s: ")
    assert abs(float(lasted) - (sent_at_ms - 3_000) / 1000) < 0.2, "until B had the join, not until it answered"
    assert reason == f"join at {A}: connection refused"


def test_nodes_that_were_lost_before_may_take_over_again() -> None:
    harness = settled_at_a()
    for node in (B, C):
        harness.wait(3_000)
        harness.answer("heartbeat", GONE)
        harness.answer("coordinator", located(node))
        harness.answer("heartbeat", BEATEN)
    harness.wait(3_000)
    harness.answer("heartbeat", GONE)
    harness.answer("coordinator", located(A))
    harness.answer("heartbeat", BEATEN)
    assert [line.partition(" after ")[0] for line in harness.warnings] == [
        f"coordinator moved from {A} to {B}",
        f"coordinator moved from {B} to {C}",
        f"coordinator moved from {C} to {A}",
    ]


def test_a_channel_that_is_lost_after_the_call_on_it_is_the_same_loss() -> None:
    harness = settled_at_a()
    harness.wait(3_000)
    harness.answer("heartbeat", GONE)
    harness.answer("coordinator", located(B))
    harness.feed(ev.ChannelLost(A, "reset"))
    harness.answer("heartbeat", BEATEN)
    assert harness.warnings == [f"coordinator moved from {A} to {B} after 0.0 s: heartbeat at {A}: connection refused"]


def test_a_loss_after_a_late_answer_is_a_loss_of_its_own() -> None:
    harness = settled_at_a()
    harness.wait(3_000)
    harness.ask(1, ops.COMMIT, COMMIT)
    harness.answer("heartbeat", GONE)
    harness.answer("coordinator", located(A))
    harness.answer("commit", Answered(m.CommitAnswer(offsets={})))
    go_on(harness, 30_000, located(A))
    answers, lost = harness.warnings
    assert answers.startswith(f"coordinator {A} answers after ")
    assert lost.startswith(f"heartbeat at {A}: connection refused; no coordinator has answered for 1")


def test_a_coordinator_that_has_no_time_is_there() -> None:
    harness = lost_a()
    go_on(harness, 9_000, NOBODY)
    be_found_at_b(harness)
    for _ in range(3):
        harness.answer("heartbeat", refused(ErrorCode.THROTTLING_QUOTA_EXCEEDED))
        while "heartbeat" not in harness.open:
            harness.wait(STEP_MS)
    harness.answer("heartbeat", BEATEN)
    moved, throttled = harness.warnings
    assert moved.startswith(f"coordinator moved from {A} to {B} after 6.")
    assert throttled.startswith(f"heartbeat at {B}: THROTTLING_QUOTA_EXCEEDED: ")
