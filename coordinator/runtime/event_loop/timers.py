"""All timers of the process, by one wake-up of the clock. Each costs the same however many there are.

Timers lie in buckets of some milliseconds, by their deadline rounded up. The clock calls at the earliest bucket that is
not empty. So hundreds of sessions that end together cost one wake-up, and no timers cost none. A timer never fires
early. It fires at most one bucket late, plus the event loop's own delay.
"""

import heapq
import logging
from collections.abc import Callable

from rallypoint.coordinator.runtime.event_loop.clock import Clock, Handle

BUCKET_MS = 5
"""So much matters to no timeout of the protocol; the shortest is the 20 ms for which a join phase lingers."""

FIRED_AT_ONCE_MAX = 200
"""Timers that fire in one go, before others have their turn: each is a step of a group, of some 10 us."""

logger = logging.getLogger(__name__)


class Timer:
    """A timer that was set; it is cancelled through the `Timers` it came from."""

    __slots__ = ("bucket", "callback", "deadline_ms", "is_set")

    def __init__(self, deadline_ms: int, bucket: int, callback: Callable[[], None]) -> None:
        self.deadline_ms = deadline_ms
        self.bucket = bucket
        self.callback = callback
        self.is_set = True


class Timers:
    """Timers over a clock."""

    def __init__(self, clock: Clock, bucket_ms: int = BUCKET_MS) -> None:
        self._clock = clock
        self._bucket_ms = bucket_ms
        # A bucket that was emptied stays until its time comes, so that its number is never in the heap twice.
        self._buckets: dict[int, dict[Timer, None]] = {}
        self._numbers: list[int] = []
        self._count = 0
        self._wake_up: Handle | None = None
        self._wakes_at: int | None = None

    def __len__(self) -> int:
        """Timers that are set."""
        return self._count

    def set(self, deadline_ms: int, callback: Callable[[], None]) -> Timer:
        """Call back at the deadline or as soon after as can be, never from within this call."""
        number = -(-deadline_ms // self._bucket_ms)
        timer = Timer(deadline_ms, number, callback)
        bucket = self._buckets.get(number)
        if bucket is None:
            bucket = self._buckets[number] = {}
            heapq.heappush(self._numbers, number)
        bucket[timer] = None
        self._count += 1
        if self._wakes_at is None or number < self._wakes_at:
            self._plan(number)
        return timer

    def cancel(self, timer: Timer) -> None:
        """Let it not fire; one that has fired or was cancelled is no error."""
        if timer.is_set:
            timer.is_set = False
            self._count -= 1
            self._buckets.get(timer.bucket, {}).pop(timer, None)

    def close(self) -> None:
        """Forget all timers; the clock is not asked again."""
        for bucket in self._buckets.values():
            for timer in list(bucket):
                self.cancel(timer)
        self._buckets.clear()
        self._numbers.clear()
        self._plan(None)

    def _plan(self, number: int | None) -> None:
        if self._wake_up is not None:
            self._wake_up.cancel()
        self._wakes_at = number
        self._wake_up = None if number is None else self._clock.call_at(number * self._bucket_ms, self._wake)

    def _wake(self) -> None:
        self._forget_plan()
        now_ms = self._clock.now_ms()
        due: list[Timer] = []
        while self._numbers and self._numbers[0] * self._bucket_ms <= now_ms:
            due.extend(self._buckets.pop(heapq.heappop(self._numbers)))
        due.sort(key=lambda timer: timer.deadline_ms)
        if len(due) > FIRED_AT_ONCE_MAX:
            self._put_off(due[FIRED_AT_ONCE_MAX:], now_ms)
        for timer in due[:FIRED_AT_ONCE_MAX]:
            # One that fired before it may have cancelled it.
            if timer.is_set:
                timer.is_set = False
                self._count -= 1
                self._fire(timer)
        while self._numbers and not self._buckets[self._numbers[0]]:
            del self._buckets[heapq.heappop(self._numbers)]
        # A callback that set a timer has planned for it already.
        planned = self._wakes_at
        if self._numbers and (planned is None or self._numbers[0] < planned):
            self._plan(self._numbers[0])

    def _put_off(self, timers: list[Timer], now_ms: int) -> None:
        """Let them fire as soon as others had their turn; until then they can be cancelled as before."""
        number = now_ms // self._bucket_ms
        for timer in timers:
            timer.bucket = number
        self._buckets[number] = dict.fromkeys(timers)
        heapq.heappush(self._numbers, number)

    def _forget_plan(self) -> None:
        self._wake_up = None
        self._wakes_at = None

    def _fire(self, timer: Timer) -> None:
        try:
            timer.callback()
        except Exception:
            # A fault of ours in one of them must not keep the others from firing.
            logger.exception("a timer's callback failed")
