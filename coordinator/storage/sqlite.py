"""`sqlite:///PATH` — the store of a single node: one file, one process, one writing thread.

Everything that touches the file is a job for that thread, in the order in which it was asked for. Appends that wait
are joined, over all keyspaces, into one transaction and one sync: that is where the throughput comes from, and a lone
append still goes at once.
"""

import asyncio
import logging
import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, NamedTuple, TypeVar

from rallypoint.coordinator.storage.contract import (
    AppendDoubtful,
    AppendMetrics,
    BatchLimits,
    Fenced,
    StorageUnavailable,
    StoreStatus,
    Write,
)
from rallypoint.coordinator.storage.sqlite_file import Batch, Connect, SqliteFile, connect

SQLITE_LIMITS = BatchLimits()
"""SQLite has no limit of its own that matters; this one keeps a single transaction from holding up all others."""

JOINED_WRITES_MAX = 20_000
"""Writes after which no further append is joined to a transaction: some tens of milliseconds."""

PAGE_ROWS = 500

LOOK_INTERVAL_S = 1.0
"""How often the thread looks at the files, and after a failure tries to write, asked or not."""

CLOSE_TIMEOUT_S = 5.0
"""How long a close waits for the disk. Copying a log of the usual 4 MiB into the file takes a fraction of a second."""

Result = TypeVar("Result")

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class _Append:
    batch: Batch
    future: asyncio.Future[None]


@dataclass(slots=True)
class _Job:
    run: Callable[[], Any]
    future: asyncio.Future[Any]


class _Fate(NamedTuple):
    future: asyncio.Future[Any]
    result: Any
    error: Exception | None = None


class SqliteStore:
    """A store in one SQLite file. Belongs to the event loop it was opened in."""

    def __init__(
        self,
        file: SqliteFile,
        *,
        limits: BatchLimits = SQLITE_LIMITS,
        on_append: Callable[[AppendMetrics], None] | None = None,
        look_interval_s: float = LOOK_INTERVAL_S,
        close_timeout_s: float = CLOSE_TIMEOUT_S,
    ) -> None:
        """Takes the file over. `on_append` is called after every durable write, on the loop."""
        self.limits = limits
        self._look_interval_s = look_interval_s
        self._close_timeout_s = close_timeout_s
        self._file = file
        self._on_append = on_append
        self._loop = asyncio.get_running_loop()
        self._jobs: SimpleQueue[_Append | _Job | None] = SimpleQueue()
        self._epochs: dict[str, int] = {}
        self._closing: asyncio.Task[None] | None = None
        self._closed: asyncio.Future[None] = self._loop.create_future()
        self._thread = threading.Thread(target=self._run, name=f"sqlite {file.path.name}", daemon=True)
        self._thread.start()

    @classmethod
    async def open(
        cls,
        path: Path,
        *,
        limits: BatchLimits = SQLITE_LIMITS,
        on_append: Callable[[AppendMetrics], None] | None = None,
        connect: Connect = connect,
        look_interval_s: float = LOOK_INTERVAL_S,
        close_timeout_s: float = CLOSE_TIMEOUT_S,
    ) -> "SqliteStore":
        """Open or create the file. Raises KeyspaceHeld, StorageUnavailable or StoredDataInvalid, each naming it."""
        return cls(
            await asyncio.to_thread(SqliteFile, path, connect),
            limits=limits,
            on_append=on_append,
            look_interval_s=look_interval_s,
            close_timeout_s=close_timeout_s,
        )

    @property
    def status(self) -> StoreStatus:
        """How the file stands, at most a second ago."""
        return StoreStatus(self._file.trouble, self._file.log_bytes)

    async def acquire(self, keyspace: str) -> "SqliteKeyspace":
        """Become the owner; whoever had the keyspace is fenced. Other processes are kept out by the file's lock."""
        epoch = await self.ask(lambda: self._file.acquire(keyspace))
        self._epochs[keyspace] = max(epoch, self._epochs.get(keyspace, 0))
        return SqliteKeyspace(self, keyspace, epoch)

    def epoch_of(self, keyspace: str) -> int:
        """The last epoch under which this process acquired the keyspace; 0 where it never did."""
        return self._epochs.get(keyspace, 0)

    async def durability(self) -> dict[str, int | str]:
        """What the writing connection itself says of how it writes."""
        return await self.ask(self._file.durability)

    async def close(self) -> None:
        """Finish what was asked for, copy the log into the file, close it. Raises nothing.

        If the disk hangs for longer than the deadline, the thread is left behind, and ends with the process.
        """
        if self._closing is None:
            self._closing = asyncio.create_task(self._close())
        await asyncio.shield(self._closing)

    async def _close(self) -> None:
        self._jobs.put(None)
        try:
            async with asyncio.timeout(self._close_timeout_s):
                await self._closed
        except TimeoutError:
            logger.error(
                "%s could not be closed within %g s, and is left: what was acknowledged is in it or in its log",
                self._file.path,
                self._close_timeout_s,
            )
        else:
            self._thread.join()

    # --- jobs for the thread -----------------------------------------------------------------------------------------

    async def ask(self, run: Callable[[], Result]) -> Result:
        """Run a function of the file on the thread."""
        self._check_open()
        future: asyncio.Future[Result] = self._loop.create_future()
        self._jobs.put(_Job(run, future))
        return await future

    async def append(self, batch: Batch) -> None:
        """Store the batch with whatever else waits."""
        self._check_open()
        self.limits.check(batch.writes)
        future: asyncio.Future[None] = self._loop.create_future()
        self._jobs.put(_Append(batch, future))
        await future

    async def finish(self) -> None:
        """Return when all that was asked for until now is done; at once where the store is closed."""
        if self._closing is None:
            await self.ask(lambda: None)

    async def read_page(
        self, keyspace: str, epoch: int, prefix: bytes, after: bytes | None
    ) -> list[tuple[bytes, bytes]]:
        """The next rows of a scan."""
        return await self.ask(lambda: self._file.read_page(keyspace, epoch, prefix, after, PAGE_ROWS))

    def _check_open(self) -> None:
        if self._closing is not None:
            raise StorageUnavailable(f"{self._file.path} is closed")

    # --- the thread --------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        waiting: deque[_Append | _Job | None] = deque()
        look_at_s = time.monotonic() + self._look_interval_s
        while True:
            if not waiting:
                with suppress(Empty):
                    waiting.append(self._jobs.get(timeout=max(0.0, look_at_s - time.monotonic())))
            while not self._jobs.empty():
                waiting.append(self._jobs.get())
            if time.monotonic() >= look_at_s:
                self._look()
                look_at_s = time.monotonic() + self._look_interval_s
            if not waiting:
                continue
            job = waiting.popleft()
            if job is None:
                break
            if isinstance(job, _Job):
                self._do(job)
            else:
                self._append(_joined(job, waiting))
        try:
            self._file.close()
        except Exception:
            logger.exception("the engine failed in closing %s", self._file.path)
        self._call(self._closed.set_result, None)

    def _look(self) -> None:
        try:
            self._file.look()
        except Exception:
            logger.exception("the engine failed in looking at %s", self._file.path)

    def _do(self, job: _Job) -> None:
        try:
            fate = _Fate(job.future, job.run())
        except Exception as error:
            fate = _Fate(job.future, None, error)
        self._deliver([fate])

    def _append(self, appends: list[_Append]) -> None:
        began = time.perf_counter()
        errors: list[Exception | None] = []
        try:
            errors.extend(self._file.append([append.batch for append in appends]))
        except Exception as error:
            # A fault of the engine, not of the file: nobody knows how far it got.
            logger.exception("the engine failed in an append")
            errors.extend([AppendDoubtful(f"the engine failed: {error!r}")] * len(appends))
        fates = [_Fate(append.future, None, error) for append, error in zip(appends, errors, strict=True)]
        stored = [append.batch for append, error in zip(appends, errors, strict=True) if error is None]
        append_metrics = AppendMetrics(
            len(stored), sum(len(batch.writes) for batch in stored), time.perf_counter() - began
        )
        self._deliver(fates, append_metrics if stored else None)

    def _deliver(self, fates: list[_Fate], append_metrics: AppendMetrics | None = None) -> None:
        self._call(self._receive, fates, append_metrics)

    def _call(self, function: Callable[..., None], *arguments: object) -> None:
        try:
            self._loop.call_soon_threadsafe(function, *arguments)
        except RuntimeError:
            logger.warning("%s: the event loop closed before the store did; nobody is left to be told", self._file.path)

    def _receive(self, fates: list[_Fate], append_metrics: AppendMetrics | None) -> None:
        for future, result, error in fates:
            if future.done():  # whoever asked has gone; what was stored stays stored
                continue
            if error is None:
                future.set_result(result)
            else:
                future.set_exception(error)
        if append_metrics is not None and self._on_append is not None:
            self._on_append(append_metrics)


def _joined(first: _Append, waiting: deque[_Append | _Job | None]) -> list[_Append]:
    """The append, and those that wait directly behind it, as far as one transaction takes them."""
    appends = [first]
    count = len(first.batch.writes)
    while waiting and isinstance(follower := waiting[0], _Append):
        count += len(follower.batch.writes)
        if count > JOINED_WRITES_MAX:
            break
        appends.append(follower)
        waiting.popleft()
    return appends


class SqliteKeyspace:
    """An acquired keyspace of a SQLite store."""

    def __init__(self, store: SqliteStore, name: str, epoch: int) -> None:
        self._store = store
        self._name = name
        self._epoch = epoch
        self._is_released = False

    @property
    def epoch(self) -> int:
        """Grows with each acquisition of the keyspace."""
        return self._epoch

    @property
    def limits(self) -> BatchLimits:
        """Those of the store."""
        return self._store.limits

    async def scan(self, prefix: bytes) -> AsyncIterator[Sequence[tuple[bytes, bytes]]]:
        """Pages of (key, value) in the order of keys; each page is a job among the others."""
        after: bytes | None = None
        while True:
            self._check_owned()
            page = await self._store.read_page(self._name, self._epoch, prefix, after)
            if page:
                yield page
            if len(page) < PAGE_ROWS:
                return
            after = page[-1][0]

    def is_current(self) -> bool:
        """Whether nobody acquired it since. The file's lock keeps other processes out."""
        return not self._is_released and self._store.epoch_of(self._name) == self._epoch

    async def append(self, writes: Sequence[Write]) -> None:
        """Store all the writes or none; on return they are on disk."""
        self._check_owned()
        await self._store.append(Batch(self._name, self._epoch, writes))

    async def release(self) -> None:
        """Give the keyspace up, after the appends under way."""
        if not self._is_released:
            self._is_released = True
            await self._store.finish()

    def _check_owned(self) -> None:
        if self._is_released:
            raise Fenced(f"{self._name} was released")
