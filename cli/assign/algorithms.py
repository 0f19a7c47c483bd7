"""Who answers a question: an assignor of the registry, or one of the rules that know no group.

The rules of MetaQ and RocketMQ are both: asked about a group they are assignors, asked about `consumers` they answer in
their own systems' form.
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
    """Every algorithm that can be asked, sorted."""
    return tuple(sorted({*registry.names(), *RULES}))


def described() -> dict[str, str]:
    """Every algorithm with a sentence on it. An assignor that cannot be used says why."""
    return {name: _described(name) for name in names()}


def answer(algorithm: str, asked: Any) -> JsonValue:
    """The answer in the form of the oracles: see docs/assign.md. QuestionError if there is none."""
    if algorithm in RULES and not is_group(asked):
        try:
            return RULES[algorithm][1](asked)
        except (AllocationError, PlacementError) as error:
            raise QuestionError(str(error)) from error
    assignor = find(algorithm)
    spec = read(GroupQuestion, asked).spec()
    return as_json(spec, assign(assignor, spec))


def is_group(asked: Any) -> bool:
    """Whether the question is about a group of consumers, by the fields that it has."""
    return isinstance(asked, Mapping) and ("subscriptions" in asked or "partitions_per_topic" in asked)


@cache
def find(algorithm: str) -> Assignor:
    """The assignor of this name. QuestionError if there is none, with the name that was perhaps meant.

    Found once for a process, since finding reads the metadata of all installed distributions.
    """
    if algorithm not in names():
        meant = get_close_matches(algorithm, names(), n=1)
        hint = f"; did you mean {meant[0]!r}?" if meant else "."
        raise UnknownAlgorithm(f"no algorithm is called {algorithm!r}{hint} There are: {', '.join(names())}")
    try:
        return registry.find(algorithm)
    except registry.UnknownAssignor as error:
        raise QuestionError(f"{algorithm!r} shares nothing out among the members of a group") from error
    except registry.AssignorError as error:
        raise QuestionError(str(error)) from error


def assign(assignor: Assignor, spec: GroupSpec) -> Assignment:
    """Ask the assignor, and look whether its answer is one. It may be somebody else's code, which may do anything."""
    try:
        return validity.run(assignor, spec).assignment
    except validity.InvalidAssignment as error:
        raise QuestionError(f"the assignor {assignor.name!r} answered wrongly: {error}") from error
    except Exception as error:
        raise QuestionError(f"the assignor {assignor.name!r} failed: {type(error).__name__}: {error}") from error


def as_json(spec: GroupSpec, assignment: Assignment) -> JsonValue:
    """Members in the order of the question, each with its `[topic, partition]` in order."""
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
    def answer_it(asked: Any) -> JsonValue:
        question = read(MetaqQuestion, asked)
        return {consumer: list(share) for consumer, share in rule(question.partitions, question.consumers).items()}

    return answer_it


def _rocketmq(
    rule: Callable[[list[rocketmq.MessageQueue], RocketmqQuestion], dict[str, tuple[rocketmq.MessageQueue, ...]]],
) -> Answer:
    def answer_it(asked: Any) -> JsonValue:
        question = read(RocketmqQuestion, asked)
        shares = rule(question.message_queues(), question)
        return {consumer: [list(queue) for queue in share] for consumer, share in shares.items()}

    return answer_it


RULES: dict[str, tuple[str, Answer]] = {
    "replicas": ("Replicas of partitions to brokers, as Kafka's tools place them without racks.", _replicas),
    "replicas-rack-aware": (
        "Replicas to brokers of several racks, each rack used before any twice.",
        _replicas_by_rack,
    ),
    "coordinator-partition": ("A group id to its hash and its partition (here: shard).", _coordinator_partition),
    "producer-partitioner": ("A record's key to its hash and its partition.", _producer_partitioner),
    "metaq-default": ("MetaQ's default rule: a topic's partitions in runs.", _metaq(metaq.allocate_default)),
    "metaq-consistent-hash": ("MetaQ's consistent hash.", _metaq(metaq.allocate_by_hash)),
    "rocketmq-averagely": (
        "RocketMQ's default rule: a topic's queues in runs.",
        _rocketmq(lambda queues, question: rocketmq.allocate_averagely(queues, question.consumers)),
    ),
    "rocketmq-averagely-by-circle": (
        "RocketMQ's circle: a topic's queues one by one.",
        _rocketmq(lambda queues, question: rocketmq.allocate_by_circle(queues, question.consumers)),
    ),
    "rocketmq-consistent-hash": (
        "RocketMQ's consistent hash.",
        _rocketmq(
            lambda queues, question: rocketmq.allocate_by_hash(queues, question.consumers, question.virtual_nodes)
        ),
    ),
}
"""By name: a sentence, and how a question in the rule's own form is answered."""
