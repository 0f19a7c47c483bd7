"""The plainest reading of the shared store's contract: what several nodes share, in memory.

A node's lease lives until a test lets it run out. States reach a node only when the test lets them, if it wants to.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field

from rallypoint.coordinator.storage.contract import (
    AppendFailed,
    BatchLimits,
    Fenced,
    KeyspaceHeld,
    NodeUnavailable,
    StorageError,
    StorageUnavailable,
    StoreStatus,
    Write,
)
from rallypoint.coordinator.storage.shared_contract import (
    ClusterState,
    FollowedWrites,
    LeaseStatus,
    Owner,
    StoredFact,
)

LIMITS = BatchLimits(writes_max=127, bytes_max=1_500_000)


@dataclass
class SharedContents:
    """What all nodes share. `changed` is set anew with each change."""

    revision: int = 1
    nodes: dict[str, bytes] = field(default_factory=dict)
    leases: dict[str, int] = field(default_factory=dict)
    owners: dict[str, Owner] = field(default_factory=dict)
    facts: dict[str, StoredFact] = field(default_factory=dict)
    values: dict[str, dict[bytes, bytes]] = field(default_factory=dict)
    history: list[tuple[int, str, tuple[Write, ...]]] = field(default_factory=list)
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    def change(self) -> int:
        """One change more; whoever waits is woken."""
        self.revision += 1
        self.changed.set()
        self.changed = asyncio.Event()
        return self.revision

    def state(self) -> ClusterState:
        return ClusterState(self.revision, dict(self.nodes), dict(self.owners), dict(self.facts))

    def run_out(self, node_id: str) -> None:
        """The node's lease runs out in the store, whether the node knows or not."""
        self.leases[node_id] = self.leases.get(node_id, 0) + 1
        self.nodes.pop(node_id, None)
        self.owners = {name: owner for name, owner in self.owners.items() if owner.node_id != node_id}
        self.change()


class SharedMemoryStore:
    """The store as one node has it open."""

    def __init__(self, contents: SharedContents, node_id: str) -> None:
        self.contents = contents
        self.node_id = node_id
        self.is_closed = False
        self.is_cut = False
        self.is_past_deadline = False
        self.refuses_appends = False
        self.refuses_facts = False
        self.refuses_acquisitions = False
        self.next_append_fails_with: StorageError | None = None
        self.lost_count = 0
        self.follow_faults = self.followed_count = 0
        self.acquiring = asyncio.Event()
        self.acquiring.set()
        self.answering = asyncio.Event()
        """Not set: an acquisition is carried out, and its answer waits."""
        self.answering.set()
        self.handing_over = asyncio.Event()
        """Not set: a hand-over waits for the store."""
        self.handing_over.set()
        self._value: bytes | None = None
        self._lease = contents.leases.setdefault(node_id, 0)

    @property
    def status(self) -> StoreStatus:
        return StoreStatus("cut off" if self.is_cut else None)

    @property
    def lease(self) -> LeaseStatus:
        return LeaseStatus(0, -1 if self.is_past_deadline else 1_000, self.lost_count)

    @property
    def has_lease(self) -> bool:
        return not self.is_closed and self.contents.leases[self.node_id] == self._lease

    def check(self) -> None:
        if self.is_closed or self.is_cut:
            raise StorageUnavailable("closed" if self.is_closed else "cut off")

    def take_new_lease(self) -> None:
        """As an engine does by itself after a loss."""
        self._lease = self.contents.leases[self.node_id]
        self.lost_count += 1
        self.is_past_deadline = False
        if self._value is not None:
            self.contents.nodes[self.node_id] = self._value
            self.contents.change()

    async def announce(self, value: bytes) -> None:
        self._value = value
        self.check()
        if self.has_lease:
            self.contents.nodes[self.node_id] = value
            self.contents.change()

    async def states(self) -> AsyncIterator[ClusterState]:
        async for _ in self._changes():
            yield self.contents.state()

    async def _changes(self) -> AsyncIterator[None]:
        told = 0
        while not self.is_closed:
            changed = self.contents.changed
            if told != self.contents.revision and not self.is_cut:
                told = self.contents.revision
                yield
            else:
                await changed.wait()

    async def put_fact(self, name: str, value: bytes, revision: int) -> bool:
        if self.refuses_facts:
            return False
        self.check()
        stored = self.contents.facts.get(name)
        if revision != (0 if stored is None else stored.revision):
            return False
        self.contents.facts[name] = StoredFact(value, self.contents.change())
        return True

    async def acquire(self, keyspace: str) -> "SharedMemoryKeyspace":
        await self.acquiring.wait()
        self.check()
        if self.refuses_acquisitions:
            raise StorageUnavailable("the quota is used up")
        owner = self.contents.owners.get(keyspace)
        if not self.has_lease or (owner is not None and owner.node_id != self.node_id):
            raise KeyspaceHeld(f"{keyspace} is held by {owner}")
        epoch = self.contents.change()
        self.contents.owners[keyspace] = Owner(self.node_id, epoch)
        await self.answering.wait()
        return SharedMemoryKeyspace(self, keyspace, epoch, self._lease)

    async def follow(self, keyspace: str) -> AsyncIterator[FollowedWrites]:
        if self.follow_faults:
            self.follow_faults -= 1
            raise ZeroDivisionError("planted")
        self.followed_count += 1
        place = len(self.contents.history)
        values = self.contents.values.get(keyspace, {})
        yield FollowedWrites([Write(key, values[key]) for key in sorted(values)], is_whole=True, is_complete=True)
        async for _ in self._changes():
            for _, name, writes in self.contents.history[place:]:
                place += 1
                if name == keyspace:
                    yield FollowedWrites(writes, is_whole=False, is_complete=True)

    async def close(self) -> None:
        if not self.is_closed:
            if self.has_lease and not self.is_cut:
                self.contents.run_out(self.node_id)
            self.is_closed = True
            self.contents.change()


class SharedMemoryKeyspace:
    def __init__(self, store: SharedMemoryStore, name: str, epoch: int, lease: int) -> None:
        self._store = store
        self._name = name
        self.epoch = epoch
        self.limits = LIMITS
        self._lease = lease
        self._is_given_up = False

    def _is_owned(self) -> bool:
        contents = self._store.contents
        return (
            not self._is_given_up
            and contents.owners.get(self._name) == Owner(self._store.node_id, self.epoch)
            and contents.leases[self._store.node_id] == self._lease
        )

    def is_current(self) -> bool:
        return not self._is_given_up and not self._store.is_past_deadline and (self._store.is_cut or self._is_owned())

    def _check(self) -> None:
        self._store.check()
        if not self._is_owned():
            raise Fenced(f"another owner has {self._name}")

    async def scan(self, prefix: bytes) -> AsyncIterator[Sequence[tuple[bytes, bytes]]]:
        self._check()
        values = self._store.contents.values.get(self._name, {})
        yield [(key, values[key]) for key in sorted(values) if key.startswith(prefix)]

    async def append(self, writes: Sequence[Write]) -> None:
        self.limits.check(writes)
        self._check()
        if self._store.refuses_appends:
            raise AppendFailed("the quota is used up")
        failure, self._store.next_append_fails_with = self._store.next_append_fails_with, None
        if failure is not None:
            raise failure
        values = self._store.contents.values.setdefault(self._name, {})
        for key, value in writes:
            if value is None:
                values.pop(key, None)
            else:
                values[key] = value
        self._store.contents.history.append((self.epoch, self._name, tuple(writes)))
        self._store.contents.change()

    async def hand_over(self, node_id: str) -> None:
        await self._store.handing_over.wait()
        self._check()
        if node_id not in self._store.contents.nodes:
            raise NodeUnavailable(f"node {node_id!r} is not there")
        self._is_given_up = True
        self._store.contents.owners[self._name] = Owner(node_id, self._store.contents.change())

    async def release(self) -> None:
        if self._is_owned():
            del self._store.contents.owners[self._name]
            self._store.contents.change()
        self._is_given_up = True
