"""When channels are checked for a due ping: many by one timer of the event loop.

Each channel is checked once in an interval, whether it was silent or not; what it sends meanwhile sets no timer. Ten
thousand timers of their own would wake the loop nearly seven hundred times a second: a fifth as many wake-ups as the
same members have heartbeats, and none of them would find anything to do.
"""

import asyncio
import logging
import math
from collections.abc import Callable

from rallypoint.coordinator.runtime.event_loop.clock import Clock

BUCKET_S = 0.1
"""A ping may be so late. Two wake-ups are at least so far apart."""


log = logging.getLogger("rallypoint.http")


class Check:
    """A check that is due. It is cancelled like a timer of the event loop."""

    __slots__ = ("callback",)

    def __init__(self, callback: Callable[[], None]) -> None:
        self.callback: Callable[[], None] | None = callback

    def cancel(self) -> None:
        """Drop it. To cancel one that has run is no error."""
        self.callback = None


class Pings:
    """The checks of all channels of an API, in buckets of `BUCKET_S`. Belongs to one event loop.

    `clock`: measures a client's time to answer. It stands still while the service does not run.
    """

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self._buckets: dict[int, list[Check]] = {}

    def __len__(self) -> int:
        """Buckets that are to come."""
        return len(self._buckets)

    def call_at(self, when_s: float, callback: Callable[[], None]) -> Check:
        """Call back at that time of the event loop's clock, or up to `BUCKET_S` later, never earlier."""
        number = math.ceil(when_s / BUCKET_S)
        checks = self._buckets.get(number)
        if checks is None:
            checks = self._buckets[number] = []
            asyncio.get_running_loop().call_at(number * BUCKET_S, self._fire, number)
        check = Check(callback)
        checks.append(check)
        return check

    def _fire(self, number: int) -> None:
        for check in self._buckets.pop(number):
            callback, check.callback = check.callback, None
            if callback is not None:
                try:
                    callback()
                except Exception:
                    # A fault of ours on one channel must not keep the others from their pings.
                    log.exception("a fault of the service, in the ping of a channel")
