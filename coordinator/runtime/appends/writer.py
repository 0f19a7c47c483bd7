"""One writer for each keyspace. It joins the batches of many executors into one append.

One append is under way at a time, so no newer append of the keyspace can overtake one that is in doubt.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from rallypoint.coordinator.runtime.event_loop.faults import begin, each
from rallypoint.coordinator.storage.contract import (
    AppendDoubtful,
    AppendFailed,
    BatchTooLarge,
    Keyspace,
    StorageError,
    StorageUnavailable,
    Write,
    size_of,
)

logger = logging.getLogger(__name__)

DEFINITE = (AppendFailed, BatchTooLarge, StorageUnavailable)
"""Errors of an append after which it is certain that nothing was stored, and that the keyspace is still ours."""

SETTLED_AT_ONCE_MAX = 100
"""Batches that are settled before others have their turn: each is a group that goes on."""


class Batch(Protocol):
    """Writes that go out together or not at all."""

    @property
    def writes(self) -> Sequence[Write]:
        """In the order in which they were made."""

    @property
    def size_bytes(self) -> int:
        """Of all keys and values."""

    def settle(self, error: StorageError | None) -> None:
        """Called once, when the batch is durable, or with one of the `DEFINITE` errors.

        It is not called if the keyspace is lost: then nobody knows, and the keyspace's owner drops all that rests on
        it.
        """

    def give_up(self) -> None:
        """A fault, which is logged, was met in `settle`: what rests on the batch is in disorder."""


class _Awaited:
    """A batch that somebody waits for."""

    def __init__(self, writes: Sequence[Write]) -> None:
        self.writes = writes
        self.size_bytes = size_of(writes)
        self.fate: asyncio.Future[StorageError | None] = asyncio.get_running_loop().create_future()

    def settle(self, error: StorageError | None) -> None:
        """Let it be known, unless nobody waits any more."""
        if not self.fate.done():
            self.fate.set_result(error)

    def give_up(self) -> None:
        """Does nothing."""
        self.fate.cancel()


class Writer:
    """The writer of an acquired keyspace."""

    def __init__(self, keyspace: Keyspace, on_lost: Callable[[StorageError], None], now_ms: Callable[[], int]) -> None:
        """`on_lost` is called at most once, when the keyspace cannot be written any more under this epoch."""
        self.limits = keyspace.limits
        self.append_since_ms: int | None = None
        """When the append that is under way began; None where none is."""
        self._now_ms = now_ms
        self._keyspace = keyspace
        self._on_lost = on_lost
        self._waiting: deque[Batch] = deque()
        self._task: asyncio.Task[None] | None = None
        self._is_over = False

    def submit(self, batch: Batch) -> None:
        """Store the batch, behind those that were submitted before it. After the end it is dropped unsettled."""
        if self._is_over:
            return
        self._waiting.append(batch)
        if self._task is None:
            self._task = begin(self._run(), self._lose_by_fault)

    async def store(self, chunks: Iterable[Sequence[Write]]) -> StorageError | None:
        """Store one batch after the other; others may come between. Ends at the first error, one of the `DEFINITE`.

        If the keyspace is lost it never returns: whoever owns the keyspace cancels those who wait for it.
        """
        for writes in chunks:
            awaited = _Awaited(writes)
            self.submit(awaited)
            error = await awaited.fate
            if error is not None:
                return error
        return None

    async def finish(self) -> None:
        """Return when nothing waits any more."""
        while self._task is not None:
            await asyncio.wait((self._task,))

    def abandon(self) -> None:
        """Drop what waits. The append under way goes on, and nobody hears of its end."""
        self._is_over = True
        self._waiting.clear()

    async def _run(self) -> None:
        try:
            while self._waiting:
                await self._append(self._join())
        finally:
            self._task = None

    def _join(self) -> list[Batch]:
        """The next batch, and those behind it as far as one append takes them."""
        joined = [self._waiting.popleft()]
        count, size_bytes = len(joined[0].writes), joined[0].size_bytes
        while self._waiting:
            follower = self._waiting[0]
            count += len(follower.writes)
            size_bytes += follower.size_bytes
            if count > self.limits.writes_max or size_bytes > self.limits.bytes_max:
                break
            joined.append(self._waiting.popleft())
        return joined

    async def _append(self, joined: list[Batch]) -> None:
        error: StorageError | None = None
        self.append_since_ms = self._now_ms()
        try:
            await self._keyspace.append([write for batch in joined for write in batch.writes])
        except DEFINITE as definite:
            error = definite
        except StorageError as lost:
            self._lose(lost)
            return
        except Exception as fault:
            logger.exception("the store failed in a way that it does not know itself")
            self._lose(AppendDoubtful(repr(fault)))
            return
        finally:
            self.append_since_ms = None
        for start in range(0, len(joined), SETTLED_AT_ONCE_MAX):
            if start:
                await asyncio.sleep(0)
            if self._is_over:
                return
            some = joined[start : start + SETTLED_AT_ONCE_MAX]
            each(some, lambda batch: batch.settle(error), lambda batch: batch.give_up())

    def _lose_by_fault(self) -> None:
        self._lose(AppendDoubtful("the writer met a fault of the service"))

    def _lose(self, error: StorageError) -> None:
        if not self._is_over:
            self.abandon()
            self._on_lost(error)
