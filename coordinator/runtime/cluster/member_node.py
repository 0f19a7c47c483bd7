"""A node among others: it follows what is stored about the cluster, and does what the rules say it should do next.

The rules are in `core/cluster`; everything that waits is here. What happens to a keyspace goes through the service: one
thing at a time for each keyspace, several keyspaces beside each other.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, replace
from typing import Any

from rallypoint.coordinator.core.cluster import placement as rules
from rallypoint.coordinator.core.cluster.decide import (
    MOVED_MEMBER_MS,
    TRIED_AGAIN_MS,
    ClusterView,
    Drop,
    HandOver,
    Here,
    Memory,
    OwnedBy,
    Register,
    Step,
    Take,
    moved_member_ms,
    next_steps,
)
from rallypoint.coordinator.core.cluster.records import NodeAnnouncement, Placement
from rallypoint.coordinator.core.effects import Failure
from rallypoint.coordinator.runtime.contract import Keyspaces, NodeAddress
from rallypoint.coordinator.runtime.event_loop.clock import Backoff, Clock, Handle, sleep
from rallypoint.coordinator.runtime.event_loop.faults import begin
from rallypoint.coordinator.storage.cluster_codec import (
    decode_announcement,
    decode_placement,
    encode_announcement,
    encode_placement,
)
from rallypoint.coordinator.storage.contract import (
    REGISTRY_KEYSPACE,
    StorageError,
    StoredDataInvalid,
    shard_keyspace,
)
from rallypoint.coordinator.storage.shared_contract import ClusterState, LeaseStatus, SharedStore
from rallypoint.protocol import admin_messages as admin
from rallypoint.protocol.errors import ErrorCode

PLACEMENT = "placement"
"""The name of the stored fact."""
CHANGES_TRIED_MAX = 10
"""How often a change of the placement is tried while other nodes change it, too."""
CHANGED_WAIT_MS = 100
LEASE_LOOKED_AT_MS = 500
"""How soon it is noticed that the lease may have run out. Members at rest hear nothing before."""
DRAINED_WITHIN_MS = 3_000
OPENING_MAX_MS = 5_000
"""How long a node waits at its start for every shard to have an owner."""

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class OwnershipCounts:
    """How often this node did what. taken: keyspaces acquired. handed_over, not_handed_over: hand-overs to other nodes.
    lost: keyspaces that another node had, or whose lease had run out, before this node gave them up.
    """

    taken: int = 0
    handed_over: int = 0
    not_handed_over: int = 0
    lost: int = 0


class MemberNode:
    """This node of the cluster. It knows who owns what, as `ShardOwnership`, and answers operators."""

    def __init__(
        self,
        store: SharedStore,
        announcement: NodeAnnouncement,
        *,
        shards: int,
        clock: Clock,
    ) -> None:
        """Take part in the cluster, from `start` on.

        store: the store, open as this node.
        announcement: what other nodes are told.
        shards: the number of shards.
        clock: measures the waits.
        """
        self.counts = OwnershipCounts()
        self._store = store
        self._announcement = announcement
        self._clock = clock
        self._shards = shards
        self._keyspaces = (REGISTRY_KEYSPACE, *map(shard_keyspace, range(shards)))
        self._service: Keyspaces | None = None
        self._view = ClusterView()
        self._memory = Memory()
        self._busy: dict[str, int | None] = {}
        self._is_registering = False
        self._announcing = 0
        self._tasks: dict[asyncio.Task[Any], None] = {}
        self._look_again: Handle | None = None
        self._drained_until_ms: int | None = None
        self._backoff = Backoff()
        self._changed = asyncio.Event()
        self._is_closed = False
        self._told_loaded = -1
        self._told_refusal: Failure | None = None
        self._handed_over: dict[str, tuple[int, str]] = {}

    # --- as ShardOwnership -------------------------------------------------------------------------------------------

    @property
    def is_shared(self) -> bool:
        """Yes."""
        return True

    @property
    def may_tell(self) -> bool:
        """Whether the lease holds. A node that is cut off from the store would name owners that are long gone."""
        return self._store.lease.remaining_ms > 0

    def owner_of(self, shard: int) -> NodeAddress | None:
        """The shard's owner, as this node last read it."""
        return self._owner_of(shard_keyspace(shard)) if self.may_tell else None

    def owner_of_registry(self) -> NodeAddress | None:
        """The owner of the topic registry, as this node last read it."""
        return self._owner_of(REGISTRY_KEYSPACE) if self.may_tell else None

    def _owner_of(self, keyspace: str) -> NodeAddress | None:
        """What was read says nothing of this node while its lease may have run out: another may have the keyspace."""
        view = self._view
        owned = view.owners.get(keyspace)
        epoch, target = self._handed_over.get(keyspace, (0, ""))
        # What this node has handed over may not be in the state yet that it has read.
        is_gone = owned is not None and owned.node_id == self._announcement.node_id and owned.epoch <= epoch
        owner = view.nodes.get(target) if is_gone else view.owner_of(keyspace)
        if owner is None or (owner.node_id == self._announcement.node_id and not self.may_tell):
            return None
        return NodeAddress(owner.node_id, owner.url)

    def saw_deletions(self, version: int) -> bool:
        """Tell the others that this node's groups have heard of the deletions; True if all other nodes' have, too.

        A shard that was opened since its node said so has not: its epoch is higher. Nothing is said while a shard is
        this node's that is not open yet, or while that cannot be known: the epoch of what it was handed may be lower.
        """
        opened = {name: epoch or 0 for name, epoch in self._open().items() if name != REGISTRY_KEYSPACE}
        if not self._knows_all_of(opened):
            return False
        epochs = opened.values()
        seen = replace(self._announcement, deletions_seen=version, seen_epoch=max(epochs, default=0))
        if seen != self._announcement:
            self._announcement = seen
            self._begin(self._announce())
        return all(self._has_seen(shard_keyspace(shard), version) for shard in range(self._shards))

    def _knows_all_of(self, opened: Mapping[str, int]) -> bool:
        """Whether the state that was read is of after the last epoch here, and gives this node no other shard."""
        me = self._announcement.node_id
        owned = {name for name, owner in self._view.owners.items() if owner.node_id == me and name != REGISTRY_KEYSPACE}
        return owned <= opened.keys() and self._view.revision >= max(opened.values(), default=0)

    def _has_seen(self, keyspace: str, version: int) -> bool:
        owner, node = self._view.owners.get(keyspace), self._view.owner_of(keyspace)
        if owner is None or node is None:
            return False
        return node.deletions_seen >= version and node.seen_epoch >= owner.epoch

    # --- whom to ask -------------------------------------------------------------------------------------------------

    @property
    def node_id(self) -> str:
        """The id of this node."""
        return self._announcement.node_id

    def live_peers(self) -> tuple[NodeAddress, ...]:
        """The other nodes that run, as this node last read it, in the order of their ids."""
        nodes = self._view.nodes
        return tuple(NodeAddress(one, nodes[one].url) for one in sorted(nodes) if one != self.node_id)

    def shard_owners(self) -> tuple[str | None, ...]:
        """For each shard the id of its owner, as this node last read it; None while it has none that runs.

        Of use also where that may be old: whoever asks the owners themselves hears what is true.
        """
        owners = (self._owner_of(shard_keyspace(shard)) for shard in range(self._shards))
        return tuple(None if owner is None else owner.node_id for owner in owners)

    # --- its life ----------------------------------------------------------------------------------------------------

    async def start(self, keyspaces: Keyspaces) -> None:
        """Let the others see this node, and begin to take what is its own."""
        self._service = keyspaces
        self._begin_watching_lease()
        await self._announce()
        self._begin_following()

    def wake(self) -> None:
        """A keyspace was dropped, and may still be this node's; or a later try has loaded it, or left it to another."""
        self._look()

    async def open_shards(self) -> None:
        """The topic registry is loaded: shards can be opened. Returns when every keyspace has an owner and nothing is
        being loaded here, or after `OPENING_MAX_MS`: what other nodes do may take longer.
        """
        is_over = False

        def end() -> None:
            nonlocal is_over
            is_over = True
            self._notify()  # not `set`: an event that stays set would end each wait to come at once

        deadline = self._clock.call_at(self._clock.now_ms() + OPENING_MAX_MS, end)
        self._look()
        while not is_over and (self._busy or self._view.owners.keys() < frozenset(self._keyspaces)):
            await self._changed.wait()
        deadline.cancel()

    async def drain(self, within_ms: int = DRAINED_WITHIN_MS) -> None:
        """Hand over everything, as long as there is a node to take it. Other nodes see that this one stops.

        within_ms: for how long members are waited for, all together, so that they do not all move at once.
        """
        now_ms = self._clock.now_ms()
        self._drained_until_ms = now_ms + within_ms
        self._memory.hurry(now_ms)
        self._announcement = replace(self._announcement, is_draining=True)
        await self._announce()
        while (self._open() or self._hands_over()) and self.has_successor:
            changed = self._changed
            self._look()
            await changed.wait()

    async def close(self) -> None:
        """End what is under way; keyspaces that are left are the service's to give up."""
        self._is_closed = True
        self._cancel_look()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    @property
    def lease(self) -> LeaseStatus:
        """How the node's lease stands."""
        return self._store.lease

    @property
    def live_count(self) -> int:
        """How many nodes run, as this one sees it."""
        return len(self._view.nodes)

    @property
    def has_successor(self) -> bool:
        """Whether another node runs, as this one sees it, that takes what this one hands over."""
        me = self._announcement.node_id
        return any(node_id != me and not self._view.drains(node_id) for node_id in self._view.nodes)

    def owned_shards(self) -> int:
        """How many shards this node has, loads or tries to load."""
        return sum(name != REGISTRY_KEYSPACE for name in self._open())

    def shards_left(self) -> int:
        """How many shards this node has, loads, tries to load or is handing over."""
        return len({*self._open(), *self._hands_over()} - {REGISTRY_KEYSPACE})

    def _hands_over(self) -> set[str]:
        """What is being handed over: it is not open any more, and may be again if the other node is gone."""
        return {keyspace for keyspace, members in self._busy.items() if members is not None}

    def _open(self) -> dict[str, int | None]:
        return {} if self._service is None else self._service.open_keyspaces()

    async def _announce(self) -> None:
        self._announcing += 1
        try:
            await self._store.announce(encode_announcement(self._announcement))
        except StorageError as error:
            logger.warning("the other nodes do not hear of this one yet: %s", error)
        finally:
            self._announcing -= 1

    def _keep_announced(self, state: ClusterState) -> None:
        """Announce this node again if the store has something else: an earlier write, whose outcome was not known, may
        take effect after a later one.
        """
        is_known = state.nodes.get(self.node_id) == encode_announcement(self._announcement)
        if not is_known and not self._announcing and not self._is_closed and self._store.lease.remaining_ms > 0:
            self._begin(self._announce())

    def _begin(self, work: Coroutine[Any, Any, Any], on_fault: Callable[[], object] = lambda: None) -> None:
        task = begin(work, on_fault)
        self._tasks[task] = None  # in the order in which they began, so that they end in it
        task.add_done_callback(lambda _: self._tasks.pop(task, None))

    # --- the lease ---------------------------------------------------------------------------------------------------

    def _begin_watching_lease(self) -> None:
        if not self._is_closed:
            self._begin(self._watch_lease(), lambda: self._later(self._begin_watching_lease))

    async def _watch_lease(self) -> None:
        """Whoever calls is told when the lease may be over. Members at rest do not call."""
        assert self._service is not None
        has_told = False
        while True:
            may_tell = self.may_tell
            if not may_tell and not has_told:
                await self._service.tell_doubt()
            has_told = not may_tell
            await sleep(self._clock, LEASE_LOOKED_AT_MS)

    # --- what is stored about the cluster ----------------------------------------------------------------------------

    def _begin_following(self) -> None:
        if not self._is_closed:
            self._begin(self._follow(), self._follow_again)

    def _follow_again(self) -> None:
        wait_ms = max(self._backoff.wait_ms(self._clock.now_ms()), CHANGED_WAIT_MS)
        self._clock.call_at(self._clock.now_ms() + wait_ms, self._begin_following)

    async def _follow(self) -> None:
        async for state in self._store.states():
            try:
                view = self._read(state)
            except StoredDataInvalid as error:
                logger.error("the cluster's state cannot be read, so nothing changes hands: %s", error)
                continue
            self._tell_of_nodes(view)
            self._view = view
            self._memory.observe(view, self._clock.now_ms())
            self._meet_formats(view)
            self._keep_announced(state)
            self._notify()
            self._look()

    def _read(self, state: ClusterState) -> ClusterView:
        """An announcement that cannot be read is as none: its node is not sent to, and keeps what it has."""
        nodes: dict[str, NodeAnnouncement] = {}
        for node_id, value in state.nodes.items():
            try:
                nodes[node_id] = decode_announcement(node_id, value)
            except StoredDataInvalid as error:
                logger.error("%s", error)
        owners = {name: OwnedBy(owner.node_id, owner.epoch) for name, owner in state.owners.items()}
        stored = state.facts.get(PLACEMENT)
        if stored is None:
            return ClusterView(state.revision, nodes, owners)
        if stored.revision == self._view.placement_revision:
            return ClusterView(state.revision, nodes, owners, self._view.placement, stored.revision)
        return ClusterView(state.revision, nodes, owners, decode_placement(stored.value), stored.revision)

    def _tell_of_nodes(self, view: ClusterView) -> None:
        for node_id in sorted(view.nodes.keys() - self._view.nodes.keys() - {self._announcement.node_id}):
            logger.info("node %r runs, at %s", node_id, view.nodes[node_id].url)
        for node_id in sorted(self._view.nodes.keys() - view.nodes.keys()):
            if node_id == self._announcement.node_id and self._store.lease.remaining_ms > 0:
                logger.warning("the other nodes do not see this one any more: it announces itself again")
            elif node_id == self._announcement.node_id:
                logger.warning("the lease of this node has run out: it coordinates nothing until it has another one")
            elif self._view.nodes[node_id].is_draining:
                logger.info("node %r has stopped", node_id)
            else:
                had = sum(owner.node_id == node_id for owner in self._view.owners.values())
                logger.warning("node %r is gone; it had %d shards", node_id, had)

    def _meet_formats(self, view: ClusterView) -> None:
        ours = self._announcement
        for node in view.nodes.values():
            if node.format_major == ours.format_major and node.format_minor > ours.format_minor:
                assert self._service is not None
                self._service.meet_newer_format()

    def _notify(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    # --- what this node does -----------------------------------------------------------------------------------------

    def _look(self) -> None:
        """Begin every step that is due."""
        if self._is_closed or self._service is None:
            return
        self._cancel_look()
        here = Here(self._announcement, self._keyspaces, self._open(), self._busy, self._service.member_counts())
        due = next_steps(here, self._view, self._memory, self._clock.now_ms())
        self._tell_of_refusal(due.refusal)
        for step in due.steps:
            self._begin_step(step, here.members)
        if due.look_again_ms is not None:
            self._look_again = self._clock.call_at(due.look_again_ms, self._look_later)

    def _tell_of_refusal(self, refusal: Failure | None) -> None:
        if refusal is not None and refusal != self._told_refusal:
            logger.error("this node takes nothing: %s", refusal.detail)
        self._told_refusal = refusal

    def _look_later(self) -> None:
        self._look_again = None
        self._look()

    def _cancel_look(self) -> None:
        if self._look_again is not None:
            self._look_again.cancel()
            self._look_again = None

    def _begin_step(self, step: Step, members: Mapping[str, int]) -> None:
        assert self._service is not None
        if isinstance(step, Register):
            if not self._is_registering:
                self._is_registering = True
                self._begin(self._register(step), lambda: self._later(self._end_registering))
        elif step.keyspace == REGISTRY_KEYSPACE or self._service.is_registry_loaded or isinstance(step, Drop):
            self._busy[step.keyspace] = members.get(step.keyspace, 0) if isinstance(step, HandOver) else None
            self._begin(self._do(step), lambda: self._later(lambda: self._end(step.keyspace)))

    def _later(self, end: Callable[[], None]) -> None:
        """A step met a fault, which may stay: nothing else is done about what it was about until then."""
        self._clock.call_at(self._clock.now_ms() + TRIED_AGAIN_MS, end)

    def _end(self, keyspace: str) -> None:
        self._busy.pop(keyspace, None)
        self._notify()
        self._look()
        if not self._busy:
            self._tell_of_shards()

    def _tell_of_shards(self) -> None:
        loaded = self.owned_shards()
        if loaded != self._told_loaded:
            self._told_loaded = loaded
            logger.info("this node coordinates %d of %d shards", loaded, self._shards)

    async def _do(self, step: Take | HandOver | Drop) -> None:
        assert self._service is not None
        if isinstance(step, Take):
            if self.may_tell:  # without a lease nothing can be acquired
                await self._service.take(step.keyspace)
            if step.keyspace in self._open():
                self.counts.taken += 1
            else:
                self._memory.tried(step.keyspace, self._clock.now_ms())
        elif isinstance(step, Drop):
            self.counts.lost += 1
            await self._service.lose(step.keyspace)
        else:
            await self._hand_over(self._service, step)
        self._end(step.keyspace)

    def _moved_member_ms(self, now_ms: int) -> float:
        """How long the next hand-over waits for each member of one that has just ended, and is still busy."""
        if self._drained_until_ms is None or self._service is None:
            return MOVED_MEMBER_MS
        to_move = sum(self._service.member_counts().values()) + sum(members or 0 for members in self._busy.values())
        return moved_member_ms(to_move, self._drained_until_ms - now_ms)

    async def _hand_over(self, service: Keyspaces, step: HandOver) -> None:
        target = self._view.nodes.get(step.node_id)
        if target is None:  # it has gone since the step was decided
            return
        epoch = self._open().get(step.keyspace) or 0
        is_done = await service.hand_over(step.keyspace, NodeAddress(target.node_id, target.url))
        if is_done:
            now_ms, members = self._clock.now_ms(), self._busy[step.keyspace] or 0
            self._memory.handed_over(step.keyspace, epoch, now_ms, members * self._moved_member_ms(now_ms))
            self._handed_over[step.keyspace] = epoch, step.node_id
            self.counts.handed_over += 1
        else:
            self._memory.tried(step.keyspace, self._clock.now_ms())
            self.counts.not_handed_over += 1
            # If the store still has it as ours, its groups are to be served here until the next try.
            await service.take(step.keyspace)

    async def _register(self, step: Register) -> None:
        try:
            await self._store.put_fact(PLACEMENT, encode_placement(step.placement), step.revision)
        except StorageError as error:
            logger.warning("this node is not in the placement yet: %s", error)
            await sleep(self._clock, max(self._backoff.wait_ms(self._clock.now_ms()), CHANGED_WAIT_MS))
        # The state that has it, or another node's, comes by itself; it may be here already.
        await self._until_newer(step.revision)
        self._end_registering()

    def _end_registering(self) -> None:
        self._is_registering = False
        self._look()

    async def _until_newer(self, revision: int) -> None:
        """Until another placement than that was read, or some time has passed."""
        changed = self._changed
        if self._view.placement_revision > revision:
            return
        over = self._clock.call_at(self._clock.now_ms() + CHANGED_WAIT_MS, self._notify)
        try:
            await changed.wait()
        finally:
            over.cancel()

    # --- for operators -----------------------------------------------------------------------------------------------

    def describe_cluster(self) -> admin.ClusterAnswer | Failure:
        """The cluster as this node last read it."""
        view = self._view
        if not self.may_tell:
            return _cannot_tell()
        if not view.revision:
            return Failure(ErrorCode.COORDINATOR_NOT_AVAILABLE, "The cluster's state has not been read yet; try again.")
        names = sorted(view.placement.nodes.keys() | view.nodes.keys())
        registry = view.owners.get(REGISTRY_KEYSPACE)
        return admin.ClusterAnswer(
            node_id=self._announcement.node_id,
            registry_owner=None if registry is None else registry.node_id,
            nodes=tuple(self._describe_node(node_id, view.placement) for node_id in names),
            shards=tuple(self._describe_shard(shard, view.placement) for shard in range(self._shards)),
        )

    async def drain_node(self, node_id: str, *, draining: bool) -> admin.ClusterNode | Failure:
        """Begin or end an operator's drain."""

        def change(placement: Placement) -> Placement | Failure:
            refusal = rules.why_not_registered(placement, node_id)
            return refusal or rules.with_drain(placement, node_id, is_draining=draining)

        changed = await self._change(change)
        return changed if isinstance(changed, Failure) else self._describe_node(node_id, changed)

    async def remove_node(self, node_id: str) -> admin.ClusterNode | Failure:
        """Take a node that is gone out of the placement. If it runs again, it joins as any other."""
        if not self.may_tell:
            return _cannot_tell()
        if node_id in self._view.nodes:
            detail = f"Node {node_id!r} runs. Stop it, then remove it."
            return Failure(ErrorCode.INVALID_REQUEST, detail, field="node_id")
        described = self._describe_node(node_id, self._view.placement)

        def change(placement: Placement) -> Placement | Failure:
            return rules.why_not_registered(placement, node_id) or rules.without_node(placement, node_id)

        changed = await self._change(change)
        return changed if isinstance(changed, Failure) else described

    async def move_shard(self, shard: int, node_id: str) -> admin.ClusterShard | Failure:
        """Make a node the preferred one for a shard."""
        if shard >= self._shards:
            detail = f"There are {self._shards} shards, numbered from 0."
            return Failure(ErrorCode.INVALID_REQUEST, detail, field="shard")

        def change(placement: Placement) -> Placement | Failure:
            refusal = rules.why_not_registered(placement, node_id)
            return refusal or rules.with_preferred(placement, shard_keyspace(shard), node_id)

        changed = await self._change(change)
        return changed if isinstance(changed, Failure) else self._describe_shard(shard, changed)

    async def _change(self, change: Callable[[Placement], Placement | Failure]) -> Placement | Failure:
        """Store a changed placement, made anew where another node was first."""
        if not self.may_tell:
            return _cannot_tell()
        for _ in range(CHANGES_TRIED_MAX):
            view = self._view
            wanted = change(view.placement)
            if isinstance(wanted, Failure) or wanted == view.placement:
                return wanted
            try:
                if await self._store.put_fact(PLACEMENT, encode_placement(wanted), view.placement_revision):
                    return wanted
            except StorageError as error:
                detail = f"The placement may not have been changed: {error}."
                return Failure(ErrorCode.COORDINATOR_NOT_AVAILABLE, detail)
            await self._until_newer(view.placement_revision)
        return Failure(ErrorCode.COORDINATOR_NOT_AVAILABLE, "Others change the placement all the time; try again.")

    def _describe_node(self, node_id: str, placement: Placement) -> admin.ClusterNode:
        view, announced, registered = self._view, self._view.nodes.get(node_id), placement.nodes.get(node_id)
        drains = (announced is not None and announced.is_draining) or (
            registered is not None and registered.is_draining
        )
        shards = [shard_keyspace(shard) for shard in range(self._shards)]
        owned: Mapping[str, OwnedBy] = view.owners
        return admin.ClusterNode(
            node_id=node_id,
            state="gone" if announced is None else "draining" if drains else "live",
            url=None if announced is None else announced.url,
            rack=announced.rack if announced is not None else registered.rack if registered is not None else None,
            release=None if announced is None else announced.release,
            started_at_ms=None if announced is None else announced.started_at_ms,
            shards=sum(name in owned and owned[name].node_id == node_id for name in shards),
            preferred_shards=sum(placement.orders.get(name, ("",))[0] == node_id for name in shards),
        )

    def _describe_shard(self, shard: int, placement: Placement) -> admin.ClusterShard:
        name = shard_keyspace(shard)
        owner = self._view.owners.get(name)
        return admin.ClusterShard(
            shard=shard, owner=None if owner is None else owner.node_id, nodes=placement.orders.get(name, ())
        )


def _cannot_tell() -> Failure:
    detail = "The node is cut off from the store, and cannot tell how the cluster stands; ask another node."
    return Failure(ErrorCode.COORDINATOR_NOT_AVAILABLE, detail)
