"""What a node does next about the keyspaces of the cluster.

The owner of a keyspace should be the first node of its order that runs and does not drain. A node brings that about for
what is its own business: it takes what nobody owns, loads what it was handed, hands over what another one should have,
and drops what it has lost. Nobody commands anybody, so no node has to be there.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from rallypoint.coordinator.core.cluster.placement import why_not_joined, with_node
from rallypoint.coordinator.core.cluster.records import NodeAnnouncement, Placement
from rallypoint.coordinator.core.effects import Failure

TURN_MS = 500
"""A keyspace without an owner is left to the node before in its order for so long."""
SETTLE_MS = 2_000
"""A node that has come gets keyspaces back after so long: one that comes and goes would only move them to and fro."""
HAND_OVERS_AT_ONCE_MAX = 4
"""A hand-over takes a keyspace's groups out of service for an instant, so there are few at a time."""
MEMBERS_AT_ONCE_MAX = 250
"""Members of the keyspaces that are handed over at a time, where there is more than one. Each looks its coordinator up
and connects anew, and those that do so together wait for each other.
"""
MOVED_MEMBER_MS = 2.0
"""How long the next hand-over waits for each member of the last one: 500 come a second, which leaves two cores with
other work time for each as it comes. A node that stops may have less time.
"""
MOVED_MEMBERS_MAX_MS = 1_000
"""A keyspace of very many members delays the others by no more, for each node that gives before its owner."""
TRIED_AGAIN_MS = 1_000
"""How long after a step that failed, or whose result may not be known here yet, the keyspace is left alone."""


class OwnedBy(NamedTuple):
    """The owner of a keyspace, and the epoch under which it has it."""

    node_id: str
    epoch: int


@dataclass(frozen=True, slots=True)
class ClusterView:
    """What is stored about the cluster at one revision.

    placement_revision: of the last write of the placement; 0 while there is none.
    """

    revision: int = 0
    nodes: Mapping[str, NodeAnnouncement] = field(default_factory=dict)
    owners: Mapping[str, OwnedBy] = field(default_factory=dict)
    placement: Placement = field(default_factory=Placement)
    placement_revision: int = 0

    def drains(self, node_id: str) -> bool:
        """Whether the node stops, or an operator drains it."""
        registered, announced = self.placement.nodes.get(node_id), self.nodes.get(node_id)
        return (registered is not None and registered.is_draining) or (announced is not None and announced.is_draining)

    def should_own(self, keyspace: str, format_major: int) -> tuple[str, ...]:
        """The nodes that may own the keyspace now, the first that should. Nodes of another format cannot read it.

        Where every node that runs drains, they may: somebody has to serve.
        """
        runs = [
            one
            for one in self.placement.orders[keyspace]
            if one in self.nodes and self.nodes[one].format_major == format_major
        ]
        return tuple(one for one in runs if not self.drains(one)) or tuple(runs)

    def owner_of(self, keyspace: str) -> NodeAnnouncement | None:
        """The owner's announcement; None while the keyspace has no owner, or the owner is not there."""
        owner = self.owners.get(keyspace)
        return None if owner is None else self.nodes.get(owner.node_id)


class Memory:
    """Since when something has been so, as this node saw it. Times are milliseconds."""

    def __init__(self) -> None:
        self.ownerless_since_ms: dict[str, int] = {}
        self.came_at_ms: dict[str, int] = {}
        self.tried_at_ms: dict[str, int] = {}
        self.handed_over_epochs: dict[str, int] = {}
        self.hand_overs_from_ms = 0
        self.got_at_ms: dict[str, int] = {}
        self.placed_at_ms = 0
        self._started_at_ms: dict[str, int] | None = None
        self._owner_ids: dict[str, str] = {}
        self._placement_revision = 0

    def observe(self, view: ClusterView, now_ms: int) -> None:
        """Another state was read. Nodes of the first one have been there before, and so has what they own. A restarted
        process has come anew.
        """
        started_at_ms = {node_id: node.started_at_ms for node_id, node in view.nodes.items()}
        seen = self._started_at_ms
        came_ms = now_ms - SETTLE_MS if seen is None else now_ms
        self.came_at_ms = {
            node_id: self.came_at_ms[node_id] if seen is not None and seen.get(node_id) == at_ms else came_ms
            for node_id, at_ms in started_at_ms.items()
        }
        self._started_at_ms = started_at_ms
        self.ownerless_since_ms = {
            keyspace: self.ownerless_since_ms.get(keyspace, now_ms)
            for keyspace in view.placement.orders
            if keyspace not in view.owners
        }
        if seen is not None:
            self._observe_changes(view, now_ms)
        self._owner_ids = {keyspace: owner.node_id for keyspace, owner in view.owners.items()}
        self._placement_revision = view.placement_revision

    def _observe_changes(self, view: ClusterView, now_ms: int) -> None:
        got = {one.node_id for name, one in view.owners.items() if self._owner_ids.get(name) != one.node_id}
        got_at_ms = {**self.got_at_ms, **dict.fromkeys(got, now_ms)}
        self.got_at_ms = {node_id: at_ms for node_id, at_ms in got_at_ms.items() if node_id in view.nodes}
        if view.placement_revision != self._placement_revision:
            self.placed_at_ms = now_ms

    def tried(self, keyspace: str, now_ms: int) -> None:
        """The keyspace could not be handed over, or could not be taken: what shows it may be still to come."""
        self.tried_at_ms[keyspace] = now_ms
        self.handed_over_epochs.pop(keyspace, None)

    def handed_over(self, keyspace: str, epoch: int, now_ms: int, members_take_ms: float = 0) -> None:
        """The keyspace, this node's under that epoch, was handed over. What shows it may be still to come.

        members_take_ms: how long the next hand-over waits for its members.
        """
        self.tried_at_ms[keyspace] = now_ms
        self.handed_over_epochs[keyspace] = epoch
        self.hand_overs_from_ms = max(self.hand_overs_from_ms, now_ms) + _wait_ms(members_take_ms)

    def hurry(self, now_ms: int) -> None:
        """What waits for the members of the last hand-overs may begin."""
        self.hand_overs_from_ms = min(self.hand_overs_from_ms, now_ms)

    def is_handed_back(self, keyspace: str, epoch: int) -> bool:
        """Whether the epoch, under which the keyspace is this node's, is of after this node handed it over."""
        return epoch > self.handed_over_epochs.get(keyspace, epoch)


@dataclass(frozen=True, slots=True)
class Register:
    """Store this placement if the stored one is still that of the revision."""

    placement: Placement
    revision: int


@dataclass(frozen=True, slots=True)
class Take:
    """Acquire the keyspace and load it."""

    keyspace: str


@dataclass(frozen=True, slots=True)
class HandOver:
    """Make the node the owner."""

    keyspace: str
    node_id: str


@dataclass(frozen=True, slots=True)
class Drop:
    """Forget what was loaded: another node owns the keyspace, or the lease is gone."""

    keyspace: str


Step = Register | Take | HandOver | Drop


@dataclass(frozen=True, slots=True)
class NextSteps:
    """What to do now.

    look_again_ms: when to look again even if nothing changes; None: only when something does.
    refusal: why this node can have no place in the placement; it takes and hands over nothing then.
    """

    steps: tuple[Step, ...]
    look_again_ms: int | None
    refusal: Failure | None = None


@dataclass(frozen=True, slots=True)
class Here:
    """This node.

    announcement: what it tells the others.
    keyspaces: all there are, in their order.
    loaded: the keyspaces that it has or is loading, with the epoch of each; None while it is being acquired.
    busy: keyspaces about which a step is under way; for a hand-over, how many members the keyspace has.
    members: how many members the keyspaces have that are loaded; none where it is not said.
    """

    announcement: NodeAnnouncement
    keyspaces: tuple[str, ...]
    loaded: Mapping[str, int | None]
    busy: Mapping[str, int | None]
    members: Mapping[str, int] = field(default_factory=dict)


def next_steps(here: Here, view: ClusterView, memory: Memory, now_ms: int) -> NextSteps:
    """The steps for this node, for different keyspaces each, in the order of keyspaces."""
    steps: list[Step] = [Drop(name) for name in _lost(here, view)]
    me = here.announcement
    registered = view.placement.nodes.get(me.node_id)
    if me.node_id not in view.nodes:
        return NextSteps(tuple(steps), None)
    refusal = why_not_joined(view.placement, here.keyspaces, me.node_id)
    if refusal is not None:
        return NextSteps(tuple(steps), None, refusal)
    if registered is None or registered.rack != me.rack:
        placement = with_node(view.placement, here.keyspaces, me.node_id, me.rack)
        return NextSteps((*steps, Register(placement, view.placement_revision)), None)
    looks: list[int] = []
    under_way = [members for members in here.busy.values() if members is not None]
    dropped = {step.keyspace for step in steps if isinstance(step, Drop)}
    gives_before: dict[str, set[str]] = {}
    for name in here.keyspaces:
        if name in here.busy or name in dropped:
            continue
        due_ms, step = _step(name, here, view, memory, gives_before)
        if step is None:
            continue
        if due_ms > now_ms:
            looks.append(due_ms)
        elif isinstance(step, HandOver):
            members = here.members.get(name, 0)
            if memory.hand_overs_from_ms > now_ms:
                looks.append(memory.hand_overs_from_ms)
            elif _may_move_now(members, under_way):
                under_way.append(members)
                steps.append(step)
        else:
            steps.append(step)
    return NextSteps(tuple(steps), min(looks, default=None))


def moved_member_ms(members: int, left_ms: int) -> float:
    """How long to wait for each moved member, where so many have to move, and so much time is left for all of them."""
    return min(MOVED_MEMBER_MS, max(0, left_ms) / max(1, members))


def _wait_ms(members_take_ms: float) -> int:
    """How long a hand-over waits for members of one keyspace that take so long."""
    return min(round(members_take_ms), MOVED_MEMBERS_MAX_MS)


def _may_move_now(members: int, under_way: Sequence[int]) -> bool:
    """Whether a keyspace of so many members may be handed over beside those of so many."""
    if not under_way:
        return True
    return len(under_way) < HAND_OVERS_AT_ONCE_MAX and sum(under_way) + members <= MEMBERS_AT_ONCE_MAX


def _lost(here: Here, view: ClusterView) -> Iterable[str]:
    """What the state shows to be no more this node's; a state from before the acquisition shows nothing."""
    for name, epoch in here.loaded.items():
        owned = OwnedBy(here.announcement.node_id, epoch or 0)
        if name not in here.busy and epoch is not None and view.revision >= epoch and view.owners.get(name) != owned:
            yield name


def _step(
    name: str, here: Here, view: ClusterView, memory: Memory, gives_before: dict[str, set[str]]
) -> tuple[int, Step | None]:
    """What is to be done about a keyspace, and from when on.

    gives_before: by node, who has something to give to it that comes before in the order of keyspaces. What another
    node has to give is added.
    """
    me = here.announcement
    owner, candidates = view.owners.get(name), view.should_own(name, me.format_major)
    due_ms = memory.tried_at_ms.get(name, -TRIED_AGAIN_MS) + TRIED_AGAIN_MS
    if owner is None:
        if me.node_id not in candidates or name in here.loaded:
            return 0, None
        since_ms = memory.ownerless_since_ms.get(name, 0)
        return max(due_ms, since_ms + candidates.index(me.node_id) * TURN_MS), Take(name)
    # There may be no candidate: the state may still show this node's former process, of another format.
    is_in_place = not candidates or candidates[0] == owner.node_id or view.drains(candidates[0])
    if owner.node_id != me.node_id:
        if not is_in_place:
            gives_before.setdefault(candidates[0], set()).add(owner.node_id)
        return 0, None
    if name not in here.loaded:
        return 0 if memory.is_handed_back(name, owner.epoch) else due_ms, Take(name)
    if here.loaded[name] is None or is_in_place:
        return 0, None
    target = candidates[0]
    if not view.drains(me.node_id):
        turns = len(gives_before.get(target, ()))
        due_ms = max(due_ms, _given_at_ms(target, memory, turns, here.members.get(name, 0)))
    return due_ms, HandOver(name, target)


def _given_at_ms(node_id: str, memory: Memory, turns: int, members: int) -> int:
    """When a node, which may take its time, hands a keyspace of so many members to another one, where so many nodes
    give before it.

    The node that gets keyspaces is left the time for the members of each, whoever gives it. Nobody knows how many the
    others' keyspaces have, so each reckons with those of its own.
    """
    wait_ms = _wait_ms(members * MOVED_MEMBER_MS)
    got_at_ms = memory.got_at_ms.get(node_id)
    begins_ms = max(memory.came_at_ms[node_id] + SETTLE_MS, memory.placed_at_ms)
    return max(begins_ms, 0 if got_at_ms is None else got_at_ms + wait_ms) + turns * wait_ms
