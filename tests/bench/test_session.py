"""The benchmarks' own reading of a session: frames in pieces, and what is no answer."""

import asyncio
import json

import pytest

from bench.connection import Answer, ConnectionBrokenError
from bench.session import SessionConnection, answer_of, call_frame, frame_of, take_frame
from protocol.operations import FETCH
from tests.fakes.session_client import open_session
from tests.fakes.set_service import open_service


@pytest.mark.parametrize("size", [0, 125, 126, 65_535, 65_536])
def test_a_frame_is_taken_when_its_last_byte_is_there(size: int) -> None:
    payload = b"x" * size
    head = bytes((size,)) if size < 126 else b"\x7e" + size.to_bytes(2) if size < 65_536 else b"\x7f" + size.to_bytes(8)
    whole = b"\x81" + head + payload
    received = bytearray(whole[:-1])
    assert take_frame(received) is None
    received += whole[-1:] + b"\x81"
    assert take_frame(received) == (0x81, payload)
    assert received == b"\x81"


def test_a_masked_frame_of_a_service_is_refused() -> None:
    with pytest.raises(ConnectionBrokenError):
        take_frame(bytearray(frame_of(b"{}")))


def test_an_answer_has_its_status_and_its_body() -> None:
    assert answer_of(b'{"id":0,"status":409,"body":{"a":{}}}') == Answer(409, b'{"a":{}}')
    for text in (b'{"id":null,"status":400,"body":{}}', b"{}", b""):
        with pytest.raises(ConnectionBrokenError):
            answer_of(text)


async def test_it_talks_with_a_service() -> None:
    async with open_service() as door, open_session(door.session, door.port) as other:
        joined = await other.form("g")
        connection = await SessionConnection.open("127.0.0.1", door.port)
        answer = await connection.exchange(call_frame(FETCH, "g" * 200, {}))
        assert (answer.status, json.loads(answer.body)) == (200, {"offsets": {}})
        commit = {"id": 0, "op": "commit", "group_id": "g", "body": {
            "generation_id": 1, "member_id": joined["member_id"], "offsets": {"t": {"0": {"offset": 1}}},
        }}  # fmt: skip
        assert (await connection.exchange(frame_of(json.dumps(commit).encode()))).status == 200
        await door.request("POST", "/v1/groups/g/rebalance", {})
        await connection.exchange(call_frame(FETCH, "g", {}))
        assert connection.push_count == 1, "what is pushed is no answer"
        waiting = asyncio.create_task(door.door.sessions.close())
        with pytest.raises(ConnectionBrokenError):
            await connection.exchange(call_frame(FETCH, "g", {}))
        connection.close()
        await other.close_code()
        await waiting


async def test_a_refused_handshake_is_told() -> None:
    async with open_service(sessions_max=0) as door:
        with pytest.raises(ConnectionBrokenError, match="429"):
            await SessionConnection.open("127.0.0.1", door.port)
