"""A snapshot of etcd that is restored under nodes that run: they find out, and serve nothing more."""

import asyncio
import shutil
from pathlib import Path

import pytest

from rallypoint.coordinator.storage.contract import Fenced, StorageUnavailable, Write
from rallypoint.coordinator.storage.engines import open_store
from rallypoint.coordinator.storage.etcd.store import EtcdStore
from tests.fakes.engines import SMALL_LIMITS
from tests.fakes.etcd_world import FakeWorld
from tests.real.etcd import running_etcd, wait_until_writable

GONE_BACK = "etcd has gone back to an earlier state"


async def test_who_acquires_something_then_finds_out_and_loses_all(caplog: pytest.LogCaptureFixture) -> None:
    world = FakeWorld()
    a, b = await world.open("a"), await world.open("b")
    kept, idle = await a.acquire("kept"), await b.acquire("idle")
    snapshot = world.etcd.snapshot()
    await kept.append([Write(b"k", b"v")])
    world.etcd.restore(snapshot)
    with pytest.raises(StorageUnavailable, match=GONE_BACK):
        await a.acquire("other")
    assert not kept.is_current()
    with pytest.raises(Fenced):
        await kept.append([Write(b"k", b"w")])
    with pytest.raises(StorageUnavailable, match=GONE_BACK):
        await a.put_fact("f", b"", 0)
    assert a.status.trouble == GONE_BACK
    assert caplog.text.count("a snapshot of it was restored while this node ran") == 1
    assert idle.is_current(), "what this node knows is there still"
    await a.close()
    again = await world.open("a")
    assert (await again.acquire("kept")).is_current(), "a node that begins anew knows nothing better"
    await again.close()
    await b.close()


async def test_who_writes_in_turn_with_others_does_not_take_late_answers_for_it() -> None:
    world = FakeWorld()
    stores = [await world.open(name) for name in "abc"]
    keyspaces = [await store.acquire(store.node_id) for store in stores]
    for number in range(20):
        await asyncio.gather(*(keyspace.append([Write(b"%d" % number, b"v")]) for keyspace in keyspaces))
        await asyncio.gather(*(store.acquire(f"{store.node_id}-{number}") for store in stores))
    assert [store.status.trouble for store in stores] == [None] * 3
    assert all(keyspace.is_current() for keyspace in keyspaces)
    await asyncio.gather(*(store.close() for store in stores))


@pytest.mark.etcd
@pytest.mark.slow
async def test_an_idle_node_finds_out_by_itself(tmp_path: Path) -> None:
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
        async with asyncio.timeout(60):
            while store.status.trouble != GONE_BACK:  # noqa: ASYNC110 - the store tells nobody
                await asyncio.sleep(0.05)
        assert not keyspace.is_current()
        await store.close()
        again = await open_store(f"{etcd.url}/back", SMALL_LIMITS, node_id="a", identity=b"here")
        assert [page async for page in (await again.acquire("kept")).scan(b"")] == []
        await again.close()
