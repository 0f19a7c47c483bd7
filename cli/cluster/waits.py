"""When a change that an operator asked for is done, and when it never will be, by what a node says of the cluster."""

from dataclasses import dataclass

from rallypoint.cli.calls.client import Json


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a change is.

    is_done: nothing is left to be waited for.
    rest: what is left, as a clause that follows "after … ms".
    stuck: why it does not go on by itself, in a sentence; None while it does.
    """

    is_done: bool
    rest: str = ""
    stuck: str | None = None


def drain_progress(cluster: Json, node_id: str) -> Progress:
    """A drain is done when the node has no shard and not the topic registry."""
    node = _node_of(cluster, node_id)
    if node is None:
        return Progress(is_done=False, stuck=f"The cluster has no node {node_id!r} any more.")
    has_registry = cluster["registry_owner"] == node_id
    if not node["shards"] and not has_registry:
        return Progress(is_done=True)
    rest = f"node {node_id!r} has {node['shards']} shards{' and the topic registry' if has_registry else ''} yet"
    if node["state"] == "live":
        return Progress(
            is_done=False, rest=rest, stuck=f"Node {node_id!r} is not drained: somebody has ended the drain."
        )
    if not any(other["state"] == "live" for other in cluster["nodes"]):
        return Progress(is_done=False, rest=rest, stuck=f"There is no node that takes what node {node_id!r} has.")
    return Progress(is_done=False, rest=rest)


def move_progress(cluster: Json, shard: int, node_id: str) -> Progress:
    """A move is done when the node coordinates the shard."""
    found = cluster["shards"][shard]
    if found["owner"] == node_id:
        return Progress(is_done=True)
    found_owner = found["owner"]
    rest = f"shard {shard} is at {'no node' if found_owner is None else f'node {found_owner!r}'} yet"
    node = _node_of(cluster, node_id)
    if node is None or found["nodes"][:1] != [node_id]:
        return Progress(
            is_done=False, rest=rest, stuck=f"Somebody has made another node the preferred one of shard {shard}."
        )
    if node["state"] != "live":
        stuck = f"Node {node_id!r} is {node['state']}; it gets shard {shard} when it runs and is not drained."
        return Progress(is_done=False, rest=rest, stuck=stuck)
    return Progress(is_done=False, rest=rest)


def _node_of(cluster: Json, node_id: str) -> Json | None:
    return next((node for node in cluster["nodes"] if node["node_id"] == node_id), None)
