"""The short way in beside aiohttp's parser: what each of the two takes, together, is what was sent, in order."""

import asyncio
from collections import deque
from collections.abc import Callable
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

from rallypoint.coordinator.http.channel.contract import Wire
from rallypoint.coordinator.http.channel.frames import Head
from rallypoint.coordinator.http.channel.inlet import BEHIND_BYTES, Inlet, text_of_frame
from rallypoint.coordinator.http.connections import Connection
from rallypoint.coordinator.http.limits.turn_share import LAST_UNITS, SHARE_UNITS, TurnShare
from rallypoint.coordinator.http.requests.large_bodies import LARGE_BYTES
from rallypoint.coordinator.http.write_coalescing import GatheringTransport, WriteCoalescer
from tests.fakes.channel_client import beat_body, open_channel
from tests.fakes.raw_channel import frame
from tests.fakes.set_service import open_service

BYTES_MAX = 70_000


Sent = tuple[str, int, bytes]
"""A message: its kind, the length of its payload, its mask."""

MESSAGES: st.SearchStrategy[Sent] = st.tuples(
    st.sampled_from(["text", "text", "text", "binary", "ping", "fragments"]),
    st.sampled_from([0, 1, 3, 124, 125, 126, 127, 300, 65_535, 65_536]),
    st.sampled_from([b"\x37\xfa\x21\x3d", bytes(4)]),
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
        self.on_refused: Callable[[], None] = lambda: None

    def feed_data(self, data: Any, size: int) -> None:
        self._found.append((data[0], bytes(data[1])))

    def set_exception(self, exc: BaseException, *cause: Any) -> None:
        super().set_exception(exc, *cause)
        self.on_refused()


def parser_into(found: list[tuple[Any, bytes]]) -> tuple[WebSocketReader, Queue]:
    queue = Queue(found)
    return WebSocketReader(queue, BYTES_MAX, compress=False, decode_text=False), queue


class Socket:
    """What is under a channel: whether it is read."""

    def __init__(self) -> None:
        self.is_read = True
        self.is_closed = False
        self.written: list[bytes] = []

    def pause_reading(self) -> None:
        assert self.is_read, "paused twice"
        self.is_read = False

    def resume_reading(self) -> None:
        assert not self.is_read, "resumed twice"
        self.is_read = True

    def write(self, data: bytes) -> None:
        self.written.append(data)

    def is_closing(self) -> bool:
        return self.is_closed

    def abort(self) -> None:
        self.is_closed = True


class Ear:
    """A channel with its inlet: what it takes at once, and what is parsed, is in `found`, in order."""

    def __init__(self, share: TurnShare | None = None, now_s: Callable[[], float] = monotonic) -> None:
        self.found: list[tuple[Any, bytes]] = []
        self.refused: list[str] = []
        self.fed: list[bytes] = []
        self.queued: list[object] = []
        self.takes = True
        self.is_authenticated = True
        self.member_count = 0
        self.is_busy = False
        self.bytes_max = 2**30
        self.admitted: Callable[[Head], bool] = lambda _: True
        self.socket = Socket()
        self.share = TurnShare() if share is None else share
        self.transport = GatheringTransport(cast(Any, self.socket), WriteCoalescer())
        self._parser, queue = parser_into(self.found)
        self.inlet = Inlet(
            self, self.queued, self._feed, self.transport, self.share,
            on_heard=lambda: None, bytes_max=BYTES_MAX, now_s=now_s,
        )  # fmt: skip
        queue.on_refused = self.inlet.close

    def reads(self) -> bool:
        """Whether the connection is read."""
        return self.socket.is_read

    async def serve(self, socket: Wire) -> None:
        """Not here."""

    def take_at_once(self, text: bytes) -> bool:
        if self.takes:
            self.found.append((WSMsgType.TEXT, text))
        return self.takes

    def admits(self, head: Head) -> bool:
        return self.admitted(head)

    def heard_behind(self) -> None:
        """Nobody's life depends on it here."""

    def may_grow(self, size_bytes: int) -> bool:
        return size_bytes <= self.bytes_max

    def refuse_frame(self, detail: str) -> None:
        self.refused.append(detail)

    def _feed(self, data: bytes) -> None:
        self.fed.append(data)
        self._parser.feed_data(data)

    async def receive(self, chunks: list[bytes]) -> int:
        """Hand it over as the system would, which hands over nothing where it is not read. The most in a turn."""
        most, waiting = 0, deque(chunks)
        while (waiting and self.reads()) or len(self.share):
            before = len(self.found)
            if waiting and self.reads():
                self.inlet.take(waiting.popleft())
            most = max(most, len(self.found) - before)
            await asyncio.sleep(0)
        return most


@settings(deadline=None)
@given(st.lists(MESSAGES, min_size=1, max_size=6), st.lists(st.integers(0, 400_000), max_size=6), st.booleans())
def test_both_ways_together_find_what_one_parser_finds(sent: list[Sent], places: list[int], whole: bool) -> None:
    frames = [each for number, message in enumerate(sent) for each in frames_of(number, message)]
    chunks = frames if whole else cut(b"".join(frames), places)
    expected: list[tuple[Any, bytes]] = []
    parser_into(expected)[0].feed_data(b"".join(frames))

    async def receive() -> list[tuple[Any, bytes]]:
        ear = Ear()
        await ear.receive(chunks)
        return ear.found

    assert asyncio.run(receive()) == expected


async def test_lone_texts_are_taken_at_once_but_not_within_a_message_in_fragments() -> None:
    last = frame(b"four")
    chunks = [frame(b"one"), frame(b"", 0x8A), frame(b"three"), last[:1], last[1:], frame(b"5" * 200)]
    chunks += [frame(b"6", 0x01), frame(b"7", 0x80), frame(b"8")]
    ear = Ear()
    await ear.receive(chunks)
    assert [data for _, data in ear.found] == [b"one", b"", b"three", b"four", b"5" * 200, b"67", b"8"]
    assert ear.fed == [chunks[1], last, chunks[6], chunks[7]]


# --- its share of a turn ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "one",
    [frame(b""), frame(b"a" * 100), frame(b"", 0x82), frame(b"", 0x89), frame(b"", 0x8A)],
    ids=lambda one: one[:2],
)
async def test_a_flood_has_its_share_of_each_turn_and_is_not_read_meanwhile(one: bytes) -> None:
    ear = Ear()
    ear.inlet.take(one * 1_000)
    assert len(ear.found) == SHARE_UNITS, "more than its share was taken as it came"
    assert not ear.reads()
    turns = 0
    while not ear.reads():
        before = len(ear.found)
        await asyncio.sleep(0)
        assert 0 < len(ear.found) - before <= SHARE_UNITS
        turns += 1
    assert len(ear.found) == 1_000
    assert turns == 1_000 // SHARE_UNITS


async def test_who_sends_little_is_taken_at_once_beside_floods() -> None:
    share = TurnShare()
    floods = [Ear(share) for _ in range(20)]
    for flood in floods:
        flood.inlet.take(frame(b"flood") * 10_000)
    await asyncio.sleep(0)
    bystander = Ear(share)
    bystander.inlet.take(frame(b"one"))
    assert bystander.found == [(WSMsgType.TEXT, b"one")]
    await asyncio.sleep(0)
    bystander.inlet.take(frame(b"two") + frame(b"three"))
    assert [data for _, data in bystander.found] == [b"one", b"two", b"three"]
    assert bystander.reads()
    for flood in floods:
        flood.inlet.close()
    await asyncio.sleep(0)


async def test_a_host_of_many_members_goes_before_floods_however_many_they_are() -> None:
    share, now_s = TurnShare(), 0.0
    floods = [Ear(share, lambda: now_s) for _ in range(100)]
    for flood in floods:
        flood.inlet.take(frame(b"flood") * 10_000)
    host = Ear(share, lambda: now_s)
    host.member_count = 600
    for beats in range(1, 4):
        # A turn takes 5 ms, so a share for each alone would take 600 of them.
        for _ in range(400):
            now_s += 0.005
            await asyncio.sleep(0)
        before, turns = sum(len(flood.found) for flood in floods), 0
        host.inlet.take(frame(b"beat") * 600)
        while not host.reads():
            now_s += 0.005
            await asyncio.sleep(0)
            turns += 1
        assert len(host.found) == 600 * beats
        assert turns <= 2 * 600 // SHARE_UNITS
        assert sum(len(flood.found) for flood in floods) - before >= turns * LAST_UNITS, "the floods starve"
    for flood in floods:
        flood.inlet.close()
    await asyncio.sleep(0)


async def test_large_frames_weigh_more() -> None:
    ear = Ear()
    ear.inlet.take(frame(b"a" * 60_000) * 4)
    assert len(ear.found) == 1
    await ear.receive([])
    assert len(ear.found) == 4


async def test_nothing_is_parsed_while_the_channel_has_something_to_take() -> None:
    ear = Ear()
    ear.takes = False
    ear.queued.append(object())
    ear.inlet.take(frame(b"one"))
    await asyncio.sleep(0)
    assert (ear.found, ear.reads()) == ([], False)
    ear.queued.clear()
    ear.inlet.queue_is_empty()
    await asyncio.sleep(0)
    assert (ear.found, ear.reads()) == ([(WSMsgType.TEXT, b"one")], True)


async def test_who_is_not_known_is_looked_at_frame_by_frame() -> None:
    ear = Ear()
    ear.is_authenticated = False
    seen: list[int] = []

    def admit(head: Head) -> bool:
        seen.append(len(ear.found))
        return len(ear.found) < 3

    ear.admitted = admit
    ear.inlet.take(frame(b"one") * 100)
    assert seen == [0, 1, 2, 3], "a frame was looked at before the one in front of it was taken"
    assert len(ear.found) == 3
    assert not ear.reads()
    ear.inlet.take(frame(b"more"))
    await asyncio.sleep(0)
    assert len(ear.found) == 3, "something was taken after the end"


async def test_what_comes_before_a_broken_frame_is_taken_and_nothing_after_it() -> None:
    ear = Ear()
    ear.inlet.take(frame(b"one") + frame(b"two", mask=b"") + frame(b"three") * 100)
    await asyncio.sleep(0)
    assert ear.found == [(WSMsgType.TEXT, b"one")]
    assert ear.refused == ["a client masks its frames"]
    assert not ear.reads()


async def test_a_message_that_may_not_grow_is_taken_no_further() -> None:
    ear = Ear()
    ear.bytes_max = LARGE_BYTES + 1_000
    part = frame(b"a" * 30_000, 0x00)
    ear.inlet.take(frame(b"a" * 30_000, 0x01))
    await ear.receive([part, part, part])
    assert len(ear.fed) == 2
    assert ear.found == []
    assert not ear.reads()


async def test_a_connection_that_is_lost_in_its_turn_takes_nothing_more() -> None:
    ear = Ear()
    ear.inlet.take(frame(b"one") * 100)
    ear.socket.is_closed = True
    before = len(ear.found)
    ear.inlet.close()
    await asyncio.sleep(0)
    assert len(ear.found) == before
    assert not len(ear.share)


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


async def test_a_text_that_is_not_taken_goes_the_other_way() -> None:
    ear = Ear()
    ear.takes = False
    ear.inlet.take(frame(b"one"))
    assert ear.fed == [frame(b"one")]


async def test_what_came_with_the_handshake_is_taken_first() -> None:
    ear = Ear()
    one = frame(b"one")
    released: list[str] = []
    connection = SimpleNamespace(
        _message_tail=one[:2], _unfed=one[2:4], inlet=None, _release_reading=lambda: released.append("read on")
    )
    ear.inlet.take(Connection.open_inlet(cast(Any, connection), ear.inlet))
    assert (connection.inlet, connection._message_tail, connection._unfed) == (ear.inlet, b"", b"")
    assert released
    ear.inlet.take(one[4:])
    ear.inlet.take(one)
    assert [data for _, data in ear.found] == [b"one", b"one"]


# --- its ping --------------------------------------------------------------------------------------------------------


async def test_who_speaks_is_not_pinged_and_whatever_comes_answers_a_ping() -> None:
    async with open_service(channel_ping_interval_ms=200) as api:
        async with open_channel(api.http, api.port, autoping=False) as client:
            joined = await client.form("g")
            for _ in range(20):
                assert (await client.call("heartbeat", "g", beat_body(joined)))[0] == 200
                await asyncio.sleep(0.04)
            for _ in range(3):
                # Read past the client's own handling: the ping is a message here, and stays unanswered.
                message = await client.socket.receive(timeout=30)
                assert message.type is WSMsgType.PING
                assert (await client.call("heartbeat", "g", beat_body(joined)))[0] == 200
        assert not api.metrics.closed["unanswered_ping"]


async def test_who_falls_silent_after_texts_is_pinged_and_given_up() -> None:
    async with (
        open_service(channel_ping_interval_ms=100) as api,
        open_channel(api.http, api.port, autoping=False) as client,
    ):
        joined = await client.form("g")
        assert (await client.call("heartbeat", "g", beat_body(joined)))[0] == 200
        async with asyncio.timeout(5):
            while not api.metrics.closed["unanswered_ping"]:  # noqa: ASYNC110 - the service's clock decides
                await asyncio.sleep(0.02)


async def test_behind_a_message_that_takes_long_a_little_is_read() -> None:
    ear = Ear()
    ear.queued.append("a large commit, which the channel has not come to yet")
    ear.inlet.take(frame(b"beat"))
    assert not ear.reads()
    ear.is_busy = True
    ear.inlet.read_behind()
    assert ear.reads()
    count = 0
    while ear.reads():
        ear.inlet.take(frame(b"x" * 1_000))
        count += 1
    assert 0 <= count * 1_000 - BEHIND_BYTES <= 1_000
    ear.is_busy = False
    ear.queued.clear()
    ear.inlet.queue_is_empty()
    await ear.receive([])
    assert ear.reads()
    assert len(ear.found) == 1 + count
