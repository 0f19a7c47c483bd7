"""Whether the calls to one node go over a channel, or over plain HTTP while no channel can be opened.

A handshake that fails says little by itself: a proxy that knows no WebSockets and a node that restarts may answer it
alike. What decides is whether the same call is answered over HTTP. If so there are no channels for now, and one is
tried again from time to time; if not, the node is not there, and nothing was learned about channels.

    Channel   calls go over a channel, opened where there is none
    Doubted   a handshake failed: calls go over HTTP, and the first to end decides
    Http      calls go over HTTP; a channel is tried again beside them

A channel that ends is opened again at once, the next ones of a row later and later, and calls go over HTTP meanwhile.
What was said on a channel makes no difference: something on the way may let two answers pass each time, and then close.

Nothing here waits or sends. Members that use the same node share a `TransportFallback`, and so what was learned.
"""

from enum import Enum

from rallypoint.member.core.backoff import backoff_ms

FRUITLESS_MAX = 3
"""So many channels in a row that came to nothing are as good as a refusal: some proxies let a handshake pass and then
nothing else."""

OPEN_AGAIN_MS, OPEN_AGAIN_MAX_MS = 100, 10_000
"""Between the end of a channel, or of a handshake, and the next one, the first of a row excepted. The end of a channel
that lasted for the longer time begins a new row: however they end, ten are opened in that time at the most."""

PASSING_STATUSES = frozenset({401, 403, 503})
"""Refusals that are the service's own, of the token or while it stops. The call gets them again over HTTP."""


class TransportMode(Enum):
    """The states of the module's table."""

    CHANNEL = "Channel"
    DOUBTED = "Doubted"
    HTTP = "Http"


class TransportFallback:
    """The transport mode of one node. `reason`: why there are doubts, or no channels; empty if there are neither.

    `try_again_ms`, `try_again_max_ms`: after how long a channel is tried again, doubling from the first to the second.
    """

    def __init__(self, try_again_ms: int, try_again_max_ms: int) -> None:
        self._try_again_ms = try_again_ms
        self._try_again_max_ms = try_again_max_ms
        self.mode = TransportMode.CHANNEL
        self.reason = ""
        self.try_again_at_ms = 0
        self._fruitless = 0
        self._tries = 0
        self._ends = 0
        self._open_again_at_ms = 0

    def may_open(self, now_ms: int) -> bool:
        """Whether a channel may be opened for a call; else the call goes over HTTP."""
        return self.mode is TransportMode.CHANNEL and now_ms >= self._open_again_at_ms

    @property
    def next_try_at_ms(self) -> int:
        """When a channel may be opened, at the earliest."""
        tried_ms = self.try_again_at_ms if self.mode is TransportMode.HTTP else 0
        return max(tried_ms, self._open_again_at_ms)

    def is_forgettable(self, now_ms: int) -> bool:
        """Whether there is nothing to remember of this node for the next member."""
        return self.mode is TransportMode.CHANNEL and now_ms >= self._open_again_at_ms + OPEN_AGAIN_MAX_MS

    def opened(self) -> None:
        """A handshake succeeded."""
        self.mode, self.reason = TransportMode.CHANNEL, ""

    def refused(self, status: int | None, reason: str, now_ms: int, jitter: float) -> None:
        """A handshake was not answered as one: with this status, or with none that could be read."""
        self._put_off_opening(now_ms, jitter)
        self._doubt(reason, at_once=status not in PASSING_STATUSES)

    def lost(self, reason: str, now_ms: int, jitter: float, *, was_useful: bool, lasted_ms: int) -> None:
        """A channel ended. `was_useful`: something was received on it."""
        if lasted_ms >= OPEN_AGAIN_MAX_MS:
            self._ends = 0
        self._put_off_opening(now_ms, jitter)
        if was_useful:
            self._fruitless = self._tries = 0
        else:
            self._doubt(reason, at_once=False)

    def ended_over_http(self, now_ms: int, jitter: float, *, answered: bool) -> bool:
        """A call over HTTP ended, `answered` by the service or by nobody. Whether that leaves channels unavailable now,
        which is then to be told.
        """
        if self.mode is not TransportMode.DOUBTED:
            return False
        self._fruitless = 0
        if not answered:
            self.mode, self.reason = TransportMode.CHANNEL, ""
            return False
        self.mode = TransportMode.HTTP
        self.put_off(now_ms, jitter)
        return True

    def put_off(self, now_ms: int, jitter: float) -> None:
        """Channels are not to be had, still: `try_again_at_ms` says when to try again."""
        self._tries += 1
        self.try_again_at_ms = now_ms + backoff_ms(self._tries, self._try_again_ms, self._try_again_max_ms, jitter)

    def _put_off_opening(self, now_ms: int, jitter: float) -> None:
        """A connection has come to its end: the next one waits, but for the first of a row."""
        self._open_again_at_ms = now_ms
        if self._ends > 0:
            self._open_again_at_ms += backoff_ms(self._ends, OPEN_AGAIN_MS, OPEN_AGAIN_MAX_MS, jitter)
        self._ends += 1

    def _doubt(self, reason: str, *, at_once: bool) -> None:
        self._fruitless += 1
        if self.mode is TransportMode.CHANNEL and (at_once or self._fruitless >= FRUITLESS_MAX):
            self.mode, self.reason = TransportMode.DOUBTED, reason
