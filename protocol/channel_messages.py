"""What is said on a channel, `GET /v1/channel`: each message is one JSON text.

A client sends calls, with an id of its own choice, and gets one answer to each, in any order. Besides, the service
sends what nobody asked for: an `event`. The bodies are those of the same operations over HTTP, and so are the problems.
"""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, Discriminator, Field, TypeAdapter

from rallypoint.protocol import limits, operations
from rallypoint.protocol import messages as m
from rallypoint.protocol.operations import Operation

CallId = (
    Annotated[int, Field(ge=0, le=limits.CALL_ID_MAX)]
    | Annotated[str, Field(min_length=1, max_length=limits.CALL_ID_LENGTH_MAX)]
)
"""Chosen by the client, repeated in the answer. A whole number that every language can hold, or a short text."""


class _Call(m.RequestModel):
    """What every call may have. `traceparent`: the client's span (W3C Trace Context); what cannot be one is none."""

    traceparent: Annotated[str, Field(max_length=limits.TRACEPARENT_LENGTH_MAX)] | None = None


class CoordinatorCall(_Call):
    """Find the node that coordinates each of the groups."""

    id: CallId
    op: Literal["coordinator"]
    body: m.CoordinatorRequest


class JoinCall(_Call):
    """Join the group, or join again."""

    id: CallId
    op: Literal["join"]
    group_id: m.Id
    body: m.JoinRequest


class SyncCall(_Call):
    """Get the assignment, or submit everyone's."""

    id: CallId
    op: Literal["sync"]
    group_id: m.Id
    body: m.SyncRequest


class HeartbeatCall(_Call):
    """Say that the member lives."""

    id: CallId
    op: Literal["heartbeat"]
    group_id: m.Id
    body: m.HeartbeatRequest


class LeaveCall(_Call):
    """Leave the group."""

    id: CallId
    op: Literal["leave"]
    group_id: m.Id
    body: m.LeaveRequest


class CommitCall(_Call):
    """Commit offsets."""

    id: CallId
    op: Literal["commit"]
    group_id: m.Id
    body: m.CommitRequest


class FetchCall(_Call):
    """Fetch committed offsets; without a body, all of the group."""

    id: CallId
    op: Literal["fetch"]
    group_id: m.Id
    body: m.FetchRequest = m.FetchRequest()


class DropRequest(m.RequestModel):
    """Which member."""

    member_id: m.MemberId


class DropCall(_Call):
    """The client answers for the member no longer. The member stays in the group until its session ends."""

    id: CallId
    op: Literal["drop"]
    group_id: m.Id
    body: DropRequest


class AuthenticateCall(_Call):
    """Show a token: the first message of a client that cannot send headers. It needs no id."""

    id: CallId | None = None
    op: Literal["authenticate"]
    token: Annotated[str, Field(min_length=1, max_length=limits.TOKEN_LENGTH_MAX)]


GroupCall = JoinCall | SyncCall | HeartbeatCall | LeaveCall | CommitCall | FetchCall
"""Calls that go to one group."""

ChannelCall = GroupCall | DropCall | CoordinatorCall | AuthenticateCall

CHANNEL_CALLS: TypeAdapter[ChannelCall] = TypeAdapter(Annotated[ChannelCall, Discriminator("op")])
"""Reads a call."""

AUTHENTICATE, DROP = "authenticate", "drop"

OPERATIONS_BY_OP: dict[str, Operation] = {
    operation.name: operation
    for operation in (
        operations.COORDINATOR,
        operations.JOIN,
        operations.SYNC,
        operations.HEARTBEAT,
        operations.LEAVE,
        operations.COMMIT,
        operations.FETCH,
    )
}
"""The `op` of each call that is an operation over HTTP too: it has the same body and the same answer."""


class ChannelAnswer(m.AnswerModel):
    """The one answer to a call. `id` is null where the message was such that it could not be read.

    `status` and `body` are what the operation answers over HTTP; of an error the body is a problem document.
    """

    id: int | str | None
    status: int
    body: dict[str, Any]


class RebalancePush(m.AnswerModel):
    """A rebalance of the group has begun: join again. `generation_id` is the one that is ending; a push that names an
    older one than the member's is stale. `rejoin_within_ms`: whoever has not joined by then may be left out.
    """

    event: Literal["rebalance"] = "rebalance"
    group_id: str
    generation_id: int
    reason: str
    rejoin_within_ms: int | None = None


class UnloadedPush(m.AnswerModel):
    """The node has let go of the group, to load it again or for good: find its coordinator, and go on there. `url`: the
    node that coordinates it now, where the node has handed it over; who knows it need not ask.
    """

    event: Literal["unloaded"] = "unloaded"
    group_id: str
    url: str | None = None


class DrainPush(m.AnswerModel):
    """The node is stopping: the channel ends soon, and no member of it is taken for dead because of that."""

    event: Literal["drain"] = "drain"


class TopicsPush(m.AnswerModel):
    """These topics were registered, or taken out of the registry: who subscribes to a pattern that one of them matches
    looks again. Nothing of a group, so it goes to each channel that carries a member of any.
    """

    event: Literal["topics"] = "topics"
    topics: tuple[str, ...]


class DroppedPush(m.AnswerModel):
    """The member is this channel's no longer: it is out of the group, or has called elsewhere. Send a heartbeat of it;
    the answer says which.
    """

    event: Literal["dropped"] = "dropped"
    group_id: str
    member_id: str


PUSHES: tuple[type[BaseModel], ...] = (RebalancePush, UnloadedPush, DrainPush, TopicsPush, DroppedPush)
