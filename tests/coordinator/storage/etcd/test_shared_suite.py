"""What the contract of a shared store promises, to two and three nodes over one etcd: in memory, and a real one."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import aclosing
from typing import Any, cast

import pytest

from rallypoint.coordinator.storage.contract import (
    AppendDoubtful,
    AppendFailed,
    Fenced,
    Keyspace,
    KeyspaceHeld,
    NodeUnavailable,
    StorageUnavailable,
    Write,
)
from rallypoint.coordinator.storage.etcd.client import EtcdUnknown, ServerStatus, Trouble
from rallypoint.coordinator.storage.etcd.store import EtcdStore
from rallypoint.coordinator.storage.etcd.views import RETRY_INTERVAL_S
from rallypoint.coordinator.storage.shared_contract import ClusterState, FollowedWrites, Owner, SharedStore
from tests.fakes.etcd_world import LASTING_MS, SHORT_MS, EtcdWorld, FakeWorld, RealWorld, renew_again, stop_renewing
from tests.fakes.fake_etcd import FakeEtcd, FakeEtcdClient, TaskDriver

PATIENCE_S = 30.0
"""A lease of `SHORT_MS` has run out by then, on whatever machine; one of `LASTING_MS` has not."""
Open = Callable[..., Coroutine[Any, Any, EtcdStore]]


@pytest.fixture(params=["fake", pytest.param("real", marks=pytest.mark.etcd)])
def world(request: pytest.FixtureRequest) -> EtcdWorld:
    return FakeWorld() if request.param == "fake" else RealWorld(request.getfixturevalue("real_etcd"))


@pytest.fixture
async def open_node(world: EtcdWorld) -> AsyncIterator[Open]:
    opened: list[EtcdStore] = []

    async def open_one(node_id: str, identity: bytes = b"", lease_ttl_ms: int = LASTING_MS) -> EtcdStore:
        opened.append(await world.open(node_id, identity, lease_ttl_ms))
        return opened[-1]

    yield open_one
    await asyncio.gather(*(store.close() for store in opened))


async def contents(keyspace: Keyspace) -> dict[bytes, bytes]:
    return {key: value async for page in keyspace.scan(b"") for key, value in page}


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not condition():  # noqa: ASYNC110 - time decides here, and tells nobody
            await asyncio.sleep(0.01)


async def acquired(store: EtcdStore, keyspace: str) -> Any:
    """Try until the former owner's lease has run out."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            try:
                return await store.acquire(keyspace)
            except KeyspaceHeld:
                await asyncio.sleep(0.02)


async def written(store: EtcdStore, keyspace: str, *writes: Write) -> Any:
    """Acquire it and write, again where a busy machine has cost the store its short lease."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            try:
                mine = await store.acquire(keyspace)
                await mine.append(list(writes))
                return mine
            except (KeyspaceHeld, StorageUnavailable, AppendFailed, AppendDoubtful, Fenced):
                await asyncio.sleep(0.02)


async def test_an_engine_on_etcd_is_a_shared_store(open_node: Open) -> None:
    store: SharedStore = await open_node("a")
    assert store.node_id == "a"
    assert 0 < store.lease.remaining_ms <= LASTING_MS
    assert store.lease.lost_count == 0
    assert store.status.trouble is None


async def test_what_another_live_node_has_is_held(open_node: Open) -> None:
    a, b = await open_node("node/a%"), await open_node("b")
    mine = await a.acquire("shard/1")
    with pytest.raises(KeyspaceHeld, match="node/a% has shard/1"):
        await b.acquire("shard/1")
    await mine.append([Write(b"k", b"v")])
    await mine.release()
    theirs = await b.acquire("shard/1")
    assert theirs.epoch > mine.epoch
    assert await contents(theirs) == {b"k": b"v"}


async def test_a_close_frees_what_the_node_had_at_once(open_node: Open) -> None:
    a, b = await open_node("a"), await open_node("b")
    keyspace = await a.acquire("s")
    await keyspace.append([Write(b"k", b"v")])
    await a.close()
    assert await contents(await b.acquire("s")) == {b"k": b"v"}


async def test_a_hand_over_makes_the_other_node_the_owner_after_the_appends_before_it(open_node: Open) -> None:
    a, b = await open_node("a"), await open_node("b")
    mine = await a.acquire("s")
    appends = [asyncio.create_task(mine.append([Write(b"%d" % number, b"v")])) for number in range(20)]
    await asyncio.sleep(0)
    await mine.hand_over("b")
    await asyncio.gather(*appends)
    assert not mine.is_current()
    with pytest.raises(Fenced):
        await mine.append([Write(b"late", b"")])
    with pytest.raises(KeyspaceHeld, match="node b has s"):
        await a.acquire("s")
    theirs = await b.acquire("s")
    assert len(await contents(theirs)) == 20
    await theirs.hand_over("a")
    again = await a.acquire("s")
    await again.append([Write(b"back", b"")])


async def test_a_hand_over_to_a_node_that_is_not_there_changes_nothing(open_node: Open) -> None:
    a = await open_node("a")
    mine = await a.acquire("s")
    with pytest.raises(NodeUnavailable, match="b has no live lease"):
        await mine.hand_over("b")
    await mine.append([Write(b"k", b"v")])
    assert mine.is_current()


async def test_a_node_that_renews_no_more_loses_what_it_has_and_cannot_write_to_it(open_node: Open) -> None:
    a, b = await open_node("a", lease_ttl_ms=SHORT_MS), await open_node("b")
    mine = await written(a, "s", Write(b"k", b"v"))
    await stop_renewing(a)
    theirs = await acquired(b, "s")
    assert not mine.is_current()
    await theirs.append([Write(b"k", b"theirs")])
    with pytest.raises(Fenced):
        await mine.append([Write(b"k", b"mine")])
    with pytest.raises(Fenced):
        await contents(mine)
    assert await contents(theirs) == {b"k": b"theirs"}


async def test_a_keyspace_is_not_current_before_anybody_else_can_take_it(open_node: Open) -> None:
    a, b = await open_node("a", lease_ttl_ms=SHORT_MS), await open_node("b")
    mine = await written(a, "s")
    await stop_renewing(a)
    assert await acquired(b, "s")
    assert not mine.is_current()


async def test_a_restart_of_the_same_place_need_not_wait_for_the_lease(open_node: Open) -> None:
    former = await open_node("a", b"http://here")
    keyspace = await former.acquire("s")
    await stop_renewing(former)
    async with asyncio.timeout(PATIENCE_S):
        latter = await open_node("a", b"http://here")
    again = await latter.acquire("s")
    assert again.epoch > keyspace.epoch
    with pytest.raises(Fenced):
        await keyspace.append([Write(b"k", b"")])


async def test_another_node_of_the_same_id_is_refused_while_the_first_lives(open_node: Open) -> None:
    await open_node("a", b"here")
    with pytest.raises(KeyspaceHeld, match="another node is called a"):
        await open_node("a", b"there", SHORT_MS)


async def test_another_node_of_the_same_id_waits_for_the_lease_of_one_that_died(open_node: Open) -> None:
    await stop_renewing(await open_node("a", b"here", SHORT_MS))
    assert (await open_node("a", b"there")).node_id == "a"


async def test_a_node_that_was_silent_for_longer_than_its_lease_takes_a_new_one_and_is_announced(
    open_node: Open,
) -> None:
    a, b = await open_node("a", lease_ttl_ms=SHORT_MS), await open_node("b")
    await a.announce(b"http://a")
    mine = await written(a, "s")
    async with aclosing(cast(Any, b.states())) as states:
        await state_with(states, lambda state: state.nodes == {"a": b"http://a"})
        await stop_renewing(a)
        assert await state_with(states, lambda state: not state.nodes and not state.owners)
        renew_again(a)
        assert await state_with(states, lambda state: state.nodes == {"a": b"http://a"})
    await until(lambda: a.lease.lost_count > 0)
    with pytest.raises(Fenced):
        await mine.append([Write(b"k", b"")])
    await written(a, "s", Write(b"k", b""))


async def test_a_node_whose_key_somebody_has_deleted_is_announced_again_on_its_lease(
    world: EtcdWorld, open_node: Open
) -> None:
    a, b = await open_node("a"), await open_node("b")
    await a.announce(b"http://a")
    async with aclosing(cast(Any, b.states())) as states:
        await state_with(states, lambda state: state.nodes == {"a": b"http://a"})
        await world.delete(a.keys.node("a"))
        await state_with(states, lambda state: not state.nodes)
        await a.announce(b"http://a")
        await state_with(states, lambda state: state.nodes == {"a": b"http://a"})
        await a.close()
        await state_with(states, lambda state: not state.nodes)


async def state_with(states: Any, fits: Callable[[ClusterState], bool]) -> ClusterState:
    async with asyncio.timeout(PATIENCE_S):
        async for state in states:
            if fits(state):
                return cast(ClusterState, state)
    raise AssertionError("the states ended")


async def test_states_tell_who_lives_who_owns_and_which_facts_there_are(open_node: Open) -> None:
    a, b = await open_node("a"), await open_node("b")
    async with aclosing(cast(Any, a.states())) as states:
        first = await anext(states)
        assert (first.nodes, first.owners, first.facts) == ({}, {}, {})
        await b.announce(b"http://b")
        mine = await b.acquire("shard/1")
        assert await b.put_fact("placement", b"1", 0)
        told = await state_with(states, lambda state: bool(state.facts))
        assert told.nodes == {"b": b"http://b"}
        assert told.owners == {"shard/1": Owner("b", mine.epoch)}
        assert told.facts["placement"].value == b"1"
        assert told.revision > first.revision
        await b.close()
        gone = await state_with(states, lambda state: not state.owners)
        assert gone.nodes == {}
        await a.close()
        with pytest.raises(StopAsyncIteration):
            await anext(states)


async def test_a_fact_is_put_by_the_first_alone(open_node: Open) -> None:
    a, b = await open_node("a"), await open_node("b")
    put = await asyncio.gather(*(store.put_fact("f", store.node_id.encode(), 0) for store in (a, b)))
    assert sorted(put) == [False, True]
    async with aclosing(cast(Any, a.states())) as states:
        fact = (await anext(states)).facts["f"]
    assert await b.put_fact("f", b"next", fact.revision)
    assert not await a.put_fact("f", b"other", fact.revision)


async def followed(items: Any, count: int) -> list[FollowedWrites]:
    async with asyncio.timeout(PATIENCE_S):
        return [await anext(items) for _ in range(count)]


async def test_a_follower_sees_what_there_is_and_then_each_append(open_node: Open) -> None:
    a, b = await open_node("a"), await open_node("b")
    mine = await a.acquire("s")
    await mine.append([Write(b"k", b"1"), Write(b"gone", b"")])
    async with aclosing(cast(Any, b.follow("s"))) as items:
        (whole,) = await followed(items, 1)
        assert (whole.is_whole, whole.is_complete) == (True, True)
        assert set(whole.writes) == {Write(b"k", b"1"), Write(b"gone", b"")}
        await mine.append([Write(b"k", b"2"), Write(b"gone", None)])
        await mine.append([Write(b"l", b"3")])
        second, third = await followed(items, 2)
        assert (second.is_whole, second.is_complete) == (False, True)
        assert set(second.writes) == {Write(b"k", b"2"), Write(b"gone", None)}
        assert list(third.writes) == [Write(b"l", b"3")]


async def test_a_follower_gets_a_large_keyspace_in_parts_and_an_empty_one_in_one(open_node: Open) -> None:
    a, b = await open_node("a"), await open_node("b")
    mine = await a.acquire("s")
    for start in range(0, 300, 100):
        await mine.append([Write(b"%04d" % number, b"x") for number in range(start, start + 100)])
    async with aclosing(cast(Any, b.follow("s"))) as items:
        parts = await followed(items, 2)
    assert [part.is_whole for part in parts] == [True, False]
    assert [part.is_complete for part in parts] == [False, True]
    assert sum(len(part.writes) for part in parts) == 300
    async with aclosing(cast(Any, b.follow("empty"))) as items:
        assert await followed(items, 1) == [FollowedWrites([], True, True)]


async def test_a_scan_survives_a_compaction_between_its_pages(world: EtcdWorld, open_node: Open) -> None:
    a = await open_node("a")
    mine = await a.acquire("s")
    for start in range(0, 300, 100):
        await mine.append([Write(b"%04d" % number, b"x") for number in range(start, start + 100)])
    found = []
    async for page in mine.scan(b""):
        found += [key for key, _ in page]
        if len(found) == len(page):
            await mine.append([Write(b"later", b"")])
            async with aclosing(cast(Any, a.states())) as states:
                world.compact((await anext(states)).revision)
    assert found == [b"%04d" % number for number in range(300)] + [b"later"]


async def test_a_closed_store_says_so(open_node: Open) -> None:
    a = await open_node("a")
    mine = await a.acquire("s")
    await a.close()
    assert not mine.is_current()
    for call in (a.acquire("s"), a.announce(b""), a.put_fact("f", b"", 0), mine.append([]), mine.hand_over("b")):
        with pytest.raises(StorageUnavailable):
            await call


async def test_a_node_whose_id_another_process_has_taken_says_so_once(
    world: EtcdWorld, caplog: pytest.LogCaptureFixture
) -> None:
    former = await world.open("a", b"here", SHORT_MS)
    latter = await world.open("a", b"here")
    await until(lambda: former.status.trouble == "another node has the id of this one")
    await asyncio.sleep(SHORT_MS / 2000)  # for another renewal, of which nothing is said
    assert former.status.trouble == "another node has the id of this one"
    assert caplog.text.count("another node is called a") == 1
    await former.close()
    await latter.close()


async def test_no_fault_in_renewing_ends_the_renewals(caplog: pytest.LogCaptureFixture) -> None:
    world = FakeWorld()
    store = await world.open("a", lease_ttl_ms=SHORT_MS)
    world.clients["a"].broken = RuntimeError("can't start new thread")
    await until(lambda: store.status.trouble == "the node itself fails in renewing its lease")
    await asyncio.sleep(SHORT_MS / 2000)  # for more renewals, which fail and of which nothing is said
    world.clients["a"].broken = None
    await until(lambda: store.status.trouble is None)
    assert caplog.text.count("can't start new thread") == 1
    await written(store, "s", Write(b"k", b"v"))
    await store.close()


async def test_an_outage_is_logged_once_however_long_it_is(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    world = FakeWorld()
    store = await world.open("a")
    read = 0

    async def take(items: AsyncIterator[object]) -> None:
        nonlocal read
        async for _ in items:
            read += 1

    readers = [asyncio.create_task(take(store.states())), asyncio.create_task(take(store.follow("topics")))]
    await until(lambda: read == 2)
    world.clients["a"].is_cut = True
    await until(lambda: caplog.text.count("cannot be read or watched now") >= 2)
    await asyncio.sleep(6 * RETRY_INTERVAL_S)
    for what in ("the state of the cluster", "topics"):
        assert caplog.text.count(f"{what} cannot be read or watched now") == 1
    world.clients["a"].is_cut = False
    await until(lambda: "the state of the cluster can be read again" in caplog.text)
    await store.close()
    await asyncio.gather(*readers)


class LateEtcdClient(FakeEtcdClient):
    """Of an etcd that answers from the fourth question on."""

    questions = 0

    async def status(self, timeout_s: float) -> ServerStatus:
        self.questions += 1
        if self.questions <= 3:
            raise EtcdUnknown("a:2379: connection refused", Trouble.AWAY)
        return await super().status(timeout_s)


async def test_an_etcd_that_is_waited_for_at_the_start_is_told_of_once(caplog: pytest.LogCaptureFixture) -> None:
    etcd = FakeEtcd()
    store = await EtcdStore.open(
        LateEtcdClient(etcd), TaskDriver(), prefix="late", node_id="a", identity=b"",
        lease_ttl_ms=LASTING_MS, clock_ms=etcd.clock_ms,
    )  # fmt: skip
    await store.close()
    assert caplog.messages == ["etcd does not answer yet; waiting up to 10 s for it: a:2379: connection refused"]
