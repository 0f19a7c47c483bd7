"""One event is one line, whatever a client put into it."""

import json
import logging

import pytest

from rallypoint.coordinator.core.commands import Trigger
from rallypoint.coordinator.core.effects import (
    GroupFrozen,
    GroupRemoved,
    GroupThawed,
    JoinPhaseEnded,
    OffsetsCommitted,
    OffsetsRemoved,
    OffsetsReset,
    RebalanceBegan,
    RebalanceHeld,
    Removal,
    SessionExpired,
    SyncPhaseEnded,
)
from rallypoint.coordinator.logs import EventLog, FaultCounter, JsonFormatter, TextFormatter


def record(message: str, *, fault: bool = False) -> logging.LogRecord:
    made = logging.LogRecord("rallypoint.groups", logging.INFO, "", 0, message, (), None)
    made.created = 0.5
    if fault:
        try:
            raise ValueError("deep")
        except ValueError as error:
            made.exc_info = (ValueError, error, error.__traceback__)
    return made


def test_a_line_cannot_be_forged() -> None:
    line = TextFormatter().format(record("reason: a\nERROR b\x1b[31m\u2028é"))
    assert line == "1970-01-01T00:00:00.500Z INFO rallypoint.groups: reason: a\\u000aERROR b\\u001b[31m\\u2028é"
    assert "ValueError: deep" in TextFormatter().format(record("x", fault=True))


def test_json_lines_are_objects() -> None:
    line = JsonFormatter().format(record("a\nb é", fault=True))
    assert "\n" not in line
    values = json.loads(line)
    assert (values["time"], values["level"], values["logger"], values["message"]) == (
        "1970-01-01T00:00:00.500Z",
        "info",
        "rallypoint.groups",
        "a\nb é",
    )
    assert "ValueError: deep" in values["exception"]


def test_the_log_answers_why_a_group_rebalanced(caplog: pytest.LogCaptureFixture) -> None:
    told = EventLog()
    with caplog.at_level(logging.INFO, "rallypoint.groups"):
        told.event(RebalanceBegan("g", Trigger.MEMBER_LEFT, "a-1", 4, "member a-1 left: shutdown", 7))
        told.event(RebalanceHeld("g", Trigger.MEMBER_LEFT, "a-1", "left: a-1: shutdown", 9))
        told.event(GroupFrozen("g", 1_500, "deploy"))
        told.event(GroupThawed("g", lifted=False))
        told.event(GroupThawed("g", lifted=True))
        told.event(JoinPhaseEnded("g", 5, 120, 2, 7))
        told.event(SyncPhaseEnded("g", 5, 7, 7, None))
        told.event(SessionExpired("g", "b-1"))
        told.event(SessionExpired("g", "c-1", pending=True))
        told.event(OffsetsCommitted("g", (("t", 0, 1),), 1))
        told.event(OffsetsReset("g", "latest", (("t", 0, 5), ("t", 1, 6)), 1))
        told.event(OffsetsRemoved("g", (("u", 0), ("t", 0), ("t", 1)), Removal.DELETED))
        told.event(OffsetsRemoved("g", (("t", 0),), Removal.EXPIRED))
        told.event(OffsetsRemoved("g", (("t", 0),), Removal.TOPIC_DELETED))
        told.event(GroupRemoved("g", Removal.DELETED))
    assert caplog.messages == [
        "group g: rebalance 7, of generation 4, begins: member a-1 left: shutdown",
        "group g: a rebalance is held back: left: a-1: shutdown",
        "group g: frozen until 1970-01-01T00:00:01.500Z: deploy",
        "group g: the freeze is over",
        "group g: the freeze was lifted",
        "group g: generation 5 has 2 members, after a join phase of 120 ms",
        "group g: generation 5 is assigned, after a sync phase of 7 ms",
        "group g: b-1 is dropped: the member was not heard of in time",
        "group g: c-1 is dropped: the id handed out was not used in time",
        "group g: 2 offsets reset to latest, of t",
        "group g: 3 offsets were deleted, of t, u",
        "group g: 1 offset was removed as unused for too long, of t",
        "group g: 1 offset was deleted with the topic, of t",
        "group g: deleted, with its offsets",
    ]


@pytest.mark.parametrize(("exc_info", "count"), [(False, 0), (None, 0), (True, 1), (ValueError("planted"), 1)])
def test_records_with_a_traceback_are_counted_as_faults_however_a_caller_says_that_there_is_none(
    exc_info: bool | Exception | None, count: int
) -> None:
    faults: list[None] = []
    with FaultCounter(lambda: faults.append(None)):
        try:
            raise ValueError("planted")
        except ValueError:
            logging.getLogger("rallypoint.coordinator.planted").error("it failed", exc_info=exc_info)
    assert len(faults) == count
