"""`rallypoint store copy` as a user meets it: its lines, its statuses, and what a signal leaves."""

import os
import re
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from rallypoint.cli.main import main
from rallypoint.cli.store import ProgressLines
from rallypoint.coordinator.copies import Progress, Stage
from rallypoint.coordinator.storage.contract import FORMAT_KEYSPACE
from rallypoint.coordinator.storage.sqlite_file import Batch, SqliteFile
from tests.fakes.copied_stores import Held, sample
from tests.formats.test_stores import rows
from tests.real.parts import ROOT
from tests.sizes import in_long

COMMAND = [sys.executable, "-W", "error", "-m", "rallypoint.cli.main"]
MANY = 30_000
"""Offsets that take seconds to copy and compare, so that a signal comes in between."""


def make(path: Path, held: Held) -> str:
    file = SqliteFile(path)
    for name, values in held.items():
        assert file.append([Batch(name, file.acquire(name), list(values.items()))]) == [None]  # type: ignore[arg-type]
    file.close()
    return f"sqlite:///{path}"


def copy(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [*COMMAND, "store", "copy", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, cwd=ROOT)


def test_what_it_prints(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, target = make(tmp_path / "a.db", sample()), f"sqlite:///{tmp_path / 'b.db'}"
    assert main(["store", "copy", source, target]) == 0
    printed = capsys.readouterr()
    size = sum(len(key) + len(value) for values in sample().values() for key, value in values.items())
    assert printed.err == ""
    assert printed.out == (
        f"copied {source} to {target}, and compared: 3 groups, 2 members, 302 committed offsets, 1 topic; 314 records,"
        f" {size:,} bytes\n"
        "Start services on the copy alone: one that runs on the source hands out the same generations.\n"
    )
    assert rows(tmp_path / "a.db") == rows(tmp_path / "b.db")
    assert main(["store", "copy", source, target]) == 1
    assert capsys.readouterr() == (
        "",
        f"rallypoint: The store is not copied: {target} is not empty; --replace deletes what it holds.\n",
    )
    assert main(["store", "copy", "--replace", "--quiet", source, target]) == 0


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        (["memory:", "sqlite:///b.db"], 2, "memory: keeps nothing that could be copied."),
        (["a.db", "sqlite:///b.db"], 2, "'a.db' is no storage URL"),
        (["sqlite:///a.db", "sqlite:///a.db"], 1, "are the same store."),
        (["sqlite:////no/such/a.db", "sqlite:////no/such/b.db"], 1, "there is no store"),
    ],
)
def test_a_refusal_is_one_line_and_a_status(
    arguments: list[str], status: int, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["store", "copy", *arguments]) == status
    printed = capsys.readouterr()
    assert (printed.out, printed.err.count("\n")) == ("", 1)
    assert words in printed.err


def test_a_handler_of_the_program_that_calls_it_is_there_afterwards(tmp_path: Path) -> None:
    source = make(tmp_path / "a.db", sample())

    def own(*_: object) -> None:
        raise AssertionError

    before = signal.signal(signal.SIGINT, own)
    try:
        assert main(["store", "copy", source, f"sqlite:///{tmp_path / 'b.db'}"]) == 0
        assert signal.getsignal(signal.SIGINT) is own
    finally:
        signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize("arguments", [["store"], ["store", "move"], ["store", "copy", "sqlite:///a.db"]])
def test_wrong_usage_ends_with_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    assert re.fullmatch(r"rallypoint store.*--help` says more\.\n", capsys.readouterr().err)


def test_records_that_cannot_be_read_are_warned_of(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = make(tmp_path / "a.db", {**sample(), "shard-2": {b"g/x/h": b"no JSON"}})
    assert main(["store", "copy", source, f"sqlite:///{tmp_path / 'b.db'}"]) == 0
    assert capsys.readouterr().err == (
        "rallypoint: 1 records cannot be read. They are copied as they are, and the service will say of which groups"
        " they are\n"
    )


def test_progress_is_said_every_two_seconds(capsys: pytest.CaptureFixture[str]) -> None:
    now = 100.0
    say = ProgressLines(lambda: now)
    for at, progress in (
        (101.9, Progress(Stage.READING, 5, None)),
        (102.0, Progress(Stage.READING, 7, None)),
        (103.9, Progress(Stage.COPYING, 1, 9)),
        (104.1, Progress(Stage.COPYING, 2, 9)),
    ):
        now = at
        say(progress)
    assert capsys.readouterr() == ("", "rallypoint: read 7 records\nrallypoint: copied 2 of 9 records\n")


def test_no_other_command_pays_for_it() -> None:
    program = (
        "import sys; from rallypoint.cli.main import make_parser; make_parser();"
        " print([name for name in sys.modules if name.endswith(('copies', 'copying', 'member_node'))])"
    )
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=ROOT)
    assert found.stdout == "[]\n"


# --- ended -------------------------------------------------------------------------------------------------------


@pytest.fixture
def started(tmp_path: Path) -> Iterator["subprocess.Popen[str]"]:
    """A copy that has begun to write."""
    source = make(tmp_path / "a.db", sample(MANY))
    command = [*COMMAND, "store", "copy", "--quiet", source, f"sqlite:///{tmp_path / 'b.db'}"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT)
    try:
        until = time.monotonic() + 60
        while not is_marked(tmp_path / "b.db"):
            assert process.poll() is None, process.communicate()
            assert time.monotonic() < until
            time.sleep(0.01)
        yield process
    finally:
        process.kill()
        process.communicate()


def is_marked(path: Path) -> bool:
    if not path.exists():
        return False
    with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)) as connection:
        query = "SELECT count(*) FROM entry WHERE space = ?"
        found: int = connection.execute(query, (FORMAT_KEYSPACE,)).fetchone()[0]
        return found == 1


def serve(storage: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("RALLYPOINT_")}
    command = [*COMMAND, "serve", "--port", "0", "--shards", "3", "--storage", storage]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, cwd=ROOT, env=environment)


@pytest.mark.slow
@pytest.mark.parametrize("number", [in_long(signal.SIGINT), signal.SIGTERM, signal.SIGKILL])
def test_what_a_signal_leaves_is_refused_until_it_is_copied_again(
    number: signal.Signals, started: "subprocess.Popen[str]", tmp_path: Path
) -> None:
    source, target = f"sqlite:///{tmp_path / 'a.db'}", f"sqlite:///{tmp_path / 'b.db'}"
    started.send_signal(number)
    out, err = started.communicate(timeout=60)
    if number == signal.SIGKILL:
        assert (started.returncode, out, err) == (-number, "", "")
    else:
        assert (started.returncode, out) == (128 + number, "")
        assert err == (
            f"rallypoint: ended by {number.name}. {target} is an unfinished copy now, and no service starts on it; copy"
            " again with --replace.\n"
        )
    refused = serve(target)
    assert (refused.returncode, refused.stdout) == (1, "")
    assert (
        "the store is an unfinished copy, and not whole; run `rallypoint store copy --replace` again" in refused.stderr
    )
    again = copy(source, target)
    assert (again.returncode, "is not empty; --replace" in again.stderr) == (1, True)
    assert main(["backup", str(tmp_path / "c.db"), "--storage", target]) == 0
    assert main(["restore", str(tmp_path / "c.db"), "--storage", f"sqlite:///{tmp_path / 'd.db'}"]) == 1
    again = copy("--replace", source, target)
    assert (again.returncode, again.stderr.replace("rallypoint: ", "").count("Error")) == (0, 0)
    assert rows(tmp_path / "b.db") == rows(tmp_path / "a.db")
