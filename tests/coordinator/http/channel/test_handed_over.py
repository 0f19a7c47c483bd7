"""A channel has its connection alone: aiohttp, which shook hands, knows nothing of it any more."""

import asyncio
import gc

import pytest
from aiohttp import web

from rallypoint.coordinator.access.tokens import hash_token
from rallypoint.coordinator.http.connections import Connection
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
