"""Copies of whole stores: equal to the last byte, refused where something would be lost, and never taken for whole when
they are cut off.
"""

import sqlite3
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, closing
from pathlib import Path

import pytest

from rallypoint.coordinator.copies import CopyUrlInvalid, OpenedStore, Progress, Stage, StoreCopy
from rallypoint.coordinator.core import records as r
from rallypoint.coordinator.core.cluster.records import Placement, RegisteredNode
from rallypoint.coordinator.runtime.cluster.member_node import PLACEMENT
from rallypoint.coordinator.runtime.loading.store_format import follow_format, format_of
from rallypoint.coordinator.storage.cluster_codec import encode_placement
from rallypoint.coordinator.storage.codec import decode, encode
from rallypoint.coordinator.storage.contract import (
    FORMAT_KEYSPACE,
    REGISTRY_KEYSPACE,
    AppendFailed,
    BatchLimits,
    BatchTooLarge,
    KeyspaceHeld,
    StorageError,
    StorageUnavailable,
    StoredDataInvalid,
    Write,
    shard_keyspace,
)
from rallypoint.coordinator.storage.copying import LAYOUT_KEY, Contents, marked_shards
from rallypoint.coordinator.storage.engines import open_store
from rallypoint.coordinator.storage.etcd.store import EtcdStore
from rallypoint.coordinator.storage.memory import MemoryContents, MemoryStore
from tests.fakes.copied_stores import CutStore, copied, fill, held_by, sample
from tests.fakes.fake_etcd import FakeEtcd, FakeEtcdClient, TaskDriver
from tests.formats.test_stores import FORESEEN, RELEASED, RESTORED, make, rows

FOUND = Contents(groups=3, members=2, offsets=302, topics=1, records=314)
SMALL = BatchLimits(writes_max=40, bytes_max=100_000)


def counts(contents: Contents) -> tuple[int, ...]:
    return contents.groups, contents.members, contents.offsets, contents.topics, contents.records


async def made(path: Path) -> str:
    """A file with the sample."""
    url = f"sqlite:///{path}"
    store = await open_store(url)
    await fill(store, sample())
    await store.close()
    return url


def copy_of(source: str, target: str, *, replace: bool = False) -> StoreCopy:
    return StoreCopy(source, target, replace=replace, release="1.2.3")


def in_memory(contents: MemoryContents, url: str = "sqlite:///to.db") -> OpenedStore:
    return OpenedStore(url, MemoryStore(contents, limits=SMALL), None)


async def sample_in_memory() -> OpenedStore:
    source = in_memory(MemoryContents(), "sqlite:///from.db")
    await fill(source.store, sample())
    return source


async def test_a_file_is_copied_to_a_file_and_its_contents_are_counted(tmp_path: Path) -> None:
    source, target = await made(tmp_path / "a.db"), f"sqlite:///{tmp_path / 'b.db'}"
    progress: list[Progress] = []
    copy = StoreCopy(source, target, replace=False, release="1.2.3", on_progress=progress.append)
    contents = await copy.run()
    assert counts(contents) == counts(FOUND)
    assert contents.stored_bytes == sum(
        len(key) + len(value) for held in sample().values() for key, value in held.items()
    )
    assert not copy.is_unfinished
    assert rows(tmp_path / "b.db") == rows(tmp_path / "a.db") != {}
    last = {each.stage: (each.records, each.total) for each in progress}
    # The format's and the layout's records are none of what is copied in bulk.
    assert last == {Stage.READING: (314, None), Stage.COPYING: (312, 314), Stage.COMPARING: (312, 314)}


@pytest.mark.parametrize("stored", [*RELEASED.values(), FORESEEN, RESTORED])
async def test_every_released_format_is_copied_as_it_is(stored: str, tmp_path: Path) -> None:
    make(tmp_path / "a.db", stored)
    contents = await copy_of(f"sqlite:///{tmp_path / 'a.db'}", f"sqlite:///{tmp_path / 'b.db'}").run()
    assert contents.unreadable == 0
    assert rows(tmp_path / "b.db") == rows(tmp_path / "a.db")


async def test_what_the_target_held_is_gone_even_in_shards_that_the_source_has_not(tmp_path: Path) -> None:
    source = await made(tmp_path / "a.db")
    target = await open_store(f"sqlite:///{tmp_path / 'b.db'}")
    await fill(target, sample(50, shards=7))
    await target.close()
    copy = copy_of(source, f"sqlite:///{tmp_path / 'b.db'}")
    before = rows(tmp_path / "b.db")
    with pytest.raises(StorageUnavailable, match=r"b\.db is not empty; --replace deletes what it holds"):
        await copy.run()
    assert (rows(tmp_path / "b.db"), copy.is_unfinished) == (before, False)
    await copy_of(source, f"sqlite:///{tmp_path / 'b.db'}", replace=True).run()
    assert rows(tmp_path / "b.db") == rows(tmp_path / "a.db")


# --- cut off -----------------------------------------------------------------------------------------------------


async def why_no_service_starts(store: OpenedStore) -> str:
    """What a start says: of this release, and that of one that knows no format, which reads the layout first."""
    said = []
    try:
        await follow_format(store.store, format_of("1.2.3"))
    except StoredDataInvalid as error:
        said.append(str(error))
    registry = await store.store.acquire(REGISTRY_KEYSPACE)
    async for page in registry.scan(LAYOUT_KEY):
        for key, value in page:
            try:
                decode(key, value)
            except StoredDataInvalid as error:
                said.append(str(error))
    return "; ".join(said)


@pytest.mark.parametrize("is_empty", [True, False])
async def test_wherever_a_copy_is_cut_off_the_target_is_as_it_was_or_refused_or_whole(is_empty: bool) -> None:
    source = await sample_in_memory()
    before = {} if is_empty else sample(90, shards=5)
    refused = 0
    for appends in range(60):
        contents = MemoryContents()
        target = in_memory(contents)
        await fill(target.store, before)
        try:
            await copied(source, target._replace(store=CutStore(target.store, appends)), replace=True)
        except AppendFailed:
            pass
        else:
            assert await held_by(target.store) == sample()
            assert refused == appends - 1
            break
        held = await held_by(in_memory(contents).store)
        if appends == 0:
            assert held == before
            continue
        refused += 1
        assert "the store is an unfinished copy" in await why_no_service_starts(target)
        if held.get(REGISTRY_KEYSPACE, {}).get(LAYOUT_KEY) == sample()[REGISTRY_KEYSPACE][LAYOUT_KEY]:
            # A release that knows no format takes what is whole, but for the record of the format.
            assert {**held, FORMAT_KEYSPACE: {}} == {**sample(), FORMAT_KEYSPACE: {}}
        elif appends > 1:
            assert "the stored record b'l' cannot be read" in await why_no_service_starts(target)
        with pytest.raises(StorageUnavailable, match="--replace"):
            await copied(source, target)
        assert await held_by(target.store) == held
        with pytest.raises(StoredDataInvalid, match="unfinished copy"):
            await copied(target, in_memory(MemoryContents()))
        await copied(source, target, replace=True)
        assert await held_by(target.store) == sample()
    else:
        pytest.fail("it never came to an end")
    assert refused > 10


async def test_the_mark_of_the_layout_says_which_shards_may_hold_something() -> None:
    source, target = await sample_in_memory(), in_memory(MemoryContents())
    await fill(target.store, sample(90, shards=8))
    with pytest.raises(AppendFailed):
        await copied(source, target._replace(store=CutStore(target.store, 2)), replace=True)
    layout = (await held_by(target.store))[REGISTRY_KEYSPACE][LAYOUT_KEY]
    assert marked_shards(layout) == 8
    assert marked_shards(sample()[REGISTRY_KEYSPACE][LAYOUT_KEY]) is None


async def test_a_copy_that_differs_is_named_and_stays_unfinished() -> None:
    source, target = await sample_in_memory(), in_memory(MemoryContents())
    key = next(iter(sample()[shard_keyspace(1)]))

    class Forgetful(MemoryStore):
        """It acknowledges a write that it does not keep."""

        async def acquire(self, keyspace: str):  # type: ignore[no-untyped-def]
            found = await super().acquire(keyspace)
            append = found.append

            async def forget(writes: list[Write]) -> None:
                await append([write for write in writes if write.key != key])

            found.append = forget  # type: ignore[assignment,method-assign]
            return found

    lossy = target._replace(store=Forgetful(target.store.contents, limits=SMALL))  # type: ignore[attr-defined]
    copy = copy_of("sqlite:///from.db", "sqlite:///to.db")
    with pytest.raises(StoredDataInvalid, match=r"not equal to its source: in shard-1 the key b'g/many/o/t/0' differs"):
        await copy.write(await copy.read(source), lossy)
    assert copy.is_unfinished
    assert "unfinished copy" in await why_no_service_starts(target)


# --- refusals ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "target", "error", "words"),
    [
        ("memory:", "sqlite:///b.db", CopyUrlInvalid, "keeps nothing"),
        ("sqlite:///a.db", "memory:", CopyUrlInvalid, "keeps nothing"),
        ("a.db", "sqlite:///b.db", CopyUrlInvalid, "no storage URL"),
        ("sqlite:///a.db", "etcd://h/p?password=x", CopyUrlInvalid, "seen by everybody"),
        ("sqlite:///a.db", "sqlite:///./x/../a.db", StorageUnavailable, "are the same store"),
        ("etcd://a,b/p", "etcd://b:2379/p?lease_ttl_ms=5000", StorageUnavailable, "are the same store"),
    ],
)
def test_urls_that_cannot_be_copied_are_refused_before_anything_is_opened(
    source: str, target: str, error: type[StorageError], words: str
) -> None:
    with pytest.raises(error, match=words):
        copy_of(source, target)


async def test_one_file_by_two_names_is_the_same_store(tmp_path: Path) -> None:
    source = await made(tmp_path / "a.db")
    (tmp_path / "link.db").symlink_to(tmp_path / "a.db")
    (tmp_path / "hard.db").hardlink_to(tmp_path / "a.db")
    for name in ("link.db", "hard.db"):
        with pytest.raises(StorageUnavailable, match="are the same store"):
            copy_of(source, f"sqlite:///{tmp_path / name}")


async def test_a_file_that_is_not_there_or_is_in_use_is_refused(tmp_path: Path) -> None:
    target = f"sqlite:///{tmp_path / 'b.db'}"
    with pytest.raises(StorageUnavailable, match="there is no store"):
        await copy_of(f"sqlite:///{tmp_path / 'none.db'}", target).run()
    with pytest.raises(StorageUnavailable, match="File name too long"):
        await copy_of(f"sqlite:///{tmp_path / ('long' * 64) / 'a.db'}", target).run()
    source = await made(tmp_path / "a.db")
    served = await open_store(source)
    for one, other in ((source, target), (target, source)):
        with pytest.raises(StorageError, match=r"a\.db is in use by process \d+.*stop it first|there is no store"):
            await copy_of(one, other).run()
    await served.close()
    assert not (tmp_path / "b.db").exists()
    await copy_of(source, target).run()
    served = await open_store(target)
    with pytest.raises(KeyspaceHeld, match=r"b\.db is in use by process \d+.*stop it first"):
        await copy_of(source, target, replace=True).run()
    await served.close()


async def test_an_empty_source_is_refused(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'a.db'}"
    await (await open_store(url)).close()
    with pytest.raises(StorageUnavailable, match="no service has ever run on it"):
        await copy_of(url, f"sqlite:///{tmp_path / 'b.db'}").run()
    assert not (tmp_path / "b.db").exists()


@pytest.mark.parametrize("is_source", [True, False])
async def test_another_major_format_is_refused_on_either_side(is_source: bool) -> None:
    newer, other = in_memory(MemoryContents()), in_memory(MemoryContents())
    await fill(newer.store, {**sample(), FORMAT_KEYSPACE: {b"f": encode(r.FormatRecord(2, 0, "3.0.0")).value or b""}})
    if not is_source:
        await fill(other.store, sample())
    held = await held_by(newer.store), await held_by(other.store)
    one, two = (newer, other) if is_source else (other, newer)
    with pytest.raises(StoredDataInvalid, match=r"has format 2\.0, written by Rallypoint 3\.0\.0"):
        await copied(one, two, replace=True)
    assert (await held_by(newer.store), await held_by(other.store)) == held


async def test_a_target_whose_shards_are_unknown_is_not_replaced() -> None:
    source, target = await sample_in_memory(), in_memory(MemoryContents())
    await fill(target.store, {REGISTRY_KEYSPACE: {LAYOUT_KEY: b"{}"}})
    with pytest.raises(StoredDataInvalid, match="cannot be replaced, since it is not known what is in it"):
        await copied(source, target, replace=True)


async def test_a_record_that_the_target_cannot_take_is_refused_before_anything_is_written() -> None:
    source = await sample_in_memory()
    contents = MemoryContents()
    target = OpenedStore("sqlite:///to.db", MemoryStore(contents, limits=BatchLimits(40, 150)), None)
    with pytest.raises(BatchTooLarge, match=r"takes records of 150 bytes, and that of b'g/g/m/m-1/4' has \d+"):
        await copied(source, target)
    assert await held_by(in_memory(contents).store) == {}


async def test_records_that_cannot_be_read_are_copied_and_counted() -> None:
    source, target = await sample_in_memory(), in_memory(MemoryContents())
    held = {**sample(), shard_keyspace(2): {b"g/x/h": b"no JSON", b"what": b"is this"}}
    await fill(source.store, held)
    copy = copy_of("sqlite:///from.db", "sqlite:///to.db")
    found = await copy.read(source)
    await copy.write(found, target)
    # A key of no kind may be a newer minor release's.
    assert found.contents.unreadable == 1
    assert (await held_by(target.store))[shard_keyspace(2)] == (await held_by(source.store))[shard_keyspace(2)]


# --- etcd, in memory ---------------------------------------------------------------------------------------------


class Cluster:
    """An etcd, and stores of it that are closed in the end."""

    def __init__(self, running: AsyncExitStack) -> None:
        self.etcd = FakeEtcd()
        self._running = running

    async def open(self, node_id: str, prefix: str = "p") -> OpenedStore:
        store = await EtcdStore.open(
            FakeEtcdClient(self.etcd),
            TaskDriver(),
            prefix=prefix,
            node_id=node_id,
            identity=node_id.encode(),
            lease_ttl_ms=2_000,
            clock_ms=self.etcd.clock_ms,
        )
        self._running.push_async_callback(store.close)
        return OpenedStore(f"etcd://fake/{prefix}", store, store)


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    async with AsyncExitStack() as running:
        yield Cluster(running)


async def test_a_file_goes_to_etcd_and_back(cluster: Cluster, tmp_path: Path) -> None:
    source = await made(tmp_path / "a.db")
    file = await open_store(source)
    there = await cluster.open("copy-1")
    await copied(OpenedStore(source, file, None), there)
    await there.store.close()
    await file.close()

    back = await open_store(f"sqlite:///{tmp_path / 'b.db'}")
    again = await cluster.open("copy-2")
    await copied(again, OpenedStore("sqlite:///b.db", back, None))
    await back.close()
    assert rows(tmp_path / "b.db") == rows(tmp_path / "a.db")
    with closing(sqlite3.connect(tmp_path / "b.db")) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)


async def test_one_prefix_goes_to_another_and_no_fact_with_it(cluster: Cluster) -> None:
    source, target = await cluster.open("copy-1", "p"), await cluster.open("copy-2", "q")
    await fill(source.store, sample())
    assert source.shared is not None
    assert target.shared is not None
    assert await source.shared.put_fact(PLACEMENT, placement_of(3), 0)
    await copied(source, target)
    assert await held_by(target.store) == sample()
    assert (await anext(target.shared.states())).facts == {}


def placement_of(shards: int) -> bytes:
    names = (REGISTRY_KEYSPACE, *map(shard_keyspace, range(shards)))
    return encode_placement(Placement({"n": RegisteredNode()}, dict.fromkeys(names, ("n",))))


async def test_a_placement_of_as_many_shards_stays_and_another_is_refused(cluster: Cluster) -> None:
    source = await sample_in_memory()
    for prefix, shards in (("p", 3), ("q", 5)):
        target = await cluster.open("copy", prefix)
        assert target.shared is not None
        assert await target.shared.put_fact(PLACEMENT, placement_of(shards), 0)
        if shards == 3:
            await copied(source, target)
            assert (await anext(target.shared.states())).facts[PLACEMENT].value == placement_of(3)
        else:
            with pytest.raises(StorageUnavailable, match=r"share 5 shards, and .*from\.db has 3; copy to another pref"):
                await copied(source, target)
            assert await held_by(target.store) == {}


@pytest.mark.parametrize("how", ["announced", "owns a shard", "owns the format"])
async def test_a_live_node_on_either_side_is_named(how: str, cluster: Cluster) -> None:
    node, copying, file = await cluster.open("node-7"), await cluster.open("copy"), await sample_in_memory()
    await fill(copying.store, sample())
    if how == "announced":
        assert node.shared is not None
        await node.shared.announce(b"{}")
    else:
        await node.store.acquire(FORMAT_KEYSPACE if how == "owns the format" else shard_keyspace(1))
    for source, target in ((copying, in_memory(MemoryContents())), (file, copying)):
        with pytest.raises(KeyspaceHeld, match="etcd://fake/p is in use by node-7; stop every node first"):
            await copied(source, target, replace=True)
    await node.store.close()
    assert await held_by(copying.store) == sample()
    await copied(copying, in_memory(MemoryContents()))


async def test_one_etcd_by_two_addresses_is_the_same_store(cluster: Cluster) -> None:
    source, target = await cluster.open("copy-1"), await cluster.open("copy-2")
    await fill(source.store, sample())
    with pytest.raises(StorageUnavailable, match="are the same store"):
        await copied(source, target, replace=True)
    assert await held_by(source.store) == sample()


async def test_no_node_takes_a_keyspace_while_a_copy_runs(cluster: Cluster) -> None:
    copying, node = await cluster.open("copy"), await cluster.open("node-7")
    await fill(copying.store, sample())
    copy = copy_of("etcd://fake/p", "sqlite:///to.db")
    await copy.read(copying)
    for name in (FORMAT_KEYSPACE, REGISTRY_KEYSPACE, *map(shard_keyspace, range(3))):
        with pytest.raises(KeyspaceHeld, match="node copy has"):
            await node.store.acquire(name)
