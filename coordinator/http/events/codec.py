"""Events of groups as JSON, and as blocks of an event stream (WHATWG HTML, "server-sent events").

An event's kind is the name of its class in snake_case, and its fields are those of the class. So a new event of the
rules needs no line here. docs/events.md has to list it, and a test checks that.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields
from typing import Any, get_args

from rallypoint.coordinator.core.effects import Event, GroupChanged
from rallypoint.coordinator.core.moves import Move
from rallypoint.coordinator.runtime.events.feed import COMMITS, Kept
from rallypoint.protocol.messages import AnswerModel

OPENED = "opened"
"""Kind of the first event of a stream."""
GAP = "gap"
"""Kind of the event which says that earlier events are gone."""
NODE_FOLLOWED = "node_followed"
"""Kind of the event which says that the stream tells the events of one more node."""
NODE_LOST = "node_lost"
"""Kind of the event which says that the stream tells the events of a node no more, and why."""
STREAM_KINDS = (OPENED, GAP, NODE_FOLLOWED, NODE_LOST)
"""Kinds of events of the stream itself. Every stream gets them, whatever kinds it asks for."""
CAUGHT_UP = b"caught up"
"""The comment of a stream once it has told all that happened before it was asked."""
WHAT_TO_DO = "List the groups again (GET /v1/groups); what follows here is whole from this cursor on."


def _kind(event_type: type) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "_", event_type.__name__).lower()


KINDS: Mapping[str, type] = {_kind(event_type): event_type for event_type in get_args(Event)}
"""Every kind of event of groups, with its class."""
KINDS_ASKED_FOR = frozenset(_kind(event_type) for event_type in COMMITS)
"""Kinds that only those get who name them."""
_KIND_OF = {event_type: kind for kind, event_type in KINDS.items()}


def kind_of(event: Event) -> str:
    """The event's kind."""
    return _KIND_OF[type(event)]


def group_id_of(event: Event) -> str:
    """The group that the event is about; every event is about one."""
    return event.summary.group_id if isinstance(event, GroupChanged) else event.group_id


def data_of(event: Event, at_ms: int) -> dict[str, Any]:
    """The event as JSON has it, with the field names and the shapes of the other answers."""
    values = {
        "kind": kind_of(event),
        "at_ms": at_ms,
    }
    source = event.summary if isinstance(event, GroupChanged) else event
    for field in fields(source):
        # What a group subscribes to may be a long list; its description has it.
        if field.name != "subscriptions":
            values[field.name] = _shape(field.name, getattr(source, field.name))
    return values


def _shape(name: str, value: Any) -> Any:
    if name == "offsets":
        return _offsets(value)
    if name == "partitions":
        return _partitions(value)
    if name == "moves":
        return [shown for move in value for shown in _moves(move)]
    return value


def _offsets(offsets: Iterable[tuple[Any, ...]]) -> dict[str, dict[str, dict[str, int]]]:
    """As a fetch answers them; with the time of the commit where each has its own."""
    by_topic: dict[str, dict[str, dict[str, int]]] = {}
    for topic, partition, offset, *times in offsets:
        shown = {"offset": offset, "commit_at_ms": times[0]} if times else {"offset": offset}
        by_topic.setdefault(topic, {})[str(partition)] = shown
    return by_topic


def _moves(move: Move) -> Iterator[dict[str, Any]]:
    """One entry for each partition."""
    before, after = move.from_owner, move.to_owner
    for partition in move.partitions:
        yield {
            "topic": move.topic,
            "partition": partition,
            "from_member_id": None if before is None else before.member_id,
            "from_client_id": None if before is None else before.client_id,
            "to_member_id": None if after is None else after.member_id,
            "to_client_id": None if after is None else after.client_id,
        }


def _partitions(partitions: Iterable[tuple[str, int]]) -> dict[str, list[int]]:
    """As an assignment has them."""
    by_topic: dict[str, list[int]] = {}
    for topic, partition in partitions:
        by_topic.setdefault(topic, []).append(partition)
    return by_topic


class EventHead(AnswerModel):
    """What a node needs to know of an event that another one has told."""

    at_ms: int
    group_id: str


class GapData(AnswerModel):
    """What a node needs to know of a gap that another one has told."""

    reason: str
    lost_count: int | None


def text_of(kept: Kept) -> bytes:
    """The event's block without its cursor; made once, however many streams show it."""
    if kept.text is None:
        kept.text = text(kind_of(kept.event), data_of(kept.event, kept.at_ms))
    return kept.text


def text(kind: str, data: Mapping[str, Any]) -> bytes:
    """A block without its cursor. JSON on one line has no line break that could end it early."""
    return f"event: {kind}\ndata: {json.dumps(data, separators=(',', ':'))}\n\n".encode("ascii")


def with_cursor(cursor: str, text: bytes) -> bytes:
    """The whole block."""
    return b"id: %b\n%b" % (cursor.encode("ascii"), text)


def block(kind: str, data: Mapping[str, Any], cursor: str) -> bytes:
    """One event."""
    return with_cursor(cursor, text(kind, data))


def gap_block(reason: str, lost_count: int | None, cursor: str, node_id: str | None = None) -> bytes:
    """Events before the cursor are missing: of the node with this id, if the stream tells those of several."""
    named = {} if node_id is None else {"node_id": node_id}
    data = {"kind": GAP, **named, "reason": reason, "lost_count": lost_count, "cursor": cursor, "action": WHAT_TO_DO}
    return block(GAP, data, cursor)


def caught_up(cursor: str) -> bytes:
    """No event: see `CAUGHT_UP`."""
    return b": %b\nid: %b\n\n" % (CAUGHT_UP, cursor.encode("ascii"))


def heartbeat(cursor: str) -> bytes:
    """No event: it keeps the connection in use, and lets the reader's cursor grow while nothing happens for it."""
    return f": heartbeat\nid: {cursor}\n\n".encode("ascii")
