"""Many looks by one timer: when they come, and that each comes."""

import asyncio
from functools import partial

import aiohttp
import pytest

from rallypoint.coordinator.http.channel.pings import BUCKET_S, Pings
from rallypoint.coordinator.runtime.event_loop.clock import SystemClock
from tests.fakes.channel_client import beat_body, open_channel
from tests.fakes.manual_clock import HastyClock
from tests.fakes.set_service import open_service


async def test_looks_of_one_round_come_together_and_never_early() -> None:
    loop, pings, seen = asyncio.get_running_loop(), Pings(SystemClock()), dict[str, float]()

    def note(name: str) -> None:
        seen[name] = loop.time()

    base_s = (loop.time() // BUCKET_S + 2) * BUCKET_S
    for name, when_s in (("a", base_s + 0.01), ("b", base_s + 0.06), ("c", base_s + BUCKET_S * 1.5)):
        pings.call_at(when_s, partial(note, name))
    cancelled = pings.call_at(base_s + 0.02, partial(note, "cancelled"))
    cancelled.cancel()
    assert len(pings) == 2
    async with asyncio.timeout(30):
        while len(seen) < 3:  # noqa: ASYNC110 - the loop's clock decides
            await asyncio.sleep(0.005)
    assert list(seen) == ["a", "b", "c"]
    assert base_s + 0.06 <= seen["a"] <= seen["b"] < seen["c"]
    assert seen["c"] >= base_s + BUCKET_S * 1.5
    assert not pings
    cancelled.cancel()


async def test_one_that_fails_keeps_none_of_the_others(caplog: pytest.LogCaptureFixture) -> None:
    pings, done = Pings(SystemClock()), asyncio.Event()

    def fail() -> None:
        raise RuntimeError("no writer")

    now_s = asyncio.get_running_loop().time()
    pings.call_at(now_s, fail)
    pings.call_at(now_s, done.set)
    async with asyncio.timeout(30):
        await done.wait()
    assert "no writer" in caplog.text


async def test_many_channels_are_looked_at_by_few_timers_and_their_ends_leave_nothing() -> None:
    async with open_service(channel_ping_interval_ms=300) as api:
        pings = api.http_api.channels._pings
        for _ in range(10):
            async with open_channel(api.http, api.port) as client:
                joined = await client.form("g")
                assert (await client.call("heartbeat", "g", beat_body(joined)))[0] == 200
                await client.call("leave", "g", {"members": [{"member_id": joined["member_id"]}]})
        async with asyncio.timeout(30):
            while pings:
                assert len(pings) <= round(300 / 1000 / BUCKET_S) + 1
                await asyncio.sleep(0.02)


async def test_a_client_has_its_time_for_a_pong_while_the_service_runs() -> None:
    clock = HastyClock()
    async with (
        open_service(clock=clock, channel_ping_interval_ms=200) as api,
        open_channel(api.http, api.port, autoping=False) as client,
    ):
        await asyncio.sleep(0.3)
        clock.move(200)
        ping = await client.socket.receive(timeout=30)
        assert ping.type is aiohttp.WSMsgType.PING
        clock.move(99)
        await asyncio.sleep(0.2)
        assert not api.metrics.closed, "a millisecond of the service's time is left"
        clock.move(1)
        while not api.metrics.closed:  # noqa: ASYNC110
            await asyncio.sleep(0.005)
        assert api.metrics.closed == {"unanswered_ping": 1}


async def test_who_has_spoken_is_looked_at_again_in_a_round() -> None:
    async with open_service(channel_ping_interval_ms=200) as api:
        pings = api.http_api.channels._pings
        async with open_channel(api.http, api.port) as client:
            joined = await client.form("g")
            for _ in range(15):
                assert (await client.call("heartbeat", "g", beat_body(joined)))[0] == 200
                assert pings
                await asyncio.sleep(0.05)
