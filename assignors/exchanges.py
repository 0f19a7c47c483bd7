"""Exchanges that leave a balanced group as even as it is and let members keep more of what they owned.

An exchange is a closed walk in the network of `shares` that is shorter than 0. If it is to lead through a member
with one partition more than its last, it goes on from that last one over a bridge: the two change their places in the
order of loads, and all is as even as before. A flow without such a walk costs the least of all that are as even.
Source: the optimality of flows without negative cycles; Ahuja, Magnanti and Orlin, "Network Flows", chapter 3.
"""

from collections import deque

from rallypoint.assignors.paths import move
from rallypoint.assignors.shares import MISS, Shares

NONE = -1


def exchange(shares: Shares) -> None:
    """Make every exchange that pays.

    Cost: O(edges that a lost partition can be won back by) for each, and one look at most if none is lost.
    """
    while walks := _Search(shares).run():
        for walk in walks:
            _go(shares, walk)


class _Search:
    """One search, by Bellman and Ford's method. Behind the kinds the nodes are bridges, one for each load there is."""

    def __init__(self, shares: Shares) -> None:
        self.shares = shares
        self.levels = sorted(set(shares.loads))
        self.bridge_of = {load: shares.node_count + at for at, load in enumerate(self.levels)}
        self.members_at: dict[int, list[int]] = {}
        for member, load in enumerate(shares.loads):
            self.members_at.setdefault(load, []).append(member)
        count = shares.node_count + len(self.levels)
        self.distances = [0] * count
        self.parents = [NONE] * count
        self.until_look = count  # shortenings; a look at all parents costs as much as so many

    def run(self) -> list[list[int]]:
        """Closed walks shorter than 0 without a node in common; none only if there is none."""
        waiting = deque(self._starts())
        queued = set(waiting)
        shortened = 0
        while waiting:
            node = waiting.popleft()
            queued.discard(node)
            for other, length in self._edges(node):
                if self.distances[node] + length < self.distances[other]:
                    self.distances[other] = self.distances[node] + length
                    self.parents[other] = node
                    shortened += 1
                    if other not in queued:
                        queued.add(other)
                        waiting.append(other)
            if shortened >= self.until_look:
                shortened = 0
                if walks := self._walks():
                    return walks
        return []

    def _starts(self) -> list[int]:
        """The nodes with an edge shorter than 0: no other can begin to shorten a distance."""
        shares = self.shares
        takers = [shares.member_count + kind for kind, bereft in enumerate(shares.bereft) if bereft]
        if not any(shares.far):
            return takers
        misplaced = [
            member
            for member, counts in enumerate(shares.held)
            if any(shares.giving(member, kind)[0] < 0 for kind in counts)
        ]
        return misplaced + takers

    def _edges(self, node: int) -> list[tuple[int, int]]:
        shares, first_kind = self.shares, self.shares.member_count
        if node < first_kind:
            edges = [(first_kind + kind, shares.giving(node, kind)[0]) for kind in shares.held[node]]
            return [*edges, (self.bridge_of[shares.loads[node]], 0)]
        if node < shares.node_count:
            kind = node - first_kind
            edges = [(member, 0) for member in shares.near[kind]] + [(member, MISS) for member in shares.far[kind]]
            return edges + [(member, shares.taking(kind, member)[0]) for member in shares.bereft[kind]]
        load = self.levels[node - shares.node_count]
        return [(member, 0) for member in self.members_at.get(load + 1, ())]

    def _walks(self) -> list[list[int]]:
        """The circles among the parents. Each is a closed walk shorter than 0."""
        walks: list[list[int]] = []
        seen: dict[int, int] = {}
        for start in range(len(self.parents)):
            node, trail = start, list[int]()
            while node != NONE and node not in seen:
                seen[node] = start
                trail.append(node)
                node = self.parents[node]
            if node != NONE and seen[node] == start:
                walks.append(trail[trail.index(node) :][::-1])
        return walks


def _go(shares: Shares, walk: list[int]) -> None:
    """Move along a closed walk as much as goes at its length: over a bridge one, or the loads would change."""
    amount = 1 << 60
    edges = []
    for node, other in zip(walk, [*walk[1:], walk[0]], strict=True):
        if max(node, other) >= shares.node_count:
            amount = 1
            continue
        edges.append((node, other))
        if node < shares.member_count:
            amount = min(amount, shares.giving(node, other - shares.member_count)[1])
        else:
            amount = min(amount, shares.taking(node - shares.member_count, other)[1])
    move(shares, edges, amount)
