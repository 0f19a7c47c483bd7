"""Reads the partition weights that members report, for `weighted`.

A member can report in its subscription's `user_data` how much work a partition is. The unit is free, as lag, records
per second or bytes, but all members must use the same one:

    {"weights": {"clicks": {"0": 1250, "1": 40.5}}}

The data comes from other programs and may be malformed. An entry that has another form, or is no finite number from 0
to 2**53, is ignored. The other entries of the same report count.
"""

from collections.abc import Iterator, Mapping
from math import fsum

from rallypoint.assignors.contract import GroupSpec, TopicPartition
from rallypoint.assignors.measure import subscribed_topics

WEIGHT_MAX = 2**53
"""Larger weights are ignored: they are no lag or rate, and a sum of floats would lose the small ones."""

UNIT = 2**20
"""The integer weight of a partition of mean weight. Sums of integers are exact in any order."""

LEAST = UNIT // 100
"""The lowest integer weight. Idle partitions have a cost, too: they are fetched from and committed."""


def counted_weights(spec: GroupSpec, owners: Mapping[TopicPartition, str]) -> dict[str, list[int]]:
    """The integer weight, `LEAST` or more, of each partition of the existing, subscribed topics.

    `owners`: the previous owners, from `measure.owners_before`.

    The weight of a partition is the one that its previous owner reports, because it has read the partition. Otherwise
    it is the largest that another member reports, then the mean of its topic, then the mean of all topics. If nothing
    is reported, or only zeros, all weights are equal.
    Cost: O(partitions + reported weights).
    """
    topics = subscribed_topics(spec)
    reported = _weights_by_partition(spec, owners, topics)
    mean = fsum(reported.values()) / len(reported) if reported else 0.0
    counted: dict[str, dict[int, int]] = {topic: {} for topic in topics}
    for (topic, partition), weight in reported.items():
        counted[topic][partition] = max(LEAST, round(weight / mean * UNIT)) if mean > 0 else UNIT
    return {topic: _filled(known, spec.partitions_per_topic[topic]) for topic, known in counted.items()}


def _filled(known: Mapping[int, int], partitions: int) -> list[int]:
    """The weights of all partitions of a topic. Unknown ones are the mean of the known ones."""
    mean = sum(known.values()) // len(known) if known else UNIT
    return [known.get(partition, mean) for partition in range(partitions)]


def _weights_by_partition(
    spec: GroupSpec, owners: Mapping[TopicPartition, str], topics: frozenset[str]
) -> dict[TopicPartition, float]:
    """One weight for each reported partition."""
    by_owner: dict[TopicPartition, float] = {}
    largest: dict[TopicPartition, float] = {}
    for member_id, subscription in spec.subscriptions.items():
        for topic, partition, weight in _entries(subscription.user_data):
            if topic in topics and partition < spec.partitions_per_topic[topic]:
                if owners.get((topic, partition)) == member_id:
                    by_owner[topic, partition] = weight
                largest[topic, partition] = max(weight, largest.get((topic, partition), 0.0))
    return largest | by_owner


def _entries(user_data: object) -> Iterator[tuple[str, int, float]]:
    """The well-formed entries of one member's report: topic, partition, weight."""
    weights = user_data.get("weights") if isinstance(user_data, dict) else None
    for topic, by_partition in weights.items() if isinstance(weights, dict) else ():
        for name, weight in by_partition.items() if isinstance(by_partition, dict) else ():
            if _is_number(name) and _is_weight(weight):
                yield topic, int(name), float(weight)


def _is_number(name: object) -> bool:
    """Whether a JSON key is a partition number: digits only, without a sign or leading zeros."""
    return isinstance(name, str) and name.isascii() and name.isdigit() and len(name) < 10 and str(int(name)) == name


def _is_weight(weight: object) -> bool:
    return isinstance(weight, int | float) and not isinstance(weight, bool) and 0 <= weight <= WEIGHT_MAX
