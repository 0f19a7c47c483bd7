"""A request that has come and waits for its turn is a sign that its sender lives, as of when it came."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest

from rallypoint.coordinator.http.channel.channel import Channel
from rallypoint.coordinator.http.channel.incoming import BEHIND_BYTES
from rallypoint.coordinator.http.channel.websocket import WebSocket
from rallypoint.coordinator.http.requests.large_bodies import LARGE_BYTES
from rallypoint.coordinator.http.requests.speaker import group_of, member_of, member_of_message
from rallypoint.coordinator.runtime.members.heartbeats import WaitingRequests
from rallypoint.coordinator.storage.memory import MemoryStore
from tests.fakes.api_server import ApiClient
from tests.fakes.channel_client import ChannelClient, beat_body, join_body, open_channel, sync_body
from tests.fakes.faulty_store import FaultyStore
from tests.fakes.manual_clock import ManualClock
from tests.fakes.set_service import open_service

SESSION_MS = 10_000
"""Of `join_body`."""


def test_of_a_member_the_last_that_came_counts_as_long_as_it_waits() -> None:
    clock = ManualClock()
    waiting_requests = WaitingRequests(clock)
    with waiting_requests.waiting("g", "a"):
        first_ms = clock.now_ms()
        clock.move(10)
        assert waiting_requests.last_ms("g", "a") == first_ms
        with waiting_requests.waiting("g", "a"), waiting_requests.waiting("h", "a"):
            assert waiting_requests.last_ms("g", "a") == first_ms + 10
        assert waiting_requests.last_ms("g", "a") == first_ms
        assert waiting_requests.last_ms("g", "b") is waiting_requests.last_ms("h", "a") is None
    assert waiting_requests.last_ms("g", "a") is None
    assert not waiting_requests._waiting


@pytest.mark.parametrize(
    ("body", "member_id"),
    [
        ({"offsets": {"member_id": {"0": {"offset": 1, "metadata": '"member_id":"b"'}}}, "member_id": "a-1"}, "a-1"),
        ({"member_id": 'q"\\ü'}, 'q"\\ü'),
        ({"members": [{"member_id": "a"}, {"member_id": "b"}]}, ""),
        ({"member_id": ""}, ""),
        ({"member_id": 7}, ""),
        ([], ""),
    ],
)
def test_whose_a_body_is_can_be_seen_before_it_is_read(body: Any, member_id: str) -> None:
    for text in (json.dumps(body), json.dumps(body, ensure_ascii=False, indent=1)):
        assert member_of(text.encode()) == member_id
    message = json.dumps({"id": 1, "group_id": "g/ü", "body": body}).encode()
    assert (group_of(message), member_of_message(message)) == ("g/ü", member_id)


async def post(api: ApiClient, word: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
    answer = await api.request("POST", f"/v1/groups/g/{word}", body)
    return answer.status, answer.json


async def until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not is_so():  # noqa: ASYNC110 - what is waited for is in another connection's task
            await asyncio.sleep(0.001)


async def count_of(api: ApiClient) -> int:
    return len((await api.request("GET", "/v1/groups/g")).json["members"])


@asynccontextmanager
async def group_of_one(
    clock: ManualClock, store: FaultyStore | None = None
) -> AsyncIterator[tuple[ApiClient, dict[str, Any]]]:
    """A member that has been heard of at this instant."""
    async with open_service(store, clock=clock) as api:
        _, refused = await post(api, "join", join_body(""))
        joining = asyncio.create_task(post(api, "join", join_body(refused["member_id"])))
        while not joining.done():
            await clock.run(10)
        _, joined = await joining
        assert (await post(api, "sync", sync_body(joined)))[0] == 200
        yield api, beat_body(joined)


async def begin_commit(api: ApiClient, beat: dict[str, Any], client: ChannelClient | None) -> "asyncio.Task[int]":
    """A large one, which has come and waits behind others' texts until the lock is released."""
    offsets = {"t": {str(n): {"offset": n, "metadata": "x" * 40} for n in range(1_500)}}
    body = {**beat, "offsets": offsets}
    assert len(json.dumps(body)) > LARGE_BYTES

    async def commit() -> int:
        return (await (post(api, "offsets", body) if client is None else client.call("commit", "g", body)))[0]

    await api.http_api.bodies._parsing.acquire()
    call = asyncio.create_task(commit())
    await until(lambda: bool(api.service._waiting_requests._waiting))
    return call


@pytest.mark.parametrize("on_channel", [False, True])
async def test_a_member_whose_large_commit_waits_lives_a_session_from_when_it_came_and_no_longer(
    on_channel: bool,
) -> None:
    clock = ManualClock()
    async with (
        group_of_one(clock) as (api, beat),
        aiohttp.ClientSession() as http,
        open_channel(http, api.port) as client,
    ):
        clock.move(SESSION_MS - 1_000)
        call = await begin_commit(api, beat, client if on_channel else None)
        clock.move(SESSION_MS - 50)
        assert await count_of(api) == 1
        clock.move(100)
        assert await count_of(api) == 0
        api.http_api.bodies._parsing.release()
        assert await call == 404


async def test_whose_heartbeats_stand_behind_its_large_commit_lives_a_session_from_the_last_of_them() -> None:
    clock = ManualClock()
    async with (
        group_of_one(clock) as (api, beat),
        aiohttp.ClientSession() as http,
        open_channel(http, api.port) as client,
    ):
        assert (await client.call("heartbeat", "g", beat))[0] == 200
        call = await begin_commit(api, beat, client)
        connection = api.service.connections.connection_of("g", beat["member_id"])
        assert connection is not None
        for _ in range(12):
            clock.move(SESSION_MS // 3)
            await client.send("heartbeat", "g", beat)
            await until(lambda: connection.heard_at_ms == clock.now_ms())
            assert await count_of(api) == 1
        clock.move(SESSION_MS - 50)
        assert await count_of(api) == 1
        clock.move(100)
        assert await count_of(api) == 0
        api.http_api.bodies._parsing.release()
        assert await call == 404


async def test_no_more_than_a_little_is_read_behind_a_large_message() -> None:
    clock = ManualClock()
    async with (
        group_of_one(clock) as (api, beat),
        aiohttp.ClientSession() as http,
        open_channel(http, api.port) as client,
    ):
        assert (await client.call("heartbeat", "g", beat))[0] == 200
        call = await begin_commit(api, beat, client)
        connection = api.service.connections.connection_of("g", beat["member_id"])
        assert isinstance(connection, Channel)
        assert isinstance(connection._socket, WebSocket)
        incoming = connection._socket.incoming
        text = json.dumps({"id": "x", "op": "heartbeat", "group_id": "g", "body": beat, "more": "x" * 1_000})
        sending = asyncio.create_task(send_often(client, text, 20_000))
        await until(lambda: len(incoming._came) >= BEHIND_BYTES)
        await asyncio.sleep(0.2)
        assert len(incoming._came) < BEHIND_BYTES + 300_000, "what one read brings at the most"
        assert not sending.done()
        for task in (sending, call):
            task.cancel()
            await asyncio.wait({task})
        api.http_api.bodies._parsing.release()


async def send_often(client: ChannelClient, text: str, times: int) -> None:
    for _ in range(times):
        await client.socket.send_str(text)


async def test_its_commit_is_taken_where_its_turn_comes_in_time_and_then_it_has_a_session() -> None:
    clock = ManualClock()
    async with group_of_one(clock) as (api, beat):
        clock.move(SESSION_MS - 1_000)
        call = await begin_commit(api, beat, None)
        clock.move(SESSION_MS - 50)
        api.http_api.bodies._parsing.release()
        assert await call == 200
        assert not api.service._waiting_requests._waiting
        clock.move(SESSION_MS - 50)
        assert await count_of(api) == 1
        clock.move(100)
        assert await count_of(api) == 0


async def test_what_one_member_waits_for_keeps_no_other_alive() -> None:
    clock = ManualClock()
    async with group_of_one(clock) as (api, beat):
        clock.move(SESSION_MS - 1_000)
        call = await begin_commit(api, {**beat, "member_id": "another"}, None)
        clock.move(1_050)
        assert await count_of(api) == 0
        api.http_api.bodies._parsing.release()
        assert await call == 404


async def test_who_hangs_up_while_its_request_waits_is_heard_of_no_longer() -> None:
    clock = ManualClock()
    async with group_of_one(clock) as (api, beat):
        clock.move(SESSION_MS - 1_000)
        call = await begin_commit(api, beat, None)
        call.cancel()
        await until(lambda: not api.service._waiting_requests._waiting)
        clock.move(1_050)
        assert await count_of(api) == 0
        api.http_api.bodies._parsing.release()


async def test_what_others_ask_on_its_connection_keeps_no_member_alive() -> None:
    clock = ManualClock()
    async with group_of_one(clock) as (api, beat):
        turns = api.http_api.turns
        offsets = {"t": {str(n): {"offset": n, "metadata": "x" * 40} for n in range(1_500)}}
        assert (await post(api, "offsets", {**beat, "offsets": offsets}))[0] == 200
        turns._passing = 1_000_000_000
        deleting = asyncio.create_task(api.request("DELETE", "/v1/groups/g"))
        await until(lambda: len(turns) == 1)
        assert not api.service._waiting_requests._waiting
        turns._passing = 0
        assert (await deleting).status == 409


async def test_a_heartbeat_that_waits_for_the_store_is_a_sign_of_life_though_the_timer_stands_before_it() -> None:
    clock, store = ManualClock(), FaultyStore(MemoryStore())
    async with group_of_one(clock, store) as (api, beat):
        clock.move(4_000)
        assert (await post(api, "heartbeat", beat))[0] == 200
        clock.move(5_000)
        store.append_gate.shut()
        writing = asyncio.create_task(api.request("PUT", "/v1/groups/g/cooldown", {"cooldown_ms": 500}))
        await until(lambda: bool(store.append_gate.waiting))
        clock.move(1_000)  # the session's timer, which is early
        beating = asyncio.create_task(post(api, "heartbeat", beat))
        await until(lambda: waits_for(api) == 2)
        clock.move(SESSION_MS - 100)  # the deadline that the timer would have been set to is over
        store.append_gate.let_go()
        await writing
        await beating
        assert await count_of(api) == 1


def waits_for(api: ApiClient) -> int:
    """How many calls wait in the group."""
    return sum(len(executor._waiting) for shard in api.service._shards for executor in shard.executors.values())
