"""Moves load along cheapest paths of the network in `assignment_counts`. The callers decide which load to move.

`send` is the primal-dual method for minimum-cost flows: compute the distances, send as much as possible along cheapest
paths, repeat until no demand can be reached. If the network had no negative cycle before, it has none afterwards. So
the result has the lowest cost of all flows with the same loads.
Source: Ahuja, Magnanti and Orlin, "Network Flows", chapter 9.
"""

from collections import deque
from collections.abc import Iterable
from itertools import pairwise

from rallypoint.assignors.balancing.assignment_counts import RACK_MISS_COST, AssignmentCounts

UNREACHABLE = 1 << 62
HOP_COST = 1  # prefers the path with fewer edges among equally cheap ones, and leaves no cycle of cost 0


def send(counts: AssignmentCounts, supply: dict[int, int], demand: dict[int, int]) -> None:
    """Move as much load as possible from the nodes of `supply` to those of `demand`, at the lowest cost.

    `supply`, `demand`: amounts by node. The call reduces both by what it moves. A class in `supply` stands for
    partitions that no member has yet.

    The network must have no negative cycle, without counting `HOP_COST`. Cost: O(edges) for each distinct path cost, of
    which there are seldom more than a few.
    """
    while supply and demand:
        distances = _distances(counts, supply)
        reached = {node: distances[node] // RACK_MISS_COST for node in demand if distances[node] < UNREACHABLE}
        if not reached:
            return
        for cost_max in sorted(set(reached.values())):
            _BlockingFlow(counts, distances, demand, cost_max).run(supply)


def reached_from(counts: AssignmentCounts, starts: Iterable[int]) -> set[int]:
    """The members to which load can be moved from `starts`, including `starts`."""
    found = set(starts)
    waiting, class_ids = list(found), set[int]()
    while waiting:
        for class_id in counts.held[waiting.pop()]:
            if class_id not in class_ids:
                class_ids.add(class_id)
                for member in (*counts.near[class_id], *counts.far[class_id]):
                    if member not in found:
                        found.add(member)
                        waiting.append(member)
    return found


def reaching(counts: AssignmentCounts, ends: Iterable[int]) -> set[int]:
    """The members from which load can be moved to `ends`, including `ends`."""
    holders: list[list[int]] = [[] for _ in counts.near]
    for member, by_class in enumerate(counts.held):
        for class_id in by_class:
            holders[class_id].append(member)
    found = set(ends)
    subscribed: list[list[int]] = [[] for _ in counts.loads]
    for class_id in range(len(holders)):
        for member in (*counts.near[class_id], *counts.far[class_id]):
            subscribed[member].append(class_id)
    waiting, class_ids = list(found), set[int]()
    while waiting:
        for class_id in subscribed[waiting.pop()]:
            if class_id not in class_ids:
                class_ids.add(class_id)
                new = [member for member in holders[class_id] if member not in found]
                found.update(new)
                waiting += new
    return found


def _distances(counts: AssignmentCounts, starts: Iterable[int]) -> list[int]:
    """Cost of the cheapest path from any of `starts` to each node, `UNREACHABLE` if there is none."""
    distances = [UNREACHABLE] * counts.node_count
    waiting = deque(starts)
    for node in waiting:
        distances[node] = 0
    queued = set(waiting)
    while waiting:
        node = waiting.popleft()
        queued.discard(node)
        for other, distance in _edges(counts, node, distances[node] + HOP_COST):
            if distance < distances[other]:
                distances[other] = distance
                if other not in queued:
                    queued.add(other)
                    waiting.append(other)
    return distances


def _edges(counts: AssignmentCounts, node: int, start: int) -> list[tuple[int, int]]:
    """The edges out of a node: their ends, and `start` plus their costs."""
    first_class = counts.member_count
    if node < first_class:
        return [(first_class + class_id, start + counts.give_edge(node, class_id)[0]) for class_id in counts.held[node]]
    class_id = node - first_class
    edges = [(member, start) for member in counts.near[class_id]]
    edges += [(member, start + RACK_MISS_COST) for member in counts.far[class_id]]
    return edges + [(member, start + counts.take_edge(class_id, member)[0]) for member in counts.deficits[class_id]]


class _BlockingFlow:
    """A blocking flow: sends along edges of cheapest paths until all paths to a demand within `cost_max` are full."""

    def __init__(self, counts: AssignmentCounts, distances: list[int], demand: dict[int, int], cost_max: int) -> None:
        self.counts, self.distances, self.demand, self.cost_max = counts, distances, demand, cost_max
        self.untried: dict[int, list[int]] = {}  # by node, the ends of its edges that may still lead on, best last

    def run(self, supply: dict[int, int]) -> None:
        for start in list(supply):
            while start in supply and self.demand:
                path = self._path(start)
                if path is None:
                    break
                self._move(path, supply)

    def _path(self, start: int) -> list[int] | None:
        """A path from `start` to a demand, or None if there is no further one."""
        path = [start]
        while path:
            node = path[-1]
            if node in self.demand and self.distances[node] // RACK_MISS_COST <= self.cost_max:
                return path
            untried = self.untried.get(node)
            if untried is None:
                untried = self.untried[node] = self._on_shortest(node)
            while untried and not self._capacity(node, untried[-1]):
                untried.pop()
            if untried:
                path.append(untried[-1])
            else:
                path.pop()
                if path:
                    self.untried[path[-1]].pop()
        return None

    def _on_shortest(self, node: int) -> list[int]:
        distances = self.distances
        ends = _edges(self.counts, node, distances[node] + HOP_COST)
        return [other for other, distance in reversed(ends) if distance == distances[other]]

    def _capacity(self, node: int, other: int) -> int:
        """The residual capacity of an edge, at the cost that put it on a cheapest path."""
        first_class = self.counts.member_count
        if node < first_class:
            cost, capacity = self.counts.give_edge(node, other - first_class)
        else:
            cost, capacity = self.counts.take_edge(node - first_class, other)
        return capacity if self.distances[node] + cost + HOP_COST == self.distances[other] else 0

    def _move(self, path: list[int], supply: dict[int, int]) -> None:
        start, end = path[0], path[-1]
        edges = list(pairwise(path))
        amount = min(supply[start], self.demand[end], *(self._capacity(node, other) for node, other in edges))
        move(self.counts, edges, amount)
        for amounts, node in ((supply, start), (self.demand, end)):
            amounts[node] -= amount
            if not amounts[node]:
                del amounts[node]


def move(counts: AssignmentCounts, edges: Iterable[tuple[int, int]], amount: int) -> None:
    """Move load along edges. An edge from a member gives up partitions, an edge to a member takes them."""
    first_class = counts.member_count
    for node, other in edges:
        if node < first_class:
            counts.give(node, other - first_class, amount)
        else:
            counts.take(node - first_class, other, amount)
