"""`memory:` — a store that lives as long as the process: for trials and tests, as the plainest reading of the contract.
Nothing is written anywhere.
"""

import time
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field

from rallypoint.coordinator.storage.contract import (
    AppendMetrics,
    BatchLimits,
    Fenced,
    StorageUnavailable,
    StoreStatus,
    Write,
)

MEMORY_LIMITS = BatchLimits()
"""As SQLite's, so that a try-out behaves like the real thing."""

PAGE_ROWS = 500


@dataclass(slots=True)
class _Contents:
    epoch: int = 0
    values: dict[bytes, bytes] = field(default_factory=dict)


class MemoryContents:
    """What a memory store holds. A second store over the same contents is a restart of the first."""

    def __init__(self) -> None:
        self._keyspaces: dict[str, _Contents] = {}

    def keyspace(self, name: str) -> _Contents:
        """Of the keyspace; empty where nobody ever acquired it."""
        return self._keyspaces.setdefault(name, _Contents())


class MemoryStore:
    """A store in memory. An acquire always succeeds and fences whoever had the keyspace."""

    def __init__(
        self,
        contents: MemoryContents | None = None,
        *,
        limits: BatchLimits = MEMORY_LIMITS,
        on_append: Callable[[AppendMetrics], None] | None = None,
    ) -> None:
        self.contents = MemoryContents() if contents is None else contents
        self.limits = limits
        self.on_append = on_append
        self.is_closed = False

    async def acquire(self, keyspace: str) -> "MemoryKeyspace":
        """Become the owner; whoever had the keyspace is fenced."""
        if self.is_closed:
            raise StorageUnavailable("the store is closed")
        contents = self.contents.keyspace(keyspace)
        contents.epoch += 1
        return MemoryKeyspace(self, keyspace, contents)

    @property
    def status(self) -> StoreStatus:
        """Memory is always there."""
        return StoreStatus()

    async def close(self) -> None:
        """Refuse everything from now on."""
        self.is_closed = True


class MemoryKeyspace:
    """An acquired keyspace of a memory store."""

    def __init__(self, store: MemoryStore, name: str, contents: _Contents) -> None:
        self._store = store
        self._name = name
        self._contents = contents
        self._epoch = contents.epoch
        self._is_released = False

    @property
    def epoch(self) -> int:
        """Grows with each acquisition of the keyspace."""
        return self._epoch

    @property
    def limits(self) -> BatchLimits:
        """Those of the store."""
        return self._store.limits

    def is_current(self) -> bool:
        """Whether nobody acquired it since."""
        return not self._store.is_closed and not self._is_released and self._contents.epoch == self._epoch

    async def scan(self, prefix: bytes) -> AsyncIterator[Sequence[tuple[bytes, bytes]]]:
        """Pages of (key, value) in the order of keys."""
        self._check_owned()
        values = self._contents.values
        keys = sorted(key for key in values if key.startswith(prefix))
        for start in range(0, len(keys), PAGE_ROWS):
            self._check_owned()
            yield [(key, values[key]) for key in keys[start : start + PAGE_ROWS] if key in values]

    async def append(self, writes: Sequence[Write]) -> None:
        """Store all the writes or none."""
        began = time.perf_counter()
        self.limits.check(writes)
        self._check_owned()
        for key, value in writes:
            if value is None:
                self._contents.values.pop(key, None)
            else:
                self._contents.values[key] = value
        if self._store.on_append is not None:
            self._store.on_append(AppendMetrics(1, len(writes), time.perf_counter() - began))

    async def release(self) -> None:
        """Give the keyspace up."""
        self._is_released = True

    def _check_owned(self) -> None:
        if self._store.is_closed:
            raise StorageUnavailable("the store is closed")
        if not self.is_current():
            raise Fenced(f"another owner has {self._name}")
