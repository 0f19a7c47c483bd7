"""One event stream of this node: from a reader's cursor in the feed to the bytes of a connection.

It begins with `opened`, whose cursor says from where it is complete. If events that the client still wants are gone,
one `gap` says so and the stream goes on from now. The same happens if the feed overtakes a slow reader. A client that
reads nothing at all is cut off. A reader costs no memory but its connection's buffer: some 64 KiB, and one chunk more.
"""

import asyncio
from abc import abstractmethod
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from aiohttp import web
from aiohttp.abc import AbstractStreamWriter

from rallypoint.coordinator.core.effects import Event
from rallypoint.coordinator.http.contract import HttpMetrics
from rallypoint.coordinator.http.events.codec import (
    OPENED,
    block,
    caught_up,
    gap_block,
    heartbeat,
    text_of,
    with_cursor,
)
from rallypoint.coordinator.http.events.positions import CURSOR_TOO_OLD, SLOW_READER, encode_position
from rallypoint.coordinator.http.limits.deadline import time_limit
from rallypoint.coordinator.runtime.event_loop.clock import Clock
from rallypoint.coordinator.runtime.events.feed import EventFeed, FeedReader

RETRY_MS = 2_000
"""How long a browser waits before it connects again. The start of each stream says it."""
SCAN_MAX = 1_000
"""Events that are looked at in one go, wanted or not."""
CHUNK_BYTES = 32_768
"""So many bytes, and the event that passes them, go out in one chunk."""

HEADERS = {
    "Content-Type": "text/event-stream",
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    # nginx would collect events in its buffer.
    "X-Accel-Buffering": "no",
    "Server": "rallypoint",
}

Wanted = Callable[[Event], bool]


@dataclass(frozen=True, slots=True)
class StreamLimits:
    """How many streams, and how long they may be quiet. The first is a setting, the others are fixed."""

    event_streams_max: int = 100
    events_heartbeat_interval_ms: int = 15_000
    """A stream that has nothing to tell sends a comment: before the 60 seconds, and the 30 of some, at which proxies
    cut a quiet connection."""
    events_write_timeout_ms: int = 30_000
    """A client that takes nothing for so long is cut, and can come back with its cursor."""


class EventResponse(web.StreamResponse):
    """The answer that does not end. aiohttp prepares it, and then asks it for its end: that is when it streams."""

    def __init__(
        self, *, metrics: HttpMetrics, limits: StreamLimits, clock: Clock, on_ended: Callable[[], None]
    ) -> None:
        """`on_ended` is called once."""
        super().__init__(headers=HEADERS)
        self._metrics = metrics
        self._limits = limits
        self._clock = clock
        self._on_ended = on_ended
        self.has_ended = False
        self._request: web.BaseRequest | None = None
        self._writer: AbstractStreamWriter | None = None

    async def prepare(self, request: web.BaseRequest) -> AbstractStreamWriter | None:
        """Called by aiohttp: send the head."""
        self._request = request
        try:
            self._writer = await super().prepare(request)
        except BaseException:  # also a cancellation: the client has gone, and nobody will ask for the end
            self._end()
            raise
        return self._writer

    async def write_eof(self, data: bytes = b"") -> None:
        """Called by aiohttp once the head is sent. Returns when the service stops, or the client takes nothing more."""
        assert self._request is not None
        try:
            if self._request.method != "HEAD" and not await self._run():
                self._abort()
                return
        finally:
            self._end()
        await super().write_eof(data)

    def _end(self) -> None:
        self.has_ended = True
        self._on_ended()

    def cut(self) -> None:
        """End it now: its client is known no more."""
        if self._request is not None and self._request.transport is not None:
            self._request.transport.abort()

    @abstractmethod
    async def _run(self) -> bool:
        """Write until the feed ends; False where the client takes nothing."""

    @abstractmethod
    def _unread_count(self) -> int:
        """So many events this client does not get, where it is cut off now."""

    def _abort(self) -> None:
        """Cut a connection whose client takes nothing: there is no way to tell it."""
        unread_count = self._unread_count()
        if unread_count:
            self._metrics.events_lost(unread_count)
        assert self._request is not None
        if self._request.transport is not None:
            self._request.transport.abort()

    async def _write(self, chunk: bytes) -> bool:
        """Send it; False where the client did not take what was sent before in time."""
        assert self._writer is not None
        try:
            async with time_limit(self._clock, self._limits.events_write_timeout_ms):
                await self.write(chunk)
                await self._writer.drain()
        except TimeoutError:
            return False
        return True

    def _gap(self, reason: str, lost_count: int | None, cursor: str, node_id: str | None = None) -> bytes:
        self._metrics.gap_told(reason)
        return gap_block(reason, lost_count, cursor, node_id)


class EventStream(EventResponse):
    """The events of this node alone."""

    def __init__(
        self,
        feed: EventFeed,
        reader: FeedReader,
        is_wanted: Wanted,
        gap: str | None,
        *,
        metrics: HttpMetrics,
        limits: StreamLimits,
        clock: Clock,
        on_ended: Callable[[], None],
    ) -> None:
        """Stream what the reader reads. A comment says when all that has happened until now is told.

        gap: why events before the reader's cursor are missing, if any are.
        on_ended: called once.
        """
        super().__init__(metrics=metrics, limits=limits, clock=clock, on_ended=on_ended)
        self._feed = feed
        self._reader = reader
        self._is_wanted = is_wanted
        self._first_gap = gap
        self._kept_number = feed.last_number
        self._has_caught_up = False

    async def _run(self) -> bool:
        beginning = f"retry: {RETRY_MS}\n".encode() + block(
            OPENED, {"kind": OPENED, "cursor": self._cursor}, self._cursor
        )
        if not await self._write(beginning):
            return False
        if self._first_gap is not None and not await self._write(self._gap(self._first_gap, None, self._cursor)):
            return False
        lost_reason = CURSOR_TOO_OLD
        said_ms = self._clock.now_ms()
        while True:
            chunk = self._next_chunk(lost_reason)
            lost_reason = SLOW_READER
            if not self._has_caught_up and self._reader.number >= self._kept_number:
                self._has_caught_up = True
                chunk += caught_up(self._cursor)
            heartbeat_ms = said_ms + self._limits.events_heartbeat_interval_ms
            # Events that are not wanted leave it as quiet as none.
            if not chunk and self._has_caught_up and self._clock.now_ms() >= heartbeat_ms:
                chunk = heartbeat(self._cursor)
            if chunk:
                if not await self._write(chunk):
                    return False
                said_ms = self._clock.now_ms()
            if self._reader.has_more:
                # A client that takes everything at once must not keep the others from their turn.
                await asyncio.sleep(0)
                continue
            if self._feed.is_closed:
                return True
            await self._wait(said_ms + self._limits.events_heartbeat_interval_ms)

    def _next_chunk(self, lost_reason: str) -> bytes:
        """What is to be written next; nothing where no event of the next ones is wanted."""
        if self._reader.lost_count:
            # It goes on from now: so what is there still, and behind a hole, is not told either.
            lost_count = self._reader.unread_count
            self._reader.skip()
            if lost_reason == SLOW_READER:
                self._metrics.events_lost(lost_count)
            return self._gap(lost_reason, lost_count if lost_reason == SLOW_READER else None, self._cursor)
        chunk = bytearray()
        for _ in range(SCAN_MAX):
            kept = self._reader.take()
            if kept is None:
                break
            if self._is_wanted(kept.event):
                chunk += with_cursor(encode_position(self._feed.life, kept.number), text_of(kept))
                if len(chunk) >= CHUNK_BYTES:
                    break
        return bytes(chunk)

    @property
    def _cursor(self) -> str:
        return encode_position(self._feed.life, self._reader.number)

    def _unread_count(self) -> int:
        return self._reader.unread_count

    async def _wait(self, until_ms: int) -> None:
        """Until something has happened, or it is time for a heartbeat."""
        with suppress(TimeoutError):
            async with time_limit(self._clock, max(0, until_ms - self._clock.now_ms())):
                await self._reader.wait()
