"""An append that hangs: who waits for it is answered in time, once; and what was said counts by what became of it."""

import asyncio

import pytest

from rallypoint.coordinator.core.decision import MADE_AT_ONCE_MAX
from rallypoint.coordinator.core.effects import Failure
from rallypoint.coordinator.runtime.node import NodeCapacity
from rallypoint.protocol import messages as m
from rallypoint.protocol.errors import ErrorCode
from tests.fakes.faulty_store import Fault
from tests.fakes.manual_clock import settle
from tests.fakes.room import DESCRIBE, Room, code, commit, committed, heartbeat, join, sync

TIMEOUT_MS = NodeCapacity().storage_append_timeout_ms
BUCKET_MS = 20


@pytest.fixture
async def room() -> Room:
    return await Room().start()


def check_late(answer: object) -> None:
    assert isinstance(answer, Failure), answer
    assert (answer.code, answer.limit_name) == (ErrorCode.COORDINATOR_NOT_AVAILABLE, "storage_append_timeout_ms")
    assert answer.limit == TIMEOUT_MS


async def test_a_commit_is_answered_in_time_and_counts_when_it_is_stored_after_all(room: Room) -> None:
    room.store.append_gate.shut()
    writing = room.ask("g", commit(7))
    await room.clock.run(TIMEOUT_MS - 1)
    assert not writing.done()
    await room.clock.run(BUCKET_MS)
    check_late(writing.result())
    assert room.service.condition().append_age_ms >= TIMEOUT_MS
    room.store.append_gate.let_go()
    await settle()
    assert room.service.condition().append_age_ms == 0
    assert await committed(room, "g") == {0: 7}
    assert isinstance(await room.now("g", commit(8)), m.CommitAnswer)
    room.assert_nothing_waits()
    assert len(room.service._timers) == 1, "the look at what has expired"


@pytest.mark.parametrize("fault", [Fault.NOT_STORED, Fault.NOT_STORED_UNSURE, Fault.FENCED])
async def test_what_fails_in_the_end_is_gone_and_who_was_answered_is_not_answered_again(
    room: Room, fault: Fault
) -> None:
    await room.now("g", commit(1))
    room.store.append_gate.shut()
    room.store.faults.append(fault)
    writing = room.ask("g", commit(7))
    await room.clock.run(TIMEOUT_MS + BUCKET_MS)
    check_late(writing.result())
    room.store.append_gate.let_go()
    await room.clock.run(10_000)
    assert await committed(room, "g") == {0: 1}
    room.assert_nothing_waits()


async def test_whoever_waits_behind_it_is_answered_in_his_own_time_and_is_heard(room: Room) -> None:
    ids = await room.form("g", "a", "b")
    room.store.append_gate.shut()
    writing = room.ask("g", commit(7, ids["a"], 1))
    await room.clock.run(3_000)
    beating = room.ask("g", heartbeat(ids["b"], 1))
    reading = room.ask("g", m.FetchRequest())
    await room.clock.run(TIMEOUT_MS - 3_000 + BUCKET_MS)
    check_late(writing.result())
    assert not beating.done()
    await room.clock.run(3_000)
    check_late(beating.result())
    check_late(reading.result())
    room.store.append_gate.let_go()
    await settle()
    await room.clock.run(9_900)
    # The other one has expired meanwhile; the heartbeat counted when it was stepped.
    assert code(await room.now("g", heartbeat(ids["b"], 1))) is ErrorCode.REBALANCE_IN_PROGRESS


async def test_who_is_held_back_by_the_group_goes_on_waiting(room: Room) -> None:
    ids = {name: await room.new_id("g", name) for name in "ab"}
    held = room.ask("g", join("a", ids["a"]))
    await settle()
    room.store.append_gate.shut()
    writing = room.ask("g", m.CooldownRequest(cooldown_ms=500))
    await room.clock.run(TIMEOUT_MS + BUCKET_MS)
    check_late(writing.result())
    assert not held.done()
    room.store.append_gate.let_go()
    await settle()
    await room.now("g", join("b", ids["b"]))
    assert isinstance(held.result(), m.JoinAnswer)
    room.assert_nothing_waits()


async def test_who_was_held_back_and_whose_time_is_over_while_it_hangs_is_answered(room: Room) -> None:
    ids = await room.form("g", "a")
    held = room.ask("g", heartbeat(ids["a"], 1, wait_ms=3_000))
    await settle()
    room.store.append_gate.shut()
    writing = room.ask("g", commit(7, ids["a"], 1))
    await room.clock.run(TIMEOUT_MS + BUCKET_MS)
    check_late(writing.result())
    check_late(held.result())
    room.store.append_gate.let_go()
    await settle()
    room.assert_nothing_waits()


async def test_joins_and_syncs_whose_answers_are_decided_and_hang_are_answered_and_go_on(room: Room) -> None:
    ids = {name: await room.new_id("g", name) for name in "ab"}
    first = room.ask("g", join("a", ids["a"], request_id="a1"))
    await settle()
    assert not first.done()
    room.store.append_gate.shut()
    second = room.ask("g", join("b", ids["b"], request_id="b1"))
    await room.clock.run(TIMEOUT_MS + BUCKET_MS)
    check_late(first.result())
    check_late(second.result())
    room.store.append_gate.let_go()
    await settle()
    again = [await room.now("g", join(name, ids[name], request_id=f"{name}1")) for name in "ab"]
    assert [answer.generation_id for answer in again if isinstance(answer, m.JoinAnswer)] == [1, 1]
    follower = room.ask("g", sync(ids["b"], 1))
    await settle()
    room.store.append_gate.shut()
    leader = room.ask("g", sync(ids["a"], 1, tuple(m.SyncAssignment(member_id=ids[name]) for name in "ab")))
    await room.clock.run(TIMEOUT_MS + BUCKET_MS)
    check_late(follower.result())
    check_late(leader.result())
    room.store.append_gate.let_go()
    await settle()
    assert isinstance(await room.now("g", sync(ids["b"], 1)), m.SyncAnswer)
    room.assert_nothing_waits()


async def test_however_many_answers_are_decided_and_hang_all_are_answered_in_time(room: Room) -> None:
    names = [f"c{number}" for number in range(2 * MADE_AT_ONCE_MAX)]
    ids = {name: await room.new_id("g", name) for name in names}
    joins = [room.ask("g", join(name, ids[name], request_id=name)) for name in names[:-1]]
    await settle()
    assert not any(one.done() for one in joins)
    room.store.append_gate.shut()
    joins.append(room.ask("g", join(names[-1], ids[names[-1]], request_id=names[-1])))
    await room.clock.run(TIMEOUT_MS + BUCKET_MS)
    for one in joins:
        check_late(one.result())
    room.store.append_gate.let_go()
    await settle()
    again = [await room.now("g", join(name, ids[name], request_id=name)) for name in names]
    leader = next(one.leader for one in again if isinstance(one, m.JoinAnswer))
    followers = {member_id: room.ask("g", sync(member_id, 1)) for member_id in ids.values() if member_id != leader}
    await settle()
    room.store.append_gate.shut()
    given = tuple(m.SyncAssignment(member_id=member_id) for member_id in ids.values())
    leading = room.ask("g", sync(leader, 1, given))
    await room.clock.run(TIMEOUT_MS + BUCKET_MS)
    for one in (leading, *followers.values()):
        check_late(one.result())
    room.store.append_gate.let_go()
    await settle()
    for member_id in followers:
        assert isinstance(await room.now("g", sync(member_id, 1)), m.SyncAnswer)
    room.assert_nothing_waits()


async def test_a_join_that_hangs_waits_for_its_phase_no_more_when_it_is_stored(room: Room) -> None:
    ids = {name: await room.new_id("g", name) for name in "ab"}
    room.store.append_gate.shut()
    joining = room.ask("g", join("a", ids["a"]))
    await room.clock.run(TIMEOUT_MS + BUCKET_MS)
    check_late(joining.result())
    room.store.append_gate.let_go()
    await settle()
    executor = next(shard.executors["g"] for shard in room.service._shards if "g" in shard.executors)
    assert (dict(executor._group.parked), executor._waiting) == ({}, {}), (
        "its pending response is dropped: nobody waits there"
    )
    room.assert_nothing_waits()


async def test_many_are_answered_in_slices(room: Room) -> None:
    room.store.append_gate.shut()
    calls = [room.ask("g", commit(number)) for number in range(700)]
    await settle()
    room.clock.move(TIMEOUT_MS + BUCKET_MS)
    done = sum(call.done() for call in calls)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert done < sum(call.done() for call in calls) < 700
    await settle()
    for call in calls:
        check_late(call.result())
    room.store.append_gate.let_go()
    await settle()
    assert await committed(room, "g") == {0: 699}


async def test_who_hangs_up_before_is_no_matter(room: Room) -> None:
    room.store.append_gate.shut()
    writing = room.ask("g", commit(7))
    await settle()
    writing.cancel()
    await room.clock.run(TIMEOUT_MS + BUCKET_MS)
    room.store.append_gate.let_go()
    await settle()
    assert await committed(room, "g") == {0: 7}


async def test_appends_that_each_return_in_time_add_up_for_nobody(room: Room) -> None:
    room.store.append_gate.shut()
    room.ask("g", commit(1))
    await settle()
    second = room.ask("g", commit(2))
    for _ in range(2):
        await room.clock.run(TIMEOUT_MS - 1_000)
        room.store.append_gate.let_one_by()
        await settle()
    check_late(second.result())
    room.store.append_gate.let_go()
    await settle()
    assert await committed(room, "g") == {0: 2}


async def test_a_change_of_the_registry_is_answered_in_time_and_counts(room: Room) -> None:
    room.store.append_gate.shut()
    putting = room.begin(room.service.put_topic("clicks", m.PutTopicRequest(partitions=3)))
    await settle()
    deleting = room.begin(room.service.delete_topic("views"))
    await room.clock.run(TIMEOUT_MS + BUCKET_MS)
    check_late(putting.result())
    check_late(deleting.result())
    assert room.service.condition().append_age_ms >= TIMEOUT_MS
    room.store.append_gate.let_go()
    await settle()
    listed = room.service.list_topics()
    assert isinstance(listed, m.ListTopicsAnswer)
    assert [topic.topic for topic in listed.topics] == ["clicks"]


async def test_describe_waits_no_longer_either(room: Room) -> None:
    room.store.append_gate.shut()
    room.ask("g", commit(1))
    await settle()
    described = room.ask("g", DESCRIBE)
    await room.clock.run(TIMEOUT_MS + BUCKET_MS)
    assert code(described.result()) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    room.store.append_gate.let_go()
    await settle()
