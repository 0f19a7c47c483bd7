"""Members that say nothing: their channel keeps their sessions, and tells them when it does so no longer."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest

from rallypoint.coordinator.core.commands import TimerKind
from rallypoint.coordinator.core.decide import SESSION_LOOKS_MS
from rallypoint.coordinator.runtime.contract import NodeAddress, SoleOwner
from rallypoint.coordinator.runtime.event_loop.timers import BUCKET_MS
from rallypoint.coordinator.storage.memory import MemoryStore
from tests.coordinator.runtime.test_waiting_requests import SESSION_MS, count_of, group_of_one, post, until
from tests.fakes.api_server import ApiClient
from tests.fakes.channel_client import ChannelClient, beat_body, join_body, open_channel, sync_body
from tests.fakes.faulty_store import FaultyStore
from tests.fakes.manual_clock import ManualClock
from tests.fakes.set_service import open_service

KEPT = {"channel_keeps_session": True}


@asynccontextmanager
async def at_rest(
    clock: ManualClock, store: FaultyStore | None = None
) -> AsyncIterator[tuple[ApiClient, ChannelClient, dict[str, Any]]]:
    """A member whose heartbeat on a channel has been answered just now."""
    async with (
        group_of_one(clock, store) as (api, beat),
        aiohttp.ClientSession() as http,
        open_channel(http, api.port) as client,
    ):
        assert await client.call("heartbeat", "g", beat) == (200, KEPT)
        yield api, client, beat


async def say(api: ApiClient, client: ChannelClient, beat: dict[str, Any], word: str) -> None:
    """Something comes on the channel, whatever it is, and has come when this returns."""
    connection = api.service.connections.connection_of("g", beat["member_id"])
    assert connection is not None
    match word:
        case "ping":
            await client.socket.ping()
        case "pong":
            await client.socket.pong()
        case "fetch":
            await client.call("fetch", "another")
        case "malformed":
            await client.socket.send_str("{")
    await until(lambda: connection.heard_at_ms == api.service.clock.now_ms())


def session_timers(api: ApiClient) -> list[int]:
    """When those of the group are due."""
    (executor,) = [shard.executors["g"] for shard in api.service._shards if "g" in shard.executors]
    return [timer.deadline_ms for key, timer in executor._timers.items() if key.kind is TimerKind.SESSION]


@pytest.mark.parametrize("word", ["ping", "pong", "fetch", "malformed"])
async def test_whatever_comes_on_a_channel_renews_the_sessions_that_it_carries(word: str) -> None:
    clock = ManualClock()
    async with at_rest(clock) as (api, client, beat):
        for _ in range(6):
            clock.move(SESSION_MS - 50)
            assert await count_of(api) == 1
            await say(api, client, beat, word)
        clock.move(SESSION_MS - 50)
        assert await count_of(api) == 1
        clock.move(100)
        assert await count_of(api) == 0, "a session after the last that came"


@pytest.mark.parametrize("phase_ms", [0, 1, 50, 99])
async def test_a_session_that_was_renewed_is_looked_at_with_others_and_ends_at_its_own_time(phase_ms: int) -> None:
    clock = ManualClock()
    async with at_rest(clock) as (api, client, beat):
        clock.move(SESSION_MS // 2 + phase_ms)
        await say(api, client, beat, "ping")
        ends_at_ms = clock.now_ms() + SESSION_MS
        clock.move(SESSION_MS - 1)
        assert session_timers(api) == [ends_at_ms], "looked at before, when it had been silent"
        await say(api, client, beat, "ping")
        clock.move(SESSION_MS // 2)
        (looked_at_ms,) = session_timers(api)
        assert looked_at_ms % SESSION_LOOKS_MS == 0
        clock.move(SESSION_MS // 2 - 1)
        assert await count_of(api) == 1
        clock.move(1 + BUCKET_MS)
        assert await count_of(api) == 0


@pytest.mark.parametrize("by", ["client", "service"])
async def test_a_session_lasts_from_what_came_last_on_a_channel_that_has_ended(by: str) -> None:
    clock = ManualClock()
    async with at_rest(clock) as (api, client, beat):
        connection = api.service.connections.connection_of("g", beat["member_id"])
        assert connection is not None
        clock.move(SESSION_MS - 100)
        await say(api, client, beat, "ping")
        if by == "client":
            # A word over HTTP ends the grace, but is no heartbeat of this generation.
            await client.socket.close()
            await until(lambda: not len(api.service.connections))
            assert (await post(api, "heartbeat", {**beat, "generation_id": 7}))[0] == 409
        else:
            connection.end_by_fault()
            await until(lambda: not len(api.service.connections))
        clock.move(SESSION_MS - 50)
        assert await count_of(api) == 1
        clock.move(100)
        assert await count_of(api) == 0


async def test_what_comes_while_the_store_hangs_counts_though_the_timer_fired_before() -> None:
    clock, store = ManualClock(), FaultyStore(MemoryStore())
    async with at_rest(clock, store) as (api, client, beat):
        clock.move(SESSION_MS - 1_000)
        await say(api, client, beat, "ping")
        store.append_gate.shut()
        writing = asyncio.create_task(api.request("PUT", "/v1/groups/g/cooldown", {"cooldown_ms": 500}))
        await until(lambda: bool(store.append_gate.waiting))
        for _ in range(3):
            clock.move(SESSION_MS // 2)
            await say(api, client, beat, "ping")
        store.append_gate.let_go()
        await writing
        assert await count_of(api) == 1
        clock.move(SESSION_MS - 50)
        assert await count_of(api) == 1
        clock.move(100)
        assert await count_of(api) == 0


@pytest.mark.parametrize("word", ["sync", "heartbeat"])
async def test_a_session_lasts_from_what_came_last_on_a_channel_that_its_member_left_for_http(word: str) -> None:
    """What it says over HTTP may be no heartbeat."""
    clock, store = ManualClock(), FaultyStore(MemoryStore())
    async with at_rest(clock, store) as (api, client, beat):
        clock.move(SESSION_MS - 100)
        await say(api, client, beat, "ping")
        if word == "sync":
            assert (await post(api, "rebalance", {}))[0] == 200
            left = asyncio.create_task(post(api, "sync", {**beat, "protocol_type": "consumer"}))
        else:
            # Of another generation, which is not known before the store has answered.
            store.append_gate.shut()
            writing = asyncio.create_task(api.request("PUT", "/v1/groups/g/cooldown", {"cooldown_ms": 500}))
            await until(lambda: bool(store.append_gate.waiting))
            left = asyncio.create_task(post(api, "heartbeat", {**beat, "generation_id": 7}))
        await until(lambda: not api.service.connections.members_of("g"))
        if word == "heartbeat":
            store.append_gate.let_go()
            await writing
        assert (await left)[0] == 409
        clock.move(SESSION_MS - 50)
        assert await count_of(api) == 1
        clock.move(100)
        assert await count_of(api) == 0


async def test_a_member_that_its_client_answers_for_no_longer_lives_for_a_session() -> None:
    clock = ManualClock()
    async with at_rest(clock) as (api, client, beat):
        assert await client.call("drop", "g", {"member_id": "another"}) == (200, {})
        clock.move(SESSION_MS - 100)
        assert await client.call("drop", "g", {"member_id": beat["member_id"]}) == (200, {})
        assert not client.pushes, "it has said so itself"
        for _ in range(3):
            clock.move((SESSION_MS - 50) // 3)
            await client.call("fetch", "g")
        assert await count_of(api) == 1
        clock.move(100)
        assert await count_of(api) == 0


async def test_nobody_drops_a_member_of_another_channel() -> None:
    clock = ManualClock()
    async with (
        at_rest(clock) as (api, _, beat),
        aiohttp.ClientSession() as http,
        open_channel(http, api.port) as stranger,
    ):
        assert await stranger.call("drop", "g", {"member_id": beat["member_id"]}) == (200, {})
        assert api.service.connections.members_of("g") == {beat["member_id"]}


async def test_only_a_channel_keeps_a_session_and_only_of_a_member_that_it_carries() -> None:
    async with open_service() as api, open_channel(api.http, api.port) as client:
        joined = await client.form("g")
        assert joined["channel_keeps_session"] is True
        assert await client.call("heartbeat", "g", beat_body(joined)) == (200, KEPT)
        assert await post(api, "heartbeat", beat_body(joined)) == (200, {})
        status, again = await post(api, "join", join_body(joined["member_id"]))
        assert (status, "channel_keeps_session" in again) == (200, False)


async def test_who_is_taken_out_by_an_operator_hears_so() -> None:
    async with open_service() as api, open_channel(api.http, api.port) as client:
        joined = await client.form("g")
        body = {"members": [joined["member_id"]], "reason": "hung"}
        assert (await api.request("POST", "/v1/groups/g/members/remove", body)).status == 200
        assert (await client.push())["event"] == "rebalance"
        assert await client.push() == {"event": "dropped", "group_id": "g", "member_id": joined["member_id"]}
        assert (await client.call("heartbeat", "g", beat_body(joined)))[0] == 404


async def test_who_is_fenced_hears_so_at_once() -> None:
    async with open_service() as api, open_channel(api.http, api.port) as first:
        _, joined = await first.call("join", "g", join_body("", group_instance_id="i"))
        assert (await first.call("sync", "g", {**sync_body(joined), "group_instance_id": "i"}))[0] == 200
        async with open_channel(api.http, api.port) as second:
            status, _ = await second.call("join", "g", join_body("", group_instance_id="i"))
            assert status == 200
            assert await first.push() == {"event": "dropped", "group_id": "g", "member_id": joined["member_id"]}
            beat = {**beat_body(joined), "group_instance_id": "i"}
            status, problem = await first.call("heartbeat", "g", beat)
            assert (status, problem["error_name"]) == (409, "FENCED_INSTANCE_ID")


class DoubtfulOwner(SoleOwner):
    """Its lease may be over, or not."""

    is_in_doubt = False

    @property
    def may_tell(self) -> bool:
        return not self.is_in_doubt


@pytest.mark.parametrize("behind", ["", "{" * 70_000])
async def test_before_a_pong_of_a_node_that_cannot_vouch_for_them_members_hear_so(behind: str) -> None:
    """The node stood still, and finds the ping before it looks at its lease. Behind a large message a ping waits."""
    owner = DoubtfulOwner(NodeAddress("node-1", "http://127.0.0.1:1"))
    async with open_service(ownership=owner) as api, open_channel(api.http, api.port, autoping=False) as client:
        for group_id in ("g", "h"):
            await client.form(group_id)
        for _ in range(2):
            for is_in_doubt, told in ((False, []), (True, ["g", "h"]), (True, [])):
                owner.is_in_doubt = is_in_doubt
                assert await unloaded_before_pong(client, behind) == told


async def unloaded_before_pong(client: ChannelClient, behind: str) -> list[str]:
    """Ping; the groups of which the channel hears, before the pong, that they are unloaded."""
    if behind:
        await client.socket.send_str(behind)
    await client.socket.ping()
    told = []
    while (message := await client.socket.receive(timeout=30)).type is not aiohttp.WSMsgType.PONG:
        said = json.loads(message.data)
        if said.get("event") == "unloaded":
            told.append(said["group_id"])
    return told


async def test_a_channel_is_pinged_three_times_in_the_shortest_session_that_it_keeps() -> None:
    async with open_service(channel_ping_interval_ms=60_000, group_min_session_timeout_ms=300) as api:
        async with open_channel(api.http, api.port, autoping=False) as client:
            await client.form("g", session_timeout_ms=30_000)
            with pytest.raises(TimeoutError):
                await client.socket.receive(timeout=0.5)
        async with open_channel(api.http, api.port, autoping=False) as client:
            await client.form("h", session_timeout_ms=300)
            assert (await client.socket.receive(timeout=30)).type is aiohttp.WSMsgType.PING
