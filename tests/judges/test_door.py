"""The door: to a client it is a broker, and the only one."""

import asyncio
import socket
from struct import pack, unpack
from typing import Any

import pytest

from tests.judges.codec import decode, encode
from tests.judges.door import METADATA, NOT_OFFERED, UNSUPPORTED_VERSION, wants_no_answer
from tests.judges.door_process import Judged
from tests.judges.headers import API_VERSIONS, MESSAGES, RequestHeader, decode_response
from tests.judges.opaque_bytes import (
    ASSIGNMENT,
    SUBSCRIPTION,
    assignment_bytes,
    json_of_bytes,
    subscription_bytes,
)
from tests.judges.raw_sides import ask


def header_bytes(key: int, version: int, header_version: int) -> bytes:
    values = {"request_api_key": key, "request_api_version": version, "correlation_id": 7, "client_id": "c"}
    return encode(MESSAGES["RequestHeader"], header_version, values)


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
    "data", [b"\xff\xff\xff\xff", pack(">i", 2) + b"\0\0", pack(">i", 12) + b"\0\x0b\0\x63" + b"\0" * 8], ids=str
)
def test_whoever_sends_nonsense_is_closed(judged: Judged, data: bytes) -> None:
    with socket.create_connection(judged.door, 20) as client:
        client.sendall(data)
        assert client.recv(1) == b""


@pytest.mark.parametrize(
    ("version", "transaction", "acks", "silent"),
    [(3, b"\xff\xff", 0, True), (3, b"\0\x02tx", 0, True), (3, b"\xff\xff", -1, False), (9, b"\0", 0, True),
     (9, b"\x03tx", 0, True), (9, b"\x03tx", 1, False)],
)  # fmt: skip
def test_a_produce_without_acks_gets_no_answer(version: int, transaction: bytes, acks: int, silent: bool) -> None:
    data = header_bytes(0, version, 2 if version >= 9 else 1) + transaction + pack(">h", acks)
    assert wants_no_answer(data) is silent
    assert not wants_no_answer(header_bytes(3, 1, 1) + b"\0\0\0\0")


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
