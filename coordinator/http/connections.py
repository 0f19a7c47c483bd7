"""Connections: how many there may be, how large the head of a request, and an answer to bytes that are no request.

A connection too many is taken, told so in the answer to its first request, and closed: who is refused without a word
only tries again. There are few of these at a time, and they wait shortly; beyond them a connection is cut.
"""

import asyncio
import logging
from typing import Any, cast

from aiohttp import web
from aiohttp.http import RawRequestMessage
from aiohttp.http_exceptions import LineTooLong

from coordinator.core.effects import Failure
from coordinator.http.app import FAULT, Door
from coordinator.http.errors import problem_of, respond_problem
from coordinator.http.inputs import ConnectionLimits
from coordinator.http.session_inlet import Inlet
from coordinator.http.turn_end import GatheringTransport, TurnEnd
from protocol.errors import ErrorCode

LINGER_SECONDS = 5.0
"""How long the rest of a refused body is read and thrown away, so that its sender gets to read the answer."""

SURPLUS_MAX = 256
"""Connections beyond the limit that may wait to be told so."""
SURPLUS_SECONDS = 5.0
"""How long such a connection may wait for its first request."""

TOO_MANY_HEADERS = "Too many headers"
"""How aiohttp's parser begins its word on a request with too many headers."""

log = logging.getLogger("rallypoint.http")


class Connection(web.RequestHandler):
    """A connection whose own refusals (no request line, too long a header) are coded problems too.

    `inlet`: the short way in, once it is a session's.
    """

    __slots__ = ("_door", "_limits", "inlet", "turn_end")

    def __init__(
        self, manager: web.Server, door: Door, limits: ConnectionLimits, turn_end: TurnEnd, **settings: Any
    ) -> None:
        super().__init__(manager, **settings)
        self._door = door
        self._limits = limits
        self.turn_end = turn_end
        self.inlet: Inlet | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called by the event loop. What is written leaves at the end of the turn."""
        super().connection_made(GatheringTransport(cast(asyncio.Transport, transport), self.turn_end))

    def connection_lost(self, exc: BaseException | None) -> None:
        """Called by the event loop. The inlet knows the session, which knows this: one circle less."""
        self.inlet = None
        super().connection_lost(exc)

    def open_inlet(self, inlet: Inlet) -> None:
        """Offer it what comes from now on. What has come already goes the other way."""
        inlet.follow(self._message_tail)
        self.inlet = inlet

    def data_received(self, data: bytes) -> None:
        """Called by the event loop. What breaks the framing of a body that is being read ends the reading at once.

        aiohttp queues the fault behind the request, and the body would be waited for until its time is over.
        """
        inlet = self.inlet
        if inlet is None:
            self.turn_end.is_pressed = True
        elif inlet.take(data):
            return
        super().data_received(data)
        request = self._current_request
        if request is not None and self._messages and not isinstance(self._messages[-1][0], RawRequestMessage):
            content = request.content
            if not content.is_eof() and content.exception() is None:
                content.set_exception(web.RequestPayloadError("the framing is broken"))

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """Called by aiohttp for bytes that it cannot parse, and for a handler that raised, which `Door` does not."""
        if status < 500:
            return self._door.refuse_malformed(self._what_is_wrong(exc, message or ""))
        log.error("a fault of the service, outside any operation", exc_info=exc)
        if request.writer.output_size > 0:
            raise ConnectionError("part of an answer is sent already")
        response = respond_problem(problem_of(FAULT))
        response.force_close()
        return response

    def _what_is_wrong(self, exc: BaseException | None, message: str) -> Failure:
        limits = self._limits
        if isinstance(exc, LineTooLong):
            if exc.args[1] == limits.max_header_bytes:
                return _head_too_large("A header", limits.max_header_bytes, " bytes", "max_header_bytes")
            return _head_too_large("The URL", limits.max_url_bytes, " bytes", "max_url_bytes")
        if message.startswith(TOO_MANY_HEADERS):
            return _head_too_large("The request", limits.headers_max, " headers", "headers_max")
        first_line = message.splitlines()[0:1]
        reason = first_line[0] if first_line and first_line[0].isascii() else "they cannot be read"
        reason = reason.partition(": b")[0].rstrip(":. ")  # what follows repeats the client's bytes
        return Failure(ErrorCode.INVALID_REQUEST, f"These bytes are no HTTP request: {reason[:200]}.")


def _head_too_large(what: str, limit: int, unit: str, setting: str) -> Failure:
    detail = f"{what} has more than {limit}{unit}; that is set by {setting}."
    return Failure(ErrorCode.INVALID_REQUEST, detail, limit=limit, setting=setting)


class DoorServer(web.Server):
    """Makes a `Connection` for each that comes in. A client that hangs up cancels its handler.

    `open_count` connections there are now, `ended_count` have ended.
    """

    def __init__(self, door: Door) -> None:
        super().__init__(door.handle, handler_cancellation=True)
        self._door = door
        self._limits = door.connections
        self.open_count = 0
        self.ended_count = 0
        self._turn_end = TurnEnd()

    def __call__(self) -> Connection:
        """A new connection's protocol."""
        return Connection(
            self,
            self._door,
            self._limits,
            self._turn_end,
            loop=asyncio.get_running_loop(),
            access_log=None,
            auto_decompress=False,
            lingering_time=LINGER_SECONDS,
            max_line_size=self._limits.line_bytes,
            # The parser counts the name with the value in a request's first header, and apart in the others.
            max_field_size=self._limits.max_header_bytes,
            max_headers=self._limits.headers_max,
        )

    def connection_made(self, handler: web.RequestHandler, transport: asyncio.Transport) -> None:
        """Called by each connection as it begins."""
        super().connection_made(handler, transport)
        self.open_count += 1
        if self.open_count <= self._limits.connections_max:
            return
        if self.open_count > self._limits.connections_max + SURPLUS_MAX:
            transport.abort()
            return
        self._door.surplus.add(handler)
        asyncio.get_running_loop().call_later(SURPLUS_SECONDS, transport.close)

    def connection_lost(self, handler: web.RequestHandler, exc: BaseException | None = None) -> None:
        """Called by each connection as it ends."""
        super().connection_lost(handler, exc)
        self.open_count -= 1
        self.ended_count += 1
        self._door.surplus.discard(handler)
