"""Places the replicas of partitions on brokers, the preferred leader first, as Kafka's tools up to 2.0 do for new
topics.

It works for anything that several nodes replicate: the first replica is the preferred owner, the others are its
standbys in order. Store the result. Running the algorithm again with other brokers moves far more than necessary.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

from rallypoint.assignors.order import in_java_order

Id = TypeVar("Id", int, str)
"""The ids of brokers: all int, or all str."""

Placement = dict[int, tuple[Id, ...]]
"""The brokers of each partition's replicas, the preferred leader first. They are distinct, and as many as the
replication factor."""


class PlacementError(ValueError):
    """The replicas cannot be placed. The message begins with the name of the parameter."""


@dataclass(frozen=True, slots=True)
class Broker(Generic[Id]):
    """A broker. `rack`: None if it is unknown; only `place_by_rack` reads it."""

    id: Id
    rack: str | None = None


class _Start(NamedTuple):
    """Where the replicas of a partition begin: the index of its first broker, and the current shift."""

    partition: int
    first: int
    shift: int

    def follower(self, nth: int, broker_count: int) -> int:
        """The index of the nth follower's broker, which is never the first one. Needs at least two brokers."""
        return (self.first + 1 + (self.shift + nth) % (broker_count - 1)) % broker_count

    def indexes(self, replication_factor: int, broker_count: int) -> list[int]:
        """The indexes of the first broker and of its followers' brokers."""
        return [self.first, *(self.follower(nth, broker_count) for nth in range(replication_factor - 1))]


def place(
    brokers: Sequence[Id],
    partitions: int,
    replication_factor: int,
    start_index: int = 0,
    start_partition: int = 0,
    shift: int | None = None,
) -> Placement[Id]:
    """Place the first replicas round-robin, and the followers of each partition at a distance that grows.

    `brokers`: their ids, in the order to use.
    `partitions`: how many partitions to place.
    `replication_factor`: how many replicas each gets.
    `start_index`: the index of the broker of partition 0's first replica.
    `start_partition`: the number of the first partition, for a topic that grows. Negative numbers count as 0.
    `shift`: the initial distance of the followers; None for `start_index`. It grows by one after each pass over the
    brokers, so that the followers of one leader's partitions are on all brokers.

    Raises PlacementError if there are fewer brokers than replicas, if a broker is listed twice, or if a number is too
    low.
    Source: Kafka 2.0.1, `AdminUtils.assignReplicasToBrokers` without racks. Kafka draws `start_index` at random, and
    begins the shift at the same number if it is fixed.
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
    """Like `place`, but a partition gets a second replica in a rack only after one in every rack.

    It orders the brokers itself: the racks, sorted by name, alternate, and the brokers of each rack are sorted by id.
    The other parameters are those of `place`. Raises PlacementError as `place` does, and if a broker has no rack.
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
    """Place replica j of partition i on broker (i + j) mod n.

    The followers are always on the next brokers, so if a broker fails, the next one takes over all its partitions.
    Raises PlacementError as `place` does.
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
    """The start of each partition's replicas."""
    grown = start_index if shift is None else shift
    begin = max(0, start_partition)
    for partition in range(begin, begin + partitions):
        if partition > 0 and partition % broker_count == 0:
            grown += 1
        yield _Start(partition, (partition + start_index) % broker_count, grown)


def _alternate(racks: dict[Id, str]) -> list[Id]:
    """The brokers, alternating between the racks until each rack has no more."""
    names = in_java_order(set(racks.values()))
    by_rack = [sorted(broker for broker in racks if racks[broker] == rack) for rack in names]
    longest = max(map(len, by_rack))
    return [brokers[index] for index in range(longest) for brokers in by_rack if index < len(brokers)]
