"""What a session's connection does with texts: when they are taken, and when they leave."""

import asyncio
import json
from types import SimpleNamespace
from typing import Any, cast

import pytest
from aiohttp import WSMsgType

from coordinator.http.inputs import BodyLimits
from coordinator.http.session import RESTING_BYTES, Session, SessionLimits, SessionRoom
from coordinator.http.session_socket import FLUSHED_TOGETHER_MAX, JOINED_BYTES_MAX, Outbox, Socket, text_head
from protocol import messages as m
from protocol.request_limits import RequestChecks, RequestLimits


class Wire:
    """A transport that keeps what was written, by write."""

    def __init__(self) -> None:
        self.writes: list[bytes] = []
        self.closing = False

    def write(self, data: bytes) -> None:
        assert not self.closing, "a transport that is closing was written to"
        self.writes.append(data)

    def writelines(self, pieces: list[bytes]) -> None:
        self.write(b"".join(pieces))

    def is_closing(self) -> bool:
        return self.closing

    def abort(self) -> None:
        self.closing = True

    def get_write_buffer_size(self) -> int:
        return 7


def socket_on(wire: Wire, outbox: Outbox) -> Socket:
    async def serve(_: Socket) -> None:
        """Nothing."""

    socket = Socket(serve, lambda _: False, lambda: None, outbox, ping_ms=1_000, bytes_max=1_000)
    socket.transport = cast(Any, wire)
    return socket


async def test_what_is_sent_in_one_turn_leaves_in_one_write_at_its_end() -> None:
    wire = Wire()
    socket = socket_on(wire, Outbox())
    socket.send_text(b"one")
    socket.send_text(b"three")
    assert wire.writes == []
    assert socket.unsent_bytes == 7 + len(b"\x81\x03one\x81\x05three")
    await asyncio.sleep(0)
    assert wire.writes == [b"\x81\x03one\x81\x05three"]
    assert socket.unsent_bytes == 7
    socket.send_text(b"")
    await asyncio.sleep(0)
    assert wire.writes[1:] == [b"\x81\x00"]


async def test_with_many_connections_the_first_ones_need_not_wait() -> None:
    outbox, wires = Outbox(), [Wire() for _ in range(2 * FLUSHED_TOGETHER_MAX + 1)]
    for number, wire in enumerate(wires):
        socket_on(wire, outbox).send_text(b"%d" % number)
    sent = [wire.writes for wire in wires]
    assert sent == [[b"\x81%c%d" % (len(str(n)), n)] for n in range(2 * FLUSHED_TOGETHER_MAX)] + [[]]
    await asyncio.sleep(0)
    assert wires[-1].writes == [b"\x81\x03128"]


async def test_a_connection_that_cannot_be_written_to_takes_nothing_from_the_others(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Broken(Wire):
        def write(self, data: bytes) -> None:
            raise RuntimeError("the handler is closed")

    outbox, broken, sound = Outbox(), Broken(), Wire()
    socket_on(broken, outbox).send_text(b"one")
    socket_on(sound, outbox).send_text(b"two")
    await asyncio.sleep(0)
    assert sound.writes == [b"\x81\x03two"]
    assert broken.closing
    assert "the handler is closed" in caplog.text


async def test_large_texts_are_whole_too() -> None:
    wire = Wire()
    socket = socket_on(wire, Outbox())
    texts = [b"a" * JOINED_BYTES_MAX, b"b" * 70_000]
    for text in texts:
        socket.send_text(text)
    await asyncio.sleep(0)
    assert b"".join(wire.writes) == b"".join(text_head(len(text)) + text for text in texts)


async def test_what_is_for_a_client_that_has_gone_is_dropped() -> None:
    wire = Wire()
    socket = socket_on(wire, Outbox())
    socket.send_text(b"one")
    wire.closing = True
    await asyncio.sleep(0)
    assert wire.writes == []
    assert socket.unsent_bytes == 7


@pytest.mark.parametrize(
    ("length", "head"),
    [
        (0, b"\x81\x00"),
        (125, b"\x81\x7d"),
        (126, b"\x81\x7e\x00\x7e"),
        (65_535, b"\x81\x7e\xff\xff"),
        (65_536, b"\x81\x7f\x00\x00\x00\x00\x00\x01\x00\x00"),
    ],
)
def test_heads(length: int, head: bytes) -> None:
    assert text_head(length) == head


# --- in what order texts are taken -----------------------------------------------------------------------------------


class Pipe:
    """Stands for a socket whose client reads when the test says so."""

    def __init__(self) -> None:
        self.queued: asyncio.Queue[SimpleNamespace] = asyncio.Queue()
        self.unsent_bytes = 0
        self.answered: list[int] = []
        self.has_read = asyncio.Event()
        self.writer = self
        self.transport = None

    @property
    def has_queued(self) -> bool:
        return not self.queued.empty()

    async def receive(self) -> SimpleNamespace:
        return await self.queued.get()

    def send_text(self, text: bytes) -> None:
        self.answered.append(json.loads(text)["id"])

    def flush(self) -> None:
        """All has left."""

    async def drain(self) -> None:
        await self.has_read.wait()

    def exception(self) -> None:
        """None."""


def call_of(call_id: int) -> bytes:
    return b'{"id":%d,"op":"coordinator","body":{"group_ids":["g"]}}' % call_id


def text_message(call_id: int) -> SimpleNamespace:
    return SimpleNamespace(type=WSMsgType.TEXT, data=call_of(call_id))


def session_on(pipe: Pipe) -> tuple[Session, "asyncio.Task[None]"]:
    service = SimpleNamespace(
        find_coordinators=lambda _: m.CoordinatorAnswer(coordinators=()), end_session=lambda *_, **__: None
    )
    figures = SimpleNamespace(session_call=lambda *_: None, session_closed=lambda _: None)
    checks = RequestChecks(RequestLimits())
    room = SessionRoom(cast(Any, service), cast(Any, figures), checks, BodyLimits(), SessionLimits(), lambda _: True)
    session = Session(room, "host", is_authenticated=True)
    return session, asyncio.get_running_loop().create_task(session.serve(cast(Any, pipe)))


async def turns() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_a_text_is_taken_at_once_but_never_before_one_that_waits() -> None:
    pipe = Pipe()
    session, serving = session_on(pipe)
    assert not session.take_at_once(call_of(0)), "nobody serves yet"
    await turns()
    assert session.take_at_once(call_of(1))
    assert pipe.answered == [1]

    pipe.unsent_bytes = RESTING_BYTES + 1
    assert not session.take_at_once(call_of(2))
    pipe.queued.put_nowait(text_message(2))
    await turns()
    assert pipe.answered == [1], "it was taken although the client does not read"

    pipe.unsent_bytes = 0
    assert not session.take_at_once(call_of(3)), "the third would be answered before the second"
    pipe.has_read.set()
    await turns()
    assert pipe.answered == [1, 2]
    assert session.take_at_once(call_of(3))
    assert pipe.answered == [1, 2, 3]

    pipe.queued.put_nowait(SimpleNamespace(type=WSMsgType.CLOSE, data=1000))
    await serving
