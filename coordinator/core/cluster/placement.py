"""Where keyspaces belong. The placement is stored, so that a node that joins moves no more than its own share.

Two questions are answered apart. Who is *preferred* for a keyspace changes as little as possible: only what a joining
node gets, or a leaving one had, changes hands. Who *steps in* costs nothing to change, because a node keeps no copy of
another's groups. So each change computes that order again, by Kafka's rule for replicas: the survivors share what a
lost node had.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping

from rallypoint.assignors.placement.replicas import Broker, place, place_by_rack
from rallypoint.coordinator.core.capacity import over_limit
from rallypoint.coordinator.core.cluster.records import Placement, RegisteredNode
from rallypoint.coordinator.core.effects import Failure
from rallypoint.protocol.errors import ErrorCode

NODES_MAX = 100
"""Registered nodes. A node that gets another id with each start would fill the placement."""

PLACES_MAX = 400_000
"""Registered nodes times keyspaces. The stored placement has about three bytes for each, and is one write."""

_OrderOf = Callable[[str, int], tuple[str, ...]]
"""The order of the nth keyspace, from 0, that a node is preferred for."""


def with_node(placement: Placement, keyspaces: Iterable[str], node_id: str, rack: str | None) -> Placement:
    """The placement with a node that joins, or that comes back in another rack.

    A joining node becomes preferred for as many keyspaces as an even share has, rounded down. They come from the nodes
    that are preferred for most. The first node gets all.

    `keyspaces`: all there are, in their order.
    """
    names = tuple(keyspaces)
    if node_id in placement.nodes:
        drains = placement.nodes[node_id].is_draining
        nodes = {**placement.nodes, node_id: RegisteredNode(rack, drains)}
        return _ordered(nodes, _preferred(placement))
    nodes = {**placement.nodes, node_id: RegisteredNode(rack)}
    preferred = _preferred(placement)
    if not placement.nodes:
        return _ordered(nodes, dict.fromkeys(names, node_id))
    counts = Counter(preferred.values())
    for _ in range(len(names) // len(nodes)):
        richest = max(placement.nodes, key=lambda one: (counts[one], one))
        last = next(name for name in reversed(names) if preferred[name] == richest)
        preferred[last] = node_id
        counts[richest] -= 1
    return _ordered(nodes, preferred)


def without_node(placement: Placement, node_id: str) -> Placement:
    """The placement without a registered node; what it was preferred for goes to the next in order."""
    nodes = {one: node for one, node in placement.nodes.items() if one != node_id}
    if not nodes:
        return Placement()
    preferred = {name: next(one for one in order if one != node_id) for name, order in placement.orders.items()}
    return _ordered(nodes, preferred)


def with_drain(placement: Placement, node_id: str, *, is_draining: bool) -> Placement:
    """The placement in which a registered node is to own nothing, or may own again."""
    node = RegisteredNode(placement.nodes[node_id].rack, is_draining)
    return Placement({**placement.nodes, node_id: node}, placement.orders)


def with_preferred(placement: Placement, keyspace: str, node_id: str) -> Placement:
    """The placement in which a registered node is preferred for a keyspace. The other keyspaces' orders stay."""
    if placement.orders[keyspace][0] == node_id:
        return placement
    changed = _ordered(placement.nodes, {**_preferred(placement), keyspace: node_id})
    return Placement(placement.nodes, {**placement.orders, keyspace: changed.orders[keyspace]})


def why_not_registered(placement: Placement | None, node_id: str) -> Failure | None:
    """Refuses a node that the placement does not have."""
    if placement is not None and node_id in placement.nodes:
        return None
    return Failure(ErrorCode.BROKER_ID_NOT_REGISTERED, f"The cluster has no node {node_id!r}.", field="node_id")


def why_not_joined(placement: Placement, keyspaces: Iterable[str], node_id: str) -> Failure | None:
    """Refuses a node with other keyspaces than the placement has, and one more node than may be registered, by itself
    or with so many keyspaces.

    `keyspaces`: all that the node knows of.
    """
    if not placement.nodes:
        return None
    ours = set(keyspaces)
    if placement.orders.keys() != ours:
        shards, our_shards = len(placement.orders) - 1, len(ours) - 1  # the topic registry is no shard
        detail = f"The cluster has {shards} shards, and this node is set to {our_shards}"
        return Failure(ErrorCode.INVALID_REQUEST, f"{detail}; each node needs the same number.", field="shards")
    if node_id not in placement.nodes and len(placement.nodes) >= NODES_MAX:
        detail = f"Node {node_id!r} cannot join {len(placement.nodes)} nodes; remove those that are gone"
        return over_limit("nodes_max", NODES_MAX, detail, field="node_id")
    nodes = len(placement.nodes) + 1
    if node_id not in placement.nodes and nodes * len(ours) > PLACES_MAX:
        detail = f"Node {node_id!r} cannot join: {nodes} nodes times {len(ours)} keyspaces is {nodes * len(ours)}"
        return over_limit("places_max", PLACES_MAX, detail, field="shards")
    return None


def _preferred(placement: Placement) -> dict[str, str]:
    return {name: order[0] for name, order in placement.orders.items()}


def _ordered(nodes: Mapping[str, RegisteredNode], preferred: Mapping[str, str]) -> Placement:
    """The placement with these preferred nodes. Each order is the row of Kafka's rule that begins with that node.

    Racks count where every node has one, and one of them has several nodes, but not all. A node's first, second,
    third … keyspace has the next shift each. Cost: O(keyspaces * nodes).
    """
    racks = {node.rack for node in nodes.values()}
    is_by_rack = None not in racks and 1 < len(racks) < len(nodes)
    order_of = _by_rack(nodes) if is_by_rack else _by_count(nodes, preferred)
    had: Counter[str] = Counter()
    orders: dict[str, tuple[str, ...]] = {}
    for name, node_id in preferred.items():
        orders[name] = order_of(node_id, had[node_id])
        had[node_id] += 1
    return Placement(dict(nodes), orders)


def _by_count(nodes: Mapping[str, RegisteredNode], preferred: Mapping[str, str]) -> _OrderOf:
    """The ring begins with the nodes that are preferred for least, and so does what each node leaves to the others.

    So preferred keyspaces that differ by at most 1 still do so after the loss of any one node.
    """
    counts = Counter(preferred.values())
    ring = sorted(nodes, key=lambda node_id: (counts[node_id], node_id))
    index_of = {node_id: index for index, node_id in enumerate(ring)}

    def order_of(node_id: str, nth: int) -> tuple[str, ...]:
        index = index_of[node_id]
        return place(ring, 1, len(ring), index, shift=len(ring) - 1 - index + nth)[0]

    return order_of


def _by_rack(nodes: Mapping[str, RegisteredNode]) -> _OrderOf:
    """Every rack comes once before one comes again."""
    known = [Broker(node_id, nodes[node_id].rack) for node_id in sorted(nodes)]
    index_of = {first: index for index, (first,) in place_by_rack(known, len(known), 1).items()}

    def order_of(node_id: str, nth: int) -> tuple[str, ...]:
        return place_by_rack(known, 1, len(known), index_of[node_id], shift=nth)[0]

    return order_of
