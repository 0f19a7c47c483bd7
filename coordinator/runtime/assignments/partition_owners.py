"""The owner of a partition: an index of a group's stored assignment, made once and queried often.

A query makes the index, and any change of the group drops it, so it is never stale. It holds numbers in arrays: some 12
bytes for a partition, and none of the texts it was made from.
"""

import asyncio
from array import array
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Callable, Coroutine, Iterable, Sequence

from rallypoint.coordinator.core.effects import Failure
from rallypoint.coordinator.runtime.assignments.consumers import Unreadable, assigned_to, check_consumers
from rallypoint.protocol import admin_messages as admin

PARTITIONS_MAX = 2_000_000
"""Partitions in all indexes together. The group that was asked for least recently goes first."""


class OwnerIndex:
    """Owners by topic and partition. A partition that the leader gave to several is the longest-standing member's."""

    def __init__(self, group: admin.DescribeAnswer) -> None:
        """Raises Unreadable. Cost: reads each member's assignment; 5,000 members take some 20 ms."""
        check_consumers(group)
        self.state = group.state
        self.generation_id = group.generation_id
        self.size = 0
        self._owners = [
            admin.Owner(
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
                client_id=member.client_id,
                host=member.host,
            )
            for member in group.members
        ]
        found: dict[str, list[tuple[int, int]]] = {}
        for place, member in enumerate(group.members):
            for topic, numbers in assigned_to(member).items():
                found.setdefault(topic, []).extend([(partition, place) for partition in numbers])
                self.size += len(numbers)
        self._topics: dict[str, tuple[array[int], array[int]]] = {}
        for topic, pairs in found.items():
            if not pairs:
                continue
            pairs.sort()
            partitions, places = zip(*pairs, strict=True)
            self._topics[topic] = array("i", partitions), array("i", places)

    def find(self, topic: str, partition: int) -> admin.Owner | None:
        """The owner; None where nobody has it. Cost: a search in the topic's partitions."""
        of_topic = self._topics.get(topic)
        if of_topic is None:
            return None
        partitions, places = of_topic
        at = bisect_left(partitions, partition)
        return self._owners[places[at]] if at < len(partitions) and partitions[at] == partition else None

    def partitions(self, topic: str) -> Sequence[int]:
        """The partitions of the topic that have an owner, in order; one may stand there twice."""
        return self._topics[topic][0] if topic in self._topics else ()

    @property
    def topics(self) -> Iterable[str]:
        """The topics that are assigned."""
        return self._topics


Made = OwnerIndex | Failure
Make = Callable[[], Coroutine[None, None, Made]]


class OwnerIndexes:
    """The indexes of groups that were asked for lately. Belongs to one event loop."""

    def __init__(self, partitions_max: int = PARTITIONS_MAX) -> None:
        self._partitions_max = partitions_max
        # An index in the making stands here too, so that those who ask meanwhile wait for it and make none themselves.
        self._made: OrderedDict[str, asyncio.Task[Made]] = OrderedDict()

    def __len__(self) -> int:
        """Indexes that are there or in the making."""
        return len(self._made)

    async def get(self, group_id: str, make: Make) -> Made:
        """The group's index; made by `make` if there is none. A failure is not kept.

        What changes while it is made drops it, so that the next one who asks gets a new one.
        """
        task = self._made.get(group_id)
        if task is None:
            task = self._made[group_id] = asyncio.get_running_loop().create_task(make())
            task.add_done_callback(lambda done: self._settle(group_id, done))
        else:
            self._made.move_to_end(group_id)
        # To stop waiting must not stop it for the others.
        return await asyncio.shield(task)

    def drop(self, group_id: str) -> None:
        """Something of the group is not as it was."""
        self._made.pop(group_id, None)

    def _settle(self, group_id: str, task: "asyncio.Task[Made]") -> None:
        if self._made.get(group_id) is not task:
            return
        if _size_of(task) is None:
            del self._made[group_id]
            return
        total = sum(_size_of(made) or 0 for made in self._made.values())
        while total > self._partitions_max and len(self._made) > 1:
            _, oldest = self._made.popitem(last=False)
            total -= _size_of(oldest) or 0


def _size_of(task: "asyncio.Task[Made]") -> int | None:
    """The size of the index; None where there is none, or none yet."""
    if not task.done() or task.cancelled() or task.exception() is not None:
        return None
    made = task.result()
    return None if isinstance(made, Failure) else made.size


def index_of(group: admin.DescribeAnswer) -> Made:
    """The group's index, or why there is none."""
    try:
        return OwnerIndex(group)
    except Unreadable as unreadable:
        return unreadable.failure
