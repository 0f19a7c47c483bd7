"""The cluster in words: tables for people, JSON for programs."""

from collections.abc import Sequence
from datetime import UTC, datetime

from rallypoint.cli.assign.report import numbers_text, table
from rallypoint.protocol import admin_messages as admin

NODE_HEAD = ("NODE", "STATE", "URL", "RACK", "SHARDS", "PREFERRED", "RELEASE", "STARTED")
SHARD_HEAD = ("SHARD", "OWNER", "NODES")


def cluster_text(cluster: admin.ClusterAnswer, *, with_shards: bool) -> str:
    """The nodes and a summary of the shards, or each shard."""
    lines = table(NODE_HEAD, [_node_row(node) for node in cluster.nodes])
    lines += ["", *summary_lines(cluster)]
    if with_shards:
        lines += ["", *table(SHARD_HEAD, [_shard_row(shard) for shard in cluster.shards])]
    return "\n".join(lines)


def _node_row(node: admin.ClusterNode) -> tuple[str, ...]:
    started = "-" if node.started_at_ms is None else _time_text(node.started_at_ms)
    return (
        node.node_id,
        node.state,
        node.url or "-",
        node.rack or "-",
        str(node.shards),
        str(node.preferred_shards),
        node.release or "-",
        started,
    )


def _shard_row(shard: admin.ClusterShard) -> tuple[str, ...]:
    return str(shard.shard), shard.owner or "-", " ".join(shard.nodes) or "-"


def _time_text(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%SZ")


def summary_lines(cluster: admin.ClusterAnswer) -> list[str]:
    """How many shards there are, which of them nobody coordinates, and which are not at their preferred node."""
    ownerless = [shard.shard for shard in cluster.shards if shard.owner is None]
    away = [shard.shard for shard in cluster.shards if shard.owner is not None and _is_away(shard)]
    counted = f"{_counted(ownerless)} without a node, {_counted(away)} away from the preferred one"
    registry = f"node {cluster.registry_owner}" if cluster.registry_owner else "no node"
    return [
        f"{len(cluster.shards)} shards: {counted}",
        f"the topic registry is changed by {registry}; as node {cluster.node_id} sees it",
    ]


def _is_away(shard: admin.ClusterShard) -> bool:
    return bool(shard.nodes) and shard.owner != shard.nodes[0]


def _counted(shards: Sequence[int]) -> str:
    return f"{len(shards)} ({numbers_text(shards)})" if shards else "none"
