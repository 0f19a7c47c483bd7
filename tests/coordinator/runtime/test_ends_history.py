"""A reset to a time through the service: the history is stored, comes back with a restart, and goes with the topic."""

from rallypoint.coordinator.core.records import EndsHistoryRecord
from rallypoint.coordinator.storage.codec import decode
from rallypoint.coordinator.storage.contract import REGISTRY_KEYSPACE
from rallypoint.coordinator.storage.memory import MemoryContents
from rallypoint.protocol import admin_messages as admin
from rallypoint.protocol import messages as m
from rallypoint.protocol.errors import ErrorCode
from tests.fakes.manual_clock import ManualClock
from tests.fakes.service_harness import ServiceHarness, commit


def stored(contents: MemoryContents) -> list[EndsHistoryRecord]:
    records = [decode(key, value) for key, value in contents.keyspace(REGISTRY_KEYSPACE).values.items()]
    return [record for record in records if isinstance(record, EndsHistoryRecord)]


async def report(harness: ServiceHarness, end: int) -> None:
    answer = await harness.service.put_topic("clicks", m.PutTopicRequest(partitions=2, end_offsets={0: end}))
    assert isinstance(answer, m.Topic)


async def put(harness: ServiceHarness, at_ms: int) -> admin.PartitionReset:
    request = admin.ResetOffsetsRequest(to="time", at_ms=at_ms, topics={"clicks": (0,)}, dry_run=True)
    answer = await harness.now("g", request)
    assert isinstance(answer, admin.ResetOffsetsAnswer)
    return answer.offsets["clicks"][0]


async def test_it_is_stored_with_the_report_and_there_after_a_restart() -> None:
    contents = MemoryContents()
    harness = await ServiceHarness(contents).start()
    await report(harness, 10)
    first_ms = harness.clock.now_ms()
    await harness.clock.run(120_000)
    await report(harness, 50)
    assert isinstance(await harness.now("g", commit(1)), m.CommitAnswer)
    assert (await put(harness, first_ms + 60_000)).after == 10
    await harness.service.drain()
    again = await ServiceHarness(contents).start()
    found = await put(again, first_ms + 60_000)
    assert (found.after, found.at_ms) == (10, first_ms)
    assert (await put(again, first_ms - 1)).error_code == ErrorCode.OFFSET_NOT_AVAILABLE
    await again.service.delete_topic("clicks")
    assert stored(contents) == []
    assert (await put(again, first_ms + 60_000)).error_code == ErrorCode.OFFSET_NOT_AVAILABLE
    await again.service.drain()


async def test_it_has_the_wall_clock_s_times_which_the_service_s_own_clock_is_behind_after_a_stall() -> None:
    clock, stall_ms = ManualClock(), 3_600_000
    harness = await ServiceHarness(clock=clock, wall_ms=lambda: clock.now_ms() + stall_ms).start()
    assert isinstance(await harness.now("g", commit(1)), m.CommitAnswer)
    reported_ms = clock.now_ms() + stall_ms
    await report(harness, 50)
    found = await put(harness, reported_ms)
    assert (found.after, found.at_ms) == (50, reported_ms)
    before = await put(harness, reported_ms - 1)
    assert before.error_code == ErrorCode.OFFSET_NOT_AVAILABLE, "records up to 50 may be younger than that"
    await harness.service.drain()


async def test_one_that_is_damaged_keeps_no_topic_from_being_served() -> None:
    contents = MemoryContents()
    harness = await ServiceHarness(contents).start()
    await report(harness, 10)
    await harness.service.drain()
    contents.keyspace(REGISTRY_KEYSPACE).values[b"e/clicks"] = b'{"v":1,"reported_at_ms":[5],"ends":[]}'
    again = await ServiceHarness(contents).start()
    topics = again.service.list_topics()
    assert isinstance(topics, m.ListTopicsAnswer)
    assert [topic.topic for topic in topics.topics] == ["clicks"]
    await report(again, 11)
    assert [record.ends for record in stored(contents)] == [({0: 11},)]
    await again.service.drain()
