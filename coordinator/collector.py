"""Garbage collection: Python's own is off, and this decides what is looked at and when.

Nearly everything is freed by itself, for normal work makes no cycles. What a collection costs is a look at each object
that it does not free, and nothing is answered meanwhile: a group of 10,000 is over a million of them, half a second.
Python's own collector looks at them again and again while such a group forms, and finds nothing. Here

- what was made in the last second is looked at if it is little, and then set aside, never to be looked at again: so
  the cycle of a call that went wrong goes soon;
- if it is much, a large group is at work: it is set aside at once;
- all that is left is looked at when as many connections have ended as there are, since some of these are cycles: that
  costs a look at each object, and frees as much memory as it may. While many end, they are coming back, and it waits;
- and so once an hour, for what nobody has thought of.
"""

import asyncio
import gc
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Protocol

LOOK_INTERVAL_S = 1.0
YOUNG_MAX = 30_000
"""New objects that are looked at: some ten milliseconds."""
ENDED_MIN = 10_000
"""Connections that may have ended however few there are: some 100 MiB, if all of them were cycles."""
CALM_MAX = 100
"""Connections that may end between two looks without others being expected."""
WHOLE_INTERVAL_S = 3600.0


class Connections(Protocol):
    """What the collector asks of those who hold connections."""

    @property
    def open_count(self) -> int:
        """How many there are now."""

    @property
    def ended_count(self) -> int:
        """How many have ended since the start."""


class Collector:
    """In force from `with` to its end, for the whole process; what is there at the beginning is never looked at."""

    def __init__(self, connections: Connections, now_s: Callable[[], float]) -> None:
        """`now_s`: a clock that does not jump."""
        self._connections = connections
        self._now_s = now_s
        self._ended_at_whole = 0
        self._ended_at_look = 0
        self._looked_at_s = 0.0
        self._looking: asyncio.Task[None] | None = None

    async def __aenter__(self) -> "Collector":
        gc.disable()
        self.look_at_all()
        self._looking = asyncio.get_running_loop().create_task(self._look_often())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        assert self._looking is not None
        self._looking.cancel()
        with suppress(asyncio.CancelledError):
            await self._looking
        gc.unfreeze()
        gc.enable()

    async def _look_often(self) -> None:
        while True:
            await asyncio.sleep(LOOK_INTERVAL_S)
            self.look()

    def look(self) -> None:
        """Do what is due. Cost: a look at no more than `YOUNG_MAX` objects, but where all are due."""
        connections, ended_before = self._connections, self._ended_at_look
        ended = self._ended_at_look = connections.ended_count
        is_calm = ended - ended_before <= CALM_MAX
        is_due = is_calm and ended - self._ended_at_whole >= max(connections.open_count, ENDED_MIN)
        if is_due or self._now_s() - self._looked_at_s >= WHOLE_INTERVAL_S:
            self.look_at_all()
            return
        # Their number, and not the collector's count: that is what was made less what went, of whatever age.
        if len(gc.get_objects(generation=0)) <= YOUNG_MAX:
            gc.collect(0)
        gc.freeze()

    def look_at_all(self) -> None:
        """Free all cycles that nobody can reach, and set what lives aside."""
        self._ended_at_whole = self._ended_at_look = self._connections.ended_count
        self._looked_at_s = self._now_s()
        gc.unfreeze()
        gc.collect()
        gc.freeze()
