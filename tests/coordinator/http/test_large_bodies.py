"""Large bodies: read in chunks, within a common room, and for a leader alone who is waited for."""

import asyncio
import json
import tracemalloc
from collections.abc import Callable
from typing import Any

import aiohttp
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from rallypoint.coordinator.core.effects import Failure
from rallypoint.coordinator.http.channel.codec import parse_call, read_id
from rallypoint.coordinator.http.errors import Refused
from rallypoint.coordinator.http.requests.inputs import ERRORS_READ_MAX, BodyLimits, parse_body
from rallypoint.coordinator.http.requests.large_bodies import LARGE_BYTES, OF_GROUP_MAX, LargeBodies
from rallypoint.coordinator.http.requests.long_list import CHUNK_BYTES, LongList
from rallypoint.coordinator.http.requests.syncs import parse_sync
from rallypoint.protocol import channel_messages as s
from rallypoint.protocol import messages as m
from rallypoint.protocol.errors import ErrorCode
from rallypoint.protocol.request_limits import RequestChecks, RequestLimits
from tests.coordinator.http.problem_checks import check_problem
from tests.fakes.api_server import open_api, parse_answer
from tests.fakes.fake_service import FakeService
from tests.sizes import by_size

CHECKS = RequestChecks(RequestLimits())
SIZES = BodyLimits()
HEAD = b"POST /v1/groups/g/%b HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"


def sync_text(entries: str, **more: Any) -> bytes:
    rest = json.dumps({"generation_id": 1, "member_id": "a", **more})
    return f'{rest[:-1]},"assignments":[{entries}]}}'.encode()


def entries(count: int, size: int = 0) -> str:
    given = {"partitions": {"t": [1, 2]}, "user_data": "x" * size}
    return ",".join(json.dumps({"member_id": f"m{n}", "assignment": given}) for n in range(count))


def refusal_of(body: bytes, *, on_channel: bool) -> m.Problem:
    call = b'{"id":7,"op":"sync","group_id":"g","body":%b}' % body
    if on_channel:
        found = parse_call(call, CHECKS, SIZES)
        assert isinstance(found, Refused)
        return found.problem
    with pytest.raises(Refused) as refused:
        parse_sync(body, CHECKS, SIZES)
    return refused.value.problem


async def until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not is_so():  # noqa: ASYNC110 - what is waited for is in another connection's task
            await asyncio.sleep(0.01)


# --- chunks ----------------------------------------------------------------------------------------------------------

ENTRIES = st.lists(
    st.recursive(
        st.none() | st.integers() | st.text('a[]{}\\",:\u00fc', max_size=9),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text('ak"[\\', max_size=4), inner, max_size=3),
    ),
    max_size=12,
)


@given(ENTRIES, st.booleans(), st.sampled_from((0, 1, 20, CHUNK_BYTES)), st.integers(1, 2))
def test_the_chunks_and_the_rest_are_the_whole(values: list[Any], spaced: bool, chunk_bytes: int, depth: int) -> None:
    inner: Any = {"first": {"list": [[1]]}, "last": "\\", "list": values, "next": [{"list": 1}]}
    whole = inner if depth == 1 else {"id": 1, "body": inner}
    text = json.dumps(whole, indent=1 if spaced else None).encode()
    listed = LongList(text, "list", depth, 10_000, chunk_bytes)
    found: list[Any] = []
    for count, chunk in listed.chunks():
        objects = sum(isinstance(value, dict | list) for value in found)
        assert count == objects
        found += json.loads(chunk)
    assert found == values
    inner["list"] = []
    assert json.loads(listed.rest) == whole


BROKEN = (
    "", ",", "{},", ",{}", "{}{}", "{} 1", "{},,{}", "{", "}", "[}", "{]", '{"a":"}', '{"a":1}]', "{}]}", "1 2", '"',
    "\\",
)  # fmt: skip


@pytest.mark.parametrize("broken", BROKEN)
@pytest.mark.parametrize("good", [0, 1, 3_000])
def test_what_is_no_json_as_a_whole_is_none_in_chunks(broken: str, good: int) -> None:
    for text in (f"{entries(good)}{broken}", f"{entries(good)},{broken}", f"{broken}{entries(good)}"):
        body = sync_text(text)
        try:
            whole: m.SyncRequest | None = m.SyncRequest.model_validate_json(body)
        except ValidationError:
            whole = None
        try:
            pieced: m.SyncRequest | None = parse_sync(body, CHECKS, SIZES)
        except Refused:
            pieced = None
        assert pieced == whole


def test_a_sync_in_chunks_is_what_it_is_as_a_whole() -> None:
    body = sync_text(entries(3_000), protocol_name="range", group_instance_id="assignments")
    assert len(body) > 2 * CHUNK_BYTES
    assert parse_sync(body, CHECKS, SIZES) == m.SyncRequest.model_validate_json(body)
    call = b'{"id":7,"op":"sync","group_id":"g","body":%b}' % body
    assert parse_call(call, CHECKS, SIZES) == s.CHANNEL_CALLS.validate_json(call)


@pytest.mark.parametrize(
    ("text", "field"),
    [
        (entries(2_999) + ',{"member_id":1}', "assignments.2999.member_id"),
        (entries(2_000) + ',{"member_id":"a","more":1},' + entries(10), "assignments.2000.more"),
        (entries(2_000) + "," + json.dumps({"member_id": "x" * 400}), "assignments.2000.member_id"),
    ],
)
def test_a_wrong_entry_is_named_by_its_place_in_the_whole(text: str, field: str) -> None:
    with pytest.raises(Refused) as refused:
        parse_sync(sync_text(text), CHECKS, SIZES)
    assert refused.value.problem.field == field


# --- what a body costs -----------------------------------------------------------------------------------------------


def deep(levels: int, size: int) -> str:
    one = "[" * levels + "]" * levels
    return ",".join([one] * (size // (len(one) + 1)))


COSTLY = {
    "keys that nobody knows": '"generation_id":1,' + ",".join(f'"k{n}":0' for n in range(300_000)),
    "deep lists": f'"assignments":[{{"member_id":"a","assignment":[{deep(28, 3_000_000)}]}}]',
    "empty lists": f'"assignments":[{{"member_id":"a","assignment":[{deep(1, 3_000_000)}]}}]',
    "lists in the place of entries": f'"assignments":[{deep(28, 3_000_000)}]',
    "keys in an entry": '"assignments":[{"member_id":"a",' + ",".join(f'"k{n}":0' for n in range(300_000)) + "}]",
    "a key that is written otherwise": f'"assignment\\u0073":[{entries(30_000)}]',
    "brackets without an end": '"assignments":[' + "[" * 3_000_000,
}


@pytest.mark.parametrize("case", [*COSTLY][: by_size(2, len(COSTLY))])
@pytest.mark.parametrize("on_channel", [False, True])
def test_a_large_sync_of_little_sense_costs_no_more_than_its_bytes(case: str, on_channel: bool) -> None:
    body = b"{" + COSTLY[case].encode() + b"}"
    tracemalloc.start()
    try:
        refusal = refusal_of(body, on_channel=on_channel)
        peak_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    # What Rust makes of a text is not seen here; that there was nothing to make is.
    assert peak_bytes < 3 * len(body) + 4 * CHUNK_BYTES * 20
    limits = {"json_parts_max", "json_depth_max", "max_body_bytes", "assignment_max_bytes"}
    assert refusal.limit_name in limits or refusal.field == "assignments.0"


@pytest.mark.parametrize("on_channel", [False, True])
def test_bytes_that_do_not_decode_are_named_among_many_assignments(on_channel: bool) -> None:
    good = '{"member_id":"m","assignment":{"base64":"AAE="}}'
    bad = '{"member_id":"m","assignment":{"base64":"AAE"}}'
    refusal = refusal_of(sync_text(f"{entries(3_000)},{good},{bad}"), on_channel=on_channel)
    assert (refusal.error_name, refusal.field) == ("INVALID_REQUEST", "assignments.3001.assignment")
    assert "base64 does not decode" in refusal.detail


@pytest.mark.parametrize("on_channel", [False, True])
def test_a_body_of_many_wrong_fields_is_refused_by_their_number(on_channel: bool) -> None:
    body = ("{" + ",".join(f'"k{n}":0' for n in range(ERRORS_READ_MAX + 1)) + "}").encode()
    refusal = refusal_of(body, on_channel=on_channel)
    assert (refusal.field, "wrong fields" in refusal.detail) == (None, True)


@pytest.mark.parametrize(
    "model_body",
    [
        (m.CommitRequest, {"generation_id": 1, "offsets": {f"topic-{n}": {"0": {
            "offset": n, "leader_epoch": 1, "metadata": "x"}} for n in range(10_000)}}),
        (m.HeartbeatsRequest, {"heartbeats": [
            {"group_id": "g", "generation_id": 1, "member_id": "m", "group_instance_id": "i"}] * 1_000}),
        (m.LeaveRequest, {"members": [{"member_id": "m", "group_instance_id": "i", "reason": "r"}] * 2_000}),
        (m.PutTopicRequest, {"partitions": 10_000, "end_offsets": {str(n): n for n in range(10_000)},
                             "replica_racks": [["a"]] * 10_000}),
    ],
)  # fmt: skip
def test_the_largest_requests_have_few_enough_parts(model_body: tuple[type[m.RequestModel], Any]) -> None:
    model, body = model_body
    text = json.dumps(body).encode()
    assert len(text) > LARGE_BYTES
    parse_body(model, text, CHECKS)


def test_the_id_of_a_large_message_that_was_refused_is_found_where_it_comes_first() -> None:
    filling = b'"x":"' + b"y" * LARGE_BYTES + b'"'
    assert read_id(b'{"id":7,' + filling) == 7
    assert read_id(b' { "id" : "seven" , ' + filling) == "seven"
    assert read_id(b"{" + filling + b',"id":7}') is None


# --- the room for all ------------------------------------------------------------------------------------------------


def test_the_room_counts_what_is_held_and_no_small_body() -> None:
    bodies = LargeBodies(300_000)
    assert bodies.hold("a", LARGE_BYTES)
    assert bodies.total_bytes == 0
    assert bodies.hold("a", 100_000)
    assert bodies.hold("a", 200_000)
    assert not bodies.hold("b", 100_001)
    assert not bodies.hold("b", 70_000, half=True)
    assert bodies.hold("b", 100_000)
    bodies.release("a")
    assert bodies.total_bytes == 100_000
    bodies.release("a")
    bodies.release("b")
    assert bodies.total_bytes == 0


def unfinished(size: int) -> bytes:
    return HEAD % b"join" + b"Content-Length: 300000\r\n\r\n" + b" " * size


async def test_bodies_that_do_not_end_take_half_of_the_room_and_leave_the_rest_to_a_large_sync(
    service: FakeService,
) -> None:
    limits = BodyLimits(
        bodies_max_bytes=1_000_000, max_body_bytes=300_000, max_sync_bytes=1_000_000, body_timeout_ms=60_000
    )
    service.answers[m.HeartbeatRequest] = m.HeartbeatAnswer()
    service.answers[m.SyncRequest] = m.WaitingAnswer()
    large = sync_text(entries(400, 900))
    assert limits.max_body_bytes < len(large) < limits.bodies_max_bytes // 2
    async with open_api(service, limits=limits) as api:
        writers = []
        for _ in range(2):
            _, writer = await asyncio.open_connection("127.0.0.1", api.port)
            writer.write(unfinished(240_000))
            await writer.drain()
            writers.append(writer)
        await until(lambda: api.http_api.bodies.total_bytes >= 450_000)
        answer = parse_answer(await api.send(unfinished(240_000)))
        problem = check_problem(answer)
        assert (problem["status"], problem["limit_name"]) == (429, "bodies_max_bytes")
        assert answer.headers["Connection"] == "close"
        small = await api.request("POST", "/v1/groups/g/heartbeat", {"generation_id": 1, "member_id": "a"})
        assert small.status == 200
        head = HEAD % b"sync" + b"Content-Length: %d\r\n\r\n" % len(large)
        assert parse_answer(await api.send(head + large[:200_000], large[200_000:])).status == 202
        for writer in writers:
            writer.close()
        await until(lambda: not api.http_api.bodies.total_bytes)


@pytest.mark.parametrize("in_fragments", [False, True])
async def test_messages_that_do_not_end_take_no_more_than_their_room(service: FakeService, in_fragments: bool) -> None:
    limits = BodyLimits(bodies_max_bytes=1_000_000, max_sync_bytes=1_000_000)
    first = b"\x01" if in_fragments else b"\x81"
    head = first + b"\xff" + (900_000).to_bytes(8) + b"\0\0\0\0"
    async with open_api(service, limits=limits) as api, aiohttp.ClientSession() as client:
        url = f"http://127.0.0.1:{api.port}/v1/channel"
        sockets = [await client.ws_connect(url) for _ in range(3)]
        for socket in sockets[:2]:
            transport = socket._response.connection.transport  # type: ignore[union-attr]
            assert transport is not None
            transport.write(head + b"x" * 240_000)
        await until(lambda: api.http_api.bodies.total_bytes >= 450_000)
        transport = sockets[2]._response.connection.transport  # type: ignore[union-attr]
        assert transport is not None
        transport.write(head + b"x" * 240_000)
        closed = await sockets[2].receive(timeout=10)
        assert (closed.type, closed.data) == (aiohttp.WSMsgType.CLOSE, 1013)
        for socket in sockets:
            socket._response.close()
        await until(lambda: not api.http_api.bodies.total_bytes)


async def test_what_is_larger_than_other_bodies_is_read_for_a_group_that_waits_for_it(service: FakeService) -> None:
    limits = BodyLimits(max_body_bytes=2_000, max_sync_bytes=200_000)
    service.answers[m.SyncRequest] = m.WaitingAnswer()
    large = sync_text(entries(100))
    for chunked in (False, True):
        if chunked:
            text = b"Transfer-Encoding: chunked\r\n\r\n%x\r\n%b\r\n0\r\n\r\n" % (len(large), large)
        else:
            text = b"Content-Length: %d\r\n\r\n%b" % (len(large), large)
        async with open_api(service, limits=limits) as api:
            service.no_assignments = Failure(ErrorCode.REBALANCE_IN_PROGRESS, "Join again.", generation_id=3)
            problem = check_problem(parse_answer(await api.send(HEAD % b"sync" + text)))
            assert (problem["status"], problem["error_code"]) == (409, ErrorCode.REBALANCE_IN_PROGRESS)
            service.no_assignments = None
            assert parse_answer(await api.send(HEAD % b"sync" + text)).status == 202
            for _ in range(OF_GROUP_MAX):
                assert api.http_api.bodies.begin_sync("g")
            problem = check_problem(parse_answer(await api.send(HEAD % b"sync" + text)))
            assert problem["status"] == 429
            api.http_api.bodies.end_sync("g")
            assert parse_answer(await api.send(HEAD % b"sync" + text)).status == 202
