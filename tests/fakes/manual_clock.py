"""A clock that stands still until a test moves it."""

import asyncio
import heapq
from collections.abc import Callable
from itertools import count

TURNS = 50
"""Turns of the event loop after which everything that could go on without time has done so."""


class ManualHandle:
    def __init__(self, callback: Callable[[], None]) -> None:
        self.callback: Callable[[], None] | None = callback

    def cancel(self) -> None:
        self.callback = None


class ManualClock:
    """Time in milliseconds. Callbacks come in the order of their deadlines, each at exactly its own instant."""

    def __init__(self, now_ms: int = 1_700_000_000_000) -> None:
        self._now_ms = now_ms
        self._order = count()
        self._handles: list[tuple[int, int, ManualHandle]] = []

    def now_ms(self) -> int:
        return self._now_ms

    def call_at(self, deadline_ms: int, callback: Callable[[], None]) -> ManualHandle:
        handle = ManualHandle(callback)
        heapq.heappush(self._handles, (deadline_ms, next(self._order), handle))
        return handle

    @property
    def planned(self) -> int:
        """Callbacks that are still to come."""
        return sum(handle.callback is not None for _, _, handle in self._handles)

    def move(self, by_ms: int) -> None:
        """Let time pass, without a turn of the event loop."""
        until_ms = self._now_ms + by_ms
        while self._handles and self._handles[0][0] <= until_ms:
            self._fire_next()
        self._now_ms = until_ms

    async def run(self, by_ms: int) -> None:
        """Let time pass, and everything happen that follows from each instant before the next one comes."""
        until_ms = self._now_ms + by_ms
        await settle()
        while self._handles and self._handles[0][0] <= until_ms:
            self._fire_next()
            await settle()
        self._now_ms = until_ms
        await settle()

    def _fire_next(self) -> None:
        deadline_ms, _, handle = heapq.heappop(self._handles)
        if handle.callback is not None:
            self._now_ms = max(self._now_ms, deadline_ms)
            handle.callback()


class HastyClock(ManualClock):
    """Calls back early, as a clock does after a stall."""

    def call_at(self, deadline_ms: int, callback: Callable[[], None]) -> ManualHandle:
        return super().call_at((self.now_ms() + deadline_ms + 1) // 2, callback)


async def settle() -> None:
    """Let everything go on that waits for nothing but its turn."""
    for _ in range(TURNS):
        await asyncio.sleep(0)
