"""How many partitions of each kind each member has, while a group is being balanced; and what changing it costs.

The counts form a network. An edge from a member to a kind gives one partition of that kind up, one from a kind to a
member takes one. A path from one member to another therefore moves load from the first to the last and leaves those
between as they were. An edge's length is what the step costs: `LOSS` if a member gives up what it owned, `MISS` if it
takes what is not in its rack, and the same below zero if that is undone.
"""

from collections.abc import Sequence

from rallypoint.assignors.kinds import Kinds

MISS = 1 << 20
"""A partition without a replica in its member's rack. More than the edges of any path, so that these count last."""

LOSS = 1 << 40
"""An owned partition that is given up. More than the misses of any path."""

Counts = dict[int, int]


class Shares:
    """The counts, and their changes. Nodes of the network are numbers: first the members, then the kinds.

    `loads`: partitions by member. `held`, `owned`: by member, kind to count; a count of 0 does not stand in `held`.
    `bereft`: by kind, the members that hold less of it than they owned, and how much less.
    """

    def __init__(self, kinds: Kinds, owned: Sequence[Sequence[int]]) -> None:
        """Every member holds what it owned; the rest is nobody's yet.

        `owned`: by member, the numbers of its owned partitions.
        """
        self.near, self.far = kinds.near, kinds.far
        self.is_far = [frozenset(members) for members in kinds.far]
        self.member_count = len(kinds.members)
        self.node_count = self.member_count + len(kinds.sizes)
        self.loads = [len(numbers) for numbers in owned]
        self.owned = [_count(numbers, kinds.kind_of, len(kinds.sizes)) for numbers in owned]
        self.held = [dict(counts) for counts in self.owned]
        self.bereft: list[Counts] = [{} for _ in kinds.sizes]
        self.free = list(kinds.sizes)
        for counts in self.owned:
            for kind, count in counts.items():
                self.free[kind] -= count

    def giving(self, member: int, kind: int) -> tuple[int, int]:
        """Length of the edge from a member to a kind, and how often it can be gone at that length."""
        held, owned = self.held[member].get(kind, 0), self.owned[member].get(kind, 0)
        relief = MISS if member in self.is_far[kind] else 0
        return (-relief, held - owned) if held > owned else (LOSS - relief, held)

    def taking(self, kind: int, member: int) -> tuple[int, int]:
        """Length of the edge from a kind to a member, and how often it can be gone at that length."""
        price = MISS if member in self.is_far[kind] else 0
        lost = self.bereft[kind].get(member, 0)
        return (price - LOSS, lost) if lost else (price, 1 << 60)

    def give(self, member: int, kind: int, count: int) -> None:
        """A member gives up partitions of a kind. It must hold them."""
        left = self.held[member][kind] - count
        if left:
            self.held[member][kind] = left
        else:
            del self.held[member][kind]
        self.loads[member] -= count
        self._compare(member, kind, left)

    def take(self, kind: int, member: int, count: int) -> None:
        """A member gets partitions of a kind."""
        held = self.held[member].get(kind, 0) + count
        self.held[member][kind] = held
        self.loads[member] += count
        self._compare(member, kind, held)

    def _compare(self, member: int, kind: int, held: int) -> None:
        lost = self.owned[member].get(kind, 0) - held
        if lost > 0:
            self.bereft[kind][member] = lost
        else:
            self.bereft[kind].pop(member, None)


def _count(numbers: Sequence[int], kind_of: Sequence[int], kind_count: int) -> Counts:
    if kind_count == 1:
        return {0: len(numbers)} if numbers else {}
    counts: Counts = {}
    for number in numbers:
        kind = kind_of[number]
        counts[kind] = counts.get(kind, 0) + 1
    return counts
