"""Everything a member can be told. `machine.Membership.handle` takes one at a time."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from pydantic import BaseModel, JsonValue

from rallypoint.member.core.outcomes import Outcome
from rallypoint.protocol.messages import CommitRequest, SyncAssignment
from rallypoint.protocol.operations import Operation


class Callback(Enum):
    """Which of the user's callbacks; the value is its name."""

    ASSIGNED = "on_assigned"
    REVOKED = "on_revoked"
    LOST = "on_lost"


def _as_before(user_data: JsonValue) -> JsonValue:
    return user_data


@dataclass(frozen=True, slots=True)
class Draw:
    """What comes from outside, fresh for every event: what a new attempt is called, and the jitter of a back-off, in
    [0, 1). `user_data` is asked with each attempt to join: given what was said last, it gives what to say now, and
    must not raise.
    """

    request_id: str
    jitter: float
    user_data: Callable[[JsonValue], JsonValue] = _as_before


@dataclass(frozen=True, slots=True)
class Started:
    """Begin; later ones are ignored."""


@dataclass(frozen=True, slots=True)
class CallEnded:
    """A `Send` came to its end. One whose call is not open any more is ignored: the member has moved on."""

    call_id: int
    outcome: Outcome


@dataclass(frozen=True, slots=True)
class TimerDue:
    """A timer that was set has come due. Ignored where it was moved or cancelled meanwhile."""

    key: str


@dataclass(frozen=True, slots=True)
class CallbackEnded:
    """A callback returned, or raised `error`. Callbacks run one at a time, in the order of their actions."""

    callback: Callback
    generation_id: int
    error: Exception | None = None


@dataclass(frozen=True, slots=True)
class AssignmentMade:
    """The leader's assignor came to a result, for the `Assign` of this call id."""

    call_id: int
    assignments: tuple[SyncAssignment, ...]


@dataclass(frozen=True, slots=True)
class AssignmentFailed:
    """The leader's assignor or its partition counts raised. `retriable`: the counts may be had a little later."""

    call_id: int
    error: Exception
    retriable: bool


@dataclass(frozen=True, slots=True)
class RejoinRequested:
    """The user asks for a rebalance."""

    reason: str


@dataclass(frozen=True, slots=True)
class SubscriptionChanged:
    """The user wants other topics, or tells the assignor something else."""

    topics: tuple[str, ...]
    user_data: JsonValue


@dataclass(frozen=True, slots=True)
class LeaveRequested:
    """Give up the partitions in order, leave the group, stop. `stay`: stop without leaving, as a static member does."""

    reason: str | None
    stay: bool


@dataclass(frozen=True, slots=True)
class LeaveHurried:
    """The leave has taken as long as it may: tell the group, and wait for no callback. Nothing if no leave is on."""


@dataclass(frozen=True, slots=True)
class CloseRequested:
    """Stop at once and say nothing."""


@dataclass(frozen=True, slots=True)
class LibraryFailed:
    """A fault of this library came up, in these words: the member may go on with nothing that it holds."""

    reason: str


@dataclass(frozen=True, slots=True)
class CallRequested:
    """The user's own call (a fetch, a look-up of topics): find the coordinator, repeat as needed."""

    ticket: int
    operation: Operation
    body: BaseModel | None


@dataclass(frozen=True, slots=True)
class CallAbandoned:
    """The user does not wait for this call any more."""

    ticket: int


@dataclass(frozen=True, slots=True)
class CommitRequested:
    """The user's commit. `body`: the offsets; the core fills in the member and the generation. `generation_id`:
    under which the records were read; None for the present one. It is settled and abandoned like a `CallRequested`.
    """

    ticket: int
    body: CommitRequest
    generation_id: int | None


@dataclass(frozen=True, slots=True)
class ChannelOpened:
    """A channel with this node is open, or is again. From the member's first call on it, it tells of rebalances, so
    heartbeats to this node need not wait.
    """

    url: str


@dataclass(frozen=True, slots=True)
class ChannelLost:
    """The channel with this node has ended, though this side did not want that. The calls that were open on it have
    ended before, each with its own `CallEnded`.
    """

    url: str
    reason: str


@dataclass(frozen=True, slots=True)
class ChannelUnavailable:
    """There are no channels with this node for now, so calls to it go over HTTP and nothing is pushed. Told once, not
    at each further try; a `ChannelOpened` ends it.
    """

    url: str
    reason: str


@dataclass(frozen=True, slots=True)
class RebalanceBegan:
    """A channel said so. `generation_id`: the one that is ending. `rejoin_within_ms`: for how long the group waits for
    this member at most; None if an older service has not said.
    """

    generation_id: int
    rejoin_within_ms: int | None = None


@dataclass(frozen=True, slots=True)
class GroupUnloaded:
    """A channel said that its node, at this URL, has let go of the group. `owner_url`: of the node that has it now, if
    it was named.
    """

    url: str
    owner_url: str | None = None


@dataclass(frozen=True, slots=True)
class NodeDraining:
    """A channel said that its node, at this URL, is about to stop; it will be lost, and that is no failure."""

    url: str


@dataclass(frozen=True, slots=True)
class TopicsListed:
    """A channel said that these topics came into the service's registry, or went."""

    topics: frozenset[str]


@dataclass(frozen=True, slots=True)
class ChannelHeard:
    """The channel with this node is well: it has answered a ping that was sent at that instant."""

    url: str
    sent_at_ms: int


@dataclass(frozen=True, slots=True)
class ChannelSilent:
    """The node is late with the answer to a ping on the channel with it."""

    url: str


@dataclass(frozen=True, slots=True)
class MemberDropped:
    """A channel said that it carries this member no longer; a heartbeat tells why."""

    member_id: str


LineEvent = ChannelHeard | ChannelSilent
"""What pings tell of a channel that is open."""

ChannelEvent = ChannelOpened | ChannelLost | ChannelUnavailable | GroupUnloaded | NodeDraining
"""Events of a channel that are about a node rather than about the group's rebalances."""

UserRequest = (
    RejoinRequested
    | SubscriptionChanged
    | LeaveRequested
    | LeaveHurried
    | CloseRequested
    | CallRequested
    | CallAbandoned
    | CommitRequested
)
"""What the user wants."""

Event = (
    Started
    | CallEnded
    | TimerDue
    | CallbackEnded
    | AssignmentMade
    | AssignmentFailed
    | RebalanceBegan
    | TopicsListed
    | LibraryFailed
    | MemberDropped
    | LineEvent
    | ChannelEvent
    | UserRequest
)
