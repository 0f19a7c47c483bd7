"""Each operation reaches the service with what was sent, and its answer comes back in the contract's shape."""

import asyncio
import threading
from typing import Any

import pytest

from rallypoint.coordinator.core.commands import DeleteGroupRequest, DescribeRequest, ListRebalancesRequest, ThawRequest
from rallypoint.coordinator.core.effects import Failure
from rallypoint.coordinator.http.requests.inputs import parse_body
from rallypoint.coordinator.http.requests.large_bodies import LARGE_BYTES
from rallypoint.coordinator.http.requests.syncs import parse_sync
from rallypoint.protocol import admin_messages as admin
from rallypoint.protocol import messages as m
from rallypoint.protocol import operations
from rallypoint.protocol.errors import ERRORS, ErrorCode
from rallypoint.protocol.opaque import OpaqueJson
from tests.coordinator.http.problem_checks import check_documented, check_problem
from tests.fakes.api_server import ApiClient
from tests.fakes.fake_service import FakeService

HEARTBEAT = {"generation_id": 1, "member_id": "a"}


async def test_join_hands_on_the_request_and_the_answer(api: ApiClient, service: FakeService) -> None:
    service.answers[m.JoinRequest] = m.JoinAnswer(
        generation_id=1,
        protocol_type="consumer",
        protocol_name="range",
        leader="a",
        member_id="a",
        members=(m.JoinedMember(member_id="a", metadata=OpaqueJson.of({"topics": ["t"]})),),
    )
    body = {
        "member_id": "a",
        "client_id": "etl-1",
        "protocol_type": "consumer",
        "session_timeout_ms": 45000,
        "rebalance_timeout_ms": 300000,
        "protocols": [{"name": "range", "metadata": {"topics": ["t"]}}],
    }
    answer = await api.request("POST", "/v1/groups/clicks/join", body)
    assert answer.status == 200
    assert answer.json == {
        "generation_id": 1,
        "protocol_type": "consumer",
        "protocol_name": "range",
        "leader": "a",
        "member_id": "a",
        "skip_assignment": False,
        "members": [{"member_id": "a", "group_instance_id": None, "metadata": {"topics": ["t"]}}],
        "heartbeat_interval_ms": 3000,
    }
    assert answer.headers["Content-Type"] == "application/json"
    [(group_id, request, host)] = service.calls
    assert (group_id, host) == ("clicks", "127.0.0.1")
    assert isinstance(request, m.JoinRequest)
    assert request.protocols[0].metadata == OpaqueJson.of({"topics": ["t"]})
    assert api.metrics.answered == [("join", "NONE")]


async def test_a_wait_that_ran_out_is_202(api: ApiClient, service: FakeService) -> None:
    service.answers[m.SyncRequest] = m.WaitingAnswer()
    service.answers[m.JoinRequest] = m.WaitingAnswer(member_id="a-1")
    answer = await api.request("POST", "/v1/groups/g/sync", HEARTBEAT)
    assert (answer.status, answer.json) == (202, {"waiting": True})
    join = {"member_id": "", "protocol_type": "c", "protocols": [], "session_timeout_ms": 1, "rebalance_timeout_ms": 1}
    answer = await api.request("POST", "/v1/groups/g/join", join)
    assert (answer.status, answer.json) == (202, {"waiting": True, "member_id": "a-1"})
    assert api.metrics.answered == [("sync", "WAITING"), ("join", "WAITING")]


@pytest.mark.parametrize("padding", [LARGE_BYTES - 2_000, LARGE_BYTES])
async def test_a_large_body_is_read_beside_the_loop(
    api: ApiClient, service: FakeService, padding: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[int] = []

    def seen(parse: Any) -> Any:
        def parsed(*given: Any) -> Any:
            threads.append(threading.get_ident())
            return parse(*given)

        return parsed

    monkeypatch.setattr("rallypoint.coordinator.http.handlers.parse_body", seen(parse_body))
    monkeypatch.setattr("rallypoint.coordinator.http.handlers.parse_sync", seen(parse_sync))
    service.answers[m.SyncRequest] = m.SyncAnswer(protocol_type="t", protocol_name="p", assignment=OpaqueJson("[1]"))
    body = {
        "generation_id": 1, "member_id": "m", "assignments": [{"member_id": "m", "assignment": "y" * padding}],
    }  # fmt: skip
    answer = await api.request("POST", "/v1/groups/g/sync", body)
    assert answer.json == {"protocol_type": "t", "protocol_name": "p", "assignment": [1]}
    wrong = await api.request("POST", "/v1/groups/g/sync", {**body, "generation_id": "1"})
    assert check_problem(wrong)["field"] == "generation_id"
    is_beside = padding == LARGE_BYTES
    assert [thread != threading.get_ident() for thread in threads] == [is_beside, is_beside]


async def test_commit_answers_by_partition(api: ApiClient, service: FakeService) -> None:
    none = m.PartitionResult(error_code=0, error_name="NONE")
    service.answers[m.CommitRequest] = m.CommitAnswer(offsets={"t": {0: none}})
    body = {"generation_id": 1, "member_id": "a", "offsets": {"t": {"0": {"offset": 42}}}}
    answer = await api.request("POST", "/v1/groups/g/offsets", body)
    assert answer.json == {"offsets": {"t": {"0": {"error_code": 0, "error_name": "NONE"}}}}
    [(_, request, _)] = service.calls
    assert isinstance(request, m.CommitRequest)
    assert request.offsets["t"][0].offset == 42


async def test_a_fetch_answers_in_the_shape_of_the_contract(api: ApiClient, service: FakeService) -> None:
    committed = m.CommittedOffset(offset=42, metadata="", commit_at_ms=7)
    service.answers[m.FetchRequest] = m.FetchAnswer(offsets={"clicks": {0: committed}})
    answer = await api.request("GET", "/v1/groups/clicks/offsets?topic=clicks")
    assert answer.json == {"offsets": {"clicks": {"0": {"offset": 42, "leader_epoch": None, "metadata": ""}}}}


async def test_leave_describe_and_fetch_reach_the_group(api: ApiClient, service: FakeService) -> None:
    service.answers[m.LeaveRequest] = m.LeaveAnswer(members=())
    service.answers[m.FetchRequest] = m.FetchAnswer(offsets={})
    service.answers[DescribeRequest] = Failure(ErrorCode.GROUP_ID_NOT_FOUND, "There is no group g.")
    assert (await api.request("POST", "/v1/groups/g/leave", {"members": [{"member_id": "a"}]})).status == 200
    assert (await api.request("GET", "/v1/groups/g/offsets?topic=a&topic=b%2Fc")).json == {"offsets": {}}
    problem = check_problem(await api.request("GET", "/v1/groups/g"))
    assert (problem["status"], problem["error_code"]) == (404, 69)
    check_documented(operations.DESCRIBE, problem)
    requests = [request for _, request, _ in service.calls]
    assert requests[1:] == [m.FetchRequest(topics=("a", "b/c")), DescribeRequest()]


async def test_a_group_is_deleted_and_a_refusal_is_documented(api: ApiClient, service: FakeService) -> None:
    service.answers[DeleteGroupRequest] = admin.DeletedGroup(group_id="a/b")
    assert (await api.request("DELETE", "/v1/groups/a%2Fb")).json == {"group_id": "a/b"}
    assert service.calls == [("a/b", DeleteGroupRequest(), "127.0.0.1")]
    for error_code, status in ((ErrorCode.NON_EMPTY_GROUP, 409), (ErrorCode.GROUP_ID_NOT_FOUND, 404)):
        service.answers[DeleteGroupRequest] = Failure(error_code, "No.")
        problem = check_problem(await api.request("DELETE", "/v1/groups/g"))
        assert (problem["status"], problem["error_code"]) == (status, error_code)
        check_documented(operations.DELETE_GROUP, problem)
    assert check_problem(await api.request("DELETE", "/v1/groups/g?force=1"))["field"] == "force"
    assert api.metrics.answered[0] == ("delete_group", "NONE")


async def test_what_operators_ask_of_rebalances_reaches_the_group(api: ApiClient, service: FakeService) -> None:
    listing = admin.RebalanceListing(
        rebalance_id=7,
        previous_generation_id=3,
        generation_id=None,
        trigger="member_left",
        member_id="a",
        client_id="etl",
        host="198.51.100.7",
        reason="member a left: done",
        began_at_ms=5,
        join_phase_ms=None,
        sync_phase_ms=None,
        member_count=None,
        partitions_moved=None,
        outcome="in_progress",
        awaited=(admin.AwaitedListing(awaited_for="join", member_id="b", since_ms=5),),
        awaited_count=1,
    )
    frozen = admin.FreezeAnswer(group_id="g", frozen_until_ms=9, reason="deploy", held_count=0)
    service.answers[ListRebalancesRequest] = admin.ListRebalancesAnswer(rebalances=(listing,))
    service.answers[admin.StartRebalanceRequest] = admin.StartedRebalance(group_id="g", rebalance_id=8, started=True)
    service.answers[admin.FreezeRequest] = service.answers[ThawRequest] = frozen
    service.answers[admin.ProceedRequest] = admin.ProceedAnswer(
        group_id="g", rebalance_id=8, left_out=listing.awaited, left_out_count=1
    )
    service.answers[admin.JoinWaitRequest] = admin.JoinWaitAnswer(group_id="g", join_wait_max_ms=9_000, is_default=True)
    removed = admin.RemovedMember(member_id="a", group_instance_id="i", client_id="c", error_code=0, error_name="NONE")
    service.answers[admin.RemoveMembersRequest] = admin.RemoveMembersAnswer(
        group_id="g", members=(removed,), rebalance_id=8, dry_run=True
    )
    service.answers[admin.CooldownRequest] = admin.CooldownAnswer(group_id="g", cooldown_ms=0, is_default=True)
    answer = await api.request("GET", "/v1/groups/g/rebalances")
    assert answer.json["rebalances"][0]["awaited"] == [
        {
            "awaited_for": "join",
            "member_id": "b",
            "group_instance_id": None,
            "client_id": None,
            "host": None,
            "since_ms": 5,
            "heard_at_ms": None,
        }
    ]
    assert answer.json["rebalances"][0]["generation_id"] is None
    answer = await api.request("POST", "/v1/groups/g/rebalance", {"reason": "new rack"})
    assert answer.json == {"group_id": "g", "rebalance_id": 8, "started": True}
    answer = await api.request("PUT", "/v1/groups/g/freeze", {"duration_ms": 60_000, "reason": "deploy"})
    assert answer.json == {
        "group_id": "g",
        "frozen_until_ms": 9,
        "reason": "deploy",
        "held_count": 0,
        "freeze_until": None,
        "freeze_missing": [],
        "freeze_missing_count": 0,
    }
    assert (await api.request("DELETE", "/v1/groups/g/freeze")).status == 200
    answer = await api.request("POST", "/v1/groups/g/rebalance/proceed", {"reason": "slow"})
    assert (answer.json["rebalance_id"], answer.json["left_out"][0]["member_id"]) == (8, "b")
    answer = await api.request("PUT", "/v1/groups/g/join_wait", {"join_wait_max_ms": None})
    assert answer.json == {"group_id": "g", "join_wait_max_ms": 9_000, "is_default": True}
    answer = await api.request("POST", "/v1/groups/g/members/remove", {"members": ["a", "i"], "dry_run": True})
    assert answer.json == {
        "group_id": "g",
        "members": [
            {"member_id": "a", "group_instance_id": "i", "client_id": "c", "error_code": 0, "error_name": "NONE"}
        ],
        "rebalance_id": 8,
        "held_until_ms": None,
        "dry_run": True,
    }
    answer = await api.request("PUT", "/v1/groups/g/cooldown", {"cooldown_ms": None})
    assert answer.json == {"group_id": "g", "cooldown_ms": 0, "is_default": True}
    assert [request for _, request, _ in service.calls] == [
        ListRebalancesRequest(),
        admin.StartRebalanceRequest(reason="new rack"),
        admin.FreezeRequest(duration_ms=60_000, reason="deploy"),
        ThawRequest(),
        admin.ProceedRequest(reason="slow"),
        admin.JoinWaitRequest(join_wait_max_ms=None),
        admin.RemoveMembersRequest(members=("a", "i"), dry_run=True),
        admin.CooldownRequest(cooldown_ms=None),
    ]
    assert {outcome for _, outcome in api.metrics.answered} == {"NONE"}


@pytest.mark.parametrize(
    ("operation", "path", "body", "field"),
    [
        (operations.LIST_REBALANCES, "/v1/groups/g/rebalances?limit=3", None, "limit"),
        (operations.START_REBALANCE, "/v1/groups/g/rebalance", {"why": "x"}, "why"),
        (operations.START_REBALANCE, "/v1/groups/g/rebalance", {"reason": 5}, "reason"),
        (operations.FREEZE, "/v1/groups/g/freeze", {}, "duration_ms"),
        (operations.FREEZE, "/v1/groups/g/freeze", {"duration_ms": -1}, "duration_ms"),
        (operations.FREEZE, "/v1/groups/g/freeze", {"duration_ms": "5m"}, "duration_ms"),
        (operations.FREEZE, "/v1/groups/g/freeze?force=1", {"duration_ms": 1}, "force"),
        (operations.COOLDOWN, "/v1/groups/g/cooldown", {}, "cooldown_ms"),
        (operations.COOLDOWN, "/v1/groups/g/cooldown", {"cooldown_ms": 1.5}, "cooldown_ms"),
        (operations.THAW, "/v1/groups/g/freeze?all=1", None, "all"),
        (operations.FREEZE, "/v1/groups/g/freeze", {"duration_ms": 1, "until": "members"}, "until"),
        (operations.PROCEED, "/v1/groups/g/rebalance/proceed", {"without": "a"}, "without"),
        (operations.JOIN_WAIT, "/v1/groups/g/join_wait", {}, "join_wait_max_ms"),
        (operations.JOIN_WAIT, "/v1/groups/g/join_wait", {"join_wait_max_ms": -1}, "join_wait_max_ms"),
        (operations.REMOVE_MEMBERS, "/v1/groups/g/members/remove", {"members": []}, "members"),
        (operations.REMOVE_MEMBERS, "/v1/groups/g/members/remove", {"members": [""]}, "members.0"),
        (operations.REMOVE_MEMBERS, "/v1/groups/g/members/remove", {"members": ["a"], "force": True}, "force"),
    ],
)
async def test_what_operators_ask_wrongly_is_named_and_asks_nothing(
    api: ApiClient, service: FakeService, operation: operations.Operation, path: str, body: Any, field: str
) -> None:
    problem = check_problem(await api.request(operation.method, path, body))
    assert (problem["status"], problem["error_code"], problem["field"]) == (400, 42, field)
    check_documented(operation, problem)
    assert service.calls == []


async def test_offsets_are_reset(api: ApiClient, service: FakeService) -> None:
    moved = admin.PartitionReset(before=42, after=100, clamped=True, error_code=0, error_name="NONE")
    service.answers[admin.ResetOffsetsRequest] = admin.ResetOffsetsAnswer(dry_run=True, offsets={"clicks": {0: moved}})
    body = {"to": "shift", "shift": 1000, "topics": {"clicks": [0], "all": None}, "dry_run": True}
    answer = await api.request("POST", "/v1/groups/g/offsets/reset", body)
    assert answer.json == {
        "dry_run": True,
        "offsets": {
            "clicks": {
                "0": {
                    "before": 42,
                    "after": 100,
                    "clamped": True,
                    "error_code": 0,
                    "error_name": "NONE",
                    "at_ms": None,
                    "detail": None,
                }
            }
        },
    }
    expected = admin.ResetOffsetsRequest(to="shift", shift=1000, topics={"clicks": (0,), "all": None}, dry_run=True)
    assert service.calls == [("g", expected, "127.0.0.1")]
    for error_code in (ErrorCode.NON_EMPTY_GROUP, ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.INVALID_REQUEST):
        service.answers[admin.ResetOffsetsRequest] = Failure(error_code, "No.")
        check_documented(operations.RESET_OFFSETS, check_problem(await api.request("POST", RESET, body)))


RESET = "/v1/groups/g/offsets/reset"


async def test_offsets_are_deleted_by_topic(api: ApiClient, service: FakeService) -> None:
    subscribed = m.PartitionResult(error_code=86, error_name="GROUP_SUBSCRIBED_TO_TOPIC")
    service.answers[admin.DeleteOffsetsRequest] = admin.DeleteOffsetsAnswer(
        offsets={"clicks": {0: subscribed}, "a/b": {}}
    )
    answer = await api.request("DELETE", "/v1/groups/g/offsets?topic=clicks&topic=a%2Fb")
    assert answer.json == {
        "offsets": {"clicks": {"0": {"error_code": 86, "error_name": "GROUP_SUBSCRIBED_TO_TOPIC"}}, "a/b": {}},
        "dry_run": False,
    }
    assert service.calls == [("g", admin.DeleteOffsetsRequest(topics=("clicks", "a/b")), "127.0.0.1")]
    await api.request("DELETE", "/v1/groups/g/offsets?partition=clicks%3A0&partition=a%2Fb%3Ac%3A7&dry_run=true")
    asked = admin.DeleteOffsetsRequest(partitions=("clicks:0", "a/b:c:7"), dry_run=True)
    assert service.calls.pop()[1] == asked
    for query in (
        "?topic=", "?partition=1", "?partition=:1", "?partition=a:2147483648", "?partition=a:-1", "?topic=" + "x" * 256
    ):  # fmt: skip
        problem = check_problem(await api.request("DELETE", f"/v1/groups/g/offsets{query}"))
        assert (problem["status"], problem["error_name"]) == (400, "INVALID_REQUEST"), query
        assert problem["field"] == ("partition" if "partition" in query else "topic")
    assert len(service.calls) == 1
    for error_code in (ErrorCode.NON_EMPTY_GROUP, ErrorCode.GROUP_ID_NOT_FOUND):
        service.answers[admin.DeleteOffsetsRequest] = Failure(error_code, "No.")
        problem = check_problem(await api.request("DELETE", "/v1/groups/g/offsets?topic=t"))
        check_documented(operations.DELETE_OFFSETS, problem)


async def test_lists_take_their_query(api: ApiClient, service: FakeService) -> None:
    answer = await api.request("GET", "/v1/groups?state=Stable&prefix=a%26b+c&limit=7&cursor=x")
    empty: dict[str, Any] = {
        "groups": [],
        "next_cursor": None,
        "unavailable_shards": [],
        "damaged_groups": [],
        "listed_shards": None,
        "totals": None,
    }
    assert answer.json == empty
    assert service.calls[0][1] == admin.ListGroupsRequest(state="Stable", prefix="a&b c", limit=7, cursor="x")
    answer = await api.request("GET", "/v1/coordinator?group_id=a&group_id=&group_id=a")
    assert [entry["group_id"] for entry in answer.json["coordinators"]] == ["a", "", "a"]
    assert (await api.request("GET", "/v1/topics")).json == {"topics": [], "version": 0, "next_cursor": None}
    await api.request("GET", "/v1/topics?prefix=a%2F&limit=7&cursor=a%2Fb")
    asked = [request for _, request, _ in service.calls[2:]]
    assert asked == [m.ListTopicsRequest(), m.ListTopicsRequest(prefix="a/", limit=7, cursor="a/b")]


async def test_an_owner_is_asked_for_by_partition_or_key(api: ApiClient, service: FakeService) -> None:
    found = admin.Owner(member_id="a-1", group_instance_id=None, client_id="a", host="h")
    service.owner_answer = admin.OwnerAnswer(
        group_id="g", topic="t", partition=3, state="Stable", generation_id=7, owner=found
    )
    answer = await api.request("GET", "/v1/groups/a%2Fb/owner?topic=t&partition=3")
    assert answer.json == {
        "group_id": "g",
        "topic": "t",
        "partition": 3,
        "state": "Stable",
        "generation_id": 7,
        "owner": {"member_id": "a-1", "group_instance_id": None, "client_id": "a", "host": "h"},
    }
    service.owner_answer = service.owner_answer.model_copy(update={"owner": None})
    assert (await api.request("GET", "/v1/groups/g/owner?topic=t&key=a+%D0%B6&")).status == 400
    assert (await api.request("GET", "/v1/groups/g/owner?topic=t&key=a+%D0%B6")).json["owner"] is None
    assert (await api.request("GET", "/v1/groups/g/owner?topic=t&key_base64=AA%3D%3D")).status == 200
    assert [(group_id, request) for group_id, request, _ in service.calls] == [
        ("a/b", admin.OwnerRequest(topic="t", partition=3)),
        ("g", admin.OwnerRequest(topic="t", key="a ж")),
        ("g", admin.OwnerRequest(topic="t", key_base64="AA==")),
    ]
    for error_code in (
        ErrorCode.GROUP_ID_NOT_FOUND,
        ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.THROTTLING_QUOTA_EXCEEDED,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ):
        service.owner_answer = Failure(error_code, "No.")
        problem = check_problem(await api.request("GET", "/v1/groups/g/owner?topic=t&partition=3"))
        check_documented(operations.OWNER, problem)


async def test_a_preview_is_handed_on(api: ApiClient, service: FakeService) -> None:
    even = admin.Evenness(
        member_count=1, least_count=1, most_count=1, pairwise_sum=0, least_pairwise_sum=0, balanced=True
    )
    service.preview_answer = admin.PreviewAnswer(
        group_id="g",
        state="Stable",
        generation_id=7,
        assignor="range",
        rebalance_count=1,
        members=(
            admin.PreviewedMember(
                member_id="new-1",
                group_instance_id=None,
                client_id=None,
                change="joins",
                before_count=0,
                after_count=1,
                before={},
                after={"t": (0,)},
                gained={"t": (0,)},
                lost={},
            ),
        ),
        partitions_moved_count=1,
        partitions_moved=(admin.MovedPartition(topic="t", partition=0, from_member_id="a", to_member_id="new-1"),),
        unassigned_count=0,
        unassigned={},
        evenness_before=even,
        evenness_after=even,
    )
    body = {
        "leave": ["a"],
        "join": [{"count": 2, "topics": ["t"], "rack_id": "r", "user_data": {"weight": 1}}],
        "partitions": {"t": 9},
        "assignor": "range",
    }
    answer = await api.request("POST", "/v1/groups/g/preview", body)
    assert answer.json["members"][0]["after"] == {"t": [0]}
    assert answer.json["partitions_moved"] == [
        {"topic": "t", "partition": 0, "from_member_id": "a", "to_member_id": "new-1"}
    ]
    [(group_id, request, _)] = service.calls
    assert group_id == "g"
    assert request == admin.PreviewRequest(
        leave=("a",),
        join=(admin.PreviewJoin(count=2, topics=("t",), rack_id="r", user_data={"weight": 1}),),
        partitions={"t": 9},
        assignor="range",
    )
    assert (await api.request("POST", "/v1/groups/g/preview", {})).status == 200
    for error_code in (
        ErrorCode.GROUP_ID_NOT_FOUND,
        ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.THROTTLING_QUOTA_EXCEEDED,
    ):
        service.preview_answer = Failure(error_code, "No.")
        problem = check_problem(await api.request("POST", "/v1/groups/g/preview", body))
        check_documented(operations.PREVIEW, problem)


async def test_topics_are_put_and_deleted(api: ApiClient, service: FakeService) -> None:
    answer = await api.request("PUT", "/v1/topics/a%2Fb", {"partitions": 3, "end_offsets": {"2": 10}})
    assert answer.json == {"topic": "a/b", "partitions": 3, "version": 1, "end_offsets": {}, "replica_racks": []}
    assert service.calls[1] == ("a/b", m.PutTopicRequest(partitions=3, end_offsets={2: 10}), "")
    for racks in (None, [], [["x", "y"], [], ["z"]]):
        await api.request("PUT", "/v1/topics/t", {"partitions": 3, "replica_racks": racks})
        said = service.calls[-1][1]
        assert isinstance(said, m.PutTopicRequest)
        assert said.model_fields_set == {"partitions", "replica_racks"}, "what is said to be nothing is said"
        assert said.replica_racks == (None if racks is None else tuple(map(tuple, racks)))
    problem = check_problem(await api.request("DELETE", "/v1/topics/a"))
    assert (problem["status"], problem["error_name"]) == (404, "UNKNOWN_TOPIC_OR_PARTITION")
    check_documented(operations.DELETE_TOPIC, problem)


@pytest.mark.parametrize(
    ("segment", "group_id"),
    [
        ("plain", "plain"),
        ("a%2Fb", "a/b"),
        ("%252F", "%2F"),
        ("a+b", "a+b"),
        ("gr%C3%BCppe", "grüppe"),
        ("%F0%9F%98%80", "😀"),
        ("...", "..."),
        ("%00", "\0"),
        ("", ""),
        ("join", "join"),
        ("a%3Fb%23c", "a?b#c"),
        ("x" * 255, "x" * 255),
    ],
)
async def test_ids_are_decoded_exactly_once(api: ApiClient, service: FakeService, segment: str, group_id: str) -> None:
    service.answers[m.FetchRequest] = m.FetchAnswer(offsets={})
    service.answers[m.HeartbeatRequest] = m.HeartbeatAnswer()
    assert (await api.request("GET", f"/v1/groups/{segment}/offsets")).status == 200
    assert (await api.request("POST", f"/v1/groups/{segment}/heartbeat", HEARTBEAT)).status == 200
    assert [call[0] for call in service.calls] == [group_id, group_id]


async def test_head_is_get_without_a_body(api: ApiClient) -> None:
    answer = await api.request("HEAD", "/v1/topics")
    assert (answer.status, answer.body) == (200, b"")


@pytest.mark.parametrize("code", [code for code in ErrorCode if code is not ErrorCode.NONE])
async def test_every_failure_has_its_status_and_page(api: ApiClient, service: FakeService, code: ErrorCode) -> None:
    service.answers[m.HeartbeatRequest] = Failure(code, "It is so.", field="member_id")
    problem = check_problem(await api.request("POST", "/v1/groups/g/heartbeat", HEARTBEAT))
    assert (problem["error_code"], problem["status"]) == (code, ERRORS[code].status)
    assert (problem["detail"], problem["field"], problem["retriable"]) == (
        "It is so.",
        "member_id",
        ERRORS[code].retriable,
    )
    page = await api.request("GET", problem["type"])
    assert page.status == 200
    assert code.name in page.body.decode()
    assert api.metrics.answered[0] == ("heartbeat", code.name)


async def test_failures_carry_what_the_client_needs(api: ApiClient, service: FakeService) -> None:
    service.answers[m.HeartbeatRequest] = Failure(ErrorCode.MEMBER_ID_REQUIRED, "Join again.", member_id="a-1")
    assert (await api.request("POST", "/v1/groups/g/heartbeat", HEARTBEAT)).json["member_id"] == "a-1"

    service.answers[m.HeartbeatRequest] = Failure(ErrorCode.GROUP_MAX_SIZE_REACHED, "Full.", member_id="")
    answer = await api.request("POST", "/v1/groups/g/heartbeat", HEARTBEAT)
    assert (answer.json["member_id"], answer.headers["Retry-After"]) == ("", "30")

    service.answers[m.HeartbeatRequest] = Failure(
        ErrorCode.NOT_COORDINATOR, "Elsewhere.", node_id="node-2", url="http://node-2:8000"
    )
    answer = await api.request("POST", "/v1/groups/g/heartbeat", HEARTBEAT)
    assert (answer.status, answer.headers["Location"]) == (421, "http://node-2:8000")
    assert (answer.json["url"], answer.json["node_id"]) == ("http://node-2:8000", "node-2")

    service.answers[m.HeartbeatRequest] = Failure(
        ErrorCode.REBALANCE_IN_PROGRESS, "The member called again.", superseded=True, generation_id=4
    )
    problem: dict[str, Any] = check_problem(await api.request("POST", "/v1/groups/g/heartbeat", HEARTBEAT))
    assert (problem["type"], problem["status"], problem["error_code"]) == ("/errors/superseded", 409, 27)
    assert (problem["retriable"], problem["generation_id"]) == (False, 4)
    check_documented(operations.HEARTBEAT, problem)


async def test_a_client_that_hangs_up_cancels_its_wait(api: ApiClient, service: FakeService) -> None:
    call = asyncio.create_task(api.request("POST", "/v1/groups/g/sync", HEARTBEAT))
    await asyncio.wait_for(service.parked.wait(), 30)
    assert not service.hung_up.is_set()
    call.cancel()
    await asyncio.wait_for(service.hung_up.wait(), 30)


async def test_a_fault_of_ours_is_a_coded_500_and_is_logged(
    api: ApiClient, service: FakeService, caplog: pytest.LogCaptureFixture
) -> None:
    service.fault = ZeroDivisionError("secret")
    answer = await api.request("POST", "/v1/groups/g/heartbeat", HEARTBEAT)
    problem = check_problem(answer)
    assert (problem["status"], problem["error_code"]) == (500, -1)
    assert b"secret" not in answer.body
    assert "ZeroDivisionError" in caplog.text
    service.fault = None
    service.answers[m.HeartbeatRequest] = m.HeartbeatAnswer()
    assert (await api.request("POST", "/v1/groups/g/heartbeat", HEARTBEAT)).status == 200


async def test_what_is_remembered_of_a_group_takes_its_query(api: ApiClient, service: FakeService) -> None:
    answer = await api.request("GET", "/v1/groups/a%2Fb/partitions?topic=t&status=STOP&owned=false&limit=7&cursor=x")
    assert (answer.status, answer.json["partitions"]) == (200, [])
    asked: list[Any] = [admin.ListPartitionsRequest(topic="t", status="STOP", owned=False, limit=7, cursor="x")]
    answer = await api.request("GET", "/v1/groups/g/ownership?topic=t&partition=3&limit=7&cursor=4-2")
    assert (answer.status, answer.json["changes"]) == (200, [])
    asked.append(admin.OwnershipHistoryRequest(topic="t", partition=3, limit=7, cursor="4-2"))
    assert [request for _, request, _ in service.calls] == asked
    answer = await api.request("GET", "/v1/groups/g/lag")
    assert answer.json["eta_sentence"] == "The group has committed nothing, so it has no lag."
    for path in ("partitions?status=bad", "partitions?owned=1", "lag?x=1", "ownership?partition=-1"):
        check_problem(await api.request("GET", f"/v1/groups/g/{path}"))
    asked_groups = "sort=lag&descending=true&search=a&topic=t&lag_above=5&status=err&frozen=true&totals=true"
    await api.request("GET", f"/v1/groups?{asked_groups}")
    assert service.calls[-1][1] == admin.ListGroupsRequest(
        sort="lag", descending=True, search="a", topic="t", lag_above=5, status="err", frozen=True, totals=True
    )


async def test_a_topic_is_described_with_its_groups(api: ApiClient, service: FakeService) -> None:
    answer = await api.request("GET", "/v1/topics/a%2Fb?limit=7&cursor=x")
    assert answer.status == 200
    assert (answer.json["topic"], answer.json["partitions"], answer.json["is_registered"]) == ("a/b", 4, True)
    assert service.calls[-1][1] == admin.ListGroupsRequest(topic="a/b", limit=7, cursor="x", totals=True)
