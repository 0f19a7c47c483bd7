"""The command lines of `rallypoint backup` and `rallypoint restore`.

Exit status: 0 done, 1 refused or failed (the store is as it was, or the message says where it lies), 2 called or set up
wrongly, 128 and its number if a signal ended it. What is done is done: that nobody can be told is no failure.
"""

import argparse
import io
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

from rallypoint.coordinator import backups
from rallypoint.coordinator.settings import Settings, SettingsError, load_settings
from rallypoint.coordinator.storage.contract import StorageError

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Ended(BaseException):
    """A signal ends the command. Not an Exception, so that nothing takes it for a failure."""

    def __init__(self, number: int) -> None:
        self.number = number
        super().__init__(f"ended by {signal.Signals(number).name}")


def add_backup(commands: Any) -> None:
    """Add both commands to the others."""
    backup = commands.add_parser(
        "backup",
        help="copy the store to a file, also while the service runs",
        description="Copy the store, as of one instant, to a file that is not there yet. A service may run on it.",
        allow_abbrev=False,
    )
    backup.add_argument("file", type=Path, metavar="FILE", help="the backup, to be made")
    restore = commands.add_parser(
        "restore",
        help="put a backup in the place of the store",
        description="Put a backup in the place of the store, on which no service may run. Committed offsets go back to"
        " those of the backup. Generations do not: members join again, in new ones.",
        allow_abbrev=False,
    )
    restore.add_argument("file", type=Path, metavar="FILE", help="the backup; it is left as it is")
    restore.add_argument("--force", action="store_true", help="replace a store that is there; it is lost")
    for parser in (backup, restore):
        parser.add_argument(
            "--storage",
            default=argparse.SUPPRESS,
            metavar="URL",
            help=f"the store, as for `serve`. Default: {Settings.model_fields['storage'].default}.",
        )
        parser.add_argument("--config", type=Path, metavar="PATH", help="TOML file with settings, as for `serve`")


def run_backup(given: argparse.Namespace) -> int:
    """Make the backup; the exit status."""
    return run(_back_up, given, "No backup is made", f"if {given.file} is there, it is whole")


def run_restore(given: argparse.Namespace) -> int:
    """Put the backup in its place; the exit status."""
    return run(_restore, given, "The store is not restored", "the store is as it was, or restored already")


def run(command: Callable[[argparse.Namespace], None], given: argparse.Namespace, failed: str, ended: str) -> int:
    """Run it until it is done, fails, or a signal comes: `failed` and `ended` say what holds then. The exit status."""
    try:
        with _ended_by_signals():
            command(given)
    except SettingsError as error:
        return _fail(str(error), 2)
    except StorageError as error:
        return _fail(f"{failed}: {error}.", 1)
    except Ended as end:
        return _fail(f"{end}; {ended}.", 128 + end.number)
    return 0


@contextmanager
def _ended_by_signals() -> Iterator[None]:
    """Raise Ended at the first of the signals, so that what is half made is removed. The others do not cut that off."""
    former = {number: signal.getsignal(number) for number in ENDING}

    def end(number: int, _: FrameType | None) -> None:
        for each in ENDING:
            signal.signal(each, signal.SIG_IGN)
        raise Ended(number)

    try:
        for number, handler in former.items():
            # As under nohup.
            if handler is not signal.SIG_IGN:
                signal.signal(number, end)
        yield
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)


def _back_up(given: argparse.Namespace) -> None:
    storage = _storage_of(given)
    length = backups.back_up(storage, given.file)
    _say(f"backed up {storage} to {given.file}, {length} bytes")


def _restore(given: argparse.Namespace) -> None:
    storage = _storage_of(given)
    restored, is_whole = backups.restore(given.file, storage, replace=given.force, now_ms=time.time_ns() // 1_000_000)
    _say(
        f"restored {storage} from {given.file}: {restored.groups} groups, {restored.offsets} committed offsets",
        "Committed offsets are those of the backup: what was committed since then is read again.",
        f"Members join again by themselves, in generations above {restored.generation_floor}.",
        f"That number is by the clock alone, for {restored.unread}. It is above all that was handed out, if the"
        " clocks are right, and no group made more than one generation a second since the last restore."
        if restored.unread
        else "The store that was replaced was read: it has handed out none above that number.",
    )
    if not is_whole:
        _warn(
            f"{given.file} was not made by `rallypoint backup`. If it was copied with cp while the service ran, it"
            " lacks what was in the log, perhaps everything."
        )
    if restored.unreadable:
        shown = ", ".join(repr(key) for key in restored.unreadable[:3])
        _warn(f"{len(restored.unreadable)} records cannot be read, and the service will say of which groups: {shown}")


def _storage_of(given: argparse.Namespace) -> str:
    flags = {"storage": given.storage} if "storage" in given else {}
    return load_settings(flags, given.config).storage


def _say(*lines: str) -> None:
    """To standard output, whatever that can take: names may be of other characters than it has, or of none."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        print("\n".join(lines), flush=True)
    except OSError as error:
        _warn(f"Done; but standard output cannot be written: {error.strerror}.")
        # What is still in the buffer has no reader: without this the interpreter would complain when it ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _warn(text: str) -> None:
    print(f"rallypoint: {text}", file=sys.stderr)


def _fail(text: str, status: int) -> int:
    _warn(text)
    return status
