"""Groups the partitions into classes of interchangeable ones, so that balancing counts them instead of visiting each.

Two partitions are in one class if the same members subscribe to their topics, and the same members have no replica of
them in their rack. Only their present owners differ. A group with equal subscriptions and without racks has one class,
for any number of topics. The number of classes, not of partitions, decides what balancing costs.

Members and partitions are numbers here. Members are numbered in the order of `order.members_in_order`, partitions by
topic in `order.java_order`, then by partition.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby

from rallypoint.assignors.contract import GroupSpec, TopicPartition
from rallypoint.assignors.order import members_in_order, subscribers_by_topic

NOWHERE: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class PartitionClasses:
    """A group in numbers.

    `members`: member ids by number.
    `partitions`: partitions of existing, subscribed topics, by number.
    `numbers`: the range of numbers of each topic's partitions.
    `subscribers`: the members that subscribe to each topic, ascending.
    `class_of`: the class id of each partition, by number.
    `sizes`: how many partitions a class has, by class id.
    `near`: the subscribers of a class with a replica in their rack, or with unknown racks, ascending.
    `far`: its other subscribers, ascending.
    """

    members: list[str]
    partitions: list[TopicPartition] = field(default_factory=list)
    numbers: dict[str, range] = field(default_factory=dict)
    subscribers: dict[str, list[int]] = field(default_factory=dict)
    class_of: list[int] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)
    near: list[list[int]] = field(default_factory=list)
    far: list[list[int]] = field(default_factory=list)


def partition_classes_of(spec: GroupSpec) -> PartitionClasses:
    """Number a group's members and partitions, and group the partitions into classes.

    Cost: O(members log members + subscribed topics of all members + partitions).
    """
    classes = PartitionClasses(members_in_order(spec.subscriptions))
    racks = [spec.subscriptions[member_id].rack_id for member_id in classes.members]
    named = frozenset(rack for rack in racks if rack is not None)
    alike: dict[tuple[int, ...], int] = {}  # numbers for tuples of subscribers: long ones are compared once a topic
    known: dict[tuple[int, frozenset[str]], int] = {}
    for topic, subscribers in subscribers_by_topic(spec, classes.members).items():
        count = spec.partitions_per_topic[topic]
        classes.numbers[topic] = range(len(classes.partitions), len(classes.partitions) + count)
        classes.subscribers[topic] = subscribers
        classes.partitions.extend([(topic, partition) for partition in range(count)])
        readers = alike.setdefault(tuple(subscribers), len(alike))
        for lacking, times in _runs(_lacking_racks(spec.replica_racks, topic, count, named), count):
            class_id = known.setdefault((readers, lacking), len(known))
            if class_id == len(classes.sizes):
                classes.sizes.append(0)
                classes.near.append([member for member in subscribers if racks[member] not in lacking])
                classes.far.append([member for member in subscribers if racks[member] in lacking])
            classes.sizes[class_id] += times
            classes.class_of.extend([class_id] * times)
    return classes


def _lacking_racks(
    replica_racks: Mapping[str, Sequence[Sequence[str]]], topic: str, count: int, named: frozenset[str]
) -> list[frozenset[str]]:
    """The racks of members without a replica, by partition. The list may be shorter: the rest is unknown."""
    racks = replica_racks.get(topic, ()) if named else ()
    return [named.difference(holding) if holding else NOWHERE for holding in racks[:count]]


def _runs(lacking: Sequence[frozenset[str]], count: int) -> Iterator[tuple[frozenset[str], int]]:
    """Run-length encoding of `lacking`, up to `count` partitions. Unknown ones lack nothing."""
    for racks, run in groupby(lacking):
        yield racks, len(list(run))
    if count > len(lacking):
        yield NOWHERE, count - len(lacking)
