"""One group, as plainly as can be: lists, and everything worked out anew each time. Slow, and meant to be obvious.

Written from the protocol's rules and not from the core's code, which it exists to be compared with: no facts, no
records, no timers that are set or cancelled. A deadline is a field, and time passes by looking for the earliest one.
Left out: request ids, and what a call says besides its code and the numbers that matter.
"""

from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

DEAD, EMPTY, PREPARING, COMPLETING, STABLE = (
    "Dead", "Empty", "PreparingRebalance", "CompletingRebalance", "Stable",
)  # fmt: skip
HEARTBEAT_INTERVAL_MS = 3_000

Offers = tuple[tuple[str, str], ...]
"""What a member offers: (protocol, topic), in order of preference."""
Answer = tuple[Any, ...]


@dataclass
class Member:
    """`until`: the end of its session. `new_until`: how long a new one may wait. `asked`: it has asked for its part."""

    member_id: str
    instance: str | None
    offers: Offers
    session_ms: int
    rebalance_ms: int
    until: int = 0
    new_until: int = 0
    is_new: bool = True
    joined: bool = False
    asked: bool = True
    part: Any = None

    def topic_under(self, protocol: str | None) -> str | None:
        return dict(self.offers).get(protocol or "")


@dataclass
class Waiting:
    """A call that waits: whose, for what, and how long."""

    member_id: str
    box: str
    until: int


@dataclass
class Stored:
    """What a crash leaves, but for the offsets."""

    generation: int = 0
    leader: str | None = None
    protocol: str | None = None
    counts: dict[str, int] = field(default_factory=dict)
    members: list[Member] = field(default_factory=list)


class Tie(Exception):  # noqa: N818
    """Two things are due at the same instant, and the rules do not say which comes first."""


class PlainGroup:
    """`answers` holds what every call was told, `waiting` the calls that were told nothing yet."""

    def __init__(self, *, max_size: int, delay_ms: int, wait_limit_ms: int, new_member_ms: int) -> None:
        self.max_size = max_size
        self.delay_ms = delay_ms
        self.wait_limit_ms = wait_limit_ms
        self.new_member_ms = new_member_ms
        self.now = 0
        self.state = DEAD
        self.generation = 0
        self.highest = 0
        self.leader: str | None = None
        self.protocol: str | None = None
        self.members: list[Member] = []
        self.pending: dict[str, int] = {}
        self.waiting: dict[int, Waiting] = {}
        self.answers: dict[int, Answer] = {}
        self.offsets: dict[int, int] = {}
        self.phase_until = 0
        self.in_initial_delay = False
        self.window = 0
        self.left = 0
        self.someone_new_came = False
        self.counts: dict[str, int] = {}
        self.registry: dict[str, int] = {}
        self.stored: Stored | None = None

    # --- questions ---------------------------------------------------------------------------------------------------

    def find(self, member_id: str) -> Member | None:
        return next((x for x in self.members if x.member_id == member_id), None)

    def seat(self, instance: str | None) -> Member | None:
        return next((x for x in self.members if instance is not None and x.instance == instance), None)

    @property
    def active(self) -> bool:
        return self.state in {COMPLETING, STABLE}

    def box_of(self, member_id: str, box: str) -> int | None:
        return next((c for c, w in self.waiting.items() if (w.member_id, w.box) == (member_id, box)), None)

    def waits(self, member: Member) -> bool:
        """For others: its session does not run meanwhile. A heartbeat that waits is something else."""
        return any(self.box_of(member.member_id, box) is not None for box in ("join", "sync"))

    def validate(self, member_id: str, instance: str | None) -> Answer | None:
        if instance is not None:
            seat = self.seat(instance)
            if seat is None:
                return ("UNKNOWN_MEMBER_ID",)
            if seat.member_id != member_id:
                return ("FENCED_INSTANCE_ID",)
        return ("UNKNOWN_MEMBER_ID",) if self.find(member_id) is None else None

    def vote(self, members: list[Member], leader: str | None) -> str:
        common = [n for n in ("range", "roundrobin") if all(n in dict(x.offers) for x in members)]
        if not common:
            return self.protocol or ""
        votes = [next(name for name, _ in x.offers if name in common) for x in members]
        most = max(votes.count(name) for name in common)
        tied = [name for name in common if votes.count(name) == most]
        boss = next((x for x in members if x.member_id == leader), None)
        order = [name for name, _ in boss.offers] if boss is not None else []
        return min(tied, key=lambda name: (order.index(name) if name in order else 99, name))

    def counts_of(self, members: list[Member]) -> dict[str, int]:
        topics = {x.offers[0][1] for x in members}
        return {topic: count for topic, count in self.registry.items() if topic in topics}

    # --- letter-boxes ------------------------------------------------------------------------------------------------

    def answer(self, call: int | None, *what: Any) -> None:
        if call is not None:
            assert call not in self.answers
            self.answers[call] = what
            self.waiting.pop(call, None)

    def let_wait(self, call: int, member: Member, box: str, wait_ms: int | None) -> None:
        """A newer call of the same member takes the place of the one that waits, which is told so."""
        self.answer(self.box_of(member.member_id, box), "superseded")
        limit = self.wait_limit_ms if wait_ms is None else min(wait_ms, self.wait_limit_ms)
        self.waiting[call] = Waiting(member.member_id, box, self.now + limit)

    def remove(self, member: Member, *why: Any) -> None:
        for box in ("join", "sync", "heartbeat"):
            self.answer(self.box_of(member.member_id, box), *why)
        self.members.remove(member)
        if self.leader == member.member_id:
            self.leader = self.members[0].member_id if self.members else None

    def hear(self, member: Member) -> None:
        member.until = self.now + member.session_ms

    # --- join --------------------------------------------------------------------------------------------------------

    def join(self, call: int, new_id: str, member_id: str, instance: str | None, offers: Offers, session_ms: int,
             rebalance_ms: int, wait_ms: int | None) -> None:  # fmt: skip
        if self.state == DEAD and member_id:
            return self.answer(call, "UNKNOWN_MEMBER_ID")
        member = self.find(member_id)
        if self.is_full(member) and not (not member_id and self.seat(instance) is not None):
            if member is not None:
                self.remove(member, "GROUP_MAX_SIZE_REACHED")
            self.pending.pop(member_id, None)
            self.answer(call, "GROUP_MAX_SIZE_REACHED")
            return self.settle()
        if self.state not in {DEAD, EMPTY} and not any(
            all(name in dict(x.offers) for x in self.members) for name, _ in offers
        ):
            return self.answer(call, "INCONSISTENT_GROUP_PROTOCOL")
        if self.state == DEAD:
            self.state = EMPTY
            self.stored = Stored()
        seat = self.seat(instance)
        if not member_id and instance is None:
            self.pending[new_id] = self.now + session_ms
            return self.answer(call, "MEMBER_ID_REQUIRED", new_id)
        if not member_id and seat is not None:
            return self.take_over(call, seat, new_id, offers, session_ms, rebalance_ms, wait_ms)
        if not member_id or (member_id in self.pending and instance is None):
            self.pending.pop(member_id, None)
            added = Member(member_id or new_id, instance, offers, session_ms, rebalance_ms)
            added.until = added.new_until = self.now + self.new_member_ms
            added.joined = True
            self.members.append(added)
            self.leader = self.leader or added.member_id
            self.someone_new_came = True
            self.let_wait(call, added, "join", wait_ms)
            return self.begin()
        refusal = self.validate(member_id, instance)
        if refusal is not None:
            return self.answer(call, *refusal)
        assert member is not None
        same = self.same(member, offers)
        if self.active and same and (self.state == COMPLETING or member.member_id != self.leader):
            self.hear(member)
            member.offers = offers
            return self.answer(call, *self.joined(member))
        member.offers, member.session_ms, member.rebalance_ms = offers, session_ms, rebalance_ms
        member.joined = True
        self.let_wait(call, member, "join", wait_ms)
        member.until = member.new_until if member.is_new else self.now + session_ms
        return self.begin()

    def is_full(self, member: Member | None) -> bool:
        if self.state == PREPARING:
            has_joined = member is not None and member.joined
            return not has_joined and sum(x.joined for x in self.members) >= self.max_size
        return self.active and member is None and len(self.members) >= self.max_size

    def same(self, member: Member, offers: Offers) -> bool:
        """Of a member of which no more is known than what is stored, only the protocol in use can be compared."""
        stored = [x for x in (self.stored.members if self.stored else []) if x.member_id == member.member_id]
        if stored and member.offers == ((self.protocol, stored[0].topic_under(self.protocol)),):
            return dict(offers).get(member.offers[0][0]) == member.offers[0][1]
        return offers == member.offers

    def joined(self, member: Member, *, skip: bool = False) -> Answer:
        leads = member.member_id == self.leader
        everyone = tuple((x.member_id, x.topic_under(self.protocol)) for x in self.members) if leads else ()
        return ("joined", self.generation, self.protocol, self.leader, member.member_id, everyone, skip)

    def take_over(self, call: int, seat: Member, new_id: str, offers: Offers, session_ms: int, rebalance_ms: int,
                  wait_ms: int | None) -> None:  # fmt: skip
        for box in ("join", "sync", "heartbeat"):
            self.answer(self.box_of(seat.member_id, box), "FENCED_INSTANCE_ID")
        old_id, old_topic = seat.member_id, seat.topic_under(self.protocol)
        seat.member_id, seat.offers, seat.session_ms, seat.rebalance_ms = new_id, offers, session_ms, rebalance_ms
        self.hear(seat)
        old_leader = self.leader
        if self.leader == old_id:
            self.leader = new_id
        stays = self.vote(self.members, self.leader) == self.protocol and seat.topic_under(self.protocol) == old_topic
        if self.state == STABLE and stays:
            assert self.stored is not None
            self.stored.leader = self.leader
            kept = next(x for x in self.stored.members if x.member_id == old_id)
            self.stored.members[self.stored.members.index(kept)] = deepcopy(seat)
            return self.answer(call, *self.joined(seat, skip=old_leader == old_id))
        seat.joined = True
        self.let_wait(call, seat, "join", wait_ms)
        return self.begin()

    # --- rounds ------------------------------------------------------------------------------------------------------

    def longest(self) -> int:
        return max((x.rebalance_ms for x in self.members), default=0)

    def begin(self) -> None:
        """Everyone is asked to join, unless everyone is asked already. Those who wait for something else hear of it."""
        if self.state != PREPARING:
            self.in_initial_delay = self.state == EMPTY and self.delay_ms > 0
            self.phase_until = self.now + (self.delay_ms if self.in_initial_delay else self.longest())
            self.window, self.left = self.delay_ms, max(self.longest() - self.delay_ms, 0)
            self.someone_new_came = False
            for call, waiting in list(self.waiting.items()):
                if waiting.box != "join":
                    self.answer(call, "REBALANCE_IN_PROGRESS")
                    member = self.find(waiting.member_id)
                    assert member is not None
                    self.hear(member)
            self.state = PREPARING
        self.settle()

    def settle(self) -> None:
        everyone_is_here = all(x.joined for x in self.members) and not self.pending
        if self.state == PREPARING and not self.in_initial_delay and everyone_is_here:
            self.complete()

    def join_time_is_over(self) -> None:
        if self.in_initial_delay and self.someone_new_came and self.left:
            before, self.window = self.window, min(self.delay_ms, self.left)
            self.left = max(self.left - before, 0)
            self.someone_new_came = False
            self.phase_until = self.now + self.window
        else:
            self.complete()

    def complete(self) -> None:
        staying = [x for x in self.members if x.joined or x.instance is not None]
        if staying and not any(x.joined for x in staying):
            self.phase_until = self.now + max(HEARTBEAT_INTERVAL_MS, *(x.rebalance_ms for x in staying))
            return
        for member in [x for x in self.members if x not in staying]:
            self.remove(member, "UNKNOWN_MEMBER_ID")
        self.generation = self.highest = max(self.generation, self.highest) + 1
        self.in_initial_delay = False
        if not staying:
            self.state, self.protocol, self.leader, self.counts = EMPTY, None, None, {}
            self.stored = Stored(self.generation)
            return
        self.leader = next(x for x in self.members if x.joined).member_id
        self.protocol = self.vote(self.members, self.leader)
        self.counts = self.counts_of(self.members)
        self.phase_until = self.now + self.longest()
        self.state = COMPLETING
        for member in self.members:
            member.joined, member.is_new, member.asked = False, False, False
            self.hear(member)
            self.answer(self.box_of(member.member_id, "join"), *self.joined(member))

    def sync_time_is_over(self) -> None:
        for member in [x for x in self.members if not x.asked]:
            self.remove(member, "UNKNOWN_MEMBER_ID")
        self.begin()

    def sync(self, call: int, member_id: str, instance: str | None, generation: int, protocol: str | None,
             parts: dict[str, Any], wait_ms: int | None) -> None:  # fmt: skip
        refusal = self.validate(member_id, instance)
        if refusal is not None:
            return self.answer(call, *refusal)
        if generation != self.generation:
            return self.answer(call, "ILLEGAL_GENERATION")
        if protocol != self.protocol:
            return self.answer(call, "INCONSISTENT_GROUP_PROTOCOL")
        if self.state == PREPARING:
            return self.answer(call, "REBALANCE_IN_PROGRESS")
        member = self.find(member_id)
        assert member is not None
        member.asked = True
        self.let_wait(call, member, "sync", wait_ms)
        if self.state == COMPLETING and member_id == self.leader:
            for each in self.members:
                each.part = parts.get(each.member_id)
            self.state = STABLE
            self.stored = Stored(self.generation, self.leader, self.protocol, dict(self.counts), deepcopy(self.members))
        if self.state == STABLE:
            for each in self.members:
                if self.box_of(each.member_id, "sync") is not None:
                    self.hear(each)
                    self.answer(self.box_of(each.member_id, "sync"), "part", each.part)
        return None

    # --- the rest of a life ------------------------------------------------------------------------------------------

    def heartbeat(self, call: int, member_id: str, instance: str | None, generation: int, wait_ms: int) -> None:
        refusal = self.validate(member_id, instance)
        if refusal is not None:
            return self.answer(call, *refusal)
        if generation != self.generation:
            return self.answer(call, "ILLEGAL_GENERATION")
        member = self.find(member_id)
        assert member is not None
        self.hear(member)
        if self.state == PREPARING:
            self.answer(call, "REBALANCE_IN_PROGRESS")
        elif wait_ms:
            self.let_wait(call, member, "heartbeat", min(wait_ms, member.session_ms // 2))
        else:
            self.answer(call, "NONE")
        return None

    def leave(self, call: int, member_ids: list[str]) -> None:
        results = []
        someone_went = False
        for member_id in member_ids:
            member = self.find(member_id)
            known = member is not None or member_id in self.pending
            results.append("NONE" if known else "UNKNOWN_MEMBER_ID")
            self.pending.pop(member_id, None)
            if member is not None:
                self.remove(member, "UNKNOWN_MEMBER_ID")
                someone_went = True
        self.answer(call, *results)
        if someone_went and self.active:
            self.begin()
        self.settle()

    def commit(self, call: int, member_id: str, instance: str | None, generation: int, partition: int,
               offset: int) -> None:  # fmt: skip
        of_nobody = generation < 0 and self.state in {DEAD, EMPTY}
        if not of_nobody:
            if self.state == DEAD:
                return self.answer(call, "ILLEGAL_GENERATION")
            if generation < 0 and not member_id and instance is None:
                return self.answer(call, "UNKNOWN_MEMBER_ID")
            refusal = self.validate(member_id, instance)
            if refusal is not None:
                return self.answer(call, *refusal)
            if generation != self.generation:
                return self.answer(call, "ILLEGAL_GENERATION")
            if self.state == COMPLETING:
                return self.answer(call, "REBALANCE_IN_PROGRESS")
        if self.state == DEAD:
            self.state = EMPTY
            self.stored = Stored()
        member = self.find(member_id)
        if member is not None:
            self.hear(member)
        if partition >= self.registry.get("t", partition + 1):
            return self.answer(call, "UNKNOWN_TOPIC_OR_PARTITION")
        self.offsets[partition] = offset
        return self.answer(call, "NONE")

    def hang_up(self, call: int) -> None:
        waiting = self.waiting.pop(call, None)
        if waiting is not None and waiting.box != "heartbeat":
            member = self.find(waiting.member_id)
            assert member is not None
            self.hear(member)

    def topics(self, registry: dict[str, int]) -> None:
        self.registry = registry
        if self.active and self.counts_of(self.members) != self.counts:
            self.begin()

    def crash(self) -> None:
        self.waiting.clear()
        self.pending.clear()
        self.in_initial_delay = False
        if self.stored is None:
            return
        kept = deepcopy(self.stored)
        self.generation, self.leader, self.protocol, self.counts = (
            kept.generation,
            kept.leader,
            kept.protocol,
            kept.counts,
        )
        self.members = kept.members
        for member in self.members:
            # Of what it offered, only the protocol in use was stored.
            member.offers = ((self.protocol or "", str(member.topic_under(self.protocol))),)
            member.joined, member.is_new, member.asked = False, False, True
            self.hear(member)
        self.state = STABLE if self.members else EMPTY
        self.topics(self.registry)

    # --- time --------------------------------------------------------------------------------------------------------

    def due(self) -> list[tuple[int, str, Any]]:
        """Everything that will happen by itself: when, what, to whom."""
        found: list[tuple[int, str, Any]] = [(until, "unused id", x) for x, until in self.pending.items()]
        found += [(waiting.until, "wait", call) for call, waiting in self.waiting.items()]
        if self.state == PREPARING:
            found.append((self.phase_until, "join phase", None))
        if self.active and not all(x.asked for x in self.members):
            found.append((self.phase_until, "sync phase", None))
        for member in self.members:
            if not self.waits(member):
                found.append((member.until, "session", member.member_id))
            elif member.is_new:
                found.append((max(member.until, member.new_until), "session", member.member_id))
        return sorted(found, key=lambda event: event[0])

    def advance(self, ms: int) -> None:
        until = self.now + ms
        while (due := self.due()) and due[0][0] <= until:
            at, what, whom = due[0]
            if len(due) > 1 and due[1][0] == at and not (what == due[1][1] and what in {"unused id", "wait"}):
                raise Tie(f"{what} and {due[1][1]}")
            self.now = max(self.now, at)
            self.happen(what, whom)
        self.now = until

    def happen(self, what: str, whom: Any) -> None:
        match what:
            case "unused id":
                del self.pending[whom]
                self.settle()
            case "join phase":
                self.join_time_is_over()
            case "sync phase":
                self.sync_time_is_over()
            case "session":
                member = self.find(whom)
                assert member is not None
                self.remove(member, "UNKNOWN_MEMBER_ID")
                if self.active:
                    self.begin()
                self.settle()
            case "wait":
                waiting = self.waiting[whom]
                member = self.find(waiting.member_id)
                assert member is not None
                self.hear(member)
                self.answer(whom, "NONE" if waiting.box == "heartbeat" else "202")
