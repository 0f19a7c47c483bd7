"""What is stored about the cluster: an announcement for each node that runs, and one placement for all."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class NodeAnnouncement:
    """What a node tells the others. It is gone with the node's lease.

    url: under which clients and other nodes reach it.
    rack: None if it is not known.
    release: the version of the program.
    format_major, format_minor: the format in which it writes.
    started_at_ms: when its process started, by its wall clock.
    is_draining: it hands over everything and takes nothing, because it stops.
    deletions_seen: every group of this node has heard of the deletions of topics up to this version of the registry.
    seen_epoch: which keyspaces that is about: all that this node owns under this epoch or an earlier one.
    """

    node_id: str
    url: str
    rack: str | None
    release: str
    format_major: int
    format_minor: int
    started_at_ms: int
    is_draining: bool = False
    deletions_seen: int = 0
    seen_epoch: int = 0


@dataclass(frozen=True, slots=True)
class RegisteredNode:
    """A node of the placement, whether it runs or not.

    rack: None if it is not known.
    is_draining: an operator wants it to own nothing.
    """

    rack: str | None = None
    is_draining: bool = False


@dataclass(frozen=True, slots=True)
class Placement:
    """Where keyspaces belong.

    nodes: the registered nodes, by id.
    orders: for each keyspace all registered nodes: the preferred one first, then those that step in, in order.
    """

    nodes: Mapping[str, RegisteredNode] = field(default_factory=dict)
    orders: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
