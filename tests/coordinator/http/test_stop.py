"""However many connections and channels there are as the service stops, each turn of the loop has its share of them."""

import asyncio
from collections.abc import Awaitable
from typing import Any, cast

from rallypoint.coordinator.http.channel.channel import Channel, Ending
from rallypoint.coordinator.http.channel.channels import TOLD_AT_ONCE_MAX
from rallypoint.coordinator.http.connections import SHUT_AT_ONCE_MAX, HttpServer
from tests.fakes.set_service import open_service

TIMEOUT_S = 1.5


class Tally:
    """What was done to all of them, in order."""

    def __init__(self) -> None:
        self.done: list[str] = []

    async def most_in_a_turn(self, stop: Awaitable[None]) -> int:
        """Waits for the end of `stop`."""
        stopping, most, before = asyncio.ensure_future(stop), 0, len(self.done)
        while not stopping.done():
            await asyncio.sleep(0)
            most, before = max(most, len(self.done) - before), len(self.done)
        await stopping
        return most


class PlantedFaultError(Exception):
    """What no rule provides for."""


class Line:
    """A connection, or a channel: both are asked for their end."""

    def __init__(self, tally: Tally, *, is_broken: bool = False) -> None:
        self.happened: list[Any] = []
        self._tally = tally
        self._is_broken = is_broken

    def _happens(self, what: Any) -> None:
        self.happened.append(what)
        self._tally.done.append(what)

    def close(self) -> None:
        self._happens("closed")

    async def shutdown(self, timeout: float | None = None) -> None:
        await asyncio.sleep(0)
        self.happened.append(timeout)

    def warn_of_drain(self) -> None:
        self._happens("warned")
        if self._is_broken:
            raise PlantedFaultError

    def end_by_fault(self) -> None:
        self.happened.append("ended by fault")

    def end(self, ending: Ending, detail: str) -> None:
        assert detail
        self._happens(ending)

    async def ended(self) -> None:
        self.happened.append("awaited")


async def test_connections_are_shut_some_at_a_time() -> None:
    """The server of aiohttp closes all in one turn, and makes a task for each in another."""
    async with open_service() as api:
        server, tally = HttpServer(api.http_api), Tally()
        lines = [Line(tally) for _ in range(3 * SHUT_AT_ONCE_MAX + 7)]
        server._connections.update(dict.fromkeys(cast(list[Any], lines)))
        server.pre_shutdown()
        assert tally.done == []
        assert await tally.most_in_a_turn(server.shutdown(TIMEOUT_S)) == SHUT_AT_ONCE_MAX
        assert all(line.happened == ["closed", TIMEOUT_S] for line in lines), "closed before its end is waited for"


async def test_channels_are_warned_and_ended_some_at_a_time_whatever_becomes_of_one() -> None:
    async with open_service() as api:
        channels, tally = api.http_api.channels, Tally()
        lines = [Line(tally, is_broken=number == 5) for number in range(3 * TOLD_AT_ONCE_MAX + 7)]
        channels._open.update(dict.fromkeys(cast(list[Channel], lines)))
        assert await tally.most_in_a_turn(channels.warn_of_drain()) == TOLD_AT_ONCE_MAX
        assert await tally.most_in_a_turn(channels.close()) == TOLD_AT_ONCE_MAX
        assert lines[5].happened == ["warned", "ended by fault", Ending.DRAIN, "awaited"]
        del lines[5]
        assert all(line.happened == ["warned", Ending.DRAIN, "awaited"] for line in lines)
        channels._open.clear()
