"""The life of a member, rule by rule, in virtual time."""

from typing import Any, ClassVar, Literal

import pytest

from rallypoint.assignors.range import RangeAssignor
from rallypoint.assignors.sticky import StickyAssignor
from rallypoint.member import errors
from rallypoint.member.core import events as ev
from rallypoint.member.core import requests
from rallypoint.member.core.actions import Assign, Done, Send
from rallypoint.member.core.events import Callback
from rallypoint.member.core.outcomes import Answered, Outcome, Refused, Unreachable
from rallypoint.member.core.states import ENDED, State
from rallypoint.protocol import messages as m
from rallypoint.protocol import operations as ops
from rallypoint.protocol.errors import ErrorCode
from rallypoint.protocol.opaque import EMPTY, OpaqueJson
from tests.member.core.membership_harness import (
    BEATEN,
    COMMIT,
    GONE,
    LEFT,
    MEMBER_ID_REQUIRED,
    NODE,
    SUPERSEDED,
    MembershipHarness,
    joined,
    located,
    options,
    refused,
    synced,
    waiting,
)

ASSIGNED, REVOKED, LOST = Callback.ASSIGNED, Callback.REVOKED, Callback.LOST


# --- finding, joining ------------------------------------------------------------------------------------------------


def test_a_start_looks_the_coordinator_up_and_joins_there() -> None:
    harness = MembershipHarness()
    harness.feed(ev.Started())
    assert (harness.state(), harness.body("coordinator").group_ids) == (State.FINDING, ("g",))
    harness.answer("coordinator", located("http://node-2/"))
    assert (harness.state(), harness.url("join")) == (State.JOINING, "http://node-2")
    join = harness.body("join")
    assert (join.member_id, join.protocol_type, join.session_timeout_ms) == ("", "consumer", 45_000)
    assert [protocol.name for protocol in join.protocols] == ["range", "roundrobin"]


def test_the_first_join_gets_an_id_and_the_second_is_a_new_attempt_with_it() -> None:
    harness = MembershipHarness().to_joining()
    first = harness.body("join")
    harness.answer("join", MEMBER_ID_REQUIRED)
    second = harness.body("join")
    assert (first.member_id, second.member_id) == ("", "m-1")
    assert first.request_id != second.request_id


@pytest.mark.parametrize(
    "hiccup",
    [GONE, refused(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS), refused(ErrorCode.COORDINATOR_NOT_AVAILABLE), SUPERSEDED,
     refused(ErrorCode.NOT_COORDINATOR), refused(ErrorCode.THROTTLING_QUOTA_EXCEEDED), refused(1234, retriable=True)],
    ids=["gone", "loading", "not available", "superseded", "not coordinator", "throttled", "new and retriable"],
)  # fmt: skip
def test_a_hiccup_repeats_the_very_same_join(hiccup: Outcome) -> None:
    harness = MembershipHarness().to_rejoining()
    before = harness.body("join")
    for _ in range(5):
        harness.answer("join", hiccup)
        if "coordinator" in harness.open:
            harness.answer("coordinator", located())
        harness.wait(10_000)
        if "coordinator" in harness.open:
            harness.answer("coordinator", located())
        assert harness.body("join") is before
        assert harness.state() is State.JOINING


def test_a_waiting_answer_repeats_the_join_and_takes_the_id_it_carries() -> None:
    harness = MembershipHarness(group_instance_id="i").to_joining()
    first = harness.body("join")
    harness.now += 20_000
    harness.answer("join", waiting("i-1"))
    second = harness.body("join")
    assert second == first.model_copy(update={"member_id": "i-1"})
    assert harness.machine.member_id == "i-1"


def test_waiting_answers_that_come_at_once_are_not_repeated_at_once() -> None:
    harness = MembershipHarness().to_rejoining()
    harness.answer("join", waiting())
    assert "join" not in harness.open
    harness.wait(99)
    assert "join" not in harness.open
    harness.wait(1)
    assert "join" in harness.open


@pytest.mark.parametrize("grace_ms", [None, 0, 30_000])
def test_a_join_says_how_long_to_wait_for_a_member_whose_channel_is_gone(grace_ms: int | None) -> None:
    assert MembershipHarness(disconnect_grace_ms=grace_ms).to_joining().body("join").disconnect_grace_ms == grace_ms


def test_an_eager_member_says_what_it_owned_to_an_eager_assignor_that_reads_it_alone() -> None:
    class Cooperative(RangeAssignor):
        name: ClassVar[str] = "cooperative"
        protocol: ClassVar[Literal["eager", "cooperative"]] = "cooperative"

    owned = (frozenset({("clicks", 0)}), 3)
    intent = requests.join(
        options(), (StickyAssignor(), RangeAssignor(), Cooperative()), member_id="m", topics=("clicks",),
        user_data=None, owned=owned, cooperative=False, owns=False, reason=None, request_id="r", attempt=1,
    )  # fmt: skip
    assert isinstance(intent.body, m.JoinRequest)
    sticky, *others = (protocol.metadata.text for protocol in intent.body.protocols)
    assert '"owned_partitions":{"clicks":[0]}' in sticky
    assert '"generation_id":3' in sticky
    assert len(others) == 2
    for told_nothing in others:
        assert '"owned_partitions":{}' in told_nothing
        assert '"generation_id":-1' in told_nothing


def test_a_coordinator_that_is_gone_is_looked_up_again_before_the_join_goes_on() -> None:
    harness = MembershipHarness().to_rejoining()
    harness.answer("join", GONE)
    assert (harness.state(), list(harness.open)) == (State.FINDING, ["coordinator"])
    harness.answer("coordinator", located("http://node-3"))
    assert (harness.state(), harness.url("join")) == (State.JOINING, "http://node-3")


def test_a_join_of_an_id_that_the_group_forgot_begins_again() -> None:
    harness = MembershipHarness().to_rejoining()
    harness.answer("join", refused(ErrorCode.UNKNOWN_MEMBER_ID))
    assert harness.body("join").member_id == ""
    assert harness.callbacks == []
    harness.answer("join", MEMBER_ID_REQUIRED)
    harness.answer("join", refused(ErrorCode.UNKNOWN_MEMBER_ID))
    assert "join" not in harness.open, "the second time it backs off"
    harness.wait(100)
    assert harness.body("join").member_id == ""


def test_a_join_told_to_rebalance_is_tried_again_as_a_new_attempt() -> None:
    harness = MembershipHarness().to_rejoining()
    before = harness.body("join").request_id
    harness.answer("join", refused(ErrorCode.REBALANCE_IN_PROGRESS))
    assert harness.body("join").request_id != before
    harness.answer("join", refused(ErrorCode.REBALANCE_IN_PROGRESS))
    assert "join" not in harness.open


@pytest.mark.parametrize("problem", [refused(ErrorCode.MEMBER_ID_REQUIRED), MEMBER_ID_REQUIRED])
def test_an_id_that_is_required_but_not_given_or_not_missing_is_the_services_fault(problem: Refused) -> None:
    harness = MembershipHarness().to_rejoining()
    harness.answer("join", problem)
    assert isinstance(harness.machine.error, errors.ServiceFailed)


FATAL = [
    (ErrorCode.FENCED_INSTANCE_ID, errors.Fenced),
    (ErrorCode.INCONSISTENT_GROUP_PROTOCOL, errors.InconsistentProtocol),
    (ErrorCode.INVALID_GROUP_ID, errors.InvalidConfiguration),
    (ErrorCode.INVALID_SESSION_TIMEOUT, errors.InvalidConfiguration),
    (ErrorCode.INVALID_REQUEST, errors.InvalidConfiguration),
    (ErrorCode.SASL_AUTHENTICATION_FAILED, errors.NotAuthenticated),
    (ErrorCode.GROUP_AUTHORIZATION_FAILED, errors.NotAuthorized),
    (ErrorCode.TOPIC_AUTHORIZATION_FAILED, errors.NotAuthorized),
    (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, errors.NotAuthorized),
    (ErrorCode.GROUP_MAX_SIZE_REACHED, errors.GroupFull),
    (ErrorCode.UNKNOWN_SERVER_ERROR, errors.ServiceFailed),
    (1234, errors.ServiceFailed),
]


@pytest.mark.parametrize(("code", "kind"), FATAL)
@pytest.mark.parametrize("operation", ["coordinator", "join", "sync", "heartbeat"])
def test_a_fatal_answer_stops_the_member_wherever_it_comes(
    operation: str, code: ErrorCode | int, kind: type[errors.FatalError]
) -> None:
    harness = MembershipHarness()
    match operation:
        case "coordinator":
            harness.feed(ev.Started())
        case "join":
            harness.to_rejoining()
        case "sync":
            harness.to_syncing()
        case "heartbeat":
            harness.to_stable()
    harness.answer(operation, refused(code))
    assert harness.state() is State.FAILED
    assert type(harness.machine.error) is kind
    assert harness.done == Done(harness.machine.error)
    assert (harness.open, harness.timers) == ({}, {})
    assert harness.called() == ([(ASSIGNED, 1), (LOST, 1)] if operation == "heartbeat" else [])


# --- syncing ---------------------------------------------------------------------------------------------------------


def test_a_follower_syncs_with_nothing_and_holds_what_it_gets() -> None:
    harness = MembershipHarness().to_syncing()
    sync = harness.body("sync")
    assert (sync.generation_id, sync.member_id, sync.protocol_type, sync.protocol_name, sync.assignments) == (
        1, "m-1", "consumer", "range", (),
    )  # fmt: skip
    harness.answer("sync", synced())
    held = harness.machine.assignment
    assert held is not None
    assert (held.generation_id, held.member_id, held.leader) == (1, "m-1", False)
    assert held.partitions == {("clicks", 0), ("clicks", 1)}
    assert (harness.state(), harness.called()) == (State.STABLE, [(ASSIGNED, 1)])


def test_a_leader_has_the_assignment_made_and_submits_it() -> None:
    harness = MembershipHarness().to_assigning()
    call = harness.open["assign"]
    assert isinstance(call, Assign)
    assert (call.protocol_name, [member.member_id for member in call.members]) == ("range", ["m-1"])
    made = (m.SyncAssignment(member_id="m-1", assignment=EMPTY),)
    harness.feed(ev.AssignmentMade(call.call_id, made))
    assert harness.body("sync").assignments == made
    harness.answer("sync", synced(EMPTY))
    assert harness.machine.assignment is not None
    assert (harness.machine.assignment.leader, harness.machine.assignment.partitions) == (True, frozenset())


def test_a_static_leader_whose_assignment_stands_makes_none() -> None:
    harness = MembershipHarness(group_instance_id="i").to_joining()
    harness.answer("join", joined(leader="i-1", member_id="i-1", skip=True))
    assert harness.body("sync").assignments == ()
    harness.answer("sync", synced())
    assert harness.machine.assignment is not None
    assert harness.machine.assignment.leader


def test_a_leader_at_work_sends_heartbeats_and_follows_what_they_say() -> None:
    harness = MembershipHarness().to_assigning()
    stale = harness.open["assign"].call_id
    harness.wait(3000)
    assert harness.body("heartbeat").wait_ms == 0
    harness.answer("heartbeat", BEATEN)
    harness.wait(3000)
    harness.answer("heartbeat", refused(ErrorCode.REBALANCE_IN_PROGRESS))
    assert (harness.state(), list(harness.open)) == (State.JOINING, ["join"])
    harness.feed(ev.AssignmentMade(stale, ()))
    assert list(harness.open) == ["join"], "the late result is ignored"


def test_a_rebalance_during_sync_joins_again_and_forgets_nothing() -> None:
    harness = MembershipHarness(offers=(StickyAssignor(),)).to_revoking()
    harness.callback_ended()
    before = harness.body("join").protocols
    harness.answer("join", joined(2))
    harness.answer("sync", refused(ErrorCode.REBALANCE_IN_PROGRESS))
    assert (harness.state(), harness.body("join").member_id) == (State.JOINING, "m-1")
    assert harness.body("join").protocols == before
    assert '"owned_partitions":{"clicks":[0,1]}' in before[0].metadata.text
    assert LOST not in [callback for callback, _ in harness.called()]


@pytest.mark.parametrize(
    ("code", "member_id"), [(ErrorCode.ILLEGAL_GENERATION, "m-1"), (ErrorCode.UNKNOWN_MEMBER_ID, "")]
)
def test_a_sync_that_is_too_late_joins_again_with_nothing_held(code: ErrorCode, member_id: str) -> None:
    harness = MembershipHarness(offers=(StickyAssignor(),)).to_revoking()
    harness.callback_ended()
    harness.answer("join", joined(2))
    harness.answer("sync", refused(code))
    assert harness.body("join").member_id == member_id
    assert '"owned_partitions":{}' in harness.body("join").protocols[0].metadata.text
    assert harness.called() == [(ASSIGNED, 1), (REVOKED, 1)]


def test_a_sync_is_repeated_as_it_was() -> None:
    harness = MembershipHarness().to_syncing()
    before = harness.body("sync")
    harness.now += 20_000
    harness.answer("sync", waiting())
    assert harness.body("sync") is before
    harness.answer("sync", GONE)
    assert harness.state() is State.SYNCING
    harness.answer("coordinator", located())
    assert harness.body("sync") is before


@pytest.mark.parametrize("junk", [OpaqueJson.of("x"), OpaqueJson.of({"partitions": {"clicks": ["one"]}})])
def test_an_assignment_that_is_none_fails_the_member_after_a_leave(junk: OpaqueJson) -> None:
    harness = MembershipHarness().to_syncing()
    harness.answer("sync", synced(junk))
    assert (harness.state(), harness.callbacks) == (State.LEAVING, [])
    harness.answer("leave", LEFT)
    assert harness.state() is State.FAILED
    assert isinstance(harness.machine.error, errors.UnreadableAssignment)


def test_an_assignment_that_the_service_refuses_is_the_assignors_failure() -> None:
    harness = MembershipHarness().to_assigning()
    made = (m.SyncAssignment(member_id="m-1", assignment=EMPTY),)
    harness.feed(ev.AssignmentMade(harness.open.pop("assign").call_id, made))
    harness.answer("sync", refused(ErrorCode.INVALID_REQUEST, detail="assignments.0 has more than 1048576 bytes"))
    assert harness.body("leave").members[0].member_id == "m-1", "another may lead"
    harness.answer("leave", LEFT)
    assert isinstance(harness.machine.error, errors.AssignorFailed)
    assert "the assignment of 'range' is refused: assignments.0 has more than 1048576 bytes" in str(
        harness.machine.error
    )
    assert isinstance(harness.machine.error.__cause__, errors.InvalidConfiguration)


def test_what_the_service_refuses_of_a_follower_is_none() -> None:
    harness = MembershipHarness().to_syncing()
    harness.answer("sync", refused(ErrorCode.INVALID_REQUEST))
    assert isinstance(harness.machine.error, errors.InvalidConfiguration)


def test_an_assignor_that_fails_fails_the_member_after_a_leave() -> None:
    harness = MembershipHarness().to_assigning()
    harness.feed(ev.AssignmentFailed(harness.open.pop("assign").call_id, KeyError("no catalogue"), retriable=False))
    assert harness.body("leave").members[0].member_id == "m-1"
    assert harness.done is None
    harness.answer("leave", LEFT)
    assert isinstance(harness.machine.error, errors.AssignorFailed)
    assert "no catalogue" in str(harness.machine.error)
    assert harness.done == Done(harness.machine.error)


def test_partition_counts_that_cannot_be_had_yet_are_asked_again() -> None:
    harness = MembershipHarness().to_assigning()
    harness.feed(ev.AssignmentFailed(harness.open.pop("assign").call_id, OSError("down"), retriable=True))
    harness.wait(1)
    assert "assign" in harness.open
    harness.feed(ev.AssignmentFailed(harness.open.pop("assign").call_id, OSError("down"), retriable=True))
    harness.wait(99)
    assert "assign" not in harness.open
    harness.wait(1)
    assert "assign" in harness.open
    assert harness.state() is State.SYNCING


def test_partition_counts_that_cannot_be_had_for_long_are_told_more_and_more_seldom() -> None:
    harness = MembershipHarness().to_assigning()
    for _ in range(20):
        harness.feed(ev.AssignmentFailed(harness.open.pop("assign").call_id, OSError("down"), retriable=True))
        harness.wait(2_000)
    assert harness.warnings == ["the partition counts cannot be had yet: down; trying again"] * 5


# --- heartbeats ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "wait_ms", "timeout_ms"),
    [
        ({}, 11_250, 18_750),
        ({"session_timeout_ms": 10_000}, 2_500, 4_166),
        ({"heartbeat_wait_ms": 0}, 0, 10_000),
        ({"session_timeout_ms": 1_000}, 250, 750),
    ],
)
def test_a_settled_member_lets_its_heartbeat_wait_within_a_quarter_of_the_session(
    changes: dict[str, Any], wait_ms: int, timeout_ms: int
) -> None:
    harness = MembershipHarness(**changes).to_stable()
    call = harness.open["heartbeat"]
    assert isinstance(call, Send)
    assert (harness.body("heartbeat").wait_ms, call.timeout_ms) == (wait_ms, timeout_ms)
    assert (harness.body("heartbeat").generation_id, harness.body("heartbeat").member_id) == (1, "m-1")


def test_the_next_heartbeat_follows_a_held_one_at_once_and_a_quick_one_at_the_interval() -> None:
    harness = MembershipHarness().to_stable()
    harness.wait(20_000)
    harness.answer("heartbeat", BEATEN)
    assert "heartbeat" in harness.open
    harness.answer("heartbeat", BEATEN)
    assert "heartbeat" not in harness.open
    harness.wait(2_999)
    assert "heartbeat" not in harness.open
    harness.wait(1)
    assert "heartbeat" in harness.open


def test_an_interval_of_the_options_wins_over_the_services() -> None:
    harness = MembershipHarness(heartbeat_wait_ms=0, heartbeat_interval_ms=700).to_stable()
    harness.answer("heartbeat", BEATEN)
    harness.wait(699)
    assert "heartbeat" not in harness.open
    harness.wait(1)
    assert "heartbeat" in harness.open


@pytest.mark.parametrize("chosen_ms", [None, 1_000_000])
@pytest.mark.parametrize("session_timeout_ms", [3, 300, 2_500, 3_000, 8_999])
def test_an_idle_member_is_heard_of_three_times_in_a_session(session_timeout_ms: int, chosen_ms: int | None) -> None:
    chosen = None if chosen_ms is None else min(chosen_ms, session_timeout_ms - 1)
    harness = MembershipHarness(
        session_timeout_ms=session_timeout_ms, heartbeat_wait_ms=0, heartbeat_interval_ms=chosen
    ).to_stable()
    for _ in range(30):
        harness.answer("heartbeat", BEATEN)
        harness.wait(session_timeout_ms // 3)
        assert "heartbeat" in harness.open
    assert harness.called() == [(ASSIGNED, 1)]


@pytest.mark.parametrize("hiccup", [GONE, refused(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS), SUPERSEDED])
def test_a_heartbeat_hiccup_is_no_loss(hiccup: Outcome) -> None:
    harness = MembershipHarness().to_stable()
    for _ in range(3):
        harness.answer("heartbeat", hiccup)
        if "coordinator" in harness.open:
            harness.answer("coordinator", located())
        harness.wait(5_000)
        if "coordinator" in harness.open:
            harness.answer("coordinator", located())
    assert (harness.state(), harness.called()) == (State.STABLE, [(ASSIGNED, 1)])
    harness.answer("heartbeat", BEATEN)


def test_a_repeated_heartbeat_does_not_wait_for_two_waits_would_be_the_session() -> None:
    harness = MembershipHarness().to_stable()
    harness.wait(20_000)
    harness.answer("heartbeat", refused(ErrorCode.NOT_COORDINATOR, url="http://node-2"))
    assert harness.body("heartbeat").wait_ms == 0
    harness.answer("heartbeat", BEATEN)
    harness.wait(3_000)
    assert harness.body("heartbeat").wait_ms == 11_250
    harness.answer("heartbeat", GONE)
    harness.answer("coordinator", located())
    assert harness.body("heartbeat").wait_ms == 0


def test_a_heartbeat_that_waited_for_the_coordinator_does_not_wait_on() -> None:
    harness = MembershipHarness().to_stable()
    harness.ask(1, ops.COMMIT, COMMIT)
    harness.answer("commit", GONE)
    harness.wait(3_000)
    harness.answer("heartbeat", BEATEN)
    assert set(harness.open) == {"coordinator"}
    harness.answer("coordinator", located())
    assert harness.body("heartbeat").wait_ms == 0


def test_back_off_leaves_time_within_a_short_session() -> None:
    harness = MembershipHarness(session_timeout_ms=600).to_stable()
    loading = refused(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    for _ in range(3):
        harness.answer("heartbeat", loading)
        harness.wait(100)
        assert "heartbeat" in harness.open


def test_the_users_reason_reaches_the_groups_history() -> None:
    harness = MembershipHarness().to_stable()
    assert {join.reason for join in harness.bodies("join")} == {"started"}
    harness.feed(ev.RejoinRequested("clicks grew"))
    harness.callback_ended()
    assert harness.body("join").reason == "clicks grew"


def test_a_session_that_ends_while_on_revoked_runs_is_over_until_the_group_answers() -> None:
    harness = MembershipHarness().to_revoking()
    harness.wait(44_999)
    assert not harness.machine.session_is_over(harness.now)
    harness.wait(1)
    assert harness.held() is not None
    assert harness.machine.session_is_over(harness.now)
    harness.answer("heartbeat", GONE)
    harness.wait(5_000)
    assert harness.machine.session_is_over(harness.now)
    harness.answer("coordinator", located())
    harness.answer("heartbeat", refused(ErrorCode.REBALANCE_IN_PROGRESS))
    assert not harness.machine.session_is_over(harness.now), "the group has kept it"
    harness.wait(3_000)
    harness.answer("heartbeat", refused(ErrorCode.UNKNOWN_MEMBER_ID))
    assert harness.held() is not None
    assert harness.machine.session_is_over(harness.now), "the group has let it go"


def test_a_session_without_a_heartbeat_loses_the_assignment_but_not_the_id() -> None:
    harness = MembershipHarness().to_stable()
    harness.wait(15_000)
    harness.answer("heartbeat", BEATEN)
    harness.answer("heartbeat", refused(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS))
    harness.open.pop("heartbeat", None)
    harness.wait(29_999)  # a session since the answered one was sent
    assert harness.state() is State.STABLE
    harness.wait(1)
    assert (harness.state(), harness.body("join").member_id) == (State.JOINING, "m-1")
    assert (harness.machine.assignment, harness.called()[-1]) == (None, (LOST, 1))


def test_waiting_for_others_is_not_silence() -> None:
    harness = MembershipHarness().to_rejoining()
    for _ in range(20):
        harness.wait(20_000)
        harness.answer("join", waiting())
    harness.answer("join", joined())
    for _ in range(20):
        harness.wait(20_000)
        harness.answer("sync", waiting())
    assert (harness.state(), harness.called(), harness.bodies("heartbeat")) == (State.SYNCING, [], [])


@pytest.mark.parametrize(
    ("code", "member_id"), [(ErrorCode.ILLEGAL_GENERATION, "m-1"), (ErrorCode.UNKNOWN_MEMBER_ID, "")]
)
def test_a_heartbeat_of_a_stranger_loses_the_assignment(code: ErrorCode, member_id: str) -> None:
    harness = MembershipHarness().to_stable()
    harness.answer("heartbeat", refused(code))
    assert harness.called() == [(ASSIGNED, 1), (LOST, 1)]
    assert (harness.state(), harness.machine.assignment) == (State.JOINING, None)
    assert harness.body("join").member_id == member_id
    assert '"generation_id":-1' in harness.body("join").protocols[0].metadata.text
    assert "heartbeat" not in harness.open
    assert "session" not in harness.timers


# --- giving up -------------------------------------------------------------------------------------------------------


def test_a_rebalance_is_joined_only_when_on_revoked_has_returned() -> None:
    harness = MembershipHarness().to_stable()
    harness.wait(7_000)
    harness.answer("heartbeat", refused(ErrorCode.REBALANCE_IN_PROGRESS))
    assert (harness.state(), harness.machine.rebalance_pending) == (State.REVOKING, True)
    assert harness.called() == [(ASSIGNED, 1), (REVOKED, 1)]
    for _ in range(5):
        assert harness.body("heartbeat").wait_ms == 0
        harness.answer("heartbeat", refused(ErrorCode.REBALANCE_IN_PROGRESS))
        harness.wait(3_000)
    assert harness.held() is not None, "commits go on under the old generation"
    harness.callback_ended()
    assert (harness.state(), list(harness.open), harness.held()) == (State.JOINING, ["join"], None)
    assert harness.timers.keys() == {"long_wait"}


def test_a_slow_on_revoked_is_warned_of_and_waited_for() -> None:
    harness = MembershipHarness(session_timeout_ms=600_000).to_revoking()
    harness.wait(47_999)
    assert harness.warnings == []
    harness.wait(1)
    assert "only 12000 ms more" in harness.warnings[0]
    harness.wait(12_000)
    assert "goes on without" in harness.warnings[1]
    assert harness.state() is State.REVOKING


@pytest.mark.parametrize(
    ("code", "member_id"), [(ErrorCode.ILLEGAL_GENERATION, "m-1"), (ErrorCode.UNKNOWN_MEMBER_ID, "")]
)
def test_a_member_dropped_while_on_revoked_runs_waits_for_it_and_is_not_told_twice(
    code: ErrorCode, member_id: str
) -> None:
    harness = MembershipHarness().to_revoking()
    harness.wait(3_000)
    harness.answer("heartbeat", refused(code))
    assert (harness.state(), harness.open) == (State.REVOKING, {})
    harness.commit(1)
    harness.answer("commit", refused(ErrorCode.UNKNOWN_MEMBER_ID))
    harness.wait(30_000)
    assert harness.open == {}, "the doubt is no news"
    harness.callback_ended()
    assert harness.body("join").member_id == member_id
    assert '"owned_partitions":{}' in harness.body("join").protocols[0].metadata.text
    assert harness.called() == [(ASSIGNED, 1), (REVOKED, 1)]


def test_a_fatal_answer_while_on_revoked_runs_is_not_told_twice() -> None:
    harness = MembershipHarness(offers=(StickyAssignor(),)).to_revoking()
    harness.wait(3_000)
    harness.answer("heartbeat", refused(ErrorCode.FENCED_INSTANCE_ID))
    assert harness.state() is State.FAILED
    assert harness.called() == [(ASSIGNED, 1), (REVOKED, 1)]


def test_a_rebalance_while_on_assigned_runs_waits_for_its_turn() -> None:
    harness = MembershipHarness().to_syncing()
    harness.answer("sync", synced())
    harness.answer("heartbeat", refused(ErrorCode.REBALANCE_IN_PROGRESS))
    assert harness.called() == [(ASSIGNED, 1), (REVOKED, 1)]
    harness.feed(ev.CallbackEnded(ASSIGNED, 1))
    assert harness.state() is State.REVOKING
    harness.feed(ev.CallbackEnded(REVOKED, 1))
    assert harness.state() is State.JOINING


def test_on_assigned_that_fails_fails_the_member_after_a_leave() -> None:
    harness = MembershipHarness().to_syncing()
    harness.answer("sync", synced())
    harness.callback_ended(OSError("disk full"))
    assert (harness.state(), harness.machine.assignment) == (State.LEAVING, None)
    harness.answer("leave", LEFT)
    assert isinstance(harness.machine.error, errors.CallbackFailed)
    assert isinstance(harness.machine.error.__cause__, OSError)


def test_on_revoked_that_fails_changes_nothing() -> None:
    harness = MembershipHarness().to_revoking()
    harness.callback_ended(OSError("disk full"))
    assert harness.state() is State.JOINING


# --- wishes of the user ----------------------------------------------------------------------------------------------


def test_a_requested_rebalance_gives_up_first() -> None:
    harness = MembershipHarness().to_stable()
    harness.feed(ev.RejoinRequested("clicks grew"))
    assert harness.called()[-1] == (REVOKED, 1)
    harness.callback_ended()
    assert harness.state() is State.JOINING


@pytest.mark.parametrize("stage", ["to_joining", "to_rejoining", "to_revoking"])
def test_a_requested_rebalance_is_met_by_the_one_under_way(stage: str) -> None:
    harness = MembershipHarness()
    getattr(harness, stage)()
    before = (harness.state(), dict(harness.open), harness.called())
    harness.feed(ev.RejoinRequested("clicks grew"))
    assert (harness.state(), harness.open, harness.called()) == before


@pytest.mark.parametrize("stage", ["to_syncing", "to_assigning"])
def test_a_requested_rebalance_overtakes_a_sync(stage: str) -> None:
    harness = MembershipHarness()
    getattr(harness, stage)()
    harness.feed(ev.RejoinRequested("clicks grew"))
    assert (harness.state(), list(harness.open)) == (State.JOINING, ["join"])


def topics_sent(harness: MembershipHarness) -> Any:
    return harness.body("join").protocols[0].metadata.value["topics"]


def test_a_new_subscription_is_joined_with() -> None:
    harness = MembershipHarness().to_stable()
    harness.feed(ev.SubscriptionChanged(("clicks",), None))
    assert harness.state() is State.STABLE
    harness.feed(ev.SubscriptionChanged(("orders", "clicks"), None))
    harness.callback_ended()
    assert topics_sent(harness) == ["clicks", "orders"]


def test_new_user_data_alone_is_a_new_subscription() -> None:
    harness = MembershipHarness().to_stable()
    harness.feed(ev.SubscriptionChanged(("clicks",), {"weight": 2}))
    assert harness.state() is State.REVOKING


@pytest.mark.parametrize("answer", [MEMBER_ID_REQUIRED, waiting("m-1"), joined()], ids=["id", "202", "joined"])
def test_a_new_subscription_waits_for_the_answer_of_a_join_on_the_wire(answer: Outcome) -> None:
    harness = MembershipHarness().to_joining()
    before = harness.body("join")
    harness.feed(ev.SubscriptionChanged(("orders",), None))
    assert harness.body("join") is before
    harness.now += 20_000
    harness.answer("join", answer)
    assert (topics_sent(harness), harness.body("join").member_id) == (["orders"], "m-1")
    assert harness.body("join").request_id != before.request_id


def test_a_commit_passes_through_and_changes_nothing() -> None:
    harness = MembershipHarness().to_stable()
    held, sends = harness.machine.assignment, len(harness.sends)
    for ticket, code in enumerate([ErrorCode.ILLEGAL_GENERATION, ErrorCode.UNKNOWN_MEMBER_ID,
                                   ErrorCode.FENCED_INSTANCE_ID, ErrorCode.REBALANCE_IN_PROGRESS]):  # fmt: skip
        harness.commit(ticket)
        assert (harness.body("commit").member_id, harness.body("commit").generation_id) == ("m-1", 1)
        harness.answer("commit", refused(code))
        assert harness.settled[ticket] == refused(code)
    assert (harness.state(), harness.machine.assignment, harness.machine.generation_id) == (State.STABLE, held, 1)
    assert len(harness.sends) == sends + 4 + 3, "three of them are a reason to ask by a heartbeat"
    assert harness.called() == [(ASSIGNED, 1)]


def test_a_commit_of_another_generation_or_of_none_is_not_sent() -> None:
    harness = MembershipHarness().to_syncing()
    harness.commit(1)
    harness.answer("sync", synced())
    harness.commit(2, 0)
    for ticket in (1, 2):
        outcome = harness.settled[ticket]
        assert isinstance(outcome, Refused)
        assert outcome.problem.error_code == ErrorCode.ILLEGAL_GENERATION
    assert harness.bodies("commit") == []
    harness.feed(ev.CommitRequested(3, m.CommitRequest(generation_id=-1, offsets={}), 1))
    assert harness.settled[3] == Answered(m.CommitAnswer(offsets={})), "there is nothing to say"


def test_a_doubt_asks_with_a_heartbeat_that_does_not_wait() -> None:
    harness = MembershipHarness().to_stable()
    harness.commit(1)
    harness.answer("commit", refused(ErrorCode.REBALANCE_IN_PROGRESS))
    assert harness.body("heartbeat").wait_ms == 11_250
    harness.commit(2)
    harness.answer("commit", refused(ErrorCode.UNKNOWN_MEMBER_ID))
    assert harness.body("heartbeat").wait_ms == 0
    harness.wait(3_000)
    harness.answer("heartbeat", BEATEN)
    assert harness.body("heartbeat").wait_ms == 11_250


def test_a_commit_is_repeated_until_its_time_is_up() -> None:
    harness = MembershipHarness(call_timeout_ms=1_000).to_stable()
    harness.ask(5, ops.COMMIT, COMMIT)
    loading = refused(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    for _ in range(3):
        harness.answer("commit", loading)
        harness.wait(300 if "commit" not in harness.open else 0)
        while "commit" not in harness.open and harness.now < 1_000:
            harness.wait(50)
    harness.wait(1_000)
    assert harness.settled[5] == loading
    assert "commit" not in harness.open


def test_a_commit_that_never_reached_anybody_says_so() -> None:
    harness = MembershipHarness(call_timeout_ms=1_000).to_stable()
    harness.ask(5, ops.COMMIT, COMMIT)
    harness.wait(1_000)
    assert harness.settled[5] == Unreachable("no answer in time")


def test_a_commit_that_waited_for_the_coordinator_says_why_that_was_not_found() -> None:
    harness = MembershipHarness(call_timeout_ms=1_000).to_stable()
    harness.answer("heartbeat", GONE)
    harness.answer("coordinator", GONE)
    harness.ask(5, ops.COMMIT, COMMIT)
    assert "commit" not in harness.open
    harness.wait(1_000)
    assert harness.settled[5] == Unreachable(f"{NODE}: connection refused")


def test_calls_of_the_user_do_not_disturb_each_other() -> None:
    harness = MembershipHarness().to_stable()
    harness.ask(1, ops.COMMIT, COMMIT)
    first = harness.open.pop("commit").call_id
    harness.ask(2, ops.COMMIT, COMMIT)
    done = Answered(m.CommitAnswer(offsets={}))
    harness.answer("commit", done)
    assert harness.settled == {2: done}
    harness.feed(ev.CallEnded(first, done))
    assert harness.settled == {1: done, 2: done}


def test_an_abandoned_call_is_dropped() -> None:
    harness = MembershipHarness().to_stable()
    harness.ask(1, ops.COMMIT, COMMIT)
    harness.feed(ev.CallAbandoned(1))
    assert "commit" not in harness.open
    assert "deadline:user:1" not in harness.timers


# --- leaving ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("reason", "said"), [("deploy", "deploy"), (None, "stopped")])
def test_a_leave_gives_up_tells_and_ends(reason: str | None, said: str) -> None:
    harness = MembershipHarness().to_stable()
    harness.feed(ev.LeaveRequested(reason, stay=False))
    assert (harness.state(), harness.machine.rebalance_pending) == (State.REVOKING, False)
    assert "heartbeat" in harness.open
    harness.callback_ended()
    assert (harness.state(), list(harness.open)) == (State.LEAVING, ["leave"])
    (leaver,) = harness.body("leave").members
    assert (leaver.member_id, leaver.reason) == ("m-1", said)
    harness.answer("leave", LEFT)
    assert (harness.state(), harness.done) == (State.LEFT, Done(None))
    assert (harness.open, harness.timers) == ({}, {})
    assert harness.called() == [(ASSIGNED, 1), (REVOKED, 1)]


def test_a_leave_during_on_revoked_waits_for_it() -> None:
    harness = MembershipHarness().to_revoking()
    harness.feed(ev.LeaveRequested(None, stay=False))
    assert harness.state() is State.REVOKING
    harness.callback_ended()
    assert harness.state() is State.LEAVING
    assert harness.called() == [(ASSIGNED, 1), (REVOKED, 1)]


def test_staying_tells_nobody() -> None:
    harness = MembershipHarness(group_instance_id="i").to_stable()
    harness.feed(ev.LeaveRequested(None, stay=True))
    harness.callback_ended()
    assert (harness.state(), harness.bodies("leave")) == (State.LEFT, [])


@pytest.mark.parametrize("stage", ["to_rejoining", "to_syncing", "to_assigning"])
def test_a_leave_before_an_assignment_is_told_at_once(stage: str) -> None:
    harness = MembershipHarness()
    getattr(harness, stage)()
    harness.feed(ev.LeaveRequested(None, stay=False))
    assert list(harness.open) == ["leave"]
    assert harness.body("leave").members[0].member_id == "m-1"


@pytest.mark.parametrize("answer", [MEMBER_ID_REQUIRED, waiting("m-1"), joined()], ids=["id", "202", "joined"])
def test_a_leave_during_the_first_join_waits_for_the_id(answer: Outcome) -> None:
    harness = MembershipHarness().to_joining()
    before = harness.body("join")
    harness.feed(ev.LeaveRequested(None, stay=False))
    assert (harness.state(), list(harness.open)) == (State.LEAVING, ["join"])
    harness.answer("join", GONE)
    harness.answer("coordinator", located())
    assert harness.body("join") is before
    harness.answer("join", answer)
    assert harness.body("leave").members[0].member_id == "m-1"


def test_a_first_join_that_is_refused_leaves_nothing_to_leave() -> None:
    harness = MembershipHarness().to_joining()
    harness.feed(ev.LeaveRequested(None, stay=False))
    harness.answer("join", refused(ErrorCode.GROUP_MAX_SIZE_REACHED))
    assert (harness.state(), harness.machine.error, harness.bodies("leave")) == (State.LEFT, None, [])


def test_a_leave_before_any_join_was_sent_ends_at_once() -> None:
    harness = MembershipHarness()
    harness.feed(ev.Started())
    harness.feed(ev.LeaveRequested(None, stay=False))
    assert (harness.state(), harness.bodies("leave"), harness.open) == (State.LEFT, [], {})
    assert MembershipHarness().feed(ev.LeaveRequested(None, stay=False))[-1] == Done(None)


@pytest.mark.parametrize(
    "answer", [LEFT, refused(ErrorCode.UNKNOWN_MEMBER_ID), refused(ErrorCode.GROUP_AUTHORIZATION_FAILED)]
)
def test_any_answer_ends_a_leave(answer: Outcome) -> None:
    harness = MembershipHarness().to_leaving()
    harness.answer("leave", answer)
    assert (harness.state(), harness.machine.error) == (State.LEFT, None)


def test_a_leave_is_repeated_until_its_time_is_up() -> None:
    harness = MembershipHarness().to_leaving()
    harness.answer("leave", GONE)
    harness.answer("coordinator", located())
    harness.answer("leave", refused(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS))
    harness.wait(4_999)
    assert harness.state() is State.LEAVING
    harness.wait(1)
    assert harness.state() is State.LEFT
    assert "will expire" in harness.warnings[-1]


def test_a_refused_look_up_does_not_make_a_leave_fail() -> None:
    harness = MembershipHarness().to_leaving()
    harness.answer("leave", GONE)
    harness.answer("coordinator", refused(ErrorCode.SASL_AUTHENTICATION_FAILED))
    assert (harness.state(), harness.machine.error) == (State.LEFT, None)


def test_a_member_dropped_while_it_leaves_has_nothing_to_tell() -> None:
    harness = MembershipHarness().to_revoking()
    harness.feed(ev.LeaveRequested(None, stay=False))
    harness.wait(3_000)
    harness.answer("heartbeat", refused(ErrorCode.UNKNOWN_MEMBER_ID))
    harness.callback_ended()
    assert (harness.state(), harness.bodies("leave")) == (State.LEFT, [])


STAGES = ["to_joining", "to_rejoining", "to_syncing", "to_assigning", "to_stable", "to_revoking", "to_leaving"]


@pytest.mark.parametrize("stage", STAGES)
def test_a_close_ends_everything_at_once(stage: str) -> None:
    harness = MembershipHarness()
    getattr(harness, stage)()
    count = len(harness.callbacks)
    harness.feed(ev.CloseRequested())
    assert (harness.state(), harness.done) == (State.LEFT, Done(None, at_once=True))
    assert (harness.open, harness.timers, harness.machine.assignment) == ({}, {}, None)
    assert len(harness.callbacks) == count


EVENTS: list[ev.Event] = [
    ev.Started(),
    ev.CallEnded(1, BEATEN),
    ev.CallEnded(999, joined(9)),
    ev.TimerDue("session"),
    ev.TimerDue("heartbeat"),
    ev.TimerDue("retry:member"),
    ev.TimerDue("deadline:user:1"),
    ev.CallbackEnded(ASSIGNED, 9, OSError()),
    ev.CallbackEnded(REVOKED, 9),
    ev.CallbackEnded(LOST, 1),
    ev.AssignmentMade(999, ()),
    ev.AssignmentFailed(999, OSError(), retriable=False),
    ev.CallAbandoned(9),
]


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("event", EVENTS, ids=str)
def test_what_is_stale_is_ignored(stage: str, event: ev.Event) -> None:
    harness = MembershipHarness()
    getattr(harness, stage)()
    before = (harness.state(), harness.machine.member_id, harness.machine.generation_id, harness.machine.assignment)
    assert harness.feed(event) == []
    assert (
        harness.state(),
        harness.machine.member_id,
        harness.machine.generation_id,
        harness.machine.assignment,
    ) == before


@pytest.mark.parametrize("end", sorted(ENDED, key=str))
def test_after_the_end_nothing_happens(end: State) -> None:
    harness = MembershipHarness().to_stable()
    if end is State.LEFT:
        harness.feed(ev.CloseRequested())
    else:
        harness.answer("heartbeat", refused(ErrorCode.FENCED_INSTANCE_ID))
    assert harness.state() is end
    late: list[ev.Event] = [ev.RejoinRequested(""), ev.LeaveRequested(None, stay=False), ev.CloseRequested(),
                            ev.SubscriptionChanged(("x",), None), ev.CallRequested(1, ops.COMMIT, COMMIT)]  # fmt: skip
    assert [harness.feed(event) for event in EVENTS + late] == [[]] * (len(EVENTS) + len(late))


def test_an_answer_of_the_join_before_is_ignored() -> None:
    harness = MembershipHarness().to_syncing()
    stale = harness.open["sync"].call_id
    harness.feed(ev.SubscriptionChanged(("orders",), None))
    harness.feed(ev.CallEnded(stale, synced()))
    assert (harness.state(), harness.machine.assignment, harness.callbacks) == (State.JOINING, None, [])


def test_a_generation_follows_the_answers_through_a_whole_life() -> None:
    harness = MembershipHarness().to_stable()
    for generation_id in range(2, 6):
        harness.answer("heartbeat", refused(ErrorCode.REBALANCE_IN_PROGRESS))
        harness.callback_ended()
        harness.answer("join", joined(generation_id))
        harness.answer("sync", synced())
        harness.callback_ended()
        assert harness.body("heartbeat").generation_id == generation_id
        harness.wait(5_000)
    assert harness.called() == [
        pair for generation_id in range(1, 5) for pair in [(ASSIGNED, generation_id), (REVOKED, generation_id)]
    ] + [(ASSIGNED, 5)]
    assert harness.url("heartbeat") == NODE


def test_after_a_pause_the_heartbeat_does_not_wait_past_the_end_of_the_session() -> None:
    """The group counts it when it comes; an answer held back for long would find the session ended on this side."""
    harness = MembershipHarness(session_timeout_ms=6_000, heartbeat_interval_ms=2_000).to_stable()
    harness.answer("heartbeat", BEATEN)
    harness.now += 3_900
    harness.wait(0)
    assert harness.body("heartbeat").wait_ms == 0
    harness.answer("heartbeat", BEATEN)
    harness.wait(2_000)
    assert harness.body("heartbeat").wait_ms == 1_500
