"""Giving up what is owned, and going: `on_revoked` with its warnings, the leave, and every way for a member to end."""

from dataclasses import replace

from rallypoint.assignors.contract import TopicPartition
from rallypoint.member.assignment import Assignment
from rallypoint.member.core import requests
from rallypoint.member.core.actions import CallBack, Done
from rallypoint.member.core.context import HEARTBEAT, MEMBER, Ending, MemberContext
from rallypoint.member.core.dispatch import Settled
from rallypoint.member.core.events import Callback
from rallypoint.member.core.heartbeats import Heartbeats
from rallypoint.member.core.outcomes import Answered, Refused, Waiting
from rallypoint.member.core.reactions import Reaction, reaction_to
from rallypoint.member.core.states import State
from rallypoint.member.errors import FatalError
from rallypoint.protocol import messages as m

REVOKE_WARNING = "revoke_warning"
REVOKE_LIMIT = "revoke_limit"
LEAVE_LIMIT = "leave_limit"
LEAVE_PATIENCE = "leave_patience"

REVOKE_WARNING_SHARE = 0.8
"""Part of the rebalance timeout after which a running `on_revoked` is worth a warning."""


class Leaving:
    """Of one member. Joining again after `on_revoked` is `joining`'s."""

    def __init__(self, context: MemberContext, heartbeats: Heartbeats) -> None:
        self._context = context
        self._heartbeats = heartbeats
        self._warned_before_ms = 0

    # --- giving up ---------------------------------------------------------------------------------------------------

    def revoke(self, reason: str, partitions: frozenset[TopicPartition], now_ms: int) -> None:
        """Begin to give these up. Who does so is told how long the group waits, if it does and has said so."""
        context = self._context
        waits_ms = None
        if context.ending is None and context.rejoin_by_ms is not None:
            waits_ms = max(0, context.rejoin_by_ms - now_ms)
        if context.state is not State.REVOKING:
            context.move(State.REVOKING, reason if waits_ms is None else f"{reason}, and waits {waits_ms} ms at most")
        given_up = replace(context.owned.give_up(partitions), rejoin_within_ms=waits_ms)
        context.net.actions.append(CallBack(Callback.REVOKED, given_up))
        limit_ms = context.options.rebalance_timeout_ms if waits_ms is None else waits_ms
        self._warned_before_ms = round(limit_ms * (1 - REVOKE_WARNING_SHARE))
        context.net.set_timer(REVOKE_WARNING, now_ms + round(limit_ms * REVOKE_WARNING_SHARE))
        context.net.set_timer(REVOKE_LIMIT, now_ms + limit_ms)
        if context.cooperative and context.net.slot(HEARTBEAT).intent is None and HEARTBEAT not in context.net.timers:
            self._heartbeats.plan(now_ms, now_ms)  # whatever came before had none

    def revoked(self) -> None:
        """`on_revoked` has returned."""
        context = self._context
        context.net.cancel_timer(REVOKE_WARNING)
        context.net.cancel_timer(REVOKE_LIMIT)
        context.owned.gave_up()
        if context.fenced:
            context.owned.lose()

    # --- going -------------------------------------------------------------------------------------------------------

    def leave(self, ending: Ending, now_ms: int) -> None:
        """Give up what is held, then leave. A second wish to leave changes nothing."""
        context = self._context
        if context.ending is not None:
            return
        context.ending = ending
        if context.cooperative and context.state is State.SYNCING and context.owned.assignment and ending.error is None:
            # Between two generations nothing can be committed, so the rebalance ends first, if it soon does.
            context.net.set_timer(LEAVE_PATIENCE, now_ms + context.options.leave_timeout_ms)
        elif context.state is not State.REVOKING:
            self.leave_now(now_ms)

    def hurry(self, now_ms: int) -> None:
        """Send the leave that waits for a callback, or for the end of a rebalance. The end of a callback that runs then
        changes nothing any more.
        """
        context = self._context
        if context.ending is not None and context.state is not State.LEAVING:
            context.warn("the leave takes too long: going without the end of what runs")
            context.net.cancel_timer(REVOKE_WARNING)
            context.net.cancel_timer(REVOKE_LIMIT)
            self.say_leave(now_ms)

    def leave_now(self, now_ms: int) -> None:
        """Give up what is still owned. An assignment whose `on_assigned` failed was never taken."""
        context = self._context
        assert context.ending is not None
        held = context.owned.assignment
        failed = context.ending.error is not None
        if held is None or (failed and not (context.cooperative and held.partitions)) or self._has_revoked(held):
            self.say_leave(now_ms)
            return
        if context.state is not State.STABLE:
            context.net.close(MEMBER)
            context.drop_assigning()
        self.revoke("leaving", held.partitions, now_ms)

    def _has_revoked(self, held: Assignment) -> bool:
        """Whether nothing is left after an `on_revoked`."""
        return self._context.state is State.REVOKING and not held.partitions

    def say_leave(self, now_ms: int) -> None:
        """Tell the group, or end without if that is the wish or nobody knows the member."""
        context = self._context
        ending = context.ending
        assert ending is not None
        slot = context.net.slot(MEMBER)
        join_on_its_way = slot.intent is not None and slot.sent
        if not ending.tell or not (context.member_id or join_on_its_way):
            self.end(State.LEFT, "stopped without a leave")
            return
        context.owned.clear()
        self._heartbeats.stop()
        context.drop_assigning()
        context.net.cancel_timer(LEAVE_PATIENCE)
        if context.state is not State.LEAVING:
            context.move(State.LEAVING, ending.reason or "leaving")
            context.net.set_timer(LEAVE_LIMIT, now_ms + context.options.leave_timeout_ms)
        if context.member_id:
            context.net.open(MEMBER, requests.leave(context.options, context.member_id, ending.reason), now_ms)
        # Otherwise a first join is on its way: its answer brings the id to leave with. Going without a word would
        # leave that id behind in the group, and the next rebalance waits for it.

    def blind_join_ended(self, settled: Settled, now_ms: int) -> None:
        """The answer to a first join came, after the wish to leave."""
        context = self._context
        match settled.outcome:
            case Answered(m.JoinAnswer() as answer):
                context.member_id = answer.member_id
            case Waiting(answer) if answer.member_id:
                context.member_id = answer.member_id
            case Refused(problem) if reaction_to(problem) is Reaction.TAKE_ID and problem.member_id:
                context.member_id = problem.member_id
        if context.member_id:
            self.say_leave(now_ms)
        else:
            self.end(State.LEFT, "left before the group knew the member")

    # --- the end -----------------------------------------------------------------------------------------------------

    def fail(self, error: FatalError) -> None:
        """Stop for good, with an error that repeating does not cure."""
        context = self._context
        if context.state is State.LEAVING:
            context.warn(f"the leave was refused: {error}")
            self.end(State.LEFT, "the leave was refused")
            return
        context.report_lost()
        context.error = error
        self.end(State.FAILED, str(error))

    def break_off(self, reason: str) -> None:
        """Stop for good, wherever the member stands; what it holds is lost, for nobody keeps it alive any more."""
        self._context.ending = None
        self._context.report_lost()
        self.end(State.FAILED, reason)

    def end(self, state: State, reason: str, *, at_once: bool = False) -> None:
        """Left, or Failed if the way out was taken because of an error."""
        context = self._context
        if context.ending is not None and context.ending.error is not None and not at_once:
            context.error = context.ending.error
            state, reason = State.FAILED, str(context.error)
        context.owned.clear()
        context.assigning = None
        context.net.close_all()
        context.move(state, reason)
        context.net.actions.append(Done(context.error, at_once))

    def timer_due(self, key: str, now_ms: int) -> None:
        """A timer came due that is, or may be, of this part."""
        context = self._context
        if key == LEAVE_PATIENCE and context.state is State.SYNCING:
            self.leave_now(now_ms)
        elif key == REVOKE_WARNING:
            context.warn(f"on_revoked still runs; the group waits only {self._warned_before_ms} ms more")
        elif key == REVOKE_LIMIT:
            context.warn("on_revoked runs too long: the group goes on without this member")
        elif key == LEAVE_LIMIT:
            context.warn("the leave was not answered; the session will expire instead")
            self.end(State.LEFT, "the leave was not answered")
