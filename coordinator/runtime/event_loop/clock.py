"""The only source of time, and of the wait before another attempt."""

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Protocol

from rallypoint.coordinator.runtime.origin import DETACHED

TICK_MS = 250
"""So often the loop proves that it turns."""
LATE_MS = 250
"""So late a tick may be without a stall: the time counts."""
SETTLE_TURN_MS, SETTLE_TURN_LATE_MS, SETTLE_TURNS = 50, 25, 3
"""After a stall, the loop must be on time in so many turns of settling in a row; so late is still on time."""
TURN_MAX_MS = TICK_MS + LATE_MS
"""So much of a stall may be a loop that turns slowly; what is beyond it never counts."""
BUDGET_MAX_MS = 5_000
"""So much of the time in which the loop turned, however slowly, may be left out; beyond it, such time counts."""
REFILLED_BY = 4
"""The budget grows by 1 ms for each so many that count."""
NS_A_MS = 1_000_000
_FOREVER = 2**63

logger = logging.getLogger(__name__)


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
    """The monotonic clock, set once by the wall clock, less the time in which the event loop did not turn.

    A wall clock that is put ahead or back moves no deadline. Nor does a stall: a process that was stopped, a machine
    that slept, a loop that was kept from its turns. What members sent meanwhile lies in the sockets; were the time to
    count, their sessions would end before it is read.

        a tick        while something is planned, each `TICK_MS`: proof that the loop turned
        stalled       the next tick is late. Time stands where it was last read, and does so from the first look at the
                      clock on, for a timer that is due may be called before the tick
        settling      it goes on standing until the loop has turned on time for a while: then what waited is read
        on again      from where it stood; so all deadlines have moved

    A stall that comes while it settles is a stall as any other.

    A loop that is late again and again would keep the dead alive; so what is left out has a budget. It pays for the
    settling, and for `TURN_MAX_MS` of each stall. What it cannot pay is owed: it counts from the next turn on, for the
    loop shall have turned before. So after any `R` ms, with `TURN_MAX_MS` of each stall and all else in them,

        counted >= (R - BUDGET_MAX_MS - TURN_MAX_MS) * REFILLED_BY / (REFILLED_BY + 1)

    With nothing planned there is no tick, and time passes as it does.
    """

    def __init__(
        self,
        on_stall: Callable[[int], None] = lambda stalled_ms: None,
        *,
        real_ns: Callable[[], int] = time.monotonic_ns,
        wall_ns: Callable[[], int] = time.time_ns,
        call_later: Callable[[float, Callable[[], None]], Handle] | None = None,
    ) -> None:
        """`on_stall` gets how many milliseconds did not count: when a stall has settled, or another one follows it.

        The others are where time comes from, and who calls back after so many seconds: the running event loop.
        """
        self._on_stall = on_stall
        self._real_ns = real_ns
        self._call_later = _call_later if call_later is None else call_later
        self._ahead_ns = self._wall_ahead_ns = wall_ns() - real_ns()
        self._last_ms = (real_ns() + self._ahead_ns) // NS_A_MS
        self._counts_until_ns = _FOREVER
        self._ticks_until_ms: int | None = None
        self._turn_due_ns = 0
        self._turns_on_time = 0
        self._stood_until_ns = 0
        self._lost_ms = self._owed_ms = 0
        self._budget_ms, self._refilled_at_ms = BUDGET_MAX_MS, self._last_ms

    def now_ms(self) -> int:
        """Milliseconds since the epoch."""
        real_ns = self._real_ns()
        if real_ns < self._counts_until_ns:
            self._last_ms = (real_ns + self._ahead_ns) // NS_A_MS
        return self._last_ms

    def shown_ms(self) -> int:
        """Milliseconds since the epoch with every stall, to be shown; nothing may be decided by it."""
        return (self._real_ns() + self._wall_ahead_ns) // NS_A_MS

    def call_at(self, deadline_ms: int, callback: Callable[[], None]) -> Handle:
        """On the running event loop; early where a stall comes between."""
        wait_ms = max(0, deadline_ms - self.now_ms())
        if self._ticks_until_ms is None:
            self._ticks_until_ms = deadline_ms
            self._tick_later()
        else:
            self._ticks_until_ms = max(self._ticks_until_ms, deadline_ms)
        return self._call_later(wait_ms / 1000, callback)

    def _tick_later(self) -> None:
        self._counts_until_ns = self._real_ns() + TURN_MAX_MS * NS_A_MS
        self._call_later(TICK_MS / 1000, self._tick)

    def _tick(self) -> None:
        """The loop has turned, in time or not."""
        assert self._ticks_until_ms is not None
        if self._real_ns() >= self._counts_until_ns:
            self._stalled()
        elif self.now_ms() < self._ticks_until_ms:
            self._tick_later()
        else:
            self._ticks_until_ms = None
            self._counts_until_ns = _FOREVER

    def _stalled(self) -> None:
        self._counts_until_ns = 0
        self._stood_until_ns = self._last_ms * NS_A_MS - self._ahead_ns
        self._turns_on_time = 0
        self._stand()
        self._settle_on()

    def _settle_on(self) -> None:
        self._turn_due_ns = self._real_ns() + SETTLE_TURN_MS * NS_A_MS
        self._call_later(SETTLE_TURN_MS / 1000, self._settle)

    def _settle(self) -> None:
        """A turn of settling is over. One on time: between two turns the loop has taken all that had come, and had
        nothing left to do.
        """
        late_ms = (self._real_ns() - self._turn_due_ns) // NS_A_MS
        is_stall = late_ms >= LATE_MS
        if is_stall:
            self._tell()
        self._stand()
        self._turns_on_time = self._turns_on_time + 1 if late_ms < SETTLE_TURN_LATE_MS else 0
        if self._turns_on_time < SETTLE_TURNS and (is_stall or not self._owed_ms):
            self._settle_on()
        else:
            self._pay()
            self._tell()
            self._ahead_ns = self._last_ms * NS_A_MS - self._stood_until_ns
            self._tick_later()

    def _stand(self) -> None:
        """Time has stood until now; what the budget has not enough for is owed."""
        self._pay()
        passed_ms = (self._real_ns() - self._stood_until_ns) // NS_A_MS
        self._stood_until_ns += passed_ms * NS_A_MS
        turned_ms = min(passed_ms, TURN_MAX_MS)
        spent_ms = min(turned_ms, self._budget_ms)
        self._budget_ms -= spent_ms
        self._owed_ms = turned_ms - spent_ms
        self._lost_ms += passed_ms - self._owed_ms

    def _pay(self) -> None:
        """What is owed counts; and all that has counted fills the budget."""
        self._last_ms += self._owed_ms
        self._owed_ms = 0
        gained_ms = (self._last_ms - self._refilled_at_ms) // REFILLED_BY
        self._refilled_at_ms += gained_ms * REFILLED_BY
        self._budget_ms = min(self._budget_ms + gained_ms, BUDGET_MAX_MS)

    def _tell(self) -> None:
        """What has not counted, and was not reported yet."""
        lost_ms, self._lost_ms = self._lost_ms, 0
        logger.warning("the service stood still for %.1f s, settling included; no session ends by it", lost_ms / 1000)
        self._on_stall(lost_ms)


def _call_later(wait_s: float, callback: Callable[[], None]) -> Handle:
    return asyncio.get_running_loop().call_later(wait_s, callback, context=DETACHED)


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

    Failures that fall into one wait count as one. After twice the longest wait without a failure it begins again.
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
