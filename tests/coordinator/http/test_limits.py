"""Every limit through the real API: the last number that is taken, and one beyond it, which names the limit.

The table of `docs/http.md` says which limit refuses what with which code. It is held against what happens here.
"""

import asyncio
import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from rallypoint.coordinator.limits import FIXED
from rallypoint.coordinator.settings import Settings
from rallypoint.coordinator.storage.memory import MemoryStore
from rallypoint.protocol import operations as ops
from rallypoint.protocol.limits import SETTABLE
from rallypoint.protocol.operations import Operation, path_of
from rallypoint.protocol.request_limits import EXEMPT, TABLE
from tests.coordinator.http.problem_checks import check_documented, check_problem
from tests.fakes.api_server import Answer, ApiClient, parse_answer
from tests.fakes.faulty_store import FaultyStore
from tests.fakes.set_service import open_service

DOC = Path(__file__).parents[3] / "docs" / "http.md"
ROWS = re.findall(
    r"^\| (\[)?`(\w+)`(?:\]\(settings\.md#\2\))? \| ([\d,]+|a setting) \| [^|]+ \| ([^|]+) \|$", DOC.read_text(), re.M
)
"""Of the table: whether it links to a setting, the limit, its value, what comes of it."""
DOCUMENTED = {
    limit: (found[1], int(found[2])) for _, limit, _, refusal in ROWS if (found := re.match(r"`(\w+)` (\d+)", refusal))
}
"""By limit: the name of the error and its status."""

WITHOUT_A_CASE = {
    "unauthenticated_connections_max": "nobody is refused: tests/coordinator/http/test_connections.py",
    "storage_append_timeout_ms": "bounds a wait: tests/coordinator/runtime/test_hanging_append.py",
    "group_pending_timeout_ms": "bounds a wait",
    "new_member_join_timeout_ms": "bounds a wait",
    "offsets_retention_check_interval_ms": "bounds a wait",
    "rebalance_history_max": "the oldest goes",
    "rebalance_cooldown_max_ms": "refused as a wrong field: tests/conformance/test_holds.py",
    "rebalance_freeze_max_ms": "refused as a wrong field: tests/conformance/test_holds.py",
    "storage_batch_writes_max": "what is larger is cut: tests/coordinator/runtime/test_chunks.py",
    "storage_batch_bytes_max": "what is larger is cut: tests/coordinator/runtime/test_chunks.py",
    "events_heartbeat_interval_ms": "bounds a wait",
    "events_write_timeout_ms": "the stream is cut: tests/coordinator/http/test_events.py",
    "channel_authenticate_timeout_ms": "these end the channel: tests/coordinator/http/channel/test_channels.py",
    "channel_control_frames_max": "see above",
    "channel_unsent_max_bytes": "see above",
}

JOIN: dict[str, Any] = {
    "member_id": "",
    "protocol_type": "consumer",
    "protocols": [{"name": "range", "metadata": {"topics": ["t"]}}],
    "session_timeout_ms": 10_000,
    "rebalance_timeout_ms": 10_000,
}
SYNC: dict[str, Any] = {"generation_id": 1, "member_id": "a"}
HEARTBEAT: dict[str, Any] = {"generation_id": 1, "member_id": "a"}
COMMIT: dict[str, Any] = {"generation_id": -1, "offsets": {"t": {"0": {"offset": 1}}}}
HEAD = b"Host: localhost\r\n"
RESET: dict[str, Any] = {"to": "earliest"}


@dataclass(frozen=True, slots=True)
class Sent:
    """One request. `raw` are bytes of a connection of their own."""

    operation: Operation | None
    body: Any = None
    query: str = ""
    group_id: str = "g"
    topic: str = "t"
    raw: bytes = b""

    async def by(self, api: ApiClient, method: str | None = None) -> Answer:
        if self.operation is None:
            return parse_answer(await api.send(self.raw))
        ids = {"topic": self.topic, "group_id": self.group_id, "shard": "0"}
        path = path_of(self.operation, **(ids if "{" in self.operation.path else {}))
        return await api.request(method or self.operation.method, path + self.query, self.body)


@dataclass(frozen=True, slots=True)
class Case:
    """`sent(n)` holds n of what is limited; the last of several requests is the one that may be refused. `path` is the
    row of the table of request limits, where it is one of its.
    """

    limit_name: str
    value: int
    sent: Callable[[int], Sent | list[Sent]]
    wrong: str | None
    path: str | None = None
    others: dict[str, int] = field(default_factory=dict)
    extra: int = 0

    def __str__(self) -> str:
        return f"{self.limit_name}-{self.wrong}"


def text(n: int) -> str:
    return "x" * n


def kept_as(n: int) -> dict[str, str]:
    """A JSON value that is kept as so many bytes."""
    return {"a": text(n - len('{"a":""}'))}


def numbers(n: int) -> dict[str, Any]:
    return {str(number): {"offset": 1} for number in range(n)}


def raw_sync(n: int) -> bytes:
    """Too large for the client that the other requests go through."""
    body = json.dumps(SYNC | {"assignments": [{"member_id": "a"}] * n}).encode()
    head = f"POST /v1/groups/g/sync HTTP/1.1\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n"
    return head.encode() + HEAD + b"\r\n" + body


def nested(n: int) -> Any:
    return [] if n == 1 else [nested(n - 1)]


def of_parts(n: int) -> dict[str, Any]:
    """A join of so many objects, lists and keys."""
    bare = JOIN | {"protocols": [{"name": "a", "metadata": []}]}
    rest = sum(map(json.dumps(bare).count, "{[:"))
    return JOIN | {"protocols": [{"name": "a", "metadata": [[]] * (n - rest)}]}


def padded(body: dict[str, Any], n: int) -> bytes:
    """The same body, in so many bytes."""
    return json.dumps(body).encode().ljust(n)


def head_of(n: int) -> bytes:
    """A request of so many bytes, all of them its head."""
    begun = b"GET /healthz HTTP/1.1\r\n" + HEAD + b"Y: " + b"b" * 1_000 + b"\r\nX: "
    return begun + b"a" * (n - len(begun) - 4) + b"\r\n\r\n"


def names(n: int, parameter: str) -> str:
    return "?" + "&".join(f"{parameter}=n{number}" for number in range(n))


BEAT = {"group_id": "g", "generation_id": 1, "member_id": "a"}


def row(
    operation: Operation, path: str, limit_name: str, value: int, body: Callable[[int], Any], named: str, **more: Any
) -> Case:
    return Case(limit_name, value, lambda n: Sent(operation, body(n)), named, path, **more)


def ids_of(operation: Operation, base: dict[str, Any], *fields: str) -> list[Case]:
    """Plain fields of a body that hold an id; a member id may be longer."""
    return [
        row(
            operation, name, "id_length_max", 20,
            lambda n, name=name: base | {name: text(n)},  # type: ignore[misc]
            name, extra=64 if name == "member_id" else 0,
        )
        for name in fields
    ]  # fmt: skip


OF_REQUESTS = [
    *ids_of(ops.JOIN, JOIN, "member_id", "group_instance_id", "client_id", "protocol_type", "request_id"),
    *ids_of(ops.SYNC, SYNC, "member_id", "group_instance_id", "protocol_type", "protocol_name"),
    *ids_of(ops.HEARTBEAT, HEARTBEAT, "member_id", "group_instance_id"),
    *ids_of(ops.COMMIT, COMMIT, "member_id", "group_instance_id"),
    row(ops.JOIN, "protocols.*.name", "id_length_max", 20,
        lambda n: JOIN | {"protocols": [{"name": "a"}, {"name": text(n)}]}, "protocols.1.name"),
    row(ops.JOIN, "protocols", "join_protocols_max", 3,
        lambda n: JOIN | {"protocols": [{"name": "a"}] * n}, "protocols"),
    row(ops.JOIN, "protocols.*.metadata", "protocol_metadata_max_bytes", 100,
        lambda n: JOIN | {"protocols": [{"name": "a"}, {"name": "b", "metadata": kept_as(n)}]}, "protocols.1.metadata"),
    row(ops.JOIN, "protocols.**", "join_metadata_max_bytes", 100,
        lambda n: JOIN | {"protocols": [{"name": "a", "metadata": kept_as(50)},
                                        {"name": "b", "metadata": kept_as(n - 50)}]},
        "protocols", others={"protocol_metadata_max_bytes": 100}),
    row(ops.SYNC, "assignments", "sync_assignments_max", 3,
        lambda n: SYNC | {"assignments": [{"member_id": "a"}] * n}, "assignments"),
    row(ops.SYNC, "assignments.*.member_id", "id_length_max", 20,
        lambda n: SYNC | {"assignments": [{"member_id": text(n)}]}, "assignments.0.member_id", extra=64),
    row(ops.SYNC, "assignments.*.assignment", "assignment_max_bytes", 100,
        lambda n: SYNC | {"assignments": [{"member_id": "a", "assignment": kept_as(n)}]}, "assignments.0.assignment"),
    row(ops.HEARTBEATS, "heartbeats", "heartbeats_max", 3, lambda n: {"heartbeats": [BEAT] * n}, "heartbeats"),
    row(ops.HEARTBEATS, "heartbeats.*.group_id", "id_length_max", 20,
        lambda n: {"heartbeats": [BEAT | {"group_id": text(n)}]}, "heartbeats.0.group_id"),
    row(ops.HEARTBEATS, "heartbeats.*.member_id", "id_length_max", 20,
        lambda n: {"heartbeats": [BEAT | {"member_id": text(n)}]}, "heartbeats.0.member_id", extra=64),
    row(ops.HEARTBEATS, "heartbeats.*.group_instance_id", "id_length_max", 20,
        lambda n: {"heartbeats": [BEAT | {"group_instance_id": text(n)}]}, "heartbeats.0.group_instance_id"),
    row(ops.LEAVE, "members", "leave_members_max", 3, lambda n: {"members": [{"member_id": "a"}] * n}, "members"),
    row(ops.LEAVE, "members.*.member_id", "id_length_max", 20,
        lambda n: {"members": [{"member_id": text(n)}]}, "members.0.member_id", extra=64),
    row(ops.LEAVE, "members.*.group_instance_id", "id_length_max", 20,
        lambda n: {"members": [{"group_instance_id": text(n)}]}, "members.0.group_instance_id"),
    row(ops.COMMIT, "offsets", "request_topics_max", 3,
        lambda n: COMMIT | {"offsets": {f"t{k}": numbers(1) for k in range(n)}}, "offsets"),
    row(ops.COMMIT, "offsets.*.[key]", "topic_length_max", 20,
        lambda n: COMMIT | {"offsets": {text(n): numbers(1)}}, "offsets." + text(21)),
    row(ops.COMMIT, "offsets.**", "request_partitions_max", 5,
        lambda n: COMMIT | {"offsets": {"t": numbers(2), "u": numbers(n - 2)}}, "offsets"),
    row(ops.COMMIT, "offsets.*", "request_partitions_max", 5,
        lambda n: COMMIT | {"offsets": {"t": numbers(n)}}, "offsets"),
    row(ops.RESET_OFFSETS, "topics", "request_topics_max", 3,
        lambda n: RESET | {"topics": {f"t{k}": [0] for k in range(n)}}, "topics"),
    row(ops.RESET_OFFSETS, "topics.*.[key]", "topic_length_max", 20,
        lambda n: RESET | {"topics": {text(n): None}}, "topics." + text(21)),
    row(ops.RESET_OFFSETS, "topics.**", "request_partitions_max", 5,
        lambda n: RESET | {"topics": {"t": [0, 1], "u": list(range(n - 2)), "v": None}}, "topics"),
    row(ops.RESET_OFFSETS, "topics.*", "request_partitions_max", 5,
        lambda n: RESET | {"topics": {"t": list(range(n))}}, "topics"),
    row(ops.RESET_OFFSETS, "offsets", "request_topics_max", 3,
        lambda n: {"to": "offsets", "offsets": {f"t{k}": {"0": 1} for k in range(n)}}, "offsets"),
    row(ops.RESET_OFFSETS, "offsets.*.[key]", "topic_length_max", 20,
        lambda n: {"to": "offsets", "offsets": {text(n): {"0": 1}}}, "offsets." + text(21)),
    row(ops.RESET_OFFSETS, "offsets.**", "request_partitions_max", 5,
        lambda n: {"to": "offsets", "offsets": {"t": {"0": 1, "1": 1}, "u": {str(k): 1 for k in range(n - 2)}}},
        "offsets"),
    row(ops.RESET_OFFSETS, "offsets.*", "request_partitions_max", 5,
        lambda n: {"to": "offsets", "offsets": {"t": {str(k): 1 for k in range(n)}}}, "offsets"),
    row(ops.REMOVE_MEMBERS, "members", "leave_members_max", 3, lambda n: {"members": ["a"] * n}, "members"),
    row(ops.REMOVE_MEMBERS, "members.*", "id_length_max", 20,
        lambda n: {"members": ["a", text(n)]}, "members.1", extra=64),
    Case("request_partitions_max", 3,
         lambda n: Sent(ops.DELETE_OFFSETS, query="?" + "&".join(f"partition=t:{k}" for k in range(n))),
         "partition", "partitions"),
    Case("topic_length_max", 20, lambda n: Sent(ops.DELETE_OFFSETS, query=f"?partition={'t' * (n - 2)}:0"),
         "partition", "partitions.*", extra=11),
    row(ops.PUT_TOPIC, "end_offsets", "request_partitions_max", 5,
        lambda n: {"partitions": 10, "end_offsets": {str(k): 1 for k in range(n)}}, "end_offsets"),
    row(ops.PUT_TOPIC, "replica_racks", "request_partitions_max", 5,
        lambda n: {"partitions": n, "replica_racks": [["x"]] * n}, "replica_racks"),
    row(ops.PUT_TOPIC, "replica_racks.*", "partition_racks_max", 3,
        lambda n: {"partitions": 2, "replica_racks": [["x"], ["x"] * n]}, "replica_racks.1"),
    row(ops.PUT_TOPIC, "replica_racks.*.*", "id_length_max", 20,
        lambda n: {"partitions": 2, "replica_racks": [["x"], ["x", text(n)]]}, "replica_racks.1.1"),
    *(
        Case("id_length_max", 20, lambda n, name=name: Sent(ops.LIST_GROUPS, query=f"?{name}={text(n)}"),  # type: ignore[misc]
             name, name)
        for name in ("state", "prefix", "search")
    ),
    Case("topic_length_max", 20, lambda n: Sent(ops.LIST_GROUPS, query=f"?topic={text(n)}"), "topic", "topic"),
    *(
        Case("topic_length_max", 20, lambda n, asked=asked: Sent(asked, query=f"?topic={text(n)}"),  # type: ignore[misc]
             "topic", "topic")
        for asked in (ops.LIST_PARTITIONS, ops.OWNERSHIP_HISTORY)
    ),
    *(
        Case("list_limit_max", 5, lambda n, asked=asked: Sent(asked, query=f"?limit={n}"), "limit", "limit")  # type: ignore[misc]
        for asked in (ops.LIST_PARTITIONS, ops.OWNERSHIP_HISTORY, ops.DESCRIBE_TOPIC)
    ),
    *(
        Case("cursor_length_max", 20, lambda n, asked=asked: Sent(asked, query=f"?cursor={'a' * n}"),  # type: ignore[misc]
             "cursor", "cursor")
        for asked in (ops.LIST_GROUPS, ops.LIST_PARTITIONS, ops.OWNERSHIP_HISTORY, ops.DESCRIBE_TOPIC)
    ),
    Case("list_limit_max", 5, lambda n: Sent(ops.LIST_GROUPS, query=f"?limit={n}"), "limit", "limit"),
    Case("lookup_groups_max", 3, lambda n: Sent(ops.COORDINATOR, query=names(n, "group_id")), "group_id", "group_ids"),
    Case("id_length_max", 20, lambda n: Sent(ops.COORDINATOR, query=f"?group_id=a&group_id={text(n)}"),
         "group_id", "group_ids.*"),
    Case("list_limit_max", 5, lambda n: Sent(ops.LIST_TOPICS, query=f"?limit={n}"), "limit", "limit"),
    *(
        Case("id_length_max", 20, lambda n, name=name: Sent(ops.LIST_TOPICS, query=f"?{name}={text(n)}"),  # type: ignore[misc]
             name, name)
        for name in ("prefix", "cursor")
    ),
    Case("topic_length_max", 20, lambda n: Sent(ops.OWNER, query=f"?topic={text(n)}&partition=0"), "topic", "topic"),
    *(
        Case("key_length_max", 20, lambda n, name=name: Sent(ops.OWNER, query=f"?topic=t&{name}={'a' * n}"),  # type: ignore[misc]
             name, name)
        for name in ("key", "key_base64")
    ),
    row(ops.PREVIEW, "leave", "preview_entries_max", 3, lambda n: {"leave": ["a"] * n}, "leave"),
    row(ops.PREVIEW, "join", "preview_entries_max", 3, lambda n: {"join": [{}] * n}, "join"),
    row(ops.PREVIEW, "partitions", "preview_entries_max", 3,
        lambda n: {"partitions": {f"t{k}": 1 for k in range(n)}}, "partitions"),
    row(ops.PREVIEW, "leave.*", "id_length_max", 20, lambda n: {"leave": [text(n)]}, "leave.0", extra=64),
    row(ops.PREVIEW, "join.*.topics", "request_topics_max", 3,
        lambda n: {"join": [{"topics": [f"t{k}" for k in range(n)]}]}, "join.0.topics"),
    row(ops.PREVIEW, "join.*.topics.*", "topic_length_max", 20,
        lambda n: {"join": [{"topics": [text(n)]}]}, "join.0.topics.0"),
    row(ops.PREVIEW, "join.*.group_instance_id", "id_length_max", 20,
        lambda n: {"join": [{"group_instance_id": text(n)}]}, "join.0.group_instance_id"),
    row(ops.PREVIEW, "join.*.rack_id", "id_length_max", 20,
        lambda n: {"join": [{"rack_id": text(n)}]}, "join.0.rack_id"),
    row(ops.PREVIEW, "assignor", "id_length_max", 20, lambda n: {"assignor": text(n)}, "assignor"),
    row(ops.PREVIEW, "partitions.*.[key]", "topic_length_max", 20,
        lambda n: {"partitions": {text(n): 1}}, "partitions." + text(21)),
    Case("lookup_groups_max", 3, lambda n: Sent(ops.EVENTS, query=names(n, "group_id")), "group_id", "group_ids"),
    Case("id_length_max", 20, lambda n: Sent(ops.EVENTS, query=f"?group_id={text(n)}"), "group_id", "group_ids.*"),
    Case("id_length_max", 20, lambda n: Sent(ops.EVENTS, query=f"?prefix={text(n)}"), "prefix", "prefix"),
    Case("request_topics_max", 3, lambda n: Sent(ops.FETCH, query=names(n, "topic")), "topic", "topics"),
    Case("topic_length_max", 20, lambda n: Sent(ops.FETCH, query=f"?topic={text(n)}"), "topic", "topics.*"),
    Case("request_topics_max", 3, lambda n: Sent(ops.DELETE_OFFSETS, query=names(n, "topic")), "topic", "topics"),
    Case("topic_length_max", 20, lambda n: Sent(ops.DELETE_OFFSETS, query=f"?topic={text(n)}"), "topic", "topics.*"),
    row(ops.MOVE_SHARD, "node_id", "id_length_max", 20, lambda n: {"node_id": text(n)}, "node_id"),
]  # fmt: skip
"""Rows of the table of request limits."""

OF_HEADS = [
    Case("id_length_max", 20, lambda n: Sent(ops.JOIN, JOIN, group_id=text(n)), "group_id"),
    Case("topic_length_max", 20, lambda n: Sent(ops.PUT_TOPIC, {"partitions": 1}, topic=text(n)), "topic"),
    Case("max_url_bytes", 2_000,
         lambda n: Sent(None, raw=b"GET /" + b"a" * (n - 1) + b" HTTP/1.1\r\n" + HEAD + b"\r\n"), None),
    Case("max_header_bytes", 2_000,
         lambda n: Sent(None, raw=b"GET /healthz HTTP/1.1\r\n" + HEAD + b"X: " + b"a" * n + b"\r\n\r\n"), None),
    Case("max_header_bytes", 2_000,
         lambda n: Sent(None, raw=b"GET /healthz HTTP/1.1\r\nX: " + b"a" * (n - 1) + b"\r\n" + HEAD + b"\r\n"), None),
    Case("max_head_bytes", 5_000, lambda n: Sent(None, raw=head_of(n)), None),
    Case("headers_max", 20,
         lambda n: Sent(None, raw=b"GET /healthz HTTP/1.1\r\n" + HEAD + b"X: a\r\n" * (n - 1) + b"\r\n"), None),
    Case("query_parameters_max", 3, lambda n: Sent(ops.FETCH, query=names(n, "topic")), None),
    Case("max_body_bytes", 2_000, lambda n: Sent(ops.COMMIT, padded(COMMIT, n)), None),
    Case("max_sync_bytes", 3_000, lambda n: Sent(ops.SYNC, padded(SYNC, n)), None, others={"max_body_bytes": 2_000}),
    Case("json_depth_max", 8,
         lambda n: Sent(ops.JOIN, JOIN | {"protocols": [{"name": "a", "metadata": nested(n - 3)}]}), None),
    Case("json_parts_max", 1_000, lambda n: Sent(ops.JOIN, of_parts(n)), None),
]  # fmt: skip
"""What is refused before, or without, a look into a request's fields."""

OF_STATE = [
    Case("group_pending_max", 3, lambda n: [Sent(ops.JOIN, JOIN)] * n, "member_id"),
    Case("group_max_size", 2,
         lambda n: [Sent(ops.JOIN, JOIN | {"group_instance_id": f"slot{k}"}) for k in range(n)], "member_id",
         others={"group_initial_rebalance_delay_ms": 100_000}),
    Case("group_max_session_timeout_ms", 20_000, lambda n: Sent(ops.JOIN, JOIN | {"session_timeout_ms": n}),
         "session_timeout_ms"),
    Case("group_min_session_timeout_ms", -20_000, lambda n: Sent(ops.JOIN, JOIN | {"session_timeout_ms": -n}),
         "session_timeout_ms"),
    Case("subscription_topics_max", 3,
         lambda n: Sent(ops.JOIN, JOIN | {"protocols": [{"name": "a", "metadata": {"topics": list("abcd"[:n])}}]}),
         "protocols.0.metadata.topics"),
    Case("group_topics_max", 4,
         lambda n: [Sent(ops.JOIN, JOIN | {"group_instance_id": "a", "max_wait_ms": 1,
                                           "protocols": [{"name": "a", "metadata": {"topics": ["a", "b"]}}]}),
                    Sent(ops.JOIN,
                         JOIN | {"protocols": [{"name": "a", "metadata": {"topics": list("cdef"[:n - 2])}}]})],
         "protocols.0.metadata.topics", others={"subscription_topics_max": 3}),
    Case("request_partitions_max", 5,
         lambda n: [Sent(ops.PUT_TOPIC, {"partitions": n}), Sent(ops.COMMIT, COMMIT),
                    Sent(ops.RESET_OFFSETS, RESET | {"topics": {"t": None}})], "topics"),
    Case("groups_max", 2, lambda n: [Sent(ops.COMMIT, COMMIT, group_id=f"g{k}") for k in range(n)], "group_id"),
    Case("topics_max", 2, lambda n: [Sent(ops.PUT_TOPIC, {"partitions": 1}, topic=f"t{k}") for k in range(n)], "topic"),
    Case("topic_partitions_max", 5, lambda n: [Sent(ops.PUT_TOPIC, {"partitions": n})], "partitions"),
    Case("topics_partitions_max", 10,
         lambda n: [Sent(ops.PUT_TOPIC, {"partitions": 4}), Sent(ops.PUT_TOPIC, {"partitions": n - 4}, topic="u")],
         "partitions", others={"topics_max": 5}),
    Case("topics_racks_max_bytes", 40,
         lambda n: [Sent(ops.PUT_TOPIC, {"partitions": 1, "replica_racks": [[text(14)]]}),
                    Sent(ops.PUT_TOPIC, {"partitions": 1, "replica_racks": [[text(n - 26)]]}, topic="u")],
         "replica_racks"),
]  # fmt: skip
"""What depends on what is there."""


def limits_given(case: Case) -> dict[str, Any]:
    return {case.limit_name: abs(case.value), **case.others}


def check_over(case: Case, answer: Answer, operation: Operation | None) -> None:
    problem = check_problem(answer)
    assert (problem["limit_name"], problem["limit"]) == (case.limit_name, abs(case.value) + case.extra)
    assert problem.get("field") == case.wrong
    assert case.limit_name in problem["detail"]
    assert str(abs(case.value) + case.extra) in problem["detail"]
    name, status = DOCUMENTED[case.limit_name]
    if operation is ops.COMMIT and case.limit_name in {"request_topics_max", "request_partitions_max"}:
        name, status = "INVALID_COMMIT_OFFSET_SIZE", 413
    elif (
        case.wrong == "group_id"
        and case.limit_name == "id_length_max"
        and operation not in {ops.COORDINATOR, ops.EVENTS}
    ):
        name = "INVALID_GROUP_ID"
    assert (problem["error_name"], problem["status"]) == (name, status)
    if operation is not None:
        check_documented(operation, problem)


@pytest.mark.parametrize("case", [*OF_REQUESTS, *OF_HEADS, *OF_STATE], ids=str)
async def test_the_limit_is_the_last_number_that_is_taken(case: Case) -> None:
    for beyond in (0, 1):
        async with open_service(**limits_given(case)) as api:
            sent = case.sent(case.value + case.extra + beyond)
            *before, last = sent if isinstance(sent, list) else [sent]
            for one in before:
                assert "limit_name" not in (await one.by(api)).json
            if last.operation is ops.EVENTS and not beyond:
                # A stream does not end; of its head alone there is an end.
                assert (await last.by(api, "HEAD")).status == 200
                continue
            answer = await last.by(api)
            if beyond:
                check_over(case, answer, last.operation)
            else:
                problem = answer.json if answer.status >= 400 else {}
                assert "limit_name" not in problem, problem
                assert answer.status < 500, problem


@pytest.mark.parametrize("length", [2_002, 9_000, 100_000])
async def test_a_url_far_beyond_the_limit_is_told_the_same(length: int) -> None:
    async with open_service(max_url_bytes=2_000, max_header_bytes=2_000) as api:
        raw = b"GET /" + b"a" * length + b" HTTP/1.1\r\n" + HEAD + b"\r\n"
        problem = check_problem(parse_answer(await api.send(raw)))
    assert (problem["limit_name"], problem["limit"]) == ("max_url_bytes", 2_000)


@pytest.mark.parametrize(
    ("sent", "limit_name", "limit"),
    [
        (Sent(ops.JOIN, JOIN | {"client_id": text(256)}), "id_length_max", 255),
        (Sent(ops.JOIN, JOIN | {"member_id": text(320)}), "id_length_max", 319),
        (Sent(ops.COMMIT, COMMIT | {"offsets": {text(256): {}}}), "topic_length_max", 255),
        (Sent(ops.JOIN, JOIN | {"protocols": [{"name": "a"}] * 33}), "join_protocols_max", 32),
        (Sent(ops.LEAVE, {"members": [{"member_id": "a"}] * 10_001}), "leave_members_max", 2_000),
        (Sent(ops.PUT_TOPIC, {"partitions": 1, "replica_racks": [["x"] * 33]}), "partition_racks_max", 32),
        (Sent(ops.PUT_TOPIC, {"partitions": 1, "replica_racks": [[text(256)]]}), "id_length_max", 255),
        (Sent(None, raw=raw_sync(100_001)), "sync_assignments_max", 20_000),
        (Sent(ops.COORDINATOR, query=names(1_001, "group_id")), "lookup_groups_max", 1_000),
        (Sent(ops.LIST_GROUPS, query="?limit=1001"), "list_limit_max", 1_000),
        (Sent(ops.COMMIT, b"[" * 10_000), "json_depth_max", 32),
    ],
)
async def test_the_ceilings_of_the_contract_are_refused_in_the_same_words(
    sent: Sent, limit_name: str, limit: int
) -> None:
    # A body larger than the default would be asked for by a leader alone.
    async with open_service(max_body_bytes=4_194_304) as api:
        problem = check_problem(await sent.by(api))
    assert (problem["limit_name"], problem["limit"]) == (limit_name, limit)
    assert problem["detail"].endswith(f"; {limit_name} is fixed.")


async def test_a_lower_ceiling_is_the_one_that_is_told() -> None:
    async with open_service(id_length_max=20) as api:
        problem = check_problem(await Sent(ops.JOIN, JOIN | {"client_id": text(300)}).by(api))
    assert (problem["limit_name"], problem["limit"]) == ("id_length_max", 20)


async def test_a_page_that_names_no_limit_is_as_long_as_is_allowed() -> None:
    async with open_service(list_limit_max=2) as api:
        for number in range(3):
            await Sent(ops.COMMIT, COMMIT, group_id=f"g{number}").by(api)
        answer = await Sent(ops.LIST_GROUPS).by(api)
    assert (len(answer.json["groups"]), answer.json["next_cursor"]) == (2, "g1")


async def test_bytes_are_counted_and_not_characters() -> None:
    body = JOIN | {"protocols": [{"name": "a", "metadata": "ü" * 49}]}
    over = JOIN | {"protocols": [{"name": "a", "metadata": "ü" * 50}]}
    async with open_service(protocol_metadata_max_bytes=100) as api:
        assert (await Sent(ops.JOIN, body).by(api)).json["error_name"] == "MEMBER_ID_REQUIRED"
        assert check_problem(await Sent(ops.JOIN, over).by(api))["limit_name"] == "protocol_metadata_max_bytes"


async def test_a_refused_commit_changes_nothing() -> None:
    async with open_service(request_partitions_max=2) as api:
        check_problem(await Sent(ops.COMMIT, COMMIT | {"offsets": {"t": numbers(3)}}).by(api))
        assert (await Sent(ops.FETCH).by(api)).json == {"offsets": {}}
        assert (await Sent(ops.LIST_GROUPS).by(api)).json["groups"] == []


# --- limits of which a part alone is refused, or that need something to be under way ---------------------------------


@pytest.mark.parametrize(
    ("setting", "at", "over"),
    [
        (
            "offset_metadata_max_bytes",
            {"0": {"offset": 1, "metadata": "xxx"}},
            {"1": {"offset": 1, "metadata": "xxxx"}},
        ),
        ("group_offsets_max", numbers(3), {"7": {"offset": 1}}),
    ],
)
async def test_a_partition_that_is_over_a_limit_is_refused_alone(
    setting: str, at: dict[str, Any], over: dict[str, Any]
) -> None:
    given: dict[str, Any] = {setting: 3}
    async with open_service(**given) as api:
        answer = await Sent(ops.COMMIT, COMMIT | {"offsets": {"t": {**at, **over}}}).by(api)
        fetched = await Sent(ops.FETCH).by(api)
    assert answer.status == 200
    name, _ = DOCUMENTED[setting]
    for partition, result in answer.json["offsets"]["t"].items():
        if partition in over:
            assert (result["error_name"], result["setting"], result["limit"]) == (name, setting, 3)
        else:
            assert result == {"error_code": 0, "error_name": "NONE"}
    assert set(fetched.json["offsets"]["t"]) == set(at)


async def test_a_call_too_many_does_not_wait() -> None:
    given: dict[str, Any] = {
        "parked_calls_max": 1,
        "parked_call_max_wait_ms": 3_000,
        "group_initial_rebalance_delay_ms": 3_000,
    }
    async with open_service(**given) as api:
        held = asyncio.create_task(Sent(ops.JOIN, JOIN | {"group_instance_id": "a"}).by(api))
        await asyncio.sleep(0.1)
        problem = check_problem(await Sent(ops.JOIN, JOIN | {"group_instance_id": "b"}).by(api))
        assert not held.done()
        held.cancel()
    assert (problem["limit_name"], problem["limit"]) == ("parked_calls_max", 1)
    assert (problem["error_name"], problem["status"]) == DOCUMENTED["parked_calls_max"]
    assert problem["member_id"].startswith("b-")


async def test_calls_that_wait_for_a_write_are_counted() -> None:
    store = FaultyStore(MemoryStore())
    async with open_service(store, group_mailbox_max=2) as api:
        store.append_gate.shut()
        tasks = []
        for _ in range(4):
            tasks.append(asyncio.create_task(Sent(ops.COMMIT, COMMIT).by(api)))
            await asyncio.sleep(0.05)
        refused = [task.result() for task in tasks if task.done()]
        store.append_gate.let_go()
        assert [(await task).status for task in tasks] == [200, 200, 200, 429], "one is written, two wait"
    problem = check_problem(refused[0])
    assert (problem["limit_name"], problem["limit"]) == ("group_mailbox_max", 2)
    assert (problem["error_name"], problem["status"]) == DOCUMENTED["group_mailbox_max"]


async def test_a_connection_too_many_is_told_so() -> None:
    async with open_service(connections_max=2) as api:
        held = [await asyncio.open_connection("127.0.0.1", api.port) for _ in range(2)]
        raw = b"GET /v1/groups HTTP/1.1\r\n" + HEAD + b"\r\n"
        for reader, writer in held:
            writer.write(raw)
            assert (await reader.readline()).startswith(b"HTTP/1.1 200")
        answer = parse_answer(await api.send(raw))
        problem = check_problem(answer)
        assert answer.headers["Connection"] == "close"
        held[0][1].close()
        await asyncio.sleep(0.05)
        assert parse_answer(await api.send(raw)).status == 200, "one has gone, so there is a place"
        held[1][1].close()
    assert (problem["limit_name"], problem["limit"]) == ("connections_max", 2)
    assert (problem["error_name"], problem["status"]) == DOCUMENTED["connections_max"]


async def test_a_head_that_is_too_slow_is_told_how_long_it_may_take() -> None:
    async with open_service(request_head_timeout_ms=50) as api:
        answer = parse_answer(await api.send(b"GET /v1/groups HTTP/1.1\r\n" + HEAD))
    problem = check_problem(answer)
    assert (problem["limit_name"], problem["limit"]) == ("request_head_timeout_ms", 50)
    assert (problem["error_name"], problem["status"]) == DOCUMENTED["request_head_timeout_ms"]


async def test_a_body_that_is_too_slow_is_told_how_long_it_may_take() -> None:
    head = b"POST /v1/groups/g/heartbeat HTTP/1.1\r\nContent-Type: application/json\r\nContent-Length: 50\r\n"
    async with open_service(body_timeout_ms=20) as api:
        problem = check_problem(parse_answer(await api.send(head + HEAD + b"\r\n{")))
    assert (problem["limit_name"], problem["limit"]) == ("body_timeout_ms", 20)
    assert (problem["error_name"], problem["status"]) == DOCUMENTED["body_timeout_ms"]


# --- the table is whole ----------------------------------------------------------------------------------------------

IN_PARTS_OR_UNDER_WAY = {
    "offset_metadata_max_bytes",
    "group_offsets_max",
    "parked_calls_max",
    "group_mailbox_max",
    "node_metadata_max_bytes",  # tests/coordinator/runtime/test_metadata_budget.py
    "connections_max",
    "body_timeout_ms",
    "bodies_max_bytes",  # tests/coordinator/http/test_large_bodies.py
    "request_head_timeout_ms",
    "preview_size_max",  # tests/coordinator/runtime/test_preview.py
    "event_streams_max",  # tests/coordinator/http/test_events.py
    "channels_max",  # these: tests/coordinator/http/channel/test_channels.py
    "channel_calls_max",
    "channel_groups_max",
}


def test_every_limit_has_its_row_and_its_case() -> None:
    limits = (FIXED.keys() | SETTABLE) - WITHOUT_A_CASE.keys()
    cases = {case.limit_name for case in (*OF_REQUESTS, *OF_HEADS, *OF_STATE)}
    assert cases | IN_PARTS_OR_UNDER_WAY == limits
    assert DOCUMENTED.keys() == limits


def test_every_row_of_the_table_has_its_case() -> None:
    cases = {(sent_by(case), case.path, case.limit_name) for case in OF_REQUESTS}
    assert cases == {(row.model, row.path, row.limit_name) for row in TABLE}


def sent_by(case: Case) -> Any:
    sent = case.sent(case.value)
    assert isinstance(sent, Sent)
    assert sent.operation is not None
    return sent.operation.request


def test_every_text_list_and_map_of_a_request_has_its_row() -> None:
    rows = {(row.model, row.path) for row in TABLE} | EXEMPT.keys()
    for operation in (*ops.OPERATIONS, ops.EVENTS):
        if operation.request is not None:
            schema = operation.request.model_json_schema()
            for path in bounded_paths(schema, schema.get("$defs", {})):
                assert (operation.request, path) in rows, f"{operation.request.__name__}.{path} has no limit"


def bounded_paths(schema: Any, defs: Any, at: str = "") -> list[str]:
    """Paths of what can be long: texts, lists, maps, opaque values."""
    if "$ref" in schema:
        schema = defs[schema["$ref"].rpartition("/")[2]]
    found: list[str] = []
    for choice in schema.get("anyOf", ()):
        found += bounded_paths(choice, defs, at)
    dot = f"{at}." if at else ""
    if "enum" in schema:
        return found
    if schema.get("type") == "string" or ("opaque" in schema.get("description", "") and "type" not in schema):
        found.append(at)
    elif schema.get("type") == "array":
        found += [at, *bounded_paths(schema["items"], defs, f"{dot}*")]
    elif schema.get("type") == "object":
        for name, inner in schema.get("properties", {}).items():
            found += bounded_paths(inner, defs, f"{dot}{name}")
        inner = schema.get("additionalProperties")
        if isinstance(inner, dict):
            keys = schema.get("propertyNames", {})
            found += [at, *([f"{dot}*.[key]"] if "maxLength" in keys else []), *bounded_paths(inner, defs, f"{dot}*")]
    return found


def test_every_row_has_the_value_or_leads_to_the_setting() -> None:
    assert ROWS
    for links, name, value, _ in ROWS:
        assert value == ("a setting" if name in Settings.model_fields else f"{FIXED[name]:,}"), name
        assert bool(links) == (name in Settings.model_fields), name
