"""A call is answered once, whatever else is decided about it; and what one call breaks, no other one feels."""

from typing import Any

from rallypoint.coordinator.core.effects import Failure
from rallypoint.coordinator.runtime.contract import NodeCapacity
from rallypoint.coordinator.runtime.group_executor import Answer, Waiting
from rallypoint.protocol import messages as m
from tests.fakes.manual_clock import settle
from tests.fakes.service_harness import ServiceHarness, commit, committed, join


def asked_by_channel(harness: ServiceHarness, group_id: str, request: Any, heard: list[Answer]) -> None:
    """As a channel asks: who is answered twice has nothing to answer to any more."""
    calls = {"the call": heard}

    def answered(answer: Answer) -> None:
        calls.pop("the call").append(answer)

    waiting = harness.service.ask(group_id, request, host="192.0.2.1", connection=None)
    assert isinstance(waiting, Waiting)
    waiting.on_answer = answered


def neighbours(harness: ServiceHarness, count: int) -> list[str]:
    """Groups of one shard."""
    names = [f"g{number}" for number in range(100)]
    return [name for name in names if harness.service._shard_of(name) == harness.service._shard_of("g0")][:count]


async def test_who_may_not_wait_is_answered_once_and_a_bystander_of_the_append_is_answered_too() -> None:
    harness = await ServiceHarness(capacity=NodeCapacity(parked_calls_max=0)).start()
    group, first, bystander = neighbours(harness, 3)
    ids = [await harness.new_id(group, name) for name in "ab"]
    harness.store.append_gate.shut()
    harness.ask(first, commit(1))
    await settle()
    # Behind it goes one append with a write of each, and behind that one with what the two have waited with: in the
    # group a slot and two joins, stepped in one go, so that the first two are answered in the step of the third.
    harness.ask(group, commit(1, ids[0], 0))
    harness.ask(bystander, commit(6))
    await settle()
    heard: list[list[Answer]] = [[], [], []]
    asked_by_channel(harness, group, join("z", "", group_instance_id="slot"), heard[0])
    for member_id, of_member in zip(ids, heard[1:], strict=True):
        asked_by_channel(harness, group, join("x", member_id), of_member)
    other = harness.ask(bystander, commit(7))
    await settle()
    assert harness.store.append_gate.waiting == 1
    harness.store.append_gate.let_go()
    await settle()
    assert other.done(), "whoever was stored in the same append is answered"
    assert isinstance(other.result(), m.CommitAnswer)
    assert [len(answers) for answers in heard] == [1, 1, 1]
    assert [type(answers[0]) for answers in heard] == [Failure, Failure, m.JoinAnswer]
    assert await committed(harness, bystander) == {0: 7}
    assert isinstance(await harness.now(bystander, commit(8)), m.CommitAnswer)
    harness.assert_nothing_waits()
