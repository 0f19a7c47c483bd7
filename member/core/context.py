"""The state of one member that all parts of its rules share, and the names that they share. No rule is here.

The parts know each other in one direction alone: `machine` and `notifications` know `joining`, that knows `leaving`,
that knows `heartbeats`, and all of them know this.
"""

from dataclasses import dataclass

from rallypoint.member.core.actions import CallBack, Moved, Warn
from rallypoint.member.core.dispatch import Dispatcher
from rallypoint.member.core.events import Callback
from rallypoint.member.core.ownership import Ownership
from rallypoint.member.core.states import State, may_move
from rallypoint.member.errors import FatalError
from rallypoint.member.options import MemberOptions
from rallypoint.protocol import messages as m

MEMBER = "member"
"""The slot of joins, syncs, the leader's assigning, and the leave: one at a time."""
HEARTBEAT = "heartbeat"
"""The slot of heartbeats, and the key of the timer until the next one."""
SESSION = "session"
"""The timer of the session timeout: when it is due, the group may have given everything away."""
ASSIGN = "assign"
"""The timer until the leader tries again to assign."""


@dataclass(slots=True)
class Ending:
    """How the member will end. `tell`: with a leave. `error`: None unless it ends as failed."""

    reason: str | None
    tell: bool
    error: FatalError | None = None


class MemberContext:
    """`assigning`: the answer to the join by which this member leads, while it makes the assignment. `fenced`: the
    group has gone on without the member while `on_revoked` runs. `ending`: how the member will end, once that is asked
    for. `rejoin_by_ms`: until when the group waits for its next join, as far as it has said so. `kept_by`: the node
    that keeps the session as long as the channel with it is well, if one does. `has_left`: a leave was answered.
    `silent`: the session is over by the clock, and nothing was heard since. What is being given up is still owned.
    """

    def __init__(self, options: MemberOptions, *, cooperative: bool) -> None:
        self.options = options
        self.cooperative = cooperative
        self.net = Dispatcher(options)
        self.owned = Ownership(cooperative=cooperative)
        self.state = State.UNJOINED
        self.member_id = ""
        self.generation_id = -1
        self.error: FatalError | None = None
        self.ending: Ending | None = None
        self.assigning: m.JoinAnswer | None = None
        self.fenced = False
        self.rejoin_by_ms: int | None = None
        self.kept_by: str | None = None
        self.has_left = False
        self.silent = False

    def note_rejoin_within(self, rejoin_within_ms: int | None, now_ms: int) -> None:
        """The group rebalances, and waits so long for this member at most; None if it has not said."""
        self.rejoin_by_ms = None if rejoin_within_ms is None else now_ms + rejoin_within_ms

    def move(self, state: State, reason: str) -> None:
        """Be in another state, for this reason."""
        assert may_move(self.state, state), f"{self.state} may not become {state}"
        self.net.actions.append(Moved(self.state, state, reason))
        self.state = state

    def warn(self, text: str) -> None:
        """Tell an operator."""
        self.net.actions.append(Warn(text))

    def note_kept(self, slot: str, answer: m.JoinAnswer | m.HeartbeatAnswer) -> None:
        """What the answer to the request in the slot says of who keeps the session."""
        self.kept_by = self.net.slot(slot).url if answer.channel_keeps_session else None

    def answered(self, slot: str) -> None:
        """The group has answered the request in the slot, and has this member. It has counted it no earlier than that
        was sent: how long it held the answer back, and how long that was on its way, cannot be told apart.
        """
        self.extend_session(self.net.slot(slot).sent_at_ms)

    def extend_session(self, heard_at_ms: int) -> None:
        """The group has heard of this member then, or later: it may go on with what it owns, also while it joins."""
        if self.owned.assignment is not None:
            ends_at_ms = heard_at_ms + self.options.session_timeout_ms
            self.net.set_timer(SESSION, max(ends_at_ms, self.net.timers.get(SESSION, 0)))
            self.silent = False

    def report_lost(self) -> None:
        """The group holds nothing for the member any more: tell the user what was lost."""
        if (lost := self.owned.lose()) is not None:
            self.net.actions.append(CallBack(Callback.LOST, lost))

    def drop_assigning(self) -> None:
        """The assignment that the leader was making is not needed any more."""
        self.net.cancel_timer(ASSIGN)
        self.assigning = None
