"""Groups of many committed offsets: what is done to all of them is done in parts, and nothing comes between these."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from rallypoint.coordinator.core import deletion
from rallypoint.coordinator.core.commands import DeleteGroupRequest
from rallypoint.coordinator.core.deletion import DELETED_AT_ONCE_MAX
from rallypoint.coordinator.core.effects import Failure, LargeDeletion, OffsetsRemoved
from rallypoint.coordinator.runtime.contract import NodeCapacity
from rallypoint.protocol import admin_messages as admin
from rallypoint.protocol import messages as m
from rallypoint.protocol.errors import ErrorCode
from rallypoint.protocol.limits import REQUEST_PARTITIONS_MAX
from tests.fakes.manual_clock import settle
from tests.fakes.service_harness import ServiceHarness, code, commit

TIMEOUT_MS = NodeCapacity().storage_append_timeout_ms
COUNT = 2 * DELETED_AT_ONCE_MAX + 7


@pytest.fixture
async def harness() -> ServiceHarness:
    harness = await ServiceHarness().start()
    await fill(harness)
    return harness


async def fill(harness: ServiceHarness) -> None:
    for first in range(0, COUNT, REQUEST_PARTITIONS_MAX):
        some = range(first, min(COUNT, first + REQUEST_PARTITIONS_MAX))
        offsets = {partition: m.OffsetCommit(offset=partition) for partition in some}
        committing = harness.ask("g", m.CommitRequest(generation_id=-1, offsets={"clicks": offsets, "other": offsets}))
        await done(committing)
        assert isinstance(answer := committing.result(), m.CommitAnswer), answer


async def done(*tasks: "asyncio.Task[Any]") -> None:
    """Each part is encoded and stored in many turns."""
    for _ in range(20):
        await settle()
    assert all(task.done() for task in tasks)


async def turns(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


def removed(harness: ServiceHarness) -> Iterator[int]:
    for event in harness.watcher.events:
        if isinstance(event, OffsetsRemoved):
            yield len(event.partitions)


async def fetched(harness: ServiceHarness) -> dict[str, int]:
    answer = await harness.now("g", m.FetchRequest())
    assert isinstance(answer, m.FetchAnswer), answer
    return {topic: len(partitions) for topic, partitions in answer.offsets.items()}


async def test_a_group_is_deleted_in_parts_and_nobody_sees_half_of_it(harness: ServiceHarness) -> None:
    deleting = harness.ask("g", DeleteGroupRequest())
    seeing = harness.ask("g", m.FetchRequest())
    committing = harness.ask("g", commit(5))
    await done(deleting, seeing, committing)
    assert isinstance(deleting.result(), admin.DeletedGroup)
    assert isinstance(seen := seeing.result(), m.FetchAnswer)
    assert seen.offsets == {}
    assert isinstance(committing.result(), m.CommitAnswer)
    assert await fetched(harness) == {"clicks": 1}
    assert max(removed(harness)) == DELETED_AT_ONCE_MAX
    again = await ServiceHarness(harness.contents).start()
    assert await fetched(again) == {"clicks": 1}


@pytest.mark.parametrize("request_", [DeleteGroupRequest(), admin.DeleteOffsetsRequest(topics=("clicks", "other"))])
async def test_a_deletion_is_late_only_where_one_of_its_parts_is(
    harness: ServiceHarness, request_: DeleteGroupRequest | admin.DeleteOffsetsRequest
) -> None:
    harness.store.append_gate.shut()
    deleting = harness.ask("g", request_)
    behind = harness.ask("g", m.FetchRequest())
    await done()
    for _ in range(3):
        await harness.clock.run(TIMEOUT_MS - 1_000)
        assert not deleting.done()
        harness.store.append_gate.let_one_by()
        await done()
    assert code(behind.result()) is ErrorCode.COORDINATOR_NOT_AVAILABLE, "it is no part of that, and has its own time"
    await harness.clock.run(TIMEOUT_MS - 1_000)
    assert not deleting.done()
    await harness.clock.run(2_000)
    assert isinstance(answer := deleting.result(), Failure)
    assert answer.limit_name == "storage_append_timeout_ms"
    harness.store.append_gate.let_go()
    await done()
    assert await fetched(harness) == {}
    harness.assert_nothing_waits()


async def test_a_deletion_whose_parts_take_long_together_is_answered(harness: ServiceHarness) -> None:
    harness.store.append_gate.shut()
    deleting = harness.ask("g", DeleteGroupRequest())
    await done()
    began_ms = harness.clock.now_ms()
    while not deleting.done():
        await harness.clock.run(TIMEOUT_MS - 1_000)
        harness.store.append_gate.let_one_by()
        await done()
    assert isinstance(deleting.result(), admin.DeletedGroup)
    assert harness.clock.now_ms() - began_ms > 3 * TIMEOUT_MS


async def test_the_offsets_of_a_topic_are_deleted_in_parts(harness: ServiceHarness) -> None:
    deleting = harness.ask("g", admin.DeleteOffsetsRequest(topics=("clicks", "none")))
    seeing = harness.ask("g", m.FetchRequest(topics=("clicks",)))
    await done(deleting, seeing)
    answer = deleting.result()
    assert isinstance(answer, LargeDeletion)
    assert {topic: len(results) for topic, results in answer.offsets.items()} == {"clicks": COUNT, "none": 0}
    assert {result.error_code for result in answer.offsets["clicks"].values()} == {ErrorCode.NONE}
    assert isinstance(seen := seeing.result(), m.FetchAnswer)
    assert seen.offsets == {"clicks": {}}
    assert list(removed(harness)) == [DELETED_AT_ONCE_MAX, DELETED_AT_ONCE_MAX, 7]
    assert await fetched(harness) == {"other": COUNT}
    harness.assert_nothing_waits()


async def test_a_deleted_topic_goes_from_the_group_in_parts(harness: ServiceHarness) -> None:
    await harness.service.put_topic("clicks", m.PutTopicRequest(partitions=COUNT))
    assert isinstance(await harness.service.delete_topic("clicks"), m.DeletedTopic)
    await done()
    assert sum(removed(harness)) == COUNT
    assert max(removed(harness)) == DELETED_AT_ONCE_MAX
    assert await fetched(harness) == {"other": COUNT}
    again = await ServiceHarness(harness.contents).start()
    assert await fetched(again) == {"other": COUNT}


async def test_who_hangs_up_in_the_middle_has_asked_all_the_same(harness: ServiceHarness) -> None:
    deleting = harness.ask("g", DeleteGroupRequest())
    await turns(2)
    deleting.cancel()
    await done(deleting)
    assert code(await harness.now("g", DeleteGroupRequest())) is ErrorCode.GROUP_ID_NOT_FOUND
    assert harness.service.parked_calls == 0


async def test_a_stop_in_the_middle_leaves_a_group_that_can_be_deleted_again(harness: ServiceHarness) -> None:
    deleting = harness.ask("g", DeleteGroupRequest())
    await turns(2)
    await harness.service.drain()
    assert code(deleting.result()) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    again = await ServiceHarness(harness.contents).start()
    once_more = again.ask("g", DeleteGroupRequest())
    await done(once_more)
    assert isinstance(once_more.result(), admin.DeletedGroup)
    assert await fetched(again) == {}


def test_a_part_takes_some_milliseconds() -> None:
    assert deletion.DELETED_AT_ONCE_MAX <= 5_000
