"""Starts a query on a busy machine: Spark gives its Python processes seconds to connect, and some are late.

A query that failed for that reason is started again. Nothing was read by then, and a query starts at its checkpoint.
The caller handles every other failure.
"""

import logging
import time
from collections.abc import Callable
from typing import Protocol, TypeVar

from rallypoint.spark_bridge.spark_connect import refuse_connect

log = logging.getLogger("rallypoint.spark")

LOOK_SECONDS = 0.1
PAUSE_SECONDS = 2.0
"""The pause between two attempts, for each that failed, so that a busy machine does not get busier."""

LATE = ("failed to connect back",)
"""What Spark says if a Python process did not connect in time."""


class Query(Protocol):
    """The part of a `StreamingQuery` that is used here."""

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
    """Start a query, and start it again if one of Spark's Python processes was late.

    `begin`: loads the data and starts the query.
    `attempts`: how often to try; the result of the last attempt is returned unchecked.
    `timeout_ms`: how long to wait for the query's first progress.

    Returns a query that has made progress, has ended (as `availableNow` queries do, or by an error, which
    `awaitTermination` raises), or has done neither within `timeout_ms`. Raises what `begin` raises.
    """
    for attempt in range(1, attempts):
        try:
            query = begin()
        except Exception as error:
            refuse_connect(error, "start")
            if not is_late(error):
                raise
            problem: object = error
        else:
            problem = _problem_of(query, timeout_ms / 1000, sleep, clock)
            if problem is None:
                return query
        log.warning("one of Spark's Python processes was late; attempt %d of %d: %s", attempt, attempts, problem)
        sleep(PAUSE_SECONDS * attempt)
    return begin()


def is_late(error: object) -> bool:
    """Whether an error means that a Python process did not connect in time."""
    return any(words in str(error) for words in LATE)


def _problem_of(
    query: Query, timeout_seconds: float, sleep: Callable[[float], None], clock: Callable[[], float]
) -> object:
    """Why the query should be started again; None if it should not. Waits for its first progress."""
    deadline = clock() + timeout_seconds
    while query.isActive and query.lastProgress is None and clock() < deadline:
        sleep(LOOK_SECONDS)
    error = None if query.isActive else query.exception()
    return error if error is not None and is_late(error) else None
