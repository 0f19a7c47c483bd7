"""The way in of a channel: what is taken is what was sent, in order, and no more of it in a turn than its share."""

import asyncio
from collections import deque
from collections.abc import Callable
from itertools import pairwise
from time import monotonic
from types import SimpleNamespace
from typing import Any, cast

import pytest
from aiohttp import WSMsgType
from hypothesis import given, settings
from hypothesis import strategies as st
from websockets.frames import Frame

from rallypoint.coordinator.http.channel.contract import AUTHENTICATE_MAX_BYTES, BrokenBy, Wire
from rallypoint.coordinator.http.channel.incoming import BEHIND_BYTES, SLICE_BYTES, Incoming, Message
from rallypoint.coordinator.http.channel.pings import Pings
from rallypoint.coordinator.http.channel.websocket import WebSocket
from rallypoint.coordinator.http.connections import Connection
from rallypoint.coordinator.http.limits.turn_share import LAST_UNITS, SHARE_UNITS, TurnShare
from rallypoint.coordinator.http.requests.large_bodies import LARGE_BYTES
from rallypoint.coordinator.http.write_coalescing import GatheringTransport, WriteCoalescer
from tests.fakes.channel_client import beat_body, open_channel
from tests.fakes.manual_clock import ManualClock
from tests.fakes.raw_channel import frame
from tests.fakes.set_service import open_service

BYTES_MAX = 140_000


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


def messages_of(number: int, sent: Sent) -> list[Message]:
    """What is to be taken of it."""
    kind, length, _ = sent
    payload = (b"%d " % number * length)[:length]
    match kind:
        case "text":
            return [Message(WSMsgType.TEXT, payload)]
        case "binary":
            return [Message(WSMsgType.BINARY, payload)]
        case "ping":
            return [Message(WSMsgType.PING, payload[:125])]
        case _:
            return [Message(WSMsgType.PING, b"ping"), Message(WSMsgType.TEXT, payload * 2)]


def cut(stream: bytes, places: list[int]) -> list[bytes]:
    edges = [0, *sorted(place % (len(stream) + 1) for place in places), len(stream)]
    return [stream[begin:end] for begin, end in pairwise(edges) if begin < end]


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

    def writelines(self, list_of_data: list[bytes]) -> None:
        self.written.extend(list_of_data)

    def is_closing(self) -> bool:
        return self.is_closed

    def abort(self) -> None:
        self.is_closed = True


class Ear:
    """A channel with its way in. Whatever it takes is in `found`, in order; while it `rests`, it receives nothing."""

    def __init__(self, share: TurnShare | None = None, now_s: Callable[[], float] = monotonic) -> None:
        self.found: list[Message] = []
        self.refused: list[tuple[BrokenBy, str]] = []
        self.takes = True
        self.rests = False
        self.permit: object | None = object()
        self.member_count = 0
        self.is_busy = False
        self.bytes_max = 2**30
        self.answer: Callable[[], None] = lambda: None
        self.admitted: Callable[[Frame], bool] = lambda _: True
        self.close_count = 0
        self.socket = Socket()
        self.share = TurnShare() if share is None else share
        self.incoming = Incoming(
            self, GatheringTransport(cast(Any, self.socket), WriteCoalescer()), self.share,
            on_close=self.count_close, on_lost=lambda error: None,
            bytes_max=BYTES_MAX, now_ms=lambda: 0, now_s=now_s,
        )  # fmt: skip

    def reads(self) -> bool:
        """Whether the connection is read."""
        return self.socket.is_read

    async def serve(self, socket: Wire) -> None:
        """Not here."""

    def take_at_once(self, text: bytes) -> bool:
        if self.takes:
            self.found.append(Message(WSMsgType.TEXT, text))
            self.answer()
        return self.takes

    def admits(self, frame: Frame) -> bool:
        return self.admitted(frame)

    def count_close(self) -> None:
        self.close_count += 1

    def answer_ping_at_once(self, payload: bytes) -> bool:
        return False

    def may_grow(self, size_bytes: int) -> bool:
        return size_bytes <= self.bytes_max

    def refuse(self, broken: BrokenBy, detail: str) -> None:
        self.refused.append((broken, detail))

    async def receive_queued(self) -> None:
        """As the channel does, as long as there is something."""
        while self.incoming.has_queued and not self.rests:
            self.found.append(await self.incoming.receive())
            await self.look_for_next()

    async def look_for_next(self) -> None:
        """Ask for a message if there is none, and give up in the same turn."""
        if self.incoming.has_queued:
            return
        asking = asyncio.ensure_future(self.incoming.receive())
        await asyncio.sleep(0)
        if asking.done():
            self.found.append(asking.result())
        else:
            asking.cancel()
            await asyncio.wait((asking,))

    async def receive(self, chunks: list[bytes]) -> int:
        """Hand it over as the system would, which hands over nothing while it is not read. The most in a turn."""
        most, waiting = 0, deque(chunks)
        while (waiting and self.reads()) or len(self.share):
            before = len(self.found)
            if waiting and self.reads():
                self.incoming.take(waiting.popleft())
            await self.receive_queued()
            most = max(most, len(self.found) - before)
            await asyncio.sleep(0)
            await self.receive_queued()
        return most


@settings(deadline=None)
@given(
    st.lists(MESSAGES, min_size=1, max_size=6),
    st.lists(st.integers(0, 400_000), max_size=6),
    st.booleans(),
    st.booleans(),
)
def test_what_is_taken_is_what_was_sent_in_order_however_it_is_cut(
    sent: list[Sent], places: list[int], whole: bool, takes: bool
) -> None:
    frames = [each for number, message in enumerate(sent) for each in frames_of(number, message)]
    chunks = frames if whole else cut(b"".join(frames), places)
    expected = [each for number, message in enumerate(sent) for each in messages_of(number, message)]

    async def receive() -> list[Message]:
        ear = Ear()
        ear.takes = takes
        await ear.receive(chunks)
        assert ear.refused == []
        return ear.found

    assert asyncio.run(receive()) == expected


async def test_a_text_is_taken_in_the_call_that_brings_it_but_not_before_one_that_waits() -> None:
    ear = Ear()
    ear.incoming.take(frame(b"one") + frame(b"two", 0x01) + frame(b"", 0x8A) + frame(b"s", 0x80))
    assert [data for _, data in ear.found] == [b"one", b"twos"]
    ear.rests = True
    ear.incoming.take(frame(b"three", 0x82) + frame(b"four"))
    assert len(ear.found) == 2, "a text was taken before a message that waits"
    ear.rests = False
    await ear.receive_queued()
    await ear.receive([])
    assert [data for _, data in ear.found[2:]] == [b"three", b"four"]


async def test_a_close_is_told_before_it_is_received_and_nothing_is_taken_behind_it() -> None:
    ear = Ear()
    ear.incoming.take(frame(b"one") + frame((1000).to_bytes(2) + b"bye", 0x88) + frame(b"two"))
    assert ear.close_count == 1
    await ear.receive_queued()
    await ear.receive([frame(b"three")])
    assert ear.found == [Message(WSMsgType.TEXT, b"one"), Message(WSMsgType.CLOSE, b"\x03\xe8bye")]


async def test_who_waits_for_a_message_learns_that_the_connection_is_lost_again_and_again() -> None:
    ear = Ear()
    receiving = asyncio.ensure_future(ear.incoming.receive())
    await asyncio.sleep(0)
    ear.incoming.lose(None)
    assert (await receiving).type is WSMsgType.CLOSED
    assert (await ear.incoming.receive()).type is WSMsgType.CLOSED


# --- its share of a turn ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "one",
    [frame(b""), frame(b"a" * 100)],
    ids=["empty", "short"],
)
async def test_a_flood_has_its_share_of_each_turn_and_is_not_read_meanwhile(one: bytes) -> None:
    ear = Ear()
    ear.incoming.take(one * 1_000)
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
        flood.incoming.take(frame(b"flood") * 10_000)
    await asyncio.sleep(0)
    bystander = Ear(share)
    bystander.incoming.take(frame(b"one"))
    assert bystander.found == [Message(WSMsgType.TEXT, b"one")]
    await asyncio.sleep(0)
    bystander.incoming.take(frame(b"two") + frame(b"three"))
    assert [data for _, data in bystander.found] == [b"one", b"two", b"three"]
    assert bystander.reads()
    for flood in floods:
        flood.incoming.close()
    await asyncio.sleep(0)


async def test_a_host_of_many_members_goes_before_floods_however_many_they_are() -> None:
    share, now_s = TurnShare(), 0.0
    floods = [Ear(share, lambda: now_s) for _ in range(100)]
    for flood in floods:
        flood.incoming.take(frame(b"flood") * 10_000)
    host = Ear(share, lambda: now_s)
    host.member_count = 600
    for beats in range(1, 4):
        # A turn takes 5 ms, so a share for each alone would take 600 of them.
        for _ in range(400):
            now_s += 0.005
            await asyncio.sleep(0)
        before, turns = sum(len(flood.found) for flood in floods), 0
        host.incoming.take(frame(b"beat") * 600)
        while not host.reads():
            now_s += 0.005
            await asyncio.sleep(0)
            turns += 1
        assert len(host.found) == 600 * beats
        assert turns <= 2 * 600 // SHARE_UNITS
        assert sum(len(flood.found) for flood in floods) - before >= turns * LAST_UNITS, "the floods starve"
    for flood in floods:
        flood.incoming.close()
    await asyncio.sleep(0)


async def test_large_frames_weigh_more() -> None:
    ear = Ear()
    ear.incoming.take(frame(b"a" * 60_000) * 4)
    assert len(ear.found) == 1
    await ear.receive([])
    assert len(ear.found) == 4


def answering(share: TurnShare, answer_bytes: int) -> tuple[Ear, WebSocket]:
    """A channel that answers each text at once, by so many bytes."""
    ear = Ear(share)
    transport = GatheringTransport(cast(Any, ear.socket), WriteCoalescer())
    pings = Pings(ManualClock())
    socket = WebSocket(ear, transport, share, pings, lambda: None, ping_ms=60_000, bytes_max=BYTES_MAX)
    ear.answer = lambda: socket.send_text(b"a" * answer_bytes)
    return ear, socket


async def test_what_is_answered_weighs_too() -> None:
    share = TurnShare()
    ear, socket = answering(share, 200_000)
    socket.incoming.take(frame(b"fetch") * 4)
    assert len(ear.found) == 1
    for taken in range(2, 5):
        await asyncio.sleep(0)
        assert len(ear.found) == taken
    socket.stop()


async def test_lone_texts_of_many_that_are_answered_by_much_are_taken_in_turns() -> None:
    share = TurnShare()
    many = [answering(share, 200_000) for _ in range(5)]
    for _, socket in many:
        socket.incoming.take(frame(b"fetch"))
    assert [len(ear.found) for ear, _ in many] == [1, 0, 0, 0, 0]
    bystander = Ear(share)
    for taken in range(2, 6):
        await asyncio.sleep(0)
        assert sum(len(ear.found) for ear, _ in many) == taken
        bystander.incoming.take(frame(b"beat"))
        assert len(bystander.found) == taken - 1
    for _, socket in many:
        socket.stop()


@pytest.mark.parametrize("first", [0x82, 0x89], ids=["binary", "ping"])
async def test_what_has_to_wait_comes_one_by_one_and_is_not_read_meanwhile(first: int) -> None:
    ear = Ear()
    ear.rests = True
    ear.incoming.take(frame(b"", first) * 1_000)
    assert (len(ear.incoming._queue), ear.reads()) == (1, False)
    ear.rests = False
    await ear.receive_queued()
    await ear.receive([])
    assert len(ear.found) == 1_000


async def test_a_flood_of_signs_of_life_has_its_share_of_each_turn() -> None:
    ear = Ear()
    seen: list[Frame] = []
    ear.admitted = lambda each: not seen.append(each)  # type: ignore[func-returns-value]
    ear.incoming.take(frame(b"", 0x8A) * 1_000)
    assert (len(seen), ear.reads()) == (SHARE_UNITS, False)
    while not ear.reads():
        before = len(seen)
        await asyncio.sleep(0)
        assert 0 < len(seen) - before <= SHARE_UNITS
    assert len(seen) == 1_000


async def test_no_more_is_parsed_at_once_than_a_slice() -> None:
    ear = Ear()
    ear.rests = True
    ear.takes = False
    ear.incoming.take(frame(b"") * 1_000)
    assert len(ear.incoming._frames) <= SLICE_BYTES // len(frame(b""))
    assert len(ear.incoming._came) - ear.incoming._at >= 1_000 * len(frame(b"")) - SLICE_BYTES


async def test_nothing_is_taken_while_the_channel_has_something_to_take() -> None:
    ear = Ear()
    ear.rests = True
    ear.incoming.take(frame(b"", 0x89))
    ear.incoming.take(frame(b"one"))
    await asyncio.sleep(0)
    assert (ear.found, ear.reads()) == ([], False)
    ear.rests = False
    await ear.receive_queued()
    await ear.receive([])
    assert (ear.found[1:], ear.reads()) == ([Message(WSMsgType.TEXT, b"one")], True)


async def test_who_is_not_known_is_looked_at_frame_by_frame() -> None:
    ear = Ear()
    ear.permit = None
    seen: list[int] = []

    def admit(_: Frame) -> bool:
        seen.append(len(ear.found))
        return len(ear.found) < 3

    ear.admitted = admit
    ear.incoming.take(frame(b"one") * 100)
    assert seen == [0, 1, 2, 3], "a frame was looked at before the one in front of it was taken"
    assert len(ear.found) == 3
    assert ear.reads(), "unread bytes would reset the connection before its client reads why"
    ear.incoming.take(frame(b"more"))
    await asyncio.sleep(0)
    assert len(ear.found) == 3, "something was taken after the end"


async def test_what_comes_before_a_broken_frame_is_taken_and_nothing_after_it() -> None:
    ear = Ear()
    ear.incoming.take(frame(b"one") + frame(b"two", mask=b"") + frame(b"three") * 100)
    await asyncio.sleep(0)
    assert ear.found == [Message(WSMsgType.TEXT, b"one")]
    assert ear.refused == [(BrokenBy.FRAME, "incorrect masking")]
    assert ear.reads()
    ear.incoming.take(frame(b"four"))
    assert len(ear.found) == 1


async def test_a_message_that_may_not_grow_is_taken_no_further() -> None:
    ear = Ear()
    ear.bytes_max = LARGE_BYTES + 1_000
    part = frame(b"a" * 30_000, 0x00)
    ear.incoming.take(frame(b"a" * 30_000, 0x01))
    await ear.receive([part, part, part])
    assert ear.found == []
    assert ear.reads()
    assert ear.incoming.is_over


async def test_a_stranger_s_message_that_grows_is_taken_no_further() -> None:
    ear = Ear()
    ear.permit = None
    text = frame(b"a" * (AUTHENTICATE_MAX_BYTES + SLICE_BYTES))
    ear.incoming.take(text[:AUTHENTICATE_MAX_BYTES])
    assert (ear.refused, ear.reads()) == ([], True)
    ear.incoming.take(text[AUTHENTICATE_MAX_BYTES:-1])
    assert (ear.refused, ear.found) == ([(BrokenBy.SIZE, "")], [])


@pytest.mark.parametrize("split", [1, 3, 6, 10])
async def test_a_stranger_s_message_within_the_limit_is_taken_however_it_is_cut(split: int) -> None:
    ear = Ear()
    ear.permit = None
    text = frame(b"a" * AUTHENTICATE_MAX_BYTES)
    await ear.receive([text[:-split], text[-split:]])
    assert ear.refused == []
    assert [len(data) for _, data in ear.found] == [AUTHENTICATE_MAX_BYTES]


async def test_a_ping_within_a_message_takes_no_room_from_it() -> None:
    ear = Ear()
    first, last = b"a" * (BYTES_MAX - 50), b"b" * 50
    await ear.receive([frame(first, 0x01) + frame(b"p" * 125, 0x89) + frame(last, 0x80)])
    assert ear.refused == []
    assert ear.found == [Message(WSMsgType.PING, b"p" * 125), Message(WSMsgType.TEXT, first + last)]


async def test_frames_that_come_together_are_no_lone_text_where_the_turn_is_used_up() -> None:
    share = TurnShare()
    ears = [Ear(share) for _ in range(300)]
    seen: list[Frame] = []
    for ear in ears:
        ear.admitted = lambda each: not seen.append(each)  # type: ignore[func-returns-value]
    for ear in ears:
        ear.incoming.take(frame(b"", 0x8A) * 80)
    parsed = len(seen) + sum(len(ear.incoming._frames) for ear in ears)
    assert parsed < 1_000, "what is parsed is counted, though it is not taken yet"
    for ear in ears:
        ear.incoming.close()
    await asyncio.sleep(0)


async def test_nothing_behind_a_message_that_takes_long_is_handed_over_before_it() -> None:
    ear = Ear()
    ear.is_busy = True  # it has received something large, and works on it
    ear.incoming.take(frame((1000).to_bytes(2), 0x88))
    assert (ear.close_count, ear.incoming.has_queued) == (0, False)
    ear.is_busy = False
    receiving = asyncio.ensure_future(ear.incoming.receive())
    assert (await receiving).type is WSMsgType.CLOSE
    assert ear.close_count == 1


@pytest.mark.parametrize("takes", [True, False])
async def test_room_of_a_large_message_is_let_go_by_who_works_on_it(takes: bool) -> None:
    ear = Ear()
    ear.takes = takes
    grown: list[int] = []
    ear.may_grow = lambda size_bytes: not grown.append(size_bytes)  # type: ignore[func-returns-value,method-assign]
    await ear.receive([frame(b"a" * (LARGE_BYTES + 10_000))])
    assert grown[-1] > LARGE_BYTES, "it counts until it is worked on"
    await ear.receive([frame(b"a" * (LARGE_BYTES - 500))])
    assert grown[-1] > 0


@pytest.mark.parametrize(
    ("data", "broken"),
    [
        (frame(b"a" * (BYTES_MAX + 1)), BrokenBy.SIZE),
        (frame(b"a" * BYTES_MAX, 0x01) + frame(b"a", 0x80), BrokenBy.SIZE),
        (frame((1000).to_bytes(2) + b"\xff", 0x88), BrokenBy.TEXT),
        (frame(b"a", 0x83), BrokenBy.FRAME),
    ],
)
async def test_what_is_wrong_is_said_once(data: bytes, broken: BrokenBy) -> None:
    ear = Ear()
    await ear.receive([data, frame(b"one")])
    assert [kind for kind, _ in ear.refused] == [broken]
    assert ear.found == []


async def test_what_the_protocol_would_answer_by_itself_is_dropped() -> None:
    ear = Ear()
    await ear.receive([frame(b"p" * 125, 0x89), frame(b"one") + frame(b"two", 0x89), frame(b"\x03\xe8", 0x88)])
    assert ear.socket.written == []
    assert ear.incoming._protocol.data_to_send() == [], "a client that pings for days makes it grow"


async def test_a_connection_that_is_lost_in_its_turn_takes_nothing_more() -> None:
    ear = Ear()
    ear.incoming.take(frame(b"one") * 100)
    ear.socket.is_closed = True
    before = len(ear.found)
    ear.incoming.close()
    await asyncio.sleep(0)
    assert len(ear.found) == before
    assert not len(ear.share)


async def test_what_came_with_the_handshake_is_taken_first() -> None:
    ear = Ear()
    one = frame(b"one")
    released: list[str] = []
    connection = SimpleNamespace(
        _unfed=one[2:4],
        receiver=None,
        _release_reading=lambda: released.append("read on"),
        set_parser=lambda parser: parser.feed_data(one[:2]),
    )
    Connection.upgrade(cast(Any, connection), ear.incoming)
    assert (connection.receiver, connection._unfed) == (ear.incoming, b"")
    assert released
    ear.incoming.take(one[4:])
    ear.incoming.take(one)
    assert [data for _, data in ear.found] == [b"one", b"one"]


# --- its ping --------------------------------------------------------------------------------------------------------


async def test_who_speaks_is_not_pinged_and_whatever_comes_answers_a_ping() -> None:
    async with open_service(channel_ping_interval_ms=1_000) as api:
        async with open_channel(api.http, api.port, autoping=False) as client:
            joined = await client.form("g")
            loop = asyncio.get_running_loop()
            spoke_at, longest_s = loop.time(), 0.0
            for _ in range(20):
                if longest_s > 0.5:
                    break  # the machine is too busy for one who speaks often
                assert (await client.call("heartbeat", "g", beat_body(joined)))[0] == 200
                await asyncio.sleep(0.1)
                spoke_at, longest_s = loop.time(), max(longest_s, loop.time() - spoke_at)
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
        async with asyncio.timeout(30):
            while not api.metrics.closed["unanswered_ping"]:  # noqa: ASYNC110 - the service's clock decides
                await asyncio.sleep(0.02)


async def test_a_client_is_not_given_up_while_its_answer_to_a_ping_is_not_read() -> None:
    ear, clock = Ear(), ManualClock()
    ear.takes = False
    transport = GatheringTransport(cast(Any, ear.socket), WriteCoalescer())
    socket = WebSocket(ear, transport, ear.share, Pings(clock), lambda: None, ping_ms=60_000, bytes_max=BYTES_MAX)
    socket.incoming.take(frame(b"one") + frame(b"", 0x8A))  # the pong waits behind a text that is not received
    held = socket.incoming.is_held
    assert held
    socket._await_answer()
    clock.move(100_000)
    assert socket.exception() is None
    await socket.receive()
    receiving = asyncio.ensure_future(socket.receive())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    held = socket.incoming.is_held
    assert not held
    clock.move(100_000)
    assert socket.exception() is None, "it answered, and that is read now"
    socket._await_answer()
    clock.move(100_000)
    assert ear.socket.is_closed
    assert isinstance(socket.exception(), TimeoutError)
    receiving.cancel()
    socket.stop()


async def test_behind_a_message_that_takes_long_a_little_is_read() -> None:
    ear = Ear()
    ear.rests = True
    ear.incoming.take(frame(b"a large commit, which the channel has not come to yet", 0x82))
    ear.incoming.take(frame(b"beat"))
    assert not ear.reads()
    ear.is_busy = True
    ear.incoming.read_behind()
    assert ear.reads()
    count = 0
    while ear.reads():
        ear.incoming.take(frame(b"x" * 1_000))
        count += 1
    assert 0 <= count * 1_000 - BEHIND_BYTES <= 1_000
    ear.is_busy = ear.rests = False
    await ear.receive_queued()
    await ear.receive([])
    assert ear.reads()
    assert len(ear.found) == 2 + count


async def test_who_has_much_to_read_is_waited_for_until_it_has_read() -> None:
    ear = Ear()
    transport = GatheringTransport(cast(Any, ear.socket), WriteCoalescer())
    socket = WebSocket(
        ear, transport, ear.share, Pings(ManualClock()), lambda: None, ping_ms=60_000, bytes_max=BYTES_MAX
    )
    async with asyncio.timeout(30):
        await socket.drain()  # nothing waits
        for _ in range(2):
            socket.pause_writing()
            waiting = asyncio.create_task(socket.drain())
            await asyncio.sleep(0)
            assert not waiting.done()
            socket.resume_writing()
            await waiting
        await socket.drain()
    socket.stop()


@pytest.mark.parametrize("is_asked_for_its_end", [False, True])
async def test_a_connection_that_is_lost_right_behind_the_handshake_ends_its_channel_once(
    is_asked_for_its_end: bool,
) -> None:
    """Aiohttp cancels the request then, and may not ask the answer for its end any more."""
    ear, ended = Ear(), []
    transport = GatheringTransport(cast(Any, ear.socket), WriteCoalescer())
    pings = Pings(ManualClock())
    socket = WebSocket(
        ear, transport, ear.share, pings, lambda: ended.append(True), ping_ms=60_000, bytes_max=BYTES_MAX
    )
    socket.incoming.lose(ConnectionResetError())
    assert ended == [True]
    assert socket._look is None, "nobody looks for its life any more"
    if is_asked_for_its_end:
        socket.serve(ear)
        assert socket.serving is not None
        await asyncio.wait((socket.serving,), timeout=30)
    assert ended == [True]
