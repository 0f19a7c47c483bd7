"""What the runtime is given: the node's address, the shards it owns, its capacity, and an observer of what happens.

A single node owns all shards. A cluster would have another `ShardOwnership`.
"""

from dataclasses import dataclass
from typing import Protocol

from rallypoint.coordinator.core.effects import Event
from rallypoint.coordinator.storage.contract import AppendMetrics


@dataclass(frozen=True, slots=True)
class NodeAddress:
    """A node, and the URL under which clients reach it."""

    node_id: str
    url: str


class ShardOwnership(Protocol):
    """Asked at every call, so the answer must be at hand."""

    def owner_of(self, shard: int) -> NodeAddress | None:
        """The shard's owner; None while it has none."""


class SoleOwner:
    """This node owns every shard."""

    def __init__(self, address: NodeAddress) -> None:
        self._address = address

    def owner_of(self, shard: int) -> NodeAddress | None:
        """This node."""
        return self._address


@dataclass(frozen=True, slots=True)
class NodeCapacity:
    """How much a node takes on, over all its groups. The settings of the same names say why; two have none.

    groups_max: groups.
    parked_calls_max: calls that are held back, ten for each of ten thousand members. Beyond it a call counts, and its
        sender gets 202 and asks again.
    group_mailbox_max: calls of one group that wait to be worked on, as they do while a write of the group is under way;
        two of each of five thousand members.
    node_metadata_max_bytes: the metadata of all members, in memory.
    storage_append_timeout_ms: how long a call waits for a write.
    """

    groups_max: int = 100_000
    parked_calls_max: int = 100_000
    group_mailbox_max: int = 10_000
    node_metadata_max_bytes: int = 268_435_456
    storage_append_timeout_ms: int = 5_000


class Observer(Protocol):
    """Gets what happens, on the event loop and in order. It neither waits nor raises."""

    def event(self, event: Event) -> None:
        """Something happened to a group, and the records of it are durable."""

    def appended(self, append_metrics: AppendMetrics) -> None:
        """The store wrote something durably."""

    def parked(self, delta: int) -> None:
        """The number of parked calls changed by `delta`."""
