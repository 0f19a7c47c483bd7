"""What the rules of MetaQ (`metaq`) and RocketMQ (`rocketmq`) have in common.

Both systems allocate one topic at a time, from an ordered list of queues and one of consumers. A rule here returns the
*owners*: the index of the consumer of each queue, in the order of the queues. `allocate` turns them into the result of
the systems' own clients, `TopicAssignor` into the assignment of a group.
"""

from abc import abstractmethod
from bisect import bisect_left
from collections.abc import Callable, Hashable, Iterable, Sequence
from hashlib import md5
from typing import ClassVar, TypeVar

from rallypoint.assignors.contract import Assignment, Assignor, GroupSpec, TopicPartition
from rallypoint.assignors.order import members_in_order, subscribers_by_topic

Queue = TypeVar("Queue", bound=Hashable)


class AllocationError(ValueError):
    """The input is invalid. The message begins with the name of the parameter."""


def allocate(queues: Sequence[Queue], consumers: Sequence[str], owners: Iterable[int]) -> dict[str, tuple[Queue, ...]]:
    """Each consumer with its queues, both in the given order. `owners`: the index of each queue's consumer."""
    assigned: list[list[Queue]] = [[] for _ in consumers]
    for queue, owner in zip(queues, owners, strict=True):
        assigned[owner].append(queue)
    return {consumer: tuple(queues) for consumer, queues in zip(consumers, assigned, strict=True)}


def check_consumers(consumers: Sequence[str]) -> None:
    """Raise AllocationError if there are no consumers, or one is listed twice."""
    if not consumers:
        raise AllocationError("consumers: there are none to assign queues to")
    seen: set[str] = set()
    for consumer in consumers:
        if consumer in seen:
            raise AllocationError(f"consumers: {consumer!r} is listed twice")
        seen.add(consumer)


Rule = Callable[[str, int], Sequence[int]]
"""For one list of consumers: from a topic and its number of partitions to the owner of each partition."""


class TopicAssignor(Assignor):
    """An assignor that assigns each topic by itself, and ignores owned partitions. Subclasses define `rule_for`."""

    reads_owned_partitions: ClassVar[bool] = False

    @abstractmethod
    def rule_for(self, consumers: list[str]) -> Rule:
        """The rule for the subscribers of a topic, in the order of `members_in_order`.

        `consumers`: the instance id of a static member, so that it gets the same partitions after a restart; the member
        id of a dynamic one.

        It is called once for all topics with the same subscribers, so a hash ring is built once for them.
        """

    def assign(self, spec: GroupSpec) -> Assignment:
        """Apply the rule to each topic that has partitions and subscribers. Raises nothing.

        Cost: as `range` without racks, plus that of the rules.
        """
        members = members_in_order(spec.subscriptions)
        names = [_stable_name(spec, member_id) for member_id in members]
        assigned: list[list[TopicPartition]] = [[] for _ in members]
        rules: dict[tuple[int, ...], Rule] = {}
        for topic, subscribers in subscribers_by_topic(spec, members).items():
            partitions = spec.partitions_per_topic[topic]
            if partitions == 0:
                continue
            consumers = tuple(subscribers)
            if consumers not in rules:
                rules[consumers] = self.rule_for([names[index] for index in consumers])
            for partition, owner in enumerate(rules[consumers](topic, partitions)):
                assigned[consumers[owner]].append((topic, partition))
        return {member_id: tuple(owned) for member_id, owned in zip(members, assigned, strict=True)}


class RunsAssignor(TopicAssignor):
    """Gives each subscriber of a topic a contiguous run of its partitions; the first ones get one more."""

    def rule_for(self, consumers: list[str]) -> Rule:
        """Contiguous runs."""
        return lambda _, partitions: runs(partitions, len(consumers))


def runs(queues: int, consumers: int) -> list[int]:
    """Owners of `queues` queues: a contiguous run for each of `consumers` (at least 1); the first ones get one more."""
    each, more = divmod(queues, consumers)
    return [position for position in range(consumers) for _ in range(each + (1 if position < more else 0))]


class Ring:
    """A hash ring for consistent hashing. Each point belongs to a consumer, by its index."""

    def __init__(self, points: Iterable[tuple[int, int]]) -> None:
        """`points`: (point, index of the consumer), at least one. Of equal points the later one counts."""
        self._positions = dict(points)
        self._points = sorted(self._positions)

    def owner(self, point: int) -> int:
        """The index of the consumer with the first point at or after this one, wrapping around at the end."""
        at = bisect_left(self._points, point)
        return self._positions[self._points[at % len(self._points)]]


def digest(text: str) -> bytes:
    """The 16 bytes of the MD5 of `text` in UTF-8. A lone surrogate becomes a question mark, as in Java."""
    return md5(text.encode("utf-8", "replace"), usedforsecurity=False).digest()


def _stable_name(spec: GroupSpec, member_id: str) -> str:
    instance_id = spec.subscriptions[member_id].group_instance_id
    return member_id if instance_id is None else instance_id
