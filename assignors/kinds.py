"""The partitions of a group in kinds: what is alike for the balance is counted, not looked at one by one.

Two partitions are of one kind if the same members subscribe to their topics and lack a replica of them in their
rack. Apart from their present owners, they are interchangeable. A group of equals without racks has one kind, however
many topics it reads; that, and not the number of partitions, decides what assigning costs.

Members and partitions are numbers here: positions in the order of `order.members_in_order`, and in that of
`order.java_order` of the topic, then the partition.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby

from rallypoint.assignors.contract import GroupSpec, TopicPartition
from rallypoint.assignors.order import members_in_order, subscribers_by_topic

NOWHERE: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Kinds:
    """A group by numbers.

    `members`: id by position. `partitions`: those of existing, subscribed topics, by number. `numbers`: a topic's run
    of numbers. `kind_of`: by number. `sizes`: how many partitions are of a kind. `near`, `far`: a kind's subscribers
    that have a replica in their rack, or do not know, and those that do not, ascending; nobody is in both.
    """

    members: list[str]
    partitions: list[TopicPartition] = field(default_factory=list)
    numbers: dict[str, range] = field(default_factory=dict)
    subscribers: dict[str, list[int]] = field(default_factory=dict)
    kind_of: list[int] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)
    near: list[list[int]] = field(default_factory=list)
    far: list[list[int]] = field(default_factory=list)


def kinds_of(spec: GroupSpec) -> Kinds:
    """Number a group's members and partitions, and tell the kinds apart.

    Cost: O(members log members + subscribed topics of all members + partitions).
    """
    kinds = Kinds(members_in_order(spec.subscriptions))
    racks = [spec.subscriptions[member_id].rack_id for member_id in kinds.members]
    named = frozenset(rack for rack in racks if rack is not None)
    alike: dict[tuple[int, ...], int] = {}  # subscribers to a number: they are long, and compared once a topic
    known: dict[tuple[int, frozenset[str]], int] = {}
    for topic, subscribers in subscribers_by_topic(spec, kinds.members).items():
        count = spec.partitions_per_topic[topic]
        kinds.numbers[topic] = range(len(kinds.partitions), len(kinds.partitions) + count)
        kinds.subscribers[topic] = subscribers
        kinds.partitions.extend([(topic, partition) for partition in range(count)])
        readers = alike.setdefault(tuple(subscribers), len(alike))
        for lacking, times in _runs(_lacking_racks(spec.replica_racks, topic, count, named), count):
            kind = known.setdefault((readers, lacking), len(known))
            if kind == len(kinds.sizes):
                kinds.sizes.append(0)
                kinds.near.append([member for member in subscribers if racks[member] not in lacking])
                kinds.far.append([member for member in subscribers if racks[member] in lacking])
            kinds.sizes[kind] += times
            kinds.kind_of.extend([kind] * times)
    return kinds


def _lacking_racks(
    replica_racks: Mapping[str, Sequence[Sequence[str]]], topic: str, count: int, named: frozenset[str]
) -> list[frozenset[str]]:
    """By partition, the racks of members that hold no replica of it; none, or a shorter list, if that is not known."""
    racks = replica_racks.get(topic, ()) if named else ()
    return [named.difference(holding) if holding else NOWHERE for holding in racks[:count]]


def _runs(lacking: Sequence[frozenset[str]], count: int) -> Iterator[tuple[frozenset[str], int]]:
    """The same in runs: what so many partitions lack. Those left of `count` lack nothing."""
    for racks, run in groupby(lacking):
        yield racks, len(list(run))
    if count > len(lacking):
        yield NOWHERE, count - len(lacking)
