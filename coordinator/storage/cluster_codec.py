"""Announcements and the placement, to bytes and back. JSON, with a version, as all that is stored.

A field that is not known here is read past: nodes of two releases run beside each other.
"""

from typing import Annotated, Any

import msgspec

from rallypoint.coordinator.core.cluster.records import NodeAnnouncement, Placement, RegisteredNode
from rallypoint.coordinator.storage.contract import StoredDataInvalid

VERSION = 1
_Version = Annotated[int, msgspec.Meta(ge=VERSION, le=VERSION)]


class _Node(msgspec.Struct):
    rack: str | None = None
    is_draining: bool = False


class _Placement(msgspec.Struct):
    v: _Version
    nodes: dict[str, _Node]
    orders: dict[str, tuple[int, ...]]
    """Nodes by their place in `nodes`: their names would make a placement of many shards larger than a write may be."""


class _Announcement(msgspec.Struct):
    v: _Version
    node_id: str
    url: str
    release: str
    format_major: int
    format_minor: int
    started_at_ms: int
    rack: str | None = None
    is_draining: bool = False
    deletions_seen: int = 0
    seen_epoch: int = 0


_read_placement = msgspec.json.Decoder(_Placement).decode
_read_announcement = msgspec.json.Decoder(_Announcement).decode


def encode_announcement(announcement: NodeAnnouncement) -> bytes:
    """What a node stores under its lease."""
    fields: dict[str, Any] = {name: getattr(announcement, name) for name in NodeAnnouncement.__dataclass_fields__}
    return msgspec.json.encode(_Announcement(VERSION, **fields))


def decode_announcement(node_id: str, value: bytes) -> NodeAnnouncement:
    """Raises StoredDataInvalid, naming the node, for what is no announcement, or another node's."""
    try:
        stored = _read_announcement(value)
    except (msgspec.MsgspecError, ValueError) as error:
        raise StoredDataInvalid(f"the announcement of node {node_id!r} cannot be read: {error}") from error
    if stored.node_id != node_id:
        raise StoredDataInvalid(f"the announcement of node {node_id!r} is damaged: it is that of {stored.node_id!r}")
    return NodeAnnouncement(**{name: getattr(stored, name) for name in NodeAnnouncement.__dataclass_fields__})


def encode_placement(placement: Placement) -> bytes:
    """What all nodes share."""
    nodes = {node_id: _Node(node.rack, node.is_draining) for node_id, node in placement.nodes.items()}
    place_of = {node_id: place for place, node_id in enumerate(nodes)}
    orders = {keyspace: tuple(place_of[node_id] for node_id in order) for keyspace, order in placement.orders.items()}
    return msgspec.json.encode(_Placement(VERSION, nodes, orders))


def decode_placement(value: bytes) -> Placement:
    """Raises StoredDataInvalid for what is no placement, or one whose orders do not name each node once."""
    try:
        stored = _read_placement(value)
    except (msgspec.MsgspecError, ValueError) as error:
        raise StoredDataInvalid(f"the stored placement cannot be read: {error}") from error
    if bool(stored.nodes) != bool(stored.orders):
        raise StoredDataInvalid("the stored placement is damaged: it has nodes without orders, or orders without nodes")
    names = tuple(stored.nodes)
    places = list(range(len(names)))
    for keyspace, order in stored.orders.items():
        if sorted(order) != places:
            raise StoredDataInvalid(f"the stored placement is damaged: the order of {keyspace} is not of all nodes")
    nodes = {node_id: RegisteredNode(node.rack, node.is_draining) for node_id, node in stored.nodes.items()}
    orders = {keyspace: tuple(names[place] for place in order) for keyspace, order in stored.orders.items()}
    return Placement(nodes, orders)
