"""What a session's connection does with texts: when they are taken, and how they look."""

import asyncio
import json
from types import SimpleNamespace
from typing import Any, cast

import pytest
from aiohttp import WSMsgType

from coordinator.http.inputs import BodyLimits
from coordinator.http.session import RESTING_BYTES, Session, SessionLimits, SessionRoom
from coordinator.http.session_socket import text_head
from coordinator.runtime.clock import SystemClock
from coordinator.runtime.newcomers import Newcomers
from protocol import messages as m
from protocol.request_limits import RequestChecks, RequestLimits


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
        find_coordinators=lambda _: m.CoordinatorAnswer(coordinators=()),
        end_session=lambda *_, **__: None,
        newcomers=Newcomers(SystemClock()),
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
