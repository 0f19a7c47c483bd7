"""Calls to a coordinator that may be unavailable, made in the background so that the caller does not wait repeatedly.

The caller waits for the first call that is not answered, up to the call timeout. After that, calls run in a thread, one
at a time, and the caller continues as if its call had failed. Once a call is answered, the caller waits for its calls
again and repeats its own, so a call must be idempotent. No call overtakes one in flight.
"""

import threading
from collections.abc import Callable
from typing import Any, TypeVar

from rallypoint.member.errors import CoordinatorUnavailable

GRACE_SECONDS = 0.1
"""How long the caller waits for a background call: enough for one that is refused or answered at once."""

T = TypeVar("T")


class BackgroundCalls:
    """For one calling thread. `blocking`: wait for every call, for callers that have nothing else to do."""

    def __init__(self, *, grace_seconds: float = GRACE_SECONDS) -> None:
        self.blocking = False
        self._grace_seconds = grace_seconds
        self._unavailable: CoordinatorUnavailable | None = None
        """The error of the last call, if it was not answered."""
        self._in_flight: _BackgroundCall | None = None

    def ask(self, request: Callable[[], T]) -> T:
        """What `request` returns or raises. CoordinatorUnavailable, too, while a call runs in the background."""
        if self._in_flight is None and self._unavailable is not None and not self.blocking:
            self._in_flight = _BackgroundCall(request)
        if self._in_flight is not None and self._in_flight.done.wait(None if self.blocking else self._grace_seconds):
            self._unavailable, self._in_flight = self._in_flight.unavailable, None
        if self._unavailable is not None and not self.blocking:
            raise self._unavailable.with_traceback(None)
        self._unavailable = None
        try:
            return request()
        except CoordinatorUnavailable as error:
            self._unavailable = error
            raise


class _BackgroundCall:
    """One call in a thread of its own. `unavailable` is set once it is done, if no coordinator answered."""

    def __init__(self, request: Callable[[], Any]) -> None:
        self.done = threading.Event()
        self.unavailable: CoordinatorUnavailable | None = None
        self._request = request
        threading.Thread(target=self._run, name="rallypoint-call", daemon=True).start()

    def _run(self) -> None:
        try:
            self._request()
        except CoordinatorUnavailable as error:
            self.unavailable = error
        except Exception:
            # A coordinator answered: the caller repeats its call, and gets this error.
            self.unavailable = None
        finally:
            self.done.set()
