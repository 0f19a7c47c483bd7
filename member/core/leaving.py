"""Giving up what is owned, and going: `on_revoked` with its warnings, the leave, and every way for a member to end."""

from assignors.contract import TopicPartition
from member.assignment import Assignment
from member.core import requests
from member.core.actions import CallBack, Done
from member.core.dispatch import Settled
from member.core.events import Callback
from member.core.heartbeats import Heartbeats
from member.core.outcomes import Answered, Refused, Waiting
from member.core.reactions import Reaction, reaction_to
from member.core.standing import HEARTBEAT, MEMBER, Ending, Standing
from member.core.states import State
from member.errors import FatalError
from protocol import messages as m

REVOKE_WARNING = "revoke_warning"
REVOKE_LIMIT = "revoke_limit"
LEAVE_LIMIT = "leave_limit"
LEAVE_PATIENCE = "leave_patience"

REVOKE_WARNING_SHARE = 0.8
"""Part of the rebalance timeout after which a running `on_revoked` is worth a warning."""


class Leaving:
    """Of one member. Joining again after `on_revoked` is `joining`'s."""

    def __init__(self, here: Standing, heartbeats: Heartbeats) -> None:
        self._here = here
        self._heartbeats = heartbeats

    # --- giving up ---------------------------------------------------------------------------------------------------

    def revoke(self, reason: str, partitions: frozenset[TopicPartition], now_ms: int) -> None:
        """Begin to give these up."""
        here = self._here
        if here.state is not State.REVOKING:
            here.move(State.REVOKING, reason)
        here.net.actions.append(CallBack(Callback.REVOKED, here.owned.give_up(partitions)))
        limit_ms = here.options.rebalance_timeout_ms
        here.net.set_timer(REVOKE_WARNING, now_ms + round(limit_ms * REVOKE_WARNING_SHARE))
        here.net.set_timer(REVOKE_LIMIT, now_ms + limit_ms)
        if here.cooperative and here.net.lane(HEARTBEAT).intent is None and HEARTBEAT not in here.net.timers:
            self._heartbeats.beat(now_ms)  # whatever came before had none

    def revoked(self) -> None:
        """`on_revoked` has returned."""
        here = self._here
        here.net.cancel_timer(REVOKE_WARNING)
        here.net.cancel_timer(REVOKE_LIMIT)
        here.owned.gave_up()
        if here.disowned:
            here.owned.lose()

    # --- going -------------------------------------------------------------------------------------------------------

    def leave(self, ending: Ending, now_ms: int) -> None:
        """Give up what is held, then leave. A second wish to leave changes nothing."""
        here = self._here
        if here.ending is not None:
            return
        here.ending = ending
        if here.cooperative and here.state is State.SYNCING and here.owned.assignment and ending.error is None:
            # Between two generations nothing can be committed, so the round comes to its end first, if it soon does.
            here.net.set_timer(LEAVE_PATIENCE, now_ms + here.options.leave_timeout_ms)
        elif here.state is not State.REVOKING:
            self.leave_now(now_ms)

    def leave_now(self, now_ms: int) -> None:
        """Give up what is still owned. An assignment whose `on_assigned` failed was never taken."""
        here = self._here
        assert here.ending is not None
        held = here.owned.assignment
        failed = here.ending.error is not None
        if held is None or (failed and not (here.cooperative and held.partitions)) or self._has_revoked(held):
            self.say_leave(now_ms)
            return
        if here.state is not State.STABLE:
            here.net.close(MEMBER)
            here.drop_assigning()
        self.revoke("leaving", held.partitions, now_ms)

    def _has_revoked(self, held: Assignment) -> bool:
        """Whether nothing is left after an `on_revoked`."""
        return self._here.state is State.REVOKING and not held.partitions

    def say_leave(self, now_ms: int) -> None:
        """Tell the group, or end without where that is the wish or nobody knows the member."""
        here = self._here
        ending = here.ending
        assert ending is not None
        lane = here.net.lane(MEMBER)
        join_on_its_way = lane.intent is not None and lane.sent
        if not ending.tell or not (here.member_id or join_on_its_way):
            self.end(State.LEFT, "stopped without a leave")
            return
        here.owned.clear()
        self._heartbeats.stop()
        here.drop_assigning()
        here.net.cancel_timer(LEAVE_PATIENCE)
        if here.state is not State.LEAVING:
            here.move(State.LEAVING, ending.reason or "leaving")
            here.net.set_timer(LEAVE_LIMIT, now_ms + here.options.leave_timeout_ms)
        if here.member_id:
            here.net.open(MEMBER, requests.leave(here.options, here.member_id, ending.reason), now_ms)
        # Otherwise a first join is on its way: its answer brings the id to leave with. Going without a word would
        # leave that id behind in the group, and the next rebalance waits for it.

    def blind_join_ended(self, settled: Settled, now_ms: int) -> None:
        """The answer to a first join came, after the wish to leave."""
        here = self._here
        match settled.outcome:
            case Answered(m.JoinAnswer() as answer):
                here.member_id = answer.member_id
            case Waiting(answer) if answer.member_id:
                here.member_id = answer.member_id
            case Refused(problem) if reaction_to(problem) is Reaction.TAKE_ID and problem.member_id:
                here.member_id = problem.member_id
        if here.member_id:
            self.say_leave(now_ms)
        else:
            self.end(State.LEFT, "left before the group knew the member")

    # --- the end -----------------------------------------------------------------------------------------------------

    def fail(self, error: FatalError) -> None:
        """Stop for good, with an error that repeating does not cure."""
        here = self._here
        if here.state is State.LEAVING:
            here.warn(f"the leave was refused: {error}")
            self.end(State.LEFT, "the leave was refused")
            return
        here.call_lost()
        here.error = error
        self.end(State.FAILED, str(error))

    def end(self, state: State, reason: str, *, at_once: bool = False) -> None:
        """Left, or Failed where the way out was taken because of an error."""
        here = self._here
        if here.ending is not None and here.ending.error is not None and not at_once:
            here.error = here.ending.error
            state, reason = State.FAILED, str(here.error)
        here.owned.clear()
        here.assigning = None
        here.net.close_all()
        here.move(state, reason)
        here.net.actions.append(Done(here.error, at_once))

    def timer_due(self, key: str, now_ms: int) -> None:
        """A timer came due that is, or may be, of this part."""
        here = self._here
        if key == LEAVE_PATIENCE and here.state is State.SYNCING:
            self.leave_now(now_ms)
        elif key == REVOKE_WARNING:
            left_ms = round(here.options.rebalance_timeout_ms * (1 - REVOKE_WARNING_SHARE))
            here.warn(f"on_revoked still runs; the group waits only {left_ms} ms more")
        elif key == REVOKE_LIMIT:
            here.warn("on_revoked runs too long: the group goes on without this member")
        elif key == LEAVE_LIMIT:
            here.warn("the leave was not answered; the session will expire instead")
            self.end(State.LEFT, "the leave was not answered")
