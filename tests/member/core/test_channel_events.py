"""What a channel tells a member, rule by rule, in virtual time: pushes, losses, and that there are none to be had."""

from itertools import pairwise
from typing import Any

import pytest

from rallypoint.assignors.cooperative_sticky import CooperativeStickyAssignor
from rallypoint.member.core import events as ev
from rallypoint.member.core.events import Callback
from rallypoint.member.core.states import State
from rallypoint.protocol import operations as ops
from rallypoint.protocol.errors import ErrorCode
from tests.member.core.membership_harness import (
    BEATEN,
    COMMIT,
    GONE,
    NODE,
    MembershipHarness,
    joined,
    located,
    refused,
    synced,
)

ASSIGNED, REVOKED, LOST = Callback.ASSIGNED, Callback.REVOKED, Callback.LOST
REBALANCES = refused(ErrorCode.REBALANCE_IN_PROGRESS)


def over_a_channel(**changes: Any) -> MembershipHarness:
    """A settled follower of generation 1, whose first heartbeat was answered over a channel."""
    harness = MembershipHarness(**changes)
    harness.feed(ev.ChannelOpened(NODE))
    harness.to_stable()
    harness.answer("heartbeat", BEATEN)
    return harness


def cooperative(**changes: Any) -> MembershipHarness:
    return over_a_channel(offers=(CooperativeStickyAssignor(),), **changes)


# --- heartbeats ------------------------------------------------------------------------------------------------------


def test_heartbeats_over_a_channel_do_not_wait_and_come_at_their_interval() -> None:
    harness = over_a_channel()
    for _ in range(3):
        harness.wait(2_999)
        assert "heartbeat" not in harness.open
        harness.wait(1)
        harness.answer("heartbeat", BEATEN)
    assert {(beat.wait_ms, beat.generation_id) for beat in harness.bodies("heartbeat")} == {(0, 1)}


def test_heartbeats_wait_where_the_channel_is_with_another_node() -> None:
    harness = MembershipHarness()
    harness.feed(ev.ChannelOpened("http://node-2"))
    harness.to_stable()
    assert harness.body("heartbeat").wait_ms == 11_250


def test_heartbeats_wait_again_where_there_are_no_channels_and_that_is_told_once() -> None:
    harness = over_a_channel()
    for _ in range(3):
        harness.feed(ev.ChannelUnavailable(NODE, "HTTP 404"))
    assert harness.warnings == [f"no channel with {NODE}: HTTP 404; going on over plain HTTP"]
    harness.wait(3_000)
    assert harness.body("heartbeat").wait_ms == 11_250
    harness.feed(ev.ChannelOpened(NODE))
    harness.feed(ev.ChannelUnavailable(NODE, "HTTP 405"))
    assert len(harness.warnings) == 2, "it was open in between, so this is news"


# --- a rebalance -----------------------------------------------------------------------------------------------------


def test_a_rebalance_that_is_pushed_is_joined_at_once() -> None:
    harness = over_a_channel()
    harness.feed(ev.RebalanceBegan(1))
    assert (harness.state(), harness.called()[-1]) == (State.REVOKING, (REVOKED, 1))
    harness.callback_ended()
    assert (harness.state(), harness.now) == (State.JOINING, 0)
    assert harness.body("join").member_id == "m-1"


def test_whoever_gives_up_hears_how_long_the_group_waits() -> None:
    harness = over_a_channel()
    harness.feed(ev.RebalanceBegan(1, 20_000))
    assert harness.revoked_within_ms() == 20_000
    harness.wait(16_000)
    assert harness.warnings[-1] == "on_revoked still runs; the group waits only 4000 ms more"
    harness.wait(4_000)
    assert harness.warnings[-1] == "on_revoked runs too long: the group goes on without this member"


def test_it_hears_so_by_a_heartbeat_too_and_not_when_it_leaves() -> None:
    harness = over_a_channel()
    harness.wait(3_000)
    harness.answer("heartbeat", refused(ErrorCode.REBALANCE_IN_PROGRESS, rejoin_within_ms=7_000))
    assert harness.revoked_within_ms() == 7_000
    harness = over_a_channel()
    harness.feed(ev.LeaveRequested("done", stay=False))
    assert harness.revoked_within_ms() is None


def test_what_the_group_said_of_one_rebalance_is_not_said_of_the_next() -> None:
    harness = over_a_channel()
    harness.feed(ev.RebalanceBegan(1, 20_000))
    harness.callback_ended()
    harness.answer("join", joined(2))
    harness.answer("sync", synced())
    harness.callback_ended()
    harness.feed(ev.RejoinRequested("asked to"))
    assert (harness.called()[-1], harness.revoked_within_ms()) == ((REVOKED, 2), None)


def test_a_rebalance_that_is_pushed_to_a_cooperative_member_takes_nothing_from_it() -> None:
    harness = cooperative()
    harness.feed(ev.RebalanceBegan(1))
    assert (harness.state(), harness.held() is not None) == (State.JOINING, True)
    assert harness.called() == [(ASSIGNED, 1)]


def test_a_rebalance_is_joined_once_however_often_it_is_told() -> None:
    harness = over_a_channel()
    harness.feed(ev.RebalanceBegan(1))
    harness.feed(ev.RebalanceBegan(1))
    harness.wait(3_000)
    harness.answer("heartbeat", REBALANCES)
    harness.callback_ended()
    harness.feed(ev.RebalanceBegan(1))
    before = harness.body("join")
    harness.feed(ev.RebalanceBegan(1))
    assert harness.body("join") is before
    harness.answer("join", joined(2))
    harness.feed(ev.RebalanceBegan(1))
    harness.answer("sync", synced())
    harness.feed(ev.RebalanceBegan(1))
    assert harness.state() is State.STABLE
    assert len(harness.bodies("join")) == 3
    assert harness.called() == [(ASSIGNED, 1), (REVOKED, 1), (ASSIGNED, 2)]


def test_a_push_of_an_older_generation_is_stale() -> None:
    harness = over_a_channel()
    harness.feed(ev.RebalanceBegan(0))
    assert harness.state() is State.STABLE


def test_a_rebalance_that_begins_while_the_member_syncs_ends_the_sync() -> None:
    harness = MembershipHarness()
    harness.feed(ev.ChannelOpened(NODE))
    harness.to_syncing()
    harness.feed(ev.RebalanceBegan(0))
    assert list(harness.open) == ["sync"], "that is the one this member has just joined"
    harness.feed(ev.RebalanceBegan(1))
    assert list(harness.open) == ["join"]


@pytest.mark.parametrize("stage", ["to_joining", "to_rejoining", "to_revoking", "to_leaving"])
def test_a_push_changes_nothing_where_the_member_is_on_its_way_anyhow(stage: str) -> None:
    harness = MembershipHarness()
    getattr(harness, stage)()
    state, sends = harness.state(), len(harness.sends)
    harness.feed(ev.RebalanceBegan(1))
    assert (harness.state(), len(harness.sends)) == (state, sends)


# --- a loss ----------------------------------------------------------------------------------------------------------


def test_a_lost_channel_changes_no_state_and_a_heartbeat_goes_out_at_once() -> None:
    harness = over_a_channel()
    harness.wait(1_000)
    harness.feed(ev.ChannelLost(NODE, "connection reset"))
    harness.answer("coordinator", located())
    assert (harness.now, harness.body("heartbeat").wait_ms) == (1_000, 0)
    assert (harness.state(), harness.called()) == (State.STABLE, [(ASSIGNED, 1)])
    assert harness.warnings == [f"the channel with {NODE} is lost: connection reset; connecting again"]


def test_the_first_try_after_a_loss_comes_at_once_and_the_next_ones_slower_and_slower() -> None:
    harness = over_a_channel(jitter=0.0)
    harness.feed(ev.ChannelLost(NODE, "connection reset"))
    tries = [harness.now]
    for _ in range(6):
        harness.answer("coordinator", GONE)
        assert "coordinator" not in harness.open
        while "coordinator" not in harness.open:
            harness.wait(1)
        tries.append(harness.now)
    pauses = [after - before for before, after in pairwise(tries)]
    assert tries[0] == 0
    assert pauses == [100, 200, 400, 800, 1_600, 2_000]


@pytest.mark.parametrize(("stage", "call"), [("to_rejoining", "join"), ("to_syncing", "sync")])
def test_a_call_that_lost_its_letter_box_is_asked_again_as_it_was(stage: str, call: str) -> None:
    harness = MembershipHarness()
    harness.feed(ev.ChannelOpened(NODE))
    getattr(harness, stage)()
    before = harness.body(call)
    harness.now += 1_000
    harness.answer(call, GONE)
    harness.feed(ev.ChannelLost(NODE, "connection reset"))
    harness.answer("coordinator", located())
    assert (harness.now, harness.body(call)) == (1_000, before)
    assert len([send for send in harness.sends if send.operation.name == call and send.body == before]) == 2


def test_a_cooperative_member_that_joins_keeps_what_it_owns_through_a_loss() -> None:
    harness = cooperative()
    harness.feed(ev.RebalanceBegan(1))
    before = harness.body("join")
    harness.answer("join", GONE)
    harness.feed(ev.ChannelLost(NODE, "connection reset"))
    harness.answer("coordinator", located())
    assert (harness.body("join"), harness.called()) == (before, [(ASSIGNED, 1)])
    assert harness.held() is not None


def test_a_leader_at_work_says_after_a_loss_that_it_lives() -> None:
    harness = MembershipHarness()
    harness.feed(ev.ChannelOpened(NODE))
    harness.to_assigning()
    harness.feed(ev.ChannelLost(NODE, "connection reset"))
    harness.answer("coordinator", located())
    assert harness.body("heartbeat").generation_id == 1
    assert "assign" in harness.open


def test_the_loss_of_a_channel_with_another_node_is_nothing_to_the_member() -> None:
    harness = over_a_channel()
    harness.feed(ev.ChannelOpened("http://node-2"))
    harness.feed(ev.ChannelLost("http://node-2", "closed"))
    assert harness.open == {}
    harness.wait(3_000)
    assert harness.body("heartbeat").wait_ms == 0


def test_what_failed_while_the_line_was_dead_does_not_wait_when_there_is_a_channel_again() -> None:
    harness = over_a_channel()
    harness.wait(3_000)
    for _ in range(4):
        harness.answer("heartbeat", GONE)
        while "heartbeat" not in harness.open:
            if "coordinator" in harness.open:
                harness.answer("coordinator", located())
            else:
                harness.wait(1)
    harness.answer("heartbeat", GONE)
    harness.feed(ev.ChannelLost(NODE, "no pong"))
    assert "heartbeat" not in harness.open
    harness.feed(ev.ChannelOpened(NODE))
    harness.answer("coordinator", located())
    assert "heartbeat" in harness.open


def test_a_look_up_that_failed_does_not_wait_either() -> None:
    harness = over_a_channel()
    harness.feed(ev.ChannelLost(NODE, "connection reset"))
    for _ in range(3):
        while "coordinator" not in harness.open:
            harness.wait(1)
        harness.answer("coordinator", GONE)
    assert harness.open == {}
    harness.feed(ev.ChannelOpened(NODE))
    assert list(harness.open) == ["coordinator"]


def test_what_the_service_asked_to_wait_for_goes_on_waiting() -> None:
    harness = over_a_channel()
    harness.wait(3_000)
    harness.answer("heartbeat", refused(ErrorCode.THROTTLING_QUOTA_EXCEEDED, retry_after_ms=2_000))
    harness.feed(ev.ChannelOpened(NODE))
    assert harness.open == {}


def test_a_member_that_gives_up_what_is_not_its_own_any_more_says_nothing_after_a_loss() -> None:
    harness = over_a_channel()
    harness.feed(ev.RebalanceBegan(1))
    harness.wait(3_000)
    harness.answer("heartbeat", refused(ErrorCode.UNKNOWN_MEMBER_ID))
    harness.feed(ev.ChannelLost(NODE, "connection reset"))
    assert "heartbeat" not in harness.open
    assert "coordinator" not in harness.open


# --- a node that stops, a group that moves ---------------------------------------------------------------------------


def test_a_group_that_is_unloaded_is_looked_for_at_once() -> None:
    harness = over_a_channel()
    harness.feed(ev.GroupUnloaded(NODE))
    harness.answer("coordinator", located("http://node-2"))
    assert (harness.url("heartbeat"), harness.state(), harness.warnings) == ("http://node-2", State.STABLE, [])


def test_a_group_that_was_handed_over_is_not_looked_for() -> None:
    harness = over_a_channel()
    harness.ask(1, ops.COMMIT, COMMIT)
    harness.feed(ev.GroupUnloaded(NODE, "http://node-2"))
    assert sorted(harness.open) == ["commit", "heartbeat"]
    assert (harness.url("heartbeat"), harness.state()) == ("http://node-2", State.STABLE)
    harness.answer("commit", refused(ErrorCode.NOT_COORDINATOR, url="http://node-2"))
    assert harness.url("commit") == "http://node-2"
    harness.answer("heartbeat", BEATEN)
    assert (harness.notes, harness.warnings) == ([f"coordinator moved from {NODE} to http://node-2"], [])


def test_what_waits_for_a_look_up_goes_to_the_node_that_has_the_group_by_now() -> None:
    harness = over_a_channel()
    harness.feed(ev.GroupUnloaded(NODE))
    harness.ask(1, ops.COMMIT, COMMIT)
    assert list(harness.open) == ["coordinator"]
    harness.feed(ev.GroupUnloaded(NODE, "http://node-2"))
    assert sorted(harness.open) == ["commit", "heartbeat"]
    assert {harness.url("commit"), harness.url("heartbeat")} == {"http://node-2"}


@pytest.mark.parametrize("url", ["ftp://node-2", "node-2", ""])
def test_a_group_that_was_handed_over_to_what_is_no_url_is_looked_for(url: str) -> None:
    harness = over_a_channel()
    harness.feed(ev.GroupUnloaded(NODE, url))
    assert list(harness.open) == ["coordinator"]


def test_a_group_that_was_unloaded_where_it_is_no_more_stays_where_it_is() -> None:
    harness = over_a_channel()
    for owner_url in (None, "http://node-3"):
        harness.feed(ev.GroupUnloaded("http://node-2", owner_url))
        assert harness.open == {}


def test_the_end_of_a_node_that_said_so_is_no_failure() -> None:
    harness = over_a_channel()
    harness.feed(ev.NodeDraining(NODE))
    assert harness.open == {}
    harness.wait(3_000)
    harness.answer("heartbeat", GONE)
    harness.feed(ev.ChannelLost(NODE, "closed with 1012"))
    harness.answer("coordinator", located("http://node-2"))
    assert (harness.url("heartbeat"), harness.warnings, harness.called()) == ("http://node-2", [], [(ASSIGNED, 1)])
    harness.answer("heartbeat", BEATEN)
    harness.feed(ev.ChannelOpened(NODE))
    harness.feed(ev.ChannelLost(NODE, "connection reset"))
    assert len(harness.warnings) == 1, "the next loss of that node is one"
