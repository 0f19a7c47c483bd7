"""The plain group as a whole: what time does to it, and what a crash leaves."""

from copy import deepcopy
from typing import Any

from rallypoint.protocol.group_hash import java_string_hash
from tests.model.plain_offsets import PlainOffsets
from tests.model.plain_state import EMPTY, PREPARING, STABLE

ID = "g"


class Tie(Exception):  # noqa: N818
    """Two things are due at the same instant, and the rules do not say which comes first."""


class PlainGroup(PlainOffsets):
    """Time, and the loss of it."""

    def crash(self) -> None:
        """Memory is lost. What was stored goes on, and each member has one whole session to be heard of."""
        self.waiting.clear()
        self.handed_out.clear()
        self.in_initial_delay = False
        self.last_came = 0
        if self.stored is None:
            return
        kept = deepcopy(self.stored)
        self.kind, self.since = kept.kind, kept.since
        self.generation, self.leader, self.protocol = kept.generation, kept.leader, kept.protocol
        self.counts, self.members = kept.counts, kept.members
        for member in self.members:
            member.joined, member.is_new, member.asked, member.skip = False, False, True, False
            member.requests, member.lost_until = (None, member.requests[1]), None
            self.hear(member)
        self.state = STABLE if self.members or kept.someone_was_kicked else EMPTY
        # Groups that are loaded together do not all look at the same time.
        every_ms = self.limits.look_every_ms
        self.look_at = self.now + every_ms - java_string_hash(ID) % (every_ms // 2 + 1)
        if kept.someone_was_kicked:
            self.begin()
        self.topics(self.registry)

    def due(self) -> list[tuple[int, str, Any]]:
        """Everything that will happen by itself: when, what, to whom."""
        found: list[tuple[int, str, Any]] = [(x.until, "unused id", who) for who, x in self.handed_out.items()]
        found += [(waiting.until, "wait", call) for call, waiting in self.waiting.items()]
        if self.look_at is not None:
            found.append((self.look_at, "look", None))
        if self.state == PREPARING:
            found.append((self.phase_until, "join phase", None))
        if self.everyone_is_here():
            found.append((self.lingers_until(), "linger", None))
        if self.active and not all(x.asked for x in self.members):
            found.append((self.phase_until, "sync phase", None))
        for member in self.members:
            if member.lost_until is not None:
                found.append((member.lost_until, "grace", member.member_id))
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

    def expire(self, member_id: str) -> None:
        member = self.find(member_id)
        assert member is not None
        self.remove(member, "UNKNOWN_MEMBER_ID")
        if self.active:
            self.begin()
        self.settle()

    def happen(self, what: str, whom: Any) -> None:
        match what:
            case "unused id":
                del self.handed_out[whom]
                self.settle()
            case "linger":
                self.settle()
            case "join phase":
                self.join_time_is_over()
            case "sync phase":
                self.sync_time_is_over()
            case "look":
                self.look()
            case "session":
                self.expire(whom)
            case "grace":
                member = self.find(whom)
                assert member is not None
                member.lost_until = None
                if not any(waiting.member_id == whom for waiting in self.waiting.values()):
                    # Else it has another connection, on which it waits.
                    self.expire(whom)
            case "wait":
                waiting = self.waiting[whom]
                member = self.find(waiting.member_id)
                assert member is not None
                self.hear(member)
                self.answer(whom, "NONE" if waiting.kind == "heartbeat" else "202")
