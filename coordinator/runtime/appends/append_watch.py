"""One timer for all groups of a node whose appends are under way: when to look for calls that wait too long for one.

A timer for each group would be set and cancelled with each commit. This one is set with the first append, is left where
it is while others come and go, and is taken away with the last. What to do about a late call is the group's.
"""

from collections.abc import Callable
from itertools import islice
from typing import Protocol

from rallypoint.coordinator.runtime.event_loop.faults import each
from rallypoint.coordinator.runtime.event_loop.timers import Timer, Timers

LOOKED_AT_ONCE_MAX = 200
"""Groups that look before others have their turn: each may have calls to refuse, and says so in the log."""


class Watched(Protocol):
    """A group, as it is watched."""

    def look_for_late(self, now_ms: int) -> int:
        """Answer the calls that have waited too long. Returns when to look again."""

    def give_up(self) -> None:
        """A fault of ours was met in that, which is logged."""


class AppendWatch:
    """The groups that are to be looked at, and when. Belongs to one event loop."""

    def __init__(self, timers: Timers, now_ms: Callable[[], int]) -> None:
        self._timers = timers
        self._now_ms = now_ms
        self._look_at_ms: dict[Watched, int] = {}
        self._timer: Timer | None = None

    def look_at(self, group: Watched, at_ms: int) -> None:
        """Let the group look at that time, and again when it says so, until it is forgotten."""
        self._look_at_ms[group] = at_ms
        if self._timer is None or at_ms < self._timer.deadline_ms:
            self._plan(at_ms)

    def forget(self, group: Watched) -> None:
        """Nothing of the group waits for the store. One that is not watched is no error."""
        self._look_at_ms.pop(group, None)
        if not self._look_at_ms:
            self._plan(None)

    def _plan(self, at_ms: int | None) -> None:
        if self._timer is not None:
            self._timers.cancel(self._timer)
        self._timer = None if at_ms is None else self._timers.set(at_ms, self._look)

    def _look(self) -> None:
        """Cost: a look at each group whose append is under way, at most once in the time that an append may take."""
        self._timer = None
        now_ms = self._now_ms()
        late = (group for group, at_ms in self._look_at_ms.items() if at_ms <= now_ms)
        due = list(islice(late, LOOKED_AT_ONCE_MAX))  # the timer is set again for those that are left
        each(due, lambda group: self._look_again(group, now_ms), self._give_up)
        if self._look_at_ms:
            self._plan(min(self._look_at_ms.values()))

    def _look_again(self, group: Watched, now_ms: int) -> None:
        next_ms = group.look_for_late(now_ms)
        if group in self._look_at_ms:  # its calls may be answered, and the group be at rest, by now
            self._look_at_ms[group] = next_ms

    def _give_up(self, group: Watched) -> None:
        self._look_at_ms.pop(group, None)
        group.give_up()
