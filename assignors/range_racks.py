"""The rack-aware step of `range`: matches partitions with members in a rack of their replicas.

A `_Topic` tracks how many partitions each subscriber may still take. The first step assigns by rack, the second assigns
the rest without looking at racks. A member without a rack matches every partition.
"""

from collections import defaultdict, deque
from collections.abc import Iterable, Mapping, Sequence

from rallypoint.assignors.contract import GroupSpec

NOBODY = -1


def assign_by_racks(
    spec: GroupSpec, members: Sequence[str], topics: Mapping[str, list[int]]
) -> dict[str, list[int]] | None:
    """The index of the member of each partition, by topic; None if racks make no difference.

    `members`: as `order.members_in_order` returns them.
    `topics`: as `order.subscribers_by_topic` returns them for these members.

    Topics with the same number of partitions and the same subscribers are co-partitioned: partition n of each goes to
    one member, by rack only if the rack holds a replica of n in all of these topics.
    Cost: O(members + partitions + replicas), times the racks of a partition.
    Source: Kafka's `RangeAssignor` 4.1.1 and the rack rules of its `AbstractPartitionAssignor`. A single topic is
    matched by rack only if racks matter for it; co-partitioned topics are matched if racks matter for any topic.
    """
    racks = [spec.subscriptions[member_id].rack_id or None for member_id in members]
    states = {
        topic: _Topic(spec.partitions_per_topic[topic], subscribers, spec.replica_racks.get(topic, ()), racks)
        for topic, subscribers in topics.items()
        if spec.partitions_per_topic[topic] > 0
    }
    if not any(state.needs_racks for state in states.values()):
        return None
    by_subscribers: defaultdict[tuple[int, tuple[int, ...]], list[_Topic]] = defaultdict(list)
    for state in states.values():
        by_subscribers[len(state.owners), tuple(state.subscribers)].append(state)
    for same in by_subscribers.values():
        if len(same) > 1:
            _match_together(same, racks)
        elif same[0].needs_racks:
            _match(same[0], racks)
    for state in states.values():
        _fill(state)
    return {topic: state.owners for topic, state in states.items()}


class _Topic:
    """The state of one topic, which has at least one partition and one subscriber."""

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
        wanted = {rack for member in subscribers if (rack := racks[member]) is not None}
        self.needs_racks = bool(wanted & everywhere) and any(one != everywhere for one in known)

    def capacity(self, member: int) -> int:
        """How many partitions this subscriber may still take. It never grows; the first ones get the remainder."""
        return max(0, self.each + (1 if self.extra > 0 else 0) - self.taken[member])

    def give(self, member: int, partitions: Iterable[int]) -> None:
        """Assign free partitions to a subscriber, at most `capacity` of them."""
        for partition in partitions:
            self.owners[partition] = member
            self.taken[member] += 1
        if self.taken[member] > self.each:
            self.extra -= 1


def _match(state: _Topic, racks: Sequence[str | None]) -> None:
    """Give each subscriber in order the first free partitions of its rack, up to its capacity."""
    by_rack: dict[str | None, deque[int]] = {racks[member]: deque() for member in state.subscribers}
    for partition, its_racks in enumerate(state.replica_racks):
        for rack in (None, *its_racks):
            if rack in by_rack:
                by_rack[rack].append(partition)
    for member in state.subscribers:
        capacity, found = state.capacity(member), list[int]()
        candidates = by_rack[racks[member]]
        while candidates and len(found) < capacity:
            partition = candidates.popleft()
            if state.owners[partition] == NOBODY:
                found.append(partition)
        if found:
            state.give(member, found)


def _match_together(states: Sequence[_Topic], racks: Sequence[str | None]) -> None:
    """Give each partition number in order to the first subscriber whose rack matches it in all these topics.

    All topics get the same owners in this step, so the capacity in the first is that in all.
    """
    first = states[0]
    waiting: dict[str | None, deque[int]] = defaultdict(deque)
    for member in first.subscribers:
        waiting[racks[member]].append(member)
    for partition in range(len(first.owners)):
        common = frozenset.intersection(*(state.replica_racks[partition] for state in states))
        fitting = []
        for rack in {None, *common} & waiting.keys():
            line = waiting[rack]
            while line and first.capacity(line[0]) == 0:
                line.popleft()
            if line:
                fitting.append(line[0])
        if fitting:
            for state in states:
                state.give(min(fitting), [partition])


def _fill(state: _Topic) -> None:
    """Give each subscriber in order the first free partitions, in any rack, up to its capacity."""
    free = deque(partition for partition, owner in enumerate(state.owners) if owner == NOBODY)
    for member in state.subscribers:
        capacity = min(state.capacity(member), len(free))
        if capacity:
            state.give(member, [free.popleft() for _ in range(capacity)])
