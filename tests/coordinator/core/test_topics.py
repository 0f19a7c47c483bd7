"""The rules of the topic registry."""

import json
from typing import Any

import pytest

from rallypoint.coordinator.core.commands import Rules
from rallypoint.coordinator.core.effects import Failure
from rallypoint.coordinator.core.records import DeletedTopicRecord, RegistryRecord, TopicRecord
from rallypoint.coordinator.core.topics import (
    DeleteTopic,
    PutTopic,
    Registry,
    TopicDecision,
    apply_topics,
    decide_topic,
)
from rallypoint.protocol import messages as m
from rallypoint.protocol.errors import ErrorCode

NOW_MS = 1_700_000_000_000
RULES = Rules(topics_max=2, topic_partitions_max=8, topics_partitions_max=10, topics_racks_max_bytes=40)


def put(registry: Registry, topic: str, partitions: int, **end_offsets: int) -> TopicDecision:
    ends = {int(name[1:]): offset for name, offset in end_offsets.items()}
    wanted = PutTopic(topic, m.PutTopicRequest(partitions=partitions, end_offsets=ends))
    decision = decide_topic(registry, wanted, RULES, NOW_MS)
    apply_topics(registry, decision.records)
    return decision


def put_racks(registry: Registry, topic: str, partitions: int, **said: Any) -> TopicDecision:
    """As a client says it: lists, and what is not said at all."""
    request = m.PutTopicRequest.model_validate_json(json.dumps({"partitions": partitions, **said}))
    decision = decide_topic(registry, PutTopic(topic, request), RULES, NOW_MS)
    apply_topics(registry, decision.records)
    return decision


def racks_of(decision: TopicDecision) -> tuple[tuple[str, ...], ...]:
    assert isinstance(decision.answer, m.Topic), decision.answer
    return decision.answer.replica_racks


def code_of(decision: TopicDecision) -> ErrorCode:
    return decision.answer.code if isinstance(decision.answer, Failure) else ErrorCode.NONE


def test_a_topic_grows_and_each_change_counts_one() -> None:
    registry = Registry()
    before = registry.partition_counts
    assert put(registry, "t", 2).answer == m.Topic(topic="t", partitions=2, version=1)
    assert put(registry, "t", 4).answer == m.Topic(topic="t", partitions=4, version=2)
    assert registry.partition_counts == {"t": 4}
    assert before == {}


def test_the_same_again_writes_nothing() -> None:
    registry = Registry()
    put(registry, "t", 2, p0=5)
    again = put(registry, "t", 2, p0=5)
    assert again.records == ()
    assert again.answer == m.Topic(topic="t", partitions=2, version=1, end_offsets={0: 5})


def test_end_offsets_are_kept_until_reported_anew() -> None:
    registry = Registry()
    put(registry, "t", 2, p0=5, p1=7)
    put(registry, "t", 2, p1=9)
    assert registry.topics["t"].end_offsets == {0: 5, 1: 9}
    assert registry.version == 2


def test_what_cannot_be_is_refused_with_its_field_and_changes_nothing() -> None:
    registry = Registry()
    put(registry, "t", 4)
    shrunk = put(registry, "t", 3)
    beyond = put(registry, "t", 4, p4=1)
    missing = decide_topic(registry, DeleteTopic("u"), RULES, NOW_MS)
    assert [code_of(x) for x in (shrunk, beyond, missing)] == [
        ErrorCode.INVALID_REQUEST,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]
    fields = [x.answer.field for x in (shrunk, beyond, missing) if isinstance(x.answer, Failure)]
    assert fields == ["partitions", "end_offsets.4", "topic"]
    assert registry.version == 1


def test_a_deleted_topic_is_gone_and_the_version_goes_on() -> None:
    registry = Registry()
    put(registry, "t", 4)
    put(registry, "u", 1)
    decision = decide_topic(registry, DeleteTopic("t"), RULES, NOW_MS)
    apply_topics(registry, decision.records)
    assert decision.answer == m.DeletedTopic(topic="t", version=3)
    assert registry.partition_counts == {"u": 1}


def test_the_registry_takes_so_many_topics_and_partitions_and_no_more() -> None:
    registry = Registry()
    put(registry, "t", 4)
    put(registry, "u", 6)
    version = registry.version
    for topic, partitions, field, setting, limit in (
        ("v", 1, "topic", "topics_max", 2),
        ("t", 5, "partitions", "topics_partitions_max", 10),
    ):
        refused = put(registry, topic, partitions).answer
        assert isinstance(refused, Failure)
        assert (refused.code, refused.field) == (ErrorCode.THROTTLING_QUOTA_EXCEEDED, field)
        assert (refused.limit_name, refused.limit) == (setting, limit)
    assert (registry.version, registry.partition_counts) == (version, {"t": 4, "u": 6})
    assert code_of(put(registry, "t", 4, p0=9)) is ErrorCode.NONE, "a topic that is there reports its ends"


def test_one_topic_takes_so_many_partitions_and_keeps_those_that_it_had() -> None:
    registry = Registry()
    refused = put(registry, "t", 9).answer
    assert isinstance(refused, Failure)
    assert (refused.code, refused.field) == (ErrorCode.THROTTLING_QUOTA_EXCEEDED, "partitions")
    assert (refused.limit_name, refused.limit) == ("topic_partitions_max", 8)
    assert registry == Registry()
    apply_topics(registry, (TopicRecord("t", 9, 1, {}, ()), RegistryRecord(1)))
    assert code_of(put(registry, "t", 9, p0=9)) is ErrorCode.NONE, "it has been there since the limit was higher"
    assert code_of(put(registry, "t", 10)) is ErrorCode.THROTTLING_QUOTA_EXCEEDED


# --- racks -----------------------------------------------------------------------------------------------------------


def test_racks_stay_until_they_are_said_anew_or_forgotten() -> None:
    registry = Registry()
    assert racks_of(put_racks(registry, "t", 2, replica_racks=[["x", "y"], []])) == (("x", "y"), ())
    assert racks_of(put_racks(registry, "t", 2, end_offsets={"0": 7})) == (("x", "y"), ())
    assert registry.replica_racks == {"t": (("x", "y"), ())}
    again = put_racks(registry, "t", 2, replica_racks=[["x", "y"], []])
    assert (again.records, registry.version) == ((), 2)
    assert racks_of(put_racks(registry, "t", 2, replica_racks=[["y", "x"], []])) == (("y", "x"), ())
    assert registry.version == 3, "the leader's rack is the first"


@pytest.mark.parametrize("nothing", [None, [], [[], []]])
def test_null_and_nothing_forget_the_racks(nothing: Any) -> None:
    registry = Registry()
    put_racks(registry, "t", 2, replica_racks=[["x"], ["y"]])
    assert racks_of(put_racks(registry, "t", 2, replica_racks=nothing)) == ()
    assert (registry.replica_racks, registry.racks_bytes) == ({}, {})
    assert put_racks(registry, "t", 2, replica_racks=nothing).records == ()


def test_the_racks_of_new_partitions_are_not_known_until_they_are_said() -> None:
    registry = Registry()
    put_racks(registry, "t", 2, replica_racks=[["x"], ["y"]])
    assert racks_of(put_racks(registry, "t", 4)) == (("x",), ("y",), (), ())
    assert racks_of(put_racks(registry, "t", 5, replica_racks=[["x"]] * 5)) == (("x",),) * 5
    assert racks_of(put_racks(registry, "u", 1)) == ()
    assert racks_of(put_racks(registry, "u", 3)) == ()


@pytest.mark.parametrize("count", [1, 3])
def test_racks_of_more_or_fewer_partitions_than_there_are_change_nothing(count: int) -> None:
    registry = Registry()
    put_racks(registry, "t", 2, replica_racks=[["x"], ["y"]])
    refused = put_racks(registry, "t", 2, replica_racks=[["z"]] * count, end_offsets={"0": 1})
    assert isinstance(refused.answer, Failure)
    assert (refused.answer.code, refused.answer.field) == (ErrorCode.INVALID_REQUEST, "replica_racks")
    assert (refused.records, registry.version) == ((), 1)
    assert registry.topics["t"].end_offsets == {}
    # Of a topic that grows, they are held against what it grows to.
    assert code_of(put_racks(registry, "t", 3, replica_racks=[["z"], ["z"]])) is ErrorCode.INVALID_REQUEST


def test_the_racks_of_all_topics_take_so_many_bytes_and_no_more() -> None:
    registry = Registry()
    put_racks(registry, "t", 1, replica_racks=[["é" * 6]])  # 12 bytes in 6 brackets and quotes
    assert registry.racks_bytes == {"t": 18}
    over = [["a" * 17]]
    refused = put_racks(registry, "u", 1, replica_racks=over).answer
    assert isinstance(refused, Failure)
    assert (refused.code, refused.field) == (ErrorCode.THROTTLING_QUOTA_EXCEEDED, "replica_racks")
    assert (refused.limit_name, refused.limit) == ("topics_racks_max_bytes", 40)
    assert code_of(put_racks(registry, "u", 1, replica_racks=[["a" * 16]])) is ErrorCode.NONE
    assert code_of(put_racks(registry, "t", 1, replica_racks=[["e" * 12]])) is ErrorCode.NONE, "as many as before"
    assert code_of(put_racks(registry, "t", 2)) is ErrorCode.NONE, "a topic that is there grows"
    apply_topics(registry, decide_topic(registry, DeleteTopic("t"), RULES, NOW_MS).records)
    assert code_of(put_racks(registry, "u", 1, replica_racks=over)) is ErrorCode.NONE, "t has gone"


class CountingRegistry(Registry):
    """Counts how often what it holds is replaced."""

    replaced = 0

    def __setattr__(self, name: str, value: object) -> None:
        if name in {"partition_counts", "deleted"}:
            type(self).replaced += 1
        super().__setattr__(name, value)


def test_many_records_are_written_at_the_cost_of_one_copy() -> None:
    registry = CountingRegistry()
    CountingRegistry.replaced = 0
    topics = [TopicRecord(f"t{n}", 1, n, {}, ()) for n in range(1_000)]
    gone = [DeletedTopicRecord(f"gone{n}", n) for n in range(1_000)]
    apply_topics(registry, [*topics, *gone, RegistryRecord(2_000)])
    assert CountingRegistry.replaced == 2
    assert len(registry.partition_counts) == len(registry.deleted) == 1_000
    assert (registry.version, registry.deletions) == (2_000, 999)
    CountingRegistry.replaced = 0
    apply_topics(registry, [TopicRecord("t1", 1, 2_001, {0: 5}, ()), RegistryRecord(2_001)])
    assert CountingRegistry.replaced == 0, "a report of ends copies nothing"
