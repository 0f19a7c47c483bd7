"""A mixed group's members are judged by what they say: what they may not do is noticed."""

import http.server
import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.judges.accounts import Seen, Stint, watching_commits, wrong_commits, wrong_reads
from tests.judges.door import Address
from tests.judges.door_process import Judged
from tests.judges.members import Group, Member, Members, running_members

GROUP = Group(Judged(Address("", 0), Address("", 0), ""), "g", "t", "range")
SAYS = {
    "lives": "print('assigned 10.5 0,1', flush=True); import time; time.sleep(600)",
    "ends": "print('assigned 10.5 0,1', flush=True)",
}
WAIT_SECONDS = 30.0


@pytest.mark.parametrize(
    ("offsets", "wrong"),
    [
        ({}, []),
        ({0: [5, 6, 7]}, []),
        ({0: [7]}, []),
        ({1: [0, 1]}, []),
        ({0: [4, 5]}, ["m began partition 0 at 4, which was committed to 5"]),
        ({0: [5, 7]}, ["m read 7 of partition 0 after 5"]),
        ({0: [5, 6, 6]}, ["m read 6 of partition 0 after 6"]),
    ],
)
def test_a_member_reads_on_from_what_was_committed(offsets: dict[int, list[int]], wrong: list[str]) -> None:
    """What was committed when it had its partitions already is its own commit."""
    seen = [Seen(1.0, {0: 3}), Seen(8.0, {0: 5}), Seen(9.5, {0: 8}), Seen(20.0, {0: 9})]
    assert wrong_reads([Stint("m", 10.0, offsets)], seen) == wrong
    assert not wrong_reads([Stint("m", 1.5, {0: [0]})], seen)


def test_commits_only_go_on() -> None:
    assert not wrong_commits([])
    assert not wrong_commits([Seen(1, {}), Seen(2, {0: 5}), Seen(3, {0: 5, 1: 0})])
    assert wrong_commits([Seen(1, {0: 5}), Seen(2, {0: 4}), Seen(3, {})]) == [
        "partition 0 was committed to 5, then to 4",
        "partition 0 was committed to 4, then to None",
    ]


@pytest.fixture
def members(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Members]:
    monkeypatch.setattr("tests.judges.members.command_of", lambda what, _group: [sys.executable, "-c", SAYS[what]])
    with running_members(GROUP, tmp_path) as members:
        yield members


def test_whoever_ends_by_itself_is_noticed_at_once(members: Members) -> None:
    """And whoever was told to end is not wanted any more."""
    lives = members.start("lives")
    members.wait(lambda: members.shared(2), WAIT_SECONDS, "settled")
    members.start("ends").process.wait(WAIT_SECONDS)
    with pytest.raises(AssertionError, match="ended by itself: ends"):
        members.wait(lambda: members.shared(2), 3600, "settled")
    members.all[1].is_to_end = True
    lives.kill()
    members.check_living()


def said(text: str, tmp_path: Path) -> Member:
    """A member whose process has said this, and no more."""
    command = [sys.executable, "-c", "import sys; sys.stdout.write(sys.argv[1])", text]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        member = Member("m", process, tmp_path / "log")
        member.listen()
    return member


def test_what_members_say(tmp_path: Path) -> None:
    """A last line that was not said to the end, for its process was killed, does not count."""
    lines = "assigned 10.5 0,1\nrecord 0 4 a\nrecord 0 5 b\nassigned 11.25 0\nrecord 0 6 c\n"
    for cut in ("", "rec", "record 0 7", "record 0 7 d"):
        member = said(lines + cut, tmp_path)
        assert [one.value for one in member.read] == ["a", "b", "c"]
        assert member.stints == [Stint("m", 10.5, {0: [4, 5]}), Stint("m", 11.25, {0: [6]})]
        assert member.partitions == frozenset(), "it has ended"


def test_what_kafkas_own_tool_says(tmp_path: Path) -> None:
    def event(name: str, *numbers: int) -> dict[str, Any]:
        named = [{"topic": "t", "partition": number} for number in numbers]
        return {"name": name, "timestamp": 10_500, "partitions": named}

    def record(offset: int) -> dict[str, Any]:
        return {"name": "record_data", "topic": "t", "partition": 0, "offset": offset, "value": str(offset)}

    events = (
        event("partitions_assigned", 0, 1), record(4), {"name": "records_consumed", "count": 1}, record(5),
        event("partitions_revoked", 1), record(6),
    )  # fmt: skip
    text = "".join(f"{json.dumps(one)}\n" for one in events)
    for cut in ("", "{", text.splitlines()[0]):
        assert said(text + cut, tmp_path).stints == [Stint("m", 10.5, {0: [4, 5]}), Stint("m", 10.5, {0: [6]})]


def test_commits_are_looked_at_though_the_service_is_away_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.judges.accounts.LOOK_SECONDS", 0.01)
    offsets = {"t": {"0": {"offset": 5}}, "other": {"0": {"offset": 7}}}
    answers: Iterator[Any] = iter([{"offsets": {}}, None, {"offsets": offsets}])

    class Service(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            answer = next(answers, None)
            self.send_response(503 if answer is None else 200)
            self.end_headers()
            self.wfile.write(json.dumps(answer).encode())

        def log_message(self, *_words: Any) -> None:
            """To nobody."""

    with http.server.HTTPServer(("127.0.0.1", 0), Service) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            with watching_commits(f"http://127.0.0.1:{server.server_port}", "g", "t") as seen:
                deadline = time.monotonic() + WAIT_SECONDS
                while len(seen) < 2:
                    assert time.monotonic() < deadline
                    time.sleep(0.01)
        finally:
            server.shutdown()
            thread.join()
    assert [one.offsets for one in seen] == [{}, {0: 5}]
