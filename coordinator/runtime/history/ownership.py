"""Who owned which partitions of a group, since this node loaded it.

Two things are kept: how many partitions each member and each topic has assigned, always, and the changes, bounded. A
change takes 4 bytes for each partition and some 300 for its names. What a stored assignment says is read when somebody
asks, or something of it changes: a load has no time for it.
"""

from array import array
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from rallypoint.coordinator.core import movement
from rallypoint.coordinator.core.effects import OwnersLoaded, PartitionsMoved
from rallypoint.coordinator.core.moves import OwnerNames
from rallypoint.coordinator.core.subscription import CONSUMER
from rallypoint.protocol.opaque import EMPTY

ENTRIES_MAX = 4_000_000
"""What is kept of all groups of a node together, in partitions; a change counts as `CHANGE_ENTRIES` besides."""
ENTRIES_MIN, ENTRIES_OF_A_GROUP = 2_000, 100_000
"""What a group has of it at least, and at most."""
CHANGE_ENTRIES = 75


class OwnerChange(NamedTuple):
    """Partitions of a topic that have passed from one owner to another. `number` counts the changes of the group."""

    number: int
    at_ms: int
    generation_id: int
    rebalance_id: int
    topic: str
    partitions: "array[int]"
    from_owner: OwnerNames | None
    to_owner: OwnerNames | None

    @property
    def entries(self) -> int:
        """What it weighs."""
        return len(self.partitions) + CHANGE_ENTRIES


class GroupOwnership:
    """Of one group. `since_ms`: from when on the changes are known."""

    __slots__ = ("_changes", "_entries", "_next_number", "_unread", "members", "since_ms", "topics")

    def __init__(self, since_ms: int) -> None:
        self.since_ms = since_ms
        self.members: dict[str, int] = {}
        self.topics: dict[str, int] = {}
        self._unread: OwnersLoaded | None = None
        self._changes: deque[OwnerChange] = deque()
        self._entries = 0
        self._next_number = 1

    # --- writing ------------------------------------------------------------------------------------------------------

    def load(self, loaded: OwnersLoaded) -> None:
        """The group came back with these owners. Cost: nothing before somebody asks."""
        self._unread = loaded

    def move(self, moved: PartitionsMoved, at_ms: int, entries_max: int) -> None:
        """Partitions have other owners. `entries_max`: what may be kept of the group."""
        self.read()
        # Few lines and no calls, since a large group may have as many moves as members in one turn of the loop.
        of_members, of_topics, entries = Counter[str](), Counter[str](), 0
        generation_id, rebalance_id = moved.generation_id, moved.rebalance_id
        for number, (topic, partitions, from_owner, to_owner) in enumerate(moved.moves, self._next_number):
            count = len(partitions)
            entries += count
            if from_owner is not None:
                of_members[from_owner.member_id] -= count
                of_topics[topic] -= count
            if to_owner is not None:
                of_members[to_owner.member_id] += count
                of_topics[topic] += count
            self._changes.append(
                OwnerChange(
                    number, at_ms, generation_id, rebalance_id, topic, array("i", partitions), from_owner, to_owner
                )
            )
        self._next_number += len(moved.moves)
        self._entries += entries + CHANGE_ENTRIES * len(moved.moves)
        _add(self.members, of_members)
        _add(self.topics, of_topics)
        while self._entries > entries_max and self._changes:
            oldest = self._changes.popleft()
            self._entries -= oldest.entries
            self.since_ms = oldest.at_ms + 1

    def replace(self, old_member_id: str, member_id: str) -> None:
        """A static member has another id."""
        self.read()
        count = self.members.pop(old_member_id, None)
        if count is not None:
            self.members[member_id] = count

    def read(self) -> None:
        """Count what the group was loaded with, if that was not done."""
        loaded, self._unread = self._unread, None
        if loaded is None or loaded.protocol_type != CONSUMER:
            return
        for names, assignment in loaded.owners:
            if assignment == EMPTY:
                continue
            try:
                owned = movement.read(assignment)
            except ValueError:
                continue
            for topic, partitions in owned.items():
                if partitions:
                    self.members[names.member_id] = self.members.get(names.member_id, 0) + len(partitions)
                    self.topics[topic] = self.topics.get(topic, 0) + len(partitions)

    # --- reading ------------------------------------------------------------------------------------------------------

    def newest_first(self, before: int | None = None) -> Iterator[OwnerChange]:
        """The changes, the newest first; with `before`, those of a lower number."""
        for change in reversed(self._changes):
            if before is None or change.number < before:
                yield change

    def last_changes(self, topic: str, partitions: Iterable[int]) -> dict[int, "LastChange"]:
        """Of each of these partitions that has changed: when it did last, and who had it before."""
        wanted = set(partitions)
        since: dict[int, int] = {}
        before: dict[int, OwnerNames] = {}
        for change in reversed(self._changes):
            if not wanted:
                break
            if change.topic != topic:
                continue
            for partition in wanted.intersection(change.partitions):
                since.setdefault(partition, change.at_ms)
                if change.from_owner is not None:
                    before[partition] = change.from_owner
                    wanted.discard(partition)
        return {partition: LastChange(at_ms, before.get(partition)) for partition, at_ms in since.items()}


def _add(counts: dict[str, int], more: Mapping[str, int]) -> None:
    """Those of which nothing is left go."""
    for name, delta in more.items():
        count = counts.get(name, 0) + delta
        if count > 0:
            counts[name] = count
        else:
            counts.pop(name, None)


class LastChange(NamedTuple):
    """When a partition got its present owner, or lost its last one, and who had it before."""

    at_ms: int
    from_owner: OwnerNames | None


def entries_max_of(group_count: int) -> int:
    """What may be kept of each of so many groups."""
    return min(ENTRIES_OF_A_GROUP, max(ENTRIES_MIN, ENTRIES_MAX // max(group_count, 1)))
