"""A channel has its connection alone: aiohttp, which shook hands, knows nothing of it any more."""

import asyncio
import gc
from typing import Any

import pytest
from aiohttp import web

from rallypoint.coordinator.access.tokens import hash_token
from rallypoint.coordinator.http.channel.channels import Channels
from rallypoint.coordinator.http.channel.websocket import WebSocket
from rallypoint.coordinator.http.connections import Connection
from rallypoint.coordinator.http.requests.large_bodies import LARGE_BYTES
from rallypoint.coordinator.http.security import SecurityPolicy
from tests.coordinator.runtime.test_waiting_requests import until
from tests.fakes.api_server import ApiClient
from tests.fakes.raw_channel import frame, raw_channel
from tests.fakes.set_service import open_service

CALL = b'{"id":1,"op":"coordinator","body":{"group_ids":["g"]}}'
TOKEN = "honest"
OF_AIOHTTP = (Connection, web.BaseRequest, web.StreamResponse)


def kept() -> list[object]:
    """What of the handshake is in memory yet."""
    return [one for one in gc.get_objects() if isinstance(one, OF_AIOHTTP)]


def counts(api: ApiClient) -> tuple[int, int]:
    """Connections that have authenticated, and others."""
    admission = api.http_api.admission
    return admission.authenticated_count, admission.unauthenticated_count


async def test_of_an_open_channel_nothing_is_kept_but_its_own_and_one_task() -> None:
    async with open_service() as api:
        gc.collect()
        kept_before, tasks_before = len(kept()), len(asyncio.all_tasks())
        async with raw_channel(api.port) as channel:
            await until(lambda: not api.server.connections)
            channel.send(frame(CALL))
            assert (await channel.frame())[0] == 1
            assert len(kept()) == kept_before
            assert len(asyncio.all_tasks()) == tasks_before + 1
            assert counts(api) == (1, 0)
            assert api.server.ended_count == 0
        await until(lambda: api.server.ended_count == 1)
        assert counts(api) == (0, 0)
        await until(lambda: len(asyncio.all_tasks()) == tasks_before)
        assert len(kept()) == kept_before


class Successor(asyncio.Protocol):
    """What takes a connection over, and how full it hears that it is."""

    serving: "asyncio.Task[None] | None" = None
    is_full = False

    def pause_writing(self) -> None:
        self.is_full = True

    def abort(self) -> None:
        """Never asked here."""


@pytest.mark.parametrize("says", [(), ("pause",), ("pause", "resume")])
async def test_a_connection_that_is_full_at_its_handshake_is_full_for_its_channel(says: tuple[str, ...]) -> None:
    """The event loop says it once, and has said it to aiohttp's protocol: answers behind a handshake would wait for
    nobody.
    """
    async with open_service() as api:
        _, writer = await asyncio.open_connection("127.0.0.1", api.port)
        await until(lambda: len(api.server.connections) == 1)
        (connection,) = api.server.connections
        assert isinstance(connection, Connection)
        transport = connection.transport
        assert transport is not None
        for word in says:
            getattr(connection, f"{word}_writing")()
        successor = Successor()
        server = connection.hand_over(successor)
        assert server is not None
        assert successor.is_full is (says == ("pause",))
        server.channel_lost(successor)
        transport.close()
        writer.close()
        await writer.wait_closed()


async def test_a_channel_that_is_open_as_the_server_stops_has_its_time_and_is_cut() -> None:
    async with open_service() as api, raw_channel(api.port) as channel, raw_channel(api.port) as leaving:
        await until(lambda: not api.server.connections)
        stopping = asyncio.create_task(api.server.shutdown(0.5))
        leaving.send(frame(b"\x03\xe8", 0x88))
        assert await leaving.to_the_end() == ([], 1000)
        assert not stopping.done()
        assert await channel.to_the_end() == ([], 1006)
        await stopping
        assert counts(api) == (0, 0)
        assert api.metrics.closed == {"closed": 1, "lost": 1}


@pytest.fixture
def goes_on(monkeypatch: pytest.MonkeyPatch) -> asyncio.Event:
    """Behind the answer to a handshake, a request may wait for its turn. Here it waits for this."""
    event = asyncio.Event()
    shake_hands = Channels.open

    async def shake_hands_and_wait(channels: Channels, *given: Any) -> Any:
        answer = await shake_hands(channels, *given)
        await event.wait()
        return answer

    monkeypatch.setattr(Channels, "open", shake_hands_and_wait)
    return event


async def test_a_handshake_that_is_answered_while_the_server_stops_is_a_channel_that_it_ends_too(
    goes_on: asyncio.Event,
) -> None:
    async with open_service() as api, raw_channel(api.port) as channel:
        stopping = asyncio.create_task(api.server.shutdown(0.5))
        await asyncio.sleep(0.05)
        goes_on.set()
        await stopping
        assert not api.server._channels
        assert await channel.to_the_end() == ([], 1006)
        assert api.metrics.closed == {"lost": 1}


@pytest.mark.parametrize("when", ["before", "as"])
async def test_of_a_connection_that_is_lost_about_when_it_is_handed_over_nothing_is_left(
    goes_on: asyncio.Event, when: str
) -> None:
    async with open_service() as api, raw_channel(api.port, frame(b"x" * 300_000)[:200_000]):
        bodies = api.http_api.bodies
        await until(lambda: bodies.total_bytes > LARGE_BYTES)
        (connection,) = api.server.connections
        assert isinstance(connection, Connection)
        if when == "as":
            goes_on.set()  # its task has its turn, and hands over, before the loss is told
        connection.abort()
        await until(lambda: api.server.ended_count == 1)
        goes_on.set()
        await until(lambda: not api.http_api.channels._open)
        assert bodies.total_bytes == 0
        assert counts(api) == (0, 0)


async def test_who_says_its_close_and_does_not_read_is_cut() -> None:
    """It is pinged no more, so what was sent to it would wait for as long as it likes."""
    async with open_service(channel_ping_interval_ms=200) as api, raw_channel(api.port) as channel:
        await until(lambda: not api.server.connections)
        (served,) = api.server._channels
        assert isinstance(served, WebSocket)
        transport = channel.writer.transport
        assert isinstance(transport, asyncio.Transport)
        transport.pause_reading()
        served.send_text(b"x" * 32_000_000)  # more than the systems hold on the way
        channel.send(frame(b"\x03\xe8", 0x88))
        await until(lambda: api.metrics.closed == {"closed": 1})
        assert served.unsent_bytes()
        await until(lambda: api.server.ended_count == 1)
        assert counts(api) == (0, 0)


async def test_a_channel_that_waits_for_its_token_makes_place_as_any_stranger() -> None:
    policy = SecurityPolicy(tokens=(hash_token(TOKEN),))
    async with (
        open_service(policy=policy, unauthenticated_connections_max=2) as api,
        raw_channel(api.port) as first,
        raw_channel(api.port),
    ):
        assert counts(api) == (0, 2)
        async with raw_channel(api.port) as third:
            assert await first.to_the_end() == ([], 1006)
            third.send(frame(b'{"id":1,"op":"authenticate","token":"%s"}' % TOKEN.encode()))
            assert (await third.frame())[0] == 1
            assert counts(api) == (1, 1)
        await until(lambda: counts(api) == (0, 1))
