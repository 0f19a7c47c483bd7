"""Bugs of other clients, tried on this one: the rows are in `tests/conformance/test_bugs_of_others.py`."""

import pytest

from assignors.sticky import StickyAssignor
from member import errors
from member.core import events as ev
from member.core.events import Callback
from member.core.states import State
from protocol import messages as m
from protocol import operations as ops
from protocol.errors import ErrorCode
from tests.member.core.player import (
    BEATEN,
    GONE,
    NODE,
    Player,
    joined,
    located,
    refused,
    synced,
    waiting,
)

ASSIGNED, REVOKED, LOST = Callback.ASSIGNED, Callback.REVOKED, Callback.LOST
MOVED = refused(ErrorCode.NOT_COORDINATOR)
NEXT = "http://node-2"

ON_THE_WIRE = {
    "to_joining": "join",
    "to_rejoining": "join",
    "to_syncing": "sync",
    "to_stable": "heartbeat",
    "to_leaving": "leave",
}


@pytest.mark.parametrize("names_the_next", [False, True])
@pytest.mark.parametrize(("stage", "call"), ON_THE_WIRE.items())
def test_bug_14_kafka_4362_every_call_follows_a_coordinator_that_moved(
    stage: str, call: str, names_the_next: bool
) -> None:
    player = Player()
    getattr(player, stage)()
    before, callbacks = player.body(call), player.called()
    if names_the_next:
        player.answer(call, refused(ErrorCode.NOT_COORDINATOR, url=NEXT))
    else:
        player.answer(call, MOVED)
        assert call not in player.open
        player.answer("coordinator", located(NEXT))
    assert player.url(call) == NEXT
    if call != "heartbeat":
        assert player.body(call) == before, "the same request goes on there"
    assert player.called() == callbacks, "nothing is lost by a move"


def test_bug_21_kafka_20985_a_static_join_is_repeated_as_the_same_attempt() -> None:
    player = Player(group_instance_id="i-1").to_joining()
    first = player.body("join")
    assert (first.member_id, first.group_instance_id) == ("", "i-1")
    for _ in range(3):
        player.answer("join", GONE)
        player.wait(10_000 if "coordinator" not in player.open else 0)
        player.answer("coordinator", located())
        player.wait(10_000 if "join" not in player.open else 0)
        assert player.body("join") == first, "a copy that is done late cannot fence its successor"
    # A change of mind does not overtake it either.
    player.feed(ev.SubscriptionChanged(("orders",), None))
    assert player.body("join") == first
    player.answer("join", joined())
    assert player.body("join").member_id == "m-1"
    assert player.body("join").request_id != first.request_id


@pytest.mark.parametrize(
    "code", [ErrorCode.ILLEGAL_GENERATION, ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.UNKNOWN_MEMBER_ID]
)
def test_bug_22_librdkafka_4059_a_refused_commit_costs_no_assignment(code: ErrorCode) -> None:
    player = Player(offers=(StickyAssignor(),)).to_revoking()
    held = player.held()
    assert held is not None
    player.commit(1)
    player.answer("commit", refused(code))
    assert player.settled[1] == refused(code)
    assert (player.state(), player.held(), player.called()) == (State.REVOKING, held, [(ASSIGNED, 1), (REVOKED, 1)])
    # A doubt is settled by a heartbeat, which does decide.
    player.wait(0 if "heartbeat" in player.open else 3_000)
    player.answer("heartbeat", refused(ErrorCode.REBALANCE_IN_PROGRESS))
    player.callback_ended()
    assert LOST not in [callback for callback, _ in player.called()]
    assert '"owned_partitions":{"clicks":[0,1]}' in player.body("join").protocols[0].metadata.text


def test_bug_23_librdkafka_2791_a_call_of_the_user_looks_the_coordinator_up_again() -> None:
    """Before any membership, and after the coordinator moved: a fetch finds its way by itself."""
    player = Player()
    player.ask(1, ops.FETCH, m.FetchRequest())
    player.answer("coordinator", located())
    player.answer("fetch", MOVED)
    assert "fetch" not in player.open
    player.answer("coordinator", located(NEXT))
    assert player.url("fetch") == NEXT
    player.answer("fetch", GONE)
    player.wait(1_000 if "coordinator" not in player.open else 0)
    player.answer("coordinator", located())
    player.wait(1_000 if "fetch" not in player.open else 0)
    assert player.url("fetch") == NODE
    assert player.settled == {}


@pytest.mark.parametrize(
    "code", [ErrorCode.ILLEGAL_GENERATION, ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.UNKNOWN_MEMBER_ID]
)
def test_bug_25_aiokafka_727_a_failed_commit_leaves_the_generation_alone(code: ErrorCode) -> None:
    player = Player().to_stable()
    player.commit(1)
    player.answer("heartbeat", refused(ErrorCode.REBALANCE_IN_PROGRESS))
    player.callback_ended()
    player.answer("join", joined(2))
    assert player.state() is State.SYNCING
    player.answer("commit", refused(code))
    assert (player.state(), player.machine.generation_id, player.body("sync").generation_id) == (State.SYNCING, 2, 2)
    player.answer("sync", waiting())
    player.wait(1_000)
    assert player.body("sync").generation_id == 2
    player.answer("sync", synced())
    assert player.body("heartbeat").generation_id == 2


def test_bug_26_aiokafka_335_no_heartbeat_is_under_way_beside_a_join() -> None:
    player = Player().to_stable()
    for generation_id in range(2, 8):
        player.answer("heartbeat", refused(ErrorCode.REBALANCE_IN_PROGRESS))
        player.wait(3_000)
        late = player.open["heartbeat"].call_id
        player.callback_ended()
        assert (list(player.open), player.timers) == (["join"], {})
        # The heartbeat's answer was on its way when the member went on: whatever it says is of the past.
        for outcome in (refused(ErrorCode.UNKNOWN_MEMBER_ID), refused(ErrorCode.REBALANCE_IN_PROGRESS), BEATEN):
            assert player.feed(ev.CallEnded(late, outcome)) == []
        player.answer("join", joined(generation_id))
        player.answer("sync", synced())
        player.callback_ended()
        assert player.state() is State.STABLE
    assert len(player.bodies("join")) == 2 + 6, "one join for each rebalance"
    assert LOST not in [callback for callback, _ in player.called()]


@pytest.mark.parametrize(("stage", "call"), list(ON_THE_WIRE.items())[1:4])
def test_bug_27_franz_go_479_a_fenced_member_stops_and_says_why(stage: str, call: str) -> None:
    player = Player(group_instance_id="i-1")
    getattr(player, stage)()
    player.answer(call, refused(ErrorCode.FENCED_INSTANCE_ID))
    assert player.state() is State.FAILED
    assert isinstance(player.machine.error, errors.Fenced)
    assert player.done is not None
    assert player.done.error is player.machine.error
    player.wait(600_000)
    assert player.open == {}, "it does not come back to fence the other one"
