"""Where one member stands, as all parts of its rules see it, and the names that they share. No rule is here.

The parts know each other in one direction alone: `machine` and `news` know `joining`, that knows `leaving`, that knows
`heartbeats`, and all of them know this.
"""

from dataclasses import dataclass

from member.core.actions import CallBack, Moved, Warn
from member.core.dispatch import Dispatcher
from member.core.events import Callback
from member.core.ownership import Ownership
from member.core.states import State, may_move
from member.errors import FatalError
from member.options import MemberOptions
from protocol import messages as m

MEMBER = "member"
"""The lane of joins, syncs, the leader's assigning, and the leave: one at a time."""
HEARTBEAT = "heartbeat"
"""The lane of heartbeats, and the key of the timer until the next one."""
SESSION = "session"
"""The timer of silence: when it is due the group may have given everything away."""
ASSIGN = "assign"
"""The timer until the leader tries again to assign."""


@dataclass(slots=True)
class Ending:
    """How the member will end, once that is settled. `tell`: with a leave. `error`: then as failed."""

    reason: str | None
    tell: bool
    error: FatalError | None = None


class Standing:
    """`assigning`: the answer to the join by which this member leads, while it makes the assignment. `disowned`: the
    group has gone on without the member while `on_revoked` runs. `ending`: the wish to end, from when there is one.
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
        self.disowned = False

    def move(self, state: State, reason: str) -> None:
        """Be in another state, for this reason."""
        assert may_move(self.state, state), f"{self.state} may not become {state}"
        self.net.actions.append(Moved(self.state, state, reason))
        self.state = state

    def warn(self, text: str) -> None:
        """Tell an operator."""
        self.net.actions.append(Warn(text))

    def hear(self, now_ms: int) -> None:
        """The group is there, and counts this member in: it may go on with what it owns while it joins."""
        if self.owned.assignment is not None:
            self.net.set_timer(SESSION, now_ms + self.options.session_timeout_ms)

    def call_lost(self) -> None:
        """The group holds nothing for the member any more, and the user is told what that was."""
        if (lost := self.owned.lose()) is not None:
            self.net.actions.append(CallBack(Callback.LOST, lost))

    def drop_assigning(self) -> None:
        """Whatever the leader was making is wanted no more."""
        self.net.cancel_timer(ASSIGN)
        self.assigning = None
