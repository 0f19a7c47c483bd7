"""What a client may take is counted while the service runs: after a stall, what came meanwhile is read first."""

import asyncio
import contextlib
import gc
import weakref
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from rallypoint.coordinator.access.tokens import hash_token
from rallypoint.coordinator.http.limits.deadline import Deadline, time_limit
from rallypoint.coordinator.http.security import SecurityPolicy
from rallypoint.coordinator.runtime.event_loop.clock import Clock
from tests.fakes.api_server import Answer, ApiClient, parse_answer
from tests.fakes.manual_clock import HastyClock, ManualClock, settle
from tests.fakes.set_service import open_service

TOKEN = "honest"
POLICY = SecurityPolicy(tokens=(hash_token(TOKEN),))
ASKED = b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n"
BODY = b'{"partitions":1}'
PUT = (
    b"PUT /v1/topics/t HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
    b"Content-Length: %d\r\n\r\n%b" % (len(BODY), BODY)
)
HANDSHAKE = (
    b"GET /v1/channel HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
)
STALL_SECONDS = 0.15
"""Longer than any of what is bounded here is set to."""

Line = tuple[asyncio.StreamReader, asyncio.StreamWriter]


# --- a deadline


def test_it_comes_once_and_not_before_its_time() -> None:
    clock, called = HastyClock(), list[int]()
    Deadline(clock, 100, lambda: called.append(clock.now_ms()))
    due_ms = clock.now_ms() + 100
    clock.move(99)
    assert not called
    clock.move(1_000)
    assert called == [due_ms]
    assert not clock.planned


@pytest.mark.parametrize("moved_ms", [0, 60, 100])
def test_a_cancelled_one_does_not_come(moved_ms: int) -> None:
    clock, called = HastyClock(), list[int]()
    deadline = Deadline(clock, 100, lambda: called.append(1))
    clock.move(moved_ms)
    came = list(called)
    deadline.cancel()
    clock.move(1_000)
    assert called == came == [1] * (moved_ms >= 100)
    assert not clock.planned


@dataclass
class KeepingHandle:
    """As uvloop makes for what is due: it knows its callback after the call, too."""

    callback: Callable[[], None]

    def cancel(self) -> None:
        raise AssertionError("it came")


class Caller:
    """Who holds a deadline that calls it back, as a channel does."""

    def __init__(self, clock: Clock) -> None:
        self.deadline: Deadline | None = Deadline(clock, 1, self.give_up)

    def give_up(self) -> None:
        self.deadline = None


def test_one_that_came_is_known_by_nothing_though_its_handle_knows_it() -> None:
    """An event loop calls what is due already at its next turn, and such a handle keeps its callback."""
    handles = list[KeepingHandle]()

    class EarlyClock(ManualClock):
        def call_at(self, deadline_ms: int, callback: Callable[[], None]) -> KeepingHandle:  # type: ignore[override]
            handles.append(KeepingHandle(callback))
            return handles[-1]

    clock = EarlyClock()
    caller = weakref.ref(kept := Caller(clock))
    handles.pop().callback()  # early
    clock.move(1)
    gc.disable()
    try:
        handles.pop().callback()
        assert kept.deadline is None
        del kept
        assert caller() is None
    finally:
        gc.enable()


async def limited(clock: ManualClock, step: Callable[[], Any]) -> str:
    try:
        async with time_limit(clock, 100):
            await step()
    except TimeoutError:
        return "late"
    return "done"


async def test_what_takes_too_long_is_cancelled_and_what_is_done_is_not() -> None:
    clock, done = HastyClock(), asyncio.Event()
    late = asyncio.create_task(limited(clock, asyncio.Event().wait))
    in_time = asyncio.create_task(limited(clock, done.wait))
    cancelled = asyncio.create_task(limited(clock, asyncio.Event().wait))
    await settle()
    clock.move(99)
    done.set()
    cancelled.cancel()
    await settle()
    assert in_time.result() == "done"
    assert cancelled.cancelled()
    assert not late.done()
    clock.move(1)
    await settle()
    assert late.result() == "late"
    assert not clock.planned


# --- those of the API


@asynccontextmanager
async def stalled(api_clock: HastyClock, **given: Any) -> AsyncIterator[tuple[ApiClient, Callable[..., Any]]]:
    """A service whose clock stands still, and what opens a connection to it."""
    async with open_service(clock=api_clock, **given) as api, contextlib.AsyncExitStack() as stack:

        async def line(sent: bytes) -> Line:
            opened = await asyncio.open_connection("127.0.0.1", api.port)
            stack.callback(opened[1].close)
            opened[1].write(sent)
            return opened

        yield api, line


async def answer_on(line: Line) -> Answer:
    async with asyncio.timeout(30):
        head = await line[0].readuntil(b"\r\n\r\n")
        length = parse_answer(head).headers.get("Content-Length", "0")
        return parse_answer(head + await line[0].readexactly(int(length)))


@pytest.mark.parametrize(
    ("setting", "request_text", "rest_bytes"),
    [
        pytest.param("request_head_timeout_ms", ASKED + b"\r\n", 2, id="a head"),
        pytest.param("body_timeout_ms", PUT, 3, id="a body"),
    ],
)
async def test_what_waits_in_the_socket_is_read_before_its_time_is_over(
    setting: str, request_text: bytes, rest_bytes: int
) -> None:
    clock = HastyClock()
    begun, rest = request_text[:-rest_bytes], request_text[-rest_bytes:]
    async with stalled(clock, **{setting: 100}) as (_, line):
        lines = [await line(begun) for _ in range(2)]
        await asyncio.sleep(STALL_SECONDS)
        clock.move(99)
        await settle()
        lines[0][1].write(rest)
        assert (await answer_on(lines[0])).status == 200
        clock.move(1)
        answer = await answer_on(lines[1])
        assert (answer.status, answer.json["limit_name"]) == (400, setting)


async def test_who_has_said_nothing_yet_is_waited_for_while_the_service_runs() -> None:
    clock = HastyClock()
    async with stalled(clock, request_head_timeout_ms=100) as (api, line):
        lines = [await line(b"") for _ in range(2)]
        await asyncio.sleep(STALL_SECONDS)
        assert not api.metrics.cut
        lines[0][1].write(ASKED + b"\r\n")
        assert (await answer_on(lines[0])).status == 200
        clock.move(100)
        async with asyncio.timeout(30):
            assert await lines[1][0].read() == b""
        assert api.metrics.cut == {"head_timeout": 1}


async def test_the_token_of_a_channel_is_waited_for_while_the_service_runs() -> None:
    clock = HastyClock()
    text = b'{"op":"authenticate","token":"%s"}' % TOKEN.encode()
    frame = bytes((0x81, 0x80 | len(text), 0, 0, 0, 0)) + text
    async with stalled(clock, policy=POLICY, channel_authenticate_timeout_ms=100) as (_, line):
        lines = [await line(HANDSHAKE) for _ in range(2)]
        for one in lines:
            assert (await answer_on(one)).status == 101
        await asyncio.sleep(STALL_SECONDS)
        clock.move(99)
        await settle()
        lines[0][1].write(frame)
        async with asyncio.timeout(30):
            assert b'"status":200' in await lines[0][0].readuntil(b'"body"')
            clock.move(1)
            assert (await lines[1][0].readexactly(4))[2:] == (1008).to_bytes(2), "a close, and its code"
