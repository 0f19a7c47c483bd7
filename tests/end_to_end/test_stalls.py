"""The service stands still for longer than any session: what came meanwhile is read first, and nobody is out."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from rallypoint.protocol.errors import ErrorCode
from tests.end_to_end.service_process import ServiceProcess, running_service
from tests.fakes.channel_client import ChannelClient, beat_body, join_body, sync_body

pytestmark = pytest.mark.slow

MEMBERS = 40
SESSION_MS = 8_000
STALL_S = 10.0
BEAT_S = 0.5
OPTIONS = (
    *("--group-initial-rebalance-delay-ms", "500"),
    *("--group-min-session-timeout-ms", "1000"),
    *("--channel-ping-interval-ms", "4000"),
)

Call = Callable[[str, str, Any], Awaitable[tuple[int, Any]]]
"""Of the operation, the group and the body: status and answer."""


async def over_http(stack: AsyncExitStack, service: ServiceProcess) -> Call:
    """A client with one connection."""
    http = await stack.enter_async_context(
        aiohttp.ClientSession(service.url, connector=aiohttp.TCPConnector(limit=1), timeout=aiohttp.ClientTimeout(60))
    )

    async def call(operation: str, group_id: str, body: Any) -> tuple[int, Any]:
        async with http.post(f"/v1/groups/{group_id}/{operation}", json=body) as answer:
            return answer.status, await answer.json(content_type=None)

    return call


async def on_a_channel(stack: AsyncExitStack, service: ServiceProcess) -> Call:
    """A client with a WebSocket."""
    http = await stack.enter_async_context(aiohttp.ClientSession(service.url))
    client = ChannelClient(await stack.enter_async_context(http.ws_connect("/v1/channel")))
    reading = asyncio.Lock()

    async def call(operation: str, group_id: str, body: Any) -> tuple[int, Any]:
        async with reading:
            return await client.call(operation, group_id, body)

    return call


async def form(call: Call, group_id: str) -> dict[str, Any]:
    """Be a member of a group that forms; the answer to the last join."""
    times = {"session_timeout_ms": SESSION_MS, "rebalance_timeout_ms": 30_000}
    _, told = await call("join", group_id, join_body("", **times))
    while True:
        status, joined = await call("join", group_id, join_body(told["member_id"], **times))
        if status == 200:
            status, synced = await call("sync", group_id, sync_body(joined))
            if status == 200 and synced["assignment"] == joined["member_id"]:
                return dict(joined)


async def beat(call: Call, group_id: str, joined: dict[str, Any], refusals: list[Any]) -> None:
    """Heartbeats, the next one when the last is answered."""
    while True:
        status, answer = await call("heartbeat", group_id, beat_body(joined))
        if status != 200:
            refusals.append((group_id, answer))
            return
        await asyncio.sleep(BEAT_S)


@asynccontextmanager
async def living(service: ServiceProcess, refusals: list[Any]) -> AsyncIterator[None]:
    """As many members over HTTP and on channels, each with a connection of its own."""
    async with AsyncExitStack() as stack:
        ways = {"http": over_http, "channels": on_a_channel}
        calls = [(await way(stack, service), group_id) for group_id, way in ways.items() for _ in range(MEMBERS)]
        joined = await asyncio.gather(*(form(call, group_id) for call, group_id in calls))
        beats = [
            asyncio.create_task(beat(call, group_id, mine, refusals))
            for (call, group_id), mine in zip(calls, joined, strict=True)
        ]
        try:
            yield
            assert not [task.exception() for task in beats if task.done()], refusals
        finally:
            for task in beats:
                task.cancel()
            await asyncio.gather(*beats, return_exceptions=True)


async def test_who_sent_heartbeats_while_the_service_stood_still_is_a_member_still(tmp_path: Path) -> None:
    refusals: list[Any] = []
    with running_service(tmp_path, *OPTIONS) as service:
        async with living(service, refusals):
            before = await asyncio.to_thread(service.metrics)
            await asyncio.sleep(2 * BEAT_S)
            service.pause()
            await asyncio.sleep(STALL_S)
            service.resume()
            await asyncio.sleep(1.5 * SESSION_MS / 1000)
            assert refusals == []
            after = await asyncio.to_thread(service.metrics)
        assert after["rallypoint_stall_seconds_count"] >= 1
        assert after["rallypoint_stall_seconds_sum"] >= STALL_S - 1
        assert after["rallypoint_channels"] == before["rallypoint_channels"] == MEMBERS
        for name in (
            "rallypoint_sessions_expired_total",
            "rallypoint_channels_closed_total",
            "rallypoint_rebalances_total",
        ):
            more = {series: count for series, count in after.items() if series.startswith(name)}
            assert more == {series: before.get(series, 0.0) for series in more}
        assert "the service stood still for" in service.log


def test_a_reset_to_a_time_after_a_stall_goes_to_no_end_that_was_reported_later(tmp_path: Path) -> None:
    """The service's own clock is behind by the stall: by that one the report would seem older than the time."""
    with running_service(tmp_path) as service:
        commit = {"generation_id": -1, "offsets": {"t": {"0": {"offset": 1}}}}
        assert service.send("POST", "/v1/groups/g/offsets", commit)[0] == 200
        service.pause()
        time.sleep(3)
        service.resume()
        while "the service stood still for" not in service.log:
            time.sleep(0.05)
        before_ms = time.time_ns() // 1_000_000 - 1
        assert service.send("PUT", "/v1/topics/t", {"partitions": 1, "end_offsets": {"0": 50}})[0] == 200
        for at_ms, code in ((before_ms, ErrorCode.OFFSET_NOT_AVAILABLE), (before_ms + 60_000, ErrorCode.NONE)):
            body = {"to": "time", "at_ms": at_ms, "topics": {"t": None}, "dry_run": True}
            status, answer = service.send("POST", "/v1/groups/g/offsets/reset", body)
            assert (status, answer["offsets"]["t"]["0"]["error_code"]) == (200, code)
