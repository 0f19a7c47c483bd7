"""The cluster: which node should own which keyspace, and what a node does next about it. Pure, as all of `core`."""
