"""The short way in beside aiohttp's parser: what each of the two takes, together, is what was sent, in order."""

import asyncio
from collections import deque
from itertools import pairwise
from time import monotonic
from types import SimpleNamespace
from typing import Any, cast

import pytest
from aiohttp import WSMsgType
from aiohttp._websocket.reader import WebSocketDataQueue
from aiohttp.http_websocket import WebSocketReader
from hypothesis import given, settings
from hypothesis import strategies as st

from coordinator.http.connections import Connection, DoorServer
from coordinator.http.session_inlet import RESTED_S, Inlet, frame_bytes, text_of_frame
from coordinator.http.turn_end import GatheringTransport, TurnEnd
from tests.fakes.session_client import beat_body, open_session
from tests.fakes.set_service import open_service

BYTES_MAX = 70_000


def frame(payload: bytes, first: int = 0x81, mask: bytes = b"\x37\xfa\x21\x3d") -> bytes:
    """A frame of a client; without a mask one that it must not send."""
    length, bit = len(payload), 0x80 if mask else 0
    if length < 126:
        head = bytes((first, bit | length))
    elif length < 65_536:
        head = bytes((first, bit | 126)) + length.to_bytes(2)
    else:
        head = bytes((first, bit | 127)) + length.to_bytes(8)
    key = int.from_bytes((mask or bytes(4)) * (length // 4) + (mask or bytes(4))[: length % 4])
    return head + mask + (int.from_bytes(payload) ^ key).to_bytes(length)


Sent = tuple[str, int, bytes]
"""A message: its kind, the length of its payload, its mask."""

MESSAGES: st.SearchStrategy[Sent] = st.tuples(
    st.sampled_from(["text", "text", "text", "binary", "ping", "fragments"]),
    st.sampled_from([0, 1, 3, 124, 125, 126, 127, 300, 65_535, 65_536]),
    st.sampled_from([b"\x37\xfa\x21\x3d", bytes(4), b""]),
)


def frames_of(number: int, sent: Sent) -> list[bytes]:
    """The frames of the message with that number."""
    kind, length, mask = sent
    payload = (b"%d " % number * length)[:length]
    match kind:
        case "text":
            return [frame(payload, mask=mask)]
        case "binary":
            return [frame(payload, 0x82, mask)]
        case "ping":
            return [frame(payload[:125], 0x89, mask)]
        case _:
            return [frame(payload, 0x01, mask), frame(b"ping", 0x89, mask), frame(payload, 0x80, mask)]


def cut(stream: bytes, places: list[int]) -> list[bytes]:
    edges = [0, *sorted(place % (len(stream) + 1) for place in places), len(stream)]
    return [stream[begin:end] for begin, end in pairwise(edges) if begin < end]


class Queue(WebSocketDataQueue):
    """Keeps what the parser finds."""

    def __init__(self, found: list[tuple[Any, bytes]]) -> None:
        super().__init__(cast(Any, None), 2**30, loop=cast(Any, None))
        self._found = found

    def feed_data(self, data: Any, size: int) -> None:
        self._found.append((data[0], bytes(data[1])))


def parser_into(found: list[tuple[Any, bytes]]) -> WebSocketReader:
    return WebSocketReader(Queue(found), BYTES_MAX, compress=False, decode_text=False)


@settings(deadline=None)
@given(st.lists(MESSAGES, min_size=1, max_size=6), st.lists(st.integers(0, 400_000), max_size=6), st.booleans())
def test_both_ways_together_find_what_one_parser_finds(sent: list[Sent], places: list[int], whole: bool) -> None:
    frames = [each for number, message in enumerate(sent) for each in frames_of(number, message)]
    chunks = frames if whole else cut(b"".join(frames), places)
    expected: list[tuple[Any, bytes]] = []
    parser_into(expected).feed_data(b"".join(frames))

    def receive() -> list[tuple[Any, bytes]]:
        found: list[tuple[Any, bytes]] = []

        def take(text: bytes) -> bool:
            found.append((WSMsgType.TEXT, text))
            return True

        parser = parser_into(found)
        inlet = Inlet(take, (), lambda: None, TurnEnd(), BYTES_MAX, monotonic)
        for chunk in chunks:
            if not inlet.take(chunk):
                parser.feed_data(chunk)
        return found

    assert receive() == expected


def test_lone_texts_are_taken_until_a_message_comes_in_fragments() -> None:
    taken: list[bytes] = []
    last = frame(b"four")
    chunks = [frame(b"one"), frame(b"", 0x8A), frame(b"three"), last[:1], last[1:], frame(b"5" * 200)]
    chunks += [frame(b"6", 0x01), frame(b"7", 0x80), frame(b"8")]

    def take(text: bytes) -> bool:
        taken.append(text)
        return True

    def receive() -> list[bool]:
        inlet = Inlet(take, (), lambda: None, TurnEnd(), BYTES_MAX, monotonic)
        return [inlet.take(chunk) for chunk in chunks]

    ways = receive()
    assert ways == [True, False, True, False, False, True, False, False, False]
    assert taken == [b"one", b"three", b"5" * 200]


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x81",
        frame(b"a", mask=b""),
        frame(b"a", 0x82),
        frame(b"a", 0xC1),
        frame(b"a" * 65_536),
        frame(b"a") + frame(b"b"),
        frame(b"abc")[:-1],
        b"\x81\xfe\x00\x7e",
        frame(b"a" * 100),
    ],
)
def test_what_is_not_a_lone_small_text_goes_the_other_way(data: bytes) -> None:
    assert text_of_frame(data, 100) is None


def test_a_frame_says_how_long_it_is_once_its_length_is_there() -> None:
    for payload in (b"", b"a" * 125, b"a" * 126, b"a" * 65_536):
        for mask in (b"", b"abcd"):
            whole = frame(payload, mask=mask)
            end = 2 if len(payload) < 126 else 4 if len(payload) < 65_536 else 10
            assert [frame_bytes(whole[:size]) for size in (end - 1, end, end + 4)] == [None, len(whole), len(whole)]


async def test_a_text_waits_behind_what_is_queued_and_goes_the_other_way_where_it_is_not_taken() -> None:
    queued = deque[object]()
    offered: list[bytes] = []

    def refuse(text: bytes) -> bool:
        offered.append(text)
        return False

    inlet = Inlet(refuse, queued, lambda: None, TurnEnd(), BYTES_MAX, monotonic)
    assert not inlet.take(frame(b"one"))
    queued.append(object())
    assert not inlet.take(frame(b"two"))
    assert offered == [b"one"]


async def test_what_came_with_the_handshake_goes_the_other_way_to_its_end() -> None:
    inlet = Inlet(lambda _: True, (), lambda: None, TurnEnd(), BYTES_MAX, monotonic)
    one = frame(b"one")
    Connection.open_inlet(cast(Any, SimpleNamespace(_message_tail=one[:3])), inlet)
    assert [inlet.take(chunk) for chunk in (one[3:], one)] == [False, True]


# --- who is at rest --------------------------------------------------------------------------------------------------


class Door:
    """One session's inlet whose calls are answered, or wait."""

    def __init__(self) -> None:
        self.turn_end = TurnEnd()
        self.answers = True
        self._transport = GatheringTransport(
            cast(Any, SimpleNamespace(write=lambda _: None, is_closing=lambda: False)), self.turn_end
        )
        self.inlet = Inlet(self._take, (), lambda: None, self.turn_end, BYTES_MAX, monotonic)

    def _take(self, text: bytes) -> bool:
        if self.answers:
            self._transport.write(b"answer")
        return True

    async def turn(self, *chunks: bytes, rests: bool = True) -> tuple[int, bool]:
        """What the turn's end will see of what comes in it."""
        if rests:
            self.inlet.heard_at_s -= RESTED_S
        for chunk in chunks:
            self.inlet.take(chunk)
        seen = self.turn_end.rested_count, self.turn_end.is_pressed
        await asyncio.sleep(0)
        self.turn_end.is_pressed = False
        return seen


async def test_a_call_of_who_was_silent_is_at_rest_and_all_else_is_not() -> None:
    door = Door()
    door.inlet.heard_at_s = monotonic()
    assert await door.turn(frame(b"a")) == (1, False)
    assert await door.turn(frame(b"a"), rests=False) == (0, True), "it spoke a moment ago"
    assert await door.turn(frame(b"a"), frame(b"b")) == (1, True), "two calls at once"
    assert await door.turn(frame(b"", 0x8A)) == (0, True), "no text"
    door.answers = False
    assert await door.turn(frame(b"a")) == (0, True), "a call that waits for its answer"


async def test_a_request_over_http_is_not_at_rest() -> None:
    async with open_service() as door:
        connection = DoorServer(door.door)()
        connection.data_received(b"POST /v1")
        assert connection.turn_end.is_pressed


# --- its ping --------------------------------------------------------------------------------------------------------


async def test_who_speaks_is_not_pinged_and_whatever_comes_answers_a_ping() -> None:
    async with open_service(session_ping_interval_ms=200) as door:
        async with open_session(door.session, door.port, autoping=False) as client:
            joined = await client.form("g")
            for _ in range(20):
                assert (await client.call("heartbeat", "g", beat_body(joined)))[0] == 200
                await asyncio.sleep(0.04)
            for _ in range(3):
                # Read past the client's own handling: the ping is a message here, and stays unanswered.
                message = await client.socket.receive(timeout=5)
                assert message.type is WSMsgType.PING
                assert (await client.call("heartbeat", "g", beat_body(joined)))[0] == 200
        assert not door.figures.closed["unanswered_ping"]


async def test_who_falls_silent_after_texts_is_pinged_and_given_up() -> None:
    async with (
        open_service(session_ping_interval_ms=100) as door,
        open_session(door.session, door.port, autoping=False) as client,
    ):
        joined = await client.form("g")
        assert (await client.call("heartbeat", "g", beat_body(joined)))[0] == 200
        async with asyncio.timeout(5):
            while not door.figures.closed["unanswered_ping"]:  # noqa: ASYNC110 - the service's clock decides
                await asyncio.sleep(0.02)
