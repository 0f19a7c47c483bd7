"""`GET /v1/channel`: who may have a channel, how many there are, and their common end.

What is said on one is not decided here: `channel` does that.
"""

from collections.abc import Callable, Mapping

from aiohttp import web

from rallypoint.coordinator.core.effects import Failure
from rallypoint.coordinator.core.network import network_of
from rallypoint.coordinator.http.channel.channel import Channel, ChannelContext, Ending
from rallypoint.coordinator.http.channel.handshake import accept_handshake
from rallypoint.coordinator.http.channel.pings import Pings
from rallypoint.coordinator.http.channel.websocket import ChannelResponse
from rallypoint.coordinator.http.errors import refuse
from rallypoint.coordinator.http.limits.admission import Unauthenticated
from rallypoint.coordinator.http.requests.inputs import refuse_body, refuse_query
from rallypoint.coordinator.http.requests.request_ids import REQUEST_ID
from rallypoint.coordinator.http.requests.routes import Answer
from rallypoint.coordinator.http.security import Guard
from rallypoint.coordinator.runtime.condition import why_not_serving
from rallypoint.coordinator.runtime.event_loop.faults import each_in_turns
from rallypoint.coordinator.runtime.origin import ORIGIN
from rallypoint.protocol.errors import ErrorCode

UNAUTHENTICATED_MAX = 256
"""Channels that may wait for their token at the same time. One more takes the place of the one that came first of the
address that has most.
"""
TOLD_AT_ONCE_MAX = 200
"""Channels that are notified of the stop, or ended, before the event loop does anything else."""

_OVER = frozenset({"draining", "stopped"})


class Channels:
    """Opens channels, and ends them all when the service stops."""

    def __init__(self, context: ChannelContext, guard: Guard, admit: Callable[[object], None]) -> None:
        """`admit` is called for each connection whose client has authenticated, and refuses one too many."""
        self._context = context
        self._guard = guard
        self._admit = admit
        self._unauthenticated: Unauthenticated[Channel] = Unauthenticated()
        self._pings = Pings(context.service.clock)
        self._open: dict[Channel, None] = {}
        self._is_closed = False

    async def open(self, request: web.BaseRequest, ids: Mapping[str, str], query: str) -> Answer:
        """Answer with a channel, or refuse it: 400 for what is no WebSocket, 401, 429 beyond a limit.

        A client that sends no `Authorization` is let in to send its token as the first message.
        """
        context = self._context
        permit = None
        guard = self._guard
        if not guard.needs_credential or "Authorization" in request.headers or guard.has_certificate(request):
            permit = guard.authenticate(request)
            permit.tell_end()
            self._admit(request.protocol)
        refuse_query(query)
        refuse_body(request)
        if context.service.phase in _OVER or self._is_closed:
            return why_not_serving(context.service.phase) or Failure(
                ErrorCode.COORDINATOR_NOT_AVAILABLE, "The service is stopping."
            )
        accepted = accept_handshake(request)
        self._check_room()
        host = request.remote or ""
        origin = ORIGIN.get()
        request_id = "" if origin is None else origin.request_id
        channel = Channel(context, host, permit, request_id=request_id)
        response = ChannelResponse(
            channel,
            {**accepted, REQUEST_ID: request_id},
            lambda: self._ended(channel),
            self._pings,
            context.limits.channel_ping_interval_ms,
            # Who has shown no token yet must not make the service hold much.
            context.sizes.max_sync_bytes if permit is not None else context.sizes.max_body_bytes,
        )
        self._open[channel] = None
        if permit is None:
            channel.on_token = lambda connection: self._authenticated(channel, connection)
            self._unauthenticated.add(channel, network_of(host))
            self._make_place()
        context.metrics.channels_open(+1)
        await response.prepare(request)
        return response

    async def look_at_callers(self, now_ms: int) -> None:
        """Access has changed, or time has passed: each channel looks whether its caller is still what it was."""
        await each_in_turns(
            tuple(self._open),
            lambda channel: channel.look_at_caller(now_ms),
            lambda channel: channel.end_by_fault(),
            at_once_max=TOLD_AT_ONCE_MAX,
        )

    def _check_room(self) -> None:
        limit = self._context.limits.channels_max
        if len(self._open) >= limit:
            detail = f"As many channels are open as channels_max allows ({limit})."
            raise refuse(ErrorCode.THROTTLING_QUOTA_EXCEEDED, detail, limit=limit, limit_name="channels_max")

    def _make_place(self) -> None:
        if len(self._unauthenticated) > UNAUTHENTICATED_MAX and (first := self._unauthenticated.first_of_most()):
            self._unauthenticated.remove(first)
            first.end(Ending.NOT_AUTHENTICATED, "others wait for its place, and it has sent no token")

    def _authenticated(self, channel: Channel, connection: object) -> None:
        """The token came in the first message. Raises Refused where the connection is one too many."""
        self._admit(connection)
        self._unauthenticated.remove(channel)

    def _ended(self, channel: Channel) -> None:
        self._unauthenticated.remove(channel)
        self._context.bodies.release(channel)  # of one that was never served, too
        if self._open.pop(channel, self) is None:
            self._context.metrics.channels_open(-1)

    async def warn_of_drain(self) -> None:
        """Tell everyone that the node is stopping. New channels are refused from now on."""
        self._is_closed = True
        await each_in_turns(
            tuple(self._open),
            lambda channel: channel.warn_of_drain(),
            lambda channel: channel.end_by_fault(),
            at_once_max=TOLD_AT_ONCE_MAX,
        )

    async def close(self) -> None:
        """End every channel, once nothing waits for an answer any more. Returns when all have gone."""
        self._is_closed = True
        channels = tuple(self._open)
        await each_in_turns(
            channels, lambda channel: channel.end(Ending.DRAIN, "the node is stopping"), at_once_max=TOLD_AT_ONCE_MAX
        )
        for channel in channels:
            await channel.ended()
