"""The messages of a session as texts: a call out of what came, an answer and a push into what goes."""

import json
from functools import lru_cache

from pydantic import BaseModel, ValidationError
from pydantic_core import from_json

from coordinator.core.effects import GroupUnloaded, RebalanceBegan
from coordinator.http.errors import Refused, refuse, refuse_http
from coordinator.http.inputs import BodyLimits, check_limits, refuse_fields, too_deep
from coordinator.http.json_depth import is_deeper
from coordinator.http.routes import check_id
from coordinator.runtime.carriers import Told, TopicsListed
from protocol import limits
from protocol import messages as m
from protocol import session_messages as s
from protocol.errors import ErrorCode
from protocol.request_limits import RequestChecks

ENVELOPE_DEPTH = 1
"""A body on a session stands within one object more than over HTTP."""

_validate = s.SESSION_CALLS.validator.validate_json
"""Without the adapter's own options, which nobody gives here."""

Id = int | str | None
"""Of a call: what the client chose, or None where it could not be read."""


# --- what came


def parse_call(text: bytes, checks: RequestChecks, sizes: BodyLimits) -> s.SessionCall:
    """The call in a message, within its limits. Raises Refused, which names the first wrong field."""
    depth_max = checks.limits.json_depth_max
    try:
        call: s.SessionCall = _validate(text)
    except ValidationError as error:
        raise _refuse_message(error, checks) from error
    if isinstance(call, s.AuthenticateCall):
        return call
    if len(text) > sizes.max_body_bytes and not isinstance(call, s.SyncCall):
        detail = f"The message has more than {sizes.max_body_bytes} bytes; that is set by max_body_bytes."
        raise refuse_http(413, detail, limit=sizes.max_body_bytes, setting="max_body_bytes")
    if not isinstance(call, s.CoordinatorCall):
        check_id("group_id", call.group_id, checks.limits)
    if checks.may_be_deep(type(call.body)) and is_deeper(text, depth_max + ENVELOPE_DEPTH):
        raise too_deep(depth_max)
    check_limits(call.body, checks)
    return call


def _refuse_message(error: ValidationError, checks: RequestChecks) -> Refused:
    first = error.errors(include_url=False, include_context=False, include_input=False)[0]
    kind, place = first["type"], first["loc"]
    if "recursion limit" in str(first["msg"]):
        return too_deep(checks.limits.json_depth_max)
    if kind in {"union_tag_not_found", "union_tag_invalid"}:
        ops = ", ".join((*s.OPERATIONS_BY_OP, s.AUTHENTICATE))
        return refuse(ErrorCode.INVALID_REQUEST, f"op: there is no such operation; there are: {ops}.", field="op")
    if place[1:2] == ("id",):
        detail = (
            f"id: name the call by a whole number from 0 to {limits.CALL_ID_MAX}, or by a text of 1 to "
            f"{limits.CALL_ID_LENGTH_MAX} characters."
        )
        return refuse(ErrorCode.INVALID_REQUEST, detail, field="id")
    operation = s.OPERATIONS_BY_OP.get(str(place[0])) if place else None
    if operation is None or operation.request is None or len(place) < 3:
        return refuse_fields(s.AuthenticateCall, error, {}, checks, skip=1)
    return refuse_fields(operation.request, error, {}, checks, skip=2)


def read_id(text: bytes) -> Id:
    """The id in a message that was refused; None where there is none that can be one."""
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


def problem_text(call_id: Id, problem: m.Problem) -> bytes:
    """The answer that is an error."""
    return answer_text(call_id, problem.status, problem.model_dump_json(exclude_none=True).encode())


@lru_cache(maxsize=16)
def push_text(event: Told) -> bytes:
    """What carriers push of an event: made once for all that are told."""
    push: BaseModel
    if isinstance(event, RebalanceBegan):
        push = s.RebalancePush(group_id=event.group_id, generation_id=event.generation_id, reason=event.reason)
    elif isinstance(event, GroupUnloaded):
        push = s.UnloadedPush(group_id=event.group_id)
    else:
        push = s.TopicsPush(topics=event.topics)
    return push.model_dump_json().encode()


def push_name(event: Told) -> str:
    """The `event` of a push."""
    if isinstance(event, TopicsListed):
        return "topics"
    return "rebalance" if isinstance(event, RebalanceBegan) else "unloaded"


DRAIN_TEXT = s.DrainPush().model_dump_json().encode()
