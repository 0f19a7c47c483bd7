"""An append that hangs: who waits for it is answered in time, once; and what was said counts by what became of it."""

import asyncio

import pytest

from rallypoint.coordinator.core.decision import MADE_AT_ONCE_MAX
from rallypoint.coordinator.core.effects import Failure
from rallypoint.coordinator.runtime.contract import NodeCapacity
from rallypoint.protocol import admin_messages as admin
from rallypoint.protocol import messages as m
from rallypoint.protocol.errors import ErrorCode
from rallypoint.protocol.opaque import OpaqueJson
from tests.fakes.faulty_store import Fault
from tests.fakes.manual_clock import settle
from tests.fakes.service_harness import DESCRIBE, ServiceHarness, code, commit, committed, heartbeat, join, sync

TIMEOUT_MS = NodeCapacity().storage_append_timeout_ms
BUCKET_MS = 20


@pytest.fixture
async def harness() -> ServiceHarness:
    return await ServiceHarness().start()


def check_late(answer: object) -> None:
    assert isinstance(answer, Failure), answer
    assert (answer.code, answer.limit_name) == (ErrorCode.COORDINATOR_NOT_AVAILABLE, "storage_append_timeout_ms")
    assert answer.limit == TIMEOUT_MS


async def test_a_commit_is_answered_in_time_and_counts_when_it_is_stored_after_all(harness: ServiceHarness) -> None:
    harness.store.append_gate.shut()
    writing = harness.ask("g", commit(7))
    await harness.clock.run(TIMEOUT_MS - 1)
    assert not writing.done()
    await harness.clock.run(BUCKET_MS)
    check_late(writing.result())
    assert harness.service.condition().append_age_ms >= TIMEOUT_MS
    harness.store.append_gate.let_go()
    await settle()
    assert harness.service.condition().append_age_ms == 0
    assert await committed(harness, "g") == {0: 7}
    assert isinstance(await harness.now("g", commit(8)), m.CommitAnswer)
    harness.assert_nothing_waits()
    assert len(harness.service._timers) == 1, "the look at what has expired"


async def test_one_that_hangs_after_others_has_its_whole_time(harness: ServiceHarness) -> None:
    await harness.now("g", commit(1))
    await harness.clock.run(TIMEOUT_MS // 2)
    await harness.now("g", commit(2))
    await harness.clock.run(TIMEOUT_MS // 4)
    harness.store.append_gate.shut()
    writing = harness.ask("g", commit(3))
    await harness.clock.run(TIMEOUT_MS - 1)
    assert not writing.done()
    await harness.clock.run(BUCKET_MS)
    check_late(writing.result())
    harness.store.append_gate.let_go()
    await settle()
    assert await committed(harness, "g") == {0: 3}


@pytest.mark.parametrize("fault", [Fault.NOT_STORED, Fault.NOT_STORED_UNSURE, Fault.FENCED])
async def test_what_fails_in_the_end_is_gone_and_who_was_answered_is_not_answered_again(
    harness: ServiceHarness, fault: Fault
) -> None:
    await harness.now("g", commit(1))
    harness.store.append_gate.shut()
    harness.store.faults.append(fault)
    writing = harness.ask("g", commit(7))
    await harness.clock.run(TIMEOUT_MS + BUCKET_MS)
    check_late(writing.result())
    harness.store.append_gate.let_go()
    await harness.clock.run(10_000)
    assert await committed(harness, "g") == {0: 1}
    harness.assert_nothing_waits()


async def test_whoever_waits_behind_it_is_answered_in_his_own_time_and_is_heard(harness: ServiceHarness) -> None:
    ids = await harness.form("g", "a", "b")
    harness.store.append_gate.shut()
    writing = harness.ask("g", commit(7, ids["a"], 1))
    await harness.clock.run(3_000)
    beating = harness.ask("g", heartbeat(ids["b"], 1))
    reading = harness.ask("g", m.FetchRequest())
    await harness.clock.run(TIMEOUT_MS - 3_000 + BUCKET_MS)
    check_late(writing.result())
    assert not beating.done()
    await harness.clock.run(3_000)
    check_late(beating.result())
    check_late(reading.result())
    harness.store.append_gate.let_go()
    await settle()
    await harness.clock.run(9_900)
    # The other one has expired meanwhile; the heartbeat counted when it was stepped.
    assert code(await harness.now("g", heartbeat(ids["b"], 1))) is ErrorCode.REBALANCE_IN_PROGRESS


async def test_who_is_held_back_by_the_group_goes_on_waiting(harness: ServiceHarness) -> None:
    ids = {name: await harness.new_id("g", name) for name in "ab"}
    held = harness.ask("g", join("a", ids["a"]))
    await settle()
    harness.store.append_gate.shut()
    writing = harness.ask("g", admin.CooldownRequest(cooldown_ms=500))
    await harness.clock.run(TIMEOUT_MS + BUCKET_MS)
    check_late(writing.result())
    assert not held.done()
    harness.store.append_gate.let_go()
    await settle()
    await harness.now("g", join("b", ids["b"]))
    assert isinstance(held.result(), m.JoinAnswer)
    harness.assert_nothing_waits()


async def test_who_was_held_back_and_whose_time_is_over_while_it_hangs_is_answered(harness: ServiceHarness) -> None:
    ids = await harness.form("g", "a")
    held = harness.ask("g", heartbeat(ids["a"], 1, wait_ms=3_000))
    await settle()
    harness.store.append_gate.shut()
    writing = harness.ask("g", commit(7, ids["a"], 1))
    await harness.clock.run(TIMEOUT_MS + BUCKET_MS)
    check_late(writing.result())
    check_late(held.result())
    harness.store.append_gate.let_go()
    await settle()
    harness.assert_nothing_waits()


async def test_joins_and_syncs_whose_answers_are_decided_and_hang_are_answered_and_go_on(
    harness: ServiceHarness,
) -> None:
    ids = {name: await harness.new_id("g", name) for name in "ab"}
    first = harness.ask("g", join("a", ids["a"], request_id="a1"))
    await settle()
    assert not first.done()
    harness.store.append_gate.shut()
    second = harness.ask("g", join("b", ids["b"], request_id="b1"))
    await harness.clock.run(TIMEOUT_MS + BUCKET_MS)
    check_late(first.result())
    check_late(second.result())
    harness.store.append_gate.let_go()
    await settle()
    again = [await harness.now("g", join(name, ids[name], request_id=f"{name}1")) for name in "ab"]
    assert [answer.generation_id for answer in again if isinstance(answer, m.JoinAnswer)] == [1, 1]
    follower = harness.ask("g", sync(ids["b"], 1))
    await settle()
    harness.store.append_gate.shut()
    leader = harness.ask("g", sync(ids["a"], 1, tuple(m.SyncAssignment(member_id=ids[name]) for name in "ab")))
    await harness.clock.run(TIMEOUT_MS + BUCKET_MS)
    check_late(follower.result())
    check_late(leader.result())
    harness.store.append_gate.let_go()
    await settle()
    assert isinstance(await harness.now("g", sync(ids["b"], 1)), m.SyncAnswer)
    harness.assert_nothing_waits()


async def test_however_many_answers_are_decided_and_hang_all_are_answered_in_time(harness: ServiceHarness) -> None:
    names = [f"c{number}" for number in range(2 * MADE_AT_ONCE_MAX)]
    ids = {name: await harness.new_id("g", name) for name in names}
    joins = [harness.ask("g", join(name, ids[name], request_id=name)) for name in names[:-1]]
    await settle()
    assert not any(one.done() for one in joins)
    harness.store.append_gate.shut()
    joins.append(harness.ask("g", join(names[-1], ids[names[-1]], request_id=names[-1])))
    await harness.clock.run(TIMEOUT_MS + BUCKET_MS)
    for one in joins:
        check_late(one.result())
    harness.store.append_gate.let_go()
    await settle()
    again = [await harness.now("g", join(name, ids[name], request_id=name)) for name in names]
    leader = next(one.leader for one in again if isinstance(one, m.JoinAnswer))
    followers = {member_id: harness.ask("g", sync(member_id, 1)) for member_id in ids.values() if member_id != leader}
    await settle()
    harness.store.append_gate.shut()
    given = tuple(m.SyncAssignment(member_id=member_id) for member_id in ids.values())
    leading = harness.ask("g", sync(leader, 1, given))
    await harness.clock.run(TIMEOUT_MS + BUCKET_MS)
    for one in (leading, *followers.values()):
        check_late(one.result())
    harness.store.append_gate.let_go()
    await settle()
    for member_id in followers:
        assert isinstance(await harness.now("g", sync(member_id, 1)), m.SyncAnswer)
    harness.assert_nothing_waits()


async def test_a_join_that_hangs_waits_for_its_phase_no_more_when_it_is_stored(harness: ServiceHarness) -> None:
    ids = {name: await harness.new_id("g", name) for name in "ab"}
    harness.store.append_gate.shut()
    joining = harness.ask("g", join("a", ids["a"]))
    await harness.clock.run(TIMEOUT_MS + BUCKET_MS)
    check_late(joining.result())
    harness.store.append_gate.let_go()
    await settle()
    executor = next(shard.executors["g"] for shard in harness.service._shards if "g" in shard.executors)
    assert (dict(executor._group.parked), executor._waiting) == ({}, {}), (
        "its pending response is dropped: nobody waits there"
    )
    harness.assert_nothing_waits()


async def test_many_are_answered_in_slices(harness: ServiceHarness) -> None:
    harness.store.append_gate.shut()
    calls = [harness.ask("g", commit(number)) for number in range(700)]
    await settle()
    harness.clock.move(TIMEOUT_MS + BUCKET_MS)
    done = sum(call.done() for call in calls)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert done < sum(call.done() for call in calls) < 700
    await settle()
    for call in calls:
        check_late(call.result())
    harness.store.append_gate.let_go()
    await settle()
    assert await committed(harness, "g") == {0: 699}


async def test_who_hangs_up_before_is_no_matter(harness: ServiceHarness) -> None:
    harness.store.append_gate.shut()
    writing = harness.ask("g", commit(7))
    await settle()
    writing.cancel()
    await harness.clock.run(TIMEOUT_MS + BUCKET_MS)
    harness.store.append_gate.let_go()
    await settle()
    assert await committed(harness, "g") == {0: 7}


async def test_appends_that_each_return_in_time_add_up_for_nobody(harness: ServiceHarness) -> None:
    harness.store.append_gate.shut()
    harness.ask("g", commit(1))
    await settle()
    second = harness.ask("g", commit(2))
    for _ in range(2):
        await harness.clock.run(TIMEOUT_MS - 1_000)
        harness.store.append_gate.let_one_by()
        await settle()
    check_late(second.result())
    harness.store.append_gate.let_go()
    await settle()
    assert await committed(harness, "g") == {0: 2}


async def test_a_change_of_the_registry_is_answered_in_time_and_counts(harness: ServiceHarness) -> None:
    harness.store.append_gate.shut()
    putting = harness.begin(harness.service.put_topic("clicks", m.PutTopicRequest(partitions=3)))
    await settle()
    deleting = harness.begin(harness.service.delete_topic("views"))
    await harness.clock.run(TIMEOUT_MS + BUCKET_MS)
    check_late(putting.result())
    check_late(deleting.result())
    assert harness.service.condition().append_age_ms >= TIMEOUT_MS
    harness.store.append_gate.let_go()
    await settle()
    listed = harness.service.list_topics()
    assert isinstance(listed, m.ListTopicsAnswer)
    assert [topic.topic for topic in listed.topics] == ["clicks"]


async def test_describe_waits_no_longer_either(harness: ServiceHarness) -> None:
    harness.store.append_gate.shut()
    harness.ask("g", commit(1))
    await settle()
    described = harness.ask("g", DESCRIBE)
    await harness.clock.run(TIMEOUT_MS + BUCKET_MS)
    assert code(described.result()) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    harness.store.append_gate.let_go()
    await settle()


@pytest.mark.parametrize("turns", range(4))
async def test_a_group_that_is_closed_between_its_turns_is_looked_at_no_more(
    harness: ServiceHarness, turns: int
) -> None:
    subscription = OpaqueJson.of(
        {"topics": [f"{number:>0200}" for number in range(500)]}
    )  # five such joins make a turn
    large = join("a", "", protocols=(m.JoinProtocol(name="range", metadata=subscription),))
    harness.store.append_gate.shut()
    harness.ask("g", commit(1))
    await settle()
    for _ in range(30):
        harness.ask("g", large)
    await settle()
    harness.store.append_gate.let_go()
    for _ in range(turns):
        await asyncio.sleep(0)
    shard = harness.service._shards[harness.service._shard_of("g")]
    assert len(shard.executors["g"]) > 0, "calls wait"
    await shard.close(Failure(ErrorCode.NOT_COORDINATOR, "The shard has moved."))
    await settle()
    harness.assert_nothing_waits()
    assert len(harness.service._timers) == 0
