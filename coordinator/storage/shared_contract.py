"""What a store that several nodes share promises beyond `contract`: leases, owners, and facts that all nodes see.

A node opens the store under its id and has one *lease*, which the engine renews in a thread of its own. Everything that
the node owns hangs on the lease: if the node dies, or cannot renew the lease, its announcement and its keyspaces are
free once the lease has run out.

    store = open…                                 the node has a lease
    await store.announce(value)                   other nodes see that it lives
    async for state in store.states(): …          who lives, who owns what, which facts are stored
    keyspace = await store.acquire(name)          KeyspaceHeld while another node's lease keeps it
    await keyspace.hand_over(node_id)             to the lease of a live node, in one transaction

Rules that engines keep, beside those of `contract`:

- `acquire` never takes a keyspace from a node whose lease lives. It takes a free one, one that was handed over to this
  node, and one that this node has: whoever had it before under an older epoch, in this process or before a restart of
  the node, is fenced.
- An append is stored only if the keyspace is this owner's under this epoch, and if nothing was written to the keyspace
  that this owner does not know of. An append whose outcome is unknown is tried again as it is, until the outcome is
  known or the keyspace is lost; no other append of the keyspace goes out meanwhile.
- A keyspace is current (`Keyspace.is_current`) only before the deadline of the lease under which it was acquired. The
  deadline is measured from before the renewal was sent, by a clock that runs while the machine sleeps. It is earlier
  than the instant at which the lease runs out in the store.
- A lost lease fences every keyspace that was acquired under it. The engine takes a new lease by itself, announces the
  node again, and reports it with the next state. But an engine whose store has gone back to an earlier state, as a
  restored one, fences all and takes no lease any more.
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from rallypoint.coordinator.storage.contract import Keyspace, Store, Write


@dataclass(frozen=True, slots=True)
class Owner:
    """The owner of a keyspace: the node, and the epoch under which it has the keyspace or was handed it."""

    node_id: str
    epoch: int


class StoredFact(NamedTuple):
    """A fact that belongs to no node. revision: of its last write; a compare-and-set names it."""

    value: bytes
    revision: int


@dataclass(frozen=True, slots=True)
class ClusterState:
    """What is stored about the cluster at one revision.

    revision: grows from state to state, as long as the store does not go back; epochs are revisions, too.
    nodes: the announcement of each node whose lease lives, by node id.
    owners: the owner of each keyspace, by its name; one without an owner is absent.
    facts: by name.
    """

    revision: int
    nodes: Mapping[str, bytes] = field(default_factory=dict)
    owners: Mapping[str, Owner] = field(default_factory=dict)
    facts: Mapping[str, StoredFact] = field(default_factory=dict)


class FollowedWrites(NamedTuple):
    """Writes of a followed keyspace, in the order in which they were stored.

    is_whole: they are all that the keyspace holds, and replace what was known before. The writes of a large keyspace
        come in several parts: the first is whole, the others add to it.
    is_complete: what is known after these writes is what was stored at one instant; false between such parts.
    """

    writes: Sequence[Write]
    is_whole: bool
    is_complete: bool


@dataclass(frozen=True, slots=True)
class LeaseStatus:
    """How the lease of this node stands.

    age_ms: since the last renewal that succeeded was sent.
    remaining_ms: until the deadline; 0 or less once it has passed.
    lost_count: how many leases this process has lost.
    """

    age_ms: int
    remaining_ms: int
    lost_count: int


class SharedKeyspace(Keyspace, Protocol):
    """An acquired keyspace of a shared store."""

    async def hand_over(self, node_id: str) -> None:
        """Make another live node the owner, after the appends under way, in one transaction. Then this keyspace is
        fenced.

        Raises NodeUnavailable where the node has no live lease: nothing has changed. Raises Fenced, AppendDoubtful.
        """


class SharedStore(Store, Protocol):
    """An open store of a node among others."""

    @property
    def node_id(self) -> str:
        """The id of this node."""

    @property
    def lease(self) -> LeaseStatus:
        """How the lease stands."""

    async def acquire(self, keyspace: str) -> SharedKeyspace:
        """Become the owner of a keyspace. Raises KeyspaceHeld, StorageUnavailable; Fenced where this never helps."""

    async def announce(self, value: bytes) -> None:
        """Let other nodes see this value as long as this node's lease lives; announced again with each new lease.

        Raises StorageUnavailable: then it is announced with the next renewal.
        """

    def states(self) -> AsyncIterator[ClusterState]:
        """The state now, and after each change the newest one; states that nobody took are skipped.

        Goes on through failures of the store, without an end, until the store is closed.
        """

    async def put_fact(self, name: str, value: bytes, revision: int) -> bool:
        """Store a fact if its last write was that of the revision, 0 for a fact that was never stored.

        False: it was not, and nothing has changed. Raises StorageUnavailable where it is not known.
        """

    def follow(self, keyspace: str) -> AsyncIterator[FollowedWrites]:
        """What the keyspace holds, and then each append of its owner, without owning it.

        Goes on through failures of the store, without an end, until the store is closed; where it cannot tell what it
        missed, it begins again with what the keyspace holds.
        """
