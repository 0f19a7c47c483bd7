"""When the event loop may sleep on for a moment although something may have come.

A loop with little to do is woken for each message: it falls asleep, others use the processor, and what a message needs
of code and data has left the caches when the next one comes. So a heartbeat costs three times as much where one comes
each 0.3 ms as where sixty come at once. A lull of a few milliseconds lets several come, and one wake-up is for all.

Who waits is the price, so a lull is only for turns in which every message came from a session that had long said
nothing and was answered at once: heartbeats of members at rest. After anything else (a request over HTTP, a call that
waits or is one of several, an answer to an earlier one, a turn with many messages or much work) there is none for a
while. What comes in a lull after all waits for its end.
"""

from collections.abc import Callable
from time import monotonic, thread_time

LULL_S = 0.002
"""How long: what comes in it is late by a millisecond in the mean, and by two at most."""
PRESSED_S = 0.010
"""How long there is none after a turn that was not at rest: a call that is being written is answered in less."""
TURN_MAX = 32
"""Messages in a turn at rest; with more, the loop is woken seldom enough."""
WORK_S = 0.000_5
WORK_EACH_S = 0.000_1
"""Processor time between two turns at rest, and for each of the messages; with more, something else is at work."""


class Lull:
    """Says how long to sleep after each turn. `now_s` and `worked_s`: what passes, and what this thread works."""

    def __init__(self, now_s: Callable[[], float] = monotonic, worked_s: Callable[[], float] = thread_time) -> None:
        self._now_s = now_s
        self._worked_s = worked_s
        self._pressed_until_s = 0.0
        self._turned_at_s = 0.0
        self._worked_before_s = 0.0

    def after_turn_s(self, answered_count: int, *, is_at_rest: bool) -> float:
        """Seconds to sleep after a turn that answered so many. 0 where it would gather nothing or keep someone."""
        now_s, worked_s = self._now_s(), self._worked_s()
        work_s = worked_s - self._worked_before_s
        since_s = now_s - self._turned_at_s
        self._worked_before_s = worked_s
        lull_s = 0.0
        if not is_at_rest or answered_count > TURN_MAX or work_s > WORK_S + answered_count * WORK_EACH_S:
            self._pressed_until_s = now_s + PRESSED_S
        elif now_s >= self._pressed_until_s and since_s <= LULL_S:
            lull_s = LULL_S
        self._turned_at_s = now_s + lull_s
        return lull_s
