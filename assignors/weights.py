"""What members say their partitions weigh, as numbers that a rule can count with. Who gets what is not said here.

A member may tell, in its subscription's `user_data`, how much work a partition is: its lag, its records a second, its
bytes; the unit is theirs, but all must use the same:

    {"weights": {"clicks": {"0": 1250, "1": 40.5}}}

It is written by others, so anything may stand there. What has not this form, or is no finite number from 0 to 2**53,
is taken as not said; beside it the rest of the same report counts.
"""

from collections.abc import Iterator, Mapping
from math import fsum

from rallypoint.assignors.contract import GroupSpec, TopicPartition
from rallypoint.assignors.measure import subscribed_topics

WEIGHT_MAX = 2**53
"""Larger ones are taken as not said: they are no lag and no rate, and a sum of floats would lose the small ones."""

UNIT = 2**20
"""What a partition of the mean weight counts. Whole numbers make sums exact, in whatever order they are made."""

LEAST = UNIT // 100
"""What an idle partition counts: it is owned, watched and committed, so many of them are not nothing."""


def counted_weights(spec: GroupSpec, owners: Mapping[TopicPartition, str]) -> dict[str, list[int]]:
    """Of each topic that exists and is subscribed to: what each of its partitions counts, by number; `LEAST` or more.

    `owners`: who had which partition last (`measure.owners_before`): whose word goes before that of others, as it read
    the partition. If the owner says nothing, the largest of what others say counts. A partition of which nobody
    says anything counts the mean of its topic, and a topic of which nobody does the mean of all. With no word
    about any, or nothing but zeros, all count the same.
    Cost: O(partitions + reported weights).
    """
    topics = subscribed_topics(spec)
    said = _said(spec, owners, topics)
    mean = fsum(said.values()) / len(said) if said else 0.0
    counted: dict[str, dict[int, int]] = {topic: {} for topic in topics}
    for (topic, partition), weight in said.items():
        counted[topic][partition] = max(LEAST, round(weight / mean * UNIT)) if mean > 0 else UNIT
    return {topic: _filled(known, spec.partitions_per_topic[topic]) for topic, known in counted.items()}


def _filled(known: Mapping[int, int], partitions: int) -> list[int]:
    """The known weights by number, the others as their mean."""
    mean = sum(known.values()) // len(known) if known else UNIT
    return [known.get(partition, mean) for partition in range(partitions)]


def _said(spec: GroupSpec, owners: Mapping[TopicPartition, str], topics: frozenset[str]) -> dict[TopicPartition, float]:
    """One weight for each partition that somebody reports."""
    by_owner: dict[TopicPartition, float] = {}
    largest: dict[TopicPartition, float] = {}
    for member_id, subscription in spec.subscriptions.items():
        for topic, partition, weight in _reported(subscription.user_data):
            if topic in topics and partition < spec.partitions_per_topic[topic]:
                if owners.get((topic, partition)) == member_id:
                    by_owner[topic, partition] = weight
                largest[topic, partition] = max(weight, largest.get((topic, partition), 0.0))
    return largest | by_owner


def _reported(user_data: object) -> Iterator[tuple[str, int, float]]:
    """What is readable of one member's report: topic, partition, weight."""
    weights = user_data.get("weights") if isinstance(user_data, dict) else None
    for topic, by_partition in weights.items() if isinstance(weights, dict) else ():
        for name, weight in by_partition.items() if isinstance(by_partition, dict) else ():
            if _is_number(name) and _is_weight(weight):
                yield topic, int(name), float(weight)


def _is_number(name: object) -> bool:
    """Whether it is a partition's number as JSON's keys are written: digits alone, no sign, no leading zero."""
    return isinstance(name, str) and name.isascii() and name.isdigit() and len(name) < 10 and str(int(name)) == name


def _is_weight(weight: object) -> bool:
    return isinstance(weight, int | float) and not isinstance(weight, bool) and 0 <= weight <= WEIGHT_MAX
