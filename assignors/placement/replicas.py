"""Where the replicas of partitions go: partition to brokers, the preferred one first. Who reads them is not said here.

Anything that is held in several copies by several nodes can be placed so; a shard's first replica is then its
preferred owner, the others are its standbys in order. The rules are those of Kafka's tools up to 2.0 for new topics.
Running them again over a changed list of brokers moves far more than it must, so a placement is to be stored.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

from rallypoint.assignors.order import java_order

Id = TypeVar("Id", int, str)
"""How brokers are named: all by numbers, or all by texts."""

Placement = dict[int, tuple[Id, ...]]
"""Partition to its brokers, as many as the replication factor says, all different, the preferred leader first."""


class PlacementError(ValueError):
    """The replicas cannot be placed so. The text says why, and names the field."""


@dataclass(frozen=True, slots=True)
class Broker(Generic[Id]):
    """A place for replicas. `rack`: None if it is not known; only `place_by_rack` looks at it."""

    id: Id
    rack: str | None = None


class _Start(NamedTuple):
    """Where a partition begins: the index of its first broker, and how far the shift has grown."""

    partition: int
    first: int
    shift: int

    def follower(self, nth: int, broker_count: int) -> int:
        """The index of the nth broker after the first one: never the first itself. Needs two brokers."""
        return (self.first + 1 + (self.shift + nth) % (broker_count - 1)) % broker_count

    def indexes(self, replication_factor: int, broker_count: int) -> list[int]:
        """The first broker's index and those of its followers."""
        return [self.first, *(self.follower(nth, broker_count) for nth in range(replication_factor - 1))]


def place(
    brokers: Sequence[Id],
    partitions: int,
    replication_factor: int,
    start_index: int = 0,
    start_partition: int = 0,
    shift: int | None = None,
) -> Placement[Id]:
    """Place the first replicas around the list of brokers, and each partition's others at a distance that grows.

    The first replica of partition p is at `start_index + p` in the list, going around. The others follow it at a
    distance that begins with `shift` (`start_index` if it is None) and grows by one each time p has gone around,
    so that the partitions led by one broker have their followers everywhere.
    `start_partition`: the number of the first of these `partitions`, for a topic that grows; below 0 it is 0.
    Errors: PlacementError for fewer brokers than replicas, a broker listed twice, a number below its least.
    Source: Kafka 2.0.1, `AdminUtils.assignReplicasToBrokers` without racks; Kafka draws the start, and begins the shift
    at the same fixed number.
    """
    _check(brokers, partitions, replication_factor, start_index, shift)
    placement: Placement[Id] = {}
    for start in _starts(len(brokers), partitions, start_index, start_partition, shift):
        placement[start.partition] = tuple(brokers[index] for index in start.indexes(replication_factor, len(brokers)))
    return placement


def place_by_rack(
    brokers: Sequence[Broker[Id]],
    partitions: int,
    replication_factor: int,
    start_index: int = 0,
    start_partition: int = 0,
    shift: int | None = None,
) -> Placement[Id]:
    """Place as `place` does on a list in which the racks alternate, but no rack twice before every rack has one.

    The list is not in the order given: racks are sorted by name and take turns, each with its brokers sorted by id.
    The other arguments are as in `place`. Errors: as in `place`, and if a broker has no rack.
    Source: Kafka 2.0.1, `AdminUtils.assignReplicasToBrokers` with racks.
    """
    _check([broker.id for broker in brokers], partitions, replication_factor, start_index, shift)
    racks: dict[Id, str] = {}
    for broker in brokers:
        if broker.rack is None:
            raise PlacementError(f"brokers: {broker.id!r} has no rack; name one for each, or for none")
        racks[broker.id] = broker.rack
    ring, rack_count = _alternate(racks), len(set(racks.values()))
    placement: Placement[Id] = {}
    for start in _starts(len(ring), partitions, start_index, start_partition, shift):
        far = _Start(start.partition, start.first, start.shift * rack_count)
        chosen, used_racks, nth = [ring[start.first]], {racks[ring[start.first]]}, 0
        while len(chosen) < replication_factor:
            broker_id = ring[far.follower(nth, len(ring))]
            nth += 1
            all_racks_used = len(used_racks) == rack_count
            if (all_racks_used or racks[broker_id] not in used_racks) and broker_id not in chosen:
                chosen.append(broker_id)
                used_racks.add(racks[broker_id])
        placement[start.partition] = tuple(chosen)
    return placement


def place_simply(brokers: Sequence[Id], partitions: int, replication_factor: int) -> Placement[Id]:
    """Place replica j of partition i on broker (i + j) mod n: short to say, but followers always stand beside.

    When a broker fails, its one neighbour takes over all it led. Errors: as in `place`.
    """
    _check(brokers, partitions, replication_factor, 0, None)
    count = len(brokers)
    return {i: tuple(brokers[(i + j) % count] for j in range(replication_factor)) for i in range(partitions)}


def _check(brokers: Sequence[Id], partitions: int, factor: int, start_index: int, shift: int | None) -> None:
    if partitions < 1:
        raise PlacementError(f"partitions: there must be at least 1, not {partitions}")
    if factor < 1:
        raise PlacementError(f"replication_factor: it must be at least 1, not {factor}")
    if factor > len(brokers):
        raise PlacementError(
            f"replication_factor: {factor} replicas need as many brokers, and there are {len(brokers)}"
        )
    if len(set(brokers)) < len(brokers):
        raise PlacementError("brokers: one of them is listed twice")
    if start_index < 0 or (shift is not None and shift < 0):
        raise PlacementError("start_index and shift: they must be at least 0")


def _starts(
    broker_count: int, partitions: int, start_index: int, start_partition: int, shift: int | None
) -> Iterator[_Start]:
    """Where each partition begins."""
    grown = start_index if shift is None else shift
    begin = max(0, start_partition)
    for partition in range(begin, begin + partitions):
        if partition > 0 and partition % broker_count == 0:
            grown += 1
        yield _Start(partition, (partition + start_index) % broker_count, grown)


def _alternate(racks: dict[Id, str]) -> list[Id]:
    """The brokers, one of each rack in turn; a rack that has no more is passed over."""
    names = sorted(set(racks.values()), key=java_order)
    lines = [sorted(broker for broker in racks if racks[broker] == rack) for rack in names]
    longest = max(map(len, lines))
    return [line[turn] for turn in range(longest) for line in lines if turn < len(line)]
