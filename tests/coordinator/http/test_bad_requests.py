"""Whatever is wrong with a request, the answer is a coded problem that names what to correct."""

import json
from typing import Any

import pytest

from rallypoint.coordinator.http.requests.inputs import BodyLimits
from rallypoint.protocol import messages as m
from rallypoint.protocol import operations
from rallypoint.protocol.operations import Operation, path_of
from tests.coordinator.http.problem_checks import check_documented, check_problem
from tests.fakes.api_server import ApiClient, open_api, parse_answer
from tests.fakes.fake_service import FakeService

JOIN: dict[str, Any] = {
    "member_id": "",
    "protocol_type": "consumer",
    "protocols": [{"name": "range", "metadata": {"topics": ["t"]}}],
    "session_timeout_ms": 10000,
    "rebalance_timeout_ms": 10000,
}
SYNC: dict[str, Any] = {"generation_id": 1, "member_id": "a"}
COMMIT: dict[str, Any] = {"generation_id": 1, "member_id": "a", "offsets": {"t": {"0": {"offset": 1}}}}
HEARTBEAT: dict[str, Any] = {"generation_id": 1, "member_id": "a"}


def without(body: dict[str, Any], name: str) -> dict[str, Any]:
    return {key: value for key, value in body.items() if key != name}


BAD_BODIES: list[tuple[Operation, Any, str | None]] = [
    (operations.JOIN, b"", None),
    (operations.JOIN, b"{", None),
    (operations.JOIN, b"null", None),
    (operations.JOIN, b"[]", None),
    (operations.JOIN, b'"text"', None),
    (operations.JOIN, b"\xff\xfe", None),
    (operations.JOIN, b"\xef\xbb\xbf{}", None),
    (operations.JOIN, b"[" * 100_000, None),
    (operations.JOIN, json.dumps(JOIN).encode() + b"x", None),
    (operations.JOIN, without(JOIN, "member_id"), "member_id"),
    (operations.JOIN, without(JOIN, "session_timeout_ms"), "session_timeout_ms"),
    (operations.JOIN, JOIN | {"session_timeout_ms": "10000"}, "session_timeout_ms"),
    (operations.JOIN, JOIN | {"session_timeout_ms": -1}, "session_timeout_ms"),
    (operations.JOIN, JOIN | {"session_timeout_ms": 2**31}, "session_timeout_ms"),
    (operations.JOIN, JOIN | {"session_timeout_ms": 1.5}, "session_timeout_ms"),
    (operations.JOIN, JOIN | {"session_timeout_ms": True}, "session_timeout_ms"),
    (operations.JOIN, JOIN | {"session_timeout_ms": None}, "session_timeout_ms"),
    (operations.JOIN, JOIN | {"sesion_timeout_ms": 1}, "sesion_timeout_ms"),
    (operations.JOIN, JOIN | {"x" * 5000: 1}, "x" * 64 + "…"),
    (operations.JOIN, JOIN | {"member_id": 1}, "member_id"),
    (operations.JOIN, JOIN | {"member_id": "x" * 400}, "member_id"),
    (operations.JOIN, JOIN | {"group_instance_id": ""}, "group_instance_id"),
    (operations.JOIN, JOIN | {"group_instance_id": "x" * 256}, "group_instance_id"),
    (operations.JOIN, JOIN | {"client_id": "x" * 256}, "client_id"),
    (operations.JOIN, JOIN | {"request_id": "x" * 256}, "request_id"),
    (operations.JOIN, JOIN | {"max_wait_ms": -1}, "max_wait_ms"),
    (operations.JOIN, JOIN | {"protocols": {}}, "protocols"),
    (operations.JOIN, JOIN | {"protocols": [{}]}, "protocols.0.name"),
    (operations.JOIN, JOIN | {"protocols": [{"name": ""}]}, "protocols.0.name"),
    (operations.JOIN, JOIN | {"protocols": [{"name": "a"}, {"name": 1}]}, "protocols.1.name"),
    (operations.JOIN, JOIN | {"protocols": [{"name": "a"}] * 33}, "protocols"),
    (operations.JOIN, JOIN | {"protocols": [{"name": "a", "metadata": float("nan")}]}, "protocols.0.metadata"),
    (operations.JOIN, JOIN | {"protocols": [{"name": "a", "metadata": {"base64": "A"}}]}, "protocols.0.metadata"),
    (operations.JOIN, JOIN | {"protocols": [{"name": "a", "metadata": {"base64": 7}}]}, "protocols.0.metadata"),
    (operations.JOIN, json.dumps(JOIN).replace('"topics"', '"\\ud800"').encode(), None),
    (operations.SYNC, without(SYNC, "generation_id"), "generation_id"),
    (operations.SYNC, SYNC | {"assignments": [{"assignment": {}}]}, "assignments.0.member_id"),
    (
        operations.SYNC,
        SYNC | {"assignments": [{"member_id": "a"}, {"member_id": "b", "assignment": {"base64": "AA"}}]},
        "assignments.1.assignment",
    ),
    (operations.SYNC, SYNC | {"assignments": {"a": {}}}, "assignments"),
    (operations.HEARTBEAT, without(HEARTBEAT, "member_id"), "member_id"),
    (operations.HEARTBEAT, HEARTBEAT | {"wait_ms": "1"}, "wait_ms"),
    (operations.HEARTBEAT, HEARTBEAT | {"generation_id": 10**30}, "generation_id"),
    (operations.LEAVE, {}, "members"),
    (operations.LEAVE, {"members": []}, "members"),
    (operations.LEAVE, {"members": [{"id": "a"}]}, "members.0.id"),
    (operations.COMMIT, without(COMMIT, "offsets"), "offsets"),
    (operations.COMMIT, COMMIT | {"offsets": {"t": {"00": {"offset": 1}}}}, "offsets.t.00"),
    (operations.COMMIT, COMMIT | {"offsets": {"t": {"-1": {"offset": 1}}}}, "offsets.t.-1"),
    (operations.COMMIT, COMMIT | {"offsets": {"t": {"2147483648": {"offset": 1}}}}, "offsets.t.2147483648"),
    (operations.COMMIT, COMMIT | {"offsets": {"t": {"0": {"offset": 2**63}}}}, "offsets.t.0.offset"),
    (operations.COMMIT, COMMIT | {"offsets": {"t": {"0": {}}}}, "offsets.t.0.offset"),
    (operations.COMMIT, COMMIT | {"offsets": {"": {"0": {"offset": 1}}}}, "offsets."),
    (operations.COMMIT, COMMIT | {"offsets": [1]}, "offsets"),
    (operations.COMMIT, COMMIT | {"retention_time_ms": 60_000}, "retention_time_ms"),
    (operations.RESET_OFFSETS, {}, "to"),
    (operations.RESET_OFFSETS, {"to": "end"}, "to"),
    (operations.RESET_OFFSETS, {"to": ["time"]}, "to"),
    (operations.RESET_OFFSETS, {"to": "offset", "offset": "1"}, "offset"),
    (operations.RESET_OFFSETS, {"to": "earliest", "topics": {}}, "topics"),
    (operations.RESET_OFFSETS, {"to": "earliest", "topics": {"t": []}}, "topics.t"),
    (operations.RESET_OFFSETS, {"to": "earliest", "topics": {"t": [0, -1]}}, "topics.t.1"),
    (operations.RESET_OFFSETS, {"to": "earliest", "topics": {"t": ["0"]}}, "topics.t.0"),
    (operations.RESET_OFFSETS, {"to": "earliest", "dry_run": 1}, "dry_run"),
    (operations.RESET_OFFSETS, {"to": "earliest", "dryrun": True}, "dryrun"),
    (operations.PREVIEW, b"", None),
    (operations.PREVIEW, {"leaves": []}, "leaves"),
    (operations.PREVIEW, {"leave": "a"}, "leave"),
    (operations.PREVIEW, {"leave": ["a", 1]}, "leave.1"),
    (operations.PREVIEW, {"join": 3}, "join"),
    (operations.PREVIEW, {"join": [{}, {"count": 0}]}, "join.1.count"),
    (operations.PREVIEW, {"join": [{"count": "1"}]}, "join.0.count"),
    (operations.PREVIEW, {"join": [{"topics": [""]}]}, "join.0.topics.0"),
    (operations.PREVIEW, {"join": [{"group_instance_id": ""}]}, "join.0.group_instance_id"),
    (operations.PREVIEW, {"join": [{"weight": 1}]}, "join.0.weight"),
    (operations.PREVIEW, {"partitions": {"t": 0}}, "partitions.t"),
    (operations.PREVIEW, {"partitions": {"t": 1_000_001}}, "partitions.t"),
    (operations.PREVIEW, {"partitions": ["t"]}, "partitions"),
    (operations.PREVIEW, {"assignor": ""}, "assignor"),
    (operations.PUT_TOPIC, {}, "partitions"),
    (operations.PUT_TOPIC, {"partitions": 0}, "partitions"),
    (operations.PUT_TOPIC, {"partitions": 1, "end_offsets": {"x": 1}}, "end_offsets.x"),
    (operations.PUT_TOPIC, {"partitions": 1, "replica_racks": "x"}, "replica_racks"),
    (operations.PUT_TOPIC, {"partitions": 1, "replica_racks": ["x"]}, "replica_racks.0"),
    (operations.PUT_TOPIC, {"partitions": 2, "replica_racks": [["x"], ["y", ""]]}, "replica_racks.1.1"),
    (operations.PUT_TOPIC, {"partitions": 2, "replica_racks": [["x"], [3]]}, "replica_racks.1.0"),
    (operations.PUT_TOPIC, {"partitions": 2, "replica_racks": {"0": ["x"]}}, "replica_racks"),
]


@pytest.mark.parametrize(("operation", "body", "field"), BAD_BODIES)
async def test_a_wrong_body_is_refused_by_the_name_of_its_field(
    api: ApiClient, service: FakeService, operation: Operation, body: Any, field: str | None
) -> None:
    ids = {"topic": "t"} if "topic" in operation.path else {"group_id": "g"}
    answer = await api.request(operation.method, path_of(operation, **ids), body)
    problem = check_problem(answer)
    assert (problem["status"], problem["error_name"]) == (400, "INVALID_REQUEST")
    assert problem.get("field") == field
    check_documented(operation, problem)
    assert not service.calls, "the service must not hear of it"
    assert len(answer.body) < 1000, "the client's own bytes are not sent back"


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("sync", SYNC | {"assignments": [{}] * 1000}),
        ("join", JOIN | {"protocols": [{}] * 1000}),
        ("leave", {"members": [{"x": 1}] * 1000}),
    ],
)
async def test_a_list_costs_one_error_however_long_it_is(api: ApiClient, path: str, body: dict[str, Any]) -> None:
    problem = check_problem(await api.request("POST", f"/v1/groups/g/{path}", body))
    assert ".0." in problem["field"]
    assert "more wrong field" not in problem["detail"]


BAD_TARGETS: list[tuple[str, str, int, str, str | None]] = [
    ("GET", "/v1/coordinator", 400, "INVALID_REQUEST", "group_id"),
    ("GET", "/v1/coordinator?group=a", 400, "INVALID_REQUEST", "group"),
    ("GET", "/v1/coordinator?group_ids=a", 400, "INVALID_REQUEST", "group_ids"),
    ("GET", "/v1/coordinator?group_id=" + "x" * 256, 400, "INVALID_REQUEST", "group_id"),
    ("GET", "/v1/coordinator?group_id=%ff", 400, "INVALID_REQUEST", None),
    ("GET", "/v1/coordinator?group_id=%4", 400, "INVALID_REQUEST", None),
    ("GET", "/v1/groups?limit=1&limit=2", 400, "INVALID_REQUEST", "limit"),
    ("GET", "/v1/groups?state=Stable&state=Stable", 400, "INVALID_REQUEST", "state"),
    ("GET", "/v1/groups?limit=0", 400, "INVALID_REQUEST", "limit"),
    ("GET", "/v1/groups?limit=1001", 400, "INVALID_REQUEST", "limit"),
    ("GET", "/v1/groups?limit=ten", 400, "INVALID_REQUEST", "limit"),
    ("GET", "/v1/groups?limit=-1", 400, "INVALID_REQUEST", "limit"),
    ("GET", "/v1/groups?limit=%D9%A1", 400, "INVALID_REQUEST", "limit"),
    ("GET", "/v1/groups?limit=", 400, "INVALID_REQUEST", "limit"),
    ("GET", "/v1/groups?", 200, "", None),
    ("GET", "/v1/groups?&", 400, "INVALID_REQUEST", ""),
    ("GET", "/v1/groups?Limit=1", 400, "INVALID_REQUEST", "Limit"),
    ("GET", "/v1/groups/g/offsets?topic=", 400, "INVALID_REQUEST", "topic"),
    ("GET", "/v1/groups/g/offsets?partition=0", 400, "INVALID_REQUEST", "partition"),
    ("GET", "/v1/groups/g?x=1", 400, "INVALID_REQUEST", "x"),
    ("GET", "/v1/topics?x=1", 400, "INVALID_REQUEST", "x"),
    ("GET", "/v1/topics?limit=0", 400, "INVALID_REQUEST", "limit"),
    ("GET", "/v1/topics?limit=1001", 400, "INVALID_REQUEST", "limit"),
    ("GET", "/v1/topics?limit=ten", 400, "INVALID_REQUEST", "limit"),
    ("GET", "/v1/topics?limit=", 400, "INVALID_REQUEST", "limit"),
    ("GET", "/v1/topics?limit=1&limit=1", 400, "INVALID_REQUEST", "limit"),
    ("GET", "/v1/topics?prefix=" + "x" * 256, 400, "INVALID_REQUEST", "prefix"),
    ("GET", "/v1/topics?cursor=" + "x" * 256, 400, "INVALID_REQUEST", "cursor"),
    ("GET", "/v1/groups/g/owner", 400, "INVALID_REQUEST", "topic"),
    ("GET", "/v1/groups/g/owner?topic=&partition=1", 400, "INVALID_REQUEST", "topic"),
    ("GET", "/v1/groups/g/owner?topic=t&topic=u&partition=1", 400, "INVALID_REQUEST", "topic"),
    ("GET", "/v1/groups/g/owner?topic=t&partition=x", 400, "INVALID_REQUEST", "partition"),
    ("GET", "/v1/groups/g/owner?topic=t&partition=-1", 400, "INVALID_REQUEST", "partition"),
    ("GET", "/v1/groups/g/owner?topic=t&partition=2147483648", 400, "INVALID_REQUEST", "partition"),
    ("GET", "/v1/groups/g/owner?topic=t&key=" + "x" * 4_097, 400, "INVALID_REQUEST", "key"),
    ("GET", "/v1/groups/g/owner?topic=t&key=%ff", 400, "INVALID_REQUEST", None),
    ("POST", "/v1/groups/g/preview?assignor=range", 400, "INVALID_REQUEST", "assignor"),
    ("POST", "/v1/groups/g/heartbeat?wait_ms=1", 400, "INVALID_REQUEST", "wait_ms"),
    ("GET", "/v1/groups/%2e", 400, "INVALID_GROUP_ID", "group_id"),
    ("GET", "/v1/groups/..", 400, "INVALID_GROUP_ID", "group_id"),
    ("GET", "/v1/groups/%2E%2E/offsets", 400, "INVALID_GROUP_ID", "group_id"),
    ("GET", "/v1/groups/" + "x" * 256, 400, "INVALID_GROUP_ID", "group_id"),
    ("DELETE", "/v1/topics/..", 400, "INVALID_REQUEST", "topic"),
    ("DELETE", "/v1/topics/", 400, "INVALID_REQUEST", "topic"),
    ("DELETE", "/v1/topics/" + "x" * 256, 400, "INVALID_REQUEST", "topic"),
    ("GET", "/v1/groups/%", 400, "INVALID_REQUEST", None),
    ("GET", "/v1/groups/%zz", 400, "INVALID_REQUEST", None),
    ("GET", "/v1/groups/%c3%28", 400, "INVALID_REQUEST", None),
    ("GET", "/v1/groups/%ED%A0%80", 400, "INVALID_REQUEST", None),
    ("GET", "/v2/groups", 404, "INVALID_REQUEST", None),
    ("GET", "/v1", 404, "INVALID_REQUEST", None),
    ("GET", "/v1/groups/g/nothing", 404, "INVALID_REQUEST", None),
    ("GET", "/v1/groups/a/b/c/d", 404, "INVALID_REQUEST", None),
    ("GET", "//v1/groups", 404, "INVALID_REQUEST", None),
    ("GET", "/errors/no-such-error", 404, "INVALID_REQUEST", None),
]


@pytest.mark.parametrize(("method", "target", "status", "name", "field"), BAD_TARGETS)
async def test_a_wrong_target_is_refused(
    api: ApiClient, method: str, target: str, status: int, name: str, field: str | None
) -> None:
    answer = await api.request(method, target, {"generation_id": 1, "member_id": "a"} if method == "POST" else None)
    assert answer.status == status
    if status != 200:
        problem = check_problem(answer)
        assert (problem["error_name"], problem.get("field")) == (name, field)


@pytest.mark.parametrize(
    ("method", "target", "allow"),
    [
        ("DELETE", "/v1/groups/g/join", "POST"),
        ("PUT", "/v1/groups/g/offsets", "DELETE, GET, HEAD, POST"),
        ("POST", "/v1/groups", "GET, HEAD"),
        ("POST", "/v1/topics/t", "DELETE, GET, HEAD, PUT"),
        ("OPTIONS", "/v1/groups/g/join", "POST"),
        ("PATCH", "/docs", "GET, HEAD"),
        ("TRACE", "/healthz", "GET, HEAD"),
    ],
)
async def test_a_wrong_method_is_told_the_right_ones(api: ApiClient, method: str, target: str, allow: str) -> None:
    answer = await api.request(method, target)
    problem = check_problem(answer)
    assert (problem["status"], problem["type"]) == (405, "/errors/method-not-allowed")
    assert answer.headers["Allow"] == allow


@pytest.mark.parametrize(
    ("headers", "field"),
    [
        ({"Content-Type": "text/plain"}, "Content-Type"),
        ({"Content-Type": "application/x-www-form-urlencoded"}, "Content-Type"),
        ({"Content-Type": "application/jsonp"}, "Content-Type"),
        ({"Content-Type": ""}, "Content-Type"),
        ({"Content-Type": "application/json; charset=utf-16"}, "Content-Type"),
        ({"Content-Encoding": "gzip"}, "Content-Encoding"),
        ({"Content-Encoding": "br"}, "Content-Encoding"),
    ],
)
async def test_a_body_that_is_not_sent_as_json_is_refused(api: ApiClient, headers: dict[str, str], field: str) -> None:
    answer = await api.request("POST", "/v1/groups/g/heartbeat", b"{}", headers)
    problem = check_problem(answer)
    assert (problem["status"], problem["type"], problem["field"]) == (415, "/errors/unsupported-media-type", field)
    check_documented(operations.HEARTBEAT, problem)


@pytest.mark.parametrize("content_type", ["application/json", "Application/JSON; Charset=UTF-8", "application/json ;"])
async def test_json_may_carry_parameters(api: ApiClient, service: FakeService, content_type: str) -> None:
    service.answers[m.HeartbeatRequest] = m.HeartbeatAnswer()
    answer = await api.request("POST", "/v1/groups/g/heartbeat", HEARTBEAT, {"Content-Type": content_type})
    assert (answer.status, answer.body) == (200, b"{}")


async def test_a_body_is_refused_where_none_is_taken(api: ApiClient) -> None:
    assert check_problem(await api.request("GET", "/v1/groups", b"{}"))["status"] == 400
    assert check_problem(await api.request("GET", "/v1/groups", b"x", {"Content-Type": "a/b"}))["status"] == 415
    assert check_problem(await api.request("DELETE", "/v1/topics/t", b"{}"))["status"] == 400


@pytest.mark.parametrize("chunked", [False, True])
@pytest.mark.parametrize(("path", "limit"), [("heartbeat", 2000), ("join", 2000), ("sync", 5000)])
async def test_a_body_past_its_limit_is_refused(service: FakeService, path: str, limit: int, chunked: bool) -> None:
    limits = BodyLimits(max_body_bytes=2000, max_sync_bytes=5000)
    head = f"POST /v1/groups/g/{path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    async with open_api(service, limits=limits) as api:
        for size, status in ((limit, 400), (limit + 1, 413)):
            body = b" " * size
            if chunked:
                sent = f"{head}Transfer-Encoding: chunked\r\n\r\n{size:x}\r\n".encode() + body + b"\r\n0\r\n\r\n"
            else:
                sent = f"{head}Content-Length: {size}\r\n\r\n".encode() + body
            problem = check_problem(parse_answer(await api.send(sent)))
            assert problem["status"] == status
            if status == 413:
                assert (problem["type"], str(limit) in problem["detail"]) == ("/errors/body-too-large", True)


async def test_a_length_past_the_limit_is_refused_before_the_body_comes(api: ApiClient) -> None:
    head = b"POST /v1/groups/g/join HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    received = await api.send(head + b"Expect: 100-continue\r\nContent-Length: 99999999\r\n\r\n")
    assert check_problem(parse_answer(received))["status"] == 413


async def test_a_body_that_does_not_arrive_is_given_up(service: FakeService) -> None:
    head = b"POST /v1/groups/g/heartbeat HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    async with open_api(service, limits=BodyLimits(body_timeout_ms=20)) as api:
        answer = parse_answer(await api.send(head + b"Content-Length: 50\r\n\r\n{"))
    assert check_problem(answer)["status"] == 400
    assert answer.headers["Connection"] == "close"


async def test_a_chunk_that_is_none_is_refused_where_it_comes_after_the_head(api: ApiClient) -> None:
    head = b"POST /v1/groups/g/heartbeat HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    received = await api.send(head + b"Transfer-Encoding: chunked\r\n\r\n", b"zz\r\nfoo\r\n")
    problem = check_problem(parse_answer(received))
    assert (problem["status"], problem["detail"]) == (400, "The body's framing is broken.")


async def test_a_client_that_asks_before_it_sends_is_told_to_go_on(api: ApiClient, service: FakeService) -> None:
    service.answers[m.HeartbeatRequest] = m.HeartbeatAnswer()
    body = json.dumps(HEARTBEAT).encode()
    head = b"POST /v1/groups/g/heartbeat HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    received = await api.send(head + b"Expect: 100-continue\r\nContent-Length: %d\r\n\r\n" % len(body), body)
    interim, _, final = received.partition(b"\r\n\r\n")
    assert interim == b"HTTP/1.1 100 Continue"
    assert parse_answer(final).status == 200


NO_REQUESTS = {
    "tls": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
    "no method": b"\r\n\r\nhello\r\n\r\n",
    "unknown method": b"BREW / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "unknown version": b"GET / HTTP/9.9\r\nHost: localhost\r\n\r\n",
    "no host": b"GET / HTTP/1.1\r\n\r\n",
    "two hosts": b"GET / HTTP/1.1\r\nHost: localhost\r\nHost: localhost\r\n\r\n",
    "long line": b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "long header": b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"a" * 20_000 + b"\r\n\r\n",
    "many headers": b"GET / HTTP/1.1\r\nHost: localhost\r\n" + b"X: a\r\n" * 500 + b"\r\n",
    "control character": b"GET /v1/groups/\x00 HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "raw bytes in the path": b"GET /v1/groups/\xff HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "two lengths": b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
    "length and chunks": b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\n"
    b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "bad length": b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: x\r\n\r\n",
    "bad chunk": b"POST /v1/groups/g/join HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    b"Transfer-Encoding: chunked\r\n\r\nzz\r\nfoo\r\n",
    "fragment": b"GET /v1/groups#a HTTP/1.1\r\nHost: localhost\r\n\r\n",
}


@pytest.mark.parametrize("sent", NO_REQUESTS.values(), ids=NO_REQUESTS.keys())
async def test_bytes_that_are_no_request_get_a_coded_answer(api: ApiClient, sent: bytes) -> None:
    problem = check_problem(parse_answer(await api.send(sent)))
    assert (problem["status"], problem["error_name"]) == (400, "INVALID_REQUEST")
    assert "aaaa" not in problem["detail"]
