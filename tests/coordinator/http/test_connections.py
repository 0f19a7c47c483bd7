"""Whatever strangers do to connections, whoever has a token is answered; and they end by themselves."""

import asyncio
import logging
import os
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Any

import pytest

from rallypoint.coordinator.access.tokens import hash_token
from rallypoint.coordinator.http.channel.channels import UNAUTHENTICATED_MAX
from rallypoint.coordinator.http.connections import HttpServer
from rallypoint.coordinator.http.security import SecurityPolicy
from rallypoint.member.core.outcomes import Answered
from rallypoint.member.http import HttpTransport
from rallypoint.protocol.operations import LIST_TOPICS
from tests.fakes.api_server import ApiClient, open_api, parse_answer
from tests.fakes.channel_client import open_channel
from tests.fakes.fake_service import FakeService
from tests.fakes.manual_clock import ManualClock
from tests.fakes.set_service import open_service

TOKEN = "honest"
POLICY = SecurityPolicy(tokens=(hash_token(TOKEN),))
ASKED = b"GET /v1/groups HTTP/1.1\r\nHost: 127.0.0.1\r\n"
HANDSHAKE = (
    b"GET /v1/channel HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
)
PLACES = 20
ANSWER_SECONDS = 30.0
"""Far more than an answer takes, and far less than any of what is bounded here is set to."""

Line = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@asynccontextmanager
async def strangers(api: ApiClient, count: int) -> AsyncIterator[list[Line]]:
    """So many connections, of which nothing is known."""
    async with AsyncExitStack() as stack:
        lines: list[Line] = []
        for _ in range(count):
            line = await asyncio.open_connection("127.0.0.1", api.port)
            stack.callback(line[1].close)
            lines.append(line)
        yield lines


async def ended(line: Line) -> bytes:
    """What came until the service ended the connection."""
    async with asyncio.timeout(ANSWER_SECONDS):
        try:
            return await line[0].read()
        except ConnectionResetError:
            return b""


async def ask(api: ApiClient) -> int:
    """The status of an honest client's request, on a connection of its own."""
    async with asyncio.timeout(ANSWER_SECONDS):
        head = ASKED + f"Authorization: Bearer {TOKEN}\r\nConnection: close\r\n\r\n".encode()
        return parse_answer(await api.send(head, pause=0)).status


# --- what strangers do


async def say_nothing(lines: list[Line]) -> None:
    await asyncio.sleep(0)


async def say_half_a_head(lines: list[Line]) -> None:
    for _, writer in lines:
        writer.write(ASKED)


async def say_a_byte_now_and_then(lines: list[Line]) -> None:
    for at in range(10):
        for _, writer in lines:
            writer.write(ASKED[at : at + 1])
        await asyncio.sleep(0.002)


async def ask_without_a_token(lines: list[Line]) -> None:
    for _, writer in lines:
        writer.write(ASKED + b"\r\n")


async def ask_what_is_public_and_stay(lines: list[Line]) -> None:
    for _, writer in lines:
        writer.write(b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")


async def send_a_body_slowly(lines: list[Line]) -> None:
    for _, writer in lines:
        writer.write(
            b"POST /v1/groups/g/join HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
            b"Content-Length: 1000000\r\n\r\n{"
        )


async def send_what_is_no_request(lines: list[Line]) -> None:
    for _, writer in lines:
        writer.write(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03")


async def shake_hands_and_send_no_token(lines: list[Line]) -> None:
    for _, writer in lines:
        writer.write(HANDSHAKE)


async def ask_and_read_nothing(lines: list[Line]) -> None:
    for _, writer in lines:
        writer.write((ASKED + b"\r\n") * 50)


async def wait_behind_an_answered_request_with_half_a_head(lines: list[Line]) -> None:
    for _, writer in lines:
        writer.write(ASKED + b"\r\n" + ASKED)


BEHAVIOURS: list[Callable[[list[Line]], Awaitable[None]]] = [
    say_nothing,
    say_half_a_head,
    say_a_byte_now_and_then,
    ask_without_a_token,
    ask_what_is_public_and_stay,
    send_a_body_slowly,
    send_what_is_no_request,
    shake_hands_and_send_no_token,
    ask_and_read_nothing,
    wait_behind_an_answered_request_with_half_a_head,
]


@pytest.mark.parametrize("behave", BEHAVIOURS, ids=lambda behave: behave.__name__)
async def test_whatever_strangers_do_an_honest_client_is_answered(
    behave: Callable[[list[Line]], Awaitable[None]],
) -> None:
    async with (
        open_service(policy=POLICY, connections_max=2, unauthenticated_connections_max=PLACES) as api,
        strangers(api, PLACES + 5) as lines,
    ):
        await behave(lines)
        for _ in range(3):
            assert await ask(api) == 200
        assert api.http_api.admission.unauthenticated_count <= PLACES
        assert api.http_api.admission.authenticated_count <= 2


@pytest.mark.parametrize("behave", BEHAVIOURS, ids=lambda behave: behave.__name__)
async def test_and_who_has_authenticated_keeps_its_connection(
    behave: Callable[[list[Line]], Awaitable[None]],
) -> None:
    async with open_service(policy=POLICY, connections_max=2, unauthenticated_connections_max=3) as api:
        reader, writer = await asyncio.open_connection("127.0.0.1", api.port)
        head = ASKED + f"Authorization: Bearer {TOKEN}\r\n\r\n".encode()
        for _ in range(2):
            writer.write(head)
            assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200")
            await reader.readuntil(b"}")
            async with strangers(api, 10) as lines:
                await behave(lines)
        writer.close()


async def test_without_tokens_silence_takes_no_place_either() -> None:
    async with (
        open_service(connections_max=PLACES, unauthenticated_connections_max=PLACES) as api,
        strangers(api, PLACES * 2),
    ):
        assert await ask(api) == 200
        assert api.metrics.cut["made_place"] > PLACES - 1


async def test_the_token_of_a_channel_s_first_message_makes_its_connection_an_authenticated_one() -> None:
    async with (
        open_service(policy=POLICY, connections_max=1, unauthenticated_connections_max=2) as api,
        open_channel(api.http, api.port) as client,
    ):
        assert api.http_api.admission.unauthenticated_count == 1
        assert (await client.call("authenticate", token=TOKEN))[0] == 200
        assert (api.http_api.admission.authenticated_count, api.http_api.admission.unauthenticated_count) == (1, 0)
        async with strangers(api, 5):
            assert (await client.call("fetch", "g"))[0] == 200
        async with open_channel(api.http, api.port) as other:
            status, problem = await other.call("authenticate", token=TOKEN)
            assert (status, problem["limit_name"]) == (429, "connections_max")


async def test_of_channels_that_wait_for_their_token_the_address_with_most_loses_its_oldest() -> None:
    async with AsyncExitStack() as stack:
        api = await stack.enter_async_context(open_service(policy=POLICY))
        honest = await asyncio.open_connection("127.0.0.1", api.port, local_addr=("127.0.0.2", 0))
        stack.callback(honest[1].close)
        honest[1].write(HANDSHAKE)
        assert (await honest[0].readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 101")
        lines = await stack.enter_async_context(strangers(api, UNAUTHENTICATED_MAX + 4))
        for reader, writer in lines:
            writer.write(HANDSHAKE)
            assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 101")
        for line in lines[:5]:
            assert (await ended(line))[2:4] == (1008).to_bytes(2), "a close, and its code"
        assert api.metrics.channels >= UNAUTHENTICATED_MAX
        frame = b'{"op":"authenticate","token":"%s"}' % TOKEN.encode()
        honest[1].write(bytes((0x81, 0x80 | len(frame), 0, 0, 0, 0)) + frame)
        async with asyncio.timeout(ANSWER_SECONDS):
            assert b'"status":200' in await honest[0].readuntil(b"}")


async def test_where_open_files_run_out_connections_are_cut_and_the_log_says_so_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with open_api(FakeService(), files_max=8) as api, strangers(api, 3) as lines:
        assert [await ended(line) for line in lines] == [b"", b"", b""], "every number is above 8 here"
        assert api.metrics.cut == {"open_files": 3}
    warnings = [record.getMessage() for record in caplog.records]
    assert warnings == ["1 connections were cut because the process has as many open files as it may; raise its limit"]


# --- heads of many bytes

HEADERS = b"".join(b"X%d: %b\r\n" % (number, b"v" * 1_000) for number in range(20))


async def holds_too_large_a_head(line: Line) -> None:
    answer = parse_answer(await ended(line))
    assert (answer.status, answer.json["limit_name"], answer.json["limit"]) == (400, "max_head_bytes", 5_000)


async def next_status(reader: asyncio.StreamReader) -> int:
    """The status of the next of several answers."""
    async with asyncio.timeout(ANSWER_SECONDS):
        answer = parse_answer(await reader.readuntil(b"\r\n\r\n"))
        await reader.readexactly(int(answer.headers.get("Content-Length", "0")))
    return answer.status


async def test_a_head_that_does_not_end_is_refused_at_its_last_byte_whoever_sends_it() -> None:
    async with open_service(policy=POLICY, max_head_bytes=5_000) as api, strangers(api, 3) as lines:
        for _, writer in lines:
            writer.write((ASKED + HEADERS)[:5_000])
        assert await ask(api) == 200
        for _, writer in lines:
            assert not writer.transport.is_closing()
            writer.write(b"v")
        for line in lines:
            await holds_too_large_a_head(line)


@pytest.mark.parametrize("piece_bytes", [1, 700, 5_000])
async def test_a_head_is_counted_in_whatever_pieces_it_comes(piece_bytes: int) -> None:
    head = (ASKED + HEADERS)[:4_900].rpartition(b"\r\n")[0]
    whole, one_more = (head + b"\r\nX: " + b"x" * (size - len(head) - 9) + b"\r\n\r\n" for size in (5_000, 5_001))
    async with open_service(max_head_bytes=5_000) as api, strangers(api, 1) as [(reader, writer)]:
        for _ in range(2):
            for at in range(0, len(whole), piece_bytes):
                writer.write(whole[at : at + piece_bytes])
                await asyncio.sleep(0)
            assert await next_status(reader) == 200
        for at in range(0, len(one_more), piece_bytes):
            writer.write(one_more[at : at + piece_bytes])
            await asyncio.sleep(0)
        await holds_too_large_a_head((reader, writer))


async def test_a_head_behind_another_request_is_counted_too() -> None:
    async with open_service(max_head_bytes=5_000) as api, strangers(api, 2) as lines:
        body = b'{"partitions":1}'
        put = b"PUT /v1/topics/t HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
        requests = (ASKED + b"\r\n", put + b"Content-Length: %d\r\n\r\n%b" % (len(body), body))
        for line, before in zip(lines, requests, strict=True):
            line[1].write(before * 3 + ASKED + HEADERS * 3)
            for _ in range(3):
                assert await next_status(line[0]) == 200
            await holds_too_large_a_head(line)


async def test_line_ends_before_a_request_count_as_its_head() -> None:
    async with open_service(max_head_bytes=5_000) as api, strangers(api, 1) as [line]:
        line[1].write(b"\r\n" * 2_501)
        await holds_too_large_a_head(line)


async def test_a_body_does_not_count_nor_do_requests_that_come_in_a_row() -> None:
    body = b'{"partitions":1}'.ljust(60_000)
    put = b"PUT /v1/topics/t HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
    many = ((ASKED + b"\r\n") * 50 + put + b"Content-Length: %d\r\n\r\n%b" % (len(body), body)) * 12
    async with open_service(max_head_bytes=1_024) as api, strangers(api, 1) as [(reader, writer)]:
        writer.write(many)
        for _ in range(12 * 51):
            assert await next_status(reader) == 200


async def test_what_comes_right_behind_a_handshake_is_no_head() -> None:
    call = b'{"id":7,"op":"coordinator","body":{"group_ids":["g"]}}'.ljust(40_000)
    async with open_service(max_head_bytes=1_024) as api, strangers(api, 1) as [(reader, writer)]:
        writer.write(HANDSHAKE + b"\x81\xfe" + len(call).to_bytes(2) + bytes(4) + call)
        assert await next_status(reader) == 101
        async with asyncio.timeout(ANSWER_SECONDS):
            assert b'"status":200' in await reader.readuntil(b'"body"')


# --- they end


LARGE = b"GET /openapi.json HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
STREAM = b"GET /v1/events HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"


@pytest.mark.parametrize("asked", [HANDSHAKE, ASKED + b"\r\n", LARGE, STREAM, ASKED, b"no request\r\n\r\n"])
@pytest.mark.parametrize("resets", [True, False])
async def test_who_hangs_up_before_the_answer_is_no_fault_of_the_service(
    asked: bytes, resets: bool, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "rallypoint")
    async with open_service() as api:
        for _ in range(20):
            with socket.create_connection(("127.0.0.1", api.port)) as gone:
                gone.sendall(asked)  # it is there before the service takes the connection
                if resets:
                    gone.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        assert await ask(api) == 200
        for _ in range(500):
            if not api.metrics.channels:
                break
            await asyncio.sleep(0.01)
        assert api.metrics.channels == 0
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING] == []


async def test_who_says_nothing_is_closed_without_an_answer() -> None:
    async with open_service(request_head_timeout_ms=50) as api, strangers(api, 3) as lines:
        assert [await ended(line) for line in lines] == [b"", b"", b""]
        assert api.metrics.cut == {"head_timeout": 3}


async def test_a_head_that_comes_byte_by_byte_ends_at_its_time() -> None:
    clock = ManualClock()
    async with open_service(clock=clock, request_head_timeout_ms=200) as api, strangers(api, 1) as [line]:
        drip = asyncio.create_task(say_for_ever(line))
        await arrived()
        answer = parse_answer(await ended_in_time(line, clock))
        drip.cancel()
        assert (answer.status, answer.json["limit_name"]) == (400, "request_head_timeout_ms")


async def arrived() -> None:
    """What was written has come to the service, for which a few turns of the event loop are enough."""
    for _ in range(20):
        await asyncio.sleep(0.001)


async def ended_in_time(line: Line, clock: ManualClock) -> bytes:
    """What the service says until it ends the connection, while its time goes on."""
    ending = asyncio.create_task(ended(line))
    while not ending.done():
        clock.move(50)
        await asyncio.sleep(0.005)
    return ending.result()


async def say_for_ever(line: Line) -> None:
    """Past the transport, which ends where a write is refused, with whatever it has not read yet."""
    line[1].write(ASKED + b"X: ")
    own = os.dup(line[1].get_extra_info("socket").fileno())
    try:
        while True:
            with suppress(ConnectionError):
                os.write(own, b"x")
            await asyncio.sleep(0.005)
    finally:
        os.close(own)


async def test_the_head_of_a_later_request_has_its_own_time() -> None:
    clock = ManualClock()
    async with (
        open_service(clock=clock, request_head_timeout_ms=150) as api,
        strangers(api, 1) as [(reader, writer)],
    ):
        writer.write(ASKED + b"\r\n")
        assert (await reader.readuntil(b"}")).startswith(b"HTTP/1.1 200")
        clock.move(300)
        writer.write(ASKED)  # an idle connection lives on, and so does one whose next head comes in parts
        await arrived()
        clock.move(149)
        writer.write(b"\r\n")
        assert (await reader.readuntil(b"}")).startswith(b"HTTP/1.1 200")
        writer.write(ASKED)
        await arrived()
        answer = parse_answer(await ended_in_time((reader, writer), clock))
        assert (answer.status, answer.json["limit_name"]) == (400, "request_head_timeout_ms")


async def test_half_a_head_that_comes_in_the_turn_of_its_connection_is_told_why_it_ends() -> None:
    """As uvloop has it: aiohttp's task has not begun to wait for a request."""
    async with open_service(request_head_timeout_ms=50) as api:
        ours, theirs = socket.socketpair()
        transport, _ = await asyncio.get_running_loop().connect_accepted_socket(asyncio.Protocol, ours)
        line = await asyncio.open_connection(sock=theirs)
        connection = HttpServer(api.http_api)()
        transport.set_protocol(connection)
        connection.connection_made(transport)
        connection.data_received(ASKED)
        assert parse_answer(await ended(line)).json["limit_name"] == "request_head_timeout_ms"
        line[1].close()


async def test_line_ends_between_requests_begin_none() -> None:
    clock = ManualClock()
    async with (
        open_service(clock=clock, request_head_timeout_ms=50) as api,
        strangers(api, 1) as [(reader, writer)],
    ):
        writer.write(ASKED + b"\r\n")
        assert (await reader.readuntil(b"}")).startswith(b"HTTP/1.1 200")
        writer.write(b"\r\n")
        await arrived()
        clock.move(200)
        await arrived()
        writer.write(ASKED + b"\r\n")
        assert (await reader.readuntil(b"}")).startswith(b"HTTP/1.1 200")
        assert not api.metrics.cut


async def test_an_idle_connection_is_closed_and_one_that_waits_for_its_answer_is_not() -> None:
    waits: dict[str, Any] = {"parked_call_max_wait_ms": 60_000}
    async with open_service(keep_alive_timeout_ms=1_000, **waits) as api:
        async with strangers(api, 1) as [line]:
            line[1].write(ASKED + b"\r\n")
            rest = await ended(line)
            assert rest.startswith(b"HTTP/1.1 200")
        async with open_channel(api.http, api.port) as client:
            await client.form("g")
            await asyncio.sleep(1.2)
            assert (await client.call("fetch", "g"))[0] == 200, "a channel is not idle"


async def test_a_member_s_client_goes_on_after_its_idle_connection_was_closed() -> None:
    async with open_service(keep_alive_timeout_ms=1_000) as api:
        transport = HttpTransport()
        url = f"http://127.0.0.1:{api.port}"
        for _ in range(2):
            answer = await transport.call(url, LIST_TOPICS, None, group_id="", timeout_ms=5_000)
            assert isinstance(answer, Answered)
            async with asyncio.timeout(ANSWER_SECONDS):
                while api.http_api.admission.authenticated_count:  # noqa: ASYNC110 - the service's clock decides
                    await asyncio.sleep(0.05)
        await transport.close()


async def test_the_body_of_a_stranger_is_not_waited_for() -> None:
    async with open_service(policy=POLICY, body_timeout_ms=3_600_000) as api, strangers(api, 1) as [line]:
        await send_a_body_slowly([line])
        async with asyncio.timeout(ANSWER_SECONDS):
            assert (await line[0].readline()).startswith(b"HTTP/1.1 401")
