"""A deleted topic's offsets go in every group, whatever fails; the registry remembers it until all have heard."""

from rallypoint.coordinator.core.effects import OffsetsRemoved, Removal
from rallypoint.coordinator.storage.contract import BatchLimits
from rallypoint.coordinator.storage.memory import MemoryContents, MemoryStore
from rallypoint.protocol import messages as m
from rallypoint.protocol.errors import ErrorCode
from rallypoint.protocol.group_hash import shard_of_group
from tests.fakes.faulty_store import Fault
from tests.fakes.manual_clock import settle
from tests.fakes.room import SHARDS, Room, code, commit, committed

GROUPS = tuple(f"g{number}" for number in range(12))


async def running(contents: MemoryContents | None = None) -> Room:
    """Twelve groups over all shards have committed to the topic."""
    room = await Room(contents).start()
    await room.service.put_topic("clicks", m.PutTopicRequest(partitions=4, end_offsets={0: 100}))
    for group_id in GROUPS:
        await room.now(group_id, commit(7))
    assert {shard_of_group(group_id, SHARDS) for group_id in GROUPS} == set(range(SHARDS))
    return room


async def delete(room: Room) -> None:
    answer = await room.service.delete_topic("clicks")
    assert isinstance(answer, m.DeletedTopic)
    await settle()


def remembered(room: Room) -> dict[bytes, bytes]:
    values = room.contents.keyspace("topics").values
    return {key: value for key, value in values.items() if key.startswith(b"x/")}


async def test_all_groups_lose_them_now_and_watchers_and_lag_follow() -> None:
    room = await running()
    assert room.service.view.lag("g0") == 93
    await delete(room)
    gone = [event for event in room.watcher.events if isinstance(event, OffsetsRemoved)]
    assert sorted(event.group_id for event in gone) == sorted(GROUPS)
    assert {(event.partitions, event.cause) for event in gone} == {((("clicks", 0),), Removal.TOPIC_DELETED)}
    for group_id in GROUPS:
        assert room.service.view.lag(group_id) is None
        assert await committed(room, group_id) == {}
    assert not any(b"/o/" in key for shard in range(SHARDS) for key in room.contents.keyspace(f"shard-{shard}").values)


async def test_the_registry_forgets_when_all_have_heard_and_its_version_stays() -> None:
    room = await running()
    await delete(room)
    assert list(remembered(room)) == [b"x/clicks"]
    version = room.service._registry.registry.version
    await room.clock.run(1_100)
    assert remembered(room) == {}
    assert room.service._registry.registry.version == version
    for group_id in GROUPS:
        await room.now(group_id, commit(8))
    after = await Room(room.contents, clock=room.clock).start()
    assert [await committed(after, group_id) for group_id in GROUPS] == [{0: 8}] * len(GROUPS)
    await after.service.drain()


async def test_after_a_crash_before_anybody_heard_all_lose_them_at_the_load() -> None:
    room = await running()
    room.store.append_gate.shut()
    deleting = room.begin(room.service.delete_topic("clicks"))
    await settle()
    room.store.append_gate.let_one_by()
    # The registry has it; what the groups are about to store never gets there.
    await settle()
    assert deleting.done()
    assert any(b"/o/" in key for shard in range(SHARDS) for key in room.contents.keyspace(f"shard-{shard}").values)
    after = await Room(room.contents, clock=room.clock).start()
    assert [await committed(after, group_id) for group_id in GROUPS] == [{}] * len(GROUPS)
    await after.clock.run(1_100)
    assert remembered(after) == {}


async def test_commits_to_the_topic_registered_anew_outlive_every_load() -> None:
    room = await running()
    await delete(room)
    await room.service.put_topic("clicks", m.PutTopicRequest(partitions=4))
    for group_id in GROUPS:
        await room.now(group_id, commit(9))
    assert remembered(room)
    for _ in range(2):
        room = await Room(room.contents, clock=room.clock).start()
        assert [await committed(room, group_id) for group_id in GROUPS] == [{0: 9}] * len(GROUPS)


async def test_a_commit_under_way_goes_with_the_others() -> None:
    room = await running()
    room.store.append_gate.shut()
    writing = room.ask("g0", commit(8))
    await settle()
    deleting = room.begin(room.service.delete_topic("clicks"))
    await settle()
    room.store.append_gate.let_go()
    await settle()
    assert isinstance(writing.result(), m.CommitAnswer)
    assert isinstance(deleting.result(), m.DeletedTopic)
    assert await committed(room, "g0") == {}


async def test_a_group_that_cannot_store_it_is_waited_for() -> None:
    room = await running()
    room.store.append_gate.shut()
    deleting = room.begin(room.service.delete_topic("clicks"))
    await settle()
    room.store.append_gate.let_one_by()
    await settle()
    assert deleting.done()
    await room.clock.run(10_000)
    assert not room.service._deletions_seen(room.service._registry.registry.deletions), "nobody's is durable"
    assert remembered(room)
    room.store.append_gate.let_go()
    await settle()
    await room.clock.run(120_000)
    assert remembered(room) == {}
    assert [await committed(room, group_id) for group_id in GROUPS] == [{}] * len(GROUPS)


async def test_a_group_whose_append_fails_loses_them_at_its_load() -> None:
    room = await running()
    room.store.faults.extend([Fault.NONE, Fault.NOT_STORED, Fault.NOT_STORED])
    await delete(room)
    assert not room.store.faults
    await room.clock.run(10_000)
    assert not any(b"/o/" in key for shard in range(SHARDS) for key in room.contents.keyspace(f"shard-{shard}").values)
    assert [await committed(room, group_id) for group_id in GROUPS] == [{}] * len(GROUPS)
    assert remembered(room) == {}


async def test_a_shard_that_is_down_is_waited_for_and_loses_them_when_it_is_back() -> None:
    room = await running()
    lost = shard_of_group("g0", SHARDS)
    room.store.scan_gate.shut()
    room.store.faults.append(Fault.FENCED)
    assert code(await room.now("g0", commit(8))) is ErrorCode.NOT_COORDINATOR
    await delete(room)
    await room.clock.run(5_000)
    assert remembered(room), f"shard {lost} has not heard"
    room.store.scan_gate.let_go()
    await room.clock.run(70_000)
    assert await committed(room, "g0") == {}
    assert remembered(room) == {}


async def test_more_offsets_than_a_batch_holds_go_in_chunks() -> None:
    store = MemoryStore(limits=BatchLimits(writes_max=10, bytes_max=100_000))
    room = await Room(store=store).start()
    await room.service.put_topic("clicks", m.PutTopicRequest(partitions=400))
    many = {partition: m.OffsetCommit(offset=1) for partition in range(300)}
    task = room.ask("g", m.CommitRequest(generation_id=-1, offsets={"clicks": many}))
    for _ in range(20):
        await settle()
    assert isinstance(task.result(), m.CommitAnswer)
    await delete(room)
    for _ in range(20):
        await settle()
    assert await committed(room, "g") == {}
    assert max(len(writes) for _, writes in room.store.appends) == 10


async def test_a_stop_ends_the_looking() -> None:
    room = await running()
    await delete(room)
    await room.service.drain()
    assert room.clock.planned == 0
