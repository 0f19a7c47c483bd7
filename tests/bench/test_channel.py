"""The benchmarks' own reading of a channel: frames in pieces, and what is no answer."""

import asyncio
import json

import pytest

from bench.channel import ChannelConnection, answer_of, call_frame, frame_of, take_frame
from bench.connection import Connection
from bench.crowd import is_rebalancing
from bench.line import Answer, ConnectionBrokenError
from rallypoint.protocol.operations import FETCH, HEARTBEAT
from tests.fakes.channel_client import open_channel
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
    async with open_service() as api, open_channel(api.http, api.port) as other:
        joined = await other.form("g")
        connection = await ChannelConnection.open("127.0.0.1", api.port)
        answer = await connection.exchange(call_frame(FETCH, "g" * 200, {}))
        assert (answer.status, json.loads(answer.body)) == (200, {"offsets": {}})
        commit = {"id": 0, "op": "commit", "group_id": "g", "body": {
            "generation_id": 1, "member_id": joined["member_id"], "offsets": {"t": {"0": {"offset": 1}}},
        }}  # fmt: skip
        assert (await connection.exchange(frame_of(json.dumps(commit).encode()))).status == 200
        await api.request("POST", "/v1/groups/g/rebalance", {})
        await connection.exchange(call_frame(FETCH, "g", {}))
        assert connection.push_count == 1, "what is pushed is no answer"
        waiting = asyncio.create_task(api.http_api.channels.close())
        with pytest.raises(ConnectionBrokenError):
            await connection.exchange(call_frame(FETCH, "g", {}))
        connection.close()
        await other.close_code()
        await waiting


async def test_a_member_waits_until_a_rebalance_is_pushed_and_no_older_one_counts() -> None:
    async with open_service() as api, open_channel(api.http, api.port) as other:
        joined = await other.form("g")
        line = await ChannelConnection.open("127.0.0.1", api.port)
        beat = {"generation_id": 1, "member_id": joined["member_id"]}
        assert (await line.exchange(line.frame_of(HEARTBEAT, "g", beat))).status == 200
        waiting = asyncio.create_task(line.wait_for_rebalance(HEARTBEAT, "g", beat))
        await asyncio.sleep(0.05)
        assert not waiting.done()
        await api.request("POST", "/v1/groups/g/rebalance", {})
        assert await waiting is None
        assert await line.wait_for_rebalance(HEARTBEAT, "g", beat) is None, "it was pushed before it was waited for"
        later = asyncio.create_task(line.wait_for_rebalance(HEARTBEAT, "g", {**beat, "generation_id": 2}))
        await asyncio.sleep(0.05)
        assert not later.done()
        later.cancel()
        line.close()


async def test_a_member_on_a_channel_is_heard_of_each_interval(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bench.channel.HEARTBEAT_INTERVAL_S", 0.01)
    async with open_service() as api, open_channel(api.http, api.port) as other:
        joined = await other.form("g")
        line = await ChannelConnection.open("127.0.0.1", api.port)
        beat = {"generation_id": 1, "member_id": joined["member_id"]}
        assert await line.wait_for_rebalance(HEARTBEAT, "g", beat) == Answer(200, b'{"channel_keeps_session":true}')
        line.close()


async def test_a_member_on_http_waits_by_a_heartbeat_that_is_held_back() -> None:
    async with open_service(parked_call_max_wait_ms=60_000) as api, open_channel(api.http, api.port) as other:
        joined = await other.form("g")
        line = await Connection.open("127.0.0.1", api.port)
        beat = {"generation_id": 1, "member_id": joined["member_id"]}
        waiting = asyncio.create_task(line.wait_for_rebalance(HEARTBEAT, "g", beat))
        await asyncio.sleep(0.05)
        assert not waiting.done()
        await api.request("POST", "/v1/groups/g/rebalance", {})
        assert is_rebalancing(await waiting)
        line.close()


async def test_a_refused_handshake_is_told() -> None:
    async with open_service(channels_max=0) as api:
        with pytest.raises(ConnectionBrokenError, match="429"):
            await ChannelConnection.open("127.0.0.1", api.port)
