"""Each connection's share of a turn of the event loop, so that none of them keeps the others waiting.

A connection may bring hundreds of thousands of bytes at once, and ten thousand messages in them. It takes its share of
them as they come. The rest waits unread, and the connection's reading is paused. Waiting connections go on in the next
turns, one after the other, each with a share, and all of them together with `TURN_UNITS` in a turn. Between two turns
the event loop reads what others have sent. So the wait of a bystander is bounded, however many clients flood.

A connection that has sent no more than its members need goes first (`allowance`): a host of many members does not wait
behind clients that flood, however many they are. The others still have `LAST_UNITS` of each turn.

Work is counted in units, which the caller defines. A unit is about one small call.
"""

import asyncio
import logging
from collections import deque
from typing import Protocol

SHARE_UNITS = 32
"""What one connection may take at once: a millisecond of heartbeats at the most."""
TURN_UNITS = 64
"""What those that wait may take together in one turn."""
LAST_UNITS = 16
"""What is kept of that for those that go last."""
ARRIVAL_UNITS = 128
"""What those that have just come may take together in one turn, before they wait like the others."""

log = logging.getLogger("rallypoint.http")


class Sharer(Protocol):
    """A connection that has more than its share."""

    def go_on(self, units: int) -> int:
        """Take up to so many units of what waits; how many that were, one at the least.

        It has said `wait` again by then, or is not called again.
        """

    def abort(self) -> None:
        """Cut the connection: it met a fault of the service."""


class TurnShare:
    """The queue for the next turn: one for all connections of a server. Belongs to one event loop."""

    __slots__ = ("_arrived_units", "_first", "_is_due", "_last")

    def __init__(self) -> None:
        self._first: deque[Sharer] = deque()
        self._last: deque[Sharer] = deque()
        self._arrived_units = 0
        self._is_due = False

    def __len__(self) -> int:
        """Connections that wait."""
        return len(self._first) + len(self._last)

    def units_now(self) -> int:
        """What a connection may take at once of what has just come; 0 where others have taken all of this turn."""
        return SHARE_UNITS if self._arrived_units < ARRIVAL_UNITS else 0

    def spent(self, units: int) -> None:
        """So much was taken of what has just come."""
        self._arrived_units += units
        self._wake()

    def wait(self, sharer: Sharer, *, goes_first: bool) -> None:
        """Let it go on in its turn. It does not wait already. `goes_first`: it has taken little lately."""
        (self._first if goes_first else self._last).append(sharer)
        self._wake()

    def _wake(self) -> None:
        if not self._is_due:
            self._is_due = True
            asyncio.get_running_loop().call_soon(self._turn)

    def _turn(self) -> None:
        """Called once in a turn, where something was taken or somebody waits. What waits now may go on, once each."""
        self._is_due = False
        self._arrived_units = 0
        first_count, last_count = len(self._first), len(self._last)  # who goes on may wait again, in the other queue
        spent = self._let_go_on(self._first, first_count, TURN_UNITS - LAST_UNITS if last_count else TURN_UNITS)
        self._let_go_on(self._last, last_count, TURN_UNITS - spent)
        if self._first or self._last:
            self._wake()

    def _let_go_on(self, waiting: deque[Sharer], count: int, units: int) -> int:
        """So many of those that wait, as far as the units go. Returns how many were taken."""
        left = units
        for _ in range(count):
            if left <= 0:
                break
            sharer = waiting.popleft()
            try:
                left -= sharer.go_on(min(left, SHARE_UNITS))
            except Exception:
                # A fault of ours on one connection must not keep the others from their share.
                log.exception("a fault of the service, in reading a connection")
                sharer.abort()
        return units - left
