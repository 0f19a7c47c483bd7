"""However many calls wait for groups that end, or batches for one append, each turn of the loop has its share."""

import asyncio
from dataclasses import replace

import pytest

from rallypoint.coordinator.core.effects import Failure, GroupAnswer
from rallypoint.coordinator.runtime.appends.writer import SETTLED_AT_ONCE_MAX, Writer
from rallypoint.coordinator.runtime.event_loop.ended_calls import ENDED_AT_ONCE_MAX, EndedCalls
from rallypoint.coordinator.runtime.group_executor import RELEASED_AT_ONCE_MAX, Waiting
from rallypoint.coordinator.storage.contract import StorageError, Write, shard_keyspace
from rallypoint.coordinator.storage.memory import MemoryStore
from rallypoint.protocol import admin_messages as admin
from rallypoint.protocol import messages as m
from rallypoint.protocol.errors import ErrorCode
from tests.fakes.faulty_store import Fault
from tests.fakes.manual_clock import settle
from tests.fakes.service_harness import RULES, ServiceHarness, commit, join

DELAY_MS = 10_000
COUNT = 3 * ENDED_AT_ONCE_MAX + 7


class Answers:
    """What is answered, and how much of it at most in one turn of the loop."""

    def __init__(self) -> None:
        self.given: list[GroupAnswer | Failure] = []
        self.most = 0

    def wait_for(self, harness: ServiceHarness, group_id: str, request: m.JoinRequest) -> None:
        waiting = harness.service.ask(group_id, request, host="h", connection=None)
        assert isinstance(waiting, Waiting), waiting
        waiting.on_answer = self.given.append

    async def until(self, task: "asyncio.Task[None]") -> None:
        before = len(self.given)
        while not task.done():
            await asyncio.sleep(0)
            self.most = max(self.most, len(self.given) - before)
            before = len(self.given)
        await task


async def crowd(group_ids: list[str]) -> tuple[ServiceHarness, Answers]:
    """As many members as that, in turns in one of the groups; each waits for its first generation."""
    harness = await ServiceHarness(rules=replace(RULES, group_initial_rebalance_delay_ms=DELAY_MS)).start()
    answers = Answers()
    for number in range(COUNT):
        name = f"m{number}"
        answers.wait_for(
            harness,
            group_ids[number % len(group_ids)],
            join(name, "", group_instance_id=name, rebalance_timeout_ms=DELAY_MS),
        )
    await settle()
    assert (harness.service.parked_calls, answers.given) == (COUNT, [])
    return harness, answers


async def test_each_turn_settles_some_in_their_order_whatever_becomes_of_one() -> None:
    ended_calls, settled, most = EndedCalls(), list[int](), 0
    for number in range(COUNT):
        ended_calls.add(lambda number=number: settled.append(number // (number % 100)))  # type: ignore[misc]
    finishing = asyncio.create_task(ended_calls.finish())
    assert len(settled) == ENDED_AT_ONCE_MAX - 2, "two of them met a fault"
    while not finishing.done():
        before = len(settled)
        await asyncio.sleep(0)
        most = max(most, len(settled) - before)
    await finishing
    assert most <= ENDED_AT_ONCE_MAX
    assert settled == [number // (number % 100) for number in range(COUNT) if number % 100]


@pytest.mark.parametrize("group_ids", [["g"], [f"g{number}" for number in range(40)]], ids=["one group", "many"])
async def test_a_drain_answers_everyone_that_waits_some_at_a_time(group_ids: list[str]) -> None:
    harness, answers = await crowd(group_ids)
    await answers.until(harness.begin(harness.service.drain()))
    assert [type(answer) for answer in answers.given] == [Failure] * COUNT
    assert 0 < answers.most <= ENDED_AT_ONCE_MAX
    harness.assert_nothing_waits()


async def test_a_shard_that_is_lost_answers_everyone_that_waits_some_at_a_time() -> None:
    harness, answers = await crowd(["g"])
    harness.store.faults.append(Fault.NOT_STORED_UNSURE)
    failing = harness.ask("g", admin.CooldownRequest(cooldown_ms=500))
    await answers.until(harness.begin(settle()))
    assert isinstance(failing.result(), Failure)
    assert [type(answer) for answer in answers.given] == [Failure] * COUNT
    assert 0 < answers.most <= ENDED_AT_ONCE_MAX
    harness.assert_nothing_waits()


@pytest.mark.parametrize("turns", [0, 3, 4, 5])
async def test_a_drain_lets_out_what_is_durable_in_its_slices(turns: int) -> None:
    """The phase has ended: whom its step answers gets that answer, at whatever turn of the loop the drain comes."""
    harness, answers = await crowd(["g"])
    harness.store.append_gate.shut()
    await harness.clock.run(DELAY_MS)
    await settle()
    answers.wait_for(harness, "g", join("late", "", group_instance_id="late"))
    harness.store.append_gate.let_go()
    for _ in range(turns):
        await asyncio.sleep(0)
    await answers.until(harness.begin(harness.service.drain()))
    assert sum(isinstance(answer, m.JoinAnswer) for answer in answers.given) == COUNT
    assert sum(isinstance(answer, Failure) for answer in answers.given) == 1
    assert 0 < answers.most <= RELEASED_AT_ONCE_MAX
    harness.assert_nothing_waits()


class CountedBatch:
    """A batch that counts itself when it is settled."""

    def __init__(self, number: int, settled: list[int]) -> None:
        self.writes = (Write(b"g/%d" % number, b""),)
        self.size_bytes = 1
        self._number = number
        self._answered = settled

    def settle(self, error: StorageError | None) -> None:
        assert error is None
        self._answered.append(self._number)

    def give_up(self) -> None:
        raise AssertionError("it meets no fault")


async def test_the_batches_of_one_append_are_settled_some_at_a_time() -> None:
    """After an append that took seconds, those of thousands of groups are waiting."""
    settled: list[int] = []
    writer = Writer(await MemoryStore().acquire(shard_keyspace(0)), lambda error: None, lambda: 0)
    for number in range(3 * SETTLED_AT_ONCE_MAX + 7):
        writer.submit(CountedBatch(number, settled))
    finishing, most = asyncio.create_task(writer.finish()), 0
    while not finishing.done():
        before = len(settled)
        await asyncio.sleep(0)
        most = max(most, len(settled) - before)
    assert (most, settled) == (SETTLED_AT_ONCE_MAX, list(range(3 * SETTLED_AT_ONCE_MAX + 7)))


async def test_a_group_that_failed_takes_calls_again_while_the_old_ones_are_still_told() -> None:
    harness, answers = await crowd(["g"])
    harness.store.faults.append(Fault.NOT_STORED)
    failing = harness.ask("g", admin.CooldownRequest(cooldown_ms=500))
    await answers.until(harness.begin(settle()))
    assert isinstance(failing.result(), Failure)
    assert all(isinstance(answer, Failure) and answer.code is not ErrorCode.NONE for answer in answers.given)
    assert len(answers.given) == COUNT
    assert answers.most <= ENDED_AT_ONCE_MAX
    assert isinstance(await harness.now("g", commit(7)), m.CommitAnswer)
    harness.assert_nothing_waits()
