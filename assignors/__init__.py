"""The sharing out: who of a group reads which partition.

An assignor is a pure rule from a `GroupSpec` (partitions of topics, subscriptions of members) to an `Assignment`. The
leader of a group, a client, runs it; the coordinator never does. `contract` says what a rule is given and must give,
`order` holds the orders all rules share, `registry` finds a rule by its name. The rules: `range` (with `range_racks`)
and `roundrobin` are Kafka's, `metaq` and `rocketmq` those of two systems with queues, on what `allocation` gives them;
`weighted` looks at `weights`, which the members report. `sticky` and `cooperative_sticky` keep what members have; their
parts, which DESIGN.md explains, are `kinds`, `claims`, `balancing` (with `shares`, `paths` and `exchanges`) and
`dealing`. Beside the rules stand `partitioners`, the way from a record to its partition, and `replicas`, that from a
partition to the nodes that hold its copies. `measure` judges any assignment, whichever rule made it, and `evenness`
says how even it could be.

Nothing here waits, reads a clock, draws a random number or keeps state between calls. Only `registry` looks outside:
at the entry points of the installed distributions.
"""
