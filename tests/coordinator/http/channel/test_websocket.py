"""What a channel's connection does with texts: when they are taken, and how they look."""

import asyncio
import json
from types import SimpleNamespace
from typing import Any, cast

from aiohttp import WSMsgType

from rallypoint.coordinator.http.access.audit import Audit
from rallypoint.coordinator.http.access.control import AccessControl
from rallypoint.coordinator.http.access.members import MemberCallers
from rallypoint.coordinator.http.channel.channel import RESTING_BYTES, Channel, ChannelContext, ChannelLimits, Ending
from rallypoint.coordinator.http.requests.inputs import BodyLimits
from rallypoint.coordinator.http.requests.large_bodies import LargeBodies
from rallypoint.coordinator.runtime.event_loop.clock import Clock
from rallypoint.protocol import messages as m
from rallypoint.protocol.request_limits import RequestChecks, RequestLimits
from tests.fakes.manual_clock import HastyClock, ManualClock

# --- in what order texts are taken -----------------------------------------------------------------------------------


class Pipe:
    """Stands for a socket whose client reads when the test says so."""

    def __init__(self) -> None:
        self.queued: asyncio.Queue[SimpleNamespace] = asyncio.Queue()
        self.unread_bytes = 0
        self.answered: list[int] = []
        self.has_read = asyncio.Event()
        self.transport = None
        self.abort_count = 0

    @property
    def has_queued(self) -> bool:
        return not self.queued.empty()

    def unsent_bytes(self) -> int:
        return self.unread_bytes

    async def receive(self) -> SimpleNamespace:
        return await self.queued.get()

    def send_text(self, text: bytes) -> None:
        self.answered.append(json.loads(text)["id"])

    def abort(self) -> None:
        self.abort_count += 1

    def read_behind(self) -> None:
        """Nothing comes behind."""

    async def drain(self) -> None:
        await self.has_read.wait()

    def exception(self) -> None:
        """None."""


def call_of(call_id: int) -> bytes:
    return b'{"id":%d,"op":"coordinator","body":{"group_ids":["g"]}}' % call_id


def text_message(call_id: int) -> SimpleNamespace:
    return SimpleNamespace(type=WSMsgType.TEXT, data=call_of(call_id))


def channel_on(pipe: Pipe, clock: Clock) -> tuple[Channel, "asyncio.Task[None]"]:
    service = SimpleNamespace(
        clock=clock,
        find_coordinators=lambda _: m.CoordinatorAnswer(coordinators=()),
        end_channel=lambda *_, **__: None,
    )
    metrics = SimpleNamespace(channel_call=lambda *_: None, channel_closed=lambda _: None)
    checks = RequestChecks(RequestLimits())
    access = AccessControl()
    context = ChannelContext(
        cast(Any, service),
        cast(Any, metrics),
        checks,
        BodyLimits(),
        ChannelLimits(),
        LargeBodies(0),
        lambda *_: access.anybody,
        lambda _: 0,
        MemberCallers(lambda _group_id, _member_id: False),
        Audit(lambda: 0),
    )
    channel = Channel(context, "host", access.anybody)
    return channel, asyncio.get_running_loop().create_task(channel.serve(cast(Any, pipe)))


async def turns() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_a_client_that_does_not_read_has_its_time_while_the_service_runs() -> None:
    pipe, clock = Pipe(), HastyClock()
    channel, serving = channel_on(pipe, clock)
    pipe.unread_bytes = RESTING_BYTES + 1
    pipe.queued.put_nowait(text_message(1))
    await turns()
    clock.move(ChannelLimits().channel_ping_interval_ms * 3 // 2 - 1)
    await turns()
    assert pipe.abort_count == 0
    clock.move(1)
    await turns()
    assert pipe.abort_count == 1
    assert serving.done()
    assert channel._ending is Ending.SLOW_READER


async def test_a_text_is_taken_at_once_but_never_before_one_that_waits() -> None:
    pipe = Pipe()
    channel, serving = channel_on(pipe, ManualClock())
    assert not channel.take_at_once(call_of(0)), "nobody serves yet"
    await turns()
    assert channel.take_at_once(call_of(1))
    assert pipe.answered == [1]

    pipe.unread_bytes = RESTING_BYTES + 1
    assert not channel.take_at_once(call_of(2))
    pipe.queued.put_nowait(text_message(2))
    await turns()
    assert pipe.answered == [1], "it was taken although the client does not read"

    pipe.unread_bytes = 0
    assert not channel.take_at_once(call_of(3)), "the third would be answered before the second"
    pipe.has_read.set()
    await turns()
    assert pipe.answered == [1, 2]
    assert channel.take_at_once(call_of(3))
    assert pipe.answered == [1, 2, 3]

    pipe.queued.put_nowait(SimpleNamespace(type=WSMsgType.CLOSE, data=b""))
    await serving
