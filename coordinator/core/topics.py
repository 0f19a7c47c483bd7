"""The rules of the topic registry. It spans groups, so it has a keyspace and a version of its own.

A change in a topic's number of partitions starts a rebalance of the groups that subscribe to it; the runtime notifies
them. A change of racks starts none: it counts at the next rebalance.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import singledispatch
from types import MappingProxyType
from typing import cast

from rallypoint.coordinator.core import ends_history
from rallypoint.coordinator.core import records as r
from rallypoint.coordinator.core.capacity import over_limit
from rallypoint.coordinator.core.commands import Rules
from rallypoint.coordinator.core.effects import Failure, LargeTopicList
from rallypoint.protocol import messages as m
from rallypoint.protocol.errors import ErrorCode

Racks = tuple[tuple[str, ...], ...]
"""Of one topic: by partition the racks of its replicas, as `TopicRecord` has them."""

LISTED_AT_ONCE_MAX = 2_000
"""Topics, ends and racks of a page that is made in one go."""

_to_json = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


@dataclass(frozen=True, slots=True)
class PutTopic:
    """Register a topic, let it grow, or report its end offsets or the racks of its replicas."""

    topic: str
    request: m.PutTopicRequest


@dataclass(frozen=True, slots=True)
class DeleteTopic:
    """Take a topic out of the registry."""

    topic: str


@dataclass(slots=True)
class Registry:
    """The registered topics.

    `partition_counts` and `deleted` are replaced, never changed, so that they may be shared as they are.

    version: grows with each change.
    topics: the record of each topic.
    ends_history: where each topic ended at which times.
    partition_counts: the number of partitions of each topic.
    deleted: the deletions of which some group may not have heard, by topic, with their versions.
    deletions: the newest of these versions.
    racks_bytes: what the racks of each topic take in memory, for topics that have any.
    unreadable: topics that are registered but whose record cannot be read.
    generation_floor: the last generation that may have been handed out before the store was restored; 0 if it never
        was.
    """

    version: int = 0
    topics: dict[str, r.TopicRecord] = field(default_factory=dict)
    ends_history: dict[str, r.EndsHistoryRecord] = field(default_factory=dict)
    partition_counts: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    deleted: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    deletions: int = 0
    racks_bytes: dict[str, int] = field(default_factory=dict)
    unreadable: frozenset[str] = frozenset()
    generation_floor: int = 0

    @property
    def replica_racks(self) -> dict[str, Racks]:
        """By topic, those that have any; a new mapping, which nobody changes. Cost: O(topics)."""
        return {topic: record.replica_racks for topic, record in self.topics.items() if record.replica_racks}


@dataclass(frozen=True, slots=True)
class TopicDecision:
    """Records to store before the answer leaves; none where the answer is a failure."""

    records: tuple[r.RegistryFact, ...]
    answer: m.Topic | m.DeletedTopic | Failure


def decide_topic(registry: Registry, request: PutTopic | DeleteTopic, rules: Rules, now_ms: int) -> TopicDecision:
    """What follows from the request, which came now. Changes nothing.

    Errors: INVALID_REQUEST for a topic that would shrink, for the end of a partition that it does not have, or for
    racks of more or fewer partitions than it has; UNKNOWN_TOPIC_OR_PARTITION for the deletion of a topic that is not
    there; THROTTLING_QUOTA_EXCEEDED for more topics, partitions or racks than the registry may hold. A topic that is
    there can always report its ends.
    """
    if isinstance(request, DeleteTopic):
        return _decide_delete(registry, request)
    return _decide_put(registry, request, rules, now_ms)


def _decide_put(registry: Registry, request: PutTopic, rules: Rules, now_ms: int) -> TopicDecision:
    wanted = request.request
    held = registry.topics.get(request.topic)
    refused = _check_partitions(request.topic, wanted, held) or _check_room(registry, request, held, rules)
    if refused is not None:
        return TopicDecision((), refused)
    end_offsets = {**(held.end_offsets if held is not None else {}), **wanted.end_offsets}
    racks = _racks_after(held, wanted)
    history: r.EndsHistoryRecord | None = None
    if wanted.end_offsets:
        known = registry.ends_history.get(request.topic)
        history = ends_history.sighted(known, request.topic, end_offsets, len(registry.topics), now_ms)
    seen = () if history is None else (history,)
    if held is not None and (held.partitions, held.end_offsets, held.replica_racks) == (
        wanted.partitions,
        end_offsets,
        racks,
    ):
        return TopicDecision(seen, topic_answer(held))
    version = registry.version + 1
    record = r.TopicRecord(request.topic, wanted.partitions, version, end_offsets, racks)
    return TopicDecision((record, *seen, r.RegistryRecord(version)), topic_answer(record))


def _check_partitions(topic: str, wanted: m.PutTopicRequest, held: r.TopicRecord | None) -> Failure | None:
    """Whether the fields agree with each other, and with what the topic has."""
    count = wanted.partitions
    if held is not None and count < held.partitions:
        detail = f"Topic {topic!r} has {held.partitions} partitions and cannot shrink to {count}."
        return Failure(ErrorCode.INVALID_REQUEST, detail, field="partitions")
    beyond = next((partition for partition in wanted.end_offsets if partition >= count), None)
    if beyond is not None:
        detail = f"Topic {topic!r} has no partition {beyond}."
        return Failure(ErrorCode.INVALID_REQUEST, detail, field=f"end_offsets.{beyond}")
    if wanted.replica_racks and len(wanted.replica_racks) != count:
        detail = f"Racks are given for {len(wanted.replica_racks)} partitions, and topic {topic!r} has {count}."
        return Failure(ErrorCode.INVALID_REQUEST, detail, field="replica_racks")
    return None


def _racks_after(held: r.TopicRecord | None, wanted: m.PutTopicRequest) -> Racks:
    """The racks as they will be. Without a word about them they stay, and those of new partitions are not known."""
    if "replica_racks" in wanted.model_fields_set:
        given = wanted.replica_racks or ()
        return given if any(given) else ()
    if held is None or not held.replica_racks:
        return ()
    return held.replica_racks + ((),) * (wanted.partitions - held.partitions)


def _check_room(registry: Registry, request: PutTopic, held: r.TopicRecord | None, rules: Rules) -> Failure | None:
    if held is None and len(registry.topics) >= rules.topics_max:
        return over_limit(
            "topics_max", rules.topics_max, f"{len(registry.topics)} topics are registered", field="topic"
        )
    added = request.request.partitions - (0 if held is None else held.partitions)
    if added and request.request.partitions > rules.topic_partitions_max:
        detail = f"Topic {request.topic!r} would have {request.request.partitions} partitions"
        return over_limit("topic_partitions_max", rules.topic_partitions_max, detail, field="partitions")
    if added and sum(registry.partition_counts.values()) + added > rules.topics_partitions_max:
        detail = "The registered topics would have too many partitions together"
        return over_limit("topics_partitions_max", rules.topics_partitions_max, detail, field="partitions")
    return _check_racks_room(registry, request, rules)


def _check_racks_room(registry: Registry, request: PutTopic, rules: Rules) -> Failure | None:
    given = request.request.replica_racks or ()
    if not any(given):
        return None
    limit, before, after = rules.topics_racks_max_bytes, registry.racks_bytes.get(request.topic, 0), _size_bytes(given)
    if after <= before or sum(registry.racks_bytes.values()) - before + after <= limit:
        return None
    detail = "The racks of the registered topics would take too many bytes together"
    return over_limit("topics_racks_max_bytes", limit, detail, field="replica_racks")


def _size_bytes(racks: Racks) -> int:
    text = _to_json(racks)
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def _decide_delete(registry: Registry, request: DeleteTopic) -> TopicDecision:
    if request.topic not in registry.topics and request.topic not in registry.unreadable:
        detail = f"Topic {request.topic!r} is not registered."
        return TopicDecision((), Failure(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, detail, field="topic"))
    version = registry.version + 1
    records = (
        r.TopicForgotten(request.topic),
        r.EndsHistoryForgotten(request.topic),
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
        replica_racks=record.replica_racks,
    )


def topics_answer(registry: Registry, shown: Iterable[str], next_cursor: str | None) -> m.ListTopicsAnswer:
    """A page with these topics; in the words of their records where that is much."""
    records = [registry.topics[topic] for topic in shown]
    if sum(1 + len(of.end_offsets) + len(of.replica_racks) for of in records) <= LISTED_AT_ONCE_MAX:
        topics = tuple(map(topic_answer, records))
        return m.ListTopicsAnswer(topics=topics, version=registry.version, next_cursor=next_cursor)
    return LargeTopicList.model_construct(
        topics=cast(tuple[m.Topic, ...], tuple(records)), version=registry.version, next_cursor=next_cursor
    )


def apply_topics(registry: Registry, facts: Iterable[r.RegistryFact]) -> None:
    """Write records into the registry, live and at load. Cost: O(topics) for all of them together."""
    writer = _Writer(registry)
    for fact in facts:
        _apply_topic(fact, writer)
    writer.end()


class _Writer:
    """A registry that is being written: what is replaced in it and not changed is copied once, if anything of it is."""

    def __init__(self, registry: Registry) -> None:
        self.registry = registry
        self._counts: dict[str, int] | None = None
        self._deleted: dict[str, int] | None = None

    @property
    def counts(self) -> dict[str, int]:
        """The partition counts, to be changed."""
        if self._counts is None:
            self._counts = dict(self.registry.partition_counts)
        return self._counts

    @property
    def deleted(self) -> dict[str, int]:
        """The deletions, to be changed."""
        if self._deleted is None:
            self._deleted = dict(self.registry.deleted)
        return self._deleted

    def end(self) -> None:
        """Replace what was changed."""
        if self._counts is not None:
            self.registry.partition_counts = MappingProxyType(self._counts)
        if self._deleted is not None:
            self.registry.deleted = MappingProxyType(self._deleted)
            self.registry.deletions = max(self._deleted.values(), default=0)


@singledispatch
def _apply_topic(fact: object, writer: _Writer) -> None:
    raise AssertionError(f"no such record: {fact!r}")


@_apply_topic.register
def _topic_record(fact: r.TopicRecord, writer: _Writer) -> None:
    registry = writer.registry
    held = registry.topics.get(fact.topic)
    registry.topics[fact.topic] = fact
    registry.unreadable -= {fact.topic}
    if not fact.replica_racks:
        registry.racks_bytes.pop(fact.topic, None)
    elif held is None or held.replica_racks is not fact.replica_racks:  # a report of ends leaves them as they are
        registry.racks_bytes[fact.topic] = _size_bytes(fact.replica_racks)
    if held is None or held.partitions != fact.partitions:
        writer.counts[fact.topic] = fact.partitions


@_apply_topic.register
def _topic_forgotten(fact: r.TopicForgotten, writer: _Writer) -> None:
    writer.registry.topics.pop(fact.topic, None)
    writer.registry.unreadable -= {fact.topic}
    writer.registry.racks_bytes.pop(fact.topic, None)
    writer.counts.pop(fact.topic, None)


@_apply_topic.register
def _ends_history_record(fact: r.EndsHistoryRecord, writer: _Writer) -> None:
    writer.registry.ends_history[fact.topic] = fact


@_apply_topic.register
def _ends_history_forgotten(fact: r.EndsHistoryForgotten, writer: _Writer) -> None:
    writer.registry.ends_history.pop(fact.topic, None)


@_apply_topic.register
def _deleted_topic_record(fact: r.DeletedTopicRecord, writer: _Writer) -> None:
    writer.deleted[fact.topic] = fact.version


@_apply_topic.register
def _deleted_topic_forgotten(fact: r.DeletedTopicForgotten, writer: _Writer) -> None:
    writer.deleted.pop(fact.topic, None)


@_apply_topic.register
def _registry_record(fact: r.RegistryRecord, writer: _Writer) -> None:
    writer.registry.version = fact.version


@_apply_topic.register
def _generation_floor_record(fact: r.GenerationFloorRecord, writer: _Writer) -> None:
    writer.registry.generation_floor = fact.generation_id
