"""`GET /v1/events`: which events a client wants, from which cursor on, and whether it may open a stream at all.

`stream` writes the stream itself.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from aiohttp import web

from rallypoint.coordinator.core.effects import Event, Failure
from rallypoint.coordinator.http.contract import HttpMetrics
from rallypoint.coordinator.http.errors import refuse
from rallypoint.coordinator.http.events.codec import KINDS, KINDS_ASKED_FOR, group_id_of, kind_of
from rallypoint.coordinator.http.events.stream import EventStream, StreamLimits, Wanted
from rallypoint.coordinator.http.requests.inputs import parse_query, refuse_body
from rallypoint.coordinator.http.requests.routes import Answer
from rallypoint.coordinator.runtime.condition import why_not_serving
from rallypoint.coordinator.runtime.event_loop.clock import Clock
from rallypoint.coordinator.runtime.events.feed import EventFeed
from rallypoint.protocol import admin_messages as admin
from rallypoint.protocol.errors import ErrorCode
from rallypoint.protocol.request_limits import RequestChecks

CURSOR_HEADER = "Last-Event-ID"
OLDEST = "oldest"
"""In place of a cursor: from the oldest event that is kept."""
_CURSOR = re.compile(r"([0-9a-z]{1,32})-(0|[1-9][0-9]{0,17})")


class EventStreams:
    """Opens streams, and knows how many there are."""

    def __init__(
        self,
        feed: EventFeed,
        metrics: HttpMetrics,
        limits: StreamLimits,
        phase: Callable[[], str],
        checks: RequestChecks,
        clock: Clock,
    ) -> None:
        """`phase` tells that of the service."""
        self._feed = feed
        self._metrics = metrics
        self._limits = limits
        self._phase = phase
        self._checks = checks
        self._clock = clock
        self._open_count = 0

    async def open(self, request: web.BaseRequest, ids: Mapping[str, str], query: str) -> Answer:
        """Answer with a stream, or refuse it: 400 for a wrong query or cursor, 429 beyond the limit."""
        refuse_body(request)
        asked = parse_query(admin.EventsRequest, query, self._checks)
        kinds = _kinds(asked)
        commits = not kinds.isdisjoint(KINDS_ASKED_FOR)
        after = self._after(request, asked, commits=commits)
        failure = why_not_serving(self._phase())
        if failure is not None:
            return failure
        if self._feed.is_closed:
            return Failure(ErrorCode.COORDINATOR_NOT_AVAILABLE, "The service is stopping.")
        if self._open_count >= self._limits.event_streams_max:
            limit = self._limits.event_streams_max
            detail = f"As many event streams are open as event_streams_max allows ({limit})."
            return Failure(ErrorCode.THROTTLING_QUOTA_EXCEEDED, detail, limit=limit, limit_name="event_streams_max")
        reader = self._feed.read(commits=commits, after=after.number)
        self._open_count += 1
        self._metrics.streams_open(+1)
        return EventStream(
            self._feed,
            reader,
            _filter(asked, kinds),
            after.gap,
            metrics=self._metrics,
            limits=self._limits,
            clock=self._clock,
            on_ended=self._ended,
        )

    def _after(self, request: web.BaseRequest, asked: admin.EventsRequest, *, commits: bool) -> "_After":
        """From where to go on. The header is the newer one: a browser repeats the query that it began with."""
        given, field = asked.cursor, "cursor"
        header = request.headers.get(CURSOR_HEADER)
        if header:
            given, field = header, CURSOR_HEADER
        if given is None:
            return _After(None, None)
        if given == OLDEST:
            return _After(self._feed.oldest(commits=commits), None)
        found = _CURSOR.fullmatch(given)
        if found is None:
            raise refuse(ErrorCode.INVALID_REQUEST, "This is no cursor that the service has given.", field=field)
        life, number = found[1], int(found[2])
        if life != self._feed.life:
            return _After(None, "restarted")
        if number > self._feed.last_number:
            raise refuse(ErrorCode.INVALID_REQUEST, "The cursor is ahead of what has happened.", field=field)
        return _After(number, None)

    def _ended(self) -> None:
        self._open_count -= 1
        self._metrics.streams_open(-1)


@dataclass(frozen=True, slots=True)
class _After:
    """The number to go on from, None for now; and why there is a gap before it, if there is one."""

    number: int | None
    gap: str | None


def _kinds(asked: admin.EventsRequest) -> frozenset[str]:
    if asked.kinds is None:
        return frozenset(KINDS) - KINDS_ASKED_FOR
    kinds = frozenset(asked.kinds.split(","))
    unknown = sorted(kinds - KINDS.keys())
    if unknown:
        known = ", ".join(sorted(KINDS))
        raise refuse(ErrorCode.INVALID_REQUEST, f"kinds: there is no such kind; there are: {known}.", field="kinds")
    return kinds


def _filter(asked: admin.EventsRequest, kinds: frozenset[str]) -> Wanted:
    group_ids, prefix = frozenset(asked.group_ids), asked.prefix

    def is_wanted(event: Event) -> bool:
        if kind_of(event) not in kinds:
            return False
        if prefix is None and not group_ids:
            return True
        group_id = group_id_of(event)
        return group_id in group_ids or (prefix is not None and group_id.startswith(prefix))

    return is_wanted
