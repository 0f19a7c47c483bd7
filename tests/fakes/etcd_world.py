"""Several stores of different nodes over one etcd, in memory or real, for the suite of the shared contract."""

import asyncio
import base64
import uuid
from typing import Protocol

from rallypoint.coordinator.storage.engines import open_store
from rallypoint.coordinator.storage.etcd.client import Delete, Txn
from rallypoint.coordinator.storage.etcd.store import EtcdStore
from tests.fakes.engines import SMALL_LIMITS
from tests.fakes.fake_etcd import FakeEtcd, FakeEtcdClient, TaskDriver
from tests.real.etcd import RealEtcd

LASTING_MS = 60_000
"""A lease that no machine is too busy to renew."""
SHORT_MS = 2_000
"""For a node that is to lose it: the shortest that etcd grants."""


class EtcdWorld(Protocol):
    """One etcd, whose nodes share a prefix."""

    async def open(self, node_id: str, identity: bytes = b"", lease_ttl_ms: int = LASTING_MS) -> EtcdStore:
        """Open the store of a node."""

    def compact(self, revision: int) -> None:
        """Let etcd forget what was before the revision."""

    async def delete(self, key: bytes) -> None:
        """As an operator does by hand."""


async def stop_renewing(store: EtcdStore) -> None:
    """What the death of the node's process looks like to others: its lease is renewed no more."""
    await store.driver.stop()


def renew_again(store: EtcdStore) -> None:
    """The node was only paused: it finds out, and goes on."""
    store.driver = TaskDriver()
    store.driver.start(store.node.run)


class FakeWorld:
    def __init__(self) -> None:
        self.etcd = FakeEtcd()
        self.clients: dict[str, FakeEtcdClient] = {}

    async def open(self, node_id: str, identity: bytes = b"", lease_ttl_ms: int = LASTING_MS) -> EtcdStore:
        client = self.clients[node_id] = FakeEtcdClient(self.etcd)
        return await EtcdStore.open(
            client,
            TaskDriver(),
            prefix="world",
            node_id=node_id,
            identity=identity,
            lease_ttl_ms=lease_ttl_ms,
            clock_ms=self.etcd.clock_ms,
            limits=SMALL_LIMITS,
        )

    def compact(self, revision: int) -> None:
        self.etcd.compact(revision)

    async def delete(self, key: bytes) -> None:
        await FakeEtcdClient(self.etcd).txn(Txn((), (Delete(key),)), 1.0)


class RealWorld:
    def __init__(self, etcd: RealEtcd) -> None:
        self._etcd = etcd
        self._url = f"{etcd.url}/{uuid.uuid4()}"

    async def open(self, node_id: str, identity: bytes = b"", lease_ttl_ms: int = LASTING_MS) -> EtcdStore:
        url = f"{self._url}?lease_ttl_ms={lease_ttl_ms}"
        store = await open_store(url, SMALL_LIMITS, node_id=node_id, identity=identity)
        assert isinstance(store, EtcdStore)
        return store

    def compact(self, revision: int) -> None:
        self._etcd.compact(revision)

    async def delete(self, key: bytes) -> None:
        await asyncio.to_thread(self._etcd.ask, "kv/deleterange", {"key": base64.b64encode(key).decode()})
