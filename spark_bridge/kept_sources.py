"""Sources that stay in a task's process when the task is over, for the next one: to connect anew costs more than to
read a small range.

Spark uses the process of a Python task again and again, and ends it when it had nothing to do for a minute.
"""

import gc
import math
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from spark_bridge.offsets import Range
from spark_bridge.options import SourceOptions
from spark_bridge.sources.contract import Source
from spark_bridge.sources.registry import find_source

if TYPE_CHECKING:
    from pyarrow import RecordBatch

IDLE_S = 60.0
"""A source that nobody wants for so long is closed: the process may live on with tasks of other queries."""


class Idle(NamedTuple):
    """A source that waits, and since when by the monotonic clock."""

    options: SourceOptions
    source: Source
    since_s: float


class KeptSources:
    """One idle source for each set of options. For several threads. `make`: a new one, whose errors pass through."""

    def __init__(self, make: Callable[[SourceOptions], Source], idle_s: float = IDLE_S) -> None:
        self._make = make
        self._idle_s = idle_s
        self._lock = threading.Lock()
        self._idle: list[Idle] = []
        self._timer: threading.Timer | None = None

    @contextmanager
    def lent(self, options: SourceOptions) -> Iterator[Source]:
        """A source for one task, which nobody else uses meanwhile. What went wrong with it is not kept: neither a
        failed one, nor one whose reading was given up.
        """
        source = self._take(options)
        try:
            yield source
        except BaseException:
            source.close()
            raise
        self._keep(options, source)

    def close(self) -> None:
        """All that are idle."""
        self._close_those_until(math.inf)

    def _take(self, options: SourceOptions) -> Source:
        with self._lock:
            for place, idle in enumerate(self._idle):
                if idle.options == options:
                    del self._idle[place]
                    return idle.source
        return self._make(options)

    def _keep(self, options: SourceOptions, source: Source) -> None:
        with self._lock:
            if all(idle.options != options for idle in self._idle):
                self._idle.append(Idle(options, source, time.monotonic()))
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
        """For the one that waits longest, which is the first."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None
        if self._idle:
            self._timer = threading.Timer(self._idle[0].since_s + self._idle_s - time.monotonic(), self._close_old)
            self._timer.daemon = True
            self._timer.start()


KEPT = KeptSources(lambda options: find_source(options.name)(options))
"""Those of this process."""

_frozen = False


def read_task(options: SourceOptions, ranges: Iterable[Sequence[Any]]) -> Iterator["RecordBatch"]:
    """The records of one task, whose ranges may have become plain sequences on their way to it."""
    spare_what_was_loaded()
    with KEPT.lent(options) as source:
        yield from source.read_ranges([Range(*one) for one in ranges])


def spare_what_was_loaded() -> None:
    """Let the collector of garbage leave alone what there is when the first task begins: modules, which stay.

    Spark collects after every task, and would look at all of them each time, for longer than a small batch takes to
    read. The first call of a process does it, after a collection.
    """
    global _frozen  # noqa: PLW0603 - once in a process, as the collector is one
    if not _frozen:
        _frozen = True
        gc.collect()
        gc.freeze()
