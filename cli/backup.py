"""The command lines of `rallypoint backup` and `rallypoint restore`.

Exit status: 0 success, 1 refused or failed (the store is unchanged, or the message says where it is), 2 usage or
configuration error, 128 plus the signal's number if a signal ended it. If the work is done but standard output cannot
be written, the status is 0.
"""

import argparse
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from rallypoint.cli.endings import ENDING, STATUSES, Ended, fail, say, warn
from rallypoint.cli.output.text import counted
from rallypoint.coordinator import backups
from rallypoint.coordinator.settings import Settings, SettingsError, load_settings
from rallypoint.coordinator.storage.contract import StorageError


def add_backup(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.description = "Copy a consistent snapshot of the store to a new file. The service may keep running."
    parser.epilog = STATUSES
    parser.add_argument("file", type=Path, metavar="FILE", help="the backup to create; it must not exist yet")
    _add_store(parser)


def add_restore(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.description = (
        "Replace the store by a backup. Stop the service first. Committed offsets go back to those of the backup."
        " Generations do not: members join again, in new ones."
    )
    parser.epilog = STATUSES
    parser.add_argument("file", type=Path, metavar="FILE", help="the backup; it is not changed")
    parser.add_argument("--force", action="store_true", help="replace an existing store, which is lost")
    _add_store(parser)


def _add_store(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--storage",
        default=argparse.SUPPRESS,
        metavar="URL",
        help=f"the store, as for `serve`. Default: {Settings.model_fields['storage'].default}.",
    )
    parser.add_argument("--config", type=Path, metavar="PATH", help="TOML file with settings, as for `serve`")


def run_backup(given: argparse.Namespace) -> int:
    """Create the backup. Returns the exit status."""
    return run(_back_up, given, "No backup is made", f"if {given.file} is there, it is whole")


def run_restore(given: argparse.Namespace) -> int:
    """Restore the backup. Returns the exit status."""
    return run(_restore, given, "The store is not restored", "the store is as it was, or restored already")


def run(command: Callable[[argparse.Namespace], None], given: argparse.Namespace, failed: str, ended: str) -> int:
    """Run a command until it ends, fails, or a signal arrives. Returns the exit status.

    `command`: the work.
    `given`: its arguments.
    `failed`: begins the message of a failure.
    `ended`: ends the message after a signal: the state of the files.
    """
    try:
        with _ended_by_signals():
            command(given)
    except SettingsError as error:
        return fail(str(error), 2)
    except StorageError as error:
        return fail(f"{failed}: {error}.", 1)
    except Ended as end:
        return fail(f"{end}; {ended}.", 128 + end.number)
    return 0


@contextmanager
def _ended_by_signals() -> Iterator[None]:
    """Raise Ended at the first signal, so that incomplete files are removed. Further signals are ignored meanwhile."""
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
    say(f"backed up {storage} to {given.file}, {length} bytes")


def _restore(given: argparse.Namespace) -> None:
    storage = _storage_of(given)
    restored, is_whole = backups.restore(given.file, storage, replace=given.force, now_ms=time.time_ns() // 1_000_000)
    say(
        f"restored {storage} from {given.file}: {counted(restored.groups, 'group')},"
        f" {counted(restored.offsets, 'committed offset')}",
        "Committed offsets are those of the backup: records whose offsets were committed since then are read again.",
        f"Members join again by themselves, in generations above {restored.generation_floor}.",
        f"That number is by the clock alone, for {restored.unread}. It is above all earlier generations, if the"
        " clocks are right, and no group made more than one generation a second since the last restore."
        if restored.unread
        else "The replaced store was read: it has no generation above that number.",
    )
    if not is_whole:
        warn(
            f"{given.file} was not created by `rallypoint backup`. If it was copied with cp while the service ran, it"
            " lacks what was in the log, perhaps everything."
        )
    if restored.unreadable:
        shown = ", ".join(repr(key) for key in restored.unreadable[:3])
        warn(f"{len(restored.unreadable)} records cannot be read, and the service will say of which groups: {shown}")


def _storage_of(given: argparse.Namespace) -> str:
    flags = {"storage": given.storage} if "storage" in given else {}
    return load_settings(flags, given.config).storage
