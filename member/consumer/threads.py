"""Calls that block, awaited from the event loop. The threads are daemons: a handler that never returns must not keep
the process from ending, as the threads of `concurrent.futures` would.
"""

import asyncio
import queue
import threading
from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeVar

from member.consumer.contract import BlockingCountedSource, BlockingCounts, BlockingSource, Fetched

R = TypeVar("R")
T = TypeVar("T")

IDLE_SECONDS = 10.0
"""How long a thread without work waits for some before it ends."""

_Work = tuple[Callable[[], Any], "asyncio.AbstractEventLoop", "asyncio.Future[Any]"]


class DaemonThreads:
    """Runs each call in a thread, `threads_max` at once; further ones wait for their turn. `name`: of the threads."""

    def __init__(self, name: str, threads_max: int) -> None:
        self._name = name
        self._turns = asyncio.Semaphore(threads_max)
        self._work: queue.SimpleQueue[_Work | None] = queue.SimpleQueue()
        self._idle = 0
        self._closed = False
        self._lock = threading.Lock()

    async def call(self, function: Callable[[], T]) -> T:
        """Its result. Cancelled, the waiting ends; the call itself goes on, and what comes of it is nobody's."""
        async with self._turns:
            loop = asyncio.get_running_loop()
            answer: asyncio.Future[T] = loop.create_future()
            with self._lock:
                begins = self._idle == 0
                self._idle -= not begins
            self._work.put((function, loop, answer))
            if begins:
                threading.Thread(target=self._serve, name=self._name, daemon=True).start()
            return await answer

    def close(self) -> None:
        """Let the threads end, idle ones at once, the others when their call returns. No call may follow."""
        with self._lock:
            self._closed = True
            for _ in range(self._idle):
                self._work.put(None)
            self._idle = 0

    def _serve(self) -> None:
        while True:
            try:
                work = self._work.get(timeout=IDLE_SECONDS)
            except queue.Empty:
                with self._lock:
                    if self._idle > 0:  # else the next call counts on this thread
                        self._idle -= 1
                        return
                continue
            if work is None:
                return
            _do(*work)
            with self._lock:
                if self._closed:
                    return
                self._idle += 1


def _do(function: Callable[[], Any], loop: asyncio.AbstractEventLoop, answer: "asyncio.Future[Any]") -> None:
    try:
        result, error = function(), None
    except BaseException as raised:
        result, error = None, raised
    try:
        loop.call_soon_threadsafe(_settle, answer, result, error)
    except RuntimeError:
        return  # the loop was closed meanwhile: nobody waits


def _settle(answer: "asyncio.Future[Any]", result: Any, error: BaseException | None) -> None:
    if answer.done():
        return
    if error is None:
        answer.set_result(result)
    elif isinstance(error, Exception) and not isinstance(error, StopIteration):
        answer.set_exception(error)
    else:  # what no future may carry, or what would end the event loop in place of the thread
        failure = RuntimeError(f"{type(error).__name__}: {error}")
        failure.__cause__ = error
        answer.set_exception(failure)


class ThreadedSource(Generic[R]):
    """A blocking source as a `Source`; made by `threaded`."""

    def __init__(self, source: BlockingSource[R], threads: DaemonThreads) -> None:
        self._source = source
        self._threads = threads

    async def read(self, topic: str, partition: int, offset: int, record_count_max: int) -> Fetched[R]:
        """As `Source.read`."""
        return await self._threads.call(lambda: self._source.read(topic, partition, offset, record_count_max))

    async def earliest(self, topic: str, partition: int) -> int:
        """As `Source.earliest`."""
        return await self._threads.call(lambda: self._source.earliest(topic, partition))

    async def latest(self, topic: str, partition: int) -> int:
        """As `Source.latest`."""
        return await self._threads.call(lambda: self._source.latest(topic, partition))


class ThreadedCountedSource(ThreadedSource[R]):
    """The same for a source that knows its topics."""

    def __init__(self, source: BlockingSource[R], counts: BlockingCounts, threads: DaemonThreads) -> None:
        super().__init__(source, threads)
        self._counts = counts

    async def partition_counts(self, topics: frozenset[str] | None) -> Mapping[str, int]:
        """As `Counts` says."""
        return await self._threads.call(lambda: self._counts(topics))


def threaded(source: BlockingSource[R], threads_max: int = 8) -> ThreadedSource[R]:
    """A blocking source, such as one of files, for `Consumer`: its calls run in threads, so many at once."""
    return threaded_in(source, DaemonThreads("rallypoint-source", threads_max))


def threaded_in(source: BlockingSource[R], threads: DaemonThreads) -> ThreadedSource[R]:
    """As `threaded`, in threads of the caller's."""
    if isinstance(source, BlockingCountedSource):
        return ThreadedCountedSource(source, source.partition_counts, threads)
    return ThreadedSource(source, threads)
