"""What a rule hands back: facts to write, effects to release, and what follows in the same step."""

from dataclasses import dataclass, field

from coordinator.core import notes as n
from coordinator.core import records as r
from coordinator.core.apply import Fact
from coordinator.core.commands import Call, Command, Moment, TimerKey, TimerKind
from coordinator.core.effects import CancelTimer, Effect, Event, Failure, GroupAnswer, Notify, Reply, SetTimer
from coordinator.core.group import Box, Group, Member
from protocol.errors import ErrorCode

RECORD_TYPES: frozenset[type] = frozenset(
    (
        r.GroupRecord,
        r.MemberRecord,
        r.MemberForgotten,
        r.OffsetRecord,
        r.OffsetForgotten,
        r.GroupForgotten,
        r.RebalanceRecord,
        r.RebalanceForgotten,
        r.HoldRecord,
        r.HoldForgotten,
        r.DeletionsRecord,
        r.DeletionsForgotten,
    )
)
"""Facts that are stored; none of them has subclasses."""


@dataclass(slots=True)
class Draft:
    """A decision in the making. Rules add to it and read the group as it was; `then` sees the facts written."""

    facts: list[Fact] = field(default_factory=list)
    effects: list[Effect] = field(default_factory=list)
    then: list[Command] = field(default_factory=list)

    def fact(self, fact: Fact) -> None:
        """Say that this happened."""
        self.facts.append(fact)

    def notify(self, event: Event) -> None:
        """Tell whoever watches."""
        self.effects.append(Notify(event))

    def reply(self, call: Call, answer: GroupAnswer | Failure) -> None:
        """Answer the call that is being decided."""
        self.effects.append(Reply(call.call_id, answer))

    def refuse(self, call: Call, code: ErrorCode, detail: str, *, field: str | None = None) -> None:
        """Answer the call that is being decided with an error that needs nothing but a sentence."""
        self.effects.append(Reply(call.call_id, Failure(code, detail, field=field)))

    # --- timers ------------------------------------------------------------------------------------------------------

    def set_timer(self, key: TimerKey, deadline_ms: int) -> None:
        """Set or move a timer."""
        self.effects.append(SetTimer(key, deadline_ms))

    def cancel_timer(self, key: TimerKey) -> None:
        """Take a timer away."""
        self.effects.append(CancelTimer(key))

    def start_session(self, member: Member, deadline_ms: int) -> None:
        """The member's session ends then, unless it is heard of.

        Each member has a timer that fires no later than its session ends. One that fires before that stays where it
        is, and is moved when it does: most never fire late, and a rebalance moves no timers.
        """
        self.fact(n.SessionSet(member.member_id, deadline_ms))
        self.move_session_timer(member, deadline_ms)

    def move_session_timer(self, member: Member, deadline_ms: int) -> None:
        """Some fact says that the member's session ends then: its timer fires no later."""
        if deadline_ms < member.deadline_ms:
            self.effects.append(SetTimer(session_timer(member.member_id), deadline_ms))

    def extend_session(self, member: Member, moment: Moment) -> None:
        """The member was heard of."""
        self.start_session(member, moment.now_ms + member.terms.session_timeout_ms)

    # --- letter-boxes ------------------------------------------------------------------------------------------------

    def park(self, call: Call, member_id: str, box: Box, deadline_ms: int) -> None:
        """Let the call wait in the member's letter-box, which must be free; at the deadline it is told to go on."""
        self.fact(n.CallParked(call.call_id, member_id, box))
        self.set_timer(call_timer(call.call_id), deadline_ms)

    def answer_parked(self, call_id: int | None, answer: GroupAnswer | Failure) -> None:
        """Answer a waiting call, if there is one, and empty its letter-box."""
        if call_id is None:
            return
        self.fact(n.CallUnparked(call_id))
        self.release_parked(call_id, answer)

    def release_parked(self, call_id: int, answer: GroupAnswer | Failure) -> None:
        """Answer a waiting call of which some fact says that it waits no more."""
        self.effects.append(CancelTimer(call_timer(call_id)))
        self.effects.append(Reply(call_id, answer))

    def supersede(self, call_id: int | None) -> None:
        """The member called again: whatever waited in the letter-box is dropped, with an answer that says so."""
        if call_id is None:
            return
        detail = "The member has called again; this call is dropped and the newer one goes on."
        self.answer_parked(call_id, Failure(ErrorCode.REBALANCE_IN_PROGRESS, detail, superseded=True))

    def remove_member(self, member: Member, answer: Failure) -> None:
        """Take the member out; whatever of it waits gets the answer, and its timer goes."""
        for call_id in (member.join_call, member.sync_call, member.heartbeat_call):
            self.answer_parked(call_id, answer)
        self.cancel_timer(session_timer(member.member_id))
        self.cancel_grace(member)
        self.fact(n.MemberRemoved(member.member_id))

    def cancel_grace(self, member: Member) -> None:
        """Whether it comes back is waited for no longer, if it was."""
        if member.grace_deadline_ms is not None:
            self.cancel_timer(grace_timer(member.member_id))


def session_timer(member_id: str) -> TimerKey:
    """Name of a member's session timer."""
    return TimerKey(TimerKind.SESSION, member_id)


def grace_timer(member_id: str) -> TimerKey:
    """Name of the timer of a member whose connection was lost."""
    return TimerKey(TimerKind.GRACE, member_id)


def pending_timer(member_id: str) -> TimerKey:
    """Name of the timer of an id that was handed out."""
    return TimerKey(TimerKind.PENDING, member_id)


def call_timer(call_id: int) -> TimerKey:
    """Name of a waiting call's timer."""
    return TimerKey(TimerKind.CALL, str(call_id))


def expiry_timer() -> TimerKey:
    """Name of the timer of the next look at what has expired; every group that exists has it."""
    return TimerKey(TimerKind.EXPIRY)


def hold_timer() -> TimerKey:
    """Name of the timer that ends a freeze, or lets go what was held; there while the group has either."""
    return TimerKey(TimerKind.HOLD)


def join_timer(group: Group) -> TimerKey:
    """Name of the present join phase's timer."""
    return TimerKey(TimerKind.JOIN, phase=group.phase)


def newcomers_timer(group: Group) -> TimerKey:
    """Name of the timer of the next look for newcomers; there while the present join phase awaits them."""
    return TimerKey(TimerKind.NEWCOMERS, phase=group.phase)


def sync_timer(group: Group) -> TimerKey:
    """Name of the present sync phase's timer."""
    return TimerKey(TimerKind.SYNC, phase=group.phase)
