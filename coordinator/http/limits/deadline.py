"""The time that a client has for something, by the service's own clock.

What a client sent while the service did not run lies in its socket. By the event loop's clock its time would be over
before that is read. So every timeout that ends a call or a connection counts here. A clock calls back early if the
service stood still meanwhile; then the deadline waits for the rest of the time.
"""

import asyncio
from collections.abc import Callable
from types import TracebackType

from rallypoint.coordinator.runtime.event_loop.clock import Clock, Handle


class Deadline:
    """Calls back once, after so long in which the service ran."""

    __slots__ = ("_callback", "_clock", "_due_ms", "_handle")

    def __init__(self, clock: Clock, wait_ms: int, callback: Callable[[], None]) -> None:
        self._clock = clock
        self._callback = callback
        self._due_ms = clock.now_ms() + wait_ms
        self._handle: Handle | None = clock.call_at(self._due_ms, self._look)

    def cancel(self) -> None:
        """Let it not happen; when it has happened already, nothing changes."""
        if self._handle is not None:
            self._handle.cancel()

    def _look(self) -> None:
        if self._clock.now_ms() < self._due_ms:
            self._handle = self._clock.call_at(self._due_ms, self._look)
        else:
            # A handle that was due when it was made goes on knowing this deadline, and would be known by it.
            self._handle = None
            self._callback()


class TimeLimit:
    """See `time_limit`. No generator: its frame would know the exception that went through it, and be known by it."""

    __slots__ = ("_clock", "_deadline", "_timeout", "_wait_ms")

    def __init__(self, clock: Clock, wait_ms: int) -> None:
        self._clock = clock
        self._wait_ms = wait_ms
        self._timeout = asyncio.timeout(None)

    async def __aenter__(self) -> None:
        over_at = asyncio.get_running_loop().time()  # it has passed whenever the deadline comes
        timeout = await self._timeout.__aenter__()
        self._deadline = Deadline(self._clock, self._wait_ms, lambda: timeout.reschedule(over_at))

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._deadline.cancel()
        await self._timeout.__aexit__(kind, error, traceback)


def time_limit(clock: Clock, wait_ms: int) -> TimeLimit:
    """As `asyncio.timeout`: what is within is cancelled after so long, and TimeoutError raised."""
    return TimeLimit(clock, wait_ms)
