"""What the command lines of the examples share: options, the output folder, an end at Ctrl-C, words for a failure.

It imports nothing that may be missing, so that a program can say what is.
"""

import argparse
import shutil
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType

PARTITIONS_MIN, PARTITIONS_MAX = 4, 64
"""With fewer, driver B has too few tasks in a batch to be caught in the middle of one."""
MARKER = ".rallypoint-demo"

STATUSES = """\
exit status: 0 all is well, 1 the count found something wrong or the run failed, 2 something is missing or it was called
wrongly, 130 interrupted"""


def make_parser(program: str, description: str, *, output: str, partitions: int) -> argparse.ArgumentParser:
    """A command line with the options that all examples have."""
    parser = argparse.ArgumentParser(prog=program, description=description, epilog=STATUSES, allow_abbrev=False)
    parser.add_argument(
        "--output", type=Path, default=Path(output), metavar="DIR",
        help="folder for data, logs, report.json and ownership.svg; emptied at the start if an earlier run made it"
        " (default: %(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--partitions", type=partition_count, default=partitions, metavar="N",
        help=f"partitions of the topic, {PARTITIONS_MIN} to {PARTITIONS_MAX} (default: %(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--kill-when", choices=("running", "written"), default="running",
        help="when driver B is killed: while a batch is on its way to the output, or when its output is in place and"
        " its end not committed to the group yet, so that it is read twice (default: %(default)s)",
    )  # fmt: skip
    return parser


def add_sink(parser: argparse.ArgumentParser) -> None:
    """The option of examples that write to a database."""
    parser.add_argument(
        "--sink", choices=("exactly-once", "plain"), default="exactly-once",
        help="how the drivers write: with positions in the same transaction, or without, to see what that does; with"
        " --kill-when written the count then finds a batch twice, and says so (default: %(default)s)",
    )  # fmt: skip


def add_stay(parser: argparse.ArgumentParser) -> None:
    """The option of examples that end while somebody looks at them."""
    parser.add_argument(
        "--stay", action="store_true",
        help="when every record is committed, go on with two drivers and print the address of the group's page; Ctrl-C"
        " then ends the run and prints the verdict",
    )  # fmt: skip


def partition_count(text: str) -> int:
    """The value of --partitions."""
    if not (text.isdecimal() and PARTITIONS_MIN <= int(text) <= PARTITIONS_MAX):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from {PARTITIONS_MIN} to {PARTITIONS_MAX}")
    return int(text)


def make_folder(root: Path) -> str | None:
    """Make the output folder, empty. Only what an earlier run made is deleted: the text says why it cannot be used."""
    if root.exists() and (not root.is_dir() or any(root.iterdir())):
        if not (root / MARKER).is_file():
            return f"{root} is there already and was not made by an example; name another folder with --output."
        shutil.rmtree(root)
    try:
        root.mkdir(parents=True, exist_ok=True)
        (root / MARKER).write_text(
            "Made by one of Rallypoint's examples, which empties this folder when it runs again.\n"
        )
    except OSError as error:
        return f"The folder {root} cannot be made: {error.strerror}."
    return None


def begin(missing: list[str], output: Path, play: Callable[[], int]) -> int:
    """Run `play` unless something is missing or the folder cannot be used; the exit status."""
    if missing:
        return fail("\n".join(missing), 2)
    if problem := make_folder(output):
        return fail(problem, 2)
    before = {number: signal.signal(number, _interrupt) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        return play()
    except KeyboardInterrupt:
        return fail("Interrupted. Everything that was started has ended.", 130)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def fail(text: str, status: int) -> int:
    """Say why on stderr; the status."""
    print(text, file=sys.stderr)
    return status


def _interrupt(number: int, frame: FrameType | None) -> None:
    """Once: a second Ctrl-C must not interrupt the ending of the children."""
    for one in (signal.SIGINT, signal.SIGTERM):
        signal.signal(one, signal.SIG_IGN)
    raise KeyboardInterrupt
