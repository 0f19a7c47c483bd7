"""One group, as plainly as can be: lists, and everything worked out again each time. Slow, and meant to be obvious.

Here is what it holds, what can be asked of it, and its pending responses; beside it are rebalances, members,
offsets and time.

Written from the protocol's rules and not from the core's code, which it exists to be compared with: no facts, no
records, no timers that are set or cancelled. A deadline is a field, and time passes by looking for the earliest one.
Left out: what a call says besides its code and what a client acts on.
"""

from dataclasses import dataclass, field
from typing import Any

DEAD, EMPTY, PREPARING, COMPLETING, STABLE = (
    "Dead", "Empty", "PreparingRebalance", "CompletingRebalance", "Stable",
)  # fmt: skip
CONSUMER = "consumer"
UNREADABLE = "?"
"""A subscription that says nothing of topics."""

Offers = tuple[tuple[str, str], ...]
"""What a member offers: (protocol, topic), in order of preference."""
Answer = tuple[Any, ...]


@dataclass(frozen=True)
class Limits:
    """What the settings say, in members and milliseconds."""

    max_size: int = 100
    delay_ms: int = 0
    linger_ms: int = 0
    quiet_ms: int = 20
    unused_ms: int = 4_507
    unused_max: int = 100
    wait_ms: int = 9_011
    new_member_ms: int = 20_021
    heartbeat_interval_ms: int = 3_000
    retention_ms: int = 30_011
    look_every_ms: int = 12_007
    metadata_length: int = 3
    grace_ms: int = 1_709


@dataclass(frozen=True)
class Join:
    """What a join says."""

    member_id: str
    instance: str | None
    kind: str
    offers: Offers
    session_ms: int
    rebalance_ms: int
    wait_ms: int | None
    request: str | None
    network: str
    grace_ms: int | None
    """How long it asks to be waited for when its connection is lost; None for what the settings say."""
    new_id: str
    """The id that the coordinator would make for it."""


@dataclass
class Member:
    """`until`: the end of its session. `new_until`: how long a new one may wait. `asked`: it has asked for its part.
    `lost_until`: its connection was lost, and until then it may come back.

    `requests`: the request ids by which it is known, that of the join which was given the id, and that of the last.
    `arrived`: its place among all that ever came.
    """

    member_id: str
    instance: str | None
    offers: Offers
    session_ms: int
    rebalance_ms: int
    grace_ms: int | None
    requests: tuple[str | None, str | None]
    arrived: int
    until: int = 0
    new_until: int = 0
    lost_until: int | None = None
    is_new: bool = True
    joined: bool = False
    asked: bool = True
    skip: bool = False
    part: Any = None

    def topic_under(self, protocol: str | None) -> str | None:
        return dict(self.offers).get(protocol or "")


@dataclass
class Waiting:
    """A call that waits: whose, for what, and how long."""

    member_id: str
    kind: str
    until: int


@dataclass
class HandedOut:
    """An id that nobody has joined with yet: how long it is good, by which request it was asked for, and from where."""

    until: int
    request: str | None
    network: str


@dataclass
class Stored:
    """What a crash leaves, but for the offsets."""

    since: int
    kind: str | None = None
    generation: int = 0
    leader: str | None = None
    protocol: str | None = None
    counts: dict[str, int] = field(default_factory=dict)
    members: list[Member] = field(default_factory=list)
    someone_was_kicked: bool = False
    """Since it was stored: what that one had is nobody's."""

    def find(self, member_id: str) -> Member | None:
        return next((x for x in self.members if x.member_id == member_id), None)


class PlainState:
    """`answers` holds what every call was told, `waiting` the calls that were told nothing yet."""

    def __init__(self, limits: Limits, now: int) -> None:
        self.limits = limits
        self.now = now
        self.registry: dict[str, int] = {}
        self.ends: dict[str, dict[int, int]] = {}
        self.waiting: dict[int, Waiting] = {}
        self.answers: dict[int, Answer] = {}
        self.ever_arrived = 0
        self.vanish()

    def vanish(self) -> None:
        """There is no such group."""
        self.state = DEAD
        self.since = self.now
        self.kind: str | None = None
        self.generation = 0
        self.highest = 0
        self.leader: str | None = None
        self.protocol: str | None = None
        self.members: list[Member] = []
        self.handed_out: dict[str, HandedOut] = {}
        self.offsets: dict[tuple[str, int], tuple[int, int]] = {}
        """By partition: the offset, and when it was committed."""
        self.phase_until = 0
        self.join_wait_ms: int | None = None
        self.in_initial_delay = False
        self.window = 0
        self.left = 0
        self.someone_new_came = False
        self.last_came = 0
        """When somebody who was not known yet last came to the group."""
        self.counts: dict[str, int] = {}
        self.stored: Stored | None = None
        self.look_at: int | None = None

    def appear(self) -> None:
        """There is such a group from now on, without members."""
        self.turn(EMPTY)
        self.stored = Stored(self.now)
        self.look_at = self.now + self.limits.look_every_ms

    def turn(self, state: str) -> None:
        self.state, self.since = state, self.now

    # --- questions ---------------------------------------------------------------------------------------------------

    def find(self, member_id: str) -> Member | None:
        return next((x for x in self.members if x.member_id == member_id), None)

    def slot(self, instance: str | None) -> Member | None:
        return next((x for x in self.members if instance is not None and x.instance == instance), None)

    @property
    def active(self) -> bool:
        return self.state in {COMPLETING, STABLE}

    def longest(self) -> int:
        return max((x.rebalance_ms for x in self.members), default=0)

    def waiting_call(self, member_id: str, kind: str) -> int | None:
        return next((c for c, w in self.waiting.items() if (w.member_id, w.kind) == (member_id, kind)), None)

    def waits(self, member: Member) -> bool:
        """For others: its session does not run meanwhile. A heartbeat that waits is something else."""
        return any(self.waiting_call(member.member_id, kind) is not None for kind in ("join", "sync"))

    def validate(self, member_id: str, instance: str | None) -> Answer | None:
        if instance is not None:
            slot = self.slot(instance)
            if slot is None:
                return ("UNKNOWN_MEMBER_ID",)
            if slot.member_id != member_id:
                return ("FENCED_INSTANCE_ID",)
        return ("UNKNOWN_MEMBER_ID",) if self.find(member_id) is None else None

    def reads(self, member: Member) -> set[str] | None:
        """The topics that the member subscribes to; None where nobody can tell."""
        topic = member.offers[0][1]
        return {topic} if self.kind == CONSUMER and topic != UNREADABLE else None

    def counts_now(self) -> dict[str, int]:
        topics = set().union(*(self.reads(x) or set() for x in self.members))
        return {topic: count for topic, count in self.registry.items() if topic in topics}

    # --- pending responses --------------------------------------------------------------------------------------------

    def answer(self, call: int | None, *what: Any) -> None:
        if call is not None:
            assert call not in self.answers
            self.answers[call] = what
            self.waiting.pop(call, None)

    def let_wait(self, call: int, member: Member, kind: str, wait_ms: int | None) -> None:
        """A newer call of the same member takes the place of the one that waits, which is told so."""
        self.answer(self.waiting_call(member.member_id, kind), "superseded")
        limit = self.limits.wait_ms if wait_ms is None else min(wait_ms, self.limits.wait_ms)
        self.waiting[call] = Waiting(member.member_id, kind, self.now + limit)

    def remove(self, member: Member, *why: Any) -> None:
        for kind in ("join", "sync", "heartbeat"):
            self.answer(self.waiting_call(member.member_id, kind), *why)
        self.members.remove(member)
        if self.leader == member.member_id:
            self.leader = self.members[0].member_id if self.members else None

    def hear(self, member: Member) -> None:
        member.until = self.now + member.session_ms

    def hang_up(self, call: int, *, with_its_connection: bool = False) -> None:
        waiting = self.waiting.pop(call, None)
        if waiting is None:
            return
        member = self.find(waiting.member_id)
        assert member is not None
        if with_its_connection:
            self.lose_connection(member.member_id)
        if waiting.kind != "heartbeat":
            self.hear(member)

    # --- connections -------------------------------------------------------------------------------------------------

    def lose_connection(self, member_id: str) -> None:
        """A static member that asked for no grace is away on purpose, and is waited for as ever."""
        member = self.find(member_id)
        if member is None or (member.instance is not None and member.grace_ms is None):
            return
        member.lost_until = self.now + (self.limits.grace_ms if member.grace_ms is None else member.grace_ms)

    def come_back(self, member_id: str, request: str | None = None) -> None:
        """It calls, whatever it is answered; by its id, or by the request of a join that comes again."""
        for member in self.members:
            if member.member_id == member_id or (not member_id and request is not None and request in member.requests):
                member.lost_until = None
