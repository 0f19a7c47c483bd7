"""`GET /v1/events`: what happens to groups, told as it happens, for as long as the client reads.

A stream begins with `opened`, whose cursor says from where it is whole. A client that was away sends the cursor that
it had last; where events after it are gone, one `gap` says so and the stream goes on from now. So does a reader that
is so slow that the feed runs away from it. One that takes nothing at all is ended. Nothing is kept for a reader but
what its connection holds: some 64 KiB, and one piece more.
"""

import asyncio
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from aiohttp import web
from aiohttp.abc import AbstractStreamWriter

from coordinator.core.effects import Event, Failure
from coordinator.http.contract import Figures
from coordinator.http.errors import refuse
from coordinator.http.event_text import (
    GAP,
    KINDS,
    KINDS_ASKED_FOR,
    OPENED,
    block,
    block_of,
    cursor_of,
    group_id_of,
    heartbeat,
    kind_of,
)
from coordinator.http.inputs import parse_query, refuse_body
from coordinator.http.readiness import why_not_ready
from coordinator.http.routes import Answer
from coordinator.runtime.feed import EventFeed, FeedReader
from protocol import messages as m
from protocol.errors import ErrorCode
from protocol.request_limits import RequestChecks

CURSOR_HEADER = "Last-Event-ID"
RETRY_MS = 2_000
"""How long a browser waits before it connects again. It is told at the start of each stream."""
SCAN_MAX = 1_000
"""Events that are looked at in one go, wanted or not."""
PIECE_BYTES = 32_768
"""So many bytes, and the event that passes them, go out in one piece."""

HEADERS = {
    "Content-Type": "text/event-stream",
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    # nginx would collect events in its buffer.
    "X-Accel-Buffering": "no",
    "Server": "rallypoint",
}
_CURSOR = re.compile(r"([0-9a-z]{1,32})-(0|[1-9][0-9]{0,17})")
WHAT_TO_DO = "List the groups again (GET /v1/groups); what follows here is whole from this cursor on."

Wanted = Callable[[Event], bool]


@dataclass(frozen=True, slots=True)
class StreamLimits:
    """How many streams, and how long they may be quiet; the settings `event…` say why."""

    streams_max: int = 100
    heartbeat_interval_ms: int = 15_000
    write_timeout_ms: int = 30_000


class EventStreams:
    """Opens streams, and knows how many there are."""

    def __init__(
        self,
        feed: EventFeed,
        figures: Figures,
        limits: StreamLimits,
        phase: Callable[[], str],
        checks: RequestChecks,
    ) -> None:
        """`phase` tells that of the service."""
        self.feed = feed
        self.figures = figures
        self.limits = limits
        self._phase = phase
        self._checks = checks
        self._open_count = 0

    async def open(self, request: web.BaseRequest, ids: Mapping[str, str], query: str) -> Answer:
        """Answer with a stream, or refuse it: 400 for a wrong query or cursor, 429 beyond the limit."""
        refuse_body(request)
        asked = parse_query(m.EventsRequest, query, self._checks)
        kinds = _kinds(asked)
        after = self._after(request, asked)
        failure = why_not_ready(self._phase())
        if failure is not None:
            return failure
        if self.feed.is_closed:
            return Failure(ErrorCode.COORDINATOR_NOT_AVAILABLE, "The service is stopping.")
        if self._open_count >= self.limits.streams_max:
            limit = self.limits.streams_max
            detail = f"As many event streams are open as event_streams_max allows ({limit})."
            return Failure(ErrorCode.THROTTLING_QUOTA_EXCEEDED, detail, limit=limit, setting="event_streams_max")
        reader = self.feed.read(commits=not kinds.isdisjoint(KINDS_ASKED_FOR), after=after.number)
        self._open_count += 1
        self.figures.streams_open(+1)
        return EventStream(self, reader, _filter(asked, kinds), after.gap)

    def _after(self, request: web.BaseRequest, asked: m.EventsRequest) -> "_After":
        """From where to go on. The header is the newer one: a browser repeats the query that it began with."""
        given, field = asked.cursor, "cursor"
        header = request.headers.get(CURSOR_HEADER)
        if header:
            given, field = header, CURSOR_HEADER
        if given is None:
            return _After(None, None)
        found = _CURSOR.fullmatch(given)
        if found is None:
            raise refuse(ErrorCode.INVALID_REQUEST, "This is no cursor that the service has given.", field=field)
        life, number = found[1], int(found[2])
        if life != self.feed.life:
            return _After(None, "restarted")
        if number > self.feed.last_number:
            raise refuse(ErrorCode.INVALID_REQUEST, "The cursor is ahead of what has happened.", field=field)
        return _After(number, None)

    def ended(self) -> None:
        """A stream that was answered with has ended, however it did."""
        self._open_count -= 1
        self.figures.streams_open(-1)


@dataclass(frozen=True, slots=True)
class _After:
    """The number to go on from, None for now; and why there is a gap before it, if there is one."""

    number: int | None
    gap: str | None


def _kinds(asked: m.EventsRequest) -> frozenset[str]:
    if asked.kinds is None:
        return frozenset(KINDS) - KINDS_ASKED_FOR
    kinds = frozenset(asked.kinds.split(","))
    unknown = sorted(kinds - KINDS.keys())
    if unknown:
        known = ", ".join(sorted(KINDS))
        raise refuse(ErrorCode.INVALID_REQUEST, f"kinds: there is no such kind; there are: {known}.", field="kinds")
    return kinds


def _filter(asked: m.EventsRequest, kinds: frozenset[str]) -> Wanted:
    group_ids, prefix = frozenset(asked.group_ids), asked.prefix

    def is_wanted(event: Event) -> bool:
        if kind_of(event) not in kinds:
            return False
        if prefix is None and not group_ids:
            return True
        group_id = group_id_of(event)
        return group_id in group_ids or (prefix is not None and group_id.startswith(prefix))

    return is_wanted


class EventStream(web.StreamResponse):
    """The answer that does not end. aiohttp prepares it, and then asks it for its end: that is when it streams."""

    def __init__(self, streams: EventStreams, reader: FeedReader, is_wanted: Wanted, gap: str | None) -> None:
        super().__init__(headers=HEADERS)
        self._streams = streams
        self._reader = reader
        self._is_wanted = is_wanted
        self._gap = gap
        self._request: web.BaseRequest | None = None
        self._writer: AbstractStreamWriter | None = None

    async def prepare(self, request: web.BaseRequest) -> AbstractStreamWriter | None:
        """Called by aiohttp: send the head."""
        self._request = request
        try:
            self._writer = await super().prepare(request)
        except BaseException:  # also a cancellation: the client has gone, and nobody will ask for the end
            self._streams.ended()
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
            self._streams.ended()
        await super().write_eof(data)

    async def _run(self) -> bool:
        """Write until the feed ends; False where the client takes nothing."""
        beginning = f"retry: {RETRY_MS}\n".encode() + block(
            OPENED, {"kind": OPENED, "cursor": self._cursor}, self._cursor
        )
        if not await self._write(beginning):
            return False
        if self._gap is not None and not await self._write(self._gap_block(self._gap, None)):
            return False
        lost_reason = "cursor_too_old"
        while True:
            piece = self._next_piece(lost_reason)
            lost_reason = "slow_reader"
            if piece and not await self._write(piece):
                return False
            if self._reader.has_more:
                # A client that takes everything at once must not keep the others from their turn.
                await asyncio.sleep(0)
                continue
            if self._streams.feed.is_closed:
                return True
            if not await self._wait() and not await self._write(heartbeat(self._cursor)):
                return False

    def _next_piece(self, lost_reason: str) -> bytes:
        """What is to be written next; nothing where no event of the next ones is wanted."""
        if self._reader.lost_count:
            # It goes on from now: so what is there still, and behind a hole, is not told either.
            lost_count = self._reader.unread_count
            self._reader.skip()
            if lost_reason == "slow_reader":
                self._streams.figures.events_lost(lost_count)
            return self._gap_block(lost_reason, lost_count if lost_reason == "slow_reader" else None)
        piece = bytearray()
        for _ in range(SCAN_MAX):
            kept = self._reader.take()
            if kept is None:
                break
            if self._is_wanted(kept.event):
                piece += block_of(kept, self._streams.feed.life)
                if len(piece) >= PIECE_BYTES:
                    break
        return bytes(piece)

    def _gap_block(self, reason: str, lost_count: int | None) -> bytes:
        data = {"kind": GAP, "reason": reason, "lost_count": lost_count, "cursor": self._cursor, "action": WHAT_TO_DO}
        return block(GAP, data, self._cursor)

    @property
    def _cursor(self) -> str:
        return cursor_of(self._streams.feed.life, self._reader.number)

    def _abort(self) -> None:
        """Cut a connection whose client takes nothing: there is no way to tell it."""
        self._streams.figures.events_lost(self._reader.unread_count)
        assert self._request is not None
        if self._request.transport is not None:
            self._request.transport.abort()

    async def _wait(self) -> bool:
        """Until something has happened; False where it is time for a heartbeat."""
        try:
            async with asyncio.timeout(self._streams.limits.heartbeat_interval_ms / 1000):
                await self._reader.wait()
        except TimeoutError:
            return False
        return True

    async def _write(self, piece: bytes) -> bool:
        """Send it; False where the client did not take what was sent before in time."""
        assert self._writer is not None
        try:
            async with asyncio.timeout(self._streams.limits.write_timeout_ms / 1000):
                await self.write(piece)
                await self._writer.drain()
        except TimeoutError:
            return False
        return True
