"""The algorithms of `rallypoint assign`: the assignors of the registry, and rules that need no group.

The rules of MetaQ and RocketMQ are both: for a group they are assignors, for a list of `consumers` they answer in the
form of their own systems.
"""

from collections.abc import Callable, Mapping
from difflib import get_close_matches
from functools import cache
from typing import Any

from pydantic import JsonValue

from rallypoint.assignors import registry, validity
from rallypoint.assignors.contract import Assignment, Assignor, GroupSpec
from rallypoint.assignors.other_systems import metaq, rocketmq
from rallypoint.assignors.other_systems.allocation import AllocationError
from rallypoint.assignors.placement.partitioners import murmur2, partition_for_key
from rallypoint.assignors.placement.replicas import Broker, Placement, PlacementError, place, place_by_rack
from rallypoint.cli.assign.questions import (
    PARTITIONS_MAX,
    GroupIdQuestion,
    GroupQuestion,
    KeyQuestion,
    MetaqQuestion,
    QuestionError,
    ReplicasQuestion,
    RocketmqQuestion,
    UnknownAlgorithm,
    read,
)
from rallypoint.protocol.group_hash import java_string_hash, shard_of_group

Answer = Callable[[Any], JsonValue]


@cache
def names() -> tuple[str, ...]:
    """The names of all algorithms, sorted."""
    return tuple(sorted({*registry.names(), *RULES}))


def described() -> dict[str, str]:
    """A sentence on each algorithm, by name. For an assignor that cannot be used, it is the reason."""
    return {name: _described(name) for name in names()}


def answer(algorithm: str, asked: Any) -> JsonValue:
    """The answer in the form of the test oracles, see docs/assign.md. Raises QuestionError."""
    if algorithm in RULES and not is_group(asked):
        try:
            return RULES[algorithm][1](asked)
        except (AllocationError, PlacementError) as error:
            raise QuestionError(str(error)) from error
    assignor = find(algorithm)
    spec = read(GroupQuestion, asked).spec()
    return as_json(spec, assign(assignor, spec))


def is_group(asked: Any) -> bool:
    """Whether the question is about a group of consumers, by its fields."""
    return isinstance(asked, Mapping) and ("subscriptions" in asked or "partitions_per_topic" in asked)


@cache
def find(algorithm: str) -> Assignor:
    """The assignor of this name. Raises QuestionError, with a similar name if there is one.

    The result is cached, because the search reads the metadata of all installed distributions.
    """
    if algorithm not in names():
        meant = get_close_matches(algorithm, names(), n=1)
        hint = f"; did you mean {meant[0]!r}?" if meant else "."
        raise UnknownAlgorithm(f"no algorithm is called {algorithm!r}{hint} There are: {', '.join(names())}")
    try:
        return registry.find(algorithm)
    except registry.UnknownAssignor as error:
        raise QuestionError(f"{algorithm!r} does not assign partitions to the members of a group") from error
    except registry.AssignorError as error:
        raise QuestionError(str(error)) from error


def assign(assignor: Assignor, spec: GroupSpec) -> Assignment:
    """Run the assignor and validate its result. Raises QuestionError for any error, as it may be a plug-in."""
    try:
        return validity.run(assignor, spec).assignment
    except validity.InvalidAssignment as error:
        raise QuestionError(f"the assignor {assignor.name!r} returned an invalid assignment: {error}") from error
    except Exception as error:
        raise QuestionError(f"the assignor {assignor.name!r} failed: {type(error).__name__}: {error}") from error


def as_json(spec: GroupSpec, assignment: Assignment) -> JsonValue:
    """The members in the order of the question, each with its sorted `[topic, partition]` pairs."""
    return {member_id: [[topic, n] for topic, n in assignment[member_id]] for member_id in spec.subscriptions}


def _described(name: str) -> str:
    if name in RULES:
        return RULES[name][0]
    try:
        text = type(find(name)).__doc__ or ""
    except QuestionError as error:
        return f"cannot be used: {error}"
    return text.strip().partition("\n")[0]


def _replicas(asked: Any) -> JsonValue:
    question = read(ReplicasQuestion, asked)
    return _placement(place([broker.id for broker in question.brokers], *_sizes(question)))


def _replicas_by_rack(asked: Any) -> JsonValue:
    question = read(ReplicasQuestion, asked)
    return _placement(place_by_rack([Broker(broker.id, broker.rack) for broker in question.brokers], *_sizes(question)))


def _sizes(question: ReplicasQuestion) -> tuple[int, int, int, int]:
    if question.partitions * max(1, question.replication_factor) > PARTITIONS_MAX:
        raise QuestionError(f"partitions: more than {PARTITIONS_MAX} replicas in all")
    return question.partitions, question.replication_factor, question.fixed_start_index, question.start_partition_id


def _placement(placement: Placement[int]) -> JsonValue:
    return {str(partition): list(brokers) for partition, brokers in placement.items()}


def _coordinator_partition(asked: Any) -> JsonValue:
    question = read(GroupIdQuestion, asked)
    return {
        "hash": java_string_hash(question.group_id),
        "partition": shard_of_group(question.group_id, question.partitions),
    }


def _producer_partitioner(asked: Any) -> JsonValue:
    question = read(KeyQuestion, asked)
    key = question.key()
    return {"murmur2": murmur2(key), "partition": partition_for_key(key, question.partitions)}


def _metaq(rule: Callable[[list[str], list[str]], dict[str, tuple[str, ...]]]) -> Answer:
    def answer_question(asked: Any) -> JsonValue:
        question = read(MetaqQuestion, asked)
        allocated = rule(question.partitions, question.consumers)
        return {consumer: list(partitions) for consumer, partitions in allocated.items()}

    return answer_question


def _rocketmq(
    rule: Callable[[list[rocketmq.MessageQueue], RocketmqQuestion], dict[str, tuple[rocketmq.MessageQueue, ...]]],
) -> Answer:
    def answer_question(asked: Any) -> JsonValue:
        question = read(RocketmqQuestion, asked)
        allocated = rule(question.message_queues(), question)
        return {consumer: [list(queue) for queue in queues] for consumer, queues in allocated.items()}

    return answer_question


RULES: dict[str, tuple[str, Answer]] = {
    "replicas": ("Places replicas of partitions on brokers, as Kafka's tools do without racks.", _replicas),
    "replicas-rack-aware": (
        "Places replicas on brokers in several racks, in each rack once before any rack twice.",
        _replicas_by_rack,
    ),
    "coordinator-partition": ("The hash of a group id and its partition (here: shard).", _coordinator_partition),
    "producer-partitioner": ("The hash of a record's key and its partition.", _producer_partitioner),
    "metaq-default": ("MetaQ's default rule: contiguous runs of a topic's partitions.", _metaq(metaq.allocate_default)),
    "metaq-consistent-hash": ("MetaQ's consistent hashing.", _metaq(metaq.allocate_by_hash)),
    "rocketmq-averagely": (
        "RocketMQ's default rule: contiguous runs of a topic's queues.",
        _rocketmq(lambda queues, question: rocketmq.allocate_averagely(queues, question.consumers)),
    ),
    "rocketmq-averagely-by-circle": (
        "RocketMQ's round-robin over a topic's queues.",
        _rocketmq(lambda queues, question: rocketmq.allocate_by_circle(queues, question.consumers)),
    ),
    "rocketmq-consistent-hash": (
        "RocketMQ's consistent hashing.",
        _rocketmq(
            lambda queues, question: rocketmq.allocate_by_hash(queues, question.consumers, question.virtual_nodes)
        ),
    ),
}
"""By name: a sentence, and the function that answers a question in the rule's own form."""
