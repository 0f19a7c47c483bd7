"""A group's state: what is in it, which moves are legal, and cheap questions about it. Nothing here changes anything.

Only `apply` writes these objects. Counts that rules ask for at every call (who has joined, which protocols everyone
supports) are kept beside the members, so that a heartbeat costs the same in a group of ten and of ten thousand.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from heapq import heapify, heappop, heappush
from typing import NamedTuple, Protocol

from rallypoint.coordinator.core.effects import Failure, GroupSummary
from rallypoint.coordinator.core.network import Network
from rallypoint.coordinator.core.records import (
    Cause,
    GroupRecord,
    HoldRecord,
    MemberRecord,
    OffsetRecord,
    RebalanceRecord,
)
from rallypoint.protocol.errors import ErrorCode
from rallypoint.protocol.opaque import EMPTY, OpaqueJson


class State(StrEnum):
    """The five states of a group.

    Empty — no members; perhaps committed offsets.
        join, empty id: an id is handed out, or a static member is added. join, sync, heartbeat with an id:
        UNKNOWN_MEMBER_ID. commit: the simple one only. Leaves by: a member is added → PreparingRebalance.
    PreparingRebalance — everyone is asked to join again.
        join: joined, waits. sync, heartbeat: REBALANCE_IN_PROGRESS. commit: taken under the old generation. Leaves by:
        all joined and nobody to wait for, or time out → CompletingRebalance; nobody left → Empty.
    CompletingRebalance — the generation is made, the leader works out the assignment.
        join, unchanged: answered at once; changed or new → PreparingRebalance. sync: followers wait, the leader's is
        stored → Stable. heartbeat: fine. commit: REBALANCE_IN_PROGRESS. Leaves also by: a member goes.
    Stable — everyone can have its assignment.
        join: a follower unchanged is answered at once; the leader, a changed or a new one → PreparingRebalance. sync:
        the stored assignment. heartbeat, commit: fine. Leaves also by: a member goes, a topic changes. While a freeze
        or a cool-down holds, it leaves by none of these: who would start a rebalance has joined, and waits.
    Dead — not there: never created, deleted, or moved to another node.
        join, empty id: creates the group. All else: as if the group did not exist.
    """

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


# Each call asks for these, and in its class a member of an enumeration takes ten times as long to be found.
PREPARING_REBALANCE = State.PREPARING_REBALANCE
COMPLETING_REBALANCE = State.COMPLETING_REBALANCE
STABLE = State.STABLE
DEAD = State.DEAD

LEGAL_MOVES: dict[State, frozenset[State]] = {
    State.EMPTY: frozenset({State.PREPARING_REBALANCE, State.DEAD}),
    State.PREPARING_REBALANCE: frozenset({State.COMPLETING_REBALANCE, State.EMPTY, State.DEAD}),
    State.COMPLETING_REBALANCE: frozenset({State.STABLE, State.PREPARING_REBALANCE, State.DEAD}),
    State.STABLE: frozenset({State.PREPARING_REBALANCE, State.DEAD}),
    # A load, and the creation of a group, begin from nothing.
    State.DEAD: frozenset({State.EMPTY, State.STABLE}),
}


class Offered(NamedTuple):
    """A protocol that a member offers."""

    name: str
    metadata: OpaqueJson


class MemberTerms(NamedTuple):
    """What a member asks for with a join: all that a later join may change."""

    protocols: tuple[Offered, ...]
    session_timeout_ms: int
    rebalance_timeout_ms: int
    disconnect_grace_ms: int | None
    request_id: str | None
    attempt: int | None

    def metadata_of(self, protocol_name: str | None) -> OpaqueJson:
        """What the member said under that protocol; empty where it does not offer it."""
        for offered in self.protocols:
            if offered.name == protocol_name:
                return offered.metadata
        return EMPTY


@dataclass(slots=True)
class Pending:
    """An id handed out by MEMBER_ID_REQUIRED that has not joined yet.

    network: of the client that asked for it.
    deadline_ms: the id is void after it.
    """

    member_id: str
    request_id: str | None
    network: Network
    deadline_ms: int


@dataclass(slots=True)
class Member:
    """A member.

    topics: what it subscribes to; None if that cannot be read.
    joined: it has joined the join phase in progress.
    is_new: it never belonged to a generation.
    deadline_ms: the end of its session.
    join_deadline_ms: until when a new member may wait for its first generation.
    grace_deadline_ms: None unless its connection was lost; until then it may come back.
    first_request_id: of the join that gave it its id.
    came_at_ms: when it came to the group; None where it was loaded with it.
    phase_joined_ms: when it joined the join phase that it joined last.
    join_call, sync_call, heartbeat_call: its pending responses, as the ids of the calls that wait for them.
    """

    member_id: str
    group_instance_id: str | None
    client_id: str
    host: str
    seniority: int
    terms: MemberTerms
    topics: frozenset[str] | None
    assignment: OpaqueJson = EMPTY
    joined: bool = False
    is_new: bool = True
    skip_assignment: bool = False
    deadline_ms: int = 0
    join_deadline_ms: int = 0
    grace_deadline_ms: int | None = None
    first_request_id: str | None = None
    join_call: int | None = None
    sync_call: int | None = None
    heartbeat_call: int | None = None
    came_at_ms: int | None = field(default=None, compare=False)
    phase_joined_ms: int = field(default=0, compare=False)

    @property
    def waits(self) -> bool:
        """A join or a sync of this member waits for its answer, so the session does not run."""
        return self.join_call is not None or self.sync_call is not None

    @property
    def is_connected(self) -> bool:
        """Some call of this member waits for its answer, so there is a connection."""
        return self.waits or self.heartbeat_call is not None


class Said(Protocol):
    """What a member says under a protocol that it offers."""

    @property
    def metadata(self) -> OpaqueJson:
        """That."""


def words_bytes(protocols: Iterable[Said]) -> int:
    """What the texts of these protocols take in memory."""
    return sum([offered.metadata.text.__sizeof__() for offered in protocols])


def topics_bytes(topics: frozenset[str] | None) -> int:
    """What a member's topics take in memory, as they were read from its metadata."""
    if topics is None:
        return 0
    return topics.__sizeof__() + sum([topic.__sizeof__() for topic in topics])


class CallKind(StrEnum):
    """What kind of call waits for its answer. A member has at most one waiting call of each kind."""

    JOIN = "join"
    SYNC = "sync"
    HEARTBEAT = "heartbeat"


class Parked(NamedTuple):
    """A waiting call, by whose and which kind."""

    member_id: str
    kind: CallKind


PLACES_MIN = 64
"""Places of members that have gone, which are kept however few members there are."""


@dataclass(slots=True)
class Subscription:
    """Topics that some members subscribe to, all of them the same ones.

    size_bytes: what the topics take in memory, counted once for each of the members.
    count: the members; 0 for a moment while a group is loaded.
    """

    topics: frozenset[str]
    size_bytes: int
    count: int = 0


class JoinNote(NamedTuple):
    """A member that joined a rebalance, so long after its beginning. `is_new`: of no generation before."""

    member_id: str
    client_id: str
    group_instance_id: str | None
    after_ms: int
    is_new: bool


class JoinNotes(NamedTuple):
    """How the join phase of a rebalance went: who joined when, and the first of those that did not in time."""

    joined: tuple[JoinNote, ...]
    left_out: tuple[str, ...]
    left_out_count: int


JOINS_SHOWN_MAX = 1_000
"""Members of a rebalance of which is remembered when they joined."""
JOINS_KEPT_MAX = 5_000
"""The same of all rebalances of a group together: half a megabyte."""


@dataclass(slots=True)
class Group:
    """All of one group. Generation 0 is before the first rebalance.

    highest_generation_id: durable before a join of that generation is answered.
    phase: counts the beginnings and ends of join phases; the timers of a phase carry it.
    places: a heap of the members by seniority; some that have gone may still be in it.
    pending_of_networks: the ids in `pending` by network, the oldest first; every network in it has one.
    surplus: members that were over the limit when the group was loaded; one that joins again leaves the set, or is
        removed.
    subscriptions: those of the members that can be read, each once, however many members share it. So a member that
        comes or goes costs no look at its topics.
    named_count: the topics of all subscriptions.
    read_ahead: what was read of stored metadata, by protocol type, until the members are made.
    metadata_bytes: what the members' metadata takes in memory, with the topics that were read from it.
    join_until_ms: when the join phase, or the present window of the initial delay, ends at the latest.
    initial_window_ms: the present window of the initial delay; None while it does not run.
    initial_left_ms: how much the initial delay may still be extended.
    came_at_ms: when a new client last came to the group.
    lingers_until_ms: not None while the join phase waits for more new members, although everyone has joined (`linger`).
    deletions_seen: the registry's version up to which offsets of deleted topics are gone.
    deletions_stored: what the store says of it.
    stored_members: mirrors the stored members.
    stored_instances: the static members among them that were not removed, instance id to member id.
    rebalances: mirrors the stored history, oldest first.
    join_notes: how the join phases of some of them went, the oldest first; of none before the load.
    rebalance_id: of the rebalance in progress.
    further: the first causes that came while the group was rebalancing already.
    held: the first causes that wait for the end of a freeze or a cool-down.
    shown: the group's summary as the last step left it that may have changed it; None after a load.
    """

    group_id: str
    state: State = State.DEAD
    state_at_ms: int = 0
    protocol_type: str | None = None
    protocol_name: str | None = None
    generation_id: int = 0
    highest_generation_id: int = 0
    leader: str | None = None
    phase: int = 0
    phase_began_ms: int = 0
    join_until_ms: int = 0
    next_seniority: int = 0

    members: dict[str, Member] = field(default_factory=dict)
    places: list[tuple[int, str]] = field(default_factory=list, compare=False, repr=False)
    static_members: dict[str, str] = field(default_factory=dict)
    pending: dict[str, Pending] = field(default_factory=dict)
    pending_of_networks: dict[Network, dict[str, None]] = field(default_factory=dict)
    requests: dict[str, str] = field(default_factory=dict)
    parked: dict[int, Parked] = field(default_factory=dict)
    pending_sync: set[str] = field(default_factory=set)
    surplus: set[str] = field(default_factory=set)
    joined_count: int = 0
    supporters: Counter[str] = field(default_factory=Counter)
    subscriptions: dict[frozenset[str], Subscription] = field(default_factory=dict)
    named_count: int = 0
    together: frozenset[str] | None = field(default=None, compare=False, repr=False)
    each_once: frozenset[frozenset[str]] | None = field(default=None, compare=False, repr=False)
    read_ahead: dict[tuple[str | None, OpaqueJson], frozenset[str] | None] = field(
        default_factory=dict, compare=False, repr=False
    )
    unreadable_count: int = 0
    metadata_bytes: int = 0

    initial_window_ms: int | None = None
    initial_left_ms: int = 0
    new_member_in_window: bool = False
    came_at_ms: int = 0
    lingers_until_ms: int | None = None

    partition_counts: dict[str, int] = field(default_factory=dict)
    offsets: dict[str, dict[int, OffsetRecord]] = field(default_factory=dict)
    deletions_seen: int = 0
    deletions_stored: int = 0
    offset_count: int = 0
    header: GroupRecord | None = None
    stored_members: dict[str, MemberRecord] = field(default_factory=dict)
    stored_instances: dict[str, str] = field(default_factory=dict)

    rebalances: dict[int, RebalanceRecord] = field(default_factory=dict)
    join_notes: dict[int, JoinNotes] = field(default_factory=dict, compare=False, repr=False)
    rebalance_id: int | None = None
    further: tuple[Cause, ...] = ()
    further_count: int = 0
    hold: HoldRecord | None = None
    held: tuple[Cause, ...] = ()
    held_count: int = 0
    shown: GroupSummary | None = field(default=None, compare=False, repr=False)

    def joins_so_far(self) -> tuple[JoinNote, ...]:
        """Who has joined the present phase, the earliest first. Costs a look at each member."""
        joined = sorted((x for x in self.members.values() if x.joined), key=lambda x: x.phase_joined_ms)
        return tuple(
            JoinNote(
                x.member_id, x.client_id, x.group_instance_id, max(x.phase_joined_ms - self.phase_began_ms, 0), x.is_new
            )
            for x in joined[:JOINS_SHOWN_MAX]
        )

    @property
    def forgettable(self) -> bool:
        """Nothing in it is worth keeping in memory: a group that is not there, and that nobody waits for."""
        return self.state is State.DEAD and not self.parked

    @property
    def is_active(self) -> bool:
        """It has a generation in use or in the making."""
        return self.state is STABLE or self.state is COMPLETING_REBALANCE

    @property
    def rebalance_timeout_ms(self) -> int:
        """The longest of its members'; 0 without members. Costs a look at each."""
        return max((member.terms.rebalance_timeout_ms for member in self.members.values()), default=0)

    @property
    def all_joined(self) -> bool:
        """Every member has joined the present phase. Ids that were handed out are of nobody yet."""
        return self.joined_count == len(self.members)

    @property
    def awaited_count(self) -> int:
        """How many members, and ids that are out, the rebalance in progress waits for; 0 where none is."""
        if self.state is State.PREPARING_REBALANCE:
            return len(self.members) - self.joined_count + len(self.pending)
        return len(self.pending_sync) if self.is_active else 0

    @property
    def topics(self) -> frozenset[str]:
        """What its members subscribe to together, as far as it can be read. Computed again after a subscription has
        come or gone: O(`named_count`).
        """
        if self.together is None:
            self.together = frozenset().union(*self.subscriptions)
        return self.together

    @property
    def distinct_subscriptions(self) -> frozenset[frozenset[str]] | None:
        """Each once; None where some member's subscription cannot be read. Costs a look at each, where one has come or
        gone, and none at the topics.
        """
        if self.unreadable_count:
            return None
        if self.each_once is None:
            self.each_once = frozenset(self.subscriptions)
        return self.each_once

    def by_seniority(self) -> list[Member]:
        """Members, the longest-standing first."""
        return sorted(self.members.values(), key=lambda member: member.seniority)

    def of_generation(self) -> list[Member]:
        """Members that have a part in the present generation, the longest-standing first; not those that only wait
        for the next one.
        """
        return [member for member in self.by_seniority() if not member.is_new]

    def eldest(self) -> str | None:
        """The longest-standing member.

        It is asked for with each leader that goes, and where thousands leave at once each of them is one: so it costs
        O(log members) and no look at everyone.
        """
        places, members = self.places, self.members
        while places and not self._is_there(*places[0]):
            heappop(places)
        return places[0][1] if members else None

    def take_place(self, member: Member) -> None:
        """Let the member stand among the others, by its seniority."""
        heappush(self.places, (member.seniority, member.member_id))
        if len(self.places) > 2 * len(self.members) + PLACES_MIN:
            self.places = [(x.seniority, x.member_id) for x in self.members.values()]
            heapify(self.places)

    def _is_there(self, seniority: int, member_id: str) -> bool:
        member = self.members.get(member_id)
        return member is not None and member.seniority == seniority

    def supports_any(self, names: Iterator[str]) -> bool:
        """Whether every member supports at least one of the names; true for all names where there are no members."""
        return any(self.supporters[name] == len(self.members) for name in names)


NAMED_MAX = 5
"""Members that a sentence names."""


def named(members: Iterable[str]) -> str:
    """The first of them, in a sentence."""
    told = list(members)
    more = f" and {len(told) - NAMED_MAX} more" if len(told) > NAMED_MAX else ""
    return ", ".join(told[:NAMED_MAX]) + more


def check_exists(group: Group) -> Failure | None:
    """GROUP_ID_NOT_FOUND for a group that is not there; None for one that is."""
    if group.state is not State.DEAD:
        return None
    return Failure(ErrorCode.GROUP_ID_NOT_FOUND, f"There is no group {group.group_id!r}.", field="group_id")


def check_empty(group: Group) -> Failure | None:
    """As `check_exists`, and NON_EMPTY_GROUP for a group that is not Empty."""
    if group.state in (State.EMPTY, State.DEAD):
        return check_exists(group)
    return Failure(ErrorCode.NON_EMPTY_GROUP, f"The group is {group.state}: stop its members first.")
