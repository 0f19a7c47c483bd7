"""A topic whose record is damaged is neither gone nor changed, and everything else is served."""

import json
from contextlib import suppress

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rallypoint.coordinator.core.effects import Failure, RebalanceBegan
from rallypoint.coordinator.runtime.condition import why_not_ready
from rallypoint.coordinator.storage.contract import REGISTRY_KEYSPACE, StoredDataInvalid
from rallypoint.coordinator.storage.memory import MemoryContents
from rallypoint.protocol import admin_messages as admin
from rallypoint.protocol import messages as m
from rallypoint.protocol.errors import ErrorCode
from tests.coordinator.runtime.test_connection_registry import Channel
from tests.fakes.faulty_store import Fault
from tests.fakes.service_harness import DESCRIBE, ServiceHarness, code, commit, committed, heartbeat, join, sync
from tests.sizes import by_size

CLICKS = b"t/clicks"


@pytest.fixture
async def before() -> ServiceHarness:
    """Two topics, a deleted one that a group has not heard of, and a group that reads the first."""
    harness = await ServiceHarness().start()
    await put(harness, "clicks", 3)
    await put(harness, "orders", 5)
    await put(harness, "gone", 1)
    await harness.form("g", "a", "b")
    await harness.service.delete_topic("gone")
    return harness


async def put(harness: ServiceHarness, topic: str, partitions: int) -> m.Topic | Failure:
    return await harness.service.put_topic(topic, m.PutTopicRequest(partitions=partitions))


def registry(contents: MemoryContents) -> dict[bytes, bytes]:
    return contents.keyspace(REGISTRY_KEYSPACE).values


async def restarted(before: ServiceHarness, key: bytes, value: bytes | None) -> ServiceHarness:
    """The service again, over a store in which that record is another one."""
    await before.service.drain()
    if value is None:
        del registry(before.contents)[key]
    else:
        registry(before.contents)[key] = value
    return await ServiceHarness(before.contents, clock=before.clock).start()


DAMAGES = (
    b"",
    b"{}",
    b"\xff",
    b'{"v":2,"partitions":3,"version":1,"end_offsets":{}}',
    b'{"v":1,"partitions":0,"version":1,"end_offsets":{}}',
    b'{"v":1,"partitions":-3,"version":1,"end_offsets":{}}',
    b'{"v":1,"partitions":3,"version":99,"end_offsets":{}}',
    b'{"v":1,"partitions":3,"version":0,"end_offsets":{}}',
    b'{"v":1,"partitions":3,"version":1,"end_offsets":{"3":7}}',
    b'{"v":1,"partitions":3,"version":1,"end_offsets":{},"replica_racks":[["a"]]}',
)


@pytest.mark.parametrize("damage", DAMAGES)
async def test_a_damaged_topic_is_not_gone(
    before: ServiceHarness, damage: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    harness = await restarted(before, CLICKS, damage)
    await harness.clock.run(5_000)
    described = await harness.now("g", DESCRIBE)
    assert isinstance(described, admin.DescribeAnswer)
    assert (described.state, described.generation_id) == ("Stable", 1), "nothing has changed for its group"
    assert not [event for event in harness.watcher.events if isinstance(event, RebalanceBegan)]
    condition = harness.service.condition()
    assert (condition.unreadable_topics, condition.stray_records, why_not_ready(condition)) == (1, 0, None)
    assert sum(repr(CLICKS) in line.getMessage() for line in caplog.records) == 1
    assert registry(harness.contents)[CLICKS] == damage
    refused = harness.service.list_topics()
    assert isinstance(refused, Failure)
    assert (refused.code, "'clicks'" in refused.detail) == (ErrorCode.COORDINATOR_NOT_AVAILABLE, True)
    for request, topics in (
        (m.ListTopicsRequest(prefix="o"), ["orders"]),
        (m.ListTopicsRequest(cursor="clicks"), ["orders"]),
    ):
        listed = harness.service.list_topics(request)
        assert isinstance(listed, m.ListTopicsAnswer)
        assert [topic.topic for topic in listed.topics] == topics


async def test_a_page_that_ends_before_a_damaged_topic_is_given(before: ServiceHarness) -> None:
    harness = await restarted(before, b"t/orders", b"{")
    first = harness.service.list_topics(m.ListTopicsRequest(limit=1))
    assert isinstance(first, Failure), "the page is the last that can be read, and not the last"
    await put(harness, "zebras", 1)
    first = harness.service.list_topics(m.ListTopicsRequest(limit=1))
    assert isinstance(first, m.ListTopicsAnswer)
    assert ([topic.topic for topic in first.topics], first.next_cursor) == (["clicks"], "clicks")
    assert isinstance(harness.service.list_topics(m.ListTopicsRequest(limit=1, cursor="clicks")), Failure)


async def test_a_damaged_topic_is_mended_by_putting_it_anew(before: ServiceHarness) -> None:
    harness = await restarted(before, CLICKS, b"{")
    answer = await put(harness, "clicks", 3)
    assert isinstance(answer, m.Topic)
    await harness.clock.run(5_000)
    assert harness.service.condition().unreadable_topics == 0
    assert isinstance(harness.service.list_topics(), m.ListTopicsAnswer)
    described = await harness.now("g", DESCRIBE)
    assert isinstance(described, admin.DescribeAnswer)
    assert (described.state, described.generation_id) == ("Stable", 1), "it has as many partitions as before"
    await put(harness, "clicks", 4)
    await harness.clock.run(1_000)
    assert [event.reason for event in harness.watcher.events if isinstance(event, RebalanceBegan)] == [
        "subscribed topics changed: clicks has 4 partitions"
    ]


async def test_a_rebalance_meanwhile_keeps_what_was_known(before: ServiceHarness) -> None:
    harness = await restarted(before, CLICKS, b"{")
    member_id = await harness.new_id("g", "c")
    joining = harness.ask("g", join("c", member_id))
    await harness.clock.run(12_000)
    joined = joining.result()
    assert isinstance(joined, m.JoinAnswer)
    assert (joined.generation_id, joined.leader) == (2, member_id), "the others have not joined in time"
    assert isinstance(await harness.now("g", sync(member_id, 2)), m.SyncAnswer)
    await put(harness, "clicks", 3)
    await harness.clock.run(1_000)
    assert isinstance(await harness.now("g", heartbeat(member_id, 2)), m.HeartbeatAnswer)


async def test_a_damaged_topic_can_be_deleted(before: ServiceHarness) -> None:
    harness = await restarted(before, CLICKS, b"{")
    await harness.now("h", commit(5))
    answer = await harness.service.delete_topic("clicks")
    assert isinstance(answer, m.DeletedTopic)
    assert await committed(harness, "h") == {}
    assert harness.service.condition().unreadable_topics == 0
    listed = harness.service.list_topics()
    assert isinstance(listed, m.ListTopicsAnswer)
    assert [topic.topic for topic in listed.topics] == ["orders"]
    await harness.clock.run(400_000)
    again = await ServiceHarness(harness.contents, clock=harness.clock).start()
    assert again.service.condition().unreadable_topics == 0


async def test_a_topic_that_is_found_damaged_later_neither_comes_nor_goes(before: ServiceHarness) -> None:
    channel = Channel(1)
    before.service.connections.carry("g", "a", channel)
    registry(before.contents)[CLICKS] = b"{"
    before.store.faults.append(Fault.NOT_STORED_UNSURE)
    assert code(await put(before, "orders", 6)) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    await before.clock.run(2_000)
    assert before.service.condition().unreadable_topics == 1
    assert isinstance(await put(before, "clicks", 3), m.Topic)
    await before.clock.run(2_000)
    assert channel.heard == []
    assert not [event for event in before.watcher.events if isinstance(event, RebalanceBegan)][1:]


async def test_other_records_of_the_registry_that_cannot_be_read_are_left(before: ServiceHarness) -> None:
    strays = {b"x/gone": b"{", b"x/odd": b'{"v":1,"version":99}', b"g/a/s": b"{}", b"q": b"1", b"\xff": b""}
    await before.service.drain()
    registry(before.contents).update(strays)
    harness = await ServiceHarness(before.contents, clock=before.clock).start()
    assert harness.service.condition().stray_records == len(strays)
    listed = harness.service.list_topics()
    assert isinstance(listed, m.ListTopicsAnswer)
    assert [topic.topic for topic in listed.topics] == ["clicks", "orders"]
    assert {key: registry(harness.contents)[key] for key in strays} == strays


@pytest.mark.parametrize(
    ("key", "value"),
    [(b"r", b"{"), (b"r", None), (b"l", b"{"), (b"r", b'{"v":1,"version":-1}')],
)
async def test_without_its_header_or_the_layout_the_start_fails(
    before: ServiceHarness, key: bytes, value: bytes | None
) -> None:
    with pytest.raises(StoredDataInvalid, match=f"record b'{key.decode()}'"):
        await restarted(before, key, value)


@settings(max_examples=by_size(7, 50, 150), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
async def test_whatever_one_record_becomes_the_others_are_served(before: ServiceHarness, data: st.DataObject) -> None:
    held = dict(registry(before.contents))
    key = data.draw(st.sampled_from(sorted(held)))
    if data.draw(st.booleans()):
        value = held[key]
        at = data.draw(st.integers(0, len(value) - 1))
        changed = {key: value[:at] + bytes((data.draw(st.integers(0, 255)),)) + value[at + 1 :]}
    else:
        fields = json.loads(held[key])
        fields[data.draw(st.sampled_from(sorted(fields)))] = data.draw(st.none() | st.integers() | st.text(max_size=3))
        changed = {key: json.dumps(fields).encode()}
    await before.service.drain()
    contents = MemoryContents()
    for shard in range(4):
        contents.keyspace(f"shard-{shard}").values.update(before.contents.keyspace(f"shard-{shard}").values)
    registry(contents).update({**held, **changed})
    harness = ServiceHarness(contents)
    if key in (b"l", b"r"):
        with suppress(StoredDataInvalid):
            await harness.start()
        return
    await harness.start()
    assert isinstance(await harness.now("g", heartbeat("nobody", 1)), Failure)
    assert isinstance(await harness.now("h", commit(1)), m.CommitAnswer)
    answer = await put(harness, "new", 1)
    # A count of partitions that can be may leave no room for another topic.
    assert isinstance(answer, m.Topic) or answer.code is ErrorCode.THROTTLING_QUOTA_EXCEEDED
    await harness.service.drain()
