"""The messages of a channel as texts: a call into what goes out, what came into an answer or a push.

Nothing here sends or waits. What each message means is `docs/channels.md`'s, what to do about it `core`'s.
"""

import json
from dataclasses import dataclass

from pydantic import BaseModel, ValidationError
from pydantic_core import from_json, to_json

from rallypoint.protocol import channel_messages as s
from rallypoint.protocol.operations import Operation

Push = s.RebalancePush | s.UnloadedPush | s.DrainPush | s.TopicsPush | s.DroppedPush

_PUSHES: dict[str, type[Push]] = {
    "rebalance": s.RebalancePush,
    "unloaded": s.UnloadedPush,
    "drain": s.DrainPush,
    "topics": s.TopicsPush,
    "dropped": s.DroppedPush,
}


@dataclass(frozen=True, slots=True)
class AnswerText:
    """The answer to a call of this side. `body`: JSON that nobody has looked into."""

    call_id: int
    status: int
    body: bytes


def call_text(
    call_id: int, operation: Operation, group_id: str, body: BaseModel | None, traceparent: str | None = None
) -> str:
    """A call. The ids of the groups of a `coordinator` stand in its body alone. `traceparent`: the caller's span."""
    head = f'{{"id":{call_id},"op":{json.dumps(operation.name)}'
    if traceparent is not None:
        head += f',"traceparent":{json.dumps(traceparent)}'
    if operation.name != "coordinator":
        head += f',"group_id":{json.dumps(group_id)}'
    return head + ("}" if body is None else f',"body":{body.model_dump_json(exclude_none=True)}}}')


def read_message(text: bytes) -> AnswerText | Push | None:
    """What came. None for what is neither an answer to a call of this side nor a push that is known: newer services
    may say more. ValueError where it is no message of this service's at all.
    """
    message = from_json(text)
    if not isinstance(message, dict):
        raise ValueError("a message that is no object")
    if "event" in message:
        return _read_push(message)
    call_id, status = message.get("id"), message.get("status")
    if isinstance(call_id, int) and isinstance(status, int) and "body" in message:
        return AnswerText(call_id, status, to_json(message["body"]))
    return None


def _read_push(message: dict[str, object]) -> Push | None:
    kind = _PUSHES.get(str(message["event"]))
    try:
        return None if kind is None else kind.model_validate(message)
    except ValidationError:
        return None
