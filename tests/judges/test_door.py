"""The door: to a client it is a broker, and the only one."""

import asyncio
import json
import re
import socket
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from struct import pack, unpack
from typing import Any
from urllib.request import urlopen
from uuid import uuid4

import pytest

from rallypoint.protocol.errors import ErrorCode
from tests.end_to_end.service_process import running_service
from tests.judges.codec import CodecError, decode, encode
from tests.judges.door import (
    FIND_COORDINATOR,
    JOIN,
    METADATA,
    NOT_OFFERED,
    REQUESTS_MAX,
    UNSUPPORTED_VERSION,
    Address,
    check_offered,
    unsupported_version,
    wants_no_answer,
)
from tests.judges.door_process import Judged, running_door
from tests.judges.headers import API_VERSIONS, MESSAGES, RequestHeader, decode_response, encode_request
from tests.judges.opaque_bytes import (
    ASSIGNMENT,
    SUBSCRIPTION,
    assignment_bytes,
    json_of_bytes,
    subscription_bytes,
)
from tests.judges.raw_sides import ask

COMMIT, OFFSET_FETCH, HEARTBEAT, OFFSET_DELETE = 8, 9, 12, 47
WAIT_SECONDS = 30.0


def header_bytes(key: int, version: int, header_version: int) -> bytes:
    values = {"request_api_key": key, "request_api_version": version, "correlation_id": 7, "client_id": "c"}
    return encode(MESSAGES["RequestHeader"], header_version, values)


def framed(data: bytes) -> bytes:
    return pack(">i", len(data)) + data


def request_bytes(key: int, version: int, asked: dict[str, Any], correlation_id: int = 7) -> bytes:
    return framed(encode_request(RequestHeader(key, version, correlation_id, "c"), asked))


async def answer_to(reader: asyncio.StreamReader, key: int, version: int, correlation_id: int = 7) -> dict[str, Any]:
    size: int = unpack(">i", await reader.readexactly(4))[0]
    return decode_response(RequestHeader(key, version, correlation_id, "c"), await reader.readexactly(size))


@pytest.mark.kafka
async def test_it_offers_what_it_answers_and_names_itself_alone(judged: Judged) -> None:
    client = {"client_software_name": "judge", "client_software_version": "1"}
    offered = await ask(judged.door, API_VERSIONS, 3, client, "c")
    versions = {api["api_key"]: (api["min_version"], api["max_version"]) for api in offered["api_keys"]}
    assert (versions[11], versions[8], versions[1]) == ((0, 9), (2, 9), (versions[1][0], 15))
    assert not versions.keys() & NOT_OFFERED
    metadata = await ask(judged.door, METADATA, 12, {"topics": []}, "c")
    assert [(one["host"], one["port"]) for one in metadata["brokers"]] == [judged.door]


@pytest.mark.kafka
async def test_a_version_that_it_lacks_is_refused_in_version_0(judged: Judged) -> None:
    data = header_bytes(API_VERSIONS, 99, 1)
    reader, writer = await asyncio.open_connection(*judged.door)
    writer.write(pack(">i", len(data)) + data)
    answer = await reader.readexactly(unpack(">i", await reader.readexactly(4))[0])
    writer.close()
    assert decode_response(RequestHeader(API_VERSIONS, 0, 7, None), answer)["error_code"] == UNSUPPORTED_VERSION


@pytest.mark.kafka
@pytest.mark.parametrize(
    "data",
    [
        b"\xff\xff\xff\xff",
        b"\x7f\xff\xff\xff",
        framed(b"\0\0"),
        framed(b"\0\x0b\0\x63" + b"\0" * 8),
        framed(pack(">hh", API_VERSIONS, 99)),
        framed(header_bytes(0, 9, 2)),
        framed(header_bytes(9999, 0, 1)),
        *(framed(header_bytes(key, 0, 2)) for key in sorted(NOT_OFFERED)),
        request_bytes(COMMIT, 10, {"group_id": "g"}),
    ],
    ids=str,
)
def test_whoever_sends_nonsense_is_closed(judged: Judged, data: bytes) -> None:
    with socket.create_connection(judged.door, 20) as client:
        client.sendall(data)
        assert client.recv(1) == b""


@pytest.mark.parametrize(
    ("version", "no_name", "acks", "silent"),
    [(3, b"\xff\xff", 0, True), (3, b"\xff\xff", -1, False), (9, b"\0", 0, True), (9, b"\0", 1, False)],
)
def test_a_produce_without_acks_gets_no_answer(version: int, no_name: bytes, acks: int, silent: bool) -> None:
    data = header_bytes(0, version, 2 if version >= 9 else 1) + no_name + pack(">h", acks)
    assert wants_no_answer(data) is silent
    for length in range(4, len(data)):
        with pytest.raises(CodecError):
            wants_no_answer(data[:length])
    assert not wants_no_answer(header_bytes(3, 1, 1) + b"\0\0\0\0")


@pytest.mark.parametrize(("version", "name"), [(3, b"\0\x02tx"), (9, b"\x03tx"), (9, b"\x81\x01" + b"t" * 128)])
def test_a_produce_of_a_transaction_is_refused(version: int, name: bytes) -> None:
    with pytest.raises(CodecError, match="transaction"):
        wants_no_answer(header_bytes(0, version, 2 if version >= 9 else 1) + name + b"\0\0")


@pytest.mark.parametrize("length", range(4, 8))
def test_an_unknown_version_is_refused_in_words_where_the_request_is_cut_short(length: int) -> None:
    with pytest.raises(CodecError):
        unsupported_version(header_bytes(API_VERSIONS, 99, 1)[:length])


@pytest.mark.parametrize(
    ("key", "version", "is_offered"),
    [
        (1, 15, True),
        (1, 16, False),
        (COMMIT, 9, True),
        (COMMIT, 10, False),
        (68, 0, False),
        (92, 0, False),
        (3, 99, True),
    ],
)
def test_what_is_not_offered_is_refused(key: int, version: int, is_offered: bool) -> None:
    """An API or a version that the broker lacks, too, the broker refuses itself."""
    data = pack(">hh", key, version)
    if is_offered:
        check_offered(data)
    else:
        with pytest.raises(CodecError, match=f"API {key} in version {version} is not offered"):
            check_offered(data)


@pytest.mark.kafka
async def test_many_requests_at_once_are_answered_in_their_order(judged: Judged) -> None:
    """Those of groups and those of the broker, more than the door reads ahead."""
    reader, writer = await asyncio.open_connection(*judged.door)
    numbers = range(4 * REQUESTS_MAX)
    asked: dict[int, dict[str, Any]] = {HEARTBEAT: {"group_id": "none", "generation_id": 1}, METADATA: {"topics": []}}
    versions = {HEARTBEAT: 4, METADATA: 12}
    keys = [HEARTBEAT if number % 3 else METADATA for number in numbers]
    for number, key in zip(numbers, keys, strict=True):
        writer.write(request_bytes(key, versions[key], asked[key], number))
    for number, key in zip(numbers, keys, strict=True):
        await answer_to(reader, key, versions[key], number)
    writer.close()


def joining(group_id: str, member_id: str = "") -> dict[str, Any]:
    protocols = [{"name": "range", "metadata": b"some"}]
    timeouts = {"session_timeout_ms": 60_000, "rebalance_timeout_ms": 60_000}
    return {"group_id": group_id, "member_id": member_id, "protocol_type": "p", "protocols": protocols, **timeouts}


async def wait_until(what: str, holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while not await asyncio.to_thread(holds):
        assert time.monotonic() < deadline, f"not {what}"
        await asyncio.sleep(0.05)


def ask_service(judged: Judged, path: str) -> str:
    with urlopen(judged.service_url + path, timeout=WAIT_SECONDS) as answer:
        return str(answer.read(), "utf-8")


def parked_calls(judged: Judged) -> int:
    """How many calls the service holds back."""
    said = re.search(r"^rallypoint_parked_calls (\S+)$", ask_service(judged, "/metrics"), re.MULTILINE)
    assert said is not None
    return int(float(said[1]))


@pytest.mark.kafka
async def test_requests_name_as_many_topics_and_groups_as_they_like(judged: Judged) -> None:
    """A consumer of a pattern may have thousands of topics, which no URL holds."""
    group_id, names = f"many-{uuid4()}", [f"{number}-{'t' * 200}" for number in range(600)]

    async def asked(key: int, version: int, asked: dict[str, Any]) -> Mapping[str, Any]:
        return await ask(judged.door, key, version, {"group_id": group_id, **asked}, "c")

    offset = {"partition_index": 0, "committed_offset": 5}
    committed = {"topics": [{"name": name, "partitions": [offset]} for name in names]}
    codes = partition_codes(await asked(COMMIT, 9, committed))
    assert codes == {name: [0] for name in names}
    fetched = await asked(OFFSET_FETCH, 7, {"topics": [{"name": name, "partition_indexes": [0]} for name in names]})
    assert [one["partitions"][0]["committed_offset"] for one in fetched["topics"]] == [5] * len(names)
    deletion = {"topics": [{"name": name, "partitions": [{"partition_index": 0}]} for name in names]}
    assert partition_codes(await asked(OFFSET_DELETE, 0, deletion)) == codes
    found = await ask(judged.door, FIND_COORDINATOR, 4, {"coordinator_keys": names}, "c")
    assert [(one["key"], one["error_code"], one["port"]) for one in found["coordinators"]] == [
        (name, 0, judged.door.port) for name in names
    ]


def partition_codes(answer: Mapping[str, Any]) -> dict[str, list[int]]:
    return {topic["name"]: [one["error_code"] for one in topic["partitions"]] for topic in answer["topics"]}


@pytest.mark.slow
async def test_a_client_over_a_limit_that_passes_is_told_to_wait(tmp_path: Path) -> None:
    """By a code that Kafka's clients know. No broker is asked."""
    with (
        running_service(tmp_path, limits={"group_pending_max": 1}) as service,
        running_door(Address("127.0.0.1", 1), service.url) as address,
    ):
        reader, writer = await asyncio.open_connection(*address)
        for code in (ErrorCode.MEMBER_ID_REQUIRED, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS):
            writer.write(request_bytes(JOIN, 9, joining("full")))
            answer = await answer_to(reader, JOIN, 9)
            assert answer["error_code"] == code
            assert answer["throttle_time_ms"] == (0 if code is ErrorCode.MEMBER_ID_REQUIRED else 1_000)
        writer.write(request_bytes(JOIN, 0, joining("full")))
        assert (await answer_to(reader, JOIN, 0))["error_code"] == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        writer.close()


@pytest.mark.slow
async def test_a_full_group_is_told_as_kafka_tells_it(tmp_path: Path) -> None:
    """It is no limit that passes with time: a client that waited would wait in vain."""
    with (
        running_service(tmp_path, "--group-max-size", "1", "--group-initial-rebalance-delay-ms", "0") as service,
        running_door(Address("127.0.0.1", 1), service.url) as address,
    ):
        reader, writer = await asyncio.open_connection(*address)
        writer.write(request_bytes(JOIN, 3, joining("full")))
        assert (await answer_to(reader, JOIN, 3))["generation_id"] == 1
        writer.write(request_bytes(JOIN, 3, joining("full")))
        answer = await answer_to(reader, JOIN, 3)
        assert (answer["error_code"], answer["throttle_time_ms"]) == (ErrorCode.GROUP_MAX_SIZE_REACHED, 0)
        writer.close()


@pytest.mark.kafka
@pytest.mark.parametrize("pipelined", [0, 1, 3])
async def test_a_client_that_goes_takes_its_waiting_call_along(judged: Judged, pipelined: int) -> None:
    """Also if it has sent more requests meanwhile."""
    group_id, before = f"going-{uuid4()}", parked_calls(judged)
    (reader, stays), (goes_reader, goes) = [await asyncio.open_connection(*judged.door) for _ in range(2)]
    stays.write(request_bytes(JOIN, 3, joining(group_id)))
    assert (await answer_to(reader, JOIN, 3))["generation_id"] == 1
    goes.write(request_bytes(JOIN, 9, joining(group_id)))
    member_id = (await answer_to(goes_reader, JOIN, 9))["member_id"]
    # It waits for the other one to join again.
    goes.write(request_bytes(JOIN, 9, joining(group_id, member_id)))
    for number in range(pipelined):
        goes.write(request_bytes(HEARTBEAT, 4, {"group_id": group_id}, number))
    await wait_until("parked", lambda: parked_calls(judged) == before + 1)
    goes.transport.abort()
    await wait_until("dropped", lambda: parked_calls(judged) == before)
    stays.close()


def is_committed(judged: Judged, group_id: str) -> bool:
    return bool(json.loads(ask_service(judged, f"/v1/groups/{group_id}/offsets"))["offsets"])


@pytest.mark.kafka
async def test_what_a_client_asked_before_it_went_is_carried_out(judged: Judged) -> None:
    """As by a broker, whatever waits for an answer alone."""
    group_ids = [f"gone-{uuid4()}" for _ in range(20)]
    for group_id in group_ids:
        topic = {"name": "t", "partitions": [{"partition_index": 0, "committed_offset": 5}]}
        commit = {"group_id": group_id, "generation_id_or_member_epoch": -1, "topics": [topic]}
        with socket.create_connection(judged.door, WAIT_SECONDS) as client:
            client.sendall(request_bytes(HEARTBEAT, 4, {"group_id": group_id}) + request_bytes(COMMIT, 9, commit))
    for group_id in group_ids:
        await wait_until("committed", partial(is_committed, judged, group_id))


@pytest.mark.parametrize("data", [b"", b"\0", b"\xff\0text"])
def test_bytes_come_back_as_they_were(data: bytes) -> None:
    for read in (subscription_bytes, assignment_bytes):
        assert read(json_of_bytes(data), "consumer") == read(json_of_bytes(data), "connect") == data


def test_what_members_over_http_say_is_kafkas_form() -> None:
    said: dict[str, Any] = {"topics": ["t"], "owned_partitions": {"t": [1, 2]}, "generation_id": 4, "rack_id": "r"}
    data = subscription_bytes(said, "consumer")
    assert data[:2] == b"\0\x03"
    read = decode(SUBSCRIPTION, 3, data[2:])
    owned = [{"topic": "t", "partitions": [1, 2]}]
    assert read == {"topics": ["t"], "owned_partitions": owned, "generation_id": 4, "rack_id": "r", "user_data": None}
    assigned = assignment_bytes({"partitions": {"t": [3]}, "user_data": {"base64": "AAE="}}, "consumer")
    assert decode(ASSIGNMENT, 3, assigned[2:]) == {
        "assigned_partitions": [{"topic": "t", "partitions": [3]}], "user_data": b"\0\x01"
    }  # fmt: skip
    assert subscription_bytes(said, "connect").startswith(b'{"topics"')


ODD: tuple[Any, ...] = (
    "text", 5, [1], {}, {"topics": None}, {"topics": "abc"}, {"topics": [1]}, {"topics": ["t" * 40_000]},
    {"topics": ["t"], "generation_id": None}, {"topics": ["t"], "generation_id": "x"},
    {"topics": ["t"], "owned_partitions": [1]}, {"topics": ["t"], "owned_partitions": {"t": ["x"]}},
    {"topics": ["t"], "owned_partitions": {"t": [1 << 40]}}, {"topics": ["t"], "rack_id": 5},
    {"topics": ["t"], "user_data": {"base64": "!"}}, {"partitions": {"t": [1]}, "user_data": {"base64": 5}},
    {"partitions": {"t": ["x"]}}, {"partitions": [1]}, {"topics": None, "partitions": None},
)  # fmt: skip


@pytest.mark.parametrize("said", ODD, ids=lambda said: str(said)[:60])
def test_whatever_a_member_over_http_says_a_client_can_read(said: Any) -> None:
    """One member that says nonsense must not close every leader's connection. It is read as nothing."""
    read = decode(SUBSCRIPTION, 3, subscription_bytes(said, "consumer")[2:])
    assert read == {"topics": [], "user_data": None, "owned_partitions": [], "generation_id": -1, "rack_id": None}
    assert decode(ASSIGNMENT, 3, assignment_bytes(said, "consumer")[2:]) == {
        "assigned_partitions": [],
        "user_data": None,
    }
    assert json.loads(subscription_bytes(said, "connect")) == said
