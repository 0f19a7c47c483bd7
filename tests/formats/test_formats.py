"""What older releases wrote is still read. A file here is never changed: a new format gets a new file beside it."""

import json
import sqlite3
from pathlib import Path

import pytest

from rallypoint.coordinator.core import records as r
from rallypoint.coordinator.storage.codec import decode, encode
from rallypoint.coordinator.storage.contract import Write
from rallypoint.coordinator.storage.sqlite import SqliteStore
from rallypoint.coordinator.storage.sqlite_schema import SCHEMA_VERSION
from rallypoint.protocol.opaque import OpaqueJson

HERE = Path(__file__).parent
GROUP = "clicks/eu 😀"

RECORDS_V1: list[r.Record] = [
    r.LayoutRecord(shards=50),
    r.RegistryRecord(version=7),
    r.TopicRecord(topic="clicks", partitions=12, version=7, end_offsets={0: 120, 11: 0}),
    r.GroupRecord(
        group_id=GROUP,
        protocol_type="consumer",
        protocol_name="cooperative-sticky",
        generation_id=4,
        highest_generation_id=5,
        leader="etl-1-5f0c",
        state_at_ms=1763722800000,
        partition_counts={"clicks": 12},
    ),
    r.GroupRecord(
        group_id="simple",
        protocol_type=None,
        protocol_name=None,
        generation_id=0,
        highest_generation_id=0,
        leader=None,
        state_at_ms=1763722800000,
    ),
    r.MemberRecord(
        group_id=GROUP,
        member_id="etl-1-5f0c",
        generation_id=4,
        seniority=0,
        group_instance_id=None,
        client_id="etl-1",
        host="198.51.100.7",
        session_timeout_ms=45000,
        rebalance_timeout_ms=300000,
        disconnect_grace_ms=None,
        metadata=OpaqueJson.of({"topics": ["clicks"]}),
        assignment=OpaqueJson.of({"partitions": {"clicks": [0, 1, 2]}}),
        request_id="req-1",
    ),
    r.MemberRecord(
        group_id=GROUP,
        member_id="seat%2-9a1b",
        generation_id=3,
        seniority=1,
        group_instance_id="seat%2",
        client_id="seat",
        host="198.51.100.8",
        session_timeout_ms=45000,
        rebalance_timeout_ms=300000,
        disconnect_grace_ms=2000,
        metadata=OpaqueJson.of({"topics": ["clicks"]}),
        assignment=OpaqueJson.of(None),
    ),
    r.OffsetRecord(
        group_id=GROUP,
        topic="clicks",
        partition=3,
        offset=42,
        leader_epoch=7,
        metadata="até aqui",
        commit_at_ms=1763722800123,
    ),
    r.OffsetRecord(
        group_id="simple",
        topic="a/b",
        partition=0,
        offset=-1,
        leader_epoch=None,
        metadata="",
        commit_at_ms=1763722800123,
    ),
]


REBALANCES_V1: list[r.Record] = [
    r.RebalanceRecord(
        group_id=GROUP,
        rebalance_id=7,
        previous_generation_id=3,
        began_at_ms=1763722800000,
        cause=r.Cause(
            trigger="member_left",
            reason="left: etl-2-77aa: até já",
            member_id="etl-2-77aa",
            client_id="etl-2",
            host="198.51.100.9",
            at_ms=1763722790000,
        ),
        generation_id=4,
        join_phase_ms=1200,
        sync_phase_ms=35,
        member_count=2,
        partitions_moved=6,
        outcome=r.Outcome.COMPLETED,
        further=(
            r.Cause(
                trigger="topic_changed",
                reason="subscribed topics changed: clicks has 12 partitions",
                member_id=None,
                client_id=None,
                host=None,
                at_ms=1763722791000,
            ),
        ),
        further_count=12,
    ),
    r.RebalanceRecord(
        group_id="simple",
        rebalance_id=100,
        previous_generation_id=0,
        began_at_ms=1763722800000,
        cause=r.Cause("operator", "an operator asked for it: not provided", None, None, "198.51.100.9", 1763722800000),
    ),
    r.HoldRecord(group_id=GROUP, frozen_until_ms=1763723700000, freeze_reason="deploy 4711", cooldown_ms=20000),
    r.HoldRecord(group_id="simple", frozen_until_ms=None, freeze_reason=None, cooldown_ms=0),
]
"""Of what was added to version 1; a program of before refuses their keys, so it cannot misread them."""


def samples(name: str) -> list[Write]:
    lines = (HERE / name).read_text("utf-8").splitlines()
    return [Write(sample["key"].encode(), sample["value"].encode()) for sample in map(json.loads, lines)]


RECORDS_V1_PIECES: list[r.Record] = [
    r.MemberGone(group_id=GROUP, member_id="seat%2-9a1b", generation_id=5),
]
"""Since changes are stored in pieces."""

RECORDS_V1_DELETIONS: list[r.Record] = [
    r.DeletedTopicRecord(topic="a/b", version=8),
    r.DeletionsRecord(group_id=GROUP, version=8),
]
"""Since deleted topics are remembered until every group has heard of them."""

RECORDS_V1_RACKS: list[r.Record] = [
    r.TopicRecord("a/b", 3, 9, {2: 17}, (("eu-west-1a", "zone b", "зона"), (), ("zone b",))),
]
"""Since the registry keeps the racks of replicas; a topic without any is written as before."""

RECORDS_V1_RUNNING_TIME: list[r.Record] = [
    r.RunningTimeRecord(
        1764000000000,
        (r.Pause(1763722800000, 1763722800000), r.Pause(1763809200000, 2079000000000), r.Pause(2079000600000, 17640)),
    ),
]
"""Since offsets expire by the time in which their shard was served."""

RECORDS_V1_FORMAT: list[r.Record] = [
    r.FormatRecord(major=1, minor=0, release="0.1.0"),
]
"""Since a store says in which format it is. How this record looks never changes."""

RECORDS_V1_RESTORED: list[r.Record] = [
    r.GenerationFloorRecord(generation_id=217_500_000),
]
"""Since a store can be restored from a backup."""

RECORDS_V1_1: list[r.Record] = [
    r.GroupRecord(
        group_id="kicked",
        protocol_type="consumer",
        protocol_name="range",
        generation_id=3,
        highest_generation_id=3,
        leader="etl-3-11bc",
        state_at_ms=1763722800000,
        partition_counts={"clicks": 12},
    ),
    r.MemberRecord(
        group_id="kicked",
        member_id="etl-3-11bc",
        generation_id=3,
        seniority=0,
        group_instance_id=None,
        client_id="etl-3",
        host="198.51.100.7",
        session_timeout_ms=45000,
        rebalance_timeout_ms=300000,
        disconnect_grace_ms=None,
        metadata=OpaqueJson.of({"topics": ["clicks"]}),
        assignment=OpaqueJson.of({"partitions": {"clicks": [0]}}),
        removed=True,
    ),
    r.MemberRecord(
        group_id="kicked",
        member_id="etl-4-22cd",
        generation_id=3,
        seniority=1,
        group_instance_id=None,
        client_id="etl-4",
        host="198.51.100.8",
        session_timeout_ms=45000,
        rebalance_timeout_ms=300000,
        disconnect_grace_ms=None,
        metadata=OpaqueJson.of({"topics": ["clicks"]}),
        assignment=OpaqueJson.of({"partitions": {"clicks": [1]}}),
    ),
    r.HoldRecord(
        group_id="kicked",
        frozen_until_ms=1763723700000,
        freeze_reason="roll",
        cooldown_ms=None,
        freeze_until="members_replaced",
        freeze_roster={"etl-3-11bc": "etl-3", "seat%2-9a1b": "seat%2"},
        join_wait_max_ms=5000,
    ),
    r.EndsHistoryRecord("clicks", (1763722800000, 1763722860000), ({0: 100}, {0: 120, 11: 0})),
    r.HoldRecord("waits", None, None, None, join_wait_max_ms=3000),
]
"""Format 1.1: an operator may have removed a member, freeze until members come, and say how long to wait for joins; and
it is kept where topics ended at which times."""

RECORDS_V1_1_ATTEMPTS: list[r.Record] = [
    r.MemberRecord(
        group_id=GROUP,
        member_id="seat%2-33ef",
        generation_id=6,
        seniority=1,
        group_instance_id="seat%2",
        client_id="seat",
        host="198.51.100.8",
        session_timeout_ms=45000,
        rebalance_timeout_ms=300000,
        disconnect_grace_ms=None,
        metadata=OpaqueJson.of({"topics": ["clicks"]}),
        assignment=OpaqueJson.of({"partitions": {"clicks": [2]}}),
        request_id="req-9",
        attempt=4,
        first_request_id="req-5",
    ),
]
"""Format 1.1, too: which attempt to join was a member's last, and which join gave a static member its id."""

PAIRS_V1 = [
    *zip(samples("records-v1.jsonl"), RECORDS_V1, strict=True),
    *zip(samples("rebalances-v1.jsonl"), REBALANCES_V1, strict=True),
    *zip(samples("records-v1-pieces.jsonl"), RECORDS_V1_PIECES, strict=True),
    *zip(samples("records-v1-deletions.jsonl"), RECORDS_V1_DELETIONS, strict=True),
    *zip(samples("records-v1-racks.jsonl"), RECORDS_V1_RACKS, strict=True),
    *zip(samples("records-v1-format.jsonl"), RECORDS_V1_FORMAT, strict=True),
    *zip(samples("records-v1-running-time.jsonl"), RECORDS_V1_RUNNING_TIME, strict=True),
    *zip(samples("records-v1-restored.jsonl"), RECORDS_V1_RESTORED, strict=True),
    *zip(samples("records-v1.1.jsonl"), RECORDS_V1_1, strict=True),
    *zip(samples("records-v1.1-attempts.jsonl"), RECORDS_V1_1_ATTEMPTS, strict=True),
]


@pytest.mark.parametrize(("sample", "record"), PAIRS_V1)
def test_records_of_version_1_are_read(sample: Write, record: r.Record) -> None:
    assert sample.value is not None
    assert decode(sample.key, sample.value) == record


@pytest.mark.parametrize(("sample", "record"), PAIRS_V1)
def test_records_are_written_in_version_1(sample: Write, record: r.Record) -> None:
    assert encode(record) == sample


def test_every_kind_of_record_has_a_sample() -> None:
    stored = {kind for kind in r.Record.__args__ if not kind.__name__.endswith("Forgotten")}
    assert {type(record) for _, record in PAIRS_V1} == stored


async def test_a_store_file_of_schema_1_is_read_and_written(tmp_path: Path) -> None:
    connection = sqlite3.connect(tmp_path / "store.db")
    connection.executescript((HERE / "sqlite-v1.sql").read_text("utf-8"))
    connection.close()
    store = await SqliteStore.open(tmp_path / "store.db")
    keyspace = await store.acquire("shard-3")
    assert keyspace.epoch == 5
    found = [decode(key, value) async for page in keyspace.scan(b"") for key, value in page]
    assert found == [r.OffsetRecord("simple", "clicks", 3, 42, None, "", 1763722800123)]
    await keyspace.append([encode(r.OffsetForgotten("simple", "clicks", 3))])
    assert [page async for page in keyspace.scan(b"")] == []
    await store.close()
    connection = sqlite3.connect(tmp_path / "store.db")
    assert connection.execute("SELECT sequence FROM last_commit").fetchone()[0] >= 11, (
        "one or more for the open, and one"
    )
    connection.close()


async def test_a_new_store_file_has_the_schema_of_its_sample(tmp_path: Path) -> None:
    await (await SqliteStore.open(tmp_path / "new.db")).close()
    sample = sqlite3.connect(":memory:")
    sample.executescript((HERE / f"sqlite-v{SCHEMA_VERSION}.sql").read_text("utf-8"))
    new = sqlite3.connect(tmp_path / "new.db")
    questions = ("SELECT name, sql FROM sqlite_schema ORDER BY name", "PRAGMA application_id", "PRAGMA user_version")
    for question in questions:
        assert new.execute(question).fetchall() == sample.execute(question).fetchall()
    new.close()
    sample.close()
