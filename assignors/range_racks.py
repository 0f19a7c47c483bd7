"""How `range` matches partitions with members of the same rack. Whether anything is left to do without racks, and the
plain rule, are in `range`.

Each topic has a `_Topic`: who may still take how many of its partitions. It is filled in two steps, the first of which
looks at racks and the second no longer does. A member without a rack fits every partition.
"""

from collections import defaultdict, deque
from collections.abc import Iterable, Mapping, Sequence

from rallypoint.assignors.contract import GroupSpec

NOBODY = -1


def share_by_racks(
    spec: GroupSpec, members: Sequence[str], topics: Mapping[str, list[int]]
) -> dict[str, list[int]] | None:
    """For each topic the position of every partition's member, or None if racks make no difference at all.

    `members` and `topics` are as `order` makes them: members in order, and each topic's subscribers as ascending
    positions in it. Topics that have the same number of partitions and the same subscribers are matched together, so
    that partition n of each goes to one member: only if its rack holds a replica of n in all of them.
    Cost: O(members + partitions + replicas), times the racks of a partition.
    Source: Kafka's `RangeAssignor` 4.1.1 and the rack rules of its `AbstractPartitionAssignor`. Whether racks matter
    is asked for each topic, but topics that stand together are matched as soon as it is so for any topic.
    """
    racks = [spec.subscriptions[member_id].rack_id or None for member_id in members]
    states = {
        topic: _Topic(spec.partitions_per_topic[topic], subscribers, spec.replica_racks.get(topic, ()), racks)
        for topic, subscribers in topics.items()
        if spec.partitions_per_topic[topic] > 0
    }
    if not any(state.needs_racks for state in states.values()):
        return None
    alike: defaultdict[tuple[int, tuple[int, ...]], list[_Topic]] = defaultdict(list)
    for state in states.values():
        alike[len(state.owners), tuple(state.subscribers)].append(state)
    for together in alike.values():
        if len(together) > 1:
            _match_together(together, racks)
        elif together[0].needs_racks:
            _match(together[0], racks)
    for state in states.values():
        _fill(state)
    return {topic: state.owners for topic, state in states.items()}


class _Topic:
    """What is given and what is left of one topic with at least one partition and one subscriber."""

    def __init__(
        self,
        partitions: int,
        subscribers: list[int],
        replica_racks: Sequence[Sequence[str]],
        racks: Sequence[str | None],
    ) -> None:
        self.subscribers = subscribers
        self.owners = [NOBODY] * partitions
        self.each, self.extra = divmod(partitions, len(subscribers))
        self.taken = dict.fromkeys(subscribers, 0)
        known = [frozenset(replica_racks[n]) if n < len(replica_racks) else frozenset() for n in range(partitions)]
        self.replica_racks: list[frozenset[str]] = known
        everywhere = frozenset().union(*known)
        wanted = {rack for position in subscribers if (rack := racks[position]) is not None}
        self.needs_racks = bool(wanted & everywhere) and any(one != everywhere for one in known)

    def room(self, position: int) -> int:
        """How many partitions this subscriber may still take: it never grows. The extra ones go to who is first."""
        return max(0, self.each + (1 if self.extra > 0 else 0) - self.taken[position])

    def give(self, position: int, partitions: Iterable[int]) -> None:
        """Write down the owner of partitions that were free, no more of them than there is room."""
        for partition in partitions:
            self.owners[partition] = position
            self.taken[position] += 1
        if self.taken[position] > self.each:
            self.extra -= 1


def _match(state: _Topic, racks: Sequence[str | None]) -> None:
    """One by one, each subscriber takes the first free partitions of its rack, as many as it has room for."""
    by_rack: dict[str | None, deque[int]] = {racks[position]: deque() for position in state.subscribers}
    for partition, its_racks in enumerate(state.replica_racks):
        for rack in (None, *its_racks):
            if rack in by_rack:
                by_rack[rack].append(partition)
    for position in state.subscribers:
        room, found = state.room(position), list[int]()
        candidates = by_rack[racks[position]]
        while candidates and len(found) < room:
            partition = candidates.popleft()
            if state.owners[partition] == NOBODY:
                found.append(partition)
        if found:
            state.give(position, found)


def _match_together(states: Sequence[_Topic], racks: Sequence[str | None]) -> None:
    """One by one, each partition number goes to the first subscriber whose rack fits it in all these topics.

    The topics get the same in this step, so what holds for the room in one holds for all.
    """
    first = states[0]
    waiting: dict[str | None, deque[int]] = defaultdict(deque)
    for position in first.subscribers:
        waiting[racks[position]].append(position)
    for partition in range(len(first.owners)):
        common = frozenset.intersection(*(state.replica_racks[partition] for state in states))
        fitting = []
        for rack in {None, *common} & waiting.keys():
            line = waiting[rack]
            while line and first.room(line[0]) == 0:
                line.popleft()
            if line:
                fitting.append(line[0])
        if fitting:
            for state in states:
                state.give(min(fitting), [partition])


def _fill(state: _Topic) -> None:
    """One by one, each subscriber takes the first partitions that are still free, whatever their rack."""
    free = deque(partition for partition, owner in enumerate(state.owners) if owner == NOBODY)
    for position in state.subscribers:
        room = min(state.room(position), len(free))
        if room:
            state.give(position, [free.popleft() for _ in range(room)])
