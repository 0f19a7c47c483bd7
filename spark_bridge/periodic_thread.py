"""Periodic work beside a query, in a thread that survives errors of single runs."""

import logging
import threading
from collections.abc import Callable

log = logging.getLogger("rallypoint.spark")


class PeriodicThread:
    """Calls `work` every `interval_seconds`, and at once when woken, from `start` until `end`.

    `work`: returns whether it has done everything. An error that it raises is logged, once for each type in a row, and
    counts as work left to do.
    `about`: begins each log line.

    If the thread ends before it was asked to, that is logged, and `end` returns False.
    """

    def __init__(self, name: str, work: Callable[[], bool], interval_seconds: float, *, about: str) -> None:
        self._work = work
        self._interval_seconds = interval_seconds
        self._about = about
        self._changed = threading.Condition()
        self._woken = False
        self._ending = False
        self._given_up = False
        self._ended_in_order = False
        self._last_logged: type[Exception] | None = None
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Start the thread, which waits one interval first. Call it once."""
        self._thread.start()

    def wake(self) -> None:
        """Run at once."""
        with self._changed:
            self._woken = True
            self._changed.notify()

    def end(self, timeout_seconds: float, *, final_run: bool) -> bool:
        """End the thread. Returns whether it ended in good order in time.

        `final_run`: run until everything is done. After `timeout_seconds` the current run is finished and no other
        started.
        """
        with self._changed:
            self._ending = True
            self._given_up = self._given_up or not final_run
            self._changed.notify()
        if self._thread.ident is None:
            return True
        if threading.current_thread() is not self._thread:
            self._thread.join(timeout_seconds)
        with self._changed:
            self._given_up = True
            self._changed.notify()
            return self._ended_in_order

    def _run(self) -> None:
        try:
            self._run_until_ended()
        except BaseException:
            log.critical("%s: the thread has ended by itself", self._about, exc_info=True)

    def _run_until_ended(self) -> None:
        has_failed = False
        while self._wait(pause=has_failed):
            is_last = self._ending
            done = self._run_once()
            if is_last and done:
                break
            has_failed = is_last
        self._ended_in_order = True

    def _wait(self, *, pause: bool) -> bool:
        """Wait for the next run; whether there is one. `pause`: wait even if the thread is ending."""
        with self._changed:
            if pause or not self._ending:
                ends = self._ending
                self._changed.wait_for(
                    lambda: self._woken or self._given_up or self._ending is not ends, self._interval_seconds
                )
            self._woken = False
            return not self._given_up

    def _run_once(self) -> bool:
        try:
            done = self._work()
        except Exception as error:  # whatever it is, there is a next run
            if type(error) is not self._last_logged:
                log.exception("%s: a run failed; the next one comes after the interval", self._about)
            self._last_logged = type(error)
            return False
        self._last_logged = None
        return done
