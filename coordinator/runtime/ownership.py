"""Which node owns which shard. A single node owns them all; a cluster would answer the same question otherwise."""

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class NodeAddress:
    """A node, and the URL under which clients reach it."""

    node_id: str
    url: str


class Ownership(Protocol):
    """Asked at every call, so the answer must be at hand."""

    def owner_of(self, shard: int) -> NodeAddress | None:
        """The shard's owner; None while it has none."""


class SoleOwner:
    """This node owns everything."""

    def __init__(self, address: NodeAddress) -> None:
        self._address = address

    def owner_of(self, shard: int) -> NodeAddress | None:
        """This node."""
        return self._address
