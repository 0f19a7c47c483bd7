"""A group moves from one node to another: which node is asked, when, and that the member stays what it is."""

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest

from rallypoint.member.core import events as ev
from rallypoint.member.core.dispatch import LATE_AFTER_MS, LATE_AGAIN_MS, LOOK_UP_TIMEOUT_MS
from rallypoint.member.core.events import Callback
from rallypoint.member.core.outcomes import Answered, Outcome, Refused, Unreachable
from rallypoint.member.core.route import Route
from rallypoint.member.core.states import State
from rallypoint.protocol import messages as m
from rallypoint.protocol import operations as ops
from rallypoint.protocol.errors import ErrorCode
from tests.member.core.membership_harness import (
    BEATEN,
    CLICKS,
    COMMIT,
    GONE,
    MembershipHarness,
    joined,
    located,
    refused,
)

A, B, C = "http://a", "http://b", "http://c"
SILENT = Unreachable("no answer within 10000 ms")
LOADING = refused(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, retry_after_ms=1_000)
NOBODY = located(None, ErrorCode.COORDINATOR_NOT_AVAILABLE)
COMMITTED = Answered(m.CommitAnswer(offsets={}))


def cluster(**changes: Any) -> MembershipHarness:
    return MembershipHarness(**({"coordinator": (A, B, C)} | changes))


def joining_at_a(**changes: Any) -> MembershipHarness:
    harness = cluster(**changes)
    harness.feed(ev.Started())
    harness.answer("coordinator", located(A))
    harness.answer("join", refused(ErrorCode.MEMBER_ID_REQUIRED, member_id="m-1"))
    return harness


def settled_at_a(**changes: Any) -> MembershipHarness:
    """A follower of generation 1 at the node A, over a channel; its first heartbeat was answered."""
    harness = cluster(**changes)
    harness.feed(ev.ChannelOpened(A))
    harness.feed(ev.Started())
    harness.answer("coordinator", located(A))
    harness.answer("join", joined())
    harness.answer("sync", Answered(m.SyncAnswer(protocol_type="consumer", protocol_name="range", assignment=CLICKS)))
    harness.callback_ended()
    harness.answer("heartbeat", BEATEN)
    return harness


def moved_to(url: str) -> Refused:
    return refused(ErrorCode.NOT_COORDINATOR, url=url)


def is_what_it_was(harness: MembershipHarness) -> bool:
    """Whether it holds what it held, as the member that it was."""
    return (
        harness.state() is State.STABLE
        and harness.called() == [(Callback.ASSIGNED, 1)]
        and (harness.machine.member_id, harness.machine.generation_id) == ("m-1", 1)
    )


# --- a coordinator that is gone --------------------------------------------------------------------------------------


def times_of(
    operation: str, harness: MembershipHarness, answer: Callable[[str, str], Outcome]
) -> list[tuple[int, str]]:
    """When it was said, and to whom, in nine seconds in which `answer` says by operation and node what comes of it."""
    said = []
    while harness.now < 12_000:
        if not harness.open:
            harness.wait(100)
            continue
        (called,) = harness.open
        url = harness.url(called)
        if called == operation:
            said.append((harness.now, url))
        harness.answer(called, answer(called, url))
    return said


def gaps_in(said: list[tuple[int, str]]) -> list[int]:
    return [later - earlier for (earlier, _), (later, _) in pairwise(said)]


def lost_at_a() -> MembershipHarness:
    harness = settled_at_a()
    harness.wait(3_000)
    harness.answer("heartbeat", GONE)
    return harness


def test_while_a_node_says_that_nobody_coordinates_the_group_it_is_asked_each_second() -> None:
    """Who was to wait for two seconds would be back so much later than the group."""
    said = times_of("coordinator", lost_at_a(), lambda _, url: GONE if url == A else NOBODY)
    assert gaps_in(said) == [0, 0, 100, 200, 400, 800, *[1_000] * (len(said) - 7)]
    assert [url for _, url in said].count(A) in range(3, 6), "who is gone has its turn, too"


def test_so_is_a_coordinator_that_is_gone_and_still_named() -> None:
    """The others name it until its lease runs out."""
    said = times_of("heartbeat", lost_at_a(), lambda called, _: GONE if called == "heartbeat" else located(A))
    assert gaps_in(said) == [100, 200, 400, 800, *[1_000] * (len(said) - 5)]
    assert len(said) > 10


def test_where_no_node_answers_the_wait_grows_to_its_limit() -> None:
    said = times_of("coordinator", lost_at_a(), lambda *_: GONE)
    assert gaps_in(said) == [0, 0, 100, 200, 400, 800, 1_600, 2_000, 2_000]


@pytest.mark.parametrize("failure", [GONE, SILENT])
def test_a_member_goes_on_at_the_next_coordinator_as_the_member_that_it_is(failure: Outcome) -> None:
    harness = settled_at_a()
    harness.wait(3_000)
    harness.answer("heartbeat", failure)
    assert (harness.url("coordinator"), harness.now) == (B, 3_000), "another node is asked, at once"
    harness.answer("coordinator", located(C))
    assert harness.url("heartbeat") == C
    assert (harness.body("heartbeat").member_id, harness.body("heartbeat").generation_id) == ("m-1", 1)
    harness.answer("heartbeat", BEATEN)
    assert is_what_it_was(harness)


def lose_a(harness: MembershipHarness) -> None:
    """All calls to A fail, three seconds after the last heartbeat."""
    harness.ask(1, ops.COMMIT, COMMIT)
    harness.wait(3_000)
    for call in ("heartbeat", "commit"):
        harness.answer(call, GONE)


def look_up_in_vain(harness: MembershipHarness, *, until_ms: int) -> None:
    """No node names a coordinator until then, and somewhat longer."""
    while harness.now < until_ms:
        harness.answer("coordinator", NOBODY)
        while "coordinator" not in harness.open:
            harness.wait(10)


def test_a_loss_and_the_move_after_it_are_one_line() -> None:
    harness = settled_at_a()
    lose_a(harness)
    look_up_in_vain(harness, until_ms=9_000)
    harness.answer("coordinator", located(B))
    assert harness.warnings == [], "it is not heard of yet"
    harness.answer("heartbeat", BEATEN)
    harness.answer("commit", COMMITTED)
    (line,) = harness.warnings
    lasted = f"{(harness.now - 3_000) / 1000:.1f} s"
    assert line == f"coordinator moved from {A} to {B} after {lasted}: heartbeat at {A}: connection refused"
    assert harness.notes == []


def test_a_loss_that_lasts_is_told_and_so_is_its_end() -> None:
    harness = settled_at_a()
    lose_a(harness)
    look_up_in_vain(harness, until_ms=20_000)
    (missed,) = harness.warnings
    assert missed == f"heartbeat at {A}: connection refused; no coordinator has answered for 10.0 s"
    harness.answer("coordinator", located(B))
    harness.answer("heartbeat", BEATEN)
    harness.answer("commit", COMMITTED)
    lasted = f"{(harness.now - 3_000) / 1000:.1f} s"
    assert harness.warnings == [missed, f"coordinator moved from {A} to {B} after {lasted}"], "as loud as the loss"
    assert harness.notes == []


def test_a_loss_is_told_at_once_where_no_other_node_can_take_over() -> None:
    harness = settled_at_a(coordinator=(A,))
    lose_a(harness)
    assert harness.warnings == [f"heartbeat at {A}: connection refused; trying again"]
    harness.wait(1_000)
    harness.answer("coordinator", located(A))
    harness.answer("heartbeat", BEATEN)
    assert [note.split(" after ")[0] for note in harness.notes] == [f"coordinator {A} answers"]
    assert len(harness.warnings) == 1


def test_whoever_begins_without_a_coordinator_is_told_at_once() -> None:
    """Three nodes are given, and none of them has served it yet: perhaps their addresses are wrong."""
    harness = cluster()
    harness.feed(ev.Started())
    harness.answer("coordinator", GONE)
    assert [line.partition(" at ")[2] for line in harness.warnings] == [f"{A}: connection refused; trying again"]


def be_refused_while_it_loads(harness: MembershipHarness, *, times: int) -> None:
    """The coordinator refuses so many heartbeats, for it loads the group; the next one is under way."""
    for _ in range(times):
        harness.answer("heartbeat", refused(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS))
        while "heartbeat" not in harness.open:
            harness.wait(10)


def test_a_planned_move_is_one_line_also_while_the_next_coordinator_loads_the_group() -> None:
    harness = settled_at_a()
    harness.feed(ev.GroupUnloaded(A))
    harness.answer("coordinator", located(B))
    be_refused_while_it_loads(harness, times=5)
    harness.answer("heartbeat", BEATEN)
    assert (harness.notes, harness.warnings) == ([f"coordinator moved from {A} to {B}"], [])


def test_so_it_is_while_nodes_send_the_member_to_each_other_for_a_moment() -> None:
    harness = settled_at_a()
    harness.feed(ev.GroupUnloaded(A, B))
    for at, named in ((B, A), (A, B), (B, A), (A, B)):
        assert harness.url("heartbeat") == at
        harness.answer("heartbeat", refused(ErrorCode.NOT_COORDINATOR, url=named))
    harness.answer("coordinator", located(B))
    while "heartbeat" not in harness.open:
        harness.wait(10)
    harness.answer("heartbeat", BEATEN)
    assert (harness.notes, harness.warnings) == ([f"coordinator moved from {A} to {B}"], [])


def test_a_coordinator_that_loads_the_group_for_long_is_told_of_once() -> None:
    harness = settled_at_a()
    harness.feed(ev.GroupUnloaded(A))
    harness.answer("coordinator", located(B))
    be_refused_while_it_loads(harness, times=8)
    harness.answer("heartbeat", BEATEN)
    (moved,) = harness.warnings
    assert moved.startswith(f"coordinator moved from {A} to {B} after ")
    assert f" s: heartbeat at {B}: COORDINATOR_LOAD_IN_PROGRESS: " in moved


def test_a_failure_after_refusals_that_were_not_told_is_told() -> None:
    harness = settled_at_a()
    harness.wait(3_000)
    be_refused_while_it_loads(harness, times=1)
    harness.answer("heartbeat", GONE)
    while "coordinator" not in harness.open:
        harness.wait(10)
    harness.answer("coordinator", located(A))
    harness.answer("heartbeat", BEATEN)
    (line,) = harness.warnings
    assert line.startswith(f"coordinator {A} answers after ")
    assert line.endswith(f" s: heartbeat at {A}: connection refused")


def test_a_coordinator_that_comes_back_is_told_too() -> None:
    harness = settled_at_a()
    harness.feed(ev.ChannelLost(A, "connection reset"))
    harness.answer("coordinator", located(A))
    harness.answer("heartbeat", BEATEN)
    lost = f"the channel with {A} is lost: connection reset"
    assert harness.warnings == [f"coordinator {A} answers after 0.0 s: {lost}"]
    harness.wait(3_000)
    harness.answer("heartbeat", BEATEN)
    assert (len(harness.notes), len(harness.warnings)) == (0, 1)


def test_a_late_answer_of_the_coordinator_before_is_no_move_back() -> None:
    harness = settled_at_a()
    harness.ask(1, ops.COMMIT, COMMIT)
    harness.feed(ev.GroupUnloaded(A))
    harness.answer("coordinator", located(B))
    harness.answer("heartbeat", BEATEN)
    harness.answer("commit", COMMITTED)
    harness.wait(3_000)
    harness.answer("heartbeat", BEATEN)
    assert (harness.notes, harness.warnings) == ([f"coordinator moved from {A} to {B}"], []), "nobody was alarmed"


def test_what_waits_at_a_silent_node_is_said_again_where_the_group_is_now() -> None:
    harness = settled_at_a(call_timeout_ms=20_000)
    harness.ask(1, ops.COMMIT, COMMIT)
    harness.wait(3_000)
    harness.answer("heartbeat", SILENT)
    harness.answer("coordinator", located(B))
    assert (harness.url("commit"), harness.url("heartbeat")) == (B, B)
    harness.wait(16_999)
    assert harness.settled == {}
    harness.wait(1)
    assert list(harness.settled) == [1], "its time is counted from the user's call"


def test_what_waits_at_a_node_that_answers_others_is_left_to_it() -> None:
    harness = settled_at_a()
    harness.ask(1, ops.COMMIT, COMMIT)
    harness.wait(3_000)
    harness.answer("heartbeat", refused(ErrorCode.COORDINATOR_NOT_AVAILABLE))
    harness.answer("coordinator", located(B))
    assert (harness.url("commit"), harness.url("heartbeat")) == (A, B)


def test_another_node_is_asked_again_and_again_while_the_coordinator_is_late_with_an_answer() -> None:
    harness = settled_at_a(call_timeout_ms=20_000)
    harness.ask(1, ops.COMMIT, COMMIT)
    harness.wait(LATE_AFTER_MS - 1)
    assert "coordinator" not in harness.open
    harness.wait(1)
    for _ in range(3):
        assert harness.url("coordinator") != A, "which would not answer that either"
        harness.answer("coordinator", located(A))
        assert harness.url("commit") == A, "it may still answer"
        assert "coordinator" not in harness.open
        harness.wait(LATE_AGAIN_MS)
    harness.answer("coordinator", located(B))
    assert harness.url("commit") == B
    harness.answer("commit", COMMITTED)
    assert harness.settled == {1: COMMITTED}


def test_a_coordinator_that_answers_in_time_is_not_doubted() -> None:
    harness = settled_at_a()
    for ticket in range(1, 8):
        harness.ask(ticket, ops.COMMIT, COMMIT)
        harness.wait(LATE_AFTER_MS - 1)
        harness.answer("commit", COMMITTED)
        if "heartbeat" in harness.open:
            harness.answer("heartbeat", BEATEN)
        assert "coordinator" not in harness.open


def test_an_answer_that_may_be_held_back_is_not_late_before_that_time() -> None:
    harness = joining_at_a(park_wait_ms=5_000)
    assert "join" in harness.open
    harness.wait(5_000 + LATE_AFTER_MS - 1)
    assert "coordinator" not in harness.open
    harness.wait(1)
    assert "coordinator" in harness.open


def test_a_lone_node_that_is_late_is_waited_for() -> None:
    harness = settled_at_a(coordinator=A)
    harness.ask(1, ops.COMMIT, COMMIT)
    harness.wait(LATE_AFTER_MS + LATE_AGAIN_MS)
    assert "coordinator" not in harness.open


def test_what_waits_for_its_next_try_at_a_dead_node_does_not_wait_once_another_is_known() -> None:
    harness = settled_at_a()
    harness.ask(1, ops.COMMIT, COMMIT)
    for _ in range(6):  # every node still names the dead one
        harness.answer("commit", GONE)
        while "commit" not in harness.open:
            harness.wait(10)
            if "coordinator" in harness.open:
                harness.answer("coordinator", located(A))
            if "heartbeat" in harness.open:
                harness.answer("heartbeat", BEATEN)
    harness.answer("commit", GONE)
    assert "commit" not in harness.open
    harness.feed(ev.GroupUnloaded(A))
    harness.answer("coordinator", located(B))
    assert harness.url("commit") == B


@pytest.mark.parametrize("call", ["join", "sync"])
def test_a_join_or_sync_that_waited_is_sent_again_as_it_was(call: str) -> None:
    harness = joining_at_a()
    if call == "sync":
        harness.answer("join", joined())
    before = harness.body(call)
    harness.answer(call, GONE)
    harness.answer("coordinator", located(C))
    assert (harness.url(call), harness.body(call)) == (C, before)


def test_a_commit_waits_for_a_coordinator_and_is_then_repeated() -> None:
    harness = settled_at_a()
    harness.ask(1, ops.COMMIT, COMMIT)
    harness.answer("commit", GONE)
    until = harness.now + 15_000
    while harness.now < until:
        if "coordinator" in harness.open:
            harness.answer("coordinator", NOBODY)
        harness.wait(100)
    assert harness.settled == {}
    while "coordinator" not in harness.open:
        harness.wait(10)
    harness.answer("coordinator", located(B))
    assert harness.body("commit") == COMMIT
    harness.answer("commit", COMMITTED)
    assert harness.settled == {1: COMMITTED}


def test_a_session_is_not_given_up_before_its_time() -> None:
    harness = settled_at_a()
    harness.wait(3_000)
    harness.answer("heartbeat", GONE)
    while harness.now < 44_990:
        if "coordinator" in harness.open:
            harness.answer("coordinator", GONE)
        harness.wait(10)
    assert is_what_it_was(harness)
    harness.wait(20)
    assert harness.called()[-1] == (Callback.LOST, 1)


def test_a_hand_over_of_less_than_half_a_second_costs_less_than_one() -> None:
    for jitter in (0.0, 0.5, 0.99):
        harness = settled_at_a(jitter=jitter)
        harness.feed(ev.GroupUnloaded(A))
        while "heartbeat" not in harness.open:
            if "coordinator" in harness.open:
                harness.answer("coordinator", NOBODY if harness.now < 400 else located(B))
            else:
                harness.wait(10)
        assert harness.now < 800
        harness.answer("heartbeat", LOADING)
        while "heartbeat" not in harness.open:
            harness.wait(10)
        assert harness.now < 1_000, "a node that is about to serve is asked soon, whatever it says"


# --- which node is asked ---------------------------------------------------------------------------------------------


def test_a_first_node_that_is_dead_costs_one_failure() -> None:
    harness = cluster()
    harness.feed(ev.Started())
    harness.answer("coordinator", GONE)
    assert (harness.url("coordinator"), harness.now) == (B, 0)
    harness.answer("coordinator", located(C))
    harness.answer("join", GONE)
    assert harness.url("coordinator") == B, "the node that answered last is asked first"


def test_a_look_up_waits_less_for_a_node_where_another_can_be_asked() -> None:
    timeouts = []
    for urls in (A, (A, B)):
        harness = cluster(coordinator=urls)
        harness.feed(ev.Started())
        timeouts.append(harness.sends[-1].timeout_ms)
    assert timeouts == [10_000, LOOK_UP_TIMEOUT_MS]
    harness = cluster(session_timeout_ms=6_000)
    harness.feed(ev.Started())
    assert harness.sends[-1].timeout_ms == 1_000


def test_nodes_that_may_be_gone_are_asked_last_until_they_are_heard_of() -> None:
    route = Route((A, B, C))
    route.not_heard(A)
    route.draining.add(B)
    assert [route.next_node() for _ in range(4)] == [C, A, B, C]
    route.heard(A)
    route.begin_round()
    assert [route.next_node() for _ in range(3)] == [A, C, B]
    route.found_by(C)
    route.begin_round()
    assert route.next_node() == C


def test_two_nodes_that_name_each_other_get_no_storm() -> None:
    harness = settled_at_a()
    harness.wait(3_000)
    before = len(harness.sends)
    while harness.now < 5_000:
        if "heartbeat" in harness.open:
            harness.answer("heartbeat", moved_to(B if harness.url("heartbeat") == A else A))
        elif "coordinator" in harness.open:
            harness.answer("coordinator", located(B))
        else:
            harness.wait(10)
    assert len(harness.sends) - before <= 40
    assert is_what_it_was(harness)


# --- a node that says goodbye ----------------------------------------------------------------------------------------


def test_a_node_that_drains_is_asked_no_more_who_comes_after_it() -> None:
    harness = settled_at_a()
    harness.feed(ev.NodeDraining(A))
    assert harness.url("coordinator") == B
    harness.ask(1, ops.COMMIT, COMMIT)
    assert harness.url("commit") == A, "it serves the group until another node does"
    harness.answer("commit", COMMITTED)
    harness.answer("coordinator", NOBODY)
    assert harness.url("coordinator") == C
    harness.answer("coordinator", located(C))
    assert (harness.url("heartbeat"), harness.now) == (C, 0), "the member says there at once that it lives"
    harness.answer("heartbeat", BEATEN)
    assert (harness.notes, harness.warnings) == ([f"coordinator moved from {A} to {C}"], [])
    assert is_what_it_was(harness)


def test_a_node_that_drains_and_still_has_the_group_keeps_it() -> None:
    harness = settled_at_a()
    harness.feed(ev.NodeDraining(A))
    harness.answer("coordinator", located(A))
    assert harness.open == {}
    harness.feed(ev.ChannelLost(A, "closed with 1012"))
    assert harness.url("coordinator") == B
    harness.answer("coordinator", located(B))
    assert (harness.url("heartbeat"), harness.warnings) == (B, [])


def test_a_node_that_drains_is_left_in_peace_by_members_that_are_elsewhere() -> None:
    harness = settled_at_a()
    harness.feed(ev.NodeDraining(B))
    assert harness.open == {}
    harness.wait(3_000)
    harness.answer("heartbeat", GONE)
    assert harness.url("coordinator") == C


def test_a_lone_node_that_drains_is_not_asked_who_comes_after_it() -> None:
    harness = settled_at_a(coordinator=A)
    harness.feed(ev.NodeDraining(A))
    assert harness.open == {}
