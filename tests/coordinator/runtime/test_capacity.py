"""How much a node takes on: groups, calls that wait, a flood; and that no call meets an executor that has ended."""

import asyncio

import pytest

from rallypoint.coordinator.core.commands import Rules
from rallypoint.coordinator.core.effects import Failure
from rallypoint.coordinator.runtime.contract import NodeCapacity
from rallypoint.protocol import admin_messages as admin
from rallypoint.protocol import messages as m
from rallypoint.protocol.errors import ErrorCode
from tests.fakes.faulty_store import Fault
from tests.fakes.manual_clock import settle
from tests.fakes.service_harness import DESCRIBE, RULES, ServiceHarness, code, commit, committed, heartbeat, join, sync


def check_throttled(answer: object, setting: str, limit: int) -> None:
    assert isinstance(answer, Failure), answer
    assert (answer.code, answer.limit_name, answer.limit) == (ErrorCode.THROTTLING_QUOTA_EXCEEDED, setting, limit)


# --- groups ----------------------------------------------------------------------------------------------------------


async def test_a_node_makes_so_many_groups_and_those_that_are_there_go_on() -> None:
    harness = await ServiceHarness(capacity=NodeCapacity(groups_max=2)).start()
    await harness.now("a", commit(1))
    await harness.now("b", join("m", ""))
    for request in (commit(1), join("m", ""), join("m", "", group_instance_id="slot")):
        check_throttled(await harness.now("c", request), "groups_max", 2)
    assert set(harness.service.view.summaries) == {"a", "b"}
    assert isinstance(await harness.now("a", commit(2)), m.CommitAnswer)
    assert code(await harness.now("a", join("m", ""))) is ErrorCode.MEMBER_ID_REQUIRED
    for other in (DESCRIBE, heartbeat("m", 1), join("m", "m-1"), m.FetchRequest()):
        answer = await harness.now("c", other)
        assert not isinstance(answer, Failure) or answer.code is not ErrorCode.THROTTLING_QUOTA_EXCEEDED
    harness.service._capacity = NodeCapacity(groups_max=3)
    assert isinstance(await harness.now("c", commit(1)), m.CommitAnswer)


async def test_groups_that_are_being_made_count() -> None:
    harness = await ServiceHarness(capacity=NodeCapacity(groups_max=2)).start()
    harness.store.append_gate.shut()
    tasks = [harness.ask(f"g{number}", commit(1)) for number in range(5)]
    await settle()
    refused = [task.result() for task in tasks if task.done()]
    assert len(refused) == 3
    for answer in refused:
        check_throttled(answer, "groups_max", 2)
    harness.store.append_gate.let_go()
    await settle()
    assert len(harness.service.view.summaries) == 2


async def test_a_store_with_more_groups_than_the_limit_is_served() -> None:
    before = await ServiceHarness().start()
    for number in range(4):
        await before.now(f"g{number}", commit(number))
    await before.service.drain()
    harness = await ServiceHarness(before.contents, capacity=NodeCapacity(groups_max=2)).start()
    assert [await committed(harness, f"g{number}") for number in range(4)] == [{0: number} for number in range(4)]
    check_throttled(await harness.now("more", commit(1)), "groups_max", 2)


# --- calls that wait -------------------------------------------------------------------------------------------------


async def test_so_many_calls_wait_and_what_the_others_said_counts() -> None:
    harness = await ServiceHarness(capacity=NodeCapacity(parked_calls_max=2)).start()
    ids = await harness.form("g", "a", "b", "c")
    held = [harness.ask("g", heartbeat(ids[name], 1, wait_ms=4_000)) for name in ("a", "b")]
    await settle()
    check_throttled(await harness.now("g", heartbeat(ids["c"], 1, wait_ms=4_000)), "parked_calls_max", 2)
    assert harness.service.parked_calls == 2
    executor = next(shard.executors["g"] for shard in harness.service._shards if "g" in shard.executors)
    assert len(executor._group.parked) == len(executor._waiting) == 2, (
        "the pending response of the third is dropped again"
    )
    assert isinstance(await harness.now("g", heartbeat(ids["c"], 1)), m.HeartbeatAnswer), (
        "who does not wait needs no room"
    )
    await harness.clock.run(4_000)
    assert all(isinstance(task.result(), m.HeartbeatAnswer) for task in held)
    harness.assert_nothing_waits()


async def test_a_rebalance_completes_though_nobody_may_wait_for_it() -> None:
    harness = await ServiceHarness(capacity=NodeCapacity(parked_calls_max=0)).start()
    ids = [await harness.new_id("g", name) for name in "abc"]
    for member_id in ids[:2]:
        answer = await harness.now("g", join("x", member_id, request_id=f"of {member_id}"))
        check_throttled(answer, "parked_calls_max", 0)
        assert isinstance(answer, Failure)
        assert answer.member_id == member_id
    done = await harness.now("g", join("x", ids[2], request_id="last"))
    assert isinstance(done, m.JoinAnswer), "whoever comes last need not wait"
    again = await harness.now("g", join("x", ids[0], request_id=f"of {ids[0]}"))
    assert isinstance(again, m.JoinAnswer), "who was refused to wait had joined, and asks again"
    assert len(again.members) == 3
    check_throttled(await harness.now("g", sync(ids[1], 1)), "parked_calls_max", 0)
    shares = tuple(m.SyncAssignment(member_id=member_id) for member_id in ids)
    assert isinstance(await harness.now("g", sync(ids[0], 1, shares)), m.SyncAnswer)
    assert isinstance(await harness.now("g", sync(ids[1], 1)), m.SyncAnswer)
    harness.assert_nothing_waits()


async def test_a_static_join_that_may_not_wait_learns_its_id() -> None:
    harness = await ServiceHarness(rules=Rules(), capacity=NodeCapacity(parked_calls_max=0)).start()
    answer = await harness.now("g", join("x", "", group_instance_id="slot"))
    check_throttled(answer, "parked_calls_max", 0)
    assert isinstance(answer, Failure)
    assert (answer.member_id or "").startswith("slot-")


async def test_a_call_that_may_not_wait_is_answered_once_though_its_answer_was_decided() -> None:
    harness = await ServiceHarness(capacity=NodeCapacity(parked_calls_max=0)).start()
    ids = [await harness.new_id("g", name) for name in "ab"]
    harness.store.append_gate.shut()
    writing = harness.ask("g", commit(1, ids[0], 0))
    first = harness.ask("h", commit(1))
    await settle()
    # Both joins are stepped in one go behind the write, so the first one's answer stands in the second one's step.
    other = harness.ask("g", join("z", "", group_instance_id="slot"))
    joins = [harness.ask("g", join("x", member_id)) for member_id in ids]
    await settle()
    harness.store.append_gate.let_go()
    await settle()
    assert all(task.done() for task in (writing, first, other, *joins))
    harness.assert_nothing_waits()
    described = await harness.now("g", DESCRIBE)
    assert isinstance(described, admin.DescribeAnswer), "the executor has not failed over it"
    assert {member.member_id for member in described.members} > set(ids)


# --- a flood ---------------------------------------------------------------------------------------------------------


async def test_ten_thousand_first_joins_leave_a_bounded_group() -> None:
    harness = await ServiceHarness(
        rules=Rules(group_pending_max=50, group_initial_rebalance_delay_ms=0, group_join_linger_ms=0)
    ).start()
    answers = [await harness.service.call("g", join("x", ""), host="") for _ in range(10_000)]
    codes = [code(answer) for answer in answers]
    assert codes[:50] == [ErrorCode.MEMBER_ID_REQUIRED] * 50
    for answer in answers[50:]:
        check_throttled(answer, "group_pending_max", 50)
    executor = next(shard.executors["g"] for shard in harness.service._shards if "g" in shard.executors)
    assert len(executor._group.pending) == 50
    assert len(executor._timers) == 51, "one for each id, and the look at what has expired"
    await harness.clock.run(10_001)
    assert executor._group.pending == {}
    assert code(await harness.now("g", join("x", ""))) is ErrorCode.MEMBER_ID_REQUIRED


# --- executors that have ended ----------------------------------------------------------------------------------------


async def executor_of_a_shard_that_loads(harness: ServiceHarness) -> tuple[asyncio.Task[None], str]:
    """The service loads, and is held between two pages of the shard that has the groups."""
    harness.store.page_rows = 1
    harness.store.page_gate.shut()
    starting = harness.begin(harness.service.start())
    while not any(shard.executors for shard in harness.service._shards):
        harness.store.page_gate.let_one_by()
        await settle()
    assert not starting.done()
    return starting, next(name for shard in harness.service._shards for name in shard.executors)


async def test_a_executor_that_ends_while_its_shard_loads_is_read_anew_and_never_met() -> None:
    before = await ServiceHarness().start()
    names = [name for name in map(str, range(40)) if before.service._shard_of(name) == 0][:3]
    for name in names:
        await before.now(name, commit(7))
    await before.service.drain()
    harness = ServiceHarness(before.contents)
    starting, name = await executor_of_a_shard_that_loads(harness)
    shard = harness.service._shards[0]
    shard.executors[name]._fail(Failure(ErrorCode.UNKNOWN_SERVER_ERROR, "planted"))
    assert code(await harness.now(name, commit(8))) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    harness.store.page_gate.let_go()
    await settle()
    await starting
    await harness.clock.run(60_000)
    assert [await committed(harness, each) for each in names] == [{0: 7}] * 3, "nothing is lost, and nobody failed"


async def test_a_executor_that_ends_while_its_shard_is_given_up_is_forgotten() -> None:
    harness = await ServiceHarness().start()
    await harness.now("g", commit(1))
    shard = next(shard for shard in harness.service._shards if "g" in shard.executors)
    executor = shard.executors["g"]
    harness.store.faults.append(Fault.NOT_STORED)
    harness.store.append_gate.shut()
    writing = harness.ask("g", commit(2))
    await settle()
    closing = asyncio.create_task(shard.close(Failure(ErrorCode.COORDINATOR_NOT_AVAILABLE, "planted")))
    await asyncio.sleep(0)
    harness.store.append_gate.let_go()
    await settle()
    await closing
    assert code(writing.result()) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert not executor.takes_calls
    assert shard.executors == {}
    assert "g" not in harness.service.view.summaries


@pytest.mark.parametrize("fault", [Fault.NOT_STORED, Fault.NOT_STORED_UNSURE, Fault.FENCED])
async def test_whatever_ends_a_executor_no_call_meets_it(fault: Fault) -> None:
    harness = await ServiceHarness(rules=RULES).start()
    await harness.now("g", commit(1))
    harness.store.faults.append(fault)
    for number in range(2, 60):
        # Asked at every moment of the failure and of the recovery: the assertion of the executor would be raised here.
        harness.ask("g", commit(number))
        await asyncio.sleep(0)
        if number % 10 == 0:
            await harness.clock.run(50)
    await harness.clock.run(120_000)
    assert (await committed(harness, "g"))[0] >= 1
    harness.assert_nothing_waits()
