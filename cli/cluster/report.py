"""The cluster in words: its columns, and a summary of its shards."""

from collections.abc import Sequence

from rallypoint.cli.calls.client import Json
from rallypoint.cli.output.columns import NOTHING, Column, number, since, text, word
from rallypoint.cli.output.numbers import numbers_text
from rallypoint.cli.output.text import shown

NODE_COLUMNS = (
    text("node_id", "NODE"),
    word("state", "STATE", colours={"live": "32", "draining": "33", "gone": "31"}),
    text("url", "URL"),
    text("rack", "RACK", rank=3),
    number("shards", "SHARDS"),
    number("preferred_shards", "PREFERRED", rank=1),
    text("release", "RELEASE", rank=4),
    since("started_at_ms", "STARTED", rank=2),
)
SHARD_COLUMNS = (
    number("shard", "SHARD"),
    text("owner", "OWNER"),
    Column("nodes", "NODES", lambda value, _: " ".join(map(shown, value)) or NOTHING, shrinks=True),
)


def summary_lines(cluster: Json) -> list[str]:
    """How many shards there are, which of them nobody coordinates, and which are not at their preferred node."""
    shards = cluster["shards"]
    ownerless = [shard["shard"] for shard in shards if shard["owner"] is None]
    away = [shard["shard"] for shard in shards if shard["owner"] is not None and _is_away(shard)]
    counted = f"{_counted(ownerless)} without a node, {_counted(away)} away from the preferred one"
    registry = f"node {shown(cluster['registry_owner'])}" if cluster["registry_owner"] else "no node"
    return [
        f"{len(shards)} shards: {counted}",
        f"the topic registry is changed by {registry}; as node {shown(cluster['node_id'])} sees it",
    ]


def _is_away(shard: Json) -> bool:
    return bool(shard["nodes"]) and shard["owner"] != shard["nodes"][0]


def _counted(shards: Sequence[int]) -> str:
    return f"{len(shards)} ({numbers_text(shards)})" if shards else "none"
