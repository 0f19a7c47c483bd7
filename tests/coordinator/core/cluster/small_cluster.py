"""A cluster in memory: a store with the shared store's rules, nodes that see its states late, and a clock of ours.

Everything that takes time takes a drawn number of ticks: a state until a node sees it, a load, a hand-over. As a real
node does, one here asks for its next steps when a state has come, when a step has ended, and when it said it would
look again; at no other time. So a wait that the rules forget to name shows.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from random import Random

from rallypoint.coordinator.core.cluster import decide as d
from rallypoint.coordinator.core.cluster.records import NodeAnnouncement, Placement

TICK_MS = 50
LEASE_MS = 3_000
DELAY_MAX_MS = 300
STEP_TICKS_MAX = 5
REGISTERED_WAIT_TICKS = 2
SHARDS = 12
KEYSPACES = ("topics", *(f"shard-{shard}" for shard in range(SHARDS)))


class Unavailable(Exception):  # noqa: N818 - a state of the store
    """What was asked for cannot be done, and nothing has changed."""


@dataclass
class Store:
    """The shared store. taken: who acquired what, when, and since when it had been free."""

    view: d.ClusterView = field(default_factory=lambda: d.ClusterView(1))
    history: list[tuple[int, d.ClusterView]] = field(default_factory=list)
    now_ms: int = 0
    free_since_ms: dict[str, int] = field(default_factory=dict)
    taken: list[tuple[str, str, int, int]] = field(default_factory=list)
    handed_over: list[tuple[str, str, str, int]] = field(default_factory=list)

    def _change(self, view: d.ClusterView) -> int:
        self.view = replace(view, revision=self.view.revision + 1)
        self.history.append((self.now_ms, self.view))
        return self.view.revision

    def announce(self, node: NodeAnnouncement) -> None:
        if self.view.nodes.get(node.node_id) != node:
            self._change(replace(self.view, nodes={**self.view.nodes, node.node_id: node}))

    def expire(self, node_id: str) -> None:
        nodes = {each: node for each, node in self.view.nodes.items() if each != node_id}
        owners = {keyspace: owner for keyspace, owner in self.view.owners.items() if owner.node_id != node_id}
        self.free_since_ms |= dict.fromkeys(self.view.owners.keys() - owners.keys(), self.now_ms)
        self._change(replace(self.view, nodes=nodes, owners=owners))

    def acquire(self, keyspace: str, node_id: str) -> int:
        owner = self.view.owners.get(keyspace)
        if node_id not in self.view.nodes or (owner is not None and owner.node_id != node_id):
            raise Unavailable
        if owner is None:
            self.taken.append((keyspace, node_id, self.now_ms, self.free_since_ms.get(keyspace, self.now_ms)))
        return self._own(keyspace, node_id)

    def hand_over(self, keyspace: str, mine: d.OwnedBy, target: str) -> None:
        if self.view.owners.get(keyspace) != mine or target not in self.view.nodes:
            raise Unavailable
        self.handed_over.append((keyspace, mine.node_id, target, self.now_ms))
        self._own(keyspace, target)

    def put_placement(self, placement: Placement, revision: int) -> bool:
        if revision != self.view.placement_revision:
            return False
        self._change(replace(self.view, placement=placement, placement_revision=self.view.revision + 1))
        return True

    def _own(self, keyspace: str, node_id: str) -> int:
        owner = d.OwnedBy(node_id, self.view.revision + 1)
        return self._change(replace(self.view, owners={**self.view.owners, keyspace: owner}))


class Node:
    """A node: what it saw and has, and what it has begun."""

    def __init__(self, store: Store, announcement: NodeAnnouncement, random: Random) -> None:
        self.store = store
        self.announcement = announcement
        self.view = d.ClusterView()
        self.memory = d.Memory()
        self.loaded: dict[str, int | None] = {}
        self.busy: dict[str, int | None] = {}
        self.members = {keyspace: random.choice((0, 40, 400)) for keyspace in KEYSPACES}
        self.paused_until_ms = 0
        self.is_renewing = True
        self.renewed_ms = store.now_ms
        self.delay_ms = 0
        self.steps: list[d.Step] = []
        self._random = random
        self._seen = len(store.history)
        self._pending: list[tuple[int, Callable[[], None]]] = []
        self._is_registering = False
        self._look_again_ms: int | None = None
        store.announce(announcement)

    @property
    def node_id(self) -> str:
        return self.announcement.node_id

    def tick(self) -> None:
        now_ms = self.store.now_ms
        is_paused = now_ms < self.paused_until_ms
        if self.is_renewing or not is_paused:
            self.renewed_ms = now_ms
            self.store.announce(self.announcement)
        if is_paused:
            return
        is_changed = self._see(now_ms)
        due = [run for at_ms, run in self._pending if at_ms <= now_ms]
        self._pending = [each for each in self._pending if each[0] > now_ms]
        for run in due:
            run()
        if is_changed or due or (self._look_again_ms is not None and now_ms >= self._look_again_ms):
            self._look(now_ms)

    def _see(self, now_ms: int) -> bool:
        """Only the newest of the states that have arrived."""
        history, before = self.store.history, self._seen
        while self._seen < len(history) and history[self._seen][0] + self.delay_ms <= now_ms:
            self._seen += 1
        if self._seen == before:
            return False
        self.view = history[self._seen - 1][1]
        self.memory.observe(self.view, now_ms)
        return True

    def _look(self, now_ms: int) -> None:
        here = d.Here(self.announcement, KEYSPACES, dict(self.loaded), dict(self.busy), self.members)
        found = d.next_steps(here, self.view, self.memory, now_ms)
        assert found.refusal is None
        about = [step.keyspace for step in found.steps if not isinstance(step, d.Register)]
        assert len(about) == len(set(about)), "two steps about one keyspace"
        self._look_again_ms = found.look_again_ms
        for step in found.steps:
            self._begin(step)

    def _later(self, run: Callable[[], None], ticks_min: int = 1) -> None:
        ticks = self._random.randrange(ticks_min, ticks_min + STEP_TICKS_MAX)
        self._pending.append((self.store.now_ms + ticks * TICK_MS, run))

    def _begin(self, step: d.Step) -> None:
        if isinstance(step, d.Register):
            if not self._is_registering:
                self.steps.append(step)
                self._is_registering = True
                self._later(lambda: self._register(step))
            return
        self.steps.append(step)
        keyspace = step.keyspace
        assert keyspace not in self.busy
        self.busy[keyspace] = self.members.get(keyspace, 0) if isinstance(step, d.HandOver) else None
        if isinstance(step, d.Drop):
            del self.loaded[keyspace]
            self._later(lambda: self._end(keyspace))
        elif isinstance(step, d.Take):
            assert keyspace not in self.loaded
            self._begin_taking(keyspace)
        else:
            assert not self.view.drains(step.node_id), "a hand-over to a node that drains"
            assert sum(members is not None for members in self.busy.values()) <= d.HAND_OVERS_AT_ONCE_MAX
            self._later(lambda: self._hand_over(step))

    def _begin_taking(self, keyspace: str) -> None:
        self.loaded[keyspace] = None
        self._later(lambda: self._acquire(keyspace))

    def _acquire(self, keyspace: str) -> None:
        try:
            self.loaded[keyspace] = self.store.acquire(keyspace, self.node_id)
        except Unavailable:
            del self.loaded[keyspace]
            self.memory.tried(keyspace, self.store.now_ms)
            self._end(keyspace)
        else:
            self._later(lambda: self._end(keyspace))

    def _hand_over(self, step: d.HandOver) -> None:
        epoch = self.loaded.pop(step.keyspace)
        assert epoch is not None
        try:
            self.store.hand_over(step.keyspace, d.OwnedBy(self.node_id, epoch), step.node_id)
        except Unavailable:
            self.memory.tried(step.keyspace, self.store.now_ms)
            self._begin_taking(step.keyspace)
        else:
            self.memory.handed_over(
                step.keyspace, epoch, self.store.now_ms, self.members[step.keyspace] * d.MOVED_MEMBER_MS
            )
            self._end(step.keyspace)

    def _end(self, keyspace: str) -> None:
        del self.busy[keyspace]

    def _register(self, step: d.Register) -> None:
        self.store.put_placement(step.placement, step.revision)
        self._later(self._end_registering, REGISTERED_WAIT_TICKS)

    def _end_registering(self) -> None:
        self._is_registering = False


class Cluster:
    """Nodes around one store."""

    def __init__(self, seed: int = 0) -> None:
        self.random = Random(seed)
        self.store = Store()
        self.nodes: dict[str, Node] = {}
        self._dead: dict[str, int] = {}

    @property
    def placement(self) -> Placement:
        return self.store.view.placement

    def start(self, node_id: str, rack: str | None = None) -> Node:
        self._dead.pop(node_id, None)
        said = NodeAnnouncement(node_id, f"http://{node_id}", rack, "1", 1, 0, self.store.now_ms)
        node = self.nodes[node_id] = Node(self.store, said, self.random)
        return node

    def kill(self, node_id: str) -> None:
        self._dead[node_id] = self.nodes.pop(node_id).renewed_ms

    def stop(self, node_id: str) -> None:
        """End a node that revokes its lease."""
        del self.nodes[node_id]
        self.store.expire(node_id)

    def drain(self, node_id: str, *, is_draining: bool = True) -> None:
        """As a node does that is about to stop."""
        node = self.nodes[node_id]
        node.announcement = replace(node.announcement, is_draining=is_draining)

    def put(self, placement: Placement) -> None:
        """Change the placement as an operator does."""
        assert self.store.put_placement(placement, self.store.view.placement_revision)

    def run(self, duration_ms: int) -> None:
        for _ in range(duration_ms // TICK_MS):
            self.store.now_ms += TICK_MS
            renewed = {**self._dead, **{node_id: node.renewed_ms for node_id, node in self.nodes.items()}}
            for node_id in sorted(self.store.view.nodes):
                if self.store.now_ms - renewed[node_id] > LEASE_MS:
                    self.store.expire(node_id)
            for node in list(self.nodes.values()):
                if self.random.random() < 0.1:
                    node.delay_ms = self.random.randrange(0, DELAY_MAX_MS + 1, TICK_MS)
                node.tick()

    def all_drain(self) -> bool:
        return all(map(self.store.view.drains, self.store.view.nodes))

    def misplaced(self) -> list[str]:
        """Keyspaces whose owner is not the one that should be, or has them not loaded under their epoch."""
        found = []
        for keyspace in KEYSPACES:
            owner, should = self.store.view.owners.get(keyspace), self.store.view.should_own(keyspace, 1)
            is_in_place = owner is not None and (owner.node_id == should[0] or self.all_drain())
            if owner is None or not is_in_place or self.nodes[owner.node_id].loaded.get(keyspace) != owner.epoch:
                found.append(keyspace)
        return found

    def loaded_by_others(self) -> list[tuple[str, str]]:
        """What a node has loaded that is another's."""
        owners = self.store.view.owners
        return [
            (node_id, keyspace)
            for node_id, node in self.nodes.items()
            for keyspace in node.loaded
            if keyspace not in owners or owners[keyspace].node_id != node_id
        ]
