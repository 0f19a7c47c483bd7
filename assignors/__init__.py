"""Partition assignment: which member of a group reads which partition.

An assignor is a pure function from a `GroupSpec` (the topics' partitions, the members' subscriptions) to an
`Assignment`. The group's leader, a client, runs it. The coordinator never does.

The contract and its surroundings:
- `contract`: the interface of an assignor
- `order`: the orders that all assignors share
- `registry`: finds an assignor by its name
- `validity`: runs an assignor and refuses an invalid result
- `measure`, `evenness`: the quality of an assignment, and the best possible evenness

The assignors:
- `range` (with `range_racks`) and `roundrobin`: Kafka's
- `sticky` and `cooperative_sticky`: keep owned partitions; `balancing` does their work, and DESIGN.md explains it
- `weighted`: balances load that the members report (`weights`)
- `other_systems`: those of MetaQ and RocketMQ

`placement` assigns no members: it maps records to partitions (`partitioners`) and partitions to brokers (`replicas`).

`__all__` is the public interface: what an assignor of your own needs, the orders, and the partitioners.

Nothing here waits, reads a clock, draws a random number or keeps state between calls. Only `registry` reads something
else than its arguments: the entry points of the installed distributions.
"""

from rallypoint.assignors.contract import Assignment, Assignor, GroupSpec, MemberSubscription, TopicPartition
from rallypoint.assignors.order import java_order, members_in_order, subscribers_by_topic
from rallypoint.assignors.placement.partitioners import (
    Stay,
    by_chance,
    in_turn,
    murmur2,
    partition_for_key,
    partition_for_record,
    stick,
)

__all__ = [
    "Assignment",
    "Assignor",
    "GroupSpec",
    "MemberSubscription",
    "Stay",
    "TopicPartition",
    "by_chance",
    "in_turn",
    "java_order",
    "members_in_order",
    "murmur2",
    "partition_for_key",
    "partition_for_record",
    "stick",
    "subscribers_by_topic",
]
