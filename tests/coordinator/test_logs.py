"""One event is one line, whatever a client put into it."""

import json
import logging
import re
from pathlib import Path

import pytest

from rallypoint.coordinator.core.commands import Trigger
from rallypoint.coordinator.core.effects import (
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
from rallypoint.coordinator.logs import (
    LOG_FIELDS,
    EventLog,
    FaultCounter,
    JsonFormatter,
    TextFormatter,
    name_node,
    write_log,
)
from rallypoint.coordinator.runtime.origin import ORIGIN, Origin


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


def test_fields_stand_behind_the_sentence_and_cannot_be_forged() -> None:
    made = record("left: [group_id=x]")
    made.__dict__.update(group_id='a b] [member_id=c"\n\u2028', generation_id=4, node_id="node-1", request_id=None)
    line = TextFormatter().format(made)
    assert line.endswith(
        'left: [group_id=x] [group_id="a b] [member_id=c\\"\\n\\u2028" generation_id=4 node_id=node-1]'
    )
    assert len(line.splitlines()) == 1
    values = json.loads(JsonFormatter().format(made))
    assert {name: values[name] for name in LOG_FIELDS if name in values} == {
        "group_id": 'a b] [member_id=c"\n\u2028',
        "generation_id": 4,
        "node_id": "node-1",
    }


@pytest.mark.parametrize("value", ["", "a b", "a=b", "[a", "a]", 'a"b', "a\\b", "a\u2028b", "é", "\x1b[0m"])
def test_a_value_that_could_be_taken_for_something_else_is_quoted(value: str) -> None:
    made = record("x")
    made.__dict__["group_id"] = value
    (quoted,) = re.findall(r" \[group_id=(.*)\]$", TextFormatter().format(made))
    assert json.loads(quoted) == value
    assert quoted.isprintable()


def test_every_line_names_the_node_and_the_request(capsys: pytest.CaptureFixture[str]) -> None:
    root = logging.getLogger()
    before, level = root.handlers[:], root.level
    try:
        write_log("info", "json")
        logging.getLogger("rallypoint").info("early")
        name_node("node-1")
        of_request = ORIGIN.set(Origin("asks-1"))
        logging.getLogger("rallypoint").info("late")
        ORIGIN.reset(of_request)
    finally:
        root.handlers[:] = before
        root.setLevel(level)
    early, late = map(json.loads, capsys.readouterr().err.splitlines())
    assert "node_id" not in early
    assert (late["node_id"], late["request_id"]) == ("node-1", "asks-1")


def test_each_event_has_its_ids_as_fields(caplog: pytest.LogCaptureFixture) -> None:
    told = EventLog()
    with caplog.at_level(logging.INFO, "rallypoint.groups"):
        told.event(RebalanceBegan("g", Trigger.MEMBER_LEFT, "a-1", 4, "member a-1 left", 7))
        told.event(SyncPhaseEnded("g", 5, 7, 8, None))
        told.event(SessionExpired("g", "b-1"))
        told.event(MembersRemoved("g", Trigger.MEMBER_REMOVED, ("c-1",), 1, "slow"))
        told.event(MembersRemoved("g", Trigger.MEMBER_REMOVED, ("c-1", "d-1"), 2, "slow"))
    told_fields = [{name: getattr(line, name) for name in LOG_FIELDS if hasattr(line, name)} for line in caplog.records]
    assert told_fields == [
        {"group_id": "g", "member_id": "a-1", "generation_id": 4, "rebalance_id": 7},
        {"group_id": "g", "generation_id": 5, "rebalance_id": 8},
        {"group_id": "g", "member_id": "b-1"},
        {"group_id": "g", "member_id": "c-1"},
        {"group_id": "g"},
    ]


def test_the_documents_list_the_fields() -> None:
    page = (Path(__file__).parents[2] / "docs" / "operations.md").read_text()
    rows = dict(re.findall(r"^\| `(\w+)` \| (.+) \|$", page.partition("\n## The log\n")[2], re.MULTILINE))
    assert {name: rows.pop(name, None) for name in LOG_FIELDS} == dict(LOG_FIELDS)
    made = record("x", fault=True)
    assert rows.keys() == json.loads(JsonFormatter().format(made)).keys()


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
        told.event(RebalanceHeld("g", Trigger.MEMBER_LEFT, "a-1", "member a-1 left: shutdown", 9))
        told.event(GroupFrozen("g", 1_500, "deploy"))
        told.event(GroupThawed("g", lifted=False))
        told.event(GroupThawed("g", lifted=True))
        told.event(JoinPhaseEnded("g", 5, 120, 2, 7))
        told.event(JoinPhaseEnded("g", 6, 120, 1, 8))
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
        "group g: a rebalance is held back: member a-1 left: shutdown",
        "group g: frozen until 1970-01-01T00:00:01.500Z: deploy",
        "group g: the freeze is over",
        "group g: the freeze was lifted",
        "group g: generation 5 has 2 members, after a join phase of 120 ms",
        "group g: generation 6 has 1 member, after a join phase of 120 ms",
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
