"""How even an assignment can be at best, whatever rule makes it. No assignment is made or judged here.

Members may subscribe to different topics, so "everyone the same" is often out of reach. What is within reach is found
by asking, for each k: if no member took more than k partitions, how many could be given out? That is a flow from
topics to members. One and the same assignment is the best for every k at once (the member loads that can be had are the
bases of a submodular function, and those have a least majorized one), so the answers F(1), F(2), ... say all about it:
F(k) - F(k-1) members have k partitions or more.

F is the lower edge of some straight lines, one for each cut of the flow: a set of topics is left to its subscribers,
who take k each, and the other topics are given out whole. There are seldom more than a handful of such lines, and
each flow finds one, so few flows are needed, not one for each k.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from rallypoint.assignors.contract import GroupSpec


def optimal_counts(spec: GroupSpec) -> tuple[int, ...]:
    """How many partitions each member has, ascending, in the most even assignment of all that are assignable.

    Most even: no other has a lower sum of |ci - cj| over the pairs of members, nor a lower maximum, nor a higher
    minimum. Which member has how many is left open, as there may be several such assignments.
    Cost: members with equal subscriptions count as one, topics with equal subscribers too; a flow over what is left
    for each line of the module's text. Different subscriptions of 1,000 members to 100 topics: well below a second.
    """
    network = _network_of(spec)
    idle = len(spec.subscriptions) - sum(network.sizes)
    total = sum(network.supplies)
    lines = sorted(_lines(network), reverse=True)
    counts: list[int] = []
    reached, k = 0, 0
    while reached < total:
        k += 1
        here = min(line.at(k) for line in lines)
        at_least = here - reached  # members with k partitions or more
        counts += [k - 1] * (sum(network.sizes) - len(counts) - at_least)
        reached = here
    counts += [k] * (sum(network.sizes) - len(counts))
    return tuple([0] * idle + counts)


def pairwise(counts: tuple[int, ...]) -> int:
    """The sum of |ci - cj| over all pairs. Cost: O(members log members)."""
    last = len(counts) - 1
    return sum((2 * place - last) * count for place, count in enumerate(sorted(counts)))


@dataclass(frozen=True, slots=True)
class _Network:
    """Who can take what, with equals as one. `takers`: of each lot of topics, the classes of members that subscribe.

    `supplies`: partitions of each lot. `sizes`: members of each class.
    """

    supplies: tuple[int, ...]
    takers: tuple[frozenset[int], ...]
    sizes: tuple[int, ...]


@dataclass(frozen=True, slots=True, order=True)
class _Line:
    """A bound on what can be given out: `whole` partitions without a limit, and k to each of `limited` members."""

    limited: int
    whole: int

    def at(self, k: int) -> int:
        return self.whole + self.limited * k


def _network_of(spec: GroupSpec) -> _Network:
    class_sizes: dict[frozenset[str], int] = {}
    for subscription in spec.subscriptions.values():
        wanted = frozenset(topic for topic in subscription.topics if spec.partitions_per_topic.get(topic, 0) > 0)
        if wanted:
            class_sizes[wanted] = class_sizes.get(wanted, 0) + 1
    takers_of: dict[str, set[int]] = {}
    for number, wanted in enumerate(class_sizes):
        for topic in wanted:
            takers_of.setdefault(topic, set()).add(number)
    lots: dict[frozenset[int], int] = {}
    for topic, takers in takers_of.items():
        lots[frozenset(takers)] = lots.get(frozenset(takers), 0) + spec.partitions_per_topic[topic]
    return _Network(tuple(lots.values()), tuple(lots), tuple(class_sizes.values()))


def _lines(network: _Network) -> set[_Line]:
    """Every line of F's edge. Between two known ones, the flow where they meet finds a lower one, or shows none is."""
    steep, flat = _Line(sum(network.sizes), 0), _Line(0, sum(network.supplies))
    found = {steep, flat}
    open_pairs = [(steep, flat)] if network.sizes else []
    while open_pairs:
        left, right = open_pairs.pop()
        num, den = right.whole - left.whole, left.limited - right.limited
        line = _tightest(network, num, den)
        if line.whole * den + line.limited * num < left.whole * den + left.limited * num:
            found.add(line)
            open_pairs += [(left, line), (line, right)]
    return found


def _tightest(network: _Network, num: int, den: int) -> _Line:
    """The line that is lowest at k = num / den: the smallest cut, once no more can flow with that limit.

    All is counted in parts of 1 / den, so that the numbers stay whole.
    """
    flow = _Flow([supply * den for supply in network.supplies], network.takers, [size * num for size in network.sizes])
    while flow.augment():
        pass
    limited = sum(network.sizes[taker] for taker in flow.reached_takers)
    whole = sum(supply for lot, supply in enumerate(network.supplies) if lot not in flow.reached_lots)
    return _Line(limited, whole)


class _Flow:
    """The largest flow from lots to classes, by augmenting paths; greedy first, since that is nearly all of it."""

    def __init__(self, supplies: list[int], takers: tuple[frozenset[int], ...], room: list[int]) -> None:
        self._left = supplies
        self._takers = takers
        self._room = room
        self._given: list[dict[int, int]] = [{} for _ in room]
        """Of each class: from which lot it takes how much. Only what is above 0."""
        self.reached_lots: set[int] = set()
        self.reached_takers: set[int] = set()
        for lot in sorted(range(len(supplies)), key=lambda lot: (len(takers[lot]), lot)):
            self._pour(lot)

    def _pour(self, lot: int) -> None:
        """Give the lot to its takers in proportion to their room, and what is left to the first with room."""
        left, room = self._left[lot], sum(self._room[taker] for taker in self._takers[lot])
        shares = [
            (taker, min(self._room[taker], left * self._room[taker] // room) if room else 0)
            for taker in self._takers[lot]
        ]
        for taker, share in [*shares, *((taker, self._room[taker]) for taker in self._takers[lot])]:
            self._give(lot, taker, min(share, self._room[taker], self._left[lot]))

    def _give(self, lot: int, taker: int, amount: int) -> None:
        if amount:
            self._given[taker][lot] = self._given[taker].get(lot, 0) + amount
            self._room[taker] -= amount
            self._left[lot] -= amount

    def augment(self) -> bool:
        """One search, breadth first, from all lots with something left. Whether it let more flow.

        If not, what it reached is the lots' side of the smallest cut.
        """
        came_from: dict[int, int] = {}  # of a class: the lot that reached it
        through: dict[int, int] = {}  # of a lot without anything left: the class that would give some of it back
        queue = [lot for lot, left in enumerate(self._left) if left]
        far_lots = set(range(len(self._left))).difference(queue)
        far_takers = set(range(len(self._room)))
        flowed = False
        for lot in queue:  # it grows meanwhile
            near = far_takers & self._takers[lot]
            far_takers -= near
            for taker in near:
                came_from[taker] = lot
                if self._room[taker] and self._push(taker, came_from, through):
                    flowed = True
                for other in far_lots & self._given[taker].keys():
                    far_lots.discard(other)
                    through[other] = taker
                    queue.append(other)
        self.reached_lots, self.reached_takers = set(queue), set(came_from)
        return flowed

    def _push(self, taker: int, came_from: Mapping[int, int], through: Mapping[int, int]) -> int:
        """Let as much flow to the taker as its path allows; an earlier push of the same search may have closed it."""
        path = list(_path(taker, came_from, through))
        start = path[-1][0]
        amount = min(self._room[taker], self._left[start])
        for lot, _ in path[:-1]:
            amount = min(amount, self._given[through[lot]].get(lot, 0))
        if amount:
            for lot, receiver in path:
                self._given[receiver][lot] = self._given[receiver].get(lot, 0) + amount
                if lot in through:
                    self._take_back(through[lot], lot, amount)
            self._room[taker] -= amount
            self._left[start] -= amount
        return amount

    def _take_back(self, taker: int, lot: int, amount: int) -> None:
        self._given[taker][lot] -= amount
        if not self._given[taker][lot]:
            del self._given[taker][lot]


def _path(taker: int, came_from: Mapping[int, int], through: Mapping[int, int]) -> Iterator[tuple[int, int]]:
    """From the taker back to a lot with something left: each lot with the class that gets more of it."""
    while True:
        lot = came_from[taker]
        yield lot, taker
        if lot not in through:
            return
        taker = through[lot]
