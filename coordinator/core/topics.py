"""The rules of the topic registry. It spans groups, so it has a space and a version of its own.

A change of a topic's partitions is what starts a rebalance of the groups that subscribe; the runtime tells them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import singledispatch
from types import MappingProxyType

from coordinator.core import records as r
from coordinator.core.capacity import over_limit
from coordinator.core.commands import Rules
from coordinator.core.effects import Failure
from protocol import messages as m
from protocol.errors import ErrorCode


@dataclass(frozen=True, slots=True)
class PutTopic:
    """Register a topic, let it grow, or report its end offsets."""

    topic: str
    request: m.PutTopicRequest


@dataclass(frozen=True, slots=True)
class DeleteTopic:
    """Take a topic out of the registry."""

    topic: str


@dataclass(slots=True)
class Registry:
    """The registered topics. `partition_counts` is replaced, never changed, so that it may be shared as it is; so is
    `deleted`: the deletions of which some group may not have heard, with their versions, of which
    `deletions` is the newest.
    """

    version: int = 0
    topics: dict[str, r.TopicRecord] = field(default_factory=dict)
    partition_counts: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    deleted: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    deletions: int = 0


@dataclass(frozen=True, slots=True)
class TopicDecision:
    """Records to store before the answer leaves; none where the answer is a failure."""

    records: tuple[r.RegistryFact, ...]
    answer: m.Topic | m.DeletedTopic | Failure


def decide_topic(registry: Registry, request: PutTopic | DeleteTopic, rules: Rules) -> TopicDecision:
    """What follows from the request. Changes nothing.

    Errors: INVALID_REQUEST for a topic that would shrink or for the end of a partition that it does not have;
    UNKNOWN_TOPIC_OR_PARTITION for the deletion of a topic that is not there; THROTTLING_QUOTA_EXCEEDED for more topics
    or partitions than the registry may hold. A topic that is there can always report its ends.
    """
    if isinstance(request, DeleteTopic):
        return _decide_delete(registry, request)
    return _decide_put(registry, request, rules)


def _decide_put(registry: Registry, request: PutTopic, rules: Rules) -> TopicDecision:
    wanted = request.request
    held = registry.topics.get(request.topic)
    if held is not None and wanted.partitions < held.partitions:
        detail = f"Topic {request.topic!r} has {held.partitions} partitions and cannot shrink to {wanted.partitions}."
        return TopicDecision((), Failure(ErrorCode.INVALID_REQUEST, detail, field="partitions"))
    beyond = next((partition for partition in wanted.end_offsets if partition >= wanted.partitions), None)
    if beyond is not None:
        detail = f"Topic {request.topic!r} has no partition {beyond}."
        return TopicDecision((), Failure(ErrorCode.INVALID_REQUEST, detail, field=f"end_offsets.{beyond}"))
    refused = _check_room(registry, request, held, rules)
    if refused is not None:
        return TopicDecision((), refused)
    end_offsets = {**(held.end_offsets if held is not None else {}), **wanted.end_offsets}
    if held is not None and held.partitions == wanted.partitions and held.end_offsets == end_offsets:
        return TopicDecision((), topic_answer(held))
    version = registry.version + 1
    record = r.TopicRecord(request.topic, wanted.partitions, version, end_offsets)
    return TopicDecision((record, r.RegistryRecord(version)), topic_answer(record))


def _check_room(registry: Registry, request: PutTopic, held: r.TopicRecord | None, rules: Rules) -> Failure | None:
    if held is None and len(registry.topics) >= rules.topics_max:
        return over_limit(
            "topics_max", rules.topics_max, f"{len(registry.topics)} topics are registered", field="topic"
        )
    added = request.request.partitions - (0 if held is None else held.partitions)
    if added and sum(registry.partition_counts.values()) + added > rules.topics_partitions_max:
        detail = "The registered topics would have too many partitions together"
        return over_limit("topics_partitions_max", rules.topics_partitions_max, detail, field="partitions")
    return None


def _decide_delete(registry: Registry, request: DeleteTopic) -> TopicDecision:
    if request.topic not in registry.topics:
        detail = f"Topic {request.topic!r} is not registered."
        return TopicDecision((), Failure(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, detail, field="topic"))
    version = registry.version + 1
    records = (
        r.TopicForgotten(request.topic),
        r.DeletedTopicRecord(request.topic, version),
        r.RegistryRecord(version),
    )
    return TopicDecision(records, m.DeletedTopic(topic=request.topic, version=version))


def forget_deletions(registry: Registry, version: int) -> tuple[r.DeletedTopicForgotten, ...]:
    """Every group has heard of the deletions up to this version: they need not be kept. No change that clients see."""
    return tuple(r.DeletedTopicForgotten(topic) for topic, deleted in registry.deleted.items() if deleted <= version)


def topic_answer(record: r.TopicRecord) -> m.Topic:
    """A topic as clients see it."""
    return m.Topic(
        topic=record.topic,
        partitions=record.partitions,
        version=record.version,
        end_offsets=dict(sorted(record.end_offsets.items())),
    )


def apply_topic(registry: Registry, fact: r.RegistryFact) -> None:
    """Write one record into the registry, live and at load."""
    _apply_topic(fact, registry)


@singledispatch
def _apply_topic(fact: object, registry: Registry) -> None:
    raise AssertionError(f"no such record: {fact!r}")


@_apply_topic.register
def _topic_record(fact: r.TopicRecord, registry: Registry) -> None:
    registry.topics[fact.topic] = fact
    if registry.partition_counts.get(fact.topic) != fact.partitions:
        registry.partition_counts = MappingProxyType({**registry.partition_counts, fact.topic: fact.partitions})


@_apply_topic.register
def _topic_forgotten(fact: r.TopicForgotten, registry: Registry) -> None:
    registry.topics.pop(fact.topic, None)
    registry.partition_counts = MappingProxyType(
        {topic: count for topic, count in registry.partition_counts.items() if topic != fact.topic}
    )


@_apply_topic.register
def _deleted_topic_record(fact: r.DeletedTopicRecord, registry: Registry) -> None:
    _set_deleted(registry, {**registry.deleted, fact.topic: fact.version})


@_apply_topic.register
def _deleted_topic_forgotten(fact: r.DeletedTopicForgotten, registry: Registry) -> None:
    _set_deleted(registry, {topic: version for topic, version in registry.deleted.items() if topic != fact.topic})


def _set_deleted(registry: Registry, deleted: dict[str, int]) -> None:
    registry.deleted = MappingProxyType(deleted)
    registry.deletions = max(deleted.values(), default=0)


@_apply_topic.register
def _registry_record(fact: r.RegistryRecord, registry: Registry) -> None:
    registry.version = fact.version
