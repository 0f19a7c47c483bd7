"""The rules of the topic registry."""

from coordinator.core.commands import Rules
from coordinator.core.effects import Failure
from coordinator.core.topics import DeleteTopic, PutTopic, Registry, TopicDecision, apply_topic, decide_topic
from protocol import messages as m
from protocol.errors import ErrorCode

RULES = Rules(topics_max=2, topics_partitions_max=10)


def put(registry: Registry, topic: str, partitions: int, **end_offsets: int) -> TopicDecision:
    ends = {int(name[1:]): offset for name, offset in end_offsets.items()}
    wanted = PutTopic(topic, m.PutTopicRequest(partitions=partitions, end_offsets=ends))
    decision = decide_topic(registry, wanted, RULES)
    for record in decision.records:
        apply_topic(registry, record)
    return decision


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
    missing = decide_topic(registry, DeleteTopic("u"), RULES)
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
    decision = decide_topic(registry, DeleteTopic("t"), RULES)
    for record in decision.records:
        apply_topic(registry, record)
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
        assert (refused.setting, refused.limit) == (setting, limit)
    assert (registry.version, registry.partition_counts) == (version, {"t": 4, "u": 6})
    assert code_of(put(registry, "t", 4, p0=9)) is ErrorCode.NONE, "a topic that is there reports its ends"
