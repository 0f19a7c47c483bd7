"""`GET /v1/events`: which events a client wants, from which cursor on, and whether it may open a stream at all.

`stream` and `cluster_stream` write the streams themselves.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from weakref import WeakKeyDictionary

from aiohttp import web

from rallypoint.coordinator.core.effects import Event, Failure
from rallypoint.coordinator.http.access.control import Permit
from rallypoint.coordinator.http.access.request_caller import permit_of_request
from rallypoint.coordinator.http.cluster.peers import EventsForCaller, PeerClient
from rallypoint.coordinator.http.contract import ClusterService, HttpMetrics
from rallypoint.coordinator.http.errors import refuse
from rallypoint.coordinator.http.events.cluster_stream import Cluster, ClusterEventStream
from rallypoint.coordinator.http.events.codec import KINDS, KINDS_ASKED_FOR, group_id_of, kind_of
from rallypoint.coordinator.http.events.positions import (
    OLDEST,
    RESTARTED,
    Cursor,
    decode_cursor,
    position_of_node,
)
from rallypoint.coordinator.http.events.stream import EventResponse, EventStream, StreamLimits, Wanted
from rallypoint.coordinator.http.requests.inputs import parse_query, refuse_body
from rallypoint.coordinator.http.requests.routes import Answer
from rallypoint.coordinator.runtime.condition import why_not_serving
from rallypoint.coordinator.runtime.event_loop.clock import Clock
from rallypoint.coordinator.runtime.events.feed import EventFeed
from rallypoint.protocol import admin_messages as admin
from rallypoint.protocol.errors import ErrorCode
from rallypoint.protocol.request_limits import RequestChecks

CURSOR_HEADER = "Last-Event-ID"


class EventStreams:
    """Opens streams, and knows how many there are."""

    def __init__(
        self,
        feed: EventFeed,
        cluster: ClusterService,
        peers: PeerClient,
        metrics: HttpMetrics,
        limits: StreamLimits,
        phase: Callable[[], str],
        checks: RequestChecks,
        clock: Clock,
    ) -> None:
        """`phase` tells that of the service."""
        self._permits: WeakKeyDictionary[EventResponse, Permit] = WeakKeyDictionary()
        self._feed = feed
        self._cluster = cluster
        self._peers = peers
        self._metrics = metrics
        self._limits = limits
        self._phase = phase
        self._checks = checks
        self._clock = clock
        self._open_count = 0
        self._open_for_nodes_count = 0

    async def open(self, request: web.BaseRequest, ids: Mapping[str, str], query: str) -> Answer:
        """Answer with a stream, or refuse it: 400 for a wrong query or cursor, 429 beyond the limit."""
        refuse_body(request)
        asked = parse_query(admin.EventsRequest, query, self._checks)
        kinds = _kinds(asked)
        cursor = self._cursor(request, asked)
        failure = why_not_serving(self._phase())
        if failure is not None:
            return failure
        if self._feed.is_closed:
            return Failure(ErrorCode.COORDINATOR_NOT_AVAILABLE, "The service is stopping.")
        for_node = asked.node_only and self._cluster.is_shared
        full = self._full(for_node=for_node)
        if full is not None:
            return full
        is_of_one = for_node or not self._cluster.is_shared
        permit = permit_of_request()
        stream = (self._of_this_node if is_of_one else self._of_all_nodes)(asked, kinds, cursor, permit)
        self._permits[stream] = permit
        permit.tell_end()
        self._count(+1, for_node=for_node)
        return stream

    def end_strangers(self, now_ms: int) -> None:
        """Cut the streams of callers that are known no more. What others may see, each event asks."""
        for stream, permit in tuple(self._permits.items()):
            if not stream.has_ended and not permit.is_kept(now_ms):
                stream.cut()

    def _of_this_node(
        self, asked: admin.EventsRequest, kinds: frozenset[str], cursor: Cursor, permit: Permit
    ) -> EventResponse:
        commits = not kinds.isdisjoint(KINDS_ASKED_FOR)
        after = self._after(cursor, commits=commits)
        return EventStream(
            self._feed,
            self._feed.read(commits=commits, after=after.number),
            _filter(asked, kinds, permit),
            after.gap,
            metrics=self._metrics,
            limits=self._limits,
            clock=self._clock,
            on_ended=self._ended_for_node if asked.node_only and self._cluster.is_shared else self._ended,
        )

    def _of_all_nodes(
        self, asked: admin.EventsRequest, kinds: frozenset[str], cursor: Cursor, permit: Permit
    ) -> EventResponse:
        return ClusterEventStream(
            self._feed,
            Cluster(self._cluster, EventsForCaller(self._peers, permit.caller), _query_of_peers(asked)),
            cursor,
            _filter(asked, kinds, permit),
            commits=not kinds.isdisjoint(KINDS_ASKED_FOR),
            metrics=self._metrics,
            limits=self._limits,
            clock=self._clock,
            on_ended=self._ended,
        )

    def _full(self, *, for_node: bool) -> Failure | None:
        """Why one stream more is refused. Each stream of another node needs one here, so those have as many places as
        all other nodes have streams.
        """
        limit = self._limits.event_streams_max
        if for_node:
            limit *= max(1, len(self._cluster.live_peers()))
        if (self._open_for_nodes_count if for_node else self._open_count) < limit:
            return None
        what = "event streams with node_only" if for_node else "event streams"
        detail = f"As many {what} are open as event_streams_max allows ({limit})."
        return Failure(ErrorCode.THROTTLING_QUOTA_EXCEEDED, detail, limit=limit, limit_name="event_streams_max")

    def _cursor(self, request: web.BaseRequest, asked: admin.EventsRequest) -> Cursor:
        """Where to go on. The header is the newer one: a browser repeats the query that it began with."""
        given, field = asked.cursor, "cursor"
        header = request.headers.get(CURSOR_HEADER)
        if header:
            given, field = header, CURSOR_HEADER
        if given is None:
            return None
        cursor = decode_cursor(given)
        if cursor is None:
            raise refuse(ErrorCode.INVALID_REQUEST, "This is no cursor that the service has given.", field=field)
        own = position_of_node(cursor, self._cluster.node_id)
        if own is not None and own.life == self._feed.life and own.number > self._feed.last_number:
            raise refuse(ErrorCode.INVALID_REQUEST, "The cursor is ahead of what has happened.", field=field)
        return cursor

    def _after(self, cursor: Cursor, *, commits: bool) -> "_After":
        """From where this node's own stream goes on."""
        if cursor is None:
            return _After(None, None)
        if cursor is OLDEST:
            return _After(self._feed.oldest(commits=commits), None)
        own = position_of_node(cursor, self._cluster.node_id)
        if own is None or own.life != self._feed.life:
            return _After(None, RESTARTED)
        return _After(own.number, None)

    def _count(self, delta: int, *, for_node: bool) -> None:
        if for_node:
            self._open_for_nodes_count += delta
        else:
            self._open_count += delta
        self._metrics.streams_open(delta)

    def _ended(self) -> None:
        self._count(-1, for_node=False)

    def _ended_for_node(self) -> None:
        self._count(-1, for_node=True)


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


def _query_of_peers(asked: admin.EventsRequest) -> tuple[tuple[str, str], ...]:
    """What the other nodes are asked for."""
    named = (("prefix", asked.prefix), ("kinds", asked.kinds))
    return (
        ("node_only", "true"),
        *(("group_id", group_id) for group_id in asked.group_ids),
        *((name, value) for name, value in named if value is not None),
    )


def _filter(asked: admin.EventsRequest, kinds: frozenset[str], permit: Permit) -> Wanted:
    group_ids, prefix = frozenset(asked.group_ids), asked.prefix

    def is_wanted(event: Event) -> bool:
        if kind_of(event) not in kinds:
            return False
        group_id = group_id_of(event)
        if not permit.sees(group_id):
            return False
        if prefix is None and not group_ids:
            return True
        return group_id in group_ids or (prefix is not None and group_id.startswith(prefix))

    return is_wanted
