"""A store around another that fails, or waits, as a test tells it to. What it lets through is the real engine's."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Sequence
from enum import StrEnum

from rallypoint.coordinator.storage.contract import (
    FORMAT_KEYSPACE,
    REGISTRY_KEYSPACE,
    AppendDoubtful,
    AppendFailed,
    BatchLimits,
    Fenced,
    Keyspace,
    StorageError,
    Store,
    StoreStatus,
    Write,
)


class Fault(StrEnum):
    """What becomes of one append."""

    NOT_STORED = "not stored, and the engine knows it"
    STORED_UNSURE = "stored, but the engine cannot tell"
    NOT_STORED_UNSURE = "not stored, but the engine cannot tell"
    FENCED = "another owner took the keyspace"
    NONE = "stored"


class Gate:
    """Open at first; while it is shut, whoever comes to it waits."""

    def __init__(self) -> None:
        self._open = asyncio.Event()
        self._open.set()
        self.waiting = 0

    def shut(self) -> None:
        self._open.clear()

    def let_go(self) -> None:
        self._open.set()

    def let_one_by(self) -> None:
        """Whoever waits goes on, and the gate is shut behind them."""
        self._open.set()
        self._open.clear()

    async def pass_through(self) -> None:
        self.waiting += 1
        try:
            await self._open.wait()
        finally:
            self.waiting -= 1


class FaultyStore:
    """`faults` and `acquire_errors` are used up from the left, one for each append and each acquire. `appends` keeps,
    for every append that reached the engine, its keyspace and its writes. Each gate stands before the engine, but
    `page_gate`: with `page_rows` a shard is scanned in smaller pages, and the gate stands between them. The format of
    the store is looked at once, before all else; it goes past all of this, and has `format_errors` of its own.
    """

    def __init__(self, store: Store) -> None:
        self.store = store
        self.faults: deque[Fault] = deque()
        self.acquire_errors: deque[StorageError] = deque()
        self.format_errors: deque[StorageError] = deque()
        self.scan_errors: deque[StorageError] = deque()
        self.appends: list[tuple[str, list[Write]]] = []
        self.append_gate = Gate()
        self.acquire_gate = Gate()
        self.scan_gate = Gate()
        self.page_gate = Gate()
        self.page_rows: int | None = None
        self.acquired: list[str] = []
        self.released: list[str] = []

    async def acquire(self, keyspace: str) -> Keyspace:
        if keyspace == FORMAT_KEYSPACE:
            if self.format_errors:
                raise self.format_errors.popleft()
            return await self.store.acquire(keyspace)
        await self.acquire_gate.pass_through()
        if self.acquire_errors:
            raise self.acquire_errors.popleft()
        inner = await self.store.acquire(keyspace)
        self.acquired.append(keyspace)
        return FaultyKeyspace(self, keyspace, inner)

    @property
    def status(self) -> StoreStatus:
        return self.store.status

    async def close(self) -> None:
        await self.store.close()


class FaultyKeyspace:
    def __init__(self, store: FaultyStore, name: str, inner: Keyspace) -> None:
        self._store = store
        self._name = name
        self._inner = inner

    @property
    def epoch(self) -> int:
        return self._inner.epoch

    @property
    def limits(self) -> BatchLimits:
        return self._inner.limits

    async def scan(self, prefix: bytes) -> AsyncIterator[Sequence[tuple[bytes, bytes]]]:
        await self._store.scan_gate.pass_through()
        if self._store.scan_errors:
            raise self._store.scan_errors.popleft()
        async for page in self._inner.scan(prefix):
            rows = len(page) if self._store.page_rows is None else self._store.page_rows
            for start in range(0, len(page), rows):
                if start and self._name != REGISTRY_KEYSPACE:
                    await self._store.page_gate.pass_through()
                yield page[start : start + rows]

    def is_current(self) -> bool:
        return self._inner.is_current()

    async def append(self, writes: Sequence[Write]) -> None:
        fault = self._store.faults.popleft() if self._store.faults else Fault.NONE
        await self._store.append_gate.pass_through()
        if fault is Fault.NOT_STORED:
            raise AppendFailed("planted: not stored")
        if fault is Fault.FENCED:
            raise Fenced("planted: fenced")
        if fault is not Fault.NOT_STORED_UNSURE:
            await self._inner.append(writes)
            self._store.appends.append((self._name, list(writes)))
        if fault is not Fault.NONE:
            raise AppendDoubtful(f"planted: {fault}")

    async def release(self) -> None:
        await self._inner.release()
        self._store.released.append(self._name)
