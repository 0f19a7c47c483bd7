"""The only place that knows what time it is, and how long to wait before trying again."""

import asyncio
import time
from collections.abc import Callable
from typing import Protocol


class Handle(Protocol):
    """A callback that is still to come."""

    def cancel(self) -> None:
        """Let it not happen; when it has happened already, nothing changes."""


class Clock(Protocol):
    """Time in milliseconds since the epoch, which never goes back while the process lives."""

    def now_ms(self) -> int:
        """The present instant."""

    def call_at(self, deadline_ms: int, callback: Callable[[], None]) -> Handle:
        """Call back at the deadline or a little before or after it: whoever must not be early looks at the clock."""


class SystemClock:
    """The monotonic clock, set once by the wall clock: a wall clock that is put back moves no deadline."""

    def __init__(self) -> None:
        self._ahead_ns = time.time_ns() - time.monotonic_ns()

    def now_ms(self) -> int:
        """Milliseconds since the epoch."""
        return (time.monotonic_ns() + self._ahead_ns) // 1_000_000

    def call_at(self, deadline_ms: int, callback: Callable[[], None]) -> Handle:
        """On the running event loop."""
        return asyncio.get_running_loop().call_later(max(0, deadline_ms - self.now_ms()) / 1000, callback)


async def sleep(clock: Clock, wait_ms: int) -> None:
    """Return after that time; with nothing to wait for, after a turn of the event loop."""
    if wait_ms <= 0:
        await asyncio.sleep(0)
        return
    over = asyncio.Event()
    handle = clock.call_at(clock.now_ms() + wait_ms, over.set)
    try:
        await over.wait()
    finally:
        handle.cancel()


class Backoff:
    """How long to wait before the next try: at first not at all, then twice as long each time, up to a limit.

    Failures that fall into one wait count as one. After twice the longest wait without a failure it begins anew.
    """

    def __init__(self, first_ms: int = 100, longest_ms: int = 5_000) -> None:
        self._first_ms = first_ms
        self._longest_ms = longest_ms
        self._next_ms = 0
        self._until_ms: int | None = None

    def wait_ms(self, now_ms: int) -> int:
        """How long to wait after a failure now."""
        if self._until_ms is not None and now_ms < self._until_ms:
            return self._until_ms - now_ms
        if self._until_ms is None or now_ms - self._until_ms > 2 * self._longest_ms:
            self._next_ms = 0
        wait_ms = self._next_ms
        self._next_ms = min(max(self._first_ms, 2 * wait_ms), self._longest_ms)
        self._until_ms = now_ms + wait_ms
        return wait_ms
