"""Whole stores of each released format, and one that a next minor version could leave: opened, served, written back.

A file here is never changed: a new format gets a new file beside it.
"""

import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from rallypoint.coordinator.core import records as r
from rallypoint.coordinator.core.commands import DeleteGroupRequest
from rallypoint.coordinator.runtime.condition import why_not_ready
from rallypoint.coordinator.runtime.loading.store_format import check_major, follow_format, format_of
from rallypoint.coordinator.storage.codec import MINOR_VERSION, VERSION, UnknownKind, decode, encode, group_of
from rallypoint.coordinator.storage.contract import (
    FORMAT_KEYSPACE,
    REGISTRY_KEYSPACE,
    StorageUnavailable,
    StoredDataInvalid,
    Write,
)
from rallypoint.coordinator.storage.copying import format_mark
from rallypoint.coordinator.storage.memory import MemoryContents, MemoryStore
from rallypoint.coordinator.storage.sqlite import SqliteStore
from rallypoint.protocol import admin_messages as admin
from rallypoint.protocol import messages as m
from rallypoint.protocol.errors import ErrorCode
from tests.fakes.faulty_store import Fault
from tests.fakes.service_harness import DESCRIBE, ServiceHarness, code, commit, committed, heartbeat
from tests.formats.test_formats import GROUP, HERE, PAIRS_V1

RELEASED = {"1.0": "store-1.0.sql", "1.1": "store-1.1.sql"}
RESTORED = "store-1.0-restored.sql"
FORESEEN = "store-1.2-foreseen.sql"
LEADER = "etl-1-5f0c"

Rows = dict[tuple[str, bytes], bytes]


def make(path: Path, sample: str) -> None:
    connection = sqlite3.connect(path)
    connection.executescript((HERE / sample).read_text("utf-8"))
    connection.close()


def rows(path: Path) -> Rows:
    connection = sqlite3.connect(path)
    found = {(space, key): value for space, key, value in connection.execute("SELECT space, key, value FROM entry")}
    connection.close()
    return found


def contents_of(sample: str, tmp_path: Path) -> MemoryContents:
    make(tmp_path / "sample.db", sample)
    contents = MemoryContents()
    for (keyspace, key), value in rows(tmp_path / "sample.db").items():
        contents.keyspace(keyspace).values[key] = value
    return contents


async def check_served(harness: ServiceHarness) -> None:
    condition = harness.service.condition()
    assert (condition.damaged_groups, condition.stray_records, why_not_ready(condition)) == (0, 0, None)
    described = await harness.service.call(GROUP, DESCRIBE, host="h")
    assert isinstance(described, admin.DescribeAnswer)
    assert (described.state, described.generation_id, described.rebalance_id) == ("Stable", 4, 7)
    assert [member.member_id for member in described.members] == [LEADER, "seat%2-9a1b"][: len(described.members)]
    assert isinstance(await harness.service.call(GROUP, heartbeat(LEADER, 4), host="h"), m.HeartbeatAnswer)
    topics = harness.service.list_topics()
    assert isinstance(topics, m.ListTopicsAnswer)
    assert ([topic.topic for topic in topics.topics], topics.version) == (["a/b", "clicks"], 9)
    assert len(topics.topics[0].replica_racks) == 3


@pytest.mark.parametrize("sample", [*RELEASED.values(), FORESEEN])
async def test_a_store_is_served_and_written_and_served_again(sample: str, tmp_path: Path) -> None:
    make(tmp_path / "store.db", sample)
    for offset in (50, 51):
        store = await SqliteStore.open(tmp_path / "store.db")
        harness = await ServiceHarness(store=store).start()
        await check_served(harness)
        assert isinstance(await harness.service.call(GROUP, commit(offset, LEADER, 4), host="h"), m.CommitAnswer)
        assert (await committed(harness, GROUP))[0] == offset
        await harness.service.drain()
        await store.close()


async def test_whom_an_operator_had_removed_is_no_member_of_a_stored_group(tmp_path: Path) -> None:
    make(tmp_path / "store.db", RELEASED["1.1"])
    store = await SqliteStore.open(tmp_path / "store.db")
    harness = await ServiceHarness(store=store).start()
    described = await harness.service.call("kicked", DESCRIBE, host="h")
    assert isinstance(described, admin.DescribeAnswer)
    assert [member.member_id for member in described.members] == ["etl-4-22cd"]
    assert (described.state, described.leader) == ("Stable", "etl-4-22cd")
    assert [cause.trigger for cause in described.held] == ["member_removed"], "its freeze holds the rebalance"
    # The other one that the freeze waits for is no member, and neither has come again.
    assert (described.freeze_until, described.freeze_missing) == ("members_replaced", ("etl-3", "seat%2"))
    assert described.join_wait_max_ms == 5_000
    await harness.service.drain()
    await store.close()


async def test_a_restored_store_has_no_members_and_goes_on_above_its_floor(tmp_path: Path) -> None:
    make(tmp_path / "store.db", RESTORED)
    for _ in range(2):
        store = await SqliteStore.open(tmp_path / "store.db")
        harness = await ServiceHarness(store=store).start()
        condition = harness.service.condition()
        assert (condition.damaged_groups, condition.stray_records, why_not_ready(condition)) == (0, 0, None)
        described = await harness.service.call(GROUP, DESCRIBE, host="h")
        assert isinstance(described, admin.DescribeAnswer)
        assert (described.state, described.generation_id, described.members) == ("Empty", 217_500_001, ())
        assert code(await harness.service.call(GROUP, heartbeat(LEADER, 4), host="h")) is ErrorCode.UNKNOWN_MEMBER_ID
        assert await committed(harness, GROUP)
        await harness.service.drain()
        await store.close()


@pytest.mark.parametrize("value", [b"?", b'{"v":1,"generation_id":-1}', b'{"v":1,"generation_id":2147483647}'])
async def test_a_floor_of_generations_that_cannot_be_read_is_refused(value: bytes) -> None:
    contents = MemoryContents()
    contents.keyspace(REGISTRY_KEYSPACE).values[b"n"] = value
    harness = ServiceHarness(contents)
    with pytest.raises(StoredDataInvalid, match="stored record b'n'"):
        await harness.service.start()


async def test_what_a_newer_minor_added_survives_all_that_an_older_one_does(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    contents = contents_of(FORESEEN, tmp_path)
    before = {(keyspace, key): value for (keyspace, key), value in rows(tmp_path / "sample.db").items()}
    unknown = {where: value for where, value in before.items() if is_unknown(where[1])}
    assert len(unknown) == 6
    harness = await ServiceHarness(contents).start()
    assert "1.2, written by Rallypoint 0.9.0" in caplog.text
    assert harness.service.condition().records_passed_over == len(unknown)
    await check_served(harness)
    assert isinstance(await harness.now(GROUP, commit(50, LEADER, 4)), m.CommitAnswer)
    await harness.service.put_topic("clicks", m.PutTopicRequest(partitions=12, end_offsets={0: 900}))
    await harness.clock.run(1_000)
    after = {(keyspace, key): value for keyspace, key, value in stored(contents)}
    written = {where for where, value in after.items() if before.get(where) != value}
    assert {key for _, key in written} == {
        encode(r.OffsetForgotten(GROUP, "clicks", 0)).key,
        encode(r.HoldForgotten(GROUP)).key,  # its freeze is over
        encode(r.TopicForgotten("clicks")).key,
        encode(r.EndsHistoryForgotten("clicks")).key,
        b"r",
        b"p",
    }, "what nobody changed stands as the newer one wrote it"
    assert all(b"added" not in after[where] for where in written), "and what was changed is whole by itself"
    # Everything goes: the members expire, the groups are deleted.
    await harness.clock.run(400_000)
    for group_id in (GROUP, "simple"):
        assert isinstance(await harness.now(group_id, DeleteGroupRequest()), admin.DeletedGroup)
    await harness.service.drain()
    after = {(keyspace, key): value for keyspace, key, value in stored(contents)}
    assert {where: value for where, value in after.items() if is_unknown(where[1])} == unknown
    assert after[FORMAT_KEYSPACE, b"f"] == before[FORMAT_KEYSPACE, b"f"], "the newest that was at work there stands"
    assert not any(group_of(key) for _, key in after.keys() - unknown.keys())
    # A group that is made again is none of theirs.
    again = await ServiceHarness(contents).start()
    assert isinstance(await again.now(GROUP, commit(1)), m.CommitAnswer)
    assert again.service.condition().damaged_groups == 0


async def test_a_record_that_is_passed_over_counts_once_and_goes_with_a_damaged_group(tmp_path: Path) -> None:
    contents = contents_of(FORESEEN, tmp_path)
    harness = await ServiceHarness(contents).start()
    passed_over = harness.service.condition().records_passed_over
    harness.store.faults.append(Fault.NOT_STORED)
    assert code(await harness.now("simple", commit(1))) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    await harness.clock.run(1_000)
    assert harness.service.condition().records_passed_over == passed_over, "the group was read twice"
    header = encode(r.GroupForgotten("simple")).key
    for number in range(4):
        if header in (values := contents.keyspace(f"shard-{number}").values):
            values[header] = b"{"
    again = await ServiceHarness(contents).start()
    assert again.service.condition().damaged_groups == 1
    assert again.service.condition().records_passed_over == passed_over
    assert isinstance(await again.now("simple", DeleteGroupRequest()), admin.DeletedGroup)
    assert again.service.condition().records_passed_over == passed_over - 1


async def test_without_a_newer_minor_what_nobody_knows_is_damage(tmp_path: Path) -> None:
    contents = contents_of(FORESEEN, tmp_path)
    contents.keyspace(FORMAT_KEYSPACE).values.update([of_format(format_of("0.1.0"))])
    for key in (b"z/policy", b"a"):
        del contents.keyspace("topics").values[key]
    topics = contents.keyspace("topics").values
    for key, value in topics.items():
        topics[key] = without_added(value)
    harness = await ServiceHarness(contents).start()
    condition = harness.service.condition()
    assert (condition.damaged_groups, condition.stray_records, condition.records_passed_over) == (2, 1, 0)
    assert code(await harness.now(GROUP, DESCRIBE)) is ErrorCode.COORDINATOR_NOT_AVAILABLE


@pytest.mark.parametrize(("sample", "record"), PAIRS_V1)
def test_fields_of_a_newer_minor_are_read_past_and_else_refused(sample: Write, record: r.Record) -> None:
    assert sample.value is not None
    value = more(json.loads(sample.value))
    assert decode(sample.key, json.dumps(value).encode(), of_newer_minor=True) == record
    with pytest.raises(StoredDataInvalid, match="added"):
        decode(sample.key, json.dumps(value).encode())


@pytest.mark.parametrize("key", [b"", b"q", b"g/a/z", b"g/a/h/1", b"g/a/m/x", b"t/a/b", b"l/1", b"p/1"])
def test_kinds_of_a_newer_minor_are_told_from_damage(key: bytes) -> None:
    for value in (b"{}", b"", b'{"v":2}', b"\xff"):
        with pytest.raises(UnknownKind):
            decode(key, value, of_newer_minor=True)
        with pytest.raises(StoredDataInvalid) as caught:
            decode(key, value)
        assert not isinstance(caught.value, UnknownKind)


def test_a_known_kind_that_cannot_be_read_is_damage_whatever_the_minor() -> None:
    for value in (b"{}", b"", b'{"v":2,"shards":4}', b"\xff"):
        with pytest.raises(StoredDataInvalid) as caught:
            decode(b"l", value, of_newer_minor=True)
        assert not isinstance(caught.value, UnknownKind)


# --- the version itself ----------------------------------------------------------------------------------------------


async def test_a_store_that_does_not_say_is_the_first_and_says_so_from_then_on(tmp_path: Path) -> None:
    contents = contents_of(RELEASED["1.0"], tmp_path)
    del contents.keyspace(FORMAT_KEYSPACE).values[b"f"]
    harness = await ServiceHarness(contents).start()
    await check_served(harness)
    await harness.service.drain()
    key, value = of_format(format_of("of no release"))
    assert contents.keyspace(FORMAT_KEYSPACE).values == {key: value}


async def test_a_minor_is_raised_once_and_never_taken_back() -> None:
    store = MemoryStore()
    first, second = r.FormatRecord(1, 0, "1.0.0"), r.FormatRecord(1, 1, "1.4.0")
    later = r.FormatRecord(1, 1, "1.5.0")
    values = store.contents.keyspace(FORMAT_KEYSPACE).values
    for ours, is_newer, kept in (
        (first, False, first),
        (second, False, second),
        (first, True, second),
        (later, False, second),
    ):
        assert await follow_format(store, ours) is is_newer
        assert values == dict([of_format(kept)])


async def test_another_major_is_refused_with_both_versions_and_nothing_is_touched(tmp_path: Path) -> None:
    contents = contents_of(RELEASED["1.0"], tmp_path)
    contents.keyspace(FORMAT_KEYSPACE).values.update([of_format(r.FormatRecord(2, 3, "2.0.1"))])
    before = list(stored(contents))
    harness = ServiceHarness(contents)
    with pytest.raises(StoredDataInvalid) as caught:
        await harness.service.start()
    sentence = str(caught.value)
    for part in (
        "format 2.3",
        "written by Rallypoint 2.0.1",
        "reads format 1",
        "start Rallypoint 2.0.1 or a later one",
    ):
        assert part in sentence
    assert list(stored(contents)) == before
    assert harness.store.acquired == []


def test_an_older_major_names_the_way_between() -> None:
    with pytest.raises(
        StoredDataInvalid, match=r"format 1\.4, written by Rallypoint 1\.9\.0, and this is Rallypoint 3\.0\.0"
    ):
        check_major(r.FormatRecord(1, 4, "1.9.0"), r.FormatRecord(3, 0, "3.0.0"))


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"{}",
        b'{"v":1,"major":-1,"minor":0,"release":""}',
        b'{"v":1,"major":1,"minor":-1,"release":""}',
        b'{"v":1,"major":"1"}',
    ],
)
async def test_a_format_that_cannot_be_read_is_refused(value: bytes) -> None:
    store = MemoryStore()
    store.contents.keyspace(FORMAT_KEYSPACE).values[b"f"] = value
    with pytest.raises(StoredDataInvalid, match="stored record b'f'"):
        await follow_format(store, format_of("1"))
    assert store.contents.keyspace(FORMAT_KEYSPACE).values == {b"f": value}


async def test_an_unfinished_copy_is_refused_and_says_what_to_do() -> None:
    """What is stored of it stays so: releases that know nothing of copies refuse a major version of 0 as well."""
    mark = b'{"v":1,"major":0,"minor":0,"release":"1.2.3"}'
    assert format_mark("1.2.3") == Write(b"f", mark)
    store = MemoryStore()
    store.contents.keyspace(FORMAT_KEYSPACE).values[b"f"] = mark
    with pytest.raises(StoredDataInvalid, match="an unfinished copy, and not whole; run `rallypoint store copy --repl"):
        await follow_format(store, format_of("1"))
    assert store.contents.keyspace(FORMAT_KEYSPACE).values == {b"f": mark}


async def test_a_store_that_cannot_be_reached_is_waited_for() -> None:
    harness = ServiceHarness()
    harness.store.format_errors.extend(StorageUnavailable("planted") for _ in range(3))
    starting = harness.begin(harness.service.start())
    await harness.clock.run(10_000)
    assert starting.done()
    assert why_not_ready(harness.service.condition()) is None


def test_this_release_has_its_sample() -> None:
    newest = f"{VERSION}.{MINOR_VERSION}"
    assert newest in RELEASED, "a store of this release's format is to be kept here"
    assert {encode(record).key.split(b"/")[0] for _, record in PAIRS_V1} <= {
        key.split(b"/")[0] for key in (*keys_of(RELEASED[newest]), *keys_of(RESTORED))
    }


# --- small things ----------------------------------------------------------------------------------------------------


def keys_of(sample: str) -> list[bytes]:
    connection = sqlite3.connect(":memory:")
    connection.executescript((HERE / sample).read_text("utf-8"))
    found = [key for (key,) in connection.execute("SELECT key FROM entry")]
    connection.close()
    return found


def is_unknown(key: bytes) -> bool:
    try:
        decode(key, b"", of_newer_minor=True)
    except UnknownKind:
        return True
    except StoredDataInvalid:
        return False
    raise AssertionError("no value is no record")


def of_format(record: r.FormatRecord) -> tuple[bytes, bytes]:
    key, value = encode(record)
    assert value is not None
    return key, value


def stored(contents: MemoryContents) -> list[tuple[str, bytes, bytes]]:
    names = (FORMAT_KEYSPACE, "topics", *(f"shard-{number}" for number in range(4)))
    return [(name, key, value) for name in names for key, value in sorted(contents.keyspace(name).values.items())]


def more(value: Any) -> Any:
    """The same with a field more in each object that has fields."""
    if isinstance(value, dict) and ("v" in value or "trigger" in value):
        return {**{key: more(inner) for key, inner in value.items()}, "added": [1]}
    return [more(inner) for inner in value] if isinstance(value, list) else value


def without_added(value: bytes) -> bytes:
    fields = json.loads(value)
    fields.pop("added", None)
    return json.dumps(fields).encode()
