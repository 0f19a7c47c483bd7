"""Everything a member can want done. They are done in the order given; none of them answers at once."""

from dataclasses import dataclass

from pydantic import BaseModel

from rallypoint.member.assignment import Assignment
from rallypoint.member.core.events import Callback
from rallypoint.member.core.outcomes import Outcome
from rallypoint.member.core.states import State
from rallypoint.member.errors import FatalError
from rallypoint.protocol.messages import JoinedMember
from rallypoint.protocol.operations import Operation


@dataclass(frozen=True, slots=True)
class Send:
    """Send the request to the node at `url`, and report `CallEnded` with this call id.

    `timeout_ms` includes the time for which the service was asked to hold its answer back.
    """

    call_id: int
    url: str
    operation: Operation
    body: BaseModel | None
    timeout_ms: int


@dataclass(frozen=True, slots=True)
class Assign:
    """This member leads: get the partition counts, run the assignor, report `AssignmentMade` or `AssignmentFailed`."""

    call_id: int
    protocol_name: str
    members: tuple[JoinedMember, ...]


@dataclass(frozen=True, slots=True)
class Drop:
    """Nobody waits for this `Send` or `Assign` any more: stop it."""

    call_id: int


@dataclass(frozen=True, slots=True)
class SetTimer:
    """Report `TimerDue` at this instant. A timer of the same key moves."""

    key: str
    at_ms: int


@dataclass(frozen=True, slots=True)
class CancelTimer:
    """The timer is not wanted any more."""

    key: str


@dataclass(frozen=True, slots=True)
class CallBack:
    """Run the user's callback after all earlier ones, and report `CallbackEnded`."""

    callback: Callback
    assignment: Assignment


@dataclass(frozen=True, slots=True)
class Settle:
    """The user's call ended so."""

    ticket: int
    outcome: Outcome


@dataclass(frozen=True, slots=True)
class Moved:
    """The state changed, for this reason. It goes to the log and the observer."""

    old: State
    new: State
    reason: str


@dataclass(frozen=True, slots=True)
class Warn:
    """Something an operator may want to know."""

    text: str


@dataclass(frozen=True, slots=True)
class Note:
    """Something that an operator may want to know and need not look at: it is well."""

    text: str


@dataclass(frozen=True, slots=True)
class LookForTopics:
    """What a pattern means may be something else now: these topics came or went."""

    topics: frozenset[str]


@dataclass(frozen=True, slots=True)
class CompareCounts:
    """This member leads under an assignment that it has not made: the topics may have grown since."""


@dataclass(frozen=True, slots=True)
class Done:
    """The member has ended: stop everything after the callbacks wanted so far. `error`: None after a leave or close.

    `at_once`: do not wait for a callback that runs.
    """

    error: FatalError | None
    at_once: bool = False


Action = (
    Send
    | Assign
    | Drop
    | SetTimer
    | CancelTimer
    | CallBack
    | Settle
    | Moved
    | Warn
    | Note
    | LookForTopics
    | CompareCounts
    | Done
)
