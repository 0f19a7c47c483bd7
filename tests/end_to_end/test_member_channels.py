"""Members and the real service, with what stands between them: channels, and proxies that let none pass."""

import asyncio
import hashlib
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import pytest

from rallypoint import ChannelPool, GroupMember, MemberOptions, NotAuthenticated, OffsetCommit
from rallypoint.member.core.states import State
from tests.end_to_end.service_process import ServiceProcess, running_service
from tests.fakes.proxy import STRIP, Proxy
from tests.fakes.sockets import nothing_left
from tests.real.parts import free_port
from tests.sizes import in_long

QUICK = ("--group-initial-rebalance-delay-ms", "0")
TOKEN = "a token that is long enough to be one"


@asynccontextmanager
async def behind(folder: Path, handshakes: str | int | None, *options: str) -> AsyncIterator[tuple[Proxy, Any]]:
    """A service that is known by the URL of a proxy before it."""
    service = ServiceProcess(folder, port=free_port())
    async with Proxy(service.url, handshakes) as proxy:
        service.options = (*QUICK, "--advertised-url", proxy.url, *options)
        with _running(service):
            yield proxy, service


@contextmanager
def _running(service: ServiceProcess) -> Iterator[None]:
    service.start()
    try:
        yield
    finally:
        service.stop()


def figure(service: ServiceProcess, name: str) -> float:
    """A sample of the service's metrics; 0 where there is none."""
    with urllib.request.urlopen(f"{service.url}/metrics") as answer:
        lines = answer.read().decode().splitlines()
    return next((float(line.rpartition(" ")[2]) for line in lines if line.startswith(f"{name} ")), 0.0)


def options(url: str, **changes: Any) -> MemberOptions:
    return MemberOptions(**({"coordinator": url, "group_id": "g", "topics": ("clicks",)} | changes))


async def until(condition: Callable[[], bool]) -> None:
    for _ in range(400):
        if condition():
            return
        await asyncio.sleep(0.05)
    raise AssertionError("it did not come to that")


async def share(one: GroupMember, two: GroupMember) -> None:
    """Wait until both have partitions of one generation."""
    async with asyncio.timeout(30):
        while True:
            mine, its = await one.wait_assigned(), await two.wait_assigned()
            if mine.generation_id == its.generation_id and len(mine.partitions) == len(its.partitions) == 2:
                return
            await asyncio.sleep(0.02)


async def test_a_proxy_that_strips_the_handshake_costs_a_warning_and_nothing_else(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with behind(tmp_path, STRIP) as (proxy, service), nothing_left():
        await asyncio.to_thread(service.send, "PUT", "/v1/topics/clicks", {"partitions": 4})
        pool = ChannelPool(try_again_ms=200)
        async with GroupMember(options(proxy.url, heartbeat_wait_ms=500), channels=pool) as one:
            alone = await one.wait_assigned(30_000)
            async with GroupMember(options(proxy.url), channels=pool) as two:
                await share(one, two)
                began = time.monotonic()
            again = await one.wait_assigned(30_000, newer_than=alone.generation_id + 1)
            assert len(again.partitions) == 4
            assert time.monotonic() - began < 60, "the long poll told of it"
            assert figure(service, "rallypoint_channels") == 0
            said = f"g: no channel with {proxy.url}: the handshake was answered with HTTP 400; going on over plain HTTP"
            assert [record.getMessage() for record in caplog.records] == [said, said], "each member says it once"
            # The proxy learns of WebSockets, and a channel comes to be used without anybody's doing.
            proxy.handshakes = None
            beaten = 'rallypoint_channel_calls_total{operation="heartbeat",outcome="NONE"}'
            await until(lambda: figure(service, beaten) > 0)
            assert (one.state, figure(service, "rallypoint_channels")) == (State.STABLE, 1)
            assert one.assignment == again


@pytest.mark.parametrize("handshakes", [STRIP, None])
async def test_a_token_that_is_not_known_is_refused_with_channels_as_without(
    tmp_path: Path, handshakes: str | None
) -> None:
    known = "sha256:" + hashlib.sha256(TOKEN.encode()).hexdigest()
    async with behind(tmp_path, handshakes, "--tokens", known) as (proxy, _), nothing_left():
        for token in (None, "wrong"):
            member = GroupMember(options(proxy.url, token=token))
            await member.start()
            with pytest.raises(NotAuthenticated):
                await member.wait_assigned(30_000)
            await member.leave()
        async with GroupMember(options(proxy.url, token=TOKEN), partition_counts={"clicks": 1}) as member:
            await member.wait_assigned(30_000)


async def test_a_hundred_members_of_fifty_groups_live_on_one_connection(tmp_path: Path) -> None:
    with running_service(tmp_path, *QUICK) as service:
        await asyncio.to_thread(service.send, "PUT", "/v1/topics/clicks", {"partitions": 4})
        async with nothing_left():
            pool = ChannelPool()
            members = [
                GroupMember(options(service.url, group_id=f"g{number % 50}"), channels=pool) for number in range(100)
            ]
            await asyncio.gather(*(member.start() for member in members))
            pairs = list(zip(members[:50], members[50:], strict=True))
            await asyncio.gather(*(share(one, two) for one, two in pairs))
            assert figure(service, "rallypoint_channels") == pool.channel_count == 1
            await asyncio.gather(*(member.leave() for member in members))


async def test_a_service_with_small_limits_gets_more_connections(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with running_service(tmp_path, *QUICK, limits={"channel_groups_max": 3}) as service:
        await asyncio.to_thread(service.send, "PUT", "/v1/topics/clicks", {"partitions": 4})
        async with nothing_left():
            pool = ChannelPool()
            members = [GroupMember(options(service.url, group_id=f"g{number}"), channels=pool) for number in range(8)]
            await asyncio.gather(*(member.start() for member in members))
            await asyncio.gather(*(member.wait_assigned(30_000) for member in members))
            assert pool.channel_count == figure(service, "rallypoint_channels")
            assert pool.channel_count >= 3
            await asyncio.gather(*(member.leave() for member in members))
    assert caplog.records == []


PROGRAM = """
import sys, time
from rallypoint import BlockingGroupMember, MemberOptions
member = BlockingGroupMember(MemberOptions(coordinator=sys.argv[1], group_id="g", topics=("clicks",)))
member.start()
print(member.wait_assigned(30_000).generation_id, flush=True)
time.sleep(600)
"""


@contextmanager
def process(url: str) -> Iterator["subprocess.Popen[str]"]:
    """A process with a member in it; killed at the end."""
    victim = subprocess.Popen([sys.executable, "-c", PROGRAM, url], stdout=subprocess.PIPE, text=True)
    assert victim.stdout is not None
    try:
        yield victim
    finally:
        victim.kill()
        victim.wait(10)
        victim.stdout.close()


async def test_what_a_killed_process_had_is_anothers_after_its_grace(tmp_path: Path) -> None:
    with running_service(tmp_path, *QUICK) as service:
        await asyncio.to_thread(service.send, "PUT", "/v1/topics/clicks", {"partitions": 4})
        async with GroupMember(options(service.url)) as survivor:
            await survivor.wait_assigned(30_000)
            with process(service.url) as victim:
                assert victim.stdout is not None
                generation_id = int(await asyncio.to_thread(victim.stdout.readline))
                shared = await survivor.wait_assigned(30_000, newer_than=generation_id - 1)
                assert len(shared.partitions) == 2
            # A session timeout is 45 seconds; the grace is 2.
            again = await survivor.wait_assigned(30_000, newer_than=shared.generation_id)
            assert len(again.partitions) == 4


@pytest.mark.parametrize("transport", ["channel", in_long("http")])
async def test_a_commit_of_more_partitions_than_one_call_takes(tmp_path: Path, transport: str) -> None:
    count = 12_000
    with running_service(tmp_path, *QUICK) as service:
        member = GroupMember(options(service.url, transport=transport), partition_counts={"clicks": count})
        async with member:
            held = await member.wait_assigned(30_000)
            assert len(held.partitions) == count
            await member.commit({tp: OffsetCommit(offset=1, leader_epoch=1, metadata="m") for tp in held.partitions})
            assert len(await member.committed()) == count


SHORT = ("--group-min-session-timeout-ms", "2000")
BEATS = 'rallypoint_channel_calls_total{operation="heartbeat",outcome="NONE"}'


async def test_members_at_rest_say_nothing_and_stay_and_hear_of_everything(tmp_path: Path) -> None:
    with running_service(tmp_path, *QUICK, *SHORT) as service:
        await asyncio.to_thread(service.send, "PUT", "/v1/topics/clicks", {"partitions": 4})
        opts = options(service.url, session_timeout_ms=9_000)  # a pong may be late by a quarter of it
        async with GroupMember(opts) as one, GroupMember(opts) as two:
            await share(one, two)
            generation_id = one.assignment.generation_id if one.assignment else -1
            before = figure(service, BEATS)
            await asyncio.sleep(20)  # more than two sessions
            assert one.assignment is not None
            assert one.assignment.generation_id == generation_id
            assert figure(service, BEATS) == before
            removal = {"members": [one.member_id], "reason": "hung"}
            await asyncio.to_thread(service.send, "POST", "/v1/groups/g/members/remove", removal)
            await one.wait_assigned(30_000, newer_than=generation_id)
            await share(one, two)


async def test_on_a_shared_channel_a_member_does_not_outlive_its_end(tmp_path: Path) -> None:
    with running_service(tmp_path, *QUICK, *SHORT) as service:
        await asyncio.to_thread(service.send, "PUT", "/v1/topics/clicks", {"partitions": 4})
        pool = ChannelPool()
        opts = options(service.url, session_timeout_ms=3_000)
        async with GroupMember(opts, channels=pool) as one:
            two = GroupMember(opts, channels=pool)
            await two.start()
            await share(one, two)
            shared = one.assignment
            assert shared is not None
            await two.close()
            assert pool.channel_count == 1
            alone = await one.wait_assigned(60_000, newer_than=shared.generation_id)
            assert len(alone.partitions) == 4


async def test_an_event_loop_that_is_stuck_is_found_within_the_session(tmp_path: Path) -> None:
    """It answers no ping, though its process and its connection live."""
    with running_service(tmp_path, *QUICK, *SHORT) as service:
        await asyncio.to_thread(service.send, "PUT", "/v1/topics/clicks", {"partitions": 4})
        opts = options(service.url, session_timeout_ms=3_000)
        async with GroupMember(opts) as one:
            stuck, go_on = asyncio.Event(), threading.Event()

            async def block() -> None:
                async with GroupMember(opts) as two:
                    await two.wait_assigned(30_000)
                    loop.call_soon_threadsafe(stuck.set)
                    while not go_on.wait(0.01):  # a handler that never lets the loop turn
                        pass

            loop = asyncio.get_running_loop()
            thread = threading.Thread(target=lambda: asyncio.run(block()), daemon=True)
            thread.start()
            try:
                await stuck.wait()
                while (held := await one.wait_assigned(60_000)) and len(held.partitions) < 4:
                    await one.wait_assigned(60_000, newer_than=held.generation_id)
            finally:
                go_on.set()
                await asyncio.to_thread(thread.join)
