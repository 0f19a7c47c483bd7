"""The sharing out: who of a group reads which partition.

An assignor is a pure rule from a `GroupSpec` (partitions of topics, subscriptions of members) to an `Assignment`. The
leader of a group, a client, runs it; the coordinator never does. `contract` says what a rule is given and must give,
`order` holds the orders all rules share, `range` and `roundrobin` are the rules, `registry` finds a rule by its name,
and `partitioners` is the way from a record's key to its partition. `measure` judges any assignment, whichever rule
made it, and `evenness` says how even it could be.

Nothing here waits, reads a clock, draws a random number or keeps state between calls. Only `registry` looks outside:
at the entry points of the installed distributions.
"""
