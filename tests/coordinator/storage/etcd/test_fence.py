"""The fence under answers that are lost and transactions that come late; and each part of it taken out, which must
show.
"""

import asyncio
from typing import Any

import pytest

from rallypoint.coordinator.storage.contract import AppendDoubtful, AppendFailed, Fenced, NodeUnavailable, Write
from rallypoint.coordinator.storage.etcd import fence
from rallypoint.coordinator.storage.etcd.client import LeaseEquals, Put, Txn
from rallypoint.coordinator.storage.etcd.lease import LeaseRule
from rallypoint.coordinator.storage.etcd.store import EtcdStore
from tests.fakes.etcd_world import SHORT_MS, FakeWorld, stop_renewing
from tests.fakes.fake_etcd import Fault

DATA = b"world/data/s/k"


@pytest.fixture
def world() -> FakeWorld:
    return FakeWorld()


def values(world: FakeWorld) -> list[bytes | None]:
    """What the key was, one after the other."""
    return [event.value for event in world.etcd.history if event.key == DATA]


async def an_answer_is_lost_and_nothing_is_stored_twice(world: FakeWorld) -> None:
    store = await world.open("a")
    keyspace = await store.acquire("s")
    world.clients["a"].faults.append(Fault.LOST_AFTER)
    await asyncio.gather(*(keyspace.append([Write(b"k", b"%d" % number)]) for number in range(3)))
    await keyspace.append([Write(b"k", b"9")])
    assert values(world) == [b"2", b"9"]
    await store.close()


async def a_late_copy_never_comes_over_what_is_newer(world: FakeWorld) -> None:
    store = await world.open("a")
    keyspace = await store.acquire("s")
    world.clients["a"].faults.append(Fault.LATE)
    await keyspace.append([Write(b"k", b"1")])
    await keyspace.append([Write(b"k", b"2")])
    assert world.etcd.apply_late() == [False]
    assert values(world) == [b"1", b"2"]
    await store.close()


async def a_late_copy_is_void_once_another_has_the_keyspace(world: FakeWorld) -> None:
    a, b = await world.open("a"), await world.open("b")
    mine = await a.acquire("s")
    world.clients["a"].faults.append(Fault.LATE)
    appending = asyncio.create_task(mine.append([Write(b"k", b"mine")]))
    while not world.etcd.late:  # noqa: ASYNC110
        await asyncio.sleep(0)
    world.clients["a"].is_frozen = True
    held = a.node.rule.held
    assert held is not None
    world.etcd.revoke(held.lease)
    theirs = await b.acquire("s")
    await theirs.append([Write(b"k", b"theirs")])
    assert world.etcd.apply_late() == [False]
    world.clients["a"].is_frozen = False
    with pytest.raises(Fenced):
        await appending
    assert values(world) == [b"theirs"]
    await a.close()
    await b.close()


async def an_owner_whose_lease_ended_is_refused_before_anybody_takes_over(world: FakeWorld) -> None:
    store = await world.open("a")
    keyspace = await store.acquire("s")
    await stop_renewing(store)
    held = store.node.rule.held
    assert held is not None
    world.etcd.revoke(held.lease)
    with pytest.raises(Fenced):
        await keyspace.append([Write(b"k", b"1")])
    assert values(world) == []
    await store.close()


async def another_batch_is_never_taken_for_mine(world: FakeWorld) -> None:
    """A batch that was given up lands late: the next one must not look stored because of it."""
    store = await world.open("a")
    keyspace = await store.acquire("s")
    rules = fence.Fence(store.keys, "s", keyspace.epoch)
    given_up = rules.append([Write(b"k", b"given up")], store.new_tag())
    next_tag = store.new_tag()
    next_one = rules.append([Write(b"k", b"next")], next_tag)
    assert world.etcd.txn(given_up).succeeded
    assert rules.judge(world.etcd.txn(next_one), next_tag) is fence.Outcome.FENCED
    await store.close()


async def nothing_is_handed_to_a_lease_that_ended(world: FakeWorld) -> None:
    a, b = await world.open("a"), await world.open("b")
    mine = await a.acquire("s")
    held = b.node.rule.held
    assert held is not None
    rules = fence.Fence(a.keys, "s", mine.epoch)
    tag = a.new_tag()
    late = rules.hand_over(b"b", a.keys.node("b"), held.lease, tag)
    # The node has begun anew: its former lease lives, and its key hangs on another.
    other = world.etcd.grant(6).lease
    world.etcd.txn(Txn((), (Put(a.keys.node("b"), b"", other),)))
    answer = world.etcd.txn(late)
    assert not answer.succeeded
    assert rules.judge_hand_over(answer, b"b", tag) is fence.Outcome.NO_TARGET
    await b.close()
    with pytest.raises(NodeUnavailable):
        await mine.hand_over("c")
    await mine.append([Write(b"k", b"still mine")])
    await a.close()


async def a_deadline_ends_before_the_lease_does(world: FakeWorld) -> None:
    now_ms = [0]
    world.etcd.clock_ms = lambda: now_ms[0]
    store = await world.open("a", lease_ttl_ms=SHORT_MS)
    keyspace = await store.acquire("s")
    await stop_renewing(store)
    current = []
    for now_ms[0] in (0, 1_850, 1_950):
        current.append(keyspace.is_current())
    assert current == [True, True, False]
    world.etcd.expire()
    assert world.etcd.keep_alive(0x1001).ttl_s == 2
    await store.close()


async def a_late_acquisition_takes_back_nothing_that_was_released(world: FakeWorld) -> None:
    a, b = await world.open("a"), await world.open("b")
    world.clients["a"].faults.append(Fault.LATE)
    keyspace = await a.acquire("s")
    await keyspace.release()
    assert world.etcd.apply_late() == [False]
    await b.acquire("s")
    await a.close()
    await b.close()


RULES = {
    rule.__name__: rule
    for rule in (
        an_answer_is_lost_and_nothing_is_stored_twice,
        a_late_copy_never_comes_over_what_is_newer,
        a_late_copy_is_void_once_another_has_the_keyspace,
        an_owner_whose_lease_ended_is_refused_before_anybody_takes_over,
        another_batch_is_never_taken_for_mine,
        nothing_is_handed_to_a_lease_that_ended,
        a_deadline_ends_before_the_lease_does,
        a_late_acquisition_takes_back_nothing_that_was_released,
    )
}


@pytest.mark.parametrize("name", RULES)
async def test_the_fence_holds(world: FakeWorld, name: str) -> None:
    await RULES[name](world)


async def test_a_refusal_is_definite_unless_an_earlier_copy_may_be_under_way(world: FakeWorld) -> None:
    store = await world.open("a")
    keyspace = await store.acquire("s")
    world.clients["a"].faults.append(Fault.REFUSED)
    with pytest.raises(AppendFailed, match="database space exceeded"):
        await keyspace.append([Write(b"k", b"1")])
    troubles = [store.status.trouble]
    world.clients["a"].faults.extend([Fault.LOST_AFTER, Fault.REFUSED])
    await keyspace.append([Write(b"k", b"2")])
    assert values(world) == [b"2"]
    troubles.append(store.status.trouble)
    await keyspace.append([Write(b"k", b"3")])
    troubles.append(store.status.trouble)
    assert troubles == ["etcd's quota is used up", "etcd's quota is used up", None]
    await store.close()


async def test_what_fills_the_quota_is_stored_whatever_etcd_says_of_it(world: FakeWorld) -> None:
    a, b = await world.open("a"), await world.open("b")
    keyspace = await a.acquire("s")
    world.etcd.is_filling = True
    await keyspace.append([Write(b"k", b"1")])
    with pytest.raises(AppendFailed, match="database space exceeded"):
        await keyspace.append([Write(b"k", b"2")])
    with pytest.raises(AppendFailed, match="not handed over"):
        await keyspace.hand_over("b")
    troubles = [a.status.trouble]
    world.etcd.is_full = False
    await keyspace.append([Write(b"k", b"3")])
    assert values(world) == [b"1", b"3"]
    troubles.append(a.status.trouble)
    assert troubles == ["etcd's quota is used up", None]
    world.clients["a"].faults.append(Fault.STORED_AND_REFUSED)
    await keyspace.hand_over("b")
    world.clients["b"].faults.append(Fault.STORED_AND_REFUSED)
    await (await b.acquire("s")).append([Write(b"k", b"4")])
    assert values(world) == [b"1", b"3", b"4"]
    await a.close()
    await b.close()


async def test_a_copy_that_was_stored_is_found_while_the_quota_is_used_up(world: FakeWorld) -> None:
    store = await world.open("a")
    keyspace = await store.acquire("s")
    world.clients["a"].faults.extend([Fault.LOST_AFTER, Fault.REFUSED, Fault.LOST_BEFORE])
    await keyspace.append([Write(b"k", b"1")])
    assert list(world.clients["a"].faults) == [Fault.LOST_BEFORE]
    await store.close()


async def test_what_is_deleted_and_written_again_is_two_transactions(world: FakeWorld) -> None:
    store = await world.open("a")
    keyspace = await store.acquire("s")
    await keyspace.append([Write(b"k", b"1")])
    texts = (b"2", None, b"3", b"4")
    await asyncio.gather(*(keyspace.append([Write(b"k", text)]) for text in texts))
    assert values(world) == [b"1", None, b"4"]
    await store.close()


async def test_a_close_does_not_wait_for_an_etcd_that_is_away(world: FakeWorld) -> None:
    store = await world.open("a")
    keyspace = await store.acquire("s")
    world.clients["a"].is_cut = True
    appending = asyncio.create_task(keyspace.append([Write(b"k", b"1")]))
    async with asyncio.timeout(30):
        while store.status.trouble != "etcd cannot be reached":  # noqa: ASYNC110 - the store tells nobody
            await asyncio.sleep(0.01)
    async with asyncio.timeout(30):  # and the lease has a minute
        await store.close()
    with pytest.raises(AppendDoubtful):
        await appending


# --- faults planted in the fence --------------------------------------------------------------------------------------


def _without(index: int) -> Any:
    compares = fence.Fence._compares
    return lambda self: tuple(one for place, one in enumerate(compares(self)) if place != index)


def _without_lease(self: fence.Fence, target: bytes, target_key: bytes, lease: int, tag: str) -> Txn:
    txn = HAND_OVER(self, target, target_key, lease, tag)
    return txn._replace(compares=[one for one in txn.compares if not isinstance(one, LeaseEquals)])


def _owner_alone(self: fence.Acquisition, seen: fence.Seen) -> Txn:
    txn = TAKE(self, seen)
    return txn._replace(compares=txn.compares[:1])


HAND_OVER = fence.Fence.hand_over
TAKE = fence.Acquisition.take
PLANTS: dict[str, tuple[Any, str, Any, str]] = {
    "no comparison of the owner": (
        fence.Fence, "_compares", _without(0), "an_owner_whose_lease_ended_is_refused_before_anybody_takes_over",
    ),
    "no comparison of the head": (
        fence.Fence, "_compares", _without(1), "a_late_copy_never_comes_over_what_is_newer",
    ),
    "no comparisons at all": (
        fence.Fence, "_compares", lambda _: (), "a_late_copy_is_void_once_another_has_the_keyspace",
    ),
    "a tag that others have, too": (
        EtcdStore, "new_tag", lambda _: "1", "another_batch_is_never_taken_for_mine",
    ),
    "a hand-over to whatever lease": (
        fence.Fence, "hand_over", _without_lease, "nothing_is_handed_to_a_lease_that_ended",
    ),
    "an acquisition under the owner alone": (
        fence.Acquisition, "take", _owner_alone, "a_late_acquisition_takes_back_nothing_that_was_released",
    ),
    "no deadline": (
        LeaseRule, "is_live", lambda *_: True, "a_deadline_ends_before_the_lease_does",
    ),
}  # fmt: skip


@pytest.mark.parametrize("plant", PLANTS)
async def test_a_planted_fault_shows(world: FakeWorld, monkeypatch: pytest.MonkeyPatch, plant: str) -> None:
    owner, attribute, fault, rule = PLANTS[plant]
    monkeypatch.setattr(owner, attribute, fault)
    with pytest.raises((AssertionError, pytest.fail.Exception)):
        await RULES[rule](world)
