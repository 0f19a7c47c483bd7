"""Starting a query on a machine that is busy: Spark gives its Python processes seconds to report, and some come late.

What failed for that reason is begun again; nothing was read by then, and a query begins where its checkpoint is. Every
other failure is the caller's.
"""

import logging
import time
from collections.abc import Callable
from typing import Protocol, TypeVar

log = logging.getLogger("rallypoint.spark")

LOOK_SECONDS = 0.1
PAUSE_SECONDS = 2.0
"""Between two attempts, for each that failed: a busy machine is not made busier."""

LATE = ("failed to connect back",)
"""What Spark says when a Python process did not report in time."""


class Query(Protocol):
    """What is used of a `StreamingQuery`."""

    @property
    def isActive(self) -> bool:  # noqa: N802 - Spark's name
        """Whether it runs."""

    @property
    def lastProgress(self) -> object:  # noqa: N802
        """Its newest progress, None before the first."""

    def exception(self) -> object:
        """Why it ended, None while it runs and after a stop."""


Q = TypeVar("Q", bound=Query)


def start(
    begin: Callable[[], Q],
    *,
    attempts: int = 5,
    timeout_ms: int = 60_000,
    sleep: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> Q:
    """Start a query, again if a Python process of Spark's came too late. `begin` loads the data and starts the query.

    Returns a query that has made progress, or has ended for another reason (as `availableNow` queries do, or by an
    error, which `awaitTermination` raises), or has done neither within `timeout_ms`. Raises what `begin` raises. The
    last of the attempts is not judged.
    """
    for attempt in range(1, attempts):
        try:
            query = begin()
        except Exception as error:
            if not is_late(error):
                raise
            problem: object = error
        else:
            problem = _problem_of(query, timeout_ms / 1000, sleep, clock)
            if problem is None:
                return query
        log.warning("a Python process of Spark's came too late; attempt %d of %d: %s", attempt, attempts, problem)
        sleep(PAUSE_SECONDS * attempt)
    return begin()


def is_late(error: object) -> bool:
    """Whether an error says that a Python process did not report in time."""
    return any(words in str(error) for words in LATE)


def _problem_of(
    query: Query, timeout_seconds: float, sleep: Callable[[float], None], clock: Callable[[], float]
) -> object:
    """Why the query should be begun again; None if it should not, which takes until it makes progress."""
    deadline = clock() + timeout_seconds
    while query.isActive and query.lastProgress is None and clock() < deadline:
        sleep(LOOK_SECONDS)
    error = None if query.isActive else query.exception()
    return error if error is not None and is_late(error) else None
