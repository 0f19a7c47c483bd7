"""What the rules for queues share: the ones of MetaQ (`metaq`) and RocketMQ (`rocketmq`).

Both systems ask their rule about one topic at a time, and give it two lists in order: the queues and the consumers. A
rule here is a function to *owners*: for each queue, in order, the position of its consumer. `allocate` makes of it what
the systems' own clients answer, `assign_by_topic` what a leader of a group submits.
"""

from bisect import bisect_left
from collections.abc import Callable, Hashable, Iterable, Sequence
from hashlib import md5
from typing import TypeVar

from rallypoint.assignors.contract import Assignment, GroupSpec, TopicPartition
from rallypoint.assignors.order import members_in_order, subscribers_by_topic

Queue = TypeVar("Queue", bound=Hashable)


class AllocationError(ValueError):
    """There is no answer to this question. The text says why, and names the field."""


def allocate(queues: Sequence[Queue], consumers: Sequence[str], owners: Iterable[int]) -> dict[str, tuple[Queue, ...]]:
    """Each consumer, in order, with its queues, in order. `owners`: the position of each queue's consumer."""
    shares: list[list[Queue]] = [[] for _ in consumers]
    for queue, owner in zip(queues, owners, strict=True):
        shares[owner].append(queue)
    return {consumer: tuple(share) for consumer, share in zip(consumers, shares, strict=True)}


def check_consumers(consumers: Sequence[str]) -> None:
    """AllocationError unless there is a consumer, and each is there once."""
    if not consumers:
        raise AllocationError("consumers: there are none to assign queues to")
    seen: set[str] = set()
    for consumer in consumers:
        if consumer in seen:
            raise AllocationError(f"consumers: {consumer!r} is listed twice")
        seen.add(consumer)


Rule = Callable[[str, int], Sequence[int]]
"""For one line of consumers: a topic and its number of partitions to the owner of each, in the order of numbers."""


def assign_by_topic(spec: GroupSpec, rule_for: Callable[[list[str]], Rule]) -> Assignment:
    """Ask a rule about each topic that has partitions and subscribers; gather the answers by member.

    `rule_for(consumers)`: the rule for a topic's subscribers, in the order of `members_in_order`, each under the name
    that lasts: the instance id of a static member, the member id of another. A static member that comes back thus has
    its old partitions. It is asked once for all topics with the same subscribers, so a circle is built once for them.
    """
    members = members_in_order(spec.subscriptions)
    names = [_lasting_name(spec, member_id) for member_id in members]
    shares: list[list[TopicPartition]] = [[] for _ in members]
    rules: dict[tuple[int, ...], Rule] = {}
    for topic, subscribers in subscribers_by_topic(spec, members).items():
        partitions = spec.partitions_per_topic[topic]
        if partitions == 0:
            continue
        line = tuple(subscribers)
        if line not in rules:
            rules[line] = rule_for([names[position] for position in line])
        for partition, owner in enumerate(rules[line](topic, partitions)):
            shares[line[owner]].append((topic, partition))
    return {member_id: tuple(share) for member_id, share in zip(members, shares, strict=True)}


def runs(queues: int, consumers: int) -> list[int]:
    """Owners of `queues` queues: neighbouring ones for each of `consumers` (at least 1), the first get one more."""
    each, more = divmod(queues, consumers)
    return [position for position in range(consumers) for _ in range(each + (1 if position < more else 0))]


class Ring:
    """A circle of points, each of which belongs to a position. Built once, asked often."""

    def __init__(self, points: Iterable[tuple[int, int]]) -> None:
        """`points`: (point, position), at least one. A point that is named twice is the later one's."""
        self._positions = dict(points)
        self._points = sorted(self._positions)

    def owner(self, point: int) -> int:
        """The position whose point is the first at or after this one, going on from the beginning at the end."""
        at = bisect_left(self._points, point)
        return self._positions[self._points[at % len(self._points)]]


def digest(text: str) -> bytes:
    """The 16 bytes of MD5 over the UTF-8 of `text`; a lone surrogate counts as a question mark, as in Java."""
    return md5(text.encode("utf-8", "replace"), usedforsecurity=False).digest()


def _lasting_name(spec: GroupSpec, member_id: str) -> str:
    instance_id = spec.subscriptions[member_id].group_instance_id
    return member_id if instance_id is None else instance_id
