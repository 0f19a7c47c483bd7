"""The shortest ways to move load through the network of `shares`, many at once. Which load to move is not said here.

`send` is the primal-dual method for flows of least cost: find how far everything is, then send as much as possible
along shortest paths alone, until no end is in reach. If before it no closed walk in the network was shorter than 0,
none is after it: what was moved was moved at the least cost for the loads it led to.
Source: Ahuja, Magnanti and Orlin, "Network Flows", chapter 9.
"""

from collections import deque
from collections.abc import Iterable
from itertools import pairwise

from rallypoint.assignors.shares import MISS, Shares

FAR = 1 << 62
HOP = 1  # of equally cheap paths the one with fewer edges; so no walk in a circle has length 0


def send(shares: Shares, supply: dict[int, int], demand: dict[int, int]) -> None:
    """Move as much load as can be from the nodes of `supply` to those of `demand`; what is left over stays there.

    A kind among the supply stands for partitions that nobody has yet. Both are amounts by node, and are used up.
    No closed walk may be shorter than 0 (edges are no `HOP` longer for that).
    Cost: O(edges) for each round. A round per length of path, seldom more than a few.
    """
    while supply and demand:
        distances = _distances(shares, supply)
        reached = {node: distances[node] // MISS for node in demand if distances[node] < FAR}
        if not reached:
            return
        for price in sorted(set(reached.values())):
            _Round(shares, distances, demand, price).run(supply)


def reached_from(shares: Shares, starts: Iterable[int]) -> set[int]:
    """The members that load can be moved to from the members of `starts`, these included."""
    found = set(starts)
    waiting, kinds = list(found), set[int]()
    while waiting:
        for kind in shares.held[waiting.pop()]:
            if kind not in kinds:
                kinds.add(kind)
                for member in (*shares.near[kind], *shares.far[kind]):
                    if member not in found:
                        found.add(member)
                        waiting.append(member)
    return found


def reaching(shares: Shares, ends: Iterable[int]) -> set[int]:
    """The members that load can be moved from to the members of `ends`, these included."""
    holders: list[list[int]] = [[] for _ in shares.near]
    for member, counts in enumerate(shares.held):
        for kind in counts:
            holders[kind].append(member)
    found = set(ends)
    subscribed: list[list[int]] = [[] for _ in shares.loads]
    for kind in range(len(holders)):
        for member in (*shares.near[kind], *shares.far[kind]):
            subscribed[member].append(kind)
    waiting, kinds = list(found), set[int]()
    while waiting:
        for kind in subscribed[waiting.pop()]:
            if kind not in kinds:
                kinds.add(kind)
                new = [member for member in holders[kind] if member not in found]
                found.update(new)
                waiting += new
    return found


def _distances(shares: Shares, starts: Iterable[int]) -> list[int]:
    """Length of the shortest path from any of `starts` to each node, `FAR` if there is none."""
    distances = [FAR] * shares.node_count
    waiting = deque(starts)
    for node in waiting:
        distances[node] = 0
    queued = set(waiting)
    while waiting:
        node = waiting.popleft()
        queued.discard(node)
        for other, distance in _edges(shares, node, distances[node] + HOP):
            if distance < distances[other]:
                distances[other] = distance
                if other not in queued:
                    queued.add(other)
                    waiting.append(other)
    return distances


def _edges(shares: Shares, node: int, start: int) -> list[tuple[int, int]]:
    """The edges out of a node: where to, and `start` plus the length."""
    first_kind = shares.member_count
    if node < first_kind:
        return [(first_kind + kind, start + shares.giving(node, kind)[0]) for kind in shares.held[node]]
    kind = node - first_kind
    edges = [(member, start) for member in shares.near[kind]]
    edges += [(member, start + MISS) for member in shares.far[kind]]
    return edges + [(member, start + shares.taking(kind, member)[0]) for member in shares.bereft[kind]]


class _Round:
    """One search for all paths along edges that lie on shortest paths, which may end where `demand` costs `price`."""

    def __init__(self, shares: Shares, distances: list[int], demand: dict[int, int], price: int) -> None:
        self.shares, self.distances, self.demand, self.price = shares, distances, demand, price
        self.untried: dict[int, list[int]] = {}  # by node, the ends of its edges not yet found useless, best last

    def run(self, supply: dict[int, int]) -> None:
        for start in list(supply):
            while start in supply and self.demand:
                path = self._path(start)
                if path is None:
                    break
                self._move(path, supply)

    def _path(self, start: int) -> list[int] | None:
        """A path from `start` to a demand, or None once there is no more of them."""
        path = [start]
        while path:
            node = path[-1]
            if node in self.demand and self.distances[node] // MISS <= self.price:
                return path
            untried = self.untried.get(node)
            if untried is None:
                untried = self.untried[node] = self._on_shortest(node)
            while untried and not self._room(node, untried[-1]):
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
        ends = _edges(self.shares, node, distances[node] + HOP)
        return [other for other, distance in reversed(ends) if distance == distances[other]]

    def _room(self, node: int, other: int) -> int:
        """How much may still go along an edge, at the length that put it on a shortest path."""
        first_kind = self.shares.member_count
        if node < first_kind:
            length, room = self.shares.giving(node, other - first_kind)
        else:
            length, room = self.shares.taking(node - first_kind, other)
        return room if self.distances[node] + length + HOP == self.distances[other] else 0

    def _move(self, path: list[int], supply: dict[int, int]) -> None:
        start, end = path[0], path[-1]
        edges = list(pairwise(path))
        amount = min(supply[start], self.demand[end], *(self._room(node, other) for node, other in edges))
        move(self.shares, edges, amount)
        for amounts, node in ((supply, start), (self.demand, end)):
            amounts[node] -= amount
            if not amounts[node]:
                del amounts[node]


def move(shares: Shares, edges: Iterable[tuple[int, int]], amount: int) -> None:
    """Move load along edges. A member's step to a kind gives up, a kind's step to a member takes."""
    first_kind = shares.member_count
    for node, other in edges:
        if node < first_kind:
            shares.give(node, other - first_kind, amount)
        else:
            shares.take(node - first_kind, other, amount)
