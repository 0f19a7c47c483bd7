"""The operations that the command calls, by name: method and path, as `rallypoint.protocol.operations` has them."""

from collections.abc import Iterable, Mapping
from urllib.parse import quote, urlencode

OPERATIONS: Mapping[str, tuple[str, str]] = {
    "coordinator": ("GET", "/v1/coordinator"),
    "fetch": ("GET", "/v1/groups/{group_id}/offsets"),
    "commit": ("POST", "/v1/groups/{group_id}/offsets"),
    "reset_offsets": ("POST", "/v1/groups/{group_id}/offsets/reset"),
    "delete_offsets": ("DELETE", "/v1/groups/{group_id}/offsets"),
    "list_groups": ("GET", "/v1/groups"),
    "describe": ("GET", "/v1/groups/{group_id}"),
    "delete_group": ("DELETE", "/v1/groups/{group_id}"),
    "list_rebalances": ("GET", "/v1/groups/{group_id}/rebalances"),
    "start_rebalance": ("POST", "/v1/groups/{group_id}/rebalance"),
    "freeze": ("PUT", "/v1/groups/{group_id}/freeze"),
    "thaw": ("DELETE", "/v1/groups/{group_id}/freeze"),
    "cooldown": ("PUT", "/v1/groups/{group_id}/cooldown"),
    "preview": ("POST", "/v1/groups/{group_id}/preview"),
    "list_partitions": ("GET", "/v1/groups/{group_id}/partitions"),
    "remove_members": ("POST", "/v1/groups/{group_id}/members/remove"),
    "proceed": ("POST", "/v1/groups/{group_id}/rebalance/proceed"),
    "join_wait": ("PUT", "/v1/groups/{group_id}/join_wait"),
    "describe_topic": ("GET", "/v1/topics/{topic}"),
    "list_topics": ("GET", "/v1/topics"),
    "put_topic": ("PUT", "/v1/topics/{topic}"),
    "delete_topic": ("DELETE", "/v1/topics/{topic}"),
    "describe_cluster": ("GET", "/v1/cluster"),
    "drain_node": ("POST", "/v1/cluster/nodes/{node_id}/drain"),
    "resume_node": ("DELETE", "/v1/cluster/nodes/{node_id}/drain"),
    "remove_node": ("DELETE", "/v1/cluster/nodes/{node_id}"),
    "move_shard": ("POST", "/v1/cluster/shards/{shard}/move"),
    "events": ("GET", "/v1/events"),
}

Query = Mapping[str, object]
"""Parameters by name: texts, numbers, true or false, and lists for those that may be repeated. Null is left out."""


def target_of(name: str, query: Query, ids: Mapping[str, str]) -> tuple[str, str]:
    """The method, and the path with its query. Each id is percent-encoded once.

    Raises UnicodeEncodeError for an id that has no UTF-8, as words of a command line that are no text have.
    """
    method, template = OPERATIONS[name]
    path = template.format(**{key: quote(value, safe="") for key, value in ids.items()})
    pairs = [(key, _text(one)) for key, value in query.items() for one in _each(value)]
    return method, f"{path}?{urlencode(pairs)}" if pairs else path


def _each(value: object) -> Iterable[object]:
    if value is None:
        return ()
    return value if isinstance(value, list | tuple) else (value,)


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
