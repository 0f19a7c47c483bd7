"""The assignor `weighted`: minimizes the highest load of a member, and moves few partitions for it.

Members report the weights of partitions (see `weights`). Minimizing the highest load is makespan scheduling, which is
NP-hard, so the assignor is a heuristic. Owned partitions stay with their owner. The free ones are assigned in
descending order of weight, each to the subscriber with the lowest load. Then members with high loads move single
partitions to members with low loads, as long as that makes the two more even. Weights change with each rebalance, so
differences within `TOLERANCE` move nothing.
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
"""Percent of the mean load. No owned partition moves between two members whose loads differ by no more than this."""


class WeightedAssignor(Assignor):
    """Balances load instead of counts, for topics whose partitions differ in lag or rate."""

    name: ClassVar[str] = "weighted"

    def assign(self, spec: GroupSpec) -> Assignment:
        """Assign the partitions so that the highest load is low, and keep owners as far as this allows.

        - With equal subscriptions and nothing owned, the highest load is at most 4/3 of the optimum.
        - With owned partitions, it is at most `TOLERANCE` percent above that of an assignment from scratch.
        - An owned partition moves only between members whose loads differ by more than `TOLERANCE` percent of the mean
          load, and only if that makes the two more even. So an unchanged group keeps all partitions.
        - With different subscriptions there is no bound. No single move would lower a load by more than the tolerance,
          but a chain of moves might.
        - If all weights are equal, as without any report, the result is that of `sticky`: the loads are exact counts,
          which need no tolerance.

        The result does not depend on the order of the spec's mappings. A malformed report counts as none, and topics
        without subscribers are ignored. Raises nothing.
        Cost: O(partitions log partitions + subscribed topics of all members), plus the moves. Each move looks at the
        members with the lowest loads that subscribe to a topic of the one with the high load.
        Source: the bound of 4/3 is that of Graham's longest-processing-time-first rule.
        """
        members = members_in_order(spec.subscriptions)
        subscribers = subscribers_by_topic(spec, members)
        owners = owners_before(spec)
        weights = counted_weights(spec, owners)
        if len(set().union(*weights.values())) <= 1:
            return StickyAssignor().assign(spec)
        index_of = {member_id: index for index, member_id in enumerate(members)}
        owned = {topic_partition: index_of[member_id] for topic_partition, member_id in owners.items()}
        loads = _assigned(len(members), subscribers, weights, owned)
        return {member_id: loads.partitions_of(member) for member, member_id in enumerate(members)}


class _Loads:
    """An assignment under construction. Members are indexes, topics are indexes in `topics`."""

    def __init__(self, members: int, subscribers: Mapping[str, list[int]], weights: Mapping[str, list[int]]) -> None:
        self.topics = list(subscribers)
        self._weights = [weights[topic] for topic in self.topics]
        self._subscribers = [tuple(ordered) for ordered in subscribers.values()]
        self._subscribed: list[set[int]] = [set() for _ in range(members)]
        for topic, its_subscribers in enumerate(self._subscribers):
            for member in its_subscribers:
                self._subscribed[member].add(topic)
        self.load = [0] * members
        self._held: list[dict[int, list[tuple[int, int]]]] = [{} for _ in range(members)]
        """By member and topic, (weight, partition), ascending. Without empty lists."""

    def give(self, member: int, topic: int, partition: int) -> None:
        """Assign a free partition to a subscriber. `even_out` sorts `_held` afterwards."""
        weight = self._weights[topic][partition]
        self._held[member].setdefault(topic, []).append((weight, partition))
        self.load[member] += weight

    def assign_free(self, free: list[tuple[int, int]]) -> None:
        """Assign the free (topic, partition) in descending order of weight, each to the least loaded subscriber.

        Of equal loads, the first member wins. There is a heap for each set of subscribers, whose entries combine load
        and index in one number. Entries become stale as loads grow, so the top is updated before it is used.
        """
        free.sort(key=lambda each: (-self._weights[each[0]][each[1]], each))
        members = len(self.load)
        rank = [load * members + member for member, load in enumerate(self.load)]
        heaps = {
            subscribers: [rank[member] for member in subscribers]
            for subscribers in {self._subscribers[topic] for topic in {topic for topic, _ in free}}
        }
        for heap in heaps.values():
            heapify(heap)
        heap_of = [heaps.get(subscribers, []) for subscribers in self._subscribers]
        for topic, partition in free:
            heap = heap_of[topic]
            while (top := heap[0]) != (now := rank[top % members]):
                heapreplace(heap, now)
            lightest = top % members
            self.give(lightest, topic, partition)
            rank[lightest] = self.load[lightest] * members + lightest

    def even_out(self, tolerance: int) -> None:
        """Move single partitions between members whose loads differ by more than `tolerance`, if that evens them out.

        It terminates, because every move lowers the sum of the squares of the loads.
        """
        for held in self._held:
            for partitions in held.values():
                partitions.sort()
        order = sorted((load, member) for member, load in enumerate(self.load) if self._subscribed[member])
        moved = True
        while moved:
            moved = False
            stuck: set[int] = set()
            while (donor := next((member for _, member in reversed(order) if member not in stuck), None)) is not None:
                if self._move_from(donor, order, tolerance):
                    moved = True
                else:
                    stuck.add(donor)

    def _move_from(self, donor: int, order: list[tuple[int, int]], tolerance: int) -> bool:
        """Move one partition to the least loaded member for which this evens out the two. False if there is none."""
        held = self._held[donor]
        smallest = min((partitions[0][0] for partitions in held.values()), default=0)
        for load, receiver in order:
            gap = self.load[donor] - load
            if gap <= max(tolerance, smallest):
                return False
            chosen = self._best_of(held, held.keys() & self._subscribed[receiver], gap)
            if chosen is not None:
                self._move(donor, receiver, chosen, order)
                return True
        return False

    def _best_of(
        self, held: Mapping[int, list[tuple[int, int]]], topics: Iterable[int], gap: int
    ) -> tuple[int, int] | None:
        """The topic and list index of the partition whose weight is nearest to half the gap, if it is below the gap."""
        best: tuple[int, int, int, int] | None = None
        for topic in topics:
            partitions = held[topic]
            middle = bisect_left(partitions, (gap // 2, 0))
            for index in range(max(0, middle - 1), min(len(partitions), middle + 2)):
                weight, partition = partitions[index]
                rank = (abs(2 * weight - gap), topic, partition, index)
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
        for member, change in ((donor, -weight), (receiver, weight)):
            del order[bisect_left(order, (self.load[member], member))]
            self.load[member] += change
            insort(order, (self.load[member], member))

    def partitions_of(self, member: int) -> tuple[TopicPartition, ...]:
        """The member's partitions, sorted as in an assignment."""
        held = self._held[member]
        return tuple(
            (self.topics[topic], partition)
            for topic in sorted(held)
            for partition in sorted(partition for _, partition in held[topic])
        )


def _assigned(
    members: int,
    subscribers: Mapping[str, list[int]],
    weights: Mapping[str, list[int]],
    owned: Mapping[TopicPartition, int],
) -> _Loads:
    """Start from the owned partitions, or from scratch if that lowers the highest load by more than the tolerance."""
    total = sum(map(sum, weights.values()))
    able = len(set().union(*subscribers.values()))
    mean = total // able if able else 0
    loads = _from_kept(members, subscribers, weights, owned)
    if not owned:
        loads.even_out(mean // 100)
        return loads
    loads.even_out(mean * TOLERANCE // 100)
    heaviest = max(loads.load, default=0)
    at_least = max(mean, max((max(of_topic, default=0) for of_topic in weights.values()), default=0))
    if _within_tolerance(heaviest, at_least):
        return loads
    from_scratch = _from_kept(members, subscribers, weights, {})
    from_scratch.even_out(mean // 100)
    return loads if _within_tolerance(heaviest, max(from_scratch.load)) else from_scratch


def _within_tolerance(load: int, base: int) -> bool:
    return load * 100 <= base * (100 + TOLERANCE)


def _from_kept(
    members: int,
    subscribers: Mapping[str, list[int]],
    weights: Mapping[str, list[int]],
    owned: Mapping[TopicPartition, int],
) -> _Loads:
    loads = _Loads(members, subscribers, weights)
    number = {topic: index for index, topic in enumerate(loads.topics)}
    for (topic, partition), member in owned.items():
        loads.give(member, number[topic], partition)
    loads.assign_free(
        [
            (number[topic], partition)
            for topic, of_topic in weights.items()
            for partition in range(len(of_topic))
            if (topic, partition) not in owned
        ]
    )
    return loads
