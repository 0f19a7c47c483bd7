"""Bytes on a channel that a WebSocket library would not send, or not so many of: what ends it, and with which code."""

import asyncio
import json
import zlib
from typing import Any

import pytest

from rallypoint.coordinator.access.tokens import hash_token
from rallypoint.coordinator.http.channel.channel import RESTING_BYTES
from rallypoint.coordinator.http.channel.contract import AUTHENTICATE_MAX_BYTES
from rallypoint.coordinator.http.limits.turn_share import SHARE_UNITS
from rallypoint.coordinator.http.security import SecurityPolicy
from tests.fakes.api_server import ApiClient
from tests.fakes.raw_channel import MASK, RawChannel, frame, raw_channel
from tests.fakes.set_service import open_service

CALL = b'{"id":1,"op":"coordinator","body":{"group_ids":["g"]}}'
TOKEN = "a-token"
WITH_TOKEN = SecurityPolicy(tokens=(hash_token(TOKEN),))
AUTHENTICATE = frame(json.dumps({"op": "authenticate", "token": TOKEN}).encode())


async def closed(api: ApiClient) -> dict[str, int]:
    """How channels have ended, once one has."""
    async with asyncio.timeout(30):
        while not api.metrics.closed:  # noqa: ASYNC110 - it is somebody else's count
            await asyncio.sleep(0.005)
    return dict(api.metrics.closed)


# --- what is no frame, or no message ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "code"),
    [
        pytest.param(frame(CALL, mask=b""), 1002, id="text without a mask"),
        pytest.param(frame(b"", 0x8A, mask=b""), 1002, id="pong without a mask"),
        pytest.param(frame(CALL, 0xC1), 1002, id="reserved bit 1"),
        pytest.param(frame(zlib.compress(CALL * 9, wbits=-15), 0xC1), 1002, id="text that would grow when unpacked"),
        pytest.param(frame(CALL, 0xA1), 1002, id="reserved bit 2"),
        pytest.param(frame(CALL, 0x91), 1002, id="reserved bit 3"),
        pytest.param(frame(b"", 0xC9), 1002, id="reserved bit of a ping"),
        pytest.param(frame(CALL, 0x83), 1002, id="opcode 3"),
        pytest.param(frame(b"", 0x8B), 1002, id="opcode 11"),
        pytest.param(frame(b"", 0x8F), 1002, id="opcode 15"),
        pytest.param(frame(b"", 0x09), 1002, id="ping in fragments"),
        pytest.param(frame(b"", 0x08), 1002, id="close in fragments"),
        pytest.param(frame(b"x" * 126, 0x89), 1002, id="ping of 126 bytes"),
        pytest.param(frame(b"x" * 126, 0x88), 1002, id="close of 126 bytes"),
        pytest.param(frame(CALL, 0x80), 1002, id="continuation of nothing"),
        pytest.param(frame(CALL, 0x00), 1002, id="continuation of nothing, not the last"),
        pytest.param(frame(b"", 0x01) + frame(CALL), 1002, id="text within an empty beginning"),
        pytest.param(frame(b"{", 0x01) + frame(CALL, 0x01), 1002, id="text begun twice"),
        pytest.param(b"\x81\xff" + (2**63).to_bytes(8) + MASK, 1009, id="length of 64 bits"),
        pytest.param(frame(b"x", 0x88), 1002, id="close with half a code"),
        pytest.param(frame((999).to_bytes(2), 0x88), 1002, id="close with no code"),
        pytest.param(frame((1004).to_bytes(2), 0x88), 1002, id="close with a reserved code"),
        pytest.param(frame((1000).to_bytes(2) + b"\xff", 0x88), 1007, id="close with a reason that is no UTF-8"),
        pytest.param(frame(b'{"id": 1, "op": "\xff"}'), 1007, id="text that is no UTF-8"),
        pytest.param(frame(b'{"id"', 0x01) + frame(b'\xff:1}', 0x80), 1007, id="fragments that are no UTF-8"),
        pytest.param(b"\x81\xff" + (2**40).to_bytes(8) + MASK, 1009, id="a text of a terabyte"),
        pytest.param(frame((1000).to_bytes(2) + b"bye", 0x88), 1000, id="close"),
        pytest.param(frame(b"", 0x88), 1000, id="close without a code"),
        pytest.param(frame((4000).to_bytes(2), 0x88), 1000, id="close with a code of one's own"),
    ],
)  # fmt: skip
async def test_what_ends_a_channel_and_with_which_code(data: bytes, code: int) -> None:
    async with open_service() as api:
        async with raw_channel(api.port) as channel:
            channel.send(frame(CALL) + data + frame(CALL) * 20)
            texts, ended = await channel.to_the_end()
            assert ended == code
            assert [json.loads(text)["status"] for text in texts] == [200], "the call in front of it, and no other"
        reason = {1000: "closed", 1009: "too_large"}.get(code, "malformed")
        assert await closed(api) == {reason: 1}


@pytest.mark.parametrize("code", [b"\x03\xe8", b""], ids=["with a code", "without"])
async def test_a_connection_ends_with_its_channel(code: bytes) -> None:
    async with open_service() as api, raw_channel(api.port) as channel:
        channel.send(frame(CALL) + frame(code, 0x88))
        assert (await channel.to_the_end())[1] == 1000
        async with asyncio.timeout(30):
            assert await channel.reader.read() == b"", "something comes behind the close"
            while api.http_api.admission.authenticated_count:  # noqa: ASYNC110 - it is somebody else's count
                await asyncio.sleep(0.005)


async def test_a_client_reads_why_its_channel_ends_though_it_goes_on_sending() -> None:
    async with open_service(channel_control_frames_max=10) as api, raw_channel(api.port) as channel:
        for _ in range(400):
            channel.send(frame(b"x" * 100, 0x8A) * 20)
            await asyncio.sleep(0)
        assert (await channel.to_the_end())[1] == 1008


@pytest.mark.parametrize("split", [1, 2, 3, 7, 1_000])
async def test_what_a_library_may_send_is_taken_however_it_is_cut(split: int) -> None:
    data = b"".join((
        frame(CALL), frame(b"ping", 0x89), frame(b"", 0x8A), frame(CALL[:9], 0x01), frame(b"pong", 0x8A),
        frame(b"", 0x00), frame(CALL[9:], 0x80), frame(CALL + b" " * 300), frame(b"", 0x01) + frame(CALL, 0x80),
    ))  # fmt: skip
    async with open_service() as api, raw_channel(api.port, data[:split]) as channel:
        for at in range(split, len(data), split):
            channel.send(data[at : at + split])
            await asyncio.sleep(0)
        came = [await channel.frame() for _ in range(5)]
        assert [opcode for opcode, _ in came] == [0x1, 0xA, 0x1, 0x1, 0x1]
        assert came[1][1] == b"ping"


# --- floods ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "one",
    [frame(b"", 0x89), frame(b"", 0x8A), frame(b"", 0x82), frame(b"x" * 1_500, 0x82)],
    ids=["ping", "pong", "binary", "long binary"],
)
async def test_frames_that_carry_no_call_are_counted(one: bytes) -> None:
    async with open_service(channel_control_frames_max=10) as api:
        async with raw_channel(api.port) as channel:
            channel.send(one * 10 + frame(CALL))
            while json.loads((came := await channel.frame())[1] or b'{"status":0}')["status"] != 200:
                assert came[0] in (0x1, 0xA)
            channel.send(one * 11)
            assert (await channel.to_the_end())[1] == 1008
        assert await closed(api) == {"flood": 1}


async def test_parts_of_a_text_count_if_they_are_scraps() -> None:
    large = CALL + b" " * 60_000
    cut = [large[at : at + 1_024] for at in range(0, len(large) - 1_024, 1_024)]
    whole = frame(cut[0], 0x01) + b"".join(frame(part, 0x00) for part in cut[1:]) + frame(b"", 0x80)
    scraps = frame(CALL, 0x01) + frame(b"", 0x00) * 10
    async with open_service(channel_control_frames_max=10) as api, raw_channel(api.port) as channel:
        channel.send(whole * 3)
        for _ in range(3):
            assert json.loads((await channel.frame())[1])["status"] == 200
        channel.send(scraps)
        assert (await channel.to_the_end())[1] == 1008


async def test_calls_are_never_too_many_nor_lost() -> None:
    async with open_service() as api, raw_channel(api.port) as channel:
        channel.send(frame(CALL) * 3_000)
        for _ in range(3_000):
            assert json.loads((await channel.frame())[1])["status"] == 200
        assert not api.metrics.closed


async def test_pongs_that_nobody_reads_are_not_gathered() -> None:
    async with (
        open_service(channel_ping_interval_ms=300, channel_control_frames_max=1_000_000) as api,
        raw_channel(api.port) as channel,
    ):
        transport = channel.writer.transport
        assert isinstance(transport, asyncio.Transport)
        transport.pause_reading()
        (served,) = api.http_api.channels._open
        assert served._socket is not None
        # What the systems hold on the way is a few MB.
        channel.send(frame(b"x" * 125, 0x89) * 100_000)
        most_bytes = 0
        async with asyncio.timeout(30):
            while not api.metrics.closed:
                most_bytes = max(most_bytes, served._socket.unsent_bytes())
                await asyncio.sleep(0)
        assert RESTING_BYTES < most_bytes < RESTING_BYTES + 2 * SHARE_UNITS * 127
        assert api.metrics.closed in ({"slow_reader": 1}, {"unanswered_ping": 1})


# --- before it is known who it is ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "first",
    [
        pytest.param(frame(b"", 0x89), id="ping"),
        pytest.param(frame(b"", 0x8A), id="pong"),
        pytest.param(frame(b"", 0x82), id="binary"),
        pytest.param(frame(b"{", 0x01), id="fragment"),
        pytest.param(frame(b" " * (AUTHENTICATE_MAX_BYTES + 1)), id="long text"),
        pytest.param(b"\x81\xff" + (2**30).to_bytes(8) + MASK, id="beginning of a long text"),
        pytest.param(frame(CALL), id="call"),
        pytest.param(frame(b""), id="empty text"),
    ],
)
async def test_nothing_but_the_token_is_taken_first(first: bytes) -> None:
    async with open_service(policy=WITH_TOKEN) as api:
        async with raw_channel(api.port) as channel:
            channel.send(first + AUTHENTICATE + frame(CALL) * 1_000)
            texts, code = await channel.to_the_end()
            assert code == 1008
            assert [json.loads(text)["status"] for text in texts] in ([], [400], [401])
        assert await closed(api) == {"not_authenticated": 1}


async def test_calls_may_follow_the_token_at_once() -> None:
    async with open_service(policy=WITH_TOKEN) as api, raw_channel(api.port, AUTHENTICATE[:7]) as channel:
        channel.send(AUTHENTICATE[7:] + frame(b"", 0x89) + frame(CALL) * 100)
        assert await statuses(channel, 102) == [200, 0] + [200] * 100


async def statuses(channel: RawChannel, count: int) -> list[int]:
    """Of so many frames: the status of an answer, 0 for a pong."""
    found: list[Any] = []
    for _ in range(count):
        opcode, payload = await channel.frame()
        found.append(json.loads(payload)["status"] if opcode == 0x1 else 0)
    return found
