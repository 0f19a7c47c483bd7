"""Garbage collection: Python's own is off, and this decides what is collected and when.

Nearly everything is freed by its reference count, because normal work makes no cycles. A collection costs a look at
each object that it does not free, and the service answers nothing meanwhile: a group of 10,000 is over a million
objects, half a second. Python's own collector looks at them again and again while such a group forms, and finds
nothing. Here

- the objects of the last second are collected if they are few, and then frozen (`gc.freeze`), never to be looked at
  again. So the cycle of a call that went wrong goes soon;
- if they are many, a large group is at work: they are frozen at once.

Frozen objects are not looked at again, so nothing that lives longer than a second may end as a cycle. Most of such
objects are connections and what is kept of them. As they end, they let go of what refers to them, and of the frames of
their errors (`forget_frames`). `tests/coordinator/http/test_ended_connections.py` counts what is left of each kind:
nothing, on uvloop. asyncio's own event loop leaves a cycle of each connection itself, some 1 KiB. There, and there
alone, everything is collected after every `ENDED_MAX` connections.
"""

import asyncio
import gc
from contextlib import suppress
from types import TracebackType
from typing import Protocol

from rallypoint.coordinator.runtime.event_loop.faults import begin

LOOK_INTERVAL_S = 1.0
YOUNG_MAX = 30_000
"""New objects that are looked at: some ten milliseconds."""
ENDED_MAX = 100_000
"""Connections that end on asyncio's own event loop between two looks at all: some 100 MiB."""


class Connections(Protocol):
    """What the collector asks of those who hold connections."""

    @property
    def ended_count(self) -> int:
        """How many have ended since the start."""


class Collector:
    """In force from `with` to its end, for the whole process; what is there at the beginning is never looked at."""

    def __init__(self, connections: Connections) -> None:
        self._connections = connections
        self._ended_at_whole = 0
        self._count_before = 0
        self._looking: asyncio.Task[None] | None = None

    async def __aenter__(self) -> "Collector":
        gc.disable()
        self.look_at_all()
        self._begin_looking()
        return self

    def _begin_looking(self) -> None:
        self._looking = begin(self._look_often(), self._begin_looking)

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
        ended = self._connections.ended_count - self._ended_at_whole
        if ended >= ENDED_MAX and isinstance(asyncio.get_running_loop(), asyncio.BaseEventLoop):  # uvloop's is none
            self.look_at_all()
            return
        # The collector's count is what was made less what went, of whatever age: so many are new at least. Where that
        # is little, all of them are put into a list, to be counted.
        if gc.get_count()[0] - self._count_before <= YOUNG_MAX and len(gc.get_objects(generation=0)) <= YOUNG_MAX:
            gc.collect(0)
        gc.freeze()
        self._count_before = gc.get_count()[0]

    def look_at_all(self) -> None:
        """Free all cycles that nobody can reach, and set what lives aside."""
        self._ended_at_whole = self._connections.ended_count
        gc.unfreeze()
        gc.collect()
        gc.freeze()
        self._count_before = gc.get_count()[0]


def forget_frames(error: BaseException) -> None:
    """Drop the frames of a caught exception that is kept, and of what it came of.

    The frames know whoever keeps the exception, and so close a cycle. Call it once nobody needs the traceback.
    """
    forgotten: list[BaseException] = [error]
    while forgotten:
        one = forgotten.pop()
        forgotten += [of for of in (one.__cause__, one.__context__) if of is not None]
        one.__traceback__ = one.__cause__ = one.__context__ = None
