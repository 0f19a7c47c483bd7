"""`GET /v1/session`: who may have a session, how many there are, and their common end.

What is said on one is not decided here: `session` does that.
"""

import asyncio
from collections.abc import Mapping

from aiohttp import web

from coordinator.core.effects import Failure
from coordinator.http.errors import refuse
from coordinator.http.inputs import refuse_body, refuse_query
from coordinator.http.readiness import why_not_ready
from coordinator.http.routes import Answer
from coordinator.http.security import Guard
from coordinator.http.session import Ending, Session, SessionRoom
from coordinator.http.session_pings import Pings
from coordinator.http.session_socket import Socket
from protocol.errors import ErrorCode

UNAUTHENTICATED_MAX = 256
"""Sessions that may wait for their token at the same time."""
ENDED_AT_ONCE_MAX = 500
"""Sessions that are ended in one go, before others have their turn."""

_OVER = frozenset({"draining", "stopped"})


class Sessions:
    """Opens sessions, and ends them all when the service stops."""

    def __init__(self, room: SessionRoom, guard: Guard) -> None:
        self._room = room
        self._guard = guard
        self._pings = Pings()
        self._open: dict[Session, None] = {}
        self._is_closed = False

    async def open(self, request: web.BaseRequest, ids: Mapping[str, str], query: str) -> Answer:
        """Answer with a session, or refuse it: 400 for what is no WebSocket, 401, 429 beyond a limit.

        A client that sends no `Authorization` is let in to send its token as the first message.
        """
        room = self._room
        has_token = not self._guard.needs_token or "Authorization" in request.headers
        if has_token:
            self._guard.check_token(request)
        refuse_query(query)
        refuse_body(request)
        if room.service.phase in _OVER or self._is_closed:
            return why_not_ready(room.service.phase) or Failure(
                ErrorCode.COORDINATOR_NOT_AVAILABLE, "The service is stopping."
            )
        self._check_room(has_token)
        session = Session(room, request.remote or "", is_authenticated=has_token)
        socket = Socket(
            session.serve,
            session.take_at_once,
            lambda: self._ended(session),
            self._pings,
            room.limits.session_ping_interval_ms,
            # Who has shown no token yet must not make the service hold much.
            room.sizes.max_sync_bytes if has_token else room.sizes.max_body_bytes,
        )
        if request.method != "GET" or not socket.can_prepare(request):
            raise refuse(
                ErrorCode.INVALID_REQUEST,
                "This path takes a WebSocket's handshake (version 13) alone.",
                field="Upgrade",
            )
        self._open[session] = None
        room.figures.sessions_open(+1)
        await socket.prepare(request)
        return socket

    def _check_room(self, has_token: bool) -> None:
        limit = self._room.limits.sessions_max
        if len(self._open) >= limit:
            detail = f"As many sessions are open as sessions_max allows ({limit})."
            raise refuse(ErrorCode.THROTTLING_QUOTA_EXCEEDED, detail, limit=limit, setting="sessions_max")
        if not has_token and sum(not session.is_authenticated for session in self._open) >= UNAUTHENTICATED_MAX:
            detail = "Too many sessions wait for their first message, which is to be a token; try again."
            raise refuse(ErrorCode.THROTTLING_QUOTA_EXCEEDED, detail)

    def _ended(self, session: Session) -> None:
        if self._open.pop(session, self) is None:
            self._room.figures.sessions_open(-1)

    def warn_of_drain(self) -> None:
        """Tell everyone that the node is stopping. New sessions are refused from now on."""
        self._is_closed = True
        for session in self._open:
            session.warn_of_drain()

    async def close(self) -> None:
        """End every session, once nothing waits for an answer any more. Returns when all have gone."""
        self._is_closed = True
        sessions = tuple(self._open)
        for number, session in enumerate(sessions, start=1):
            session.end(Ending.DRAIN, "the node is stopping")
            if number % ENDED_AT_ONCE_MAX == 0:
                await asyncio.sleep(0)
        for session in sessions:
            await session.ended()
