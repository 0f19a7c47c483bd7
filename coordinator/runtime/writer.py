"""One writer for each space: what waits there, of however many lanes, goes out as one append.

One append is under way at a time, so that a doubtful one can never be overtaken by a newer one of the same space.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from coordinator.storage.contract import (
    AppendDoubtful,
    AppendFailed,
    BatchTooLarge,
    Space,
    StorageError,
    StorageUnavailable,
    Write,
    size_of,
)

logger = logging.getLogger(__name__)

DEFINITE = (AppendFailed, BatchTooLarge, StorageUnavailable)
"""Errors of an append after which it is certain that nothing was stored, and that the space is still ours."""


class Batch(Protocol):
    """Writes that go out together or not at all."""

    @property
    def writes(self) -> Sequence[Write]:
        """In the order in which they were made."""

    @property
    def size_bytes(self) -> int:
        """Of all keys and values."""

    def settle(self, error: StorageError | None) -> None:
        """Called once, when the batch is durable, or with one of the `DEFINITE` errors. Must not raise.

        It is not called if the space is lost: then nobody knows, and the space's owner drops all that rests on it.
        """


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


class Writer:
    """The writer of an acquired space."""

    def __init__(self, space: Space, on_lost: Callable[[StorageError], None]) -> None:
        """`on_lost` is called at most once, when the space cannot be written any more under this epoch."""
        self.limits = space.limits
        self._space = space
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
            self._task = asyncio.get_running_loop().create_task(self._run())

    async def store(self, pieces: Iterable[Sequence[Write]]) -> StorageError | None:
        """Store one batch after the other; others may come between. Ends at the first error, one of the `DEFINITE`.

        If the space is lost it never returns: whoever owns the space cancels those who wait for it.
        """
        for writes in pieces:
            awaited = _Awaited(writes)
            self.submit(awaited)
            error = await awaited.fate
            if error is not None:
                return error
        return None

    async def finish(self) -> None:
        """Return when nothing waits any more."""
        while self._task is not None:
            await asyncio.shield(self._task)

    def abandon(self) -> None:
        """Drop what waits; what is under way goes on, and nobody is told."""
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
        try:
            await self._space.append([write for batch in joined for write in batch.writes])
        except DEFINITE as definite:
            error = definite
        except StorageError as lost:
            self._lose(lost)
            return
        except Exception as fault:
            logger.exception("the store failed in a way that it does not know itself")
            self._lose(AppendDoubtful(repr(fault)))
            return
        if not self._is_over:
            for batch in joined:
                batch.settle(error)

    def _lose(self, error: StorageError) -> None:
        if not self._is_over:
            self.abandon()
            self._on_lost(error)
