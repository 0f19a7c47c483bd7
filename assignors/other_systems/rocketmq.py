"""The rules of RocketMQ: contiguous runs, round-robin, and consistent hashing.

In RocketMQ a queue is a topic, a broker and a number there; queues and consumers are sorted. Here groups have no
brokers: partition n is queue n of the broker `broker-a`, and partitions are sorted by number.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import ClassVar, NamedTuple

from rallypoint.assignors.other_systems.allocation import (
    AllocationError,
    Ring,
    Rule,
    RunsAssignor,
    TopicAssignor,
    allocate,
    check_consumers,
    digest,
    runs,
)

VIRTUAL_NODES_DEFAULT = 10
"""Points on the hash ring for each consumer, by default."""

BROKER = "broker-a"
"""The broker of a group's partitions."""


class MessageQueue(NamedTuple):
    """One queue, as RocketMQ knows it."""

    topic: str
    broker: str
    queue_id: int


def allocate_averagely(queues: Sequence[MessageQueue], consumers: Sequence[str]) -> dict[str, tuple[MessageQueue, ...]]:
    """Give each consumer a contiguous run of the queues in the given order; the first ones get one more.

    Surplus consumers get none. Raises AllocationError if there are no queues or consumers, if a consumer id is empty,
    or if one is listed twice. RocketMQ refuses all but the last of these, too.
    Source: RocketMQ's `AllocateMessageQueueAveragely`.
    """
    return _allocate(queues, consumers, lambda: runs(len(queues), len(consumers)))


def allocate_by_circle(queues: Sequence[MessageQueue], consumers: Sequence[str]) -> dict[str, tuple[MessageQueue, ...]]:
    """Assign the queues round-robin to the consumers, in the given orders. Raises as `allocate_averagely` does.

    Source: RocketMQ's `AllocateMessageQueueAveragelyByCircle`.
    """
    return _allocate(queues, consumers, lambda: turns(len(queues), len(consumers)))


def allocate_by_hash(
    queues: Sequence[MessageQueue], consumers: Sequence[str], virtual_nodes: int = VIRTUAL_NODES_DEFAULT
) -> dict[str, tuple[MessageQueue, ...]]:
    """Give each queue to the consumer with the next point on the ring. A consumer's queues keep their order.

    `virtual_nodes`: points on the ring for each consumer, at least 1.

    Raises as `allocate_averagely` does.
    Source: RocketMQ's `AllocateMessageQueueConsistentHash`, with its own MD5 as hash function.
    """
    if virtual_nodes < 1:
        raise AllocationError(f"virtual_nodes: a consumer needs at least 1 point on the ring, not {virtual_nodes}")
    return _allocate(queues, consumers, lambda: hashed_owners(ring_of(consumers, virtual_nodes), queues))


def turns(queues: int, consumers: int) -> list[int]:
    """Owners of `queues` queues, round-robin over `consumers` (at least 1)."""
    return [queue % consumers for queue in range(queues)]


def ring_of(consumers: Sequence[str], virtual_nodes: int) -> Ring:
    """The hash ring of these consumers. Cost: a digest for each point."""
    return Ring(
        (_point(f"{consumer}-{repetition}"), position)
        for position, consumer in enumerate(consumers)
        for repetition in range(virtual_nodes)
    )


def hashed_owners(ring: Ring, queues: Iterable[MessageQueue]) -> list[int]:
    """The index of each queue's consumer. Cost: a digest for each queue."""
    return [
        ring.owner(_point(f"MessageQueue [topic={topic}, brokerName={broker}, queueId={queue_id}]"))
        for topic, broker, queue_id in queues
    ]


class RocketmqAveragelyAssignor(RunsAssignor):
    """RocketMQ's default rule, topic by topic. It equals `range` without racks.

    Source: as `allocate_averagely`.
    """

    name: ClassVar[str] = "rocketmq-averagely"


class RocketmqByCircleAssignor(TopicAssignor):
    """RocketMQ's round-robin, topic by topic: like `roundrobin`, but each topic begins with its first subscriber.

    Source: as `allocate_by_circle`.
    """

    name: ClassVar[str] = "rocketmq-averagely-by-circle"

    def rule_for(self, consumers: list[str]) -> Rule:
        """Round-robin."""
        return lambda _, partitions: turns(partitions, len(consumers))


class RocketmqConsistentHashAssignor(TopicAssignor):
    """RocketMQ's consistent hashing with 10 points each: when a member joins or leaves, only its partitions move.

    The counts depend on the hash. Source: as `allocate_by_hash`.
    """

    name: ClassVar[str] = "rocketmq-consistent-hash"

    def rule_for(self, consumers: list[str]) -> Rule:
        """The next point on the ring. Cost: 10 digests for each subscriber, and one for each partition."""
        ring = ring_of(consumers, VIRTUAL_NODES_DEFAULT)
        return lambda topic, partitions: hashed_owners(
            ring, (MessageQueue(topic, BROKER, partition) for partition in range(partitions))
        )


def _allocate(
    queues: Sequence[MessageQueue], consumers: Sequence[str], owners: Callable[[], list[int]]
) -> dict[str, tuple[MessageQueue, ...]]:
    check_consumers(consumers)
    if "" in consumers:
        raise AllocationError("consumers: one id is empty")
    if not queues:
        raise AllocationError("queues: there are none to assign")
    return allocate(queues, consumers, owners())


def _point(text: str) -> int:
    """The first four bytes of the digest, big-endian."""
    return int.from_bytes(digest(text)[:4], "big")
