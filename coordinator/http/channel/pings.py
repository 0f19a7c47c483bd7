"""When the channels' pings are looked at: many by one timer of the event loop.

A channel is looked at once in each interval, whether it was silent or not; what it said meanwhile moves nothing. With
a timer of its own for each, ten thousand wake the loop nearly seven hundred times a second, and each is put into a heap
of ten thousand anew: a fifth as many wake-ups as the same members have heartbeats, and all for nothing.
"""

import asyncio
import logging
import math
from collections.abc import Callable

from rallypoint.coordinator.runtime.event_loop.clock import Clock

ROUND_S = 0.1
"""So late a ping may be; so many seconds are between two wake-ups at the least."""


log = logging.getLogger("rallypoint.http")


class Look:
    """A look that is due; `cancel` as a timer of the event loop has it."""

    __slots__ = ("callback",)

    def __init__(self, callback: Callable[[], None]) -> None:
        self.callback: Callable[[], None] | None = callback

    def cancel(self) -> None:
        """Let it not happen; one that has happened is no error."""
        self.callback = None


class Pings:
    """The looks of all channels of an API, by the round in which they are due. Belongs to one event loop.

    `clock`: what a client's time to answer goes by, for it had none while the service did not run.
    """

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self._rounds: dict[int, list[Look]] = {}

    def __len__(self) -> int:
        """Rounds that are to come."""
        return len(self._rounds)

    def call_at(self, when_s: float, callback: Callable[[], None]) -> Look:
        """Call back then by the event loop's clock, or up to `ROUND_S` later, never earlier."""
        number = math.ceil(when_s / ROUND_S)
        looks = self._rounds.get(number)
        if looks is None:
            looks = self._rounds[number] = []
            asyncio.get_running_loop().call_at(number * ROUND_S, self._look, number)
        look = Look(callback)
        looks.append(look)
        return look

    def _look(self, number: int) -> None:
        for look in self._rounds.pop(number):
            callback, look.callback = look.callback, None
            if callback is not None:
                try:
                    callback()
                except Exception:
                    # A fault of ours on one channel must not keep the others from their pings.
                    log.exception("a fault of the service, in the ping of a channel")
