"""What comes over HTTP is parsed by the connection's share of each turn, and all of it is parsed, in order."""

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from rallypoint.coordinator.http.connections import (
    CHUNKS_UNIT_BYTES,
    HEAD_UNIT_BYTES,
    WAITING_BYTES_MAX,
    Connection,
    HttpServer,
)
from rallypoint.coordinator.http.limits.admission import ConnectionLimits
from rallypoint.coordinator.http.limits.turn_share import SHARE_UNITS
from rallypoint.coordinator.http.limits.work_turns import WorkTurns
from rallypoint.coordinator.http.write_coalescing import GatheringTransport
from tests.fakes.manual_clock import ManualClock

TURNS_MAX = 2_000
"""Of the event loop, for anything here."""


async def turns_until(is_so: Callable[[], bool], each_turn: Callable[[], None] = lambda: None) -> int:
    """How many turns of the event loop it takes until it is so."""
    for turn in range(TURNS_MAX):
        if is_so():
            return turn
        each_turn()
        await asyncio.sleep(0)
    raise AssertionError("it does not come to be so")


class Carried:
    """The system's side of a connection: whether it is read."""

    def __init__(self) -> None:
        self._is_read = True
        self.is_cut = False

    def is_read(self) -> bool:
        return self._is_read

    def get_extra_info(self, name: str) -> None:
        return None

    def is_closing(self) -> bool:
        return self.is_cut

    def pause_reading(self) -> None:
        self._is_read = False

    def resume_reading(self) -> None:
        self._is_read = True

    def close(self) -> None:
        self.is_cut = True

    abort = close


class Incoming:
    """Connections of one server, without the task that answers: what was parsed stays."""

    def __init__(self) -> None:
        api = SimpleNamespace(connections=ConnectionLimits(), clock=ManualClock(), turns=WorkTurns())
        self._server = HttpServer(cast(Any, api))

    def connect(self) -> tuple[Connection, Carried]:
        connection, carried = self._server.new_connection(), Carried()
        connection.transport = cast(Any, GatheringTransport(cast(Any, carried), connection.coalescer))
        return connection, carried


CHUNKED = b"POST /x HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n"
CHUNKS = b"1\r\nx\r\n" * 8_000 + b"0\r\n\r\n"
HEADERS = b"".join(b"x%d: %s\r\n" % (number, b"a" * 600) for number in range(100))


async def test_chunks_are_parsed_by_shares_and_not_read_meanwhile() -> None:
    connection, carried = Incoming().connect()
    connection.data_received(CHUNKED)
    assert carried.is_read()
    body = connection._messages[0][1]
    connection.data_received(CHUNKS)
    share_bytes = SHARE_UNITS * CHUNKS_UNIT_BYTES
    before = 0

    def look() -> None:
        nonlocal before
        assert not carried.is_read()
        assert 0 < body.total_bytes - before <= share_bytes // 6 + 1
        before = body.total_bytes

    assert await turns_until(body.is_eof, look) == -(-len(CHUNKS) // share_bytes) - 1
    assert carried.is_read()
    assert body.total_bytes == 8_000


async def test_a_head_is_parsed_by_shares_and_not_read_meanwhile() -> None:
    connection, carried = Incoming().connect()
    connection.data_received(b"GET /x HTTP/1.1\r\nHost: h\r\n" + HEADERS + b"\r\n")
    assert not carried.is_read()
    turns = await turns_until(lambda: bool(connection._messages))
    assert turns == len(HEADERS) // (SHARE_UNITS * HEAD_UNIT_BYTES)
    assert carried.is_read()


async def test_a_body_of_known_length_takes_no_share_and_what_follows_it_does() -> None:
    connection, carried = Incoming().connect()
    connection.data_received(b"POST /x HTTP/1.1\r\nHost: h\r\nContent-Length: 60000\r\n\r\n" + b"x" * 60_000)
    assert carried.is_read()
    assert connection._messages[0][1].is_eof()
    connection.data_received(b"POST /x HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\n\r\n")
    connection.data_received(b"xGET /x HTTP/1.1\r\nHost: h\r\n" + HEADERS + b"\r\n")
    assert not carried.is_read()
    assert len(connection._messages) == 2


async def test_behind_a_request_that_is_answered_large_ones_wait_outside() -> None:
    """Who sends them without a pause has them neither in memory nor read in one turn of the event loop."""
    connection, carried = Incoming().connect()
    size = 200_000
    one = b"POST /x HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n\r\n" % size + b"x" * size
    left = one * 20
    sent, answered = len(left), 0
    while left or connection._unfed:
        pieces = 0
        while left and carried.is_read():
            connection.data_received(left[: 2**18])
            left = left[2**18 :]
            pieces += 1
        assert pieces <= 2
        bodies = [body.total_bytes for _, body in connection._messages]
        assert sum(bodies) <= WAITING_BYTES_MAX + size
        assert len(connection._unfed) <= 2**18
        # What aiohttp does when it takes up the next one.
        assert connection._parser is not None
        connection._messages.popleft()
        connection._parser.message_consumed()
        if connection._buffer_paused:
            connection._resume_reading_if_drained()
        answered += 1
    assert answered + len(connection._messages) == 20
    assert carried.is_read()
    assert connection._request_count == sent // len(one)


async def test_a_small_request_is_parsed_at_once_beside_others_that_wait() -> None:
    incoming = Incoming()
    for _ in range(20):
        incoming.connect()[0].data_received(CHUNKED + CHUNKS)
    connection, carried = incoming.connect()
    connection.data_received(b"GET /healthz HTTP/1.1\r\nHost: h\r\n\r\n")
    assert len(connection._messages) == 1
    assert carried.is_read()


async def test_chunks_that_nobody_reads_are_not_parsed_on_until_somebody_does() -> None:
    connection, carried = Incoming().connect()
    count = 2 * connection._read_bufsize // 4_096 + 100
    connection.data_received(CHUNKED)
    _, body = connection._messages.popleft()  # it is being answered
    connection.data_received((b"1000\r\n" + b"x" * 4_096 + b"\r\n") * count + b"0\r\n\r\n")
    await turns_until(lambda: connection._reading_paused)
    held_bytes = body.total_bytes
    for _ in range(10):
        await asyncio.sleep(0)
    assert body.total_bytes == held_bytes < count * 4_096
    read_bytes = 0

    def read() -> None:
        nonlocal read_bytes
        read_bytes += len(body.read_nowait())

    await turns_until(body.is_eof, read)
    read()
    assert read_bytes == count * 4_096
    assert carried.is_read()


@pytest.mark.parametrize("size_bytes", [1, 7, 4_096, 30_000, 10**6])
async def test_whatever_pieces_come_each_request_is_parsed_whole_and_in_order(size_bytes: int) -> None:
    connection, carried = Incoming().connect()
    sent = (
        CHUNKED + b"5\r\nhello\r\n0\r\n\r\n"
        b"POST /length HTTP/1.1\r\nHost: h\r\nContent-Length: 60000\r\n\r\n" + b"y" * 60_000
        + b"GET /head HTTP/1.1\r\nHost: h\r\n" + HEADERS + b"\r\n"
        + CHUNKED + b"1\r\nz\r\n" * 3_000 + b"0\r\n\r\n"
        b"GET /last HTTP/1.1\r\nHost: h\r\n\r\n"
    )  # fmt: skip
    for at in range(0, len(sent), size_bytes):
        await turns_until(carried.is_read)
        connection.data_received(sent[at : at + size_bytes])
    await turns_until(carried.is_read)
    parsed = [(message.path, bytes(body.read_nowait())) for message, body in connection._messages]  # type: ignore[union-attr]
    assert parsed == [
        ("/x", b"hello"), ("/length", b"y" * 60_000), ("/head", b""), ("/x", b"z" * 3_000), ("/last", b"")
    ]  # fmt: skip
