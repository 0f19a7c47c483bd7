"""The rebalances of the plain group: everyone is asked to join, a generation is made, the parts are handed out."""

from copy import deepcopy
from typing import Any

from tests.model.plain_state import COMPLETING, DEAD, EMPTY, PREPARING, STABLE, Answer, Member, PlainState, Stored


class PlainRebalances(PlainState):
    """Begin, settle, complete, sync."""

    def vote(self) -> str:
        """Each votes for the first of its own that all offer. Ties go by the leader's order, then by the name."""
        common = [name for name, _ in self.members[0].offers if all(name in dict(x.offers) for x in self.members)]
        votes = [next(name for name, _ in x.offers if name in common) for x in self.members]
        most = max(votes.count(name) for name in common)
        tied = [name for name in common if votes.count(name) == most]
        boss = self.find(self.leader or "")
        order = [name for name, _ in boss.offers] if boss is not None else []
        return min(tied, key=lambda name: (order.index(name) if name in order else 99, name))

    def joined(self, member: Member) -> Answer:
        leads = member.member_id == self.leader
        everyone = tuple((x.member_id, x.instance, x.topic_under(self.protocol)) for x in self.members)
        told = everyone if leads else ()
        return ("joined", self.generation, self.protocol, self.leader, member.member_id, told, leads and member.skip)

    def begin(self) -> None:
        """Everyone is asked to join, unless everyone is asked already. Those who wait for something else hear of it."""
        if self.state != PREPARING:
            self.in_initial_delay = self.state == EMPTY and self.limits.delay_ms > 0
            self.phase_until = self.now + (self.limits.delay_ms if self.in_initial_delay else self.patience())
            self.window, self.left = self.limits.delay_ms, max(self.longest() - self.limits.delay_ms, 0)
            self.someone_new_came = False
            for call, waiting in list(self.waiting.items()):
                if waiting.kind != "join":
                    self.answer(call, "REBALANCE_IN_PROGRESS")
                    member = self.find(waiting.member_id)
                    assert member is not None
                    self.hear(member)
            self.turn(PREPARING)
        self.settle()

    def settle(self) -> None:
        if self.everyone_is_here() and self.now >= self.lingers_until():
            self.complete()

    def everyone_is_here(self) -> bool:
        """In a join phase that the initial delay does not hold open."""
        is_open = self.state == PREPARING and not self.in_initial_delay
        return is_open and all(x.joined for x in self.members)

    def lingers_until(self) -> int:
        """Perhaps more are on their way: those who were given ids, so long as these are good for; and others, until it
        was quiet for a while, or half as long as they have been coming.
        """
        if self.handed_out:
            return self.since + self.limits.unused_ms
        if not self.members:
            return self.now
        quiet = max(self.limits.quiet_ms, (self.last_came - self.since) // 2)
        return min(self.last_came + quiet, self.since + self.limits.linger_ms)

    def patience(self) -> int:
        """How long a join phase waits: as long as members say, but no longer than an operator."""
        return self.longest() if self.join_wait_ms is None else min(self.longest(), self.join_wait_ms)

    def set_join_wait(self, call: int, wait_ms: int | None) -> None:
        if self.state == DEAD:
            return self.answer(call, "GROUP_ID_NOT_FOUND")
        if wait_ms is not None and wait_ms < self.limits.heartbeat_interval_ms:
            return self.answer(call, "INVALID_REQUEST")
        self.join_wait_ms = wait_ms
        if self.state == PREPARING and not self.in_initial_delay:
            self.phase_until = max(self.now, self.since + self.patience())
        return self.answer(call, "waits", wait_ms)

    def proceed(self, call: int, dry: bool) -> None:
        """Without those who are awaited: in the join phase all others, then the leader alone."""
        if self.state == DEAD:
            return self.answer(call, "GROUP_ID_NOT_FOUND")
        absent: list[str] = []
        if self.state == PREPARING:
            if not any(x.joined for x in self.members):
                return self.answer(call, "INVALID_REQUEST")
            absent = [*(x.member_id for x in self.members if not x.joined), *self.handed_out]
        elif self.state == COMPLETING:
            absent = [self.leader or ""]
        self.answer(call, "left out", tuple(absent))
        if dry or (not absent and self.state != PREPARING):
            return None
        for member_id in absent:
            self.handed_out.pop(member_id, None)
            member = self.find(member_id)
            if member is not None:
                self.remove(member, "UNKNOWN_MEMBER_ID")
                self.let_no_crash_bring_back(member_id)
        return self.complete() if self.state == PREPARING else self.begin()

    def join_time_is_over(self) -> None:
        if self.in_initial_delay and self.someone_new_came and self.left:
            before, self.window = self.window, min(self.limits.delay_ms, self.left)
            self.left = max(self.left - before, 0)
            self.someone_new_came = False
            self.phase_until = self.now + self.window
        elif (
            not self.in_initial_delay
            and self.join_wait_ms is not None
            and self.now < self.since + self.longest()
            and not any(x.joined for x in self.members)
        ):
            self.phase_until = min(self.now + self.limits.heartbeat_interval_ms, self.since + self.longest())
        else:
            self.complete()

    def complete(self) -> None:
        staying = [x for x in self.members if x.joined or x.instance is not None]
        for member in [x for x in self.members if x not in staying]:
            self.remove(member, "UNKNOWN_MEMBER_ID")
        if staying and not any(x.joined for x in staying):
            self.phase_until = self.now + max(self.limits.heartbeat_interval_ms, *(x.rebalance_ms for x in staying))
            return
        self.generation = self.highest = max(self.generation, self.highest) + 1
        self.in_initial_delay = False
        if not staying:
            self.turn(EMPTY)
            self.protocol, self.leader, self.counts = None, None, {}
            self.stored = Stored(self.now, self.kind, self.generation)
            return
        self.leader = next(x for x in self.members if x.joined).member_id
        self.protocol = self.vote()
        self.counts = self.counts_now()
        self.phase_until = self.now + self.longest()
        self.turn(COMPLETING)
        for member in self.members:
            member.joined, member.is_new, member.asked, member.skip = False, False, False, False
            self.hear(member)
            self.answer(self.waiting_call(member.member_id, "join"), *self.joined(member))

    def topics(self, registry: dict[str, int]) -> None:
        self.registry = registry
        if self.active and self.counts_now() != self.counts:
            self.begin()

    # --- sync --------------------------------------------------------------------------------------------------------

    def sync(self, call: int, member_id: str, instance: str | None, generation: int, protocol: str | None,
             kind: str | None, parts: dict[str, Any], wait_ms: int | None) -> None:  # fmt: skip
        self.come_back(member_id)
        refusal = self.validate(member_id, instance)
        if refusal is not None:
            return self.answer(call, *refusal)
        if generation != self.generation:
            return self.answer(call, "ILLEGAL_GENERATION")
        if protocol not in (None, self.protocol) or kind not in (None, self.kind):
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
            self.turn(STABLE)
            self.store()
        if self.state == STABLE:
            for each in self.members:
                if self.waiting_call(each.member_id, "sync") is not None:
                    self.hear(each)
                    self.answer(self.waiting_call(each.member_id, "sync"), "part", self.protocol, each.part)
        return None

    def sync_time_is_over(self) -> None:
        for member in [x for x in self.members if not x.asked]:
            self.remove(member, "UNKNOWN_MEMBER_ID")
        self.begin()

    # --- what is stored ----------------------------------------------------------------------------------------------

    def store(self) -> None:
        """The rebalance as it stands. A member that has changed in its request alone is not written."""
        before = self.stored
        assert before is not None
        now = [self.to_store(x) for x in self.members]
        for at, member in enumerate(now):
            kept = before.find(member.member_id)
            if kept is not None and said(kept, before.protocol) == said(member, self.protocol):
                now[at] = kept
        self.stored = Stored(
            self.now, self.kind, self.generation, self.leader, self.protocol, dict(self.counts), now
        )  # fmt: skip

    def to_store(self, member: Member) -> Member:
        """A copy; of what it offers, the protocol in use is kept."""
        copy = deepcopy(member)
        copy.offers = ((self.protocol or "", str(member.topic_under(self.protocol))),)
        return copy

    def let_no_crash_bring_back(self, member_id: str) -> None:
        kept = self.stored.find(member_id) if self.stored is not None else None
        if kept is None or self.stored is None:
            return
        self.stored.members.remove(kept)
        self.stored.someone_was_kicked = True
        if self.stored.leader == member_id:
            self.stored.leader = self.stored.members[0].member_id if self.stored.members else None

    def pass_instance_on(self, instance: str | None, member: Member) -> None:
        """What is stored of the instance's slot goes to the new id at once; what its process said stays to be compared.

        Else a crash would bring the old id back, and it would fence the live process.
        """
        kept = (
            next((x for x in self.stored.members if instance and x.instance == instance), None) if self.stored else None
        )
        if kept is None or self.stored is None:
            return
        if self.stored.leader == kept.member_id:
            self.stored.leader = member.member_id
        kept.member_id, kept.requests = member.member_id, (None, None)
        kept.session_ms, kept.rebalance_ms, kept.grace_ms = member.session_ms, member.rebalance_ms, member.grace_ms


def said(member: Member, protocol: str | None) -> tuple[Any, ...]:
    """All that is stored of a member but its request id."""
    times = (member.session_ms, member.rebalance_ms, member.grace_ms)
    return member.instance, member.arrived, times, member.topic_under(protocol), member.part
