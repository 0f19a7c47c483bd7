"""Changes larger than a batch, on the real executor and both engines: failed at every chunk, and what others see."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

from rallypoint.coordinator.core.effects import Failure, Notify, PartitionsMoved, Reply
from rallypoint.coordinator.core.moves import Move, OwnerNames
from rallypoint.coordinator.core.records import MemberGone, MemberRecord
from rallypoint.coordinator.runtime.group_executor import (
    MEMBERS_PER_EFFECT,
    MOVES_PER_EFFECT,
    RELEASED_AT_ONCE_MAX,
    weight_of_release,
)
from rallypoint.coordinator.storage.codec import decode, group_prefix
from rallypoint.coordinator.storage.contract import BatchLimits, Store, shard_keyspace
from rallypoint.coordinator.storage.memory import MemoryStore
from rallypoint.coordinator.storage.sqlite import SqliteStore
from rallypoint.protocol import admin_messages as admin
from rallypoint.protocol import messages as m
from rallypoint.protocol.errors import ErrorCode
from rallypoint.protocol.group_hash import shard_of_group
from rallypoint.protocol.opaque import EMPTY, OpaqueJson
from tests.fakes.faulty_store import Fault
from tests.fakes.manual_clock import settle
from tests.fakes.service_harness import DESCRIBE, SHARDS, ServiceHarness, code, commit, committed, heartbeat, join, sync

NARROW = BatchLimits(writes_max=4, bytes_max=100_000)
NAMES = tuple(f"m{number}" for number in range(10))
STAYING = NAMES[:4]
CHUNKS = 7
"""Of the change below: 4 members and 6 marks, the header, the 4 older records, and 6 records with their marks."""


@pytest.fixture(params=["memory", "sqlite"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    if request.param == "memory":
        yield MemoryStore(limits=NARROW)
        return
    opened = await SqliteStore.open(tmp_path / "store.db", limits=NARROW)
    yield opened
    await opened.close()


async def rebalance_of(
    harness: ServiceHarness, ids: dict[str, str], names: Sequence[str], what: str
) -> m.SyncAnswer | Failure:
    """The members join, the first of them leads and gives each `what`; the leader's answer."""
    joins = [asyncio.create_task(harness.service.call("g", join(name, ids[name]), host="h")) for name in names]
    joined = [await task for task in joins]
    first = joined[0]
    assert isinstance(first, m.JoinAnswer), first
    assert first.leader == ids[names[0]]
    shares = tuple(m.SyncAssignment(member_id=ids[n], assignment=OpaqueJson.of(f"{what} {n}")) for n in names)
    answer = await harness.service.call("g", sync(first.leader, first.generation_id, shares), host="h")
    assert isinstance(answer, m.SyncAnswer | Failure)
    if isinstance(answer, m.SyncAnswer):
        for name in names[1:]:
            await harness.service.call("g", sync(ids[name], first.generation_id), host="h")
    return answer


async def formed(harness: ServiceHarness) -> dict[str, str]:
    """Ten members in a first generation."""
    ids = {}
    for name in NAMES:
        refused = await harness.service.call("g", join(name, ""), host="h")
        assert isinstance(refused, Failure)
        assert refused.member_id
        ids[name] = refused.member_id
    assert isinstance(await rebalance_of(harness, ids, NAMES, "first"), m.SyncAnswer)
    return ids


async def six_leave(harness: ServiceHarness, ids: dict[str, str]) -> None:
    """And the other four are asked to join again."""
    leaving = tuple(m.LeaveMember(member_id=ids[name]) for name in NAMES if name not in STAYING)
    assert isinstance(await harness.service.call("g", m.LeaveRequest(members=leaving), host="h"), m.LeaveAnswer)


async def shares(harness: ServiceHarness) -> dict[str, str]:
    """Member id to its assignment, as the group describes itself; the group must be there and Stable."""
    answer = await harness.service.call("g", DESCRIBE, host="h")
    for number in range(200):
        if not isinstance(answer, Failure):
            break
        await harness.clock.run(100)
        await asyncio.sleep(0.001 if number < 50 else 0.2)  # SQLite's thread may wait for a processor
        answer = await harness.service.call("g", DESCRIBE, host="h")
    assert isinstance(answer, admin.DescribeAnswer), answer
    assert answer.state == "Stable"
    return {x.member_id: str(x.assignment.value) for x in answer.members if x.assignment is not None}


async def stored_members(store: Store) -> list[str]:
    """Ids in the store, one for each record of a member; whoever had the keyspace is fenced."""
    keyspace = await store.acquire(shard_keyspace(shard_of_group("g", SHARDS)))
    found = [decode(key, value) async for page in keyspace.scan(group_prefix("g")) for key, value in page]
    return sorted(record.member_id for record in found if isinstance(record, MemberRecord | MemberGone))


def given(ids: dict[str, str], names: Sequence[str], what: str) -> dict[str, str]:
    return {ids[name]: f"{what} {name}" for name in names}


@pytest.mark.parametrize("fault", [Fault.NOT_STORED, Fault.NOT_STORED_UNSURE, Fault.STORED_UNSURE, Fault.FENCED])
@pytest.mark.parametrize("at", range(CHUNKS))
async def test_whichever_chunk_fails_the_group_is_the_old_one_or_the_new_and_goes_on(
    store: Store, at: int, fault: Fault
) -> None:
    harness = await ServiceHarness(store=store).start()
    ids = await formed(harness)
    await six_leave(harness, ids)
    before = len(harness.store.appends)
    # The number of the generation is used up first; that append is none of the change's.
    harness.store.faults.extend([Fault.NONE] * (1 + at) + [fault])
    answer = await rebalance_of(harness, ids, STAYING, "second")
    assert not harness.store.faults, "the fault was met"
    assert isinstance(answer, Failure), "nothing is answered before all of it is durable"
    assert answer.code in (ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR)
    assert len(harness.store.appends) >= before + 1 + at
    found = await shares(harness)
    header_at = 2
    old, new = given(ids, NAMES, "first"), given(ids, STAYING, "second")
    is_new = at > header_at or (at == header_at and fault is Fault.STORED_UNSURE)
    assert found == (new if is_new else old)
    # It goes on: no chunk comes back when the next generation is named.
    if not is_new:
        await six_leave(harness, ids)
    assert isinstance(await rebalance_of(harness, ids, STAYING, "third"), m.SyncAnswer)
    assert await shares(harness) == given(ids, STAYING, "third")
    after = await ServiceHarness(store=store, clock=harness.clock).start()
    assert await shares(after) == given(ids, STAYING, "third")
    assert await stored_members(store) == sorted(ids[name] for name in STAYING)


async def test_the_change_has_as_many_chunks_as_the_failures_are_tried_at(store: Store) -> None:
    harness = await ServiceHarness(store=store).start()
    ids = await formed(harness)
    await six_leave(harness, ids)
    harness.store.appends.clear()
    assert isinstance(await rebalance_of(harness, ids, STAYING, "second"), m.SyncAnswer)
    assert len(harness.store.appends) == 1 + CHUNKS
    assert await shares(harness) == given(ids, STAYING, "second")


async def test_an_error_while_sweeping_is_tried_again_before_the_group_serves(store: Store) -> None:
    harness = await ServiceHarness(store=store).start()
    ids = await formed(harness)
    await six_leave(harness, ids)
    harness.store.faults.extend([Fault.NONE] * 3 + [Fault.NOT_STORED] * 3)
    assert isinstance(await rebalance_of(harness, ids, STAYING, "second"), Failure)
    assert await shares(harness) == given(ids, NAMES, "first")
    assert not harness.store.faults
    assert await stored_members(store) == sorted(ids.values())


# --- what others see -------------------------------------------------------------------------------------------------


def many(count: int) -> m.CommitRequest:
    return m.CommitRequest(
        generation_id=-1, offsets={"clicks": {number: m.OffsetCommit(offset=9) for number in range(count)}}
    )


async def narrow_room() -> ServiceHarness:
    return await ServiceHarness(store=MemoryStore(limits=NARROW)).start()


async def test_other_groups_of_the_shard_go_between_the_chunks_and_the_group_itself_waits() -> None:
    harness = await narrow_room()
    other = next(f"x{n}" for n in range(99) if shard_of_group(f"x{n}", SHARDS) == shard_of_group("g", SHARDS))
    await harness.now("g", commit(1))
    await harness.now(other, commit(1))
    harness.store.appends.clear()
    harness.store.append_gate.shut()
    large = harness.ask("g", many(40))
    await settle()
    small = harness.ask(other, commit(2))
    own = harness.ask("g", commit(3))
    for _ in range(3):
        harness.store.append_gate.let_one_by()
        await settle()
    assert isinstance(small.result(), m.CommitAnswer)
    assert not large.done()
    assert not own.done()
    harness.store.append_gate.let_go()
    await settle()
    assert isinstance(large.result(), m.CommitAnswer)
    assert isinstance(own.result(), m.CommitAnswer)
    assert len(harness.store.appends) == 12
    assert (await committed(harness, "g"))[0] == 3
    harness.assert_nothing_waits()


async def test_a_commit_that_failed_half_way_may_show_and_may_be_sent_again() -> None:
    harness = await narrow_room()
    await harness.now("g", commit(1))
    harness.store.faults.extend([Fault.NONE, Fault.NOT_STORED])
    assert code(await harness.now("g", many(12))) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert await committed(harness, "g") == dict.fromkeys(range(4), 9)
    assert isinstance(await harness.now("g", many(12)), m.CommitAnswer)
    assert await committed(harness, "g") == dict.fromkeys(range(12), 9)


async def test_a_stop_waits_for_the_last_chunk_and_tells_the_truth() -> None:
    harness = await narrow_room()
    harness.store.append_gate.shut()
    large = harness.ask("g", many(40))
    await settle()
    stopping = harness.begin(harness.service.drain())
    await settle()
    assert not stopping.done()
    assert not large.done()
    harness.store.append_gate.let_go()
    await settle()
    assert stopping.done()
    assert isinstance(large.result(), m.CommitAnswer)
    harness.assert_nothing_waits()


async def test_a_shard_that_is_lost_between_two_chunks_answers_everyone() -> None:
    harness = await narrow_room()
    harness.store.append_gate.shut()
    large = harness.ask("g", many(40))
    harness.store.faults.extend([Fault.NONE, Fault.FENCED])
    await settle()
    own = harness.ask("g", commit(3))
    await settle()
    harness.store.append_gate.let_go()
    await settle()
    assert code(large.result()) is ErrorCode.NOT_COORDINATOR
    assert code(own.result()) is ErrorCode.NOT_COORDINATOR
    harness.assert_nothing_waits()
    await asyncio.wait_for(harness.service.drain(), 30)


async def test_answers_of_a_large_step_come_in_slices_and_all_of_them() -> None:
    harness = await ServiceHarness().start()
    names = [f"m{number}" for number in range(450)]
    ids = {name: await harness.new_id("g", name) for name in names}
    joins = [harness.ask("g", join(name, ids[name])) for name in names]
    for _ in range(10):
        await settle()
    assert all(isinstance(task.result(), m.JoinAnswer) for task in joins)
    waiting = [harness.ask("g", sync(ids[name], 1)) for name in names[1:]]
    await settle()
    shares = tuple(m.SyncAssignment(member_id=ids[name], assignment=OpaqueJson.of(name)) for name in names)
    leader = harness.ask("g", sync(ids[names[0]], 1, shares))
    done: list[int] = []
    for _ in range(100):
        await asyncio.sleep(0)
        count = sum(task.done() for task in waiting)
        if count and (not done or count != done[-1]):
            done.append(count)
    assert len(done) > 2, "others have their turn between the slices"
    assert isinstance(leader.result(), m.SyncAnswer)
    for name, task in zip(names[1:], waiting, strict=True):
        answer = task.result()
        assert isinstance(answer, m.SyncAnswer)
        assert answer.assignment.value == name
    assert isinstance(await harness.now("g", heartbeat(ids["m3"], 1)), m.HeartbeatAnswer)
    harness.assert_nothing_waits()


async def test_a_stop_in_the_middle_of_the_answers_gives_all_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    harness = await ServiceHarness().start()
    ids = await harness.form("g", *(f"m{number}" for number in range(50)))
    monkeypatch.setattr("rallypoint.coordinator.runtime.group_executor.RELEASED_AT_ONCE_MAX", 2)
    waiting = [harness.ask("g", heartbeat(member_id, 1, wait_ms=4_000)) for member_id in ids.values()]
    await settle()
    leaving = harness.ask("g", m.LeaveRequest(members=(m.LeaveMember(member_id=ids["m49"]),)))
    await leaving
    assert not all(task.done() for task in waiting)
    await harness.service.drain()
    told = [code(task.result()) for task in waiting[:-1]]
    assert set(told) == {ErrorCode.REBALANCE_IN_PROGRESS}
    harness.assert_nothing_waits()


async def test_the_timers_of_a_long_step_do_not_undo_those_of_the_next_one(monkeypatch: pytest.MonkeyPatch) -> None:
    harness = await ServiceHarness().start()
    ids = await harness.form("g", *(f"m{number}" for number in range(10)))
    waiting = [harness.ask("g", heartbeat(member_id, 1, wait_ms=4_000)) for member_id in ids.values()]
    await settle()
    monkeypatch.setattr("rallypoint.coordinator.runtime.group_executor.RELEASED_AT_ONCE_MAX", 5)
    harness.store.append_gate.shut()
    first = harness.ask("g", commit(1, ids["m1"], 1))
    await settle()
    leaving = [harness.ask("g", m.LeaveRequest(members=(m.LeaveMember(member_id=ids[name]),))) for name in ("m8", "m9")]
    await settle()
    harness.store.append_gate.let_go()
    await asyncio.gather(first, *leaving, *waiting)
    await settle()
    executor = next(shard.executors["g"] for shard in harness.service._shards if "g" in shard.executors)
    assert {key.subject for key in executor._timers if key.kind == "session"} == {*ids.values()} - {
        ids["m8"],
        ids["m9"],
    }
    assert not [key for key in executor._timers if key.kind == "call"]


async def test_a_stop_gives_the_answers_that_are_not_made_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rallypoint.coordinator.core.decision.MADE_AT_ONCE_MAX", 2)
    monkeypatch.setattr("rallypoint.coordinator.runtime.group_executor.MADE_AT_ONCE_MAX", 2)
    harness = await ServiceHarness().start()
    names = [f"m{number}" for number in range(30)]
    ids = await harness.form("g", *names)
    monkeypatch.setattr("rallypoint.coordinator.runtime.group_executor.RELEASED_AT_ONCE_MAX", 4)
    for name, member_id in ids.items():
        harness.ask("g", join(name, member_id))
    await settle()
    waiting = [harness.ask("g", sync(ids[name], 2)) for name in names[1:]]
    await settle()
    given = tuple(m.SyncAssignment(member_id=ids[name], assignment=OpaqueJson.of(name)) for name in names)
    leading = harness.ask("g", sync(ids["m0"], 2, given))
    await leading
    assert not all(task.done() for task in waiting)
    await harness.service.drain()
    answers = [task.result() for task in waiting]
    assert [answer.assignment.value for answer in answers if isinstance(answer, m.SyncAnswer)] == names[1:]
    harness.assert_nothing_waits()


def test_effects_that_are_much_fill_a_slice_by_themselves() -> None:
    names = OwnerNames("m", None, "c", "h")
    moves = tuple(Move("t", (number,), None, names) for number in range(MOVES_PER_EFFECT * RELEASED_AT_ONCE_MAX))
    assert weight_of_release(Notify(PartitionsMoved("g", 1, 1, moves, len(moves)))) > RELEASED_AT_ONCE_MAX
    member = m.JoinedMember(member_id="m", group_instance_id=None, metadata=EMPTY)
    answer = m.JoinAnswer(
        generation_id=1, protocol_type="consumer", protocol_name="range", leader="m", member_id="m",
        members=(member,) * (MEMBERS_PER_EFFECT * RELEASED_AT_ONCE_MAX), heartbeat_interval_ms=3_000,
    )  # fmt: skip
    assert weight_of_release(Reply(1, answer)) > RELEASED_AT_ONCE_MAX
    assert weight_of_release(Reply(1, answer.model_copy(update={"members": ()}))) == 1
    assert weight_of_release(Notify(PartitionsMoved("g", 1, 1, moves[:1], 1))) == 1
