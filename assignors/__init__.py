"""Partition assignment: which member of a group reads which partition.

An assignor is a pure rule from a `GroupSpec` (partitions of topics, subscriptions of members) to an `Assignment`. The
leader of a group, a client, runs it; the coordinator never does. `contract` says what a rule is given and must give,
`order` holds the orders all rules share, `registry` finds a rule by its name. The rules: `range` (with `range_racks`)
and `roundrobin` are Kafka's, those of MetaQ and RocketMQ stand in `other_systems`;
`weighted` looks at `weights`, which the members report. `sticky` and `cooperative_sticky` keep what members have; their
parts, which DESIGN.md explains, are `kinds`, `owned_partitions`, `balancing` (with `shares`, `paths` and `exchanges`)
and `from_counts`. Beside the rules, `placement` maps a record to its partition (`partitioners`) and a partition to the
nodes that hold its copies (`replicas`). `validity` runs a rule and refuses a result that must not be used, `measure`
judges any assignment, whichever rule made it, and `evenness` says how even it could be.

Public is `__all__` below: what a rule of your own implements, the orders, and the partitioners.

Nothing here waits, reads a clock, draws a random number or keeps state between calls. Only `registry` looks outside:
at the entry points of the installed distributions.
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
