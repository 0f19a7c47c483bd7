"""`rallypoint events` and `rallypoint top`, against a real service."""

import fcntl
import json
import os
import pty
import signal
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path

import pytest

from rallypoint.cli.events.lines import event_line
from rallypoint.cli.main import main
from rallypoint.cli.top.screen import SORTS, State, frame, pressed
from tests.end_to_end.service_process import running_service
from tests.fakes.real_api import RealApi

Captured = pytest.CaptureFixture[str]
COMMIT = {"generation_id": -1, "member_id": "", "offsets": {"clicks": {"0": {"offset": 7}}}}


def test_an_event_is_a_line() -> None:
    event = {
        "kind": "rebalance_began", "at_ms": 1_700_000_000_000, "group_id": "a\x1b[2J", "trigger": "member_left",
        "member_id": None, "reason": "left: \u202ex y", "moves": [{"a": "b" * 500}], "lifted": True, "n": 3,
    }  # fmt: skip
    line = event_line(event)
    assert line.startswith("2023-11-14T22:13:20Z  a\\x1b[2J  rebalance_began  trigger=member_left  ")
    assert 'reason="left: \\u202ex y"' in line
    assert '  moves=[{"a":"bbb' in line
    assert line.endswith("lifted=true  n=3")
    assert len(line) < 400
    assert line.isprintable()


@pytest.mark.slow
def test_events_that_were_kept_are_printed_and_those_to_come(tmp_path: Path, capsys: Captured) -> None:
    with running_service(tmp_path) as service:
        for group_id in ("etl", "web"):
            assert service.send("POST", f"/v1/groups/{group_id}/offsets", COMMIT)[0] == 200
        words = ["events", "--coordinator", service.url]
        assert main([*words, "-o", "json"]) == 0
        told = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        assert {(one["kind"], one["group_id"]) for one in told} >= {("group_created", "etl"), ("group_created", "web")}
        assert main([*words, "web", "--kinds", "group_created"]) == 0
        (line,) = capsys.readouterr().out.splitlines()
        assert line.endswith("  web  group_created")
        command = [sys.executable, "-m", "rallypoint.cli.main", *words, "-f", "--new", "--prefix", "new"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as follower:
            assert follower.stdout is not None
            deadline = time.monotonic() + 60
            while not service.metrics()["rallypoint_event_streams"] and time.monotonic() < deadline:
                time.sleep(0.05)
            service.send("POST", "/v1/groups/new-1/offsets", COMMIT)
            assert "new-1  group_created" in follower.stdout.readline()
            service.kill()
            service.start()
            line = follower.stdout.readline()
            while " gap  " not in line:
                assert line, "it ended"
                line = follower.stdout.readline()
            assert "reason=restarted" in line
            service.send("POST", "/v1/groups/new-2/offsets", COMMIT)
            while "new-2" not in line:
                assert line, "it ended"
                line = follower.stdout.readline()
            follower.send_signal(signal.SIGINT)
            assert follower.wait(10) == 130
        assert main([*words, "--curl"]) == 0
        assert capsys.readouterr().out.startswith("curl -sS -N -H 'Accept: text/event-stream' ")


# --- top

ROW = {"group_id": "etl", "state": "Stable", "status": "OK", "member_count": 2, "lag": 5}
ROWS = [ROW | {"group_id": f"g{number:03}", "status": "ERR" if number == 1 else "OK"} for number in range(50)]
TOTALS = {
    "group_count": 50,
    "matching_count": 50,
    "by_state": {"Stable": 50},
    "by_status": {},
    "lag": 5,
    "member_count": 9,
}


def shown(
    state: State, rows: list[dict[str, object]] = ROWS, said: str = "", detail: tuple[str, ...] = ()
) -> list[str]:
    found = frame(state, rows, TOTALS, detail, said, columns=70, lines=12, now_ms=0)
    assert len(found) == 12
    assert all(len(line.text) <= 70 for line in found)
    return [line.text for line in found]


def test_a_frame_has_the_head_the_rows_and_the_keys() -> None:
    lines = shown(State())
    assert lines[0] == "rallypoint top: by lag"
    assert lines[1].startswith("50 of 50 groups with 9 members; lag 5")
    assert lines[3].startswith("GROUP")
    assert lines[4].startswith("g000")
    assert lines[-1].startswith("q quit")
    assert shown(State(), said="No node answers.")[-1] == "No node answers."
    assert "There are no such groups." in shown(State(), rows=[])


def test_the_chosen_row_stays_on_the_screen() -> None:
    state = State()
    for _ in range(60):
        state = pressed(state, "down", len(ROWS))
    assert state.chosen == 49
    assert any(line.startswith("g049") for line in shown(state))
    styles = frame(state, ROWS, None, (), "", columns=70, lines=12, now_ms=0)
    assert [line.text.split()[0] for line in styles if line.style == "chosen"] == ["g049"]


def test_keys_sort_search_and_look() -> None:
    state = pressed(State(), "s", 3)
    assert state.query["sort"] == SORTS[1][0]
    assert pressed(state, "r", 3).descending is False
    typing = pressed(State(), "/", 3)
    for key in ("e", "q", "backspace", "t", "enter"):
        typing = pressed(typing, key, 3)
    assert (typing.search, typing.typed) == ("et", None)
    assert pressed(typing, "escape", 3).search == ""
    look = pressed(State(), "enter", 3)
    assert look.detail == "describe"
    assert shown(look, detail=("one", "two"))[3] == "one"
    assert pressed(look, "w", 3).detail == "why"
    assert pressed(look, "escape", 3).detail == ""
    assert pressed(State(), "q", 3).is_done
    assert pressed(State(), "enter", 0).detail == ""


def test_without_a_terminal_there_is_no_screen(api: RealApi, capsys: Captured) -> None:
    assert main(["top"]) == 2
    assert "needs a terminal" in capsys.readouterr().err


def test_the_screen_on_a_terminal(api: RealApi) -> None:
    api.call("POST", "/v1/groups/etl-42/offsets", COMMIT)
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 100, 0, 0))
    environment = os.environ | {"TERM": "xterm"}
    command = [sys.executable, "-m", "rallypoint.cli.main", "top"]
    with subprocess.Popen(
        command, stdin=theirs, stdout=theirs, stderr=theirs, env=environment, start_new_session=True
    ) as process:
        os.close(theirs)
        text = b""
        deadline = time.monotonic() + 60
        while b"etl-42" not in text and time.monotonic() < deadline:
            text += os.read(ours, 65_536)
        assert b"etl-42" in text
        os.write(ours, b"q")
        assert process.wait(20) == 0
    os.close(ours)
