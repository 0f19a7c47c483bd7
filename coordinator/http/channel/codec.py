"""The messages of a channel as texts: a call out of what came, an answer and a push into what goes."""

import json
import re
from functools import lru_cache

from pydantic import BaseModel, ValidationError
from pydantic_core import from_json

from rallypoint.coordinator.collector import forget_frames
from rallypoint.coordinator.core.effects import Failure, GroupUnloaded, RebalanceBegan
from rallypoint.coordinator.http.answers.answer_text import encode
from rallypoint.coordinator.http.errors import Refused, problem_fields, refuse
from rallypoint.coordinator.http.requests.inputs import (
    SHAPED_BYTES,
    BodyLimits,
    check_limits,
    check_shape,
    first_error,
    refuse_fields,
    too_deep,
)
from rallypoint.coordinator.http.requests.large_bodies import LARGE_BYTES
from rallypoint.coordinator.http.requests.long_list import LongList
from rallypoint.coordinator.http.requests.routes import check_id
from rallypoint.coordinator.http.requests.syncs import (
    ASSIGNMENTS,
    check_rest,
    read_assignments,
    too_much_else,
    with_assignments,
)
from rallypoint.coordinator.runtime.members.connection_registry import ConnectionEvent, MemberDropped, TopicsListed
from rallypoint.protocol import channel_messages as s
from rallypoint.protocol import limits
from rallypoint.protocol import messages as m
from rallypoint.protocol.errors import ErrorCode
from rallypoint.protocol.request_limits import RequestChecks

ENVELOPE_DEPTH = 1
"""A body on a channel stands within one object more than over HTTP."""

_validate = s.CHANNEL_CALLS.validator.validate_json
"""Without the adapter's own options, which nobody gives here."""

Id = int | str | None
"""Of a call: what the client chose, or None where it could not be read."""


# --- what came


def parse_call(text: bytes, checks: RequestChecks, sizes: BodyLimits) -> s.ChannelCall | Refused:
    """The call in a message, within its limits; or its refusal, which names the first wrong field."""
    try:
        if len(text) > LARGE_BYTES:
            return _parse_large(text, checks, sizes)
        call = _parse(text, checks)
        if len(text) > sizes.max_body_bytes and not isinstance(call, s.SyncCall):
            raise too_much_else(sizes, "message")
        return call
    except Refused as refused:
        forget_frames(refused)
        return refused


def _parse_large(text: bytes, checks: RequestChecks, sizes: BodyLimits) -> s.ChannelCall:
    """A sync is parsed in chunks. Any other message is parsed only if it is within its limit."""
    listed = LongList(text, ASSIGNMENTS, 1 + ENVELOPE_DEPTH, checks.limits.json_parts_max)
    assignments = read_assignments(listed, checks, sizes, levels_around=1)
    check_rest(listed, sizes, "message")
    call = _parse(listed.rest, checks)
    if not isinstance(call, s.SyncCall):
        # With a list that is none of its fields it has been refused by now.
        return call
    return call.model_copy(update={"body": with_assignments(call.body, assignments, checks)})


def _parse(text: bytes, checks: RequestChecks) -> s.ChannelCall:
    is_shaped = len(text) > SHAPED_BYTES
    if is_shaped:
        check_shape(text, checks, ENVELOPE_DEPTH)
    try:
        call: s.ChannelCall = _validate(text)
    except ValidationError as error:
        raise _refuse_message(error, checks) from error
    if call.op == "authenticate":
        return call
    if call.op != "coordinator":
        check_id("group_id", call.group_id, checks.limits)
    if type(call.body) in checks.looked_at:
        if not is_shaped and checks.may_be_deep(type(call.body)):
            check_shape(text, checks, ENVELOPE_DEPTH)
        check_limits(call.body, checks)
    return call


def _refuse_message(error: ValidationError, checks: RequestChecks) -> Refused:
    first = first_error(error)
    if first is None:
        return refuse_fields(s.AuthenticateCall, error, {}, checks)
    kind, place = first["type"], first["loc"]
    if "recursion limit" in str(first["msg"]):
        return too_deep(checks.limits.json_depth_max)
    if kind in {"union_tag_not_found", "union_tag_invalid"}:
        ops = ", ".join((*s.OPERATIONS_BY_OP, s.DROP, s.AUTHENTICATE))
        return refuse(ErrorCode.INVALID_REQUEST, f"op: there is no such operation; there are: {ops}.", field="op")
    if place[1:2] == ("id",):
        detail = (
            f"id: name the call by a whole number from 0 to {limits.CALL_ID_MAX}, or by a text of 1 to "
            f"{limits.CALL_ID_LENGTH_MAX} characters."
        )
        return refuse(ErrorCode.INVALID_REQUEST, detail, field="id")
    request = _REQUESTS.get(str(place[0])) if place else None
    if request is None or len(place) < 3:
        return refuse_fields(s.AuthenticateCall, error, {}, checks, skip=1)
    return refuse_fields(request, error, {}, checks, skip=2)


_REQUESTS = {s.DROP: s.DropRequest} | {name: operation.request for name, operation in s.OPERATIONS_BY_OP.items()}
"""The body of each call that has one."""


_ID_FIRST = re.compile(rb'\s*+\{\s*+"id"\s*+:\s*+([0-9]{1,16}|"[^"\\]{1,%d}")\s*+,' % (4 * limits.CALL_ID_LENGTH_MAX))


def read_id(text: bytes) -> Id:
    """The id in a message that was refused; None where there is none that can be one. A large message has it first."""
    if len(text) > LARGE_BYTES:
        found = _ID_FIRST.match(text)
        text = b"{}" if found is None else b'{"id":%b}' % found[1]
    try:
        message = from_json(text)
    except ValueError:
        return None
    call_id = message.get("id") if isinstance(message, dict) else None
    if isinstance(call_id, bool) or not isinstance(call_id, int | str):
        return None
    if isinstance(call_id, int):
        return call_id if 0 <= call_id <= limits.CALL_ID_MAX else None
    return call_id if 1 <= len(call_id) <= limits.CALL_ID_LENGTH_MAX else None


# --- what goes


def answer_text(call_id: Id, status: int, body: bytes) -> bytes:
    """An answer. `body` is JSON already."""
    named = b"%d" % call_id if isinstance(call_id, int) else json.dumps(call_id).encode()
    return b'{"id":%b,"status":%d,"body":%b}' % (named, status, body)


def with_kept_session(body: bytes) -> bytes:
    """The body of an answer to a member that need not send heartbeats on this channel."""
    return body[:-1] + (b"," if len(body) > 2 else b"") + b'"channel_keeps_session":true}'


def problem_text(call_id: Id, problem: m.Problem) -> bytes:
    """The answer that is an error."""
    return answer_text(call_id, problem.status, problem.model_dump_json(exclude_none=True).encode())


def failure_text(call_id: Id, failure: Failure) -> tuple[int, bytes]:
    """The status, and the answer, of a call that the service refused."""
    fields = problem_fields(failure)
    status: int = fields["status"]
    return status, answer_text(call_id, status, encode(fields))


@lru_cache(maxsize=16)
def push_text(event: ConnectionEvent) -> bytes:
    """The text that connections push of an event: made once for all of them."""
    push: BaseModel
    if isinstance(event, RebalanceBegan):
        push = s.RebalancePush(
            group_id=event.group_id,
            generation_id=event.generation_id,
            reason=event.reason,
            rejoin_within_ms=event.rejoin_within_ms,
        )
    elif isinstance(event, GroupUnloaded):
        push = s.UnloadedPush(group_id=event.group_id, url=event.url)
    elif isinstance(event, MemberDropped):
        push = s.DroppedPush(group_id=event.group_id, member_id=event.member_id)
    else:
        push = s.TopicsPush(topics=event.topics)
    return push.model_dump_json().encode()


def push_name(event: ConnectionEvent) -> str:
    """The `event` of a push."""
    if isinstance(event, TopicsListed):
        return "topics"
    if isinstance(event, MemberDropped):
        return "dropped"
    return "rebalance" if isinstance(event, RebalanceBegan) else "unloaded"


DRAIN_TEXT = s.DrainPush().model_dump_json().encode()
