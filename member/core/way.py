"""Which way the calls to one node go: over a session, or over plain HTTP where there are no sessions to be had.

A handshake that fails says little by itself: a proxy that knows no WebSockets and a node that restarts may answer it
alike. What decides is whether the same call is answered over HTTP. If so there are no sessions for now, and one is
tried again from time to time; if not, the node is not there, and nothing was learned about sessions.

    Session   calls go over a session, opened where there is none
    Doubted   a handshake failed: calls go over HTTP, and the first to end decides
    Http      calls go over HTTP; a session is tried again beside them

Nothing here waits or sends. Whoever shares a `Way` (the members that use the same node) shares what was learned.
"""

from enum import Enum

from member.core.backoff import backoff_ms

FRUITLESS_MAX = 3
"""So many sessions in a row that came to nothing are as good as a refusal: some proxies let a handshake pass and then
nothing else."""

PASSING_STATUSES = frozenset({401, 403, 503})
"""Refusals that are the service's own, of the token or while it stops. The call is told them again over HTTP."""


class WayState(Enum):
    """The states of the module's table."""

    SESSION = "Session"
    DOUBTED = "Doubted"
    HTTP = "Http"


class Way:
    """The way to one node. `reason`: why there are doubts, or no sessions; empty where there are neither.

    `try_again_ms`, `try_again_max_ms`: after how long a session is tried again, doubling from the first to the second.
    """

    def __init__(self, try_again_ms: int, try_again_max_ms: int) -> None:
        self._try_again_ms = try_again_ms
        self._try_again_max_ms = try_again_max_ms
        self.state = WayState.SESSION
        self.reason = ""
        self.try_again_at_ms = 0
        self._fruitless = 0
        self._tries = 0

    def opened(self) -> None:
        """A handshake succeeded."""
        self.state, self.reason = WayState.SESSION, ""

    def refused(self, status: int | None, reason: str) -> None:
        """A handshake was not answered as one: with this status, or with none that could be read."""
        self._doubt(reason, at_once=status not in PASSING_STATUSES)

    def lost(self, reason: str, *, was_of_use: bool) -> None:
        """A session ended. `was_of_use`: anything was said to us on it."""
        if was_of_use:
            self._fruitless = self._tries = 0
        else:
            self._doubt(reason, at_once=False)

    def ended_over_http(self, now_ms: int, jitter: float, *, answered: bool) -> bool:
        """A call over HTTP ended, `answered` by the service or by nobody. Whether that leaves sessions unavailable now,
        which is then to be told.
        """
        if self.state is not WayState.DOUBTED:
            return False
        self._fruitless = 0
        if not answered:
            self.state, self.reason = WayState.SESSION, ""
            return False
        self.state = WayState.HTTP
        self.put_off(now_ms, jitter)
        return True

    def put_off(self, now_ms: int, jitter: float) -> None:
        """Sessions are not to be had, still: `try_again_at_ms` says when to try again."""
        self._tries += 1
        self.try_again_at_ms = now_ms + backoff_ms(self._tries, self._try_again_ms, self._try_again_max_ms, jitter)

    def _doubt(self, reason: str, *, at_once: bool) -> None:
        self._fruitless += 1
        if self.state is WayState.SESSION and (at_once or self._fruitless >= FRUITLESS_MAX):
            self.state, self.reason = WayState.DOUBTED, reason
