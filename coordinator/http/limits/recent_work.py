"""The processor time that a connection's requests have taken lately, which orders its next request. Pure.

The recorded time decays by halves. So a client that calls seldom has little on record, whatever one call costs, and a
client that calls without a pause has as much as its calls take of the machine.

Small requests and others have separate accounts. So the heartbeats of a member that commits much get through at once,
and the commits of a proxy that carries many heartbeats get through as any other. A request counts as small by its size.
If one took much time, the next of its kind on the connection counts as large.
"""

from typing import Final, NamedTuple

HALVED_S: Final = 0.5
"""How long until half of it is forgotten."""
ALLOWED_S: Final = 0.005
"""With more than that on the account of its kind, a connection's request lets others go first."""
SMALL_BYTES: Final = 4_096
"""A request up to this is small: a heartbeat, a join, a look-up. It takes half a millisecond at the most."""
SMALL_S: Final = 0.002
"""What has taken more was not small, whatever its size."""
BEHIND_S: Final = 1.0
"""A connection that has taken much has its large requests stand as if it had asked so much later.

It is far below `group_min_session_timeout_ms`, for a member whose commit waits cannot say anything else meanwhile."""


class Place(NamedTuple):
    """The place of a request in its queue: small ones have a queue of their own; in each, the earliest goes first."""

    is_small: bool
    due_s: float


class RecentWork:
    """One connection's. Times are those of one clock, which does not go back."""

    __slots__ = (
        "_asked_s",
        "_at_s",
        "_costly_kinds",
        "_is_large",
        "_is_often",
        "_kind",
        "_other_s",
        "_request_s",
        "_small_s",
        "is_behind",
        "speaker",
    )

    def __init__(self, now_s: float) -> None:
        self._small_s = 0.0
        self._other_s = 0.0
        self._at_s = now_s
        self._costly_kinds: set[str] = set()
        """Operations whose last request on this connection looked small and took more."""
        self._asked_s = now_s
        self._kind = ""
        self._request_s = 0.0
        """What the request has taken that is under way."""
        self._is_large = False
        """It is not small, as far as is known of it; once so, it stays so."""
        self._is_often = False
        self.speaker = ("", "")
        """Group and member of its last request that was large enough to wait."""
        self.is_behind = False
        """Its requests that are not small stand behind those of others."""

    def begin(self, now_s: float) -> None:
        """Its next request begins. What was done for those before decides whether that one is behind others."""
        self._settle()
        self._forget(now_s)
        self._asked_s = now_s
        self._request_s = 0.0
        self._is_large = False
        self._is_often = self._small_s > ALLOWED_S
        self.is_behind = self._other_s > ALLOWED_S

    def _settle(self) -> None:
        """The request under way has ended."""
        is_costly = self._request_s > SMALL_S
        if not self._is_large and not is_costly:
            self._small_s += self._request_s
        else:
            self._other_s += self._request_s
        kind, self._kind = self._kind, ""
        if is_costly and kind:
            self._costly_kinds.add(kind)
        elif kind in self._costly_kinds:
            self._costly_kinds.remove(kind)

    def add(self, worked_s: float, now_s: float) -> None:
        """So much more was done for its request."""
        self._forget(now_s)
        self._request_s += worked_s

    def looks_small(self, kind: str, size_bytes: int) -> bool:
        """The request that has begun is of this kind (its operation); `is_small` of it."""
        if size_bytes <= SMALL_BYTES:
            self._kind = kind
            if kind in self._costly_kinds:
                self._is_large = True
        return self.is_small(size_bytes)

    def is_small(self, size_bytes: int) -> bool:
        """Its request need not wait, that is sure without a look at the time; `place` is for all others."""
        return not (self._is_large or self._is_often or size_bytes > SMALL_BYTES or self._request_s > ALLOWED_S)

    def place(self, size_bytes: int) -> Place | None:
        """The place of its request among those that wait; None if it need not wait.

        `size_bytes`: of what is known of the request. It is not small, too, once it has taken more than is allowed. The
        place of a request that goes on is before those that came later, so what has begun is finished first. A small
        one waits once.
        """
        if size_bytes > SMALL_BYTES:
            self._kind = ""  # it does not look small, and says nothing of those that do
        self._is_large = self._is_large or size_bytes > SMALL_BYTES or self._request_s > ALLOWED_S
        if not self._is_large:
            is_often, self._is_often = self._is_often, False
            return Place(is_small=True, due_s=self._asked_s) if is_often else None
        self._is_often = False
        return Place(is_small=False, due_s=self._asked_s + (BEHIND_S if self.is_behind else 0.0))

    def _forget(self, now_s: float) -> None:
        kept = 0.5 ** ((now_s - self._at_s) / HALVED_S)
        self._small_s *= kept
        self._other_s *= kept
        self._at_s = now_s
