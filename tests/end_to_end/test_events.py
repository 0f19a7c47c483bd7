"""A reader of events over the life of two real members and a service that is started again."""

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path

import aiohttp
import pytest

from rallypoint import GroupMember, MemberOptions
from tests.end_to_end.service_process import ServiceProcess, running_service
from tests.fakes.event_reader import EventReader, Told, read_events

pytestmark = pytest.mark.slow

FLAGS = (
    *("--group-initial-rebalance-delay-ms", "300"),
    *("--events-kept-max", "5000"),
)
OFTEN = {"events_heartbeat_interval_ms": 200}
VICTIM = """
import sys, time
from rallypoint import BlockingGroupMember, MemberOptions
member = BlockingGroupMember(MemberOptions(coordinator=sys.argv[1], group_id="clicks", topics=("clicks",),
    client_id="victim", session_timeout_ms=6000, heartbeat_wait_ms=500))
member.start()
print(member.wait_assigned(30_000).generation_id, flush=True)
time.sleep(600)
"""


@contextmanager
def victim_of(service: ServiceProcess) -> Iterator["subprocess.Popen[str]"]:
    process = subprocess.Popen([sys.executable, "-c", VICTIM, service.url], stdout=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        process.kill()
        process.wait(10)
        assert process.stdout is not None
        process.stdout.close()


def kinds(told: list[Told]) -> list[str]:
    return [one.kind for one in told]


async def test_a_death_and_a_restart_are_told_in_order_and_a_reader_that_was_away_loses_nothing(tmp_path: Path) -> None:
    with running_service(tmp_path, *FLAGS, limits=OFTEN) as service:
        await asyncio.to_thread(service.send, "PUT", "/v1/topics/clicks", {"partitions": 4})
        async with aiohttp.ClientSession() as http:
            cursor = await see_a_death(service, http)
            cursor = await come_back(service, http, cursor)
            await see_a_restart(service, http, cursor)


async def see_a_death(service: ServiceProcess, http: aiohttp.ClientSession) -> str:
    """Two members, one of which is killed. The answer is the cursor at which the reader went away."""
    options = MemberOptions(
        coordinator=service.url, group_id="clicks", topics=("clicks",), client_id="survivor", session_timeout_ms=30_000
    )
    async with read_events(http, service.url, "?group_id=clicks") as reader, GroupMember(options) as survivor:
        told = await reader.until("group_changed", state="Stable")
        begun = [kind for kind in kinds(told) if kind != "group_changed"]
        assert begun == ["group_created", "rebalance_began", "join_phase_ended", "sync_phase_ended", "partitions_moved"]
        alone = await survivor.wait_assigned(30_000)
        with victim_of(service) as victim:
            told = await reader.until("group_changed", state="Stable", member_count=2)
            assert told[0].data["trigger"] == "member_joined"
            assert told[0].data["generation_id"] == alone.generation_id
            assert victim.stdout is not None
            await asyncio.to_thread(victim.stdout.readline)
            victim.kill()
            told = await reader.until("group_changed", state="Stable", member_count=1)
        order = [kind for kind in kinds(told) if kind != "group_changed"]
        phases = ["rebalance_began", "join_phase_ended", "sync_phase_ended"]
        assert order == ["session_expired", "partitions_moved", *phases, "partitions_moved"]
        expired, began = (
            next(one for one in told if one.kind == kind) for kind in ("session_expired", "rebalance_began")
        )
        assert expired.data["member_id"].startswith("victim-")
        assert (began.data["trigger"], began.data["member_id"]) == ("member_expired", expired.data["member_id"])
        times = [one.data["at_ms"] for one in told]
        assert times == sorted(times)
        return reader.cursor


async def come_back(service: ServiceProcess, http: aiohttp.ClientSession, cursor: str) -> str:
    """The survivor has left while nobody read; a commit comes too, which is not asked for."""
    simple = {"generation_id": -1, "offsets": {"clicks": {"0": {"offset": 7}}}}
    # The survivor left when its block ended, and a group that is Empty takes the commit of nobody.
    assert (await asyncio.to_thread(service.send, "POST", "/v1/groups/clicks/offsets", simple))[0] == 200
    await asyncio.to_thread(service.send, "DELETE", "/v1/groups/clicks")
    async with read_events(http, service.url, headers={"Last-Event-ID": cursor}) as reader:
        told = await reader.until("group_removed")
        assert "gap" not in kinds(told)
        assert "offsets_committed" not in kinds(told)
        assert [one.data["state"] for one in told if one.kind == "group_changed"][-1] == "Empty"
        return reader.cursor


async def see_a_restart(service: ServiceProcess, http: aiohttp.ClientSession, cursor: str) -> None:
    """The stream ends whole; the old cursor gets one gap, and then what comes."""
    simple = {"generation_id": -1, "offsets": {"clicks": {"0": {"offset": 7}}}}
    async with read_events(http, service.url) as reader:
        await asyncio.to_thread(service.send, "POST", "/v1/groups/kept/offsets", simple)
        await reader.until("group_created", group_id="kept")
        assert await asyncio.to_thread(service.stop) == 0
        rest = [told async for told in rest_of(reader)]
        assert "group_created" not in kinds(rest)
    assert "Traceback" not in service.log
    await asyncio.to_thread(service.start)
    async with read_events(http, service.url, headers={"Last-Event-ID": cursor}) as reader:
        told = await reader.next()
        assert told is not None
        assert (told.kind, told.data["reason"]) == ("gap", "restarted")
        _, listed = await asyncio.to_thread(service.send, "GET", "/v1/groups")
        assert [group["group_id"] for group in listed["groups"]] == ["kept"]
        await asyncio.to_thread(service.send, "POST", "/v1/groups/new/offsets", simple)
        assert kinds(await reader.until("group_created", group_id="new")) == ["group_created"]
        heartbeats = reader.heartbeats
        assert (await reader.until("group_changed", group_id="new"))[-1].data["state"] == "Empty"
        while reader.heartbeats == heartbeats:
            with pytest.raises(TimeoutError):
                await reader.next(1.0)


async def rest_of(reader: EventReader) -> AsyncIterator[Told]:
    while (told := await reader.next()) is not None:
        yield told


async def test_a_reader_that_stalls_is_cut_off_and_the_service_goes_on(tmp_path: Path) -> None:
    with running_service(
        tmp_path, *FLAGS, "--event-streams-max", "1", limits=OFTEN | {"events_write_timeout_ms": 2_000}
    ) as service:
        reader, writer = await asyncio.open_connection("127.0.0.1", service.port, limit=1)
        writer.write(b"GET /v1/events?kinds=offsets_committed HTTP/1.1\r\nHost: localhost\r\n\r\n")
        await writer.drain()
        assert (await reader.readexactly(15)).startswith(b"HTTP/1.1 200")
        offsets = {f"topic-{'x' * 200}-{number}": {"0": {"offset": 1}} for number in range(2_000)}
        commit = {"generation_id": -1, "offsets": offsets}

        async def cut_off() -> bool:
            status, _ = await asyncio.to_thread(service.send, "POST", "/v1/groups/g/offsets", commit)
            assert status == 200
            async with aiohttp.ClientSession() as http, http.get(f"{service.url}/metrics") as page:
                return "rallypoint_event_streams 0.0" in await page.text()

        async with asyncio.timeout(60):
            while not await cut_off():
                pass
        writer.close()
        async with aiohttp.ClientSession() as http:
            async with http.get(f"{service.url}/metrics") as page:
                [lost] = [
                    line for line in (await page.text()).splitlines() if line.startswith("rallypoint_events_lost")
                ]
            assert float(lost.split()[-1]) > 0, "commits go on for as long as a write may take"
            async with read_events(http, service.url) as again:
                await asyncio.to_thread(service.send, "DELETE", "/v1/groups/g")
                await again.until("group_removed", group_id="g")
        assert "Traceback" not in service.log
