"""Bugs of other clients, tried on this one: the rows are in `tests/conformance/test_bugs_of_others.py`."""

import pytest

from rallypoint.assignors.sticky import StickyAssignor
from rallypoint.member import errors
from rallypoint.member.core import events as ev
from rallypoint.member.core.events import Callback
from rallypoint.member.core.long_waits import LONG_WAIT
from rallypoint.member.core.states import State
from rallypoint.protocol import messages as m
from rallypoint.protocol import operations as ops
from rallypoint.protocol.errors import ErrorCode
from tests.member.core.membership_harness import (
    BEATEN,
    GONE,
    NODE,
    MembershipHarness,
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
    harness = MembershipHarness()
    getattr(harness, stage)()
    before, callbacks = harness.body(call), harness.called()
    if names_the_next:
        harness.answer(call, refused(ErrorCode.NOT_COORDINATOR, url=NEXT))
    else:
        harness.answer(call, MOVED)
        assert call not in harness.open
        harness.answer("coordinator", located(NEXT))
    assert harness.url(call) == NEXT
    if call != "heartbeat":
        assert harness.body(call) == before, "the same request goes on there"
    assert harness.called() == callbacks, "nothing is lost by a move"


def test_bug_21_kafka_20985_a_static_join_is_repeated_as_the_same_attempt() -> None:
    harness = MembershipHarness(group_instance_id="i-1").to_joining()
    first = harness.body("join")
    assert (first.member_id, first.group_instance_id) == ("", "i-1")
    for _ in range(3):
        harness.answer("join", GONE)
        harness.wait(10_000 if "coordinator" not in harness.open else 0)
        harness.answer("coordinator", located())
        harness.wait(10_000 if "join" not in harness.open else 0)
        assert harness.body("join") == first, "a copy that is done late cannot fence its successor"
    # A change of mind does not overtake it either.
    harness.feed(ev.SubscriptionChanged(("orders",), None))
    assert harness.body("join") == first
    harness.answer("join", joined())
    assert harness.body("join").member_id == "m-1"
    assert harness.body("join").request_id != first.request_id


@pytest.mark.parametrize(
    "code", [ErrorCode.ILLEGAL_GENERATION, ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.UNKNOWN_MEMBER_ID]
)
def test_bug_22_librdkafka_4059_a_refused_commit_costs_no_assignment(code: ErrorCode) -> None:
    harness = MembershipHarness(offers=(StickyAssignor(),)).to_revoking()
    held = harness.held()
    assert held is not None
    harness.commit(1)
    harness.answer("commit", refused(code))
    assert harness.settled[1] == refused(code)
    assert (harness.state(), harness.held(), harness.called()) == (State.REVOKING, held, [(ASSIGNED, 1), (REVOKED, 1)])
    # A doubt is settled by a heartbeat, which does decide.
    harness.wait(0 if "heartbeat" in harness.open else 3_000)
    harness.answer("heartbeat", refused(ErrorCode.REBALANCE_IN_PROGRESS))
    harness.callback_ended()
    assert LOST not in [callback for callback, _ in harness.called()]
    assert '"owned_partitions":{"clicks":[0,1]}' in harness.body("join").protocols[0].metadata.text


def test_bug_23_librdkafka_2791_a_call_of_the_user_looks_the_coordinator_up_again() -> None:
    """Before any membership, and after the coordinator moved: a fetch finds its way by itself."""
    harness = MembershipHarness()
    harness.ask(1, ops.FETCH, m.FetchRequest())
    harness.answer("coordinator", located())
    harness.answer("fetch", MOVED)
    assert "fetch" not in harness.open
    harness.answer("coordinator", located(NEXT))
    assert harness.url("fetch") == NEXT
    harness.answer("fetch", GONE)
    harness.wait(1_000 if "coordinator" not in harness.open else 0)
    harness.answer("coordinator", located())
    harness.wait(1_000 if "fetch" not in harness.open else 0)
    assert harness.url("fetch") == NODE
    assert harness.settled == {}


@pytest.mark.parametrize(
    "code", [ErrorCode.ILLEGAL_GENERATION, ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.UNKNOWN_MEMBER_ID]
)
def test_bug_25_aiokafka_727_a_failed_commit_leaves_the_generation_alone(code: ErrorCode) -> None:
    harness = MembershipHarness().to_stable()
    harness.commit(1)
    harness.answer("heartbeat", refused(ErrorCode.REBALANCE_IN_PROGRESS))
    harness.callback_ended()
    harness.answer("join", joined(2))
    assert harness.state() is State.SYNCING
    harness.answer("commit", refused(code))
    assert (harness.state(), harness.machine.generation_id, harness.body("sync").generation_id) == (State.SYNCING, 2, 2)
    harness.answer("sync", waiting())
    harness.wait(1_000)
    assert harness.body("sync").generation_id == 2
    harness.answer("sync", synced())
    assert harness.body("heartbeat").generation_id == 2


def test_bug_26_aiokafka_335_no_heartbeat_is_under_way_beside_a_join() -> None:
    harness = MembershipHarness().to_stable()
    for generation_id in range(2, 8):
        harness.answer("heartbeat", refused(ErrorCode.REBALANCE_IN_PROGRESS))
        harness.wait(3_000)
        late = harness.open["heartbeat"].call_id
        harness.callback_ended()
        assert list(harness.open) == ["join"]
        assert harness.timers.keys() <= {LONG_WAIT}, "no heartbeat is due"
        # The heartbeat's answer was on its way when the member went on: whatever it says is of the past.
        for outcome in (refused(ErrorCode.UNKNOWN_MEMBER_ID), refused(ErrorCode.REBALANCE_IN_PROGRESS), BEATEN):
            assert harness.feed(ev.CallEnded(late, outcome)) == []
        harness.answer("join", joined(generation_id))
        harness.answer("sync", synced())
        harness.callback_ended()
        assert harness.state() is State.STABLE
    assert len(harness.bodies("join")) == 2 + 6, "one join for each rebalance"
    assert LOST not in [callback for callback, _ in harness.called()]


@pytest.mark.parametrize(("stage", "call"), list(ON_THE_WIRE.items())[1:4])
def test_bug_27_franz_go_479_a_fenced_member_stops_and_says_why(stage: str, call: str) -> None:
    harness = MembershipHarness(group_instance_id="i-1")
    getattr(harness, stage)()
    harness.answer(call, refused(ErrorCode.FENCED_INSTANCE_ID))
    assert harness.state() is State.FAILED
    assert isinstance(harness.machine.error, errors.Fenced)
    assert harness.done is not None
    assert harness.done.error is harness.machine.error
    harness.wait(600_000)
    assert harness.open == {}, "it does not come back to fence the other one"
