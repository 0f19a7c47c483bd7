"""Who is in the plain group: joining, coming back, leaving, living on."""

from copy import deepcopy

from tests.model.plain_rebalances import PlainRebalances
from tests.model.plain_state import COMPLETING, DEAD, EMPTY, PREPARING, STABLE, HandedOut, Join, Member


class PlainMembers(PlainRebalances):
    """Join, heartbeat, leave."""

    def join(self, call: int, wish: Join) -> None:
        self.come_back(wish.member_id, wish.request)
        if self.repeats(call, wish):
            return None
        if self.state == DEAD and wish.member_id:
            return self.answer(call, "UNKNOWN_MEMBER_ID")
        member, slot = self.find(wish.member_id), self.slot(wish.instance)
        takes_over = not wish.member_id and slot is not None
        if self.is_full(member) and not takes_over:
            if member is not None:
                self.remove(member, "GROUP_MAX_SIZE_REACHED")
            self.handed_out.pop(wish.member_id, None)
            self.answer(call, "GROUP_MAX_SIZE_REACHED")
            return self.settle()
        if not self.suits(wish):
            return self.answer(call, "INCONSISTENT_GROUP_PROTOCOL")
        if self.state == DEAD:
            self.appear()
        if not wish.member_id and wish.instance is None:
            if not self.makes_place(wish.network):
                return self.answer(call, "THROTTLING_QUOTA_EXCEEDED")
            self.last_came = self.now
            until = self.now + min(wish.session_ms, self.limits.unused_ms)
            self.handed_out[wish.new_id] = HandedOut(until, wish.request, wish.network)
            return self.answer(call, "MEMBER_ID_REQUIRED", wish.new_id)
        if not wish.member_id and slot is not None:
            return self.take_over(call, slot, wish)
        if not wish.member_id or (wish.member_id in self.handed_out and wish.instance is None):
            return self.add(call, wish)
        refusal = self.validate(wish.member_id, wish.instance)
        if refusal is not None:
            return self.answer(call, *refusal)
        assert member is not None
        return self.join_again(call, member, wish)

    def makes_place(self, network: str) -> bool:
        """For one more unused id: whoever has most has one less, unless that would be too much like taking turns."""
        if len(self.handed_out) < self.limits.unused_max:
            return True
        networks = [of.network for of in self.handed_out.values()]
        greediest = max(networks, key=networks.count)
        if networks.count(greediest) < networks.count(network) + 2:
            return False
        del self.handed_out[next(x for x, of in self.handed_out.items() if of.network == greediest)]
        return True

    def repeats(self, call: int, wish: Join) -> bool:
        """A join that was heard before is answered as before, and moves nothing."""
        if wish.request is None:
            return False
        unused = next((x for x, of in self.handed_out.items() if of.request == wish.request), None)
        member = next((x for x in self.members if wish.request in x.requests), None)
        if unused is not None and not wish.member_id:
            self.answer(call, "MEMBER_ID_REQUIRED", unused)
            return True
        if member is None or wish.member_id not in {"", member.member_id}:
            return False
        if not wish.member_id and wish.request == member.requests[0]:
            self.answer(call, "MEMBER_ID_REQUIRED", member.member_id)
        elif member.joined:
            self.let_wait(call, member, "join", wish.wait_ms)
            member.until = member.new_until if member.is_new else self.now + wish.session_ms
        elif self.active:
            self.hear(member)
            self.answer(call, *self.joined(member))
        else:
            return False
        return True

    def is_full(self, member: Member | None) -> bool:
        """Ids that were handed out do not count."""
        if self.state == PREPARING:
            has_joined = member is not None and member.joined
            return not has_joined and sum(x.joined for x in self.members) >= self.limits.max_size
        return self.active and member is None and len(self.members) >= self.limits.max_size

    def suits(self, wish: Join) -> bool:
        if self.state in {DEAD, EMPTY}:
            return bool(wish.kind) and bool(wish.offers)
        everyones = (name for name, _ in wish.offers if all(name in dict(x.offers) for x in self.members))
        return wish.kind == self.kind and any(everyones)

    def add(self, call: int, wish: Join) -> None:
        unused = self.handed_out.pop(wish.member_id, None)
        added = Member(
            member_id=wish.member_id or wish.new_id,
            instance=wish.instance,
            offers=wish.offers,
            session_ms=wish.session_ms,
            rebalance_ms=wish.rebalance_ms,
            grace_ms=wish.grace_ms,
            requests=(unused.request if unused is not None else None, wish.request),
            arrived=self.ever_arrived,
        )
        self.ever_arrived += 1
        added.until = added.new_until = self.now + self.limits.new_member_ms
        added.joined = True
        if not self.members:
            self.kind = wish.kind
        self.members.append(added)
        self.leader = self.leader or added.member_id
        self.someone_new_came = True
        if unused is None or self.state != PREPARING:
            self.last_came = self.now
        self.pass_instance_on(wish.instance, added)
        self.let_wait(call, added, "join", wish.wait_ms)
        self.begin()

    def join_again(self, call: int, member: Member, wish: Join) -> None:
        requests = (member.requests[0], wish.request)
        if self.active and self.says_the_same(member, wish) and (
            self.state == COMPLETING or member.member_id != self.leader
        ):  # fmt: skip
            self.hear(member)
            member.offers, member.requests = wish.offers, requests
            return self.answer(call, *self.joined(member))
        member.offers, member.requests, member.skip = wish.offers, requests, False
        member.session_ms, member.rebalance_ms, member.grace_ms = wish.session_ms, wish.rebalance_ms, wish.grace_ms
        member.joined = True
        self.let_wait(call, member, "join", wish.wait_ms)
        member.until = member.new_until if member.is_new else self.now + wish.session_ms
        return self.begin()

    def says_the_same(self, member: Member, wish: Join) -> bool:
        """Of a member of which no more is known than what is stored, only the protocol in use can be compared."""
        stored = self.stored.find(member.member_id) if self.stored else None
        if stored is not None and member.offers == ((self.protocol, stored.offers[0][1]),):
            return dict(wish.offers).get(member.offers[0][0]) == member.offers[0][1]
        return wish.offers == member.offers

    def take_over(self, call: int, slot: Member, wish: Join) -> None:
        """A static member comes back without its id. In Stable, who says the same goes on where the old one was."""
        for kind in ("join", "sync", "heartbeat"):
            self.answer(self.waiting_call(slot.member_id, kind), "FENCED_INSTANCE_ID")
        old_topic, led = slot.topic_under(self.protocol), self.leader == slot.member_id
        slot.member_id, slot.offers, slot.requests = wish.new_id, wish.offers, (None, wish.request)
        slot.session_ms, slot.rebalance_ms, slot.grace_ms = wish.session_ms, wish.rebalance_ms, wish.grace_ms
        slot.skip, slot.lost_until = False, None
        self.hear(slot)
        if led:
            self.leader = slot.member_id
        self.pass_instance_on(wish.instance, slot)
        if self.state == STABLE and self.vote() == self.protocol and slot.topic_under(self.protocol) == old_topic:
            assert self.stored is not None
            slot.skip = led
            self.stored.leader = self.leader
            kept = self.stored.find(slot.member_id)
            assert kept is not None
            self.stored.members[self.stored.members.index(kept)] = self.to_store(deepcopy(slot))
            return self.answer(call, *self.joined(slot))
        slot.joined = True
        self.let_wait(call, slot, "join", wish.wait_ms)
        return self.begin()

    # --- living and leaving ------------------------------------------------------------------------------------------

    def heartbeat(self, call: int, member_id: str, instance: str | None, generation: int, wait_ms: int) -> None:
        self.come_back(member_id)
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

    def kick(self, call: int, names: list[str], dry: bool) -> None:
        """An operator names members by id, or static ones by their place. What is stored of them counts no more."""
        if self.state == DEAD:
            return self.answer(call, "GROUP_ID_NOT_FOUND")
        found: list[str | None] = []
        for name in names:
            by_place = self.slot(name)
            known = name if name in self.handed_out or self.find(name) else by_place.member_id if by_place else None
            found.append(None if known in found else known)
        self.answer(call, *("UNKNOWN_MEMBER_ID" if x is None else "NONE" for x in found))
        if dry:
            return None
        someone_went = False
        for member_id in filter(None, found):
            self.handed_out.pop(member_id, None)
            member = self.find(member_id)
            if member is not None:
                self.remove(member, "UNKNOWN_MEMBER_ID")
                someone_went = True
                self.let_no_crash_bring_back(member_id)
        if someone_went and self.active:
            self.begin()
        return self.settle()

    def leave(self, call: int, leavers: list[tuple[str, str | None]]) -> None:
        """Each (member id, instance id). One rebalance follows at most."""
        results = []
        someone_went = False
        for named_id, instance in leavers:
            slot = self.slot(instance)
            member_id = slot.member_id if not named_id and slot is not None else named_id
            if member_id in self.handed_out:
                del self.handed_out[member_id]
                results.append("NONE")
                continue
            refusal = self.validate(member_id, instance)
            results.append(refusal[0] if refusal is not None else "NONE")
            member = self.find(member_id)
            if refusal is None and member is not None:
                self.remove(member, "UNKNOWN_MEMBER_ID")
                someone_went = True
        self.answer(call, *results)
        if someone_went and self.active:
            self.begin()
        self.settle()
