"""The life of a member, rule by rule, in virtual time."""

from typing import Any, ClassVar, Literal

import pytest

from assignors.range import RangeAssignor
from assignors.sticky import StickyAssignor
from member import errors
from member.core import events as ev
from member.core import requests
from member.core.actions import Assign, Done, Send
from member.core.events import Callback
from member.core.outcomes import Answered, Outcome, Refused, Unreachable
from member.core.states import ENDED, State
from protocol import messages as m
from protocol import operations as ops
from protocol.errors import ErrorCode
from protocol.opaque import EMPTY, OpaqueJson
from tests.member.core.player import (
    BEATEN,
    COMMIT,
    GONE,
    LEFT,
    MEMBER_ID_REQUIRED,
    NODE,
    SUPERSEDED,
    Player,
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
    player = Player()
    player.feed(ev.Started())
    assert (player.state(), player.body("coordinator").group_ids) == (State.FINDING, ("g",))
    player.answer("coordinator", located("http://node-2/"))
    assert (player.state(), player.url("join")) == (State.JOINING, "http://node-2")
    join = player.body("join")
    assert (join.member_id, join.protocol_type, join.session_timeout_ms) == ("", "consumer", 45_000)
    assert [protocol.name for protocol in join.protocols] == ["range", "roundrobin"]


def test_the_first_join_gets_an_id_and_the_second_is_a_new_attempt_with_it() -> None:
    player = Player().to_joining()
    first = player.body("join")
    player.answer("join", MEMBER_ID_REQUIRED)
    second = player.body("join")
    assert (first.member_id, second.member_id) == ("", "m-1")
    assert first.request_id != second.request_id


@pytest.mark.parametrize(
    "hiccup",
    [GONE, refused(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS), refused(ErrorCode.COORDINATOR_NOT_AVAILABLE), SUPERSEDED,
     refused(ErrorCode.NOT_COORDINATOR), refused(ErrorCode.THROTTLING_QUOTA_EXCEEDED), refused(1234, retriable=True)],
    ids=["gone", "loading", "not available", "superseded", "not coordinator", "throttled", "new and retriable"],
)  # fmt: skip
def test_a_hiccup_repeats_the_very_same_join(hiccup: Outcome) -> None:
    player = Player().to_rejoining()
    before = player.body("join")
    for _ in range(5):
        player.answer("join", hiccup)
        if "coordinator" in player.open:
            player.answer("coordinator", located())
        player.wait(10_000)
        if "coordinator" in player.open:
            player.answer("coordinator", located())
        assert player.body("join") is before
        assert player.state() is State.JOINING


def test_a_waiting_answer_repeats_the_join_and_takes_the_id_it_carries() -> None:
    player = Player(group_instance_id="i").to_joining()
    first = player.body("join")
    player.now += 20_000
    player.answer("join", waiting("i-1"))
    second = player.body("join")
    assert second == first.model_copy(update={"member_id": "i-1"})
    assert player.machine.member_id == "i-1"


def test_waiting_answers_that_come_at_once_are_not_repeated_at_once() -> None:
    player = Player().to_rejoining()
    player.answer("join", waiting())
    assert "join" not in player.open
    player.wait(99)
    assert "join" not in player.open
    player.wait(1)
    assert "join" in player.open


@pytest.mark.parametrize("grace_ms", [None, 0, 30_000])
def test_a_join_says_how_long_to_wait_for_a_member_whose_session_is_gone(grace_ms: int | None) -> None:
    assert Player(disconnect_grace_ms=grace_ms).to_joining().body("join").disconnect_grace_ms == grace_ms


def test_an_eager_member_says_what_it_owned_to_an_eager_assignor_that_reads_it_alone() -> None:
    class Cooperative(RangeAssignor):
        name: ClassVar[str] = "cooperative"
        protocol: ClassVar[Literal["eager", "cooperative"]] = "cooperative"

    claims = (frozenset({("clicks", 0)}), 3)
    intent = requests.join(
        options(), (StickyAssignor(), RangeAssignor(), Cooperative()), member_id="m", topics=("clicks",),
        user_data=None, claims=claims, cooperative=False, owns=False, reason=None, request_id="r", attempt=1,
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
    player = Player().to_rejoining()
    player.answer("join", GONE)
    assert (player.state(), list(player.open)) == (State.FINDING, ["coordinator"])
    player.answer("coordinator", located("http://node-3"))
    assert (player.state(), player.url("join")) == (State.JOINING, "http://node-3")


def test_a_join_of_an_id_that_the_group_forgot_begins_anew() -> None:
    player = Player().to_rejoining()
    player.answer("join", refused(ErrorCode.UNKNOWN_MEMBER_ID))
    assert player.body("join").member_id == ""
    assert player.callbacks == []
    player.answer("join", MEMBER_ID_REQUIRED)
    player.answer("join", refused(ErrorCode.UNKNOWN_MEMBER_ID))
    assert "join" not in player.open, "the second time it backs off"
    player.wait(100)
    assert player.body("join").member_id == ""


def test_a_join_told_to_rebalance_is_tried_again_as_a_new_attempt() -> None:
    player = Player().to_rejoining()
    before = player.body("join").request_id
    player.answer("join", refused(ErrorCode.REBALANCE_IN_PROGRESS))
    assert player.body("join").request_id != before
    player.answer("join", refused(ErrorCode.REBALANCE_IN_PROGRESS))
    assert "join" not in player.open


@pytest.mark.parametrize("problem", [refused(ErrorCode.MEMBER_ID_REQUIRED), MEMBER_ID_REQUIRED])
def test_an_id_that_is_required_but_not_given_or_not_missing_is_the_services_fault(problem: Refused) -> None:
    player = Player().to_rejoining()
    player.answer("join", problem)
    assert isinstance(player.machine.error, errors.ServiceFailed)


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
    player = Player()
    match operation:
        case "coordinator":
            player.feed(ev.Started())
        case "join":
            player.to_rejoining()
        case "sync":
            player.to_syncing()
        case "heartbeat":
            player.to_stable()
    player.answer(operation, refused(code))
    assert player.state() is State.FAILED
    assert type(player.machine.error) is kind
    assert player.done == Done(player.machine.error)
    assert (player.open, player.timers) == ({}, {})
    assert player.called() == ([(ASSIGNED, 1), (LOST, 1)] if operation == "heartbeat" else [])


# --- syncing ---------------------------------------------------------------------------------------------------------


def test_a_follower_syncs_with_nothing_and_holds_what_it_gets() -> None:
    player = Player().to_syncing()
    sync = player.body("sync")
    assert (sync.generation_id, sync.member_id, sync.protocol_type, sync.protocol_name, sync.assignments) == (
        1, "m-1", "consumer", "range", (),
    )  # fmt: skip
    player.answer("sync", synced())
    held = player.machine.assignment
    assert held is not None
    assert (held.generation_id, held.member_id, held.leader) == (1, "m-1", False)
    assert held.partitions == {("clicks", 0), ("clicks", 1)}
    assert (player.state(), player.called()) == (State.STABLE, [(ASSIGNED, 1)])


def test_a_leader_has_the_assignment_made_and_submits_it() -> None:
    player = Player().to_assigning()
    call = player.open["assign"]
    assert isinstance(call, Assign)
    assert (call.protocol_name, [member.member_id for member in call.members]) == ("range", ["m-1"])
    made = (m.SyncAssignment(member_id="m-1", assignment=EMPTY),)
    player.feed(ev.AssignmentMade(call.call_id, made))
    assert player.body("sync").assignments == made
    player.answer("sync", synced(EMPTY))
    assert player.machine.assignment is not None
    assert (player.machine.assignment.leader, player.machine.assignment.partitions) == (True, frozenset())


def test_a_static_leader_whose_assignment_stands_makes_none() -> None:
    player = Player(group_instance_id="i").to_joining()
    player.answer("join", joined(leader="i-1", member_id="i-1", skip=True))
    assert player.body("sync").assignments == ()
    player.answer("sync", synced())
    assert player.machine.assignment is not None
    assert player.machine.assignment.leader


def test_a_leader_at_work_sends_heartbeats_and_follows_what_they_say() -> None:
    player = Player().to_assigning()
    stale = player.open["assign"].call_id
    player.wait(3000)
    assert player.body("heartbeat").wait_ms == 0
    player.answer("heartbeat", BEATEN)
    player.wait(3000)
    player.answer("heartbeat", refused(ErrorCode.REBALANCE_IN_PROGRESS))
    assert (player.state(), list(player.open)) == (State.JOINING, ["join"])
    player.feed(ev.AssignmentMade(stale, ()))
    assert list(player.open) == ["join"], "the late result is ignored"


def test_a_rebalance_during_sync_joins_again_and_forgets_nothing() -> None:
    player = Player(offers=(StickyAssignor(),)).to_revoking()
    player.callback_ended()
    before = player.body("join").protocols
    player.answer("join", joined(2))
    player.answer("sync", refused(ErrorCode.REBALANCE_IN_PROGRESS))
    assert (player.state(), player.body("join").member_id) == (State.JOINING, "m-1")
    assert player.body("join").protocols == before
    assert '"owned_partitions":{"clicks":[0,1]}' in before[0].metadata.text
    assert LOST not in [callback for callback, _ in player.called()]


@pytest.mark.parametrize(
    ("code", "member_id"), [(ErrorCode.ILLEGAL_GENERATION, "m-1"), (ErrorCode.UNKNOWN_MEMBER_ID, "")]
)
def test_a_sync_that_is_too_late_joins_again_with_nothing_held(code: ErrorCode, member_id: str) -> None:
    player = Player(offers=(StickyAssignor(),)).to_revoking()
    player.callback_ended()
    player.answer("join", joined(2))
    player.answer("sync", refused(code))
    assert player.body("join").member_id == member_id
    assert '"owned_partitions":{}' in player.body("join").protocols[0].metadata.text
    assert player.called() == [(ASSIGNED, 1), (REVOKED, 1)]


def test_a_sync_is_repeated_as_it_was() -> None:
    player = Player().to_syncing()
    before = player.body("sync")
    player.now += 20_000
    player.answer("sync", waiting())
    assert player.body("sync") is before
    player.answer("sync", GONE)
    assert player.state() is State.SYNCING
    player.answer("coordinator", located())
    assert player.body("sync") is before


@pytest.mark.parametrize("junk", [OpaqueJson.of("x"), OpaqueJson.of({"partitions": {"clicks": ["one"]}})])
def test_an_assignment_that_is_none_fails_the_member_after_a_leave(junk: OpaqueJson) -> None:
    player = Player().to_syncing()
    player.answer("sync", synced(junk))
    assert (player.state(), player.callbacks) == (State.LEAVING, [])
    player.answer("leave", LEFT)
    assert player.state() is State.FAILED
    assert isinstance(player.machine.error, errors.UnreadableAssignment)


def test_an_assignor_that_fails_fails_the_member_after_a_leave() -> None:
    player = Player().to_assigning()
    player.feed(ev.AssignmentFailed(player.open.pop("assign").call_id, KeyError("no catalogue"), retriable=False))
    assert player.body("leave").members[0].member_id == "m-1"
    assert player.done is None
    player.answer("leave", LEFT)
    assert isinstance(player.machine.error, errors.AssignorFailed)
    assert "no catalogue" in str(player.machine.error)
    assert player.done == Done(player.machine.error)


def test_partition_counts_that_cannot_be_had_yet_are_asked_again() -> None:
    player = Player().to_assigning()
    player.feed(ev.AssignmentFailed(player.open.pop("assign").call_id, OSError("down"), retriable=True))
    player.wait(1)
    assert "assign" in player.open
    player.feed(ev.AssignmentFailed(player.open.pop("assign").call_id, OSError("down"), retriable=True))
    player.wait(99)
    assert "assign" not in player.open
    player.wait(1)
    assert "assign" in player.open
    assert player.state() is State.SYNCING


# --- heartbeats ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "wait_ms", "timeout_ms"),
    [
        ({}, 20_000, 30_000),
        ({"session_timeout_ms": 10_000}, 5_000, 7_500),
        ({"heartbeat_wait_ms": 0}, 0, 10_000),
        ({"session_timeout_ms": 1_000}, 500, 1_000),
    ],
)
def test_a_settled_member_lets_its_heartbeat_wait_within_half_the_session(
    changes: dict[str, Any], wait_ms: int, timeout_ms: int
) -> None:
    player = Player(**changes).to_stable()
    call = player.open["heartbeat"]
    assert isinstance(call, Send)
    assert (player.body("heartbeat").wait_ms, call.timeout_ms) == (wait_ms, timeout_ms)
    assert (player.body("heartbeat").generation_id, player.body("heartbeat").member_id) == (1, "m-1")


def test_the_next_heartbeat_follows_a_held_one_at_once_and_a_quick_one_at_the_interval() -> None:
    player = Player().to_stable()
    player.wait(20_000)
    player.answer("heartbeat", BEATEN)
    assert "heartbeat" in player.open
    player.answer("heartbeat", BEATEN)
    assert "heartbeat" not in player.open
    player.wait(2_999)
    assert "heartbeat" not in player.open
    player.wait(1)
    assert "heartbeat" in player.open


def test_an_interval_of_the_options_wins_over_the_services() -> None:
    player = Player(heartbeat_wait_ms=0, heartbeat_interval_ms=700).to_stable()
    player.answer("heartbeat", BEATEN)
    player.wait(699)
    assert "heartbeat" not in player.open
    player.wait(1)
    assert "heartbeat" in player.open


@pytest.mark.parametrize("hiccup", [GONE, refused(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS), SUPERSEDED])
def test_a_heartbeat_hiccup_is_no_loss(hiccup: Outcome) -> None:
    player = Player().to_stable()
    for _ in range(3):
        player.answer("heartbeat", hiccup)
        if "coordinator" in player.open:
            player.answer("coordinator", located())
        player.wait(5_000)
        if "coordinator" in player.open:
            player.answer("coordinator", located())
    assert (player.state(), player.called()) == (State.STABLE, [(ASSIGNED, 1)])
    player.answer("heartbeat", BEATEN)


def test_a_repeated_heartbeat_does_not_wait_for_two_waits_would_be_the_session() -> None:
    player = Player().to_stable()
    player.wait(20_000)
    player.answer("heartbeat", refused(ErrorCode.NOT_COORDINATOR, url="http://node-2"))
    assert player.body("heartbeat").wait_ms == 0
    player.answer("heartbeat", BEATEN)
    player.wait(3_000)
    assert player.body("heartbeat").wait_ms == 20_000
    player.answer("heartbeat", GONE)
    player.answer("coordinator", located())
    assert player.body("heartbeat").wait_ms == 0


def test_a_heartbeat_that_waited_for_the_coordinator_does_not_wait_on() -> None:
    player = Player().to_stable()
    player.ask(1, ops.COMMIT, COMMIT)
    player.answer("commit", GONE)
    player.wait(3_000)
    player.answer("heartbeat", BEATEN)
    assert set(player.open) == {"coordinator"}
    player.answer("coordinator", located())
    assert player.body("heartbeat").wait_ms == 0


def test_back_off_leaves_time_within_a_short_session() -> None:
    player = Player(session_timeout_ms=600).to_stable()
    loading = refused(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    for _ in range(3):
        player.answer("heartbeat", loading)
        player.wait(100)
        assert "heartbeat" in player.open


def test_the_users_reason_reaches_the_groups_history() -> None:
    player = Player().to_stable()
    assert {join.reason for join in player.bodies("join")} == {"started"}
    player.feed(ev.RejoinRequested("clicks grew"))
    player.callback_ended()
    assert player.body("join").reason == "clicks grew"


def test_a_session_without_a_heartbeat_loses_the_assignment_but_not_the_id() -> None:
    player = Player().to_stable()
    player.wait(20_000)
    player.answer("heartbeat", BEATEN)
    player.answer("heartbeat", refused(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS))
    player.open.pop("heartbeat", None)
    player.wait(44_999)
    assert player.state() is State.STABLE
    player.wait(1)
    assert (player.state(), player.body("join").member_id) == (State.JOINING, "m-1")
    assert (player.machine.assignment, player.called()[-1]) == (None, (LOST, 1))


def test_waiting_for_others_is_not_silence() -> None:
    player = Player().to_rejoining()
    for _ in range(20):
        player.wait(20_000)
        player.answer("join", waiting())
    player.answer("join", joined())
    for _ in range(20):
        player.wait(20_000)
        player.answer("sync", waiting())
    assert (player.state(), player.called(), player.bodies("heartbeat")) == (State.SYNCING, [], [])


@pytest.mark.parametrize(
    ("code", "member_id"), [(ErrorCode.ILLEGAL_GENERATION, "m-1"), (ErrorCode.UNKNOWN_MEMBER_ID, "")]
)
def test_a_heartbeat_of_a_stranger_loses_the_assignment(code: ErrorCode, member_id: str) -> None:
    player = Player().to_stable()
    player.answer("heartbeat", refused(code))
    assert player.called() == [(ASSIGNED, 1), (LOST, 1)]
    assert (player.state(), player.machine.assignment) == (State.JOINING, None)
    assert player.body("join").member_id == member_id
    assert '"generation_id":-1' in player.body("join").protocols[0].metadata.text
    assert "heartbeat" not in player.open
    assert "session" not in player.timers


# --- giving up -------------------------------------------------------------------------------------------------------


def test_a_rebalance_is_joined_only_when_on_revoked_has_returned() -> None:
    player = Player().to_stable()
    player.wait(7_000)
    player.answer("heartbeat", refused(ErrorCode.REBALANCE_IN_PROGRESS))
    assert (player.state(), player.machine.rebalance_pending) == (State.REVOKING, True)
    assert player.called() == [(ASSIGNED, 1), (REVOKED, 1)]
    for _ in range(5):
        assert player.body("heartbeat").wait_ms == 0
        player.answer("heartbeat", refused(ErrorCode.REBALANCE_IN_PROGRESS))
        player.wait(3_000)
    assert player.held() is not None, "commits go on under the old generation"
    player.callback_ended()
    assert (player.state(), list(player.open), player.held()) == (State.JOINING, ["join"], None)
    assert player.timers == {}


def test_a_slow_on_revoked_is_warned_of_and_waited_for() -> None:
    player = Player(session_timeout_ms=600_000).to_revoking()
    player.wait(47_999)
    assert player.warnings == []
    player.wait(1)
    assert "only 12000 ms more" in player.warnings[0]
    player.wait(12_000)
    assert "goes on without" in player.warnings[1]
    assert player.state() is State.REVOKING


@pytest.mark.parametrize(
    ("code", "member_id"), [(ErrorCode.ILLEGAL_GENERATION, "m-1"), (ErrorCode.UNKNOWN_MEMBER_ID, "")]
)
def test_a_member_dropped_while_on_revoked_runs_waits_for_it_and_is_not_told_twice(
    code: ErrorCode, member_id: str
) -> None:
    player = Player().to_revoking()
    player.wait(3_000)
    player.answer("heartbeat", refused(code))
    assert (player.state(), player.open) == (State.REVOKING, {})
    player.commit(1)
    player.answer("commit", refused(ErrorCode.UNKNOWN_MEMBER_ID))
    player.wait(30_000)
    assert player.open == {}, "the doubt is no news"
    player.callback_ended()
    assert player.body("join").member_id == member_id
    assert '"owned_partitions":{}' in player.body("join").protocols[0].metadata.text
    assert player.called() == [(ASSIGNED, 1), (REVOKED, 1)]


def test_a_fatal_answer_while_on_revoked_runs_is_not_told_twice() -> None:
    player = Player(offers=(StickyAssignor(),)).to_revoking()
    player.wait(3_000)
    player.answer("heartbeat", refused(ErrorCode.FENCED_INSTANCE_ID))
    assert player.state() is State.FAILED
    assert player.called() == [(ASSIGNED, 1), (REVOKED, 1)]


def test_a_rebalance_while_on_assigned_runs_waits_for_its_turn() -> None:
    player = Player().to_syncing()
    player.answer("sync", synced())
    player.answer("heartbeat", refused(ErrorCode.REBALANCE_IN_PROGRESS))
    assert player.called() == [(ASSIGNED, 1), (REVOKED, 1)]
    player.feed(ev.CallbackEnded(ASSIGNED, 1))
    assert player.state() is State.REVOKING
    player.feed(ev.CallbackEnded(REVOKED, 1))
    assert player.state() is State.JOINING


def test_on_assigned_that_fails_fails_the_member_after_a_leave() -> None:
    player = Player().to_syncing()
    player.answer("sync", synced())
    player.callback_ended(OSError("disk full"))
    assert (player.state(), player.machine.assignment) == (State.LEAVING, None)
    player.answer("leave", LEFT)
    assert isinstance(player.machine.error, errors.CallbackFailed)
    assert isinstance(player.machine.error.__cause__, OSError)


def test_on_revoked_that_fails_changes_nothing() -> None:
    player = Player().to_revoking()
    player.callback_ended(OSError("disk full"))
    assert player.state() is State.JOINING


# --- wishes of the user ----------------------------------------------------------------------------------------------


def test_a_wish_for_another_round_gives_up_first() -> None:
    player = Player().to_stable()
    player.feed(ev.RejoinRequested("clicks grew"))
    assert player.called()[-1] == (REVOKED, 1)
    player.callback_ended()
    assert player.state() is State.JOINING


@pytest.mark.parametrize("stage", ["to_joining", "to_rejoining", "to_revoking"])
def test_a_wish_for_another_round_is_met_by_the_one_under_way(stage: str) -> None:
    player = Player()
    getattr(player, stage)()
    before = (player.state(), dict(player.open), player.called())
    player.feed(ev.RejoinRequested("clicks grew"))
    assert (player.state(), player.open, player.called()) == before


@pytest.mark.parametrize("stage", ["to_syncing", "to_assigning"])
def test_a_wish_for_another_round_overtakes_a_sync(stage: str) -> None:
    player = Player()
    getattr(player, stage)()
    player.feed(ev.RejoinRequested("clicks grew"))
    assert (player.state(), list(player.open)) == (State.JOINING, ["join"])


def topics_sent(player: Player) -> Any:
    return player.body("join").protocols[0].metadata.value["topics"]


def test_a_new_subscription_is_joined_with() -> None:
    player = Player().to_stable()
    player.feed(ev.SubscriptionChanged(("clicks",), None))
    assert player.state() is State.STABLE
    player.feed(ev.SubscriptionChanged(("orders", "clicks"), None))
    player.callback_ended()
    assert topics_sent(player) == ["clicks", "orders"]


def test_new_user_data_alone_is_a_new_subscription() -> None:
    player = Player().to_stable()
    player.feed(ev.SubscriptionChanged(("clicks",), {"weight": 2}))
    assert player.state() is State.REVOKING


@pytest.mark.parametrize("answer", [MEMBER_ID_REQUIRED, waiting("m-1"), joined()], ids=["id", "202", "joined"])
def test_a_new_subscription_waits_for_the_answer_of_a_join_on_the_wire(answer: Outcome) -> None:
    player = Player().to_joining()
    before = player.body("join")
    player.feed(ev.SubscriptionChanged(("orders",), None))
    assert player.body("join") is before
    player.now += 20_000
    player.answer("join", answer)
    assert (topics_sent(player), player.body("join").member_id) == (["orders"], "m-1")
    assert player.body("join").request_id != before.request_id


def test_a_commit_passes_through_and_changes_nothing() -> None:
    player = Player().to_stable()
    held, sends = player.machine.assignment, len(player.sends)
    for ticket, code in enumerate([ErrorCode.ILLEGAL_GENERATION, ErrorCode.UNKNOWN_MEMBER_ID,
                                   ErrorCode.FENCED_INSTANCE_ID, ErrorCode.REBALANCE_IN_PROGRESS]):  # fmt: skip
        player.commit(ticket)
        assert (player.body("commit").member_id, player.body("commit").generation_id) == ("m-1", 1)
        player.answer("commit", refused(code))
        assert player.settled[ticket] == refused(code)
    assert (player.state(), player.machine.assignment, player.machine.generation_id) == (State.STABLE, held, 1)
    assert len(player.sends) == sends + 4 + 3, "three of them are a reason to ask by a heartbeat"
    assert player.called() == [(ASSIGNED, 1)]


def test_a_commit_of_another_generation_or_of_none_is_not_sent() -> None:
    player = Player().to_syncing()
    player.commit(1)
    player.answer("sync", synced())
    player.commit(2, 0)
    for ticket in (1, 2):
        outcome = player.settled[ticket]
        assert isinstance(outcome, Refused)
        assert outcome.problem.error_code == ErrorCode.ILLEGAL_GENERATION
    assert player.bodies("commit") == []
    player.feed(ev.CommitRequested(3, m.CommitRequest(generation_id=-1, offsets={}), 1))
    assert player.settled[3] == Answered(m.CommitAnswer(offsets={})), "there is nothing to say"


def test_a_doubt_asks_with_a_heartbeat_that_does_not_wait() -> None:
    player = Player().to_stable()
    player.commit(1)
    player.answer("commit", refused(ErrorCode.REBALANCE_IN_PROGRESS))
    assert player.body("heartbeat").wait_ms == 20_000
    player.commit(2)
    player.answer("commit", refused(ErrorCode.UNKNOWN_MEMBER_ID))
    assert player.body("heartbeat").wait_ms == 0
    player.wait(3_000)
    player.answer("heartbeat", BEATEN)
    assert player.body("heartbeat").wait_ms == 20_000


def test_a_commit_is_repeated_until_its_time_is_up() -> None:
    player = Player(call_timeout_ms=1_000).to_stable()
    player.ask(5, ops.COMMIT, COMMIT)
    loading = refused(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    for _ in range(3):
        player.answer("commit", loading)
        player.wait(300 if "commit" not in player.open else 0)
        while "commit" not in player.open and player.now < 1_000:
            player.wait(50)
    player.wait(1_000)
    assert player.settled[5] == loading
    assert "commit" not in player.open


def test_a_commit_that_never_reached_anybody_says_so() -> None:
    player = Player(call_timeout_ms=1_000).to_stable()
    player.ask(5, ops.COMMIT, COMMIT)
    player.wait(1_000)
    assert player.settled[5] == Unreachable("no answer in time")


def test_calls_of_the_user_do_not_disturb_each_other() -> None:
    player = Player().to_stable()
    player.ask(1, ops.COMMIT, COMMIT)
    first = player.open.pop("commit").call_id
    player.ask(2, ops.COMMIT, COMMIT)
    done = Answered(m.CommitAnswer(offsets={}))
    player.answer("commit", done)
    assert player.settled == {2: done}
    player.feed(ev.CallEnded(first, done))
    assert player.settled == {1: done, 2: done}


def test_an_abandoned_call_is_dropped() -> None:
    player = Player().to_stable()
    player.ask(1, ops.COMMIT, COMMIT)
    player.feed(ev.CallAbandoned(1))
    assert "commit" not in player.open
    assert "deadline:user:1" not in player.timers


# --- leaving ---------------------------------------------------------------------------------------------------------


def test_a_leave_gives_up_tells_and_ends() -> None:
    player = Player().to_stable()
    player.feed(ev.LeaveRequested("deploy", stay=False))
    assert (player.state(), player.machine.rebalance_pending) == (State.REVOKING, False)
    assert "heartbeat" in player.open
    player.callback_ended()
    assert (player.state(), list(player.open)) == (State.LEAVING, ["leave"])
    (leaver,) = player.body("leave").members
    assert (leaver.member_id, leaver.reason) == ("m-1", "deploy")
    player.answer("leave", LEFT)
    assert (player.state(), player.done) == (State.LEFT, Done(None))
    assert (player.open, player.timers) == ({}, {})
    assert player.called() == [(ASSIGNED, 1), (REVOKED, 1)]


def test_a_leave_during_on_revoked_waits_for_it() -> None:
    player = Player().to_revoking()
    player.feed(ev.LeaveRequested(None, stay=False))
    assert player.state() is State.REVOKING
    player.callback_ended()
    assert player.state() is State.LEAVING
    assert player.called() == [(ASSIGNED, 1), (REVOKED, 1)]


def test_staying_tells_nobody() -> None:
    player = Player(group_instance_id="i").to_stable()
    player.feed(ev.LeaveRequested(None, stay=True))
    player.callback_ended()
    assert (player.state(), player.bodies("leave")) == (State.LEFT, [])


@pytest.mark.parametrize("stage", ["to_rejoining", "to_syncing", "to_assigning"])
def test_a_leave_before_an_assignment_is_told_at_once(stage: str) -> None:
    player = Player()
    getattr(player, stage)()
    player.feed(ev.LeaveRequested(None, stay=False))
    assert list(player.open) == ["leave"]
    assert player.body("leave").members[0].member_id == "m-1"


@pytest.mark.parametrize("answer", [MEMBER_ID_REQUIRED, waiting("m-1"), joined()], ids=["id", "202", "joined"])
def test_a_leave_during_the_first_join_waits_for_the_id(answer: Outcome) -> None:
    player = Player().to_joining()
    before = player.body("join")
    player.feed(ev.LeaveRequested(None, stay=False))
    assert (player.state(), list(player.open)) == (State.LEAVING, ["join"])
    player.answer("join", GONE)
    player.answer("coordinator", located())
    assert player.body("join") is before
    player.answer("join", answer)
    assert player.body("leave").members[0].member_id == "m-1"


def test_a_first_join_that_is_refused_leaves_nothing_to_leave() -> None:
    player = Player().to_joining()
    player.feed(ev.LeaveRequested(None, stay=False))
    player.answer("join", refused(ErrorCode.GROUP_MAX_SIZE_REACHED))
    assert (player.state(), player.machine.error, player.bodies("leave")) == (State.LEFT, None, [])


def test_a_leave_before_any_join_was_sent_ends_at_once() -> None:
    player = Player()
    player.feed(ev.Started())
    player.feed(ev.LeaveRequested(None, stay=False))
    assert (player.state(), player.bodies("leave"), player.open) == (State.LEFT, [], {})
    assert Player().feed(ev.LeaveRequested(None, stay=False))[-1] == Done(None)


@pytest.mark.parametrize(
    "answer", [LEFT, refused(ErrorCode.UNKNOWN_MEMBER_ID), refused(ErrorCode.GROUP_AUTHORIZATION_FAILED)]
)
def test_any_answer_ends_a_leave(answer: Outcome) -> None:
    player = Player().to_leaving()
    player.answer("leave", answer)
    assert (player.state(), player.machine.error) == (State.LEFT, None)


def test_a_leave_is_repeated_until_its_time_is_up() -> None:
    player = Player().to_leaving()
    player.answer("leave", GONE)
    player.answer("coordinator", located())
    player.answer("leave", refused(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS))
    player.wait(4_999)
    assert player.state() is State.LEAVING
    player.wait(1)
    assert player.state() is State.LEFT
    assert "will expire" in player.warnings[-1]


def test_a_refused_look_up_does_not_make_a_leave_fail() -> None:
    player = Player().to_leaving()
    player.answer("leave", GONE)
    player.answer("coordinator", refused(ErrorCode.SASL_AUTHENTICATION_FAILED))
    assert (player.state(), player.machine.error) == (State.LEFT, None)


def test_a_member_dropped_while_it_leaves_has_nothing_to_tell() -> None:
    player = Player().to_revoking()
    player.feed(ev.LeaveRequested(None, stay=False))
    player.wait(3_000)
    player.answer("heartbeat", refused(ErrorCode.UNKNOWN_MEMBER_ID))
    player.callback_ended()
    assert (player.state(), player.bodies("leave")) == (State.LEFT, [])


STAGES = ["to_joining", "to_rejoining", "to_syncing", "to_assigning", "to_stable", "to_revoking", "to_leaving"]


@pytest.mark.parametrize("stage", STAGES)
def test_a_close_ends_everything_at_once(stage: str) -> None:
    player = Player()
    getattr(player, stage)()
    count = len(player.callbacks)
    player.feed(ev.CloseRequested())
    assert (player.state(), player.done) == (State.LEFT, Done(None, at_once=True))
    assert (player.open, player.timers, player.machine.assignment) == ({}, {}, None)
    assert len(player.callbacks) == count


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
    player = Player()
    getattr(player, stage)()
    before = (player.state(), player.machine.member_id, player.machine.generation_id, player.machine.assignment)
    assert player.feed(event) == []
    assert (player.state(), player.machine.member_id, player.machine.generation_id, player.machine.assignment) == before


@pytest.mark.parametrize("end", sorted(ENDED, key=str))
def test_after_the_end_nothing_happens(end: State) -> None:
    player = Player().to_stable()
    if end is State.LEFT:
        player.feed(ev.CloseRequested())
    else:
        player.answer("heartbeat", refused(ErrorCode.FENCED_INSTANCE_ID))
    assert player.state() is end
    late: list[ev.Event] = [ev.RejoinRequested(""), ev.LeaveRequested(None, stay=False), ev.CloseRequested(),
                            ev.SubscriptionChanged(("x",), None), ev.CallRequested(1, ops.COMMIT, COMMIT)]  # fmt: skip
    assert [player.feed(event) for event in EVENTS + late] == [[]] * (len(EVENTS) + len(late))


def test_an_answer_of_the_join_before_is_ignored() -> None:
    player = Player().to_syncing()
    stale = player.open["sync"].call_id
    player.feed(ev.SubscriptionChanged(("orders",), None))
    player.feed(ev.CallEnded(stale, synced()))
    assert (player.state(), player.machine.assignment, player.callbacks) == (State.JOINING, None, [])


def test_a_generation_follows_the_answers_through_a_whole_life() -> None:
    player = Player().to_stable()
    for generation_id in range(2, 6):
        player.answer("heartbeat", refused(ErrorCode.REBALANCE_IN_PROGRESS))
        player.callback_ended()
        player.answer("join", joined(generation_id))
        player.answer("sync", synced())
        player.callback_ended()
        assert player.body("heartbeat").generation_id == generation_id
        player.wait(5_000)
    assert player.called() == [
        pair for generation_id in range(1, 5) for pair in [(ASSIGNED, generation_id), (REVOKED, generation_id)]
    ] + [(ASSIGNED, 5)]
    assert player.url("heartbeat") == NODE


def test_after_a_pause_the_heartbeat_does_not_wait_past_the_end_of_the_session() -> None:
    """The group counts it when it comes; an answer held back for long would find the session ended on this side."""
    player = Player(session_timeout_ms=6_000, heartbeat_interval_ms=2_000).to_stable()
    player.answer("heartbeat", BEATEN)
    player.now += 3_400
    player.wait(0)
    assert player.body("heartbeat").wait_ms == 0
    player.answer("heartbeat", BEATEN)
    player.wait(2_000)
    assert player.body("heartbeat").wait_ms == 3_000
