"""The assignor `weighted`: the heaviest member carries as little as possible, and few partitions move for it.

What a partition weighs, the members report (`weights`). Sharing them out so that the heaviest load is the least is
the scheduling of jobs on machines, which nobody solves exactly at this size. So: what has an owner stays with it; the
rest goes out heaviest first, each to the lightest subscriber; then heavy members hand single partitions to lighter ones
while it evens the two out. Reports change with every round, so differences below `TOLERANCE` move nothing.
"""

from bisect import bisect_left, insort
from collections.abc import Iterable, Mapping
from heapq import heapify, heapreplace
from typing import ClassVar

from rallypoint.assignors.contract import Assignment, Assignor, GroupSpec, TopicPartition
from rallypoint.assignors.measure import owners_before
from rallypoint.assignors.order import members_in_order, subscribers_by_topic
from rallypoint.assignors.sticky import StickyAssignor
from rallypoint.assignors.weights import counted_weights

TOLERANCE = 10
"""Percent of the mean load: members that differ by no more hand each other nothing that had an owner."""


class WeightedAssignor(Assignor):
    """Spreads load rather than numbers. For topics whose partitions differ in lag or rate."""

    name: ClassVar[str] = "weighted"

    def assign(self, spec: GroupSpec) -> Assignment:
        """Spread the reported weights so that the heaviest member carries little, and keep owners if that allows.

        From scratch (nothing owned), with equal subscriptions: the heaviest carries at most 4/3 of what the best of
        all assignments would leave it. With owned partitions: at most `TOLERANCE` percent more than from scratch.
        Nobody hands a partition to a lighter member unless the two differ by more than `TOLERANCE` percent of the
        mean load, and the two are more even for it: a group in which nothing changed keeps everything.
        If all weigh the same, as without any report, it gives what `sticky` gives: there counts are the load, and
        no chance is in them that a tolerance would have to smooth.
        With different subscriptions there is no bound: no single partition handed on would relieve anyone by more than
        the tolerance, but a chain of several might.

        The same spec gives the same result, whatever the order of its mappings.
        Errors: none. A report that is not readable counts as none. Topics that nobody can get are left out.
        Cost: O(partitions log partitions + subscribed topics of all members), and the moves, each of which looks at
        the lightest members that share a topic with the heavy one.
        Source: Graham's rule, the longest processing time first, for the 4/3.
        """
        members = members_in_order(spec.subscriptions)
        subscribers = subscribers_by_topic(spec, members)
        owners = owners_before(spec)
        weights = counted_weights(spec, owners)
        if len(set().union(*weights.values())) <= 1:
            return StickyAssignor().assign(spec)
        position = {member_id: place for place, member_id in enumerate(members)}
        kept = {topic_partition: position[member_id] for topic_partition, member_id in owners.items()}
        loads = _shared_out(len(members), subscribers, weights, kept)
        return {member_id: loads.share_of(place) for place, member_id in enumerate(members)}


class _Loads:
    """Who has what, while it is being assigned. Members are positions, topics their place in `topics`."""

    def __init__(self, members: int, subscribers: Mapping[str, list[int]], weights: Mapping[str, list[int]]) -> None:
        self.topics = list(subscribers)
        self._weights = [weights[topic] for topic in self.topics]
        self._subscribers = [tuple(places) for places in subscribers.values()]
        self._wanted: list[set[int]] = [set() for _ in range(members)]
        for topic, places in enumerate(self._subscribers):
            for place in places:
                self._wanted[place].add(topic)
        self.load = [0] * members
        self._held: list[dict[int, list[tuple[int, int]]]] = [{} for _ in range(members)]
        """Of each member, by topic: (weight, partition), ascending. No empty lists."""

    def give(self, place: int, topic: int, partition: int) -> None:
        """A partition that nobody has, to somebody who subscribes. `_held` is sorted by `even_out`."""
        weight = self._weights[topic][partition]
        self._held[place].setdefault(topic, []).append((weight, partition))
        self.load[place] += weight

    def place(self, left: list[tuple[int, int]]) -> None:
        """Share out what is left, as (topic, partition): the heaviest first, each to the lightest subscriber.

        Equally light ones: who is first in line. There is a heap for each set of subscribers, of load and position
        in one number. An entry may be too light, as loads grow here: the top is corrected until it is true.
        """
        left.sort(key=lambda each: (-self._weights[each[0]][each[1]], each))
        members = len(self.load)
        rank = [load * members + place for place, load in enumerate(self.load)]
        heaps = {
            places: [rank[place] for place in places]
            for places in {self._subscribers[topic] for topic in {topic for topic, _ in left}}
        }
        for heap in heaps.values():
            heapify(heap)
        heap_of = [heaps.get(places, []) for places in self._subscribers]
        for topic, partition in left:
            heap = heap_of[topic]
            while (top := heap[0]) != (now := rank[top % members]):
                heapreplace(heap, now)
            lightest = top % members
            self.give(lightest, topic, partition)
            rank[lightest] = self.load[lightest] * members + lightest

    def even_out(self, tolerance: int) -> None:
        """Let heavy members hand on single partitions, while two differ by more than this and are more even after.

        Ends, since every move lowers the sum of the squares of all loads.
        """
        for held in self._held:
            for partitions in held.values():
                partitions.sort()
        order = sorted((load, place) for place, load in enumerate(self.load) if self._wanted[place])
        moved = True
        while moved:
            moved = False
            stuck: set[int] = set()
            while (donor := next((place for _, place in reversed(order) if place not in stuck), None)) is not None:
                if self._hand_on(donor, order, tolerance):
                    moved = True
                else:
                    stuck.add(donor)

    def _hand_on(self, donor: int, order: list[tuple[int, int]], tolerance: int) -> bool:
        """One partition of the donor to the lightest member that is helped by it; False if there is none."""
        held = self._held[donor]
        smallest = min((partitions[0][0] for partitions in held.values()), default=0)
        for load, receiver in order:
            gap = self.load[donor] - load
            if gap <= max(tolerance, smallest):
                return False
            chosen = self._best_of(held, held.keys() & self._wanted[receiver], gap)
            if chosen is not None:
                self._move(donor, receiver, chosen, order)
                return True
        return False

    def _best_of(
        self, held: Mapping[int, list[tuple[int, int]]], topics: Iterable[int], gap: int
    ) -> tuple[int, int] | None:
        """The topic, and the place in its list, of the partition nearest to half of the gap, if it is below the gap."""
        best: tuple[int, int, int, int] | None = None
        for topic in topics:
            partitions = held[topic]
            middle = bisect_left(partitions, (gap // 2, 0))
            for place in range(max(0, middle - 1), min(len(partitions), middle + 2)):
                weight, partition = partitions[place]
                rank = (abs(2 * weight - gap), topic, partition, place)
                if weight < gap and (best is None or rank < best):
                    best = rank
        return None if best is None else (best[1], best[3])

    def _move(self, donor: int, receiver: int, chosen: tuple[int, int], order: list[tuple[int, int]]) -> None:
        topic, at = chosen
        partitions = self._held[donor][topic]
        weight, partition = partitions.pop(at)
        if not partitions:
            del self._held[donor][topic]
        insort(self._held[receiver].setdefault(topic, []), (weight, partition))
        for place, change in ((donor, -weight), (receiver, weight)):
            del order[bisect_left(order, (self.load[place], place))]
            self.load[place] += change
            insort(order, (self.load[place], place))

    def share_of(self, place: int) -> tuple[TopicPartition, ...]:
        """What the member has, sorted as an assignment is."""
        held = self._held[place]
        return tuple(
            (self.topics[topic], partition)
            for topic in sorted(held)
            for partition in sorted(partition for _, partition in held[topic])
        )


def _shared_out(
    members: int,
    subscribers: Mapping[str, list[int]],
    weights: Mapping[str, list[int]],
    kept: Mapping[TopicPartition, int],
) -> _Loads:
    """From what is kept; or from scratch, if so little evens out that a fresh start is lighter by the tolerance."""
    total = sum(map(sum, weights.values()))
    able = len(set().union(*subscribers.values()))
    mean = total // able if able else 0
    loads = _from_kept(members, subscribers, weights, kept)
    if not kept:
        loads.even_out(mean // 100)
        return loads
    loads.even_out(mean * TOLERANCE // 100)
    heaviest = max(loads.load, default=0)
    at_least = max(mean, max((max(of_topic, default=0) for of_topic in weights.values()), default=0))
    if _within_tolerance(heaviest, at_least):
        return loads
    afresh = _from_kept(members, subscribers, weights, {})
    afresh.even_out(mean // 100)
    return loads if _within_tolerance(heaviest, max(afresh.load)) else afresh


def _within_tolerance(load: int, base: int) -> bool:
    return load * 100 <= base * (100 + TOLERANCE)


def _from_kept(
    members: int,
    subscribers: Mapping[str, list[int]],
    weights: Mapping[str, list[int]],
    kept: Mapping[TopicPartition, int],
) -> _Loads:
    loads = _Loads(members, subscribers, weights)
    number = {topic: place for place, topic in enumerate(loads.topics)}
    for (topic, partition), place in kept.items():
        loads.give(place, number[topic], partition)
    loads.place(
        [
            (number[topic], partition)
            for topic, of_topic in weights.items()
            for partition in range(len(of_topic))
            if (topic, partition) not in kept
        ]
    )
    return loads
