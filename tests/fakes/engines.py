"""The engines under the one storage suite, each able to be closed and opened again over what it stored."""

import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from rallypoint.coordinator.storage.contract import AppendMetrics, BatchLimits, Store
from rallypoint.coordinator.storage.engines import open_store
from rallypoint.coordinator.storage.etcd.store import EtcdStore
from rallypoint.coordinator.storage.memory import MemoryContents, MemoryStore
from rallypoint.coordinator.storage.sqlite import SqliteStore
from tests.fakes.fake_etcd import FakeEtcd, FakeEtcdClient, TaskDriver

SMALL_LIMITS = BatchLimits(writes_max=127, bytes_max=1_500_000)
"""etcd's, so that the suite splits where the narrowest engine would."""


class Engine(Protocol):
    """`open` again after closing what was open is a restart."""

    async def open(self) -> Store: ...


class MemoryEngine:
    def __init__(self, on_append: Callable[[AppendMetrics], None]) -> None:
        self._contents = MemoryContents()
        self._on_append = on_append

    async def open(self) -> Store:
        return MemoryStore(self._contents, limits=SMALL_LIMITS, on_append=self._on_append)


class SqliteEngine:
    def __init__(self, path: Path, on_append: Callable[[AppendMetrics], None]) -> None:
        self._path = path
        self._on_append = on_append

    async def open(self) -> Store:
        return await SqliteStore.open(self._path, limits=SMALL_LIMITS, on_append=self._on_append)


class FakeEtcdEngine:
    def __init__(self, on_append: Callable[[AppendMetrics], None]) -> None:
        self._etcd = FakeEtcd()
        self._on_append = on_append

    async def open(self) -> Store:
        return await EtcdStore.open(
            FakeEtcdClient(self._etcd),
            TaskDriver(),
            prefix="suite",
            node_id="node/1",
            identity=b"here",
            lease_ttl_ms=6_000,
            clock_ms=self._etcd.clock_ms,
            limits=SMALL_LIMITS,
            on_append=self._on_append,
        )


class RealEtcdEngine:
    def __init__(self, url: str, on_append: Callable[[AppendMetrics], None]) -> None:
        self._url = f"{url}/{uuid.uuid4()}"
        self._on_append = on_append

    async def open(self) -> Store:
        return await open_store(self._url, SMALL_LIMITS, self._on_append, node_id="node/1", identity=b"here")
