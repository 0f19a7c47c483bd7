"""The rules of RocketMQ: `rocketmq-averagely` in runs, `rocketmq-averagely-by-circle` in turns, and
`rocketmq-consistent-hash` on a circle.

In RocketMQ a queue is a topic, a broker and a number there; queues and consumers come sorted. A group of this project
has no brokers: partition n stands for queue n of the broker `broker-a`, and partitions come in the order of their
numbers.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import ClassVar, NamedTuple

from rallypoint.assignors.contract import Assignment, Assignor, GroupSpec
from rallypoint.assignors.other_systems.allocation import (
    AllocationError,
    Ring,
    Rule,
    allocate,
    assign_by_topic,
    check_consumers,
    digest,
    runs,
)

VIRTUAL_NODES_DEFAULT = 10
"""Points on the circle for each consumer, unless said otherwise."""

BROKER = "broker-a"
"""The broker of a group's partitions."""


class MessageQueue(NamedTuple):
    """One queue, as RocketMQ knows it."""

    topic: str
    broker: str
    queue_id: int


def allocate_averagely(queues: Sequence[MessageQueue], consumers: Sequence[str]) -> dict[str, tuple[MessageQueue, ...]]:
    """Each consumer gets a run of neighbouring queues, in the order given; the first get one more.

    Surplus consumers get none. Errors: AllocationError without queues or consumers, with an empty consumer id, or with
    one that is listed twice; RocketMQ refuses all but the last, too.
    Source: RocketMQ's `AllocateMessageQueueAveragely`.
    """
    return _allocate(queues, consumers, lambda: runs(len(queues), len(consumers)))


def allocate_by_circle(queues: Sequence[MessageQueue], consumers: Sequence[str]) -> dict[str, tuple[MessageQueue, ...]]:
    """The queues go around the consumers one by one, in the orders given. Errors: as in `allocate_averagely`.

    Source: RocketMQ's `AllocateMessageQueueAveragelyByCircle`.
    """
    return _allocate(queues, consumers, lambda: turns(len(queues), len(consumers)))


def allocate_by_hash(
    queues: Sequence[MessageQueue], consumers: Sequence[str], virtual_nodes: int = VIRTUAL_NODES_DEFAULT
) -> dict[str, tuple[MessageQueue, ...]]:
    """Each queue goes to the consumer whose point on the circle comes next; a consumer's keep the order given.

    `virtual_nodes`: points for each consumer, at least 1. Errors: as in `allocate_averagely`.
    Source: RocketMQ's `AllocateMessageQueueConsistentHash`, with its own MD5 as hash function.
    """
    if virtual_nodes < 1:
        raise AllocationError(f"virtual_nodes: a consumer needs at least 1 point on the circle, not {virtual_nodes}")
    return _allocate(queues, consumers, lambda: hashed_owners(ring_of(consumers, virtual_nodes), queues))


def turns(queues: int, consumers: int) -> list[int]:
    """Owners of `queues` queues that go around `consumers` (at least 1) one by one."""
    return [queue % consumers for queue in range(queues)]


def ring_of(consumers: Sequence[str], virtual_nodes: int) -> Ring:
    """The circle of these consumers. Cost: a digest for each point."""
    return Ring(
        (_point(f"{consumer}-{repetition}"), position)
        for position, consumer in enumerate(consumers)
        for repetition in range(virtual_nodes)
    )


def hashed_owners(ring: Ring, queues: Iterable[MessageQueue]) -> list[int]:
    """The position of each queue's consumer. Cost: a digest for each queue."""
    return [
        ring.owner(_point(f"MessageQueue [topic={topic}, brokerName={broker}, queueId={queue_id}]"))
        for topic, broker, queue_id in queues
    ]


class RocketmqAveragelyAssignor(Assignor):
    """RocketMQ's default rule, topic by topic. On a group's partitions it gives what plain `range` does."""

    name: ClassVar[str] = "rocketmq-averagely"
    reads_owned_partitions: ClassVar[bool] = False

    def assign(self, spec: GroupSpec) -> Assignment:
        """Give each subscriber of a topic a run of its partitions; the first subscribers get one more.

        Errors: none. Cost: as `range` without racks. Source: as `allocate_averagely`.
        """
        return assign_by_topic(spec, lambda consumers: lambda _, partitions: runs(partitions, len(consumers)))


class RocketmqByCircleAssignor(Assignor):
    """RocketMQ's circle, topic by topic: as `roundrobin`, but each topic begins again with its first subscriber."""

    name: ClassVar[str] = "rocketmq-averagely-by-circle"
    reads_owned_partitions: ClassVar[bool] = False

    def assign(self, spec: GroupSpec) -> Assignment:
        """Assign each topic's partitions one by one around its subscribers.

        Errors: none. Cost: as `range` without racks. Source: as `allocate_by_circle`.
        """
        return assign_by_topic(spec, lambda consumers: lambda _, partitions: turns(partitions, len(consumers)))


class RocketmqConsistentHashAssignor(Assignor):
    """RocketMQ's consistent hash with 10 points each: when a member comes or goes, only its own partitions move."""

    name: ClassVar[str] = "rocketmq-consistent-hash"
    reads_owned_partitions: ClassVar[bool] = False

    def assign(self, spec: GroupSpec) -> Assignment:
        """Give each partition to the subscriber whose point comes next. How many each gets is left to the hash.

        Errors: none. Cost: 10 digests for each subscriber, again for topics with other subscribers, and one for each
        partition. Source: as `allocate_by_hash`.
        """

        def rule_for(consumers: list[str]) -> Rule:
            ring = ring_of(consumers, VIRTUAL_NODES_DEFAULT)
            return lambda topic, partitions: hashed_owners(
                ring, (MessageQueue(topic, BROKER, partition) for partition in range(partitions))
            )

        return assign_by_topic(spec, rule_for)


def _allocate(
    queues: Sequence[MessageQueue], consumers: Sequence[str], owners: Callable[[], list[int]]
) -> dict[str, tuple[MessageQueue, ...]]:
    check_consumers(consumers)
    if "" in consumers:
        raise AllocationError("consumers: an empty id names nobody")
    if not queues:
        raise AllocationError("queues: there are none to assign")
    return allocate(queues, consumers, owners())


def _point(text: str) -> int:
    """The first four bytes of the digest, the highest first."""
    return int.from_bytes(digest(text)[:4], "big")
