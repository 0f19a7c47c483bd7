"""A source that blocks, read from the event loop: its calls run in threads."""

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

READS = "rallypoint-source"
"""The threads of reads, and of what a read depends on: where a partition begins and ends."""
READS_AT_ONCE = 8

COUNTS = "rallypoint-source-counts"
"""The threads of the source's partition counts: a kind of its own, as the group waits for the leader's."""
COUNTS_AT_ONCE = 4

END_OFFSETS = "rallypoint-ends"
"""The threads that ask for end offsets to report them: a kind of its own, so that one that hangs delays no read."""
END_OFFSETS_AT_ONCE = 4


class ThreadedSource(Generic[R]):
    """A blocking source as a `Source`; made by `threaded`. A read that is cancelled ends when its thread has, so that
    there are never two of one partition at once. `end_offset`, when cancelled, goes on in its thread.

    Args:
        source: What blocks.
        threads: Has the kinds of `source_limits`.
    """

    def __init__(self, source: BlockingSource[R], threads: DaemonThreads) -> None:
        self._source = source
        self._threads = threads

    async def read(self, topic: str, partition: int, offset: int, record_count_max: int) -> Fetched[R]:
        """As `Source.read`."""
        return await self._threads.call(
            READS, lambda: self._source.read(topic, partition, offset, record_count_max), to_the_end=True
        )

    async def earliest(self, topic: str, partition: int) -> int:
        """As `Source.earliest`."""
        return await self._threads.call(READS, lambda: self._source.earliest(topic, partition), to_the_end=True)

    async def latest(self, topic: str, partition: int) -> int:
        """As `Source.latest`."""
        return await self._threads.call(READS, lambda: self._source.latest(topic, partition), to_the_end=True)

    async def end_offset(self, topic: str, partition: int) -> int:
        """As `EndOffsetSource.end_offset`."""
        return await self._threads.call(END_OFFSETS, lambda: self._source.latest(topic, partition))

    async def close(self) -> None:
        """As `ClosedSource.close`, once no other call of the source runs; nothing if it has no such method.
        Cancelled before that it closes nothing: no source may be closed under a call.
        """
        if isinstance(self._source, BlockingClosedSource):
            await self._threads.wait_idle(READS, COUNTS, END_OFFSETS)
            await self._threads.call(READS, self._source.close)


class ThreadedCountedSource(ThreadedSource[R]):
    """The same for a source that knows its topics."""

    def __init__(self, source: BlockingSource[R], counts: BlockingCounts, threads: DaemonThreads) -> None:
        super().__init__(source, threads)
        self._counts = counts

    async def partition_counts(self, topics: frozenset[str] | None) -> Mapping[str, int]:
        """As `Counts` says."""
        return await self._threads.call(COUNTS, lambda: self._counts(topics))


def threaded(source: BlockingSource[R], threads_max: int = READS_AT_ONCE) -> Source[R]:
    """Make a blocking source, such as one of files, usable for `Consumer`.

    It belongs to one event loop; make another for the next.

    Args:
        source: What blocks.
        threads_max: How many of its reads run at once. Up to four further threads ask for the end offsets that are
            reported, and up to four for partition counts.
    """
    return threaded_in(source, DaemonThreads(source_limits(threads_max)))


def threaded_in(source: BlockingSource[R] | Source[R], threads: DaemonThreads) -> Source[R]:
    """As `threaded`, in a pool of the caller's with `source_limits`. A `Source` for asyncio is returned as it is."""
    if is_for_asyncio(source):
        return source
    blocking = cast("BlockingSource[R]", source)
    if isinstance(blocking, BlockingCountedSource):
        return ThreadedCountedSource(blocking, blocking.partition_counts, threads)
    return ThreadedSource(blocking, threads)


def source_limits(reads_max: int = READS_AT_ONCE) -> dict[str, int]:
    """The kinds of calls that a `ThreadedSource` makes, for the pool that runs them."""
    return {READS: reads_max, COUNTS: COUNTS_AT_ONCE, END_OFFSETS: END_OFFSETS_AT_ONCE}


def is_for_asyncio(source: BlockingSource[R] | Source[R]) -> TypeGuard[Source[R]]:
    """Whether its methods are coroutine functions. Raises TypeError for what is no source."""
    if not callable(getattr(source, "read", None)):
        raise TypeError(f"source: {type(source).__name__} has no method `read`")
    return inspect.iscoroutinefunction(source.read)
