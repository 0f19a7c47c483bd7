"""A pool of idle sources in a task's process, for the next task: connecting costs more than reading a small range.

Spark reuses the process of a Python task, and ends it after a minute without work.
"""

import gc
import math
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from rallypoint.spark_bridge.offsets import Range
from rallypoint.spark_bridge.source_options import SourceOptions
from rallypoint.spark_bridge.sources.contract import Source
from rallypoint.spark_bridge.sources.registry import find_source

if TYPE_CHECKING:
    from pyarrow import RecordBatch

IDLE_S = 60.0
"""After this idle time a source is closed: the process may continue with tasks of other queries."""


class IdleSource(NamedTuple):
    """An idle source, and since when by the monotonic clock."""

    options: SourceOptions
    source: Source
    since_s: float


class SourcePool:
    """At most one idle source for each set of options. Thread-safe.

    `make`: makes a source; its errors pass through.
    `idle_s`: how long an idle source stays open.
    """

    def __init__(self, make: Callable[[SourceOptions], Source], idle_s: float = IDLE_S) -> None:
        self._make = make
        self._idle_s = idle_s
        self._lock = threading.Lock()
        self._idle: list[IdleSource] = []
        self._timer: threading.Timer | None = None

    @contextmanager
    def borrow(self, options: SourceOptions) -> Iterator[Source]:
        """Borrow a source for one task, exclusively.

        It goes back to the pool, unless the task failed or stopped reading in the middle.
        """
        source = self._take(options)
        try:
            yield source
        except BaseException:
            source.close()
            raise
        self._give_back(options, source)

    def close(self) -> None:
        """Close all idle sources."""
        self._close_those_until(math.inf)

    def _take(self, options: SourceOptions) -> Source:
        with self._lock:
            for index, idle in enumerate(self._idle):
                if idle.options == options:
                    del self._idle[index]
                    return idle.source
        return self._make(options)

    def _give_back(self, options: SourceOptions, source: Source) -> None:
        with self._lock:
            if all(idle.options != options for idle in self._idle):
                self._idle.append(IdleSource(options, source, time.monotonic()))
                self._set_timer()
                return
        source.close()

    def _close_old(self) -> None:
        self._close_those_until(time.monotonic() - self._idle_s)

    def _close_those_until(self, since_s: float) -> None:
        with self._lock:
            old = [idle for idle in self._idle if idle.since_s <= since_s]
            self._idle = self._idle[len(old) :]
            self._set_timer()
        for idle in old:
            idle.source.close()

    def _set_timer(self) -> None:
        """Set the timer for the source that has been idle longest, which is the first."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None
        if self._idle:
            self._timer = threading.Timer(self._idle[0].since_s + self._idle_s - time.monotonic(), self._close_old)
            self._timer.daemon = True
            self._timer.start()


POOL = SourcePool(lambda options: find_source(options.name)(options))
"""The pool of this process."""

_frozen = False


def read_task(options: SourceOptions, ranges: Iterable[Sequence[Any]]) -> Iterator["RecordBatch"]:
    """Read the records of one task. `ranges`: its ranges, which pickling may have turned into plain sequences."""
    with POOL.borrow(options) as source:
        yield from source.read_ranges([Range(*one) for one in ranges])
    freeze_loaded_objects()


def freeze_loaded_objects() -> None:
    """Exclude all objects that exist after the first task from garbage collection: modules, which stay.

    Spark collects after every task and would scan them each time, which takes longer than reading a small batch. The
    first task imports more: pyarrow imports pandas with its first array. Only the first call of a process does this,
    after a collection.
    """
    global _frozen  # noqa: PLW0603 - once in a process, as the collector is one
    if not _frozen:
        _frozen = True
        gc.collect()
        gc.freeze()
