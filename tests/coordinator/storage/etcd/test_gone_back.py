"""A snapshot of etcd that is restored under nodes that run: they find out, and serve nothing more."""

import asyncio
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from rallypoint.coordinator.storage.contract import Fenced, StorageUnavailable, Write
from rallypoint.coordinator.storage.engines import open_store
from rallypoint.coordinator.storage.etcd.client import Put, Txn, TxnAnswer
from rallypoint.coordinator.storage.etcd.store import EtcdStore
from tests.fakes.engines import SMALL_LIMITS
from tests.fakes.etcd_world import LASTING_MS, FakeWorld
from tests.fakes.fake_etcd import FakeEtcd, FakeEtcdClient, TaskDriver
from tests.real.etcd import running_etcd, wait_until_writable

GONE_BACK = "etcd has gone back to an earlier state"


class LateClient(FakeEtcdClient):
    """Answers come some time after etcd has done what was asked, in whatever order."""

    chance = random.Random(7)
    held: asyncio.Event | None = None

    async def txn(self, txn: Txn, timeout_s: float) -> TxnAnswer:
        answer = await super().txn(txn, timeout_s)
        if self.held is not None and answer.succeeded and any(isinstance(one, Put) for one in txn.success):
            await self.held.wait()
        await asyncio.sleep(self.chance.random() / 250)
        return answer


class BusyDriver(TaskDriver):
    """Takes its time to stop, as a thread may."""

    may_stop = asyncio.Event()

    async def stop(self) -> None:
        await self.may_stop.wait()
        await super().stop()


async def opened_late(etcd: FakeEtcd, node_id: str, driver: TaskDriver | None = None) -> tuple[EtcdStore, LateClient]:
    client = LateClient(etcd)
    store = await EtcdStore.open(
        client, driver or TaskDriver(), prefix="world", node_id=node_id, identity=b"", lease_ttl_ms=LASTING_MS,
        clock_ms=etcd.clock_ms, limits=SMALL_LIMITS,
    )  # fmt: skip
    return store, client


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not condition():  # noqa: ASYNC110 - the store tells nobody
            await asyncio.sleep(0.01)


async def test_who_acquires_something_then_finds_out_and_gives_up_all(caplog: pytest.LogCaptureFixture) -> None:
    world = FakeWorld()
    a, b = await world.open("a"), await world.open("b")
    kept, idle = await a.acquire("kept"), await b.acquire("idle")
    snapshot = world.etcd.snapshot()
    await kept.append([Write(b"k", b"v")])
    world.etcd.restore(snapshot)
    for _ in range(2):
        with pytest.raises(Fenced, match=GONE_BACK):
            await a.acquire("other")
    assert not kept.is_current()
    with pytest.raises(Fenced, match=GONE_BACK):
        await kept.append([Write(b"k", b"w")])
    with pytest.raises(StorageUnavailable, match=GONE_BACK):
        await a.put_fact("f", b"", 0)
    assert a.status.trouble == GONE_BACK
    assert caplog.text.count("a snapshot of it was restored while this node ran") == 1
    assert idle.is_current(), "what this node knows is there still"
    await until(lambda: a.lease.remaining_ms == 0)
    assert (await b.acquire("kept")).is_current(), "a has given it up, and lives still"
    await a.close()
    await b.close()
    again = await world.open("a")
    assert (await again.acquire("kept")).is_current(), "a node that begins anew knows nothing better"
    await again.close()


async def test_an_idle_node_finds_out_when_it_looks() -> None:
    world = FakeWorld()
    store = await world.open("a")
    idle = await store.acquire("idle")
    snapshot = world.etcd.snapshot()
    await store.put_fact("f", b"", 0)
    await store._look()
    world.etcd.restore(snapshot)
    assert idle.is_current()
    await store._look()
    assert store.status.trouble == GONE_BACK
    assert not idle.is_current()
    await store.close()


async def test_what_is_acquired_meanwhile_is_lost_as_well() -> None:
    etcd, driver = FakeEtcd(), BusyDriver()
    store, client = await opened_late(etcd, "a", driver)
    kept = await store.acquire("kept")
    snapshot = etcd.snapshot()
    await kept.append([Write(b"k", b"v")])
    client.held = asyncio.Event()
    under_way = asyncio.create_task(store.acquire("late"))
    await until(lambda: any(event.key.endswith(b"late") for event in etcd.history))
    etcd.restore(snapshot)
    await store._look()
    client.held.set()
    assert not (await under_way).is_current(), "though its lease lives still"
    driver.may_stop.set()
    await store.close()


async def test_answers_that_come_late_and_out_of_order_are_not_taken_for_it() -> None:
    etcd = FakeEtcd()
    stores = [(await opened_late(etcd, name))[0] for name in "abc"]
    keyspaces = [await store.acquire(store.node_id) for store in stores]
    for number in range(20):
        await asyncio.gather(
            *(keyspace.append([Write(b"%d" % number, b"v")]) for keyspace in keyspaces),
            *(store.acquire(f"{store.node_id}-{number}-{more}") for store in stores for more in range(3)),
            *(store._look() for store in stores),
        )
    assert [store.status.trouble for store in stores] == [None] * 3
    assert all(keyspace.is_current() for keyspace in keyspaces)
    await asyncio.gather(*(store.close() for store in stores))


@pytest.mark.etcd
@pytest.mark.slow
async def test_a_node_on_a_real_etcd_finds_out_by_itself(tmp_path: Path) -> None:
    """Of a real etcd, whose folder is exchanged for an earlier copy of it."""
    with running_etcd(tmp_path) as etcd:
        (member,) = etcd.members
        data, copy = tmp_path / "m0", tmp_path / "copy"
        store = await open_store(f"{etcd.url}/back?lease_ttl_ms=60000", SMALL_LIMITS, node_id="a", identity=b"here")
        assert isinstance(store, EtcdStore)
        keyspace = await store.acquire("kept")
        await asyncio.to_thread(member.stop)
        shutil.copytree(data, copy)
        member.start()
        await asyncio.to_thread(wait_until_writable, etcd)
        for number in range(10):
            await keyspace.append([Write(b"k", b"%d" % number)])
        await asyncio.to_thread(member.stop)
        shutil.rmtree(data)
        copy.rename(data)
        member.start()
        await asyncio.to_thread(wait_until_writable, etcd)
        await until(lambda: store.status.trouble == GONE_BACK)
        assert not keyspace.is_current()
        await store.close()
        again = await open_store(f"{etcd.url}/back", SMALL_LIMITS, node_id="a", identity=b"here")
        assert [page async for page in (await again.acquire("kept")).scan(b"")] == []
        await again.close()
