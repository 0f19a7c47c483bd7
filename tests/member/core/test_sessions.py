"""What a session tells a member, rule by rule, in virtual time: pushes, losses, and that there are none to be had."""

from itertools import pairwise
from typing import Any

import pytest

from assignors.cooperative_sticky import CooperativeStickyAssignor
from member.core import events as ev
from member.core.events import Callback
from member.core.states import State
from protocol.errors import ErrorCode
from tests.member.core.player import BEATEN, GONE, NODE, Player, joined, located, refused, synced

ASSIGNED, REVOKED, LOST = Callback.ASSIGNED, Callback.REVOKED, Callback.LOST
REBALANCES = refused(ErrorCode.REBALANCE_IN_PROGRESS)


def over_a_session(**changes: Any) -> Player:
    """A settled follower of generation 1, whose first heartbeat was answered over a session."""
    player = Player(**changes)
    player.feed(ev.SessionOpened(NODE))
    player.to_stable()
    player.answer("heartbeat", BEATEN)
    return player


def cooperative(**changes: Any) -> Player:
    return over_a_session(offers=(CooperativeStickyAssignor(),), **changes)


# --- heartbeats ------------------------------------------------------------------------------------------------------


def test_heartbeats_over_a_session_do_not_wait_and_come_at_their_interval() -> None:
    player = over_a_session()
    for _ in range(3):
        player.wait(2_999)
        assert "heartbeat" not in player.open
        player.wait(1)
        player.answer("heartbeat", BEATEN)
    assert {(beat.wait_ms, beat.generation_id) for beat in player.bodies("heartbeat")} == {(0, 1)}


def test_heartbeats_wait_where_the_session_is_with_another_node() -> None:
    player = Player()
    player.feed(ev.SessionOpened("http://node-2"))
    player.to_stable()
    assert player.body("heartbeat").wait_ms == 20_000


def test_heartbeats_wait_again_where_there_are_no_sessions_and_that_is_told_once() -> None:
    player = over_a_session()
    for _ in range(3):
        player.feed(ev.SessionUnavailable(NODE, "HTTP 404"))
    assert player.warnings == [f"no session with {NODE}: HTTP 404; going on over plain HTTP"]
    player.wait(3_000)
    assert player.body("heartbeat").wait_ms == 20_000
    player.feed(ev.SessionOpened(NODE))
    player.feed(ev.SessionUnavailable(NODE, "HTTP 405"))
    assert len(player.warnings) == 2, "it was open in between, so this is news"


# --- a rebalance -----------------------------------------------------------------------------------------------------


def test_a_rebalance_that_is_pushed_is_joined_at_once() -> None:
    player = over_a_session()
    player.feed(ev.RebalanceBegan(1))
    assert (player.state(), player.called()[-1]) == (State.REVOKING, (REVOKED, 1))
    player.callback_ended()
    assert (player.state(), player.now) == (State.JOINING, 0)
    assert player.body("join").member_id == "m-1"


def test_a_rebalance_that_is_pushed_to_a_cooperative_member_takes_nothing_from_it() -> None:
    player = cooperative()
    player.feed(ev.RebalanceBegan(1))
    assert (player.state(), player.held() is not None) == (State.JOINING, True)
    assert player.called() == [(ASSIGNED, 1)]


def test_a_rebalance_is_joined_once_however_often_it_is_told() -> None:
    player = over_a_session()
    player.feed(ev.RebalanceBegan(1))
    player.feed(ev.RebalanceBegan(1))
    player.wait(3_000)
    player.answer("heartbeat", REBALANCES)
    player.callback_ended()
    player.feed(ev.RebalanceBegan(1))
    before = player.body("join")
    player.feed(ev.RebalanceBegan(1))
    assert player.body("join") is before
    player.answer("join", joined(2))
    player.feed(ev.RebalanceBegan(1))
    player.answer("sync", synced())
    player.feed(ev.RebalanceBegan(1))
    assert player.state() is State.STABLE
    assert len(player.bodies("join")) == 3
    assert player.called() == [(ASSIGNED, 1), (REVOKED, 1), (ASSIGNED, 2)]


def test_a_push_of_an_older_generation_is_stale() -> None:
    player = over_a_session()
    player.feed(ev.RebalanceBegan(0))
    assert player.state() is State.STABLE


def test_a_rebalance_that_begins_while_the_member_syncs_ends_the_sync() -> None:
    player = Player()
    player.feed(ev.SessionOpened(NODE))
    player.to_syncing()
    player.feed(ev.RebalanceBegan(0))
    assert list(player.open) == ["sync"], "that is the one this member has just joined"
    player.feed(ev.RebalanceBegan(1))
    assert list(player.open) == ["join"]


@pytest.mark.parametrize("stage", ["to_joining", "to_rejoining", "to_revoking", "to_leaving"])
def test_a_push_changes_nothing_where_the_member_is_on_its_way_anyhow(stage: str) -> None:
    player = Player()
    getattr(player, stage)()
    state, sends = player.state(), len(player.sends)
    player.feed(ev.RebalanceBegan(1))
    assert (player.state(), len(player.sends)) == (state, sends)


# --- a loss ----------------------------------------------------------------------------------------------------------


def test_a_lost_session_changes_no_state_and_a_heartbeat_goes_out_at_once() -> None:
    player = over_a_session()
    player.wait(1_000)
    player.feed(ev.SessionLost(NODE, "connection reset"))
    player.answer("coordinator", located())
    assert (player.now, player.body("heartbeat").wait_ms) == (1_000, 0)
    assert (player.state(), player.called()) == (State.STABLE, [(ASSIGNED, 1)])
    assert player.warnings == [f"the session with {NODE} is lost: connection reset; connecting again"]


def test_the_first_try_after_a_loss_comes_at_once_and_the_next_ones_slower_and_slower() -> None:
    player = over_a_session(jitter=0.0)
    player.feed(ev.SessionLost(NODE, "connection reset"))
    tries = [player.now]
    for _ in range(6):
        player.answer("coordinator", GONE)
        assert "coordinator" not in player.open
        while "coordinator" not in player.open:
            player.wait(1)
        tries.append(player.now)
    pauses = [after - before for before, after in pairwise(tries)]
    assert tries[0] == 0
    assert pauses == [100, 200, 400, 800, 1_600, 3_200]


@pytest.mark.parametrize(("stage", "call"), [("to_rejoining", "join"), ("to_syncing", "sync")])
def test_a_call_that_lost_its_letter_box_is_asked_again_as_it_was(stage: str, call: str) -> None:
    player = Player()
    player.feed(ev.SessionOpened(NODE))
    getattr(player, stage)()
    before = player.body(call)
    player.now += 1_000
    player.answer(call, GONE)
    player.feed(ev.SessionLost(NODE, "connection reset"))
    player.answer("coordinator", located())
    assert (player.now, player.body(call)) == (1_000, before)
    assert len([send for send in player.sends if send.operation.name == call and send.body == before]) == 2


def test_a_cooperative_member_that_joins_keeps_what_it_owns_through_a_loss() -> None:
    player = cooperative()
    player.feed(ev.RebalanceBegan(1))
    before = player.body("join")
    player.answer("join", GONE)
    player.feed(ev.SessionLost(NODE, "connection reset"))
    player.answer("coordinator", located())
    assert (player.body("join"), player.called()) == (before, [(ASSIGNED, 1)])
    assert player.held() is not None


def test_a_leader_at_work_says_after_a_loss_that_it_lives() -> None:
    player = Player()
    player.feed(ev.SessionOpened(NODE))
    player.to_assigning()
    player.feed(ev.SessionLost(NODE, "connection reset"))
    player.answer("coordinator", located())
    assert player.body("heartbeat").generation_id == 1
    assert "assign" in player.open


def test_the_loss_of_a_session_with_another_node_is_nothing_to_the_member() -> None:
    player = over_a_session()
    player.feed(ev.SessionOpened("http://node-2"))
    player.feed(ev.SessionLost("http://node-2", "closed"))
    assert player.open == {}
    player.wait(3_000)
    assert player.body("heartbeat").wait_ms == 0


def test_what_failed_while_the_line_was_dead_does_not_wait_when_there_is_a_session_again() -> None:
    player = over_a_session()
    player.wait(3_000)
    for _ in range(4):
        player.answer("heartbeat", GONE)
        while "heartbeat" not in player.open:
            if "coordinator" in player.open:
                player.answer("coordinator", located())
            else:
                player.wait(1)
    player.answer("heartbeat", GONE)
    player.feed(ev.SessionLost(NODE, "no pong"))
    assert "heartbeat" not in player.open
    player.feed(ev.SessionOpened(NODE))
    player.answer("coordinator", located())
    assert "heartbeat" in player.open


def test_a_look_up_that_failed_does_not_wait_either() -> None:
    player = over_a_session()
    player.feed(ev.SessionLost(NODE, "connection reset"))
    for _ in range(3):
        while "coordinator" not in player.open:
            player.wait(1)
        player.answer("coordinator", GONE)
    assert player.open == {}
    player.feed(ev.SessionOpened(NODE))
    assert list(player.open) == ["coordinator"]


def test_what_the_service_asked_to_wait_for_goes_on_waiting() -> None:
    player = over_a_session()
    player.wait(3_000)
    player.answer("heartbeat", refused(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, retry_after_ms=2_000))
    player.feed(ev.SessionOpened(NODE))
    assert player.open == {}


def test_a_member_that_gives_up_what_is_not_its_own_any_more_says_nothing_after_a_loss() -> None:
    player = over_a_session()
    player.feed(ev.RebalanceBegan(1))
    player.wait(3_000)
    player.answer("heartbeat", refused(ErrorCode.UNKNOWN_MEMBER_ID))
    player.feed(ev.SessionLost(NODE, "connection reset"))
    assert "heartbeat" not in player.open
    assert "coordinator" not in player.open


# --- a node that stops, a group that moves ---------------------------------------------------------------------------


def test_a_group_that_is_unloaded_is_looked_for_at_once() -> None:
    player = over_a_session()
    player.feed(ev.GroupUnloaded(NODE))
    player.answer("coordinator", located("http://node-2"))
    assert (player.url("heartbeat"), player.state(), player.warnings) == ("http://node-2", State.STABLE, [])


def test_a_group_that_was_unloaded_where_it_is_no_more_stays_where_it_is() -> None:
    player = over_a_session()
    player.feed(ev.GroupUnloaded("http://node-2"))
    assert player.open == {}


def test_the_end_of_a_node_that_said_so_is_no_failure() -> None:
    player = over_a_session()
    player.feed(ev.NodeDraining(NODE))
    assert player.open == {}
    player.wait(3_000)
    player.answer("heartbeat", GONE)
    player.feed(ev.SessionLost(NODE, "closed with 1012"))
    player.answer("coordinator", located("http://node-2"))
    assert (player.url("heartbeat"), player.warnings, player.called()) == ("http://node-2", [], [(ASSIGNED, 1)])
    player.answer("heartbeat", BEATEN)
    player.feed(ev.SessionOpened(NODE))
    player.feed(ev.SessionLost(NODE, "connection reset"))
    assert len(player.warnings) == 1, "the next loss of that node is one"
