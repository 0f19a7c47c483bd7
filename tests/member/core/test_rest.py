"""A member at rest: when it says nothing, by what it lives, and when it speaks again."""

import pytest

from rallypoint.assignors.cooperative_sticky import CooperativeStickyAssignor
from rallypoint.member.core import events as ev
from rallypoint.member.core.events import Callback, Event
from rallypoint.member.core.outcomes import Answered
from rallypoint.member.core.states import State
from rallypoint.protocol import messages as m
from rallypoint.protocol.errors import ErrorCode
from tests.member.core.membership_harness import (
    BEATEN,
    GONE,
    NODE,
    MembershipHarness,
    joined,
    refused,
    synced,
    waiting,
)

SESSION_MS = 45_000
KEPT = Answered(m.HeartbeatAnswer(channel_keeps_session=True))
ELSEWHERE = "http://node-2"


def keeping(answer: Answered) -> Answered:
    """The same, said on a channel that keeps the session."""
    return Answered(answer.answer.model_copy(update={"channel_keeps_session": True}))


def at_rest(harness: MembershipHarness | None = None) -> MembershipHarness:
    """A follower with an assignment, which has joined on a channel that keeps its session."""
    harness = harness or MembershipHarness()
    harness.feed(ev.ChannelOpened(NODE))
    harness.to_rejoining().answer("join", keeping(joined()))
    harness.answer("sync", synced())
    harness.callback_ended()
    return harness


def live_on(harness: MembershipHarness, ms: int) -> None:
    """The channel goes on answering pings."""
    for _ in range(ms // 11_000):
        sent_at_ms = harness.now
        harness.wait(11_000)
        harness.feed(ev.ChannelHeard(NODE, sent_at_ms))


def test_whom_a_channel_keeps_says_nothing() -> None:
    harness = at_rest()
    live_on(harness, 1_000_000)
    assert (harness.state(), harness.bodies("heartbeat")) == (State.STABLE, [])


def test_an_older_service_gets_heartbeats() -> None:
    harness = MembershipHarness()
    harness.feed(ev.ChannelOpened(NODE))
    harness.to_stable()
    for _ in range(3):
        harness.answer("heartbeat", BEATEN)
        harness.wait(3_000)
    assert len(harness.bodies("heartbeat")) == 4


def test_whose_heartbeat_is_answered_by_a_channel_that_keeps_it_rests_from_then_on() -> None:
    harness = MembershipHarness()
    harness.feed(ev.ChannelOpened(NODE))
    harness.to_stable()
    harness.answer("heartbeat", BEATEN)
    harness.wait(3_000)
    harness.answer("heartbeat", KEPT)
    live_on(harness, 200_000)
    assert len(harness.bodies("heartbeat")) == 2


def test_it_lives_a_session_from_when_the_last_ping_was_sent_that_was_answered() -> None:
    harness = at_rest()
    harness.wait(20_000)
    harness.feed(ev.ChannelHeard(NODE, 15_000))
    harness.feed(ev.ChannelHeard(ELSEWHERE, 19_000))
    harness.wait(15_000 + SESSION_MS - 20_001)
    assert harness.state() is State.STABLE
    harness.wait(1)
    assert (harness.state(), harness.called()[-1]) == (State.JOINING, (Callback.LOST, 1))


def test_a_late_pong_makes_it_ask_and_the_answer_lets_it_rest() -> None:
    harness = at_rest()
    harness.wait(14_000)
    harness.feed(ev.ChannelSilent(ELSEWHERE))
    assert "heartbeat" not in harness.open
    harness.feed(ev.ChannelSilent(NODE))
    harness.feed(ev.ChannelSilent(NODE))
    assert harness.body("heartbeat").wait_ms == 0
    harness.answer("heartbeat", KEPT)
    live_on(harness, 100_000)
    assert len(harness.bodies("heartbeat")) == 1


def test_an_answer_that_was_long_on_its_way_counts_from_when_the_heartbeat_was_sent() -> None:
    """The group counted it when it came, and may give everything away so long after that."""
    harness = at_rest()
    harness.wait(14_000)
    harness.feed(ev.ChannelSilent(NODE))
    harness.wait(11_000)
    harness.answer("heartbeat", KEPT)
    assert "heartbeat" in harness.open, "the line is slow: what is known is old, so it asks again"
    harness.wait(14_000 + SESSION_MS - 25_000 - 1)
    assert harness.state() is State.STABLE
    harness.wait(1)
    assert (harness.state(), harness.called()[-1]) == (State.JOINING, (Callback.LOST, 1))


def test_an_assignment_counts_from_when_the_sync_was_sent() -> None:
    harness = MembershipHarness()
    harness.feed(ev.ChannelOpened(NODE))
    harness.to_rejoining().answer("join", keeping(joined()))
    harness.wait(25_000)  # held back, or long on its way
    harness.answer("sync", synced())
    harness.callback_ended()
    harness.wait(SESSION_MS - 25_000 - 1)
    assert harness.state() is State.STABLE
    harness.wait(1)
    assert (harness.state(), harness.called()) == (State.JOINING, [(Callback.ASSIGNED, 1), (Callback.LOST, 1)])


def test_an_assignment_whose_session_is_over_when_it_comes_is_asked_for_again() -> None:
    """Others may have it. The group that has this member still says so at once, and that counts."""
    harness = MembershipHarness()
    harness.to_assigning()
    harness.feed(ev.AssignmentMade(harness.open.pop("assign").call_id, (m.SyncAssignment(member_id="m-1"),)))
    asked = harness.body("sync")
    harness.wait(SESSION_MS)
    harness.answer("sync", synced())
    assert (harness.state(), harness.called(), harness.body("sync")) == (State.SYNCING, [], asked)
    harness.wait(SESSION_MS - 1)
    harness.answer("sync", synced())
    assert (harness.state(), harness.called()) == (State.STABLE, [(Callback.ASSIGNED, 1)])


@pytest.mark.parametrize("stage", ["join", "sync"])
@pytest.mark.parametrize("word", ["waits", "ends"])
def test_whoever_keeps_its_partitions_lives_by_joins_and_syncs_from_when_they_were_sent(stage: str, word: str) -> None:
    harness = MembershipHarness(offers=(CooperativeStickyAssignor(),)).to_stable()
    harness.answer("heartbeat", refused(ErrorCode.REBALANCE_IN_PROGRESS))
    sent_at_ms = harness.now
    if stage == "sync":
        harness.wait(1_000)
        harness.answer("join", joined(2))
        sent_at_ms = harness.now
    harness.wait(20_000)
    if word == "waits":
        harness.answer(stage, waiting())
    else:
        harness.answer(stage, joined(2) if stage == "join" else synced())
    harness.wait(sent_at_ms + SESSION_MS - 1 - harness.now)
    assert Callback.LOST not in {callback for callback, _ in harness.called()}
    harness.wait(1)
    assert harness.called()[-1][0] is Callback.LOST


def test_a_heartbeat_that_was_held_back_counts_from_when_it_was_sent() -> None:
    """How long of that it was held, and how long its answer was on the way, the member cannot know."""
    harness = MembershipHarness()
    harness.to_stable()
    held_ms = harness.body("heartbeat").wait_ms
    assert held_ms > 10_000
    harness.wait(held_ms)
    harness.answer("heartbeat", BEATEN)
    harness.wait(SESSION_MS - held_ms - 1)
    assert harness.state() is State.STABLE
    harness.wait(1)
    assert (harness.state(), harness.called()[-1]) == (State.JOINING, (Callback.LOST, 1))


def test_a_node_that_falls_silent_is_left_for_another() -> None:
    harness = at_rest(MembershipHarness(coordinator=(NODE, ELSEWHERE)))
    harness.wait(14_000)
    harness.feed(ev.ChannelSilent(NODE))
    harness.wait(2_000)
    assert harness.url("coordinator") == ELSEWHERE


@pytest.mark.parametrize(
    "event",
    [
        ev.ChannelLost(NODE, "reset"),
        ev.ChannelOpened(NODE),  # another one, for that was full
        ev.ChannelUnavailable(NODE, "HTTP 404"),
        ev.GroupUnloaded(NODE),
        ev.MemberDropped("m-1"),
    ],
)
def test_it_speaks_again_when_nobody_keeps_it_any_more(event: Event) -> None:
    harness = at_rest()
    harness.wait(5_000)
    harness.feed(event)
    if "coordinator" in harness.open:
        harness.answer("coordinator", _located())
    assert harness.body("heartbeat").wait_ms == 0
    harness.answer("heartbeat", BEATEN)
    harness.wait(3_000)
    assert "heartbeat" in harness.open, "and goes on, for this answer keeps nobody"


def _located() -> Answered:
    entry = m.CoordinatorEntry(group_id="g", shard=1, node_id=None, url=NODE, error_code=0, error_name="NONE")
    return Answered(m.CoordinatorAnswer(coordinators=(entry,)))


def test_what_is_said_of_another_member_on_the_channel_is_nothing_to_it() -> None:
    harness = at_rest()
    harness.feed(ev.MemberDropped("m-2"))
    assert not harness.open


def test_who_is_out_of_the_group_learns_so_and_comes_again() -> None:
    harness = at_rest()
    harness.feed(ev.MemberDropped("m-1"))
    harness.answer("heartbeat", refused(ErrorCode.UNKNOWN_MEMBER_ID))
    assert (harness.state(), harness.called()[-1]) == (State.JOINING, (Callback.LOST, 1))
    assert harness.body("join").member_id == ""


def test_two_that_take_the_same_member_id_do_not_answer_each_other_as_fast_as_they_can() -> None:
    harness = at_rest()
    for _ in range(100):
        if "heartbeat" in harness.open:
            harness.answer("heartbeat", KEPT)
        harness.feed(ev.MemberDropped("m-1"))
        harness.wait(100)
    assert 3 <= len(harness.bodies("heartbeat")) <= 8, "in ten seconds, of three for each heartbeat"


def test_who_is_dropped_again_at_once_learns_why_at_the_next_heartbeat() -> None:
    harness = at_rest()
    harness.feed(ev.MemberDropped("m-1"))
    harness.answer("heartbeat", KEPT)
    harness.feed(ev.MemberDropped("m-1"))
    assert "heartbeat" not in harness.open
    harness.wait(3_000)
    harness.answer("heartbeat", refused(ErrorCode.UNKNOWN_MEMBER_ID))
    assert harness.state() is State.JOINING


def test_who_is_fenced_learns_so_and_stops() -> None:
    harness = at_rest(MembershipHarness(group_instance_id="i"))
    harness.feed(ev.MemberDropped("m-1"))
    harness.answer("heartbeat", refused(ErrorCode.FENCED_INSTANCE_ID))
    assert harness.state() is State.FAILED


def test_a_redirect_of_another_call_makes_it_speak_at_the_new_place() -> None:
    harness = at_rest()
    harness.commit(1)
    harness.answer("commit", refused(ErrorCode.NOT_COORDINATOR, url=ELSEWHERE))
    assert harness.url("heartbeat") == ELSEWHERE
    harness.answer("heartbeat", BEATEN)
    harness.wait(3_000)
    assert "heartbeat" in harness.open


def test_a_leader_that_assigns_for_long_says_nothing_meanwhile() -> None:
    harness = MembershipHarness()
    harness.feed(ev.ChannelOpened(NODE))
    told = m.JoinedMember(member_id="m-1", metadata=synced().answer.assignment)  # type: ignore[attr-defined]
    harness.to_rejoining().answer("join", keeping(joined(leader="m-1", members=(told,))))
    live_on(harness, 100_000)
    assert harness.bodies("heartbeat") == []


def test_while_it_gives_up_it_rests_and_its_next_join_says_anew_who_keeps_it() -> None:
    harness = at_rest()
    harness.feed(ev.RebalanceBegan(1))
    live_on(harness, 55_000)
    assert (harness.state(), harness.bodies("heartbeat")) == (State.REVOKING, [])
    harness.callback_ended()
    harness.answer("join", joined(2))
    harness.answer("sync", synced())
    assert "heartbeat" in harness.open, "the answer to this join keeps nobody"


def test_a_cooperative_one_that_joins_lives_by_its_joins_answers() -> None:
    harness = at_rest(MembershipHarness(offers=(CooperativeStickyAssignor(),)))
    harness.feed(ev.RebalanceBegan(1))
    assert harness.state() is State.JOINING
    for _ in range(4):
        harness.wait(11_000)
        harness.feed(ev.ChannelHeard(NODE, harness.now))
    harness.wait(1_001)
    assert harness.called()[-1] == (Callback.LOST, 1)


@pytest.mark.parametrize("leaves", [True, False])
def test_whether_its_channel_may_keep_it_is_known_at_its_end(leaves: bool) -> None:
    """So that a channel that goes on for others is told not to."""
    harness = at_rest()
    assert harness.machine.carried_member_id == "m-1"
    harness.feed(ev.LeaveRequested("done", stay=not leaves))
    harness.callback_ended()
    if leaves:
        harness.answer("leave", Answered(m.LeaveAnswer(members=())))
    assert harness.state() is State.LEFT
    assert harness.machine.carried_member_id == ("" if leaves else "m-1")


def test_of_a_leave_that_nobody_answers_it_is_not_known_whether_the_group_has_it() -> None:
    harness = at_rest()
    harness.feed(ev.LeaveRequested("done", stay=False))
    harness.callback_ended()
    harness.answer("leave", GONE)
    harness.wait(60_000)
    assert (harness.state(), harness.machine.carried_member_id) == (State.LEFT, "m-1")


def test_an_id_that_is_given_up_is_carried_by_nobody() -> None:
    harness = at_rest()
    harness.feed(ev.MemberDropped("m-1"))
    harness.answer("heartbeat", refused(ErrorCode.UNKNOWN_MEMBER_ID))
    assert harness.machine.carried_member_id == ""


@pytest.mark.parametrize("event", [ev.GroupUnloaded(NODE), ev.MemberDropped("m-1"), ev.RebalanceBegan(1)])
def test_who_ends_while_nobody_has_said_that_its_channel_keeps_it_may_be_carried_all_the_same(event: Event) -> None:
    """Its last call may be on its way."""
    harness = at_rest()
    harness.feed(event)
    harness.callback_ended()
    harness.feed(ev.CloseRequested())
    assert (harness.state(), harness.machine.carried_member_id) == (State.LEFT, "m-1")
