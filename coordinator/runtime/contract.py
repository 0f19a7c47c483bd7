"""What the runtime is given: the node's address, the shards it owns, its capacity, and an observer of what happens.

A single node owns all shards. In a cluster, `runtime/cluster` knows who owns which.
"""

from dataclasses import dataclass
from typing import Protocol

from rallypoint.coordinator.core.effects import Event, Failure, GroupAnswer
from rallypoint.coordinator.storage.contract import AppendMetrics
from rallypoint.protocol import messages as m


@dataclass(frozen=True, slots=True)
class NodeAddress:
    """A node, and the URL under which clients reach it."""

    node_id: str
    url: str


class Keyspaces(Protocol):
    """What a node does to keyspaces that come and go. `runtime.service` has the real one."""

    @property
    def is_registry_loaded(self) -> bool:
        """Whether the topics are known: before, no shard can be opened."""

    def meet_newer_format(self) -> None:
        """A node whose format has a newer minor version writes to the store."""

    def open_keyspaces(self) -> dict[str, int | None]:
        """What this node has, loads or tries to load, with the epochs."""

    def member_counts(self) -> dict[str, int]:
        """How many members the groups of each of these keyspaces have, without those that have none."""

    async def take(self, keyspace: str) -> None:
        """Acquire and load it."""

    async def hand_over(self, keyspace: str, node: NodeAddress) -> bool:
        """Make another node the owner; False where it did not become that."""

    async def lose(self, keyspace: str) -> None:
        """Forget what was loaded."""

    async def tell_doubt(self) -> None:
        """The lease may have run out: another node may have what is loaded here, and members at rest do not know."""


class ShardOwnership(Protocol):
    """Asked at every call, so the answer must be at hand."""

    @property
    def is_shared(self) -> bool:
        """Whether other nodes may own shards. If so, whoever decides about ownership opens and closes the shards, and
        a shard that is lost is not taken back by itself.
        """

    async def start(self, keyspaces: Keyspaces) -> None:
        """The store can be read and its format is known: where ownership is shared, keyspaces are taken from now on."""

    async def open_shards(self) -> None:
        """The topic registry is loaded, so shards can be opened. Where ownership is shared, return when every shard has
        an owner and what is this node's own is loaded, or after some seconds.
        """

    def wake(self) -> None:
        """A keyspace was dropped, and may still be this node's; or a later try has loaded it, or left it to another."""

    @property
    def may_tell(self) -> bool:
        """Whether what this node last read of the other nodes and of the topics may be told. Not once its lease may be
        over: then it has heard of nothing for as long, and the others go on without it.
        """

    def owner_of(self, shard: int) -> NodeAddress | None:
        """The shard's owner; None while it has none, or this node may not tell."""

    def owner_of_registry(self) -> NodeAddress | None:
        """The node that changes the topic registry; None while there is none, or this node may not tell."""

    def saw_deletions(self, version: int) -> bool:
        """Every group of this node has heard of the deletions of topics up to this version. Returns whether every
        group of all other nodes has, too.
        """


class SoleOwner:
    """This node owns every shard."""

    def __init__(self, address: NodeAddress) -> None:
        self._address = address

    @property
    def is_shared(self) -> bool:
        """No."""
        return False

    async def start(self, keyspaces: Keyspaces) -> None:
        """Nothing: the service opens what it owns."""

    def wake(self) -> None:
        """Nothing: the service takes back by itself what it has lost."""

    async def open_shards(self) -> None:
        """Nothing: the service opens what it owns."""

    @property
    def may_tell(self) -> bool:
        """Yes: nobody else changes anything."""
        return True

    def owner_of(self, shard: int) -> NodeAddress | None:
        """This node."""
        return self._address

    def owner_of_registry(self) -> NodeAddress | None:
        """This node."""
        return self._address

    def saw_deletions(self, version: int) -> bool:
        """There are no others."""
        return True


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


class MemberCalls(Protocol):
    """Hears of each join and sync, in `ORIGIN` the request that it is. It neither waits nor raises."""

    def called(self, group_id: str, request: m.JoinRequest | m.SyncRequest) -> None:
        """One has come. What it does to the group is told after this."""

    def answered(self, group_id: str, request: m.JoinRequest | m.SyncRequest, answer: GroupAnswer | Failure) -> None:
        """It has its answer."""


class Observer(Protocol):
    """Gets what happens, on the event loop and in order. It neither waits nor raises."""

    def event(self, event: Event) -> None:
        """Something happened to a group, and the records of it are durable."""

    def appended(self, append_metrics: AppendMetrics) -> None:
        """The store wrote something durably."""
