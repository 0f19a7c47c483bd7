"""What is damaged in the store is shut off by the group, named everywhere, and left as it is; all else is served."""

import asyncio
import json
import logging
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rallypoint.coordinator.core import records as r
from rallypoint.coordinator.core.commands import DeleteGroupRequest
from rallypoint.coordinator.core.effects import Failure
from rallypoint.coordinator.runtime.condition import ShardState, why_not_ready
from rallypoint.coordinator.storage.codec import RUNNING_TIME_KEY, decode, encode, group_of, group_prefix
from rallypoint.coordinator.storage.contract import BatchLimits, StoredDataInvalid, shard_keyspace
from rallypoint.coordinator.storage.memory import MemoryContents, MemoryStore
from rallypoint.protocol import admin_messages as admin
from rallypoint.protocol import messages as m
from rallypoint.protocol.errors import ErrorCode
from rallypoint.protocol.group_hash import shard_of_group
from tests.fakes.faulty_store import Fault
from tests.fakes.manual_clock import settle
from tests.fakes.service_harness import DESCRIBE, SHARDS, ServiceHarness, code, commit, committed, heartbeat, join, sync
from tests.formats.test_formats import GROUP, PAIRS_V1
from tests.sizes import by_size

SHARD = shard_keyspace(shard_of_group(GROUP, SHARDS))
BYSTANDER = next(f"b{n}" for n in range(99) if shard_keyspace(shard_of_group(f"b{n}", SHARDS)) == SHARD)
OF_GROUP: dict[bytes, bytes] = {key: value for (key, value), _ in PAIRS_V1 if group_of(key) == GROUP and value}
"""A sound group with a record of each kind, as released formats have them."""

GARBLED: dict[str, Any] = {
    "nothing": lambda value: b"",
    "cut short": lambda value: value[: len(value) // 2],
    "without its end": lambda value: value[:-1],
    "zeros": lambda value: bytes(len(value)),
    "no UTF-8": lambda value: b"\xff" + value[1:],
    "null": lambda value: b"null",
    "empty": lambda value: b"{}",
    "another version": lambda value: value.replace(b'"v":1', b'"v":2'),
    "a field less": lambda value: _changed(value, lambda fields: fields.pop(list(fields)[1])),
    "another type": lambda value: _changed(value, lambda fields: fields.update({list(fields)[1]: [7]})),
    "nested deeply": lambda value: b"[" * 100_000,
    "a name changed": lambda value: value.replace(b'":', b'x":'),
}


def _changed(value: bytes, change: Any) -> bytes:
    fields = json.loads(value)
    change(fields)
    return json.dumps(fields).encode()


def store_with(records: dict[bytes, bytes]) -> MemoryContents:
    """The records, and a bystander in the same shard."""
    contents = MemoryContents()
    contents.keyspace(SHARD).values.update(records)
    bystander = encode(r.OffsetRecord(BYSTANDER, "clicks", 0, 7, None, "", 1))
    assert bystander.value is not None
    contents.keyspace(SHARD).values[bystander.key] = bystander.value
    return contents


def stored(contents: MemoryContents) -> dict[bytes, bytes]:
    """What is stored but for the bystander's, and the shard's own."""
    values = contents.keyspace(SHARD).values
    return {key: values[key] for key in values if group_of(key) != BYSTANDER and key != RUNNING_TIME_KEY}


def is_here(group_id: str | None) -> bool:
    """The group would be kept in that shard."""
    return group_id is not None and shard_keyspace(shard_of_group(group_id, SHARDS)) == SHARD


async def check_shut_off(harness: ServiceHarness, key: bytes) -> None:
    """Nobody gets in, everybody hears why, and it is to be seen from everywhere."""
    requests = (join("a", ""), sync("x", 1), heartbeat("x", 1), commit(9), m.FetchRequest(), DESCRIBE)
    for request in requests:
        refused = await harness.now(GROUP, request)
        assert isinstance(refused, Failure), request
        assert refused.code is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert repr(key) in refused.detail
        assert "delete the group" in refused.detail
    condition = harness.service.condition()
    assert (condition.damaged_groups, condition.stray_records, condition.unavailable) == (1, 0, ())
    assert why_not_ready(condition) is None
    listed = await harness.service.list_groups(admin.ListGroupsRequest())
    assert isinstance(listed, admin.ListGroupsAnswer)
    assert [group.group_id for group in listed.groups] == [BYSTANDER]
    assert [(group.group_id, group.error_name) for group in listed.damaged_groups] == [
        (GROUP, "COORDINATOR_NOT_AVAILABLE")
    ]


async def check_bystander(harness: ServiceHarness) -> None:
    assert await committed(harness, BYSTANDER) == {0: 7}
    assert isinstance(await harness.now(BYSTANDER, commit(8)), m.CommitAnswer)
    assert await committed(harness, BYSTANDER) == {0: 8}


async def test_the_sample_is_sound() -> None:
    harness = await ServiceHarness(store_with(OF_GROUP)).start()
    answer = await harness.now(GROUP, DESCRIBE)
    assert isinstance(answer, admin.DescribeAnswer)
    assert answer.state == "Stable"
    assert harness.service.condition().damaged_groups == 0


@pytest.mark.parametrize("how", GARBLED)
@pytest.mark.parametrize("key", OF_GROUP, ids=lambda key: str(key)[-12:])
async def test_a_damaged_record_shuts_its_group_off_and_nothing_else(
    key: bytes, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    records = {**OF_GROUP, key: GARBLED[how](OF_GROUP[key])}
    with pytest.raises(StoredDataInvalid):
        decode(key, records[key])
    contents = store_with(records)
    harness = await ServiceHarness(contents).start()
    await check_shut_off(harness, key)
    await check_bystander(harness)
    await harness.clock.run(120_000)
    assert stored(contents) == records
    assert sum(repr(key) in line.getMessage() for line in caplog.records) == 1
    assert not any(line.exc_info for line in caplog.records)
    await harness.service.drain()
    assert stored(contents) == records


UNSOUND: dict[str, dict[str, dict[str, Any]]] = {
    "a leader who is no member": {"g/h": {"leader": "nobody"}},
    "a leader without a protocol": {"g/h": {"protocol_name": None}},
    "a protocol without a leader": {"g/h": {"leader": None}},
    "a generation above the highest": {"g/h": {"highest_generation_id": 1}},
    "a generation below none": {"g/h": {"generation_id": -1}},
    "a number beyond all": {"g/h": {"state_at_ms": 10**400}},
    "a timeout before its beginning": {"g/m": {"session_timeout_ms": -1}},
    "two members in one place": {"g/m": {"seniority": 5}},
    "two members on one slot": {"g/m": {"group_instance_id": "slot"}},
    "an assignment that is no JSON": {"g/m": {"assignment": '{"partitions":'}},
    "an assignment with something behind it": {"g/m": {"assignment": '1,"x":2'}},
    "metadata that are no number": {"g/m": {"metadata": "NaN"}},
    "half a surrogate pair in the header": {"g/h": {"protocol_type": "\ud800"}},
    "half a surrogate pair in an offset": {"g/o": {"metadata": "\udfff"}},
    "a count of partitions below none": {"g/h": {"partition_counts": {"clicks": -1}}},
}


@pytest.mark.parametrize("how", UNSOUND)
async def test_records_that_contradict_each_other_shut_the_group_off(
    how: str, caplog: pytest.LogCaptureFixture
) -> None:
    records = dict(OF_GROUP)
    for name, fields in UNSOUND[how].items():
        prefix = group_prefix(GROUP) + name[2:].encode()
        for key, value in records.items():
            if key.startswith(prefix) and b"gone" not in value:
                records[key] = json.dumps({**json.loads(value), **fields}).encode()
    contents = store_with(records)
    harness = await ServiceHarness(contents).start()
    refused = await harness.now(GROUP, DESCRIBE)
    assert isinstance(refused, Failure)
    assert group_prefix(GROUP).decode()[:6] in refused.detail
    assert harness.service.condition().damaged_groups == 1
    await check_bystander(harness)
    await harness.clock.run(120_000)
    assert stored(contents) == records
    assert not any(line.exc_info for line in caplog.records)
    assert (await harness.now(GROUP, DeleteGroupRequest())) == admin.DeletedGroup(group_id=GROUP)
    assert stored(contents) == {}


values = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.sampled_from([-1, 0, 1, 2**31, 2**63, 2**64, -(2**63)]),
    st.text(max_size=4),
)


@st.composite
def torn(draw: st.DrawFn) -> dict[bytes, bytes]:
    """The group with some of its records changed: a field, a byte, a key, or gone."""
    records = dict(OF_GROUP)
    for key in draw(st.lists(st.sampled_from(sorted(OF_GROUP)), min_size=1, max_size=3, unique=True)):
        value = records.pop(key)
        match draw(st.sampled_from(["field", "field", "field", "byte", "key", "gone"])):
            case "field":
                fields = json.loads(value)
                fields[draw(st.sampled_from(sorted(fields)))] = draw(values)
                records[key] = json.dumps(fields).encode()
            case "byte":
                at = draw(st.integers(0, len(value) - 1))
                records[key] = value[:at] + bytes((draw(st.integers(0, 255)),)) + value[at + 1 :]
            case "key":
                at = draw(st.integers(0, len(key) - 1))
                records[key[:at] + bytes((draw(st.integers(0, 255)),)) + key[at + 1 :]] = value
            case _:
                pass
    return records


@settings(
    max_examples=by_size(15, 100, 300), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(records=torn())
def test_whatever_is_stored_nothing_raises_and_the_others_are_served(
    records: dict[bytes, bytes], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.clear()
    caplog.set_level(logging.INFO)

    async def run() -> None:
        contents = store_with(records)
        harness = await ServiceHarness(contents).start()
        await check_bystander(harness)
        await harness.clock.run(1_000)
        damaged = {group_id for shard in harness.service._shards for group_id in shard.damaged}
        for group_id in {group for group in map(group_of, records) if is_here(group)}:
            assert group_id is not None
            requests = (heartbeat("x", 1), commit(9), m.FetchRequest(), DESCRIBE, join("a", ""))
            answers = [await harness.now(group_id, request) for request in requests]
            if group_id in damaged:
                assert {code(answer) for answer in answers} == {ErrorCode.COORDINATOR_NOT_AVAILABLE}
        strays = {key for key in records if not is_here(group_of(key))}
        assert harness.service.condition().stray_records == len(strays)
        await harness.clock.run(100_000)
        held = contents.keyspace(SHARD).values
        for key, value in records.items():
            if key in strays or group_of(key) in damaged:
                assert held[key] == value
        for group_id in damaged:
            assert await harness.now(group_id, DeleteGroupRequest()) == admin.DeletedGroup(group_id=group_id)
            assert not any(key.startswith(group_prefix(group_id)) for key in held)
        await harness.service.drain()

    asyncio.run(run())
    faults = [line for line in caplog.records if line.exc_info or "UNKNOWN_SERVER" in line.getMessage()]
    assert not faults


RAN = b'{"v":1,"ran_until_ms":7,"pauses":[[0,5]]}'


@pytest.mark.parametrize(
    "value",
    [
        *(GARBLED[how](RAN) for how in GARBLED),
        RAN.replace(b"[0,5]", b""),
        RAN.replace(b"7", str(2**63 - 1).encode()),
        RAN.replace(b"[0,5]", f"[{2**63 - 1},-1]".encode()),
    ],
)
async def test_a_running_time_that_cannot_be_read_is_counted_anew(value: bytes) -> None:
    contents = store_with({**OF_GROUP, RUNNING_TIME_KEY: value, RUNNING_TIME_KEY + b"x": b""})
    harness = await ServiceHarness(contents).start()
    condition = harness.service.condition()
    assert (condition.unavailable, condition.damaged_groups, condition.stray_records) == ((), 0, 1)
    await check_bystander(harness)
    held = contents.keyspace(SHARD).values[RUNNING_TIME_KEY]
    assert isinstance(decode(RUNNING_TIME_KEY, held), r.RunningTimeRecord)
    await harness.service.drain()


async def test_a_record_of_nobody_is_counted_and_left_as_it_is(caplog: pytest.LogCaptureFixture) -> None:
    elsewhere = next(f"b{n}" for n in range(99) if not is_here(f"b{n}"))
    strays = {
        b"": b"{}",
        encode(r.OffsetForgotten(elsewhere, "clicks", 1)).key: b"{}",
        b"g/%zz/h": b"{}",
        b"g/lone": b"{}",
        b"\xff\xfe": b"",
        b"r": b"{}",
        b"z/x": b"1",
    }
    contents = store_with(strays)
    harness = await ServiceHarness(contents).start()
    condition = harness.service.condition()
    assert (condition.stray_records, condition.damaged_groups) == (len(strays), 0)
    assert condition.shards[ShardState.ACTIVE] == SHARDS
    await check_bystander(harness)
    await harness.service.drain()
    assert stored(contents) == strays
    assert all(any(repr(key) in line.getMessage() for line in caplog.records) for key in strays)


HEADER = encode(r.GroupForgotten(GROUP)).key


async def test_a_damaged_group_can_be_deleted_and_its_id_used_anew() -> None:
    contents = store_with({**OF_GROUP, HEADER: b"{"})
    harness = await ServiceHarness(contents).start()
    assert await harness.now(GROUP, DeleteGroupRequest()) == admin.DeletedGroup(group_id=GROUP)
    assert stored(contents) == {}
    assert harness.service.condition().damaged_groups == 0
    await harness.form(GROUP, "a", "b")
    await check_bystander(harness)
    assert code(await harness.now("never", DeleteGroupRequest())) is ErrorCode.GROUP_ID_NOT_FOUND


@pytest.mark.parametrize("stores", range(len(OF_GROUP)))
async def test_a_deletion_cut_off_anywhere_leaves_no_half_that_looks_whole(stores: int) -> None:
    contents = store_with({**OF_GROUP, HEADER: b"{"})
    store = MemoryStore(contents, limits=BatchLimits(writes_max=1, bytes_max=100_000))
    harness = await ServiceHarness(contents, store=store).start()
    harness.store.faults.extend([Fault.NONE] * stores + [Fault.NOT_STORED])
    assert code(await harness.now(GROUP, DeleteGroupRequest())) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert len(stored(contents)) == len(OF_GROUP) - stores
    after = await ServiceHarness(contents).start()
    assert code(await after.now(GROUP, commit(1))) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert await after.now(GROUP, DeleteGroupRequest()) == admin.DeletedGroup(group_id=GROUP)
    assert stored(contents) == {}


async def test_a_deletion_under_way_is_answered_when_the_shard_is_lost() -> None:
    contents = store_with({**OF_GROUP, HEADER: b"{"})
    harness = await ServiceHarness(contents).start()
    harness.store.append_gate.shut()
    harness.store.faults.append(Fault.FENCED)
    deleting = [harness.ask(GROUP, DeleteGroupRequest()) for _ in range(2)]
    await settle()
    assert not any(task.done() for task in deleting)
    harness.store.append_gate.let_go()
    await settle()
    assert {code(task.result()) for task in deleting} == {ErrorCode.COORDINATOR_NOT_AVAILABLE}
    await harness.clock.run(5_000)
    assert await harness.now(GROUP, DeleteGroupRequest()) == admin.DeletedGroup(group_id=GROUP)
    harness.assert_nothing_waits()


async def test_a_group_that_is_found_damaged_when_it_is_read_anew_is_shut_off_then() -> None:
    contents = store_with(OF_GROUP)
    harness = await ServiceHarness(contents).start()
    harness.store.faults.append(Fault.NOT_STORED)
    contents.keyspace(SHARD).values[HEADER] = b"{"
    assert code(await harness.now(GROUP, commit(1, "etl-1-5f0c", 4))) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    await harness.clock.run(5_000)
    await check_shut_off(harness, HEADER)
    await check_bystander(harness)


async def test_damaged_groups_stand_on_the_page_to_which_they_belong() -> None:
    contents = MemoryContents()
    groups = [f"g{number:02}" for number in range(30)]
    for group_id in groups:
        keyspace = contents.keyspace(shard_keyspace(shard_of_group(group_id, SHARDS)))
        offset = encode(r.OffsetRecord(group_id, "clicks", 0, 7, None, "", 1))
        keyspace.values[offset.key] = b"{" if int(group_id[1:]) % 3 else offset.value or b""
    harness = await ServiceHarness(contents).start()
    for limit in (1, 2, 3, 7, 100):
        sound: list[str] = []
        damaged: list[str] = []
        cursor: str | None = None
        while True:
            request = admin.ListGroupsRequest(limit=limit, cursor=cursor, prefix="g")
            page = await harness.service.list_groups(request)
            assert isinstance(page, admin.ListGroupsAnswer)
            assert len(page.groups) <= limit
            assert len(page.damaged_groups) <= limit
            sound += [group.group_id for group in page.groups]
            damaged += [group.group_id for group in page.damaged_groups]
            cursor = page.next_cursor
            if cursor is None:
                break
        assert sound == groups[::3]
        assert damaged == [group_id for group_id in groups if group_id not in groups[::3]]
    none = await harness.service.list_groups(admin.ListGroupsRequest(prefix="h"))
    assert isinstance(none, admin.ListGroupsAnswer)
    assert (none.groups, none.damaged_groups) == ((), ())


async def test_what_a_damaged_group_may_have_heard_of_is_remembered() -> None:
    harness = await ServiceHarness(store_with({**OF_GROUP, HEADER: b"{"})).start()
    await harness.service.put_topic("clicks", m.PutTopicRequest(partitions=1))
    await harness.service.delete_topic("clicks")
    await harness.clock.run(300_000)
    assert harness.service._registry.registry.deleted == {"clicks": 2}
    await harness.now(GROUP, DeleteGroupRequest())
    await harness.clock.run(300_000)
    assert harness.service._registry.registry.deleted == {}
