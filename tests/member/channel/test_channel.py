"""One channel by itself, against a node that says what the test wants."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from aiohttp import WSMsgType, web

from rallypoint.member.channel.channel import Channel, Endpoint, open_channel
from rallypoint.member.channel.codec import Push
from rallypoint.member.core.outcomes import Answered, Outcome, Unreachable
from rallypoint.protocol import messages as m
from rallypoint.protocol import operations as ops
from tests.fakes.sockets import nothing_left

Say = Callable[[web.WebSocketResponse, int], Awaitable[None]]
BEAT = m.HeartbeatRequest(generation_id=1, member_id="m-1")
PUSH = {"event": "rebalance", "group_id": "g", "generation_id": 1, "reason": "planted"}


class Heard:
    """What a member would hear, in order."""

    def __init__(self) -> None:
        self.events: list[str] = []
        self.sent_at_ms: list[int] = []
        self.channel: Channel

    def pushed(self, push: Push) -> None:
        self.events.append(f"push {push.event}")

    def ponged(self, sent_at_ms: int | None) -> None:
        self.events.append("late" if sent_at_ms is None else "pong")
        if sent_at_ms is not None:
            self.sent_at_ms.append(sent_at_ms)

    def ended(self, reason: str) -> None:
        self.events.append(f"end: {reason}")

    async def beat(self, timeout_ms: int = 2_000) -> Outcome:
        """A heartbeat; its outcome is noted by the task that waits for it, as the member's are."""
        outcome = await self.channel.call(ops.HEARTBEAT, BEAT, group_id="g", timeout_ms=timeout_ms)
        self.events.append(type(outcome).__name__)
        return outcome


@asynccontextmanager
async def node(
    say: Say, pong: Callable[[bytes], bytes | None] = lambda ping: ping, ping_interval_ms: int = 7_500
) -> AsyncIterator[Heard]:
    """A channel with a node that does this for each call, given its id, and answers each ping so, or not."""

    async def serve(request: web.Request) -> web.WebSocketResponse:
        socket = web.WebSocketResponse(autoping=False)
        await socket.prepare(request)
        async for message in socket:
            if message.type is WSMsgType.PING:
                if (answer := pong(bytes(message.data))) is not None:
                    await socket.pong(answer)
                continue
            assert message.type is WSMsgType.TEXT
            await say(socket, json.loads(message.data)["id"])
        return socket

    app = web.Application()
    app.router.add_get(ops.CHANNEL.path, serve)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    host, port = runner.addresses[0][:2]
    heard = Heard()
    try:
        async with nothing_left():
            endpoint = Endpoint(f"http://{host}:{port}", ping_interval_ms=ping_interval_ms)
            heard.channel = await open_channel(endpoint, 2_000, heard.pushed, heard.ended, heard.ponged)
            yield heard
            await heard.channel.close()
    finally:
        await runner.cleanup()


async def until(condition: Callable[[], bool]) -> None:
    for _ in range(3_000):
        if condition():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("it did not come to that")


async def test_what_is_said_in_an_order_is_heard_in_that_order() -> None:
    async def answer_push_and_end(socket: web.WebSocketResponse, call_id: int) -> None:
        if call_id < 3:
            return
        # All of it in one go, so that it may arrive in one piece.
        for number in (3, 1):
            await socket.send_json({"id": number, "status": 200, "body": {}})
            await socket.send_json(PUSH)
        await socket.close(code=1012, message=b"bye")

    async with node(answer_push_and_end) as heard:
        first, second, third = await asyncio.gather(heard.beat(), heard.beat(), heard.beat())
        await asyncio.sleep(0.01)
        assert isinstance(first, Answered)
        assert isinstance(third, Answered)
        assert second == Unreachable("the node closed it with 1012 (bye)")
        assert heard.events == [
            "Answered",
            "push rebalance",
            "Answered",
            "push rebalance",
            "Unreachable",
            "end: the node closed it with 1012 (bye)",
        ]
        assert await heard.beat() == Unreachable("the node closed it with 1012 (bye)"), "and so is every later call"


async def test_a_call_that_is_late_ends_alone_and_its_answer_is_thrown_away() -> None:
    waiting: list[int] = []

    async def answer_the_one_before(socket: web.WebSocketResponse, call_id: int) -> None:
        waiting.append(call_id)
        for number in waiting[-2:]:
            if call_id > 1:
                await socket.send_json({"id": number, "status": 200, "body": {}})

    async with node(answer_the_one_before) as heard:
        assert await heard.beat(timeout_ms=20) == Unreachable("no answer within 20 ms")
        assert isinstance(await heard.beat(), Answered)
        assert heard.channel.why_ended is None


async def test_a_call_that_nobody_waits_for_any_more_leaves_nothing_behind() -> None:
    async def say_nothing(socket: web.WebSocketResponse, call_id: int) -> None:
        return

    async with node(say_nothing) as heard:
        call = asyncio.create_task(heard.beat())
        await asyncio.sleep(0.01)
        call.cancel()
        await asyncio.wait([call])
        assert heard.channel._calls == {}


async def test_a_close_of_ones_own_is_no_loss() -> None:
    async def say_nothing(socket: web.WebSocketResponse, call_id: int) -> None:
        return

    async with node(say_nothing) as heard:
        call = asyncio.create_task(heard.beat())
        await asyncio.sleep(0.01)
        await heard.channel.close()
        await heard.channel.close()
        assert isinstance(await call, Unreachable)
        assert heard.events == ["Unreachable"]


async def test_bytes_are_no_message() -> None:
    async def answer_in_bytes_first(socket: web.WebSocketResponse, call_id: int) -> None:
        text = json.dumps({"id": call_id, "status": 200, "body": {}})
        await socket.send_bytes(b"\x00")
        await socket.send_str(text)

    async with node(answer_in_bytes_first) as heard:
        assert isinstance(await heard.beat(), Answered)


async def test_a_pong_counts_though_the_next_ping_was_sent_before_it_came() -> None:
    """The line takes longer than from one ping to the next."""
    pings: list[bytes] = []

    def answer_the_one_before(ping: bytes) -> bytes | None:
        if not ping:
            return ping  # aiohttp's own
        pings.append(ping)
        return pings[-2] if len(pings) > 1 else None

    async def say_nothing(socket: web.WebSocketResponse, call_id: int) -> None:
        return

    async with node(say_nothing, answer_the_one_before, ping_interval_ms=800) as heard:
        await until(lambda: len(heard.sent_at_ms) > 1)
        assert heard.sent_at_ms[:2] == [int(ping) for ping in pings[:2]]
        assert heard.events[:2] == ["late", "pong"]


async def test_a_pong_that_was_heard_or_was_never_asked_for_says_nothing() -> None:
    pings: list[bytes] = []

    def answer_the_first_again(ping: bytes) -> bytes | None:
        if ping:
            pings.append(ping)
        return pings[0] if len(pings) < 3 else b"%d" % (int(pings[0]) + 10**9)

    async def say_nothing(socket: web.WebSocketResponse, call_id: int) -> None:
        return

    async with node(say_nothing, answer_the_first_again, ping_interval_ms=800) as heard:
        await until(lambda: len(pings) > 3)
        assert heard.sent_at_ms == [int(pings[0])]
