"""The one suite for every engine: what the storage contract promises, and nothing that only one engine could keep."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

from rallypoint.coordinator.storage.contract import (
    AppendDoubtful,
    AppendFailed,
    AppendMetrics,
    BatchTooLarge,
    Fenced,
    Keyspace,
    StorageError,
    StorageUnavailable,
    Store,
    Write,
)
from tests.fakes.engines import SMALL_LIMITS, Engine, FakeEtcdEngine, MemoryEngine, RealEtcdEngine, SqliteEngine
from tests.fakes.faulty_store import Fault, FaultyStore

HttpMetrics = list[AppendMetrics]


@pytest.fixture
def append_metrics() -> HttpMetrics:
    return []


@pytest.fixture(params=["memory", "sqlite", "fake_etcd", pytest.param("real_etcd", marks=pytest.mark.etcd)])
def engine(request: pytest.FixtureRequest, tmp_path: Path, append_metrics: HttpMetrics) -> Engine:
    if request.param == "memory":
        return MemoryEngine(append_metrics.append)
    if request.param == "fake_etcd":
        return FakeEtcdEngine(append_metrics.append)
    if request.param == "real_etcd":
        return RealEtcdEngine(request.getfixturevalue("real_etcd").url, append_metrics.append)
    return SqliteEngine(tmp_path / "store.db", append_metrics.append)


@pytest.fixture
async def store(engine: Engine) -> AsyncIterator[Store]:
    opened = await engine.open()
    yield opened
    await opened.close()


async def contents(keyspace: Keyspace, prefix: bytes = b"") -> dict[bytes, bytes]:
    found = [pair for page in [page async for page in keyspace.scan(prefix)] for pair in page]
    keys = [key for key, _ in found]
    assert keys == sorted(set(keys)), "pages come in the order of keys, each key once"
    return dict(found)


def puts(*keys: str) -> list[Write]:
    return [Write(key.encode(), f"value of {key}".encode()) for key in keys]


async def test_a_new_keyspace_is_empty(store: Store) -> None:
    assert await contents(await store.acquire("s")) == {}


async def test_what_returned_is_seen(store: Store) -> None:
    keyspace = await store.acquire("s")
    await keyspace.append(puts("b", "a"))
    assert await contents(keyspace) == {b"a": b"value of a", b"b": b"value of b"}


async def test_a_keyspace_is_current_until_it_is_released_or_acquired_again(store: Store) -> None:
    first = await store.acquire("s")
    assert first.is_current()
    second = await store.acquire("s")
    assert (first.is_current(), second.is_current()) == (False, True)
    await second.release()
    assert not second.is_current()


async def test_a_scan_begins_and_ends_with_its_prefix(store: Store) -> None:
    keyspace = await store.acquire("s")
    await keyspace.append(puts("g/a/h", "g/a/o", "g/a", "g/aa/h", "g/b/h", "g/a0", "h", "g/ü/h", "g/😀/h"))
    assert set(await contents(keyspace, b"g/a/")) == {b"g/a/h", b"g/a/o"}
    assert len(await contents(keyspace, b"g/")) == 8
    assert await contents(keyspace, b"x") == {}


async def test_a_long_scan_comes_by_pages(store: Store) -> None:
    keyspace = await store.acquire("s")
    keys = [f"k{number:05}" for number in range(1100)]
    for start in range(0, len(keys), 100):
        await keyspace.append(puts(*keys[start : start + 100]))
    pages: list[Sequence[tuple[bytes, bytes]]] = [page async for page in keyspace.scan(b"")]
    assert len(pages) > 1
    assert [key.decode() for page in pages for key, _ in page] == keys


async def test_keyspaces_do_not_see_each_other(store: Store) -> None:
    one, other = await store.acquire("shard-1"), await store.acquire("shard-11")
    await one.append(puts("a"))
    await other.append(puts("b"))
    assert set(await contents(one)) == {b"a"}
    assert set(await contents(other)) == {b"b"}


async def test_none_deletes_and_deleting_what_is_not_there_is_no_error(store: Store) -> None:
    keyspace = await store.acquire("s")
    await keyspace.append(puts("a", "b"))
    await keyspace.append([Write(b"a", None), Write(b"never", None)])
    assert set(await contents(keyspace)) == {b"b"}


async def test_the_last_write_of_a_key_in_a_batch_counts(store: Store) -> None:
    keyspace = await store.acquire("s")
    await keyspace.append(
        [
            Write(b"a", b"1"),
            Write(b"b", b"1"),
            Write(b"a", b"2"),
            Write(b"b", None),
            Write(b"c", None),
            Write(b"c", b""),
        ]
    )
    assert await contents(keyspace) == {b"a": b"2", b"c": b""}


async def test_an_empty_batch_is_no_error(store: Store) -> None:
    keyspace = await store.acquire("s")
    await keyspace.append([])
    assert await contents(keyspace) == {}


async def test_appends_under_way_together_are_stored_in_the_order_of_their_calls(store: Store) -> None:
    keyspace = await store.acquire("s")
    other = await store.acquire("other")
    calls = [keyspace.append([Write(b"last", str(number).encode()), *puts(f"k{number}")]) for number in range(50)]
    await asyncio.gather(*calls, *(other.append(puts(f"o{number}")) for number in range(50)))
    stored = await contents(keyspace)
    assert stored[b"last"] == b"49"
    assert len(stored) == 51
    assert len(await contents(other)) == 50


async def test_any_bytes_are_a_value(store: Store) -> None:
    keyspace = await store.acquire("s")
    value = bytes(range(256)) * 100
    await keyspace.append([Write("ü/\0/😀".encode(), value)])
    assert await contents(keyspace) == {"ü/\0/😀".encode(): value}


@pytest.mark.parametrize(
    "writes",
    [
        [Write(str(number).encode(), b"") for number in range(SMALL_LIMITS.writes_max + 1)],
        [Write(b"a", b"x" * SMALL_LIMITS.bytes_max)],
        [Write(b"k" * 4097, b"x")],
    ],
    ids=["writes", "bytes", "key"],
)
async def test_a_batch_over_the_limits_is_refused_as_a_whole(store: Store, writes: list[Write]) -> None:
    keyspace = await store.acquire("s")
    with pytest.raises(BatchTooLarge):
        await keyspace.append([*puts("small"), *writes])
    assert await contents(keyspace) == {}
    await keyspace.append(puts("after"))


async def test_a_batch_at_the_limits_is_stored(store: Store) -> None:
    keyspace = await store.acquire("s")
    assert keyspace.limits == SMALL_LIMITS
    await keyspace.append([Write(str(number).encode(), b"") for number in range(SMALL_LIMITS.writes_max)])
    await keyspace.append([Write(b"a", b"x" * (SMALL_LIMITS.bytes_max - 1))])
    await keyspace.append([Write(b"k" * 4096, b"x")])
    assert len(await contents(keyspace)) == SMALL_LIMITS.writes_max + 2


async def test_a_later_acquire_fences_the_former_owner(store: Store) -> None:
    former = await store.acquire("s")
    await former.append(puts("a"))
    bystander = await store.acquire("other")
    latter = await store.acquire("s")
    assert latter.epoch > former.epoch
    with pytest.raises(Fenced):
        await former.append(puts("b"))
    with pytest.raises(Fenced):
        await contents(former)
    await latter.append(puts("c"))
    await bystander.append(puts("d"))
    assert set(await contents(latter)) == {b"a", b"c"}


async def test_a_fenced_append_takes_no_other_with_it(store: Store) -> None:
    former = await store.acquire("s")
    latter, bystander = await store.acquire("s"), await store.acquire("other")
    fates = await asyncio.gather(
        latter.append(puts("a")),
        former.append(puts("b")),
        bystander.append(puts("c")),
        latter.append(puts("d")),
        return_exceptions=True,
    )
    assert [type(fate) for fate in fates] == [type(None), Fenced, type(None), type(None)]
    assert set(await contents(latter)) == {b"a", b"d"}
    assert set(await contents(bystander)) == {b"c"}


async def test_a_released_keyspace_can_be_acquired_and_not_be_written_by_its_former_owner(store: Store) -> None:
    former = await store.acquire("s")
    under_way = asyncio.create_task(former.append(puts("a")))
    await asyncio.sleep(0)
    await former.release()
    assert under_way.done()
    await under_way
    await former.release()
    with pytest.raises(Fenced):
        await former.append(puts("b"))
    latter = await store.acquire("s")
    assert latter.epoch > former.epoch
    assert set(await contents(latter)) == {b"a"}


async def test_what_was_stored_is_there_after_closing_and_opening(engine: Engine) -> None:
    store = await engine.open()
    keyspace = await store.acquire("s")
    under_way = [asyncio.create_task(keyspace.append(puts(f"k{number}"))) for number in range(20)]
    await asyncio.sleep(0)
    await store.close()
    await store.close()
    await asyncio.gather(*under_way)
    with pytest.raises(StorageError):
        await keyspace.append(puts("late"))
    with pytest.raises(StorageUnavailable):
        await store.acquire("s")
    again = await engine.open()
    keyspace_again = await again.acquire("s")
    assert keyspace_again.epoch > keyspace.epoch, "an epoch is never used twice, across restarts"
    assert len(await contents(keyspace_again)) == 20
    await again.close()


async def test_whoever_stops_waiting_does_not_undo_the_append(store: Store) -> None:
    keyspace = await store.acquire("s")
    task = asyncio.create_task(keyspace.append(puts("a")))
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task])
    await keyspace.append(puts("b"))
    assert set(await contents(keyspace)) == {b"a", b"b"}


async def test_every_durable_write_is_told_of(store: Store, append_metrics: HttpMetrics) -> None:
    keyspace = await store.acquire("s")
    await asyncio.gather(*(keyspace.append(puts(f"a{number}", f"b{number}")) for number in range(30)))
    assert sum(figure.batches for figure in append_metrics) == 30
    assert sum(figure.writes for figure in append_metrics) == 60
    assert all(figure.seconds >= 0 for figure in append_metrics)


@pytest.mark.parametrize(
    ("fault", "error", "stored"),
    [
        (Fault.NOT_STORED, AppendFailed, set()),
        (Fault.STORED_UNSURE, AppendDoubtful, {b"a", b"b"}),
        (Fault.NOT_STORED_UNSURE, AppendDoubtful, set()),
        (Fault.FENCED, Fenced, set()),
    ],
)
async def test_a_fault_leaves_all_of_a_batch_or_nothing_for_the_next_owner(
    store: Store, fault: Fault, error: type[StorageError], stored: set[bytes]
) -> None:
    faulty = FaultyStore(store)
    faulty.faults.append(fault)
    keyspace = await faulty.acquire("s")
    with pytest.raises(error):
        await keyspace.append(puts("a", "b"))
    latter = await faulty.acquire("s")
    assert set(await contents(latter)) == stored
    await latter.append(puts("c"))
    assert set(await contents(latter)) == stored | {b"c"}
