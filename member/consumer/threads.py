"""A source that blocks, read from the event loop."""

import inspect
from collections.abc import Mapping
from typing import Generic, TypeGuard, TypeVar, cast

from rallypoint.member.consumer.contract import (
    BlockingClosedSource,
    BlockingCountedSource,
    BlockingCounts,
    BlockingSource,
    Fetched,
    Source,
)
from rallypoint.member.daemon_threads import DaemonThreads

R = TypeVar("R")

ASKED_AT_ONCE = 4
"""Threads for questions where partitions end: their own, so that one that hangs keeps nothing from being read."""


class ThreadedSource(Generic[R]):
    """A blocking source as a `Source`; made by `threaded`. A call that is cancelled ends when its thread has, so that
    there are never two of one partition at once. `asking`: the threads for questions beside the reading, which when
    cancelled go on in their threads.
    """

    def __init__(self, source: BlockingSource[R], threads: DaemonThreads, asking: DaemonThreads) -> None:
        self._source = source
        self._threads = threads
        self._asking = asking

    async def read(self, topic: str, partition: int, offset: int, record_count_max: int) -> Fetched[R]:
        """As `Source.read`."""
        return await self._threads.call(
            lambda: self._source.read(topic, partition, offset, record_count_max), to_the_end=True
        )

    async def earliest(self, topic: str, partition: int) -> int:
        """As `Source.earliest`."""
        return await self._threads.call(lambda: self._source.earliest(topic, partition), to_the_end=True)

    async def latest(self, topic: str, partition: int) -> int:
        """As `Source.latest`."""
        return await self._threads.call(lambda: self._source.latest(topic, partition), to_the_end=True)

    async def end_offset(self, topic: str, partition: int) -> int:
        """As `EndOffsetSource.end_offset`."""
        return await self._asking.call(lambda: self._source.latest(topic, partition))

    async def close(self) -> None:
        """As `ClosedSource.close`, once no other call of the source runs; nothing if it has no such method.
        Cancelled before that it closes nothing: no source must be closed under a call.
        """
        if isinstance(self._source, BlockingClosedSource):
            await self._asking.wait_idle()
            await self._threads.wait_idle()
            await self._threads.call(self._source.close)


class ThreadedCountedSource(ThreadedSource[R]):
    """The same for a source that knows its topics."""

    def __init__(
        self, source: BlockingSource[R], counts: BlockingCounts, threads: DaemonThreads, asking: DaemonThreads
    ) -> None:
        super().__init__(source, threads, asking)
        self._counts = counts

    async def partition_counts(self, topics: frozenset[str] | None) -> Mapping[str, int]:
        """As `Counts` says."""
        return await self._threads.call(lambda: self._counts(topics))


def threaded(source: BlockingSource[R], threads_max: int = 8) -> Source[R]:
    """A blocking source, such as one of files, for `Consumer`: its calls run in threads, so many at once."""
    asking = DaemonThreads("rallypoint-ends", ASKED_AT_ONCE)
    return threaded_in(source, DaemonThreads("rallypoint-source", threads_max), asking)


def threaded_in(source: BlockingSource[R] | Source[R], threads: DaemonThreads, asking: DaemonThreads) -> Source[R]:
    """As `threaded`, in threads of the caller's. A `Source` for asyncio needs none, and stays what it is."""
    if _is_for_asyncio(source):
        return source
    blocking = cast("BlockingSource[R]", source)
    if isinstance(blocking, BlockingCountedSource):
        return ThreadedCountedSource(blocking, blocking.partition_counts, threads, asking)
    return ThreadedSource(blocking, threads, asking)


def _is_for_asyncio(source: BlockingSource[R] | Source[R]) -> TypeGuard[Source[R]]:
    return inspect.iscoroutinefunction(source.read)
