"""Reads a stream of server-sent events as the standard says, over aiohttp."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Literal

import aiohttp

EVENT_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class Told:
    """One event."""

    kind: str
    cursor: str
    data: dict[str, Any]


class EventReader:
    """`cursor` is the last one that was seen, in an event or in a heartbeat; `heartbeats` counts these,
    `caught_up` how often the stream said that all that was kept is told. `nodes`: those that the stream of a cluster
    begins with.
    """

    def __init__(self, answer: aiohttp.ClientResponse) -> None:
        self.answer = answer
        self.cursor = ""
        self.retry_ms: int | None = None
        self.heartbeats = 0
        self.caught_up = 0
        self.nodes: list[str] = []

    async def next(self, seconds: float = EVENT_SECONDS) -> Told | None:
        """The next event; None at the end of the stream. TimeoutError where none comes."""
        async with asyncio.timeout(seconds):
            while True:
                block = await self._block()
                if block is None:
                    return None
                if block is not False:
                    return block

    async def until(self, kind: str, **fields: Any) -> list[Told]:
        """All events up to the first of the kind with these fields."""
        found: list[Told] = []
        while True:
            told = await self.next()
            assert told is not None, f"the stream ended before {kind}; it told {found}"
            found.append(told)
            if told.kind == kind and fields.items() <= told.data.items():
                return found

    async def _block(self) -> Told | Literal[False] | None:
        """An event, False for a block without data, None at the end."""
        kind, data = "", ""
        while True:
            raw = await self.answer.content.readline()
            if not raw.endswith(b"\n"):
                assert raw == b"", f"the stream ended in the middle of {raw!r}"
                return None
            line = raw.decode().rstrip("\n")
            if not line:
                break
            name, _, value = line.partition(":")
            value = value.removeprefix(" ")
            match name:
                case "":
                    self.heartbeats += value == "heartbeat"
                    self.caught_up += value == "caught up"
                case "id":
                    self.cursor = value
                case "event":
                    kind = value
                case "data":
                    data += value
                case "retry":
                    self.retry_ms = int(value)
                case _:
                    raise AssertionError(f"{line!r} is no line of an event stream")
        return Told(kind, self.cursor, json.loads(data)) if data else False


@asynccontextmanager
async def read_events(
    http: aiohttp.ClientSession, url: str, query: str = "", *, headers: Mapping[str, str] | None = None
) -> AsyncIterator[EventReader]:
    """Open a stream, which must begin with `opened`, and read until the block ends."""
    timeout = aiohttp.ClientTimeout(total=None)
    async with http.get(f"{url}/v1/events{query}", headers=headers, timeout=timeout) as answer:
        assert answer.status == 200, await answer.text()
        assert answer.headers["Content-Type"] == "text/event-stream"
        reader = EventReader(answer)
        opened = await reader.next()
        assert opened is not None
        reader.nodes = opened.data.pop("nodes", [])
        assert (opened.kind, opened.data) == ("opened", {"kind": "opened", "cursor": opened.cursor})
        yield reader
