"""What a rule hands back: facts to write, effects to release, and what follows in the same step."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from rallypoint.coordinator.core import records as r
from rallypoint.coordinator.core import transient_facts as t
from rallypoint.coordinator.core.apply import Fact
from rallypoint.coordinator.core.commands import Call, Command, DecisionContext, TimerKey, TimerKind
from rallypoint.coordinator.core.effects import (
    CancelTimer,
    Each,
    Effect,
    Event,
    Failure,
    GroupAnswer,
    Notify,
    OneEffect,
    Reply,
    SetTimer,
    Subject,
    ViewEvent,
)
from rallypoint.coordinator.core.group import CallKind, Group, Member
from rallypoint.protocol.errors import ErrorCode

MADE_AT_ONCE_MAX = 100
"""Members whose answers and timers are made in the step itself."""

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


@dataclass(slots=True, init=False)
class Draft:
    """A decision in the making. Rules add to it and read the group as it was; `then` sees the facts written.

    `gone`: members that are taken out.

    `again`: this is a part of a change that is too large for one step; the rest is decided next, before anything else.
    """

    facts: list[Fact]
    effects: list[Effect]
    then: list[Command]
    gone: list[Member]
    again: Command | None

    def __init__(self) -> None:
        # By hand: a dataclass with four factories is made in thrice the time, and each step makes some.
        self.facts = []
        self.effects = []
        self.then = []
        self.gone = []
        self.again = None

    def fact(self, fact: Fact) -> None:
        """Say that this happened."""
        self.facts.append(fact)

    def notify(self, event: Event | ViewEvent) -> None:
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
        self.fact(t.SessionSet(member.member_id, deadline_ms))
        self.move_session_timer(member, deadline_ms)

    def move_session_timer(self, member: Member, deadline_ms: int) -> None:
        """Some fact says that the member's session ends then: its timer fires no later."""
        if deadline_ms < member.deadline_ms:
            self.effects.append(SetTimer(session_timer(member.member_id), deadline_ms))

    def extend_session(self, member: Member, context: DecisionContext) -> None:
        """The member was heard of."""
        self.start_session(member, context.now_ms + member.terms.session_timeout_ms)

    # --- many at once ------------------------------------------------------------------------------------------------

    def each(self, subjects: Sequence[Subject], make: Callable[[Subject], Iterable[OneEffect]]) -> None:
        """The effects on each subject. Those on many are made when they are released; `make` reads no group."""
        if len(subjects) > MADE_AT_ONCE_MAX:
            self.effects.append(Each(subjects, make))
        else:
            self.effects.extend(effect for subject in subjects for effect in make(subject))

    # --- pending responses --------------------------------------------------------------------------------------------

    def park(self, call: Call, member_id: str, kind: CallKind, deadline_ms: int) -> None:
        """Hold the call's answer back until the deadline at most. No other call of that kind may wait for the
        member.
        """
        self.fact(t.CallParked(call.call_id, member_id, kind))
        self.set_timer(call_timer(call.call_id), deadline_ms)

    def answer_parked(self, call_id: int | None, answer: GroupAnswer | Failure) -> None:
        """Answer a waiting call, if there is one."""
        if call_id is None:
            return
        self.fact(t.CallUnparked(call_id))
        self.release_parked(call_id, answer)

    def release_parked(self, call_id: int, answer: GroupAnswer | Failure) -> None:
        """Answer a waiting call of which some fact says that it waits no more."""
        self.effects.append(CancelTimer(call_timer(call_id)))
        self.effects.append(Reply(call_id, answer))

    def supersede(self, call_id: int | None) -> None:
        """The member called again: the older call is dropped, with an answer that says so."""
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
        self.fact(t.MemberRemoved(member.member_id))
        self.gone.append(member)

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


def retention_timer() -> TimerKey:
    """Name of the timer of the next look at what has expired; every group that exists has it."""
    return TimerKey(TimerKind.RETENTION)


def hold_timer() -> TimerKey:
    """Name of the timer that ends a freeze, or lets go what was held; there while the group has either."""
    return TimerKey(TimerKind.HOLD)


def join_timer(group: Group) -> TimerKey:
    """Name of the present join phase's timer."""
    return TimerKey(TimerKind.JOIN, phase=group.phase)


def linger_timer(group: Group) -> TimerKey:
    """Name of the timer that ends the present join phase's linger; there while it lingers."""
    return TimerKey(TimerKind.LINGER, phase=group.phase)


def sync_timer(group: Group) -> TimerKey:
    """Name of the present sync phase's timer."""
    return TimerKey(TimerKind.SYNC, phase=group.phase)
