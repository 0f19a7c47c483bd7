"""A deleted topic's offsets go in every group, whatever fails; the registry remembers it until all have heard."""

from rallypoint.coordinator.core.effects import OffsetsRemoved, Removal
from rallypoint.coordinator.storage.contract import BatchLimits
from rallypoint.coordinator.storage.memory import MemoryContents, MemoryStore
from rallypoint.protocol import messages as m
from rallypoint.protocol.errors import ErrorCode
from rallypoint.protocol.group_hash import shard_of_group
from tests.fakes.faulty_store import Fault
from tests.fakes.manual_clock import settle
from tests.fakes.service_harness import SHARDS, ServiceHarness, code, commit, committed

GROUPS = tuple(f"g{number}" for number in range(12))


async def running(contents: MemoryContents | None = None) -> ServiceHarness:
    """Twelve groups over all shards have committed to the topic."""
    harness = await ServiceHarness(contents).start()
    await harness.service.put_topic("clicks", m.PutTopicRequest(partitions=4, end_offsets={0: 100}))
    for group_id in GROUPS:
        await harness.now(group_id, commit(7))
    assert {shard_of_group(group_id, SHARDS) for group_id in GROUPS} == set(range(SHARDS))
    return harness


async def delete(harness: ServiceHarness) -> None:
    answer = await harness.service.delete_topic("clicks")
    assert isinstance(answer, m.DeletedTopic)
    await settle()


def remembered(harness: ServiceHarness) -> dict[bytes, bytes]:
    values = harness.contents.keyspace("topics").values
    return {key: value for key, value in values.items() if key.startswith(b"x/")}


async def test_all_groups_lose_them_now_and_watchers_and_lag_follow() -> None:
    harness = await running()
    assert harness.service.view.lag("g0") == 93
    await delete(harness)
    gone = [event for event in harness.watcher.events if isinstance(event, OffsetsRemoved)]
    assert sorted(event.group_id for event in gone) == sorted(GROUPS)
    assert {(event.partitions, event.cause) for event in gone} == {((("clicks", 0),), Removal.TOPIC_DELETED)}
    for group_id in GROUPS:
        assert harness.service.view.lag(group_id) is None
        assert await committed(harness, group_id) == {}
    assert not any(
        b"/o/" in key for shard in range(SHARDS) for key in harness.contents.keyspace(f"shard-{shard}").values
    )


async def test_the_registry_forgets_when_all_have_heard_and_its_version_stays() -> None:
    harness = await running()
    await delete(harness)
    assert list(remembered(harness)) == [b"x/clicks"]
    version = harness.service._registry.registry.version
    await harness.clock.run(1_100)
    assert remembered(harness) == {}
    assert harness.service._registry.registry.version == version
    for group_id in GROUPS:
        await harness.now(group_id, commit(8))
    after = await ServiceHarness(harness.contents, clock=harness.clock).start()
    assert [await committed(after, group_id) for group_id in GROUPS] == [{0: 8}] * len(GROUPS)
    await after.service.drain()


async def test_after_a_crash_before_anybody_heard_all_lose_them_at_the_load() -> None:
    harness = await running()
    harness.store.append_gate.shut()
    deleting = harness.begin(harness.service.delete_topic("clicks"))
    await settle()
    harness.store.append_gate.let_one_by()
    # The registry has it; what the groups are about to store never gets there.
    await settle()
    assert deleting.done()
    assert any(b"/o/" in key for shard in range(SHARDS) for key in harness.contents.keyspace(f"shard-{shard}").values)
    after = await ServiceHarness(harness.contents, clock=harness.clock).start()
    assert [await committed(after, group_id) for group_id in GROUPS] == [{}] * len(GROUPS)
    await after.clock.run(1_100)
    assert remembered(after) == {}


async def test_commits_to_the_topic_registered_anew_outlive_every_load() -> None:
    harness = await running()
    await delete(harness)
    await harness.service.put_topic("clicks", m.PutTopicRequest(partitions=4))
    for group_id in GROUPS:
        await harness.now(group_id, commit(9))
    assert remembered(harness)
    for _ in range(2):
        harness = await ServiceHarness(harness.contents, clock=harness.clock).start()
        assert [await committed(harness, group_id) for group_id in GROUPS] == [{0: 9}] * len(GROUPS)


async def test_a_commit_under_way_goes_with_the_others() -> None:
    harness = await running()
    harness.store.append_gate.shut()
    writing = harness.ask("g0", commit(8))
    await settle()
    deleting = harness.begin(harness.service.delete_topic("clicks"))
    await settle()
    harness.store.append_gate.let_go()
    await settle()
    assert isinstance(writing.result(), m.CommitAnswer)
    assert isinstance(deleting.result(), m.DeletedTopic)
    assert await committed(harness, "g0") == {}


async def test_a_group_that_cannot_store_it_is_waited_for() -> None:
    harness = await running()
    harness.store.append_gate.shut()
    deleting = harness.begin(harness.service.delete_topic("clicks"))
    await settle()
    harness.store.append_gate.let_one_by()
    await settle()
    assert deleting.done()
    await harness.clock.run(10_000)
    assert not harness.service._deletions_seen(harness.service._registry.registry.deletions), "nobody's is durable"
    assert remembered(harness)
    harness.store.append_gate.let_go()
    await settle()
    await harness.clock.run(120_000)
    assert remembered(harness) == {}
    assert [await committed(harness, group_id) for group_id in GROUPS] == [{}] * len(GROUPS)


async def test_a_group_whose_append_fails_loses_them_at_its_load() -> None:
    harness = await running()
    harness.store.faults.extend([Fault.NONE, Fault.NOT_STORED, Fault.NOT_STORED])
    await delete(harness)
    assert not harness.store.faults
    await harness.clock.run(10_000)
    assert not any(
        b"/o/" in key for shard in range(SHARDS) for key in harness.contents.keyspace(f"shard-{shard}").values
    )
    assert [await committed(harness, group_id) for group_id in GROUPS] == [{}] * len(GROUPS)
    assert remembered(harness) == {}


async def test_a_shard_that_is_down_is_waited_for_and_loses_them_when_it_is_back() -> None:
    harness = await running()
    lost = shard_of_group("g0", SHARDS)
    harness.store.scan_gate.shut()
    harness.store.faults.append(Fault.FENCED)
    assert code(await harness.now("g0", commit(8))) is ErrorCode.NOT_COORDINATOR
    await delete(harness)
    await harness.clock.run(5_000)
    assert remembered(harness), f"shard {lost} has not heard"
    harness.store.scan_gate.let_go()
    await harness.clock.run(70_000)
    assert await committed(harness, "g0") == {}
    assert remembered(harness) == {}


async def test_more_offsets_than_a_batch_holds_go_in_chunks() -> None:
    store = MemoryStore(limits=BatchLimits(writes_max=10, bytes_max=100_000))
    harness = await ServiceHarness(store=store).start()
    await harness.service.put_topic("clicks", m.PutTopicRequest(partitions=400))
    many = {partition: m.OffsetCommit(offset=1) for partition in range(300)}
    task = harness.ask("g", m.CommitRequest(generation_id=-1, offsets={"clicks": many}))
    for _ in range(20):
        await settle()
    assert isinstance(task.result(), m.CommitAnswer)
    await delete(harness)
    for _ in range(20):
        await settle()
    assert await committed(harness, "g") == {}
    assert max(len(writes) for _, writes in harness.store.appends) == 10


async def test_a_stop_ends_the_looking() -> None:
    harness = await running()
    await delete(harness)
    await harness.service.drain()
    assert harness.clock.planned == 0
