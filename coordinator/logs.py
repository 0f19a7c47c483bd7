"""The service's log: its two forms, and the events of groups in it.

Lines go to standard error. They can contain what clients send (ids, reasons), so control characters are escaped: one
event is one line.
"""

import json
import logging
import re
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Literal, Self

from rallypoint.coordinator.core.effects import (
    Event,
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
from rallypoint.coordinator.storage.contract import AppendMetrics

log = logging.getLogger("rallypoint.groups")

_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]")


def _escape(text: str) -> str:
    return _CONTROL.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


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


class TextFormatter(logging.Formatter):
    """`2026-01-31T12:00:00.000Z INFO rallypoint.groups: …`; a traceback follows on lines of its own."""

    def format(self, record: logging.LogRecord) -> str:
        """One record."""
        line = f"{_time_of(record)} {record.levelname} {record.name}: {_escape(record.getMessage())}"
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


class JsonFormatter(logging.Formatter):
    """One JSON object a line: `time`, `level`, `logger`, `message`, and `exception` where there is one."""

    def format(self, record: logging.LogRecord) -> str:
        """One record."""
        values = {
            "time": _time_of(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            values["exception"] = self.formatException(record.exc_info)
        return json.dumps(values, ensure_ascii=False)


def write_log(level: str, form: Literal["text", "json"]) -> None:
    """Send everything from `level` up to standard error; libraries from WARNING up. Replaces what was set up before."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if form == "json" else TextFormatter())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    for library in ("aiohttp", "asyncio", "websockets"):  # the last would log what clients send, tokens too
        logging.getLogger(library).setLevel(max(logging.WARNING, logging.getLogger().level))


class EventLog:
    """An observer that answers "why did it rebalance?" with a line for each step of it."""

    def event(self, event: Event) -> None:
        """Something happened to a group, and is durable. Commits and changes of state are too many to tell."""
        if isinstance(event, OffsetsCommitted):
            return
        if isinstance(event, RebalanceBegan):
            log.info(
                "group %s: rebalance %d, of generation %d, begins: %s",
                event.group_id,
                event.rebalance_id,
                event.generation_id,
                event.reason,
            )
        elif isinstance(event, RebalanceHeld):
            log.info("group %s: a rebalance is held back: %s", event.group_id, event.reason)
        elif isinstance(event, GroupFrozen):
            log.info("group %s: frozen until %s: %s", event.group_id, _instant(event.until_ms), event.reason)
        elif isinstance(event, GroupThawed):
            log.info("group %s: the freeze %s", event.group_id, "was lifted" if event.lifted else "is over")
        elif isinstance(event, JoinPhaseEnded):
            log.info(
                "group %s: generation %d has %d members, after a join phase of %d ms",
                event.group_id,
                event.generation_id,
                event.member_count,
                event.duration_ms,
            )
        elif isinstance(event, SyncPhaseEnded):
            log.info(
                "group %s: generation %d is assigned, after a sync phase of %d ms",
                event.group_id,
                event.generation_id,
                event.duration_ms,
            )
        elif isinstance(event, SessionExpired):
            log.info("group %s: %s is dropped: %s", event.group_id, event.member_id, _why_dropped(event))
        elif isinstance(event, MembersRemoved):
            who = ", ".join(event.member_ids)
            more = event.member_count - len(event.member_ids)
            log.info(
                "group %s: removed %s%s: %s", event.group_id, who, f" and {more} more" if more else "", event.reason
            )
        elif isinstance(event, GroupRemoved):
            log.info("group %s: %s, with its offsets", event.group_id, _REMOVED[event.cause])
        elif isinstance(event, OffsetsReset):
            topics = ", ".join(sorted({topic for topic, _, _ in event.offsets}))
            log.info("group %s: %d offsets reset to %s, of %s", event.group_id, len(event.offsets), event.to, topics)
        elif isinstance(event, OffsetsRemoved):
            topics = ", ".join(sorted({topic for topic, _ in event.partitions}))
            count = len(event.partitions)
            offsets = "1 offset was" if count == 1 else f"{count} offsets were"
            log.info("group %s: %s %s, of %s", event.group_id, offsets, _REMOVED[event.cause], topics)

    def appended(self, append_metrics: AppendMetrics) -> None:
        """Not logged: metrics have it."""

    def parked(self, delta: int) -> None:
        """Not logged: metrics have it."""


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
