"""`rallypoint backup` and `restore` end as they say: whatever comes in between, and whether or not anybody reads it."""

import argparse
import io
import signal
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout
from pathlib import Path

import pytest

from rallypoint.cli.backup import run
from rallypoint.cli.endings import ENDING
from rallypoint.cli.main import main
from rallypoint.coordinator.storage.sqlite_file import SqliteFile
from tests.real.parts import require


@pytest.fixture
def storage(tmp_path: Path) -> str:
    SqliteFile(tmp_path / "a.db").close()
    return f"sqlite:///{tmp_path / 'a.db'}"


@pytest.fixture
def no_signal_is_ignored() -> Iterator[None]:
    """Whatever these tests were started by: a shell's background job ignores SIGINT, what `nohup` starts SIGHUP."""
    former = {number: signal.signal(number, signal.SIG_DFL) for number in ENDING}
    yield
    for number, handler in former.items():
        signal.signal(number, handler)


@pytest.mark.usefixtures("no_signal_is_ignored")
@pytest.mark.parametrize("number", ENDING)
def test_a_signal_ends_the_command_in_one_line_when_what_was_half_made_is_removed(
    number: signal.Signals, capsys: pytest.CaptureFixture[str]
) -> None:
    former = [signal.getsignal(each) for each in ENDING]
    left = ["half made"]

    def command(_: argparse.Namespace) -> None:
        try:
            signal.raise_signal(number)
        finally:
            # An impatient user does not keep it from being removed.
            for each in ENDING:
                signal.raise_signal(each)
            left.clear()

    assert run(command, argparse.Namespace(), "No backup is made", "nothing is left") == 128 + number
    assert not left
    printed = capsys.readouterr()
    assert (printed.out, printed.err) == ("", f"rallypoint: ended by {number.name}; nothing is left.\n")
    assert [signal.getsignal(each) for each in ENDING] == former


def test_a_signal_that_is_ignored_stays_so() -> None:
    former = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        assert run(lambda _: signal.raise_signal(signal.SIGHUP), argparse.Namespace(), "", "") == 0
    finally:
        signal.signal(signal.SIGHUP, former)


def to_a_full_disk(_: Path) -> io.TextIOWrapper:
    full = Path("/dev/full")
    require(full.exists(), str(full), "it is Linux's")
    return full.open("w", encoding="utf-8")


def to_plain_ascii(folder: Path) -> io.TextIOWrapper:
    return (folder / "printed").open("w", encoding="ascii")


@pytest.mark.parametrize(
    ("to", "said"),
    [
        (to_a_full_disk, "rallypoint: Done; but standard output cannot be written: No space left on device.\n"),
        (to_plain_ascii, ""),
    ],
)
def test_what_is_done_is_done_though_it_cannot_be_printed(
    storage: str,
    tmp_path: Path,
    to: Callable[[Path], io.TextIOWrapper],
    said: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    backup, restored = tmp_path / "Sicherung-\u00e4.db", tmp_path / "\u00e4.db"
    for arguments in (
        ["backup", str(backup), "--storage", storage],
        ["restore", str(backup), "--storage", f"sqlite:///{restored}"],
    ):
        with to(tmp_path) as sink, redirect_stdout(sink):
            assert main(arguments) == 0
        assert capsys.readouterr().err == said
    assert backup.exists()
    assert restored.exists()
