"""The service's log: its two forms, and the events of groups in it.

Lines go to standard error. They can contain what clients send (ids, reasons), so control characters are escaped: one
event is one line. What a program looks for stands in fields, besides the sentence (`LOG_FIELDS`).
"""

import json
import logging
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, Literal, Self

from rallypoint.coordinator.core.effects import (
    Event,
    GroupChanged,
    GroupFrozen,
    GroupRemoved,
    GroupThawed,
    JoinPhaseEnded,
    MembersRemoved,
    OffsetsCommitted,
    OffsetsRemoved,
    OffsetsReset,
    RebalanceBegan,
    RebalanceHeld,
    Removal,
    SessionExpired,
    SyncPhaseEnded,
)
from rallypoint.coordinator.runtime.origin import ORIGIN
from rallypoint.coordinator.storage.contract import AppendMetrics

log = logging.getLogger("rallypoint.groups")

LOG_FIELDS: Mapping[str, str] = {
    "group_id": "the group that the line is about",
    "member_id": "the member that the line is about, or that began the rebalance",
    "generation_id": "the group's generation; of the beginning of a rebalance the one that ends",
    "rebalance_id": "the rebalance, as in `GET /v1/groups/{group_id}/rebalances`",
    "request_id": "the request for which it was done",
    "node_id": "the node that writes the line; absent until its name is settled",
}
"""What a line may have beside its sentence, in this order. A field of which the line has nothing to say is absent."""

_BARE = re.compile(r"[!#-<>-Z^-~]+")
"""A value that stands in a text line without quotation marks."""
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]")


def _escape(text: str) -> str:
    return _CONTROL.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def _fields_of(record: logging.LogRecord) -> Iterator[tuple[str, Any]]:
    return ((name, value) for name in LOG_FIELDS if (value := getattr(record, name, None)) is not None)


def _time_of(record: logging.LogRecord) -> str:
    return _instant(record.created * 1_000)


def _instant(at_ms: float) -> str:
    return datetime.fromtimestamp(at_ms / 1_000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


class FaultCounter(logging.Handler):
    """Calls back for each record with a traceback: a fault of ours is logged so, and nothing else is.

    What a store reports, or a client does, is said in a line. In force from `with` to its end.
    """

    def __init__(self, on_fault: Callable[[], None]) -> None:
        super().__init__(logging.ERROR)
        self._on_fault = on_fault

    def emit(self, record: logging.LogRecord) -> None:
        """One record."""
        # Of a caller that said `exc_info=False` it is False, whatever the type says.
        if record.exc_info and record.exc_info[0] is not None:
            self._on_fault()

    def __enter__(self) -> Self:
        logging.getLogger().addHandler(self)
        return self

    def __exit__(self, *_: object) -> None:
        logging.getLogger().removeHandler(self)


class WhoAndWhere(logging.Filter):
    """Gives each record the id of this node, once that is known, and that of the request that is being worked on."""

    def __init__(self) -> None:
        super().__init__()
        self.node_id: str | None = None

    def filter(self, record: logging.LogRecord) -> bool:
        """One record. It is always kept; a field that it has already stays."""
        values = record.__dict__
        values.setdefault("node_id", self.node_id)
        origin = ORIGIN.get()
        if origin is not None:
            values.setdefault("request_id", origin.request_id)
        return True


class TextFormatter(logging.Formatter):
    """`2026-01-31T12:00:00.000Z INFO rallypoint.groups: … [group_id=clicks node_id=node-1]`; a traceback follows on
    lines of its own.

    A value with a space, a quotation mark or the like stands in quotation marks, as JSON writes it, so the fields can
    be told from what a client has put into the sentence or into an id.
    """

    def format(self, record: logging.LogRecord) -> str:
        """One record."""
        line = f"{_time_of(record)} {record.levelname} {record.name}: {_escape(record.getMessage())}"
        fields = " ".join(f"{name}={_word(value)}" for name, value in _fields_of(record))
        if fields:
            line = f"{line} [{fields}]"
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


def _word(value: object) -> str:
    text = str(value)
    return text if _BARE.fullmatch(text) else _escape(json.dumps(text, ensure_ascii=False))


class JsonFormatter(logging.Formatter):
    """One JSON object a line: `time`, `level`, `logger`, `message`, the fields, and `exception` where there is one."""

    def format(self, record: logging.LogRecord) -> str:
        """One record."""
        values = {
            "time": _time_of(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **dict(_fields_of(record)),
        }
        if record.exc_info:
            values["exception"] = self.formatException(record.exc_info)
        return json.dumps(values, ensure_ascii=False)


def write_log(level: str, form: Literal["text", "json"]) -> None:
    """Send everything from `level` up to standard error; libraries from WARNING up. Replaces what was set up before."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if form == "json" else TextFormatter())
    handler.addFilter(WhoAndWhere())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    for library in ("aiohttp", "asyncio", "urllib3", "websockets"):  # the last would log what clients send, tokens too
        logging.getLogger(library).setLevel(max(logging.WARNING, logging.getLogger().level))


def name_node(node_id: str) -> None:
    """Have each line that is written from now on name the node."""
    for handler in logging.getLogger().handlers:
        for one in handler.filters:
            if isinstance(one, WhoAndWhere):
                one.node_id = node_id


_UNTOLD = (OffsetsCommitted, GroupChanged)


class EventLog:
    """An observer that answers "why did it rebalance?" with a line for each step of it."""

    def event(self, event: Event) -> None:
        """Something happened to a group, and is durable. Commits and changes of state are too many to tell."""
        if isinstance(event, _UNTOLD):
            return
        if isinstance(event, RebalanceBegan):
            _tell(
                event,
                "rebalance %d, of generation %d, begins: %s",
                *(event.rebalance_id, event.generation_id, event.reason),
            )
        elif isinstance(event, RebalanceHeld):
            _tell(event, "a rebalance is held back: %s", event.reason)
        elif isinstance(event, GroupFrozen):
            _tell(event, "frozen until %s: %s", _instant(event.until_ms), event.reason)
        elif isinstance(event, GroupThawed):
            _tell(event, "the freeze %s", "was lifted" if event.lifted else "is over")
        elif isinstance(event, JoinPhaseEnded):
            _tell(
                event,
                "generation %d has %d member%s, after a join phase of %d ms",
                *(event.generation_id, event.member_count, "" if event.member_count == 1 else "s", event.duration_ms),
            )
        elif isinstance(event, SyncPhaseEnded):
            _tell(
                event, "generation %d is assigned, after a sync phase of %d ms", event.generation_id, event.duration_ms
            )
        elif isinstance(event, SessionExpired):
            _tell(event, "%s is dropped: %s", event.member_id, _why_dropped(event))
        elif isinstance(event, MembersRemoved):
            who = ", ".join(event.member_ids)
            more = event.member_count - len(event.member_ids)
            _tell(event, "removed %s%s: %s", who, f" and {more} more" if more else "", event.reason)
        elif isinstance(event, GroupRemoved):
            _tell(event, "%s, with its offsets", _REMOVED[event.cause])
        elif isinstance(event, OffsetsReset):
            topics = ", ".join(sorted({topic for topic, _, _ in event.offsets}))
            _tell(event, "%d offsets reset to %s, of %s", len(event.offsets), event.to, topics)
        elif isinstance(event, OffsetsRemoved):
            topics = ", ".join(sorted({topic for topic, _ in event.partitions}))
            count = len(event.partitions)
            offsets = "1 offset was" if count == 1 else f"{count} offsets were"
            _tell(event, "%s %s, of %s", offsets, _REMOVED[event.cause], topics)

    def appended(self, append_metrics: AppendMetrics) -> None:
        """Not logged: metrics have it."""


Told = (
    RebalanceBegan
    | RebalanceHeld
    | GroupFrozen
    | GroupThawed
    | JoinPhaseEnded
    | SyncPhaseEnded
    | SessionExpired
    | MembersRemoved
    | GroupRemoved
    | OffsetsReset
    | OffsetsRemoved
)
"""Events that have a line."""


def _tell(event: Told, sentence: str, *values: object) -> None:
    """The line of an event, with what it says of the fields."""
    extra: dict[str, Any] = {
        name: getattr(event, name)
        for name in ("group_id", "member_id", "generation_id", "rebalance_id")
        if hasattr(event, name)
    }
    if isinstance(event, MembersRemoved) and event.member_count == 1:
        extra["member_id"] = event.member_ids[0]
    log.info(f"group %s: {sentence}", event.group_id, *values, extra=extra)


_REMOVED = {
    Removal.DELETED: "deleted",
    Removal.EXPIRED: "removed as unused for too long",
    Removal.TOPIC_DELETED: "deleted with the topic",
}
"""What became of a group, or of committed offsets."""


def _why_dropped(event: SessionExpired) -> str:
    if event.pending:
        return "the id handed out was not used in time"
    if event.disconnected:
        return "its connection was lost, and it did not come back in time"
    return "the member was not heard of in time"
