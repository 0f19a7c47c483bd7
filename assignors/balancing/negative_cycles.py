"""Cancels negative cycles, so that members of a balanced group keep more of what they owned at the same evenness.

A negative cycle in the network of `assignment_counts` is an exchange of partitions that lowers the cost. Additional
nodes, the bridges, connect members whose loads differ by one. A cycle over a bridge swaps two such loads, which leaves
the group as even as before. A flow without negative cycles has the lowest cost of all that are equally even.
Source: the optimality of flows without negative cycles; Ahuja, Magnanti and Orlin, "Network Flows", chapter 3.
"""

from collections import deque

from rallypoint.assignors.balancing.assignment_counts import RACK_MISS_COST, AssignmentCounts
from rallypoint.assignors.balancing.cheapest_paths import move

NONE = -1


def cancel_negative_cycles(counts: AssignmentCounts) -> None:
    """Cancel negative cycles until there are none.

    Cost: for each one, O(edges that can be reached from a deficit). Without deficits, at most one pass over the edges.
    """
    while cycles := _Search(counts).run():
        for cycle in cycles:
            _push_around(counts, cycle)


class _Search:
    """One search by Bellman-Ford. The bridges, one for each distinct load, are the nodes behind the classes."""

    def __init__(self, counts: AssignmentCounts) -> None:
        self.counts = counts
        self.levels = sorted(set(counts.loads))
        self.bridge_of = {load: counts.node_count + at for at, load in enumerate(self.levels)}
        self.members_at: dict[int, list[int]] = {}
        for member, load in enumerate(counts.loads):
            self.members_at.setdefault(load, []).append(member)
        count = counts.node_count + len(self.levels)
        self.distances = [0] * count
        self.parents = [NONE] * count
        self.relaxations_max = count  # before the parents are searched for cycles, which costs as much

    def run(self) -> list[list[int]]:
        """Negative cycles without a common node. Empty only if there are none."""
        waiting = deque(self._starts())
        queued = set(waiting)
        relaxations = 0
        while waiting:
            node = waiting.popleft()
            queued.discard(node)
            for other, cost in self._edges(node):
                if self.distances[node] + cost < self.distances[other]:
                    self.distances[other] = self.distances[node] + cost
                    self.parents[other] = node
                    relaxations += 1
                    if other not in queued:
                        queued.add(other)
                        waiting.append(other)
            if relaxations >= self.relaxations_max:
                relaxations = 0
                if cycles := self._cycles():
                    return cycles
        return []

    def _starts(self) -> list[int]:
        """The nodes with an edge of negative cost. No other node can lower a distance first."""
        counts = self.counts
        takers = [counts.member_count + class_id for class_id, deficits in enumerate(counts.deficits) if deficits]
        if not any(counts.far):
            return takers
        misplaced = [
            member
            for member, by_class in enumerate(counts.held)
            if any(counts.give_edge(member, class_id)[0] < 0 for class_id in by_class)
        ]
        return misplaced + takers

    def _edges(self, node: int) -> list[tuple[int, int]]:
        counts, first_class = self.counts, self.counts.member_count
        if node < first_class:
            edges = [(first_class + class_id, counts.give_edge(node, class_id)[0]) for class_id in counts.held[node]]
            return [*edges, (self.bridge_of[counts.loads[node]], 0)]
        if node < counts.node_count:
            class_id = node - first_class
            edges = [(member, 0) for member in counts.near[class_id]] + [
                (member, RACK_MISS_COST) for member in counts.far[class_id]
            ]
            return edges + [(member, counts.take_edge(class_id, member)[0]) for member in counts.deficits[class_id]]
        load = self.levels[node - counts.node_count]
        return [(member, 0) for member in self.members_at.get(load + 1, ())]

    def _cycles(self) -> list[list[int]]:
        """The cycles among the parents. Each is a negative cycle."""
        cycles: list[list[int]] = []
        seen: dict[int, int] = {}
        for start in range(len(self.parents)):
            node, trail = start, list[int]()
            while node != NONE and node not in seen:
                seen[node] = start
                trail.append(node)
                node = self.parents[node]
            if node != NONE and seen[node] == start:
                cycles.append(trail[trail.index(node) :][::-1])
        return cycles


def _push_around(counts: AssignmentCounts, cycle: list[int]) -> None:
    """Move along a cycle as much as its capacity allows. Only one over a bridge, or the evenness would change."""
    amount = 1 << 60
    edges = []
    for node, other in zip(cycle, [*cycle[1:], cycle[0]], strict=True):
        if max(node, other) >= counts.node_count:
            amount = 1
            continue
        edges.append((node, other))
        if node < counts.member_count:
            amount = min(amount, counts.give_edge(node, other - counts.member_count)[1])
        else:
            amount = min(amount, counts.take_edge(node - counts.member_count, other)[1])
    move(counts, edges, amount)
