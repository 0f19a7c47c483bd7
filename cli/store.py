"""The command line of `rallypoint store copy`.

Exit status: 0 copied and compared, 1 refused or failed, 2 usage error, 128 plus the signal's number if a signal ended
it. A message says so where the target is left as an unfinished copy.
"""

import argparse
import asyncio
import signal
import time
from collections.abc import Callable
from importlib.metadata import version
from typing import TYPE_CHECKING

from rallypoint.cli.endings import ENDING, STATUSES, Ended, fail, say, warn
from rallypoint.cli.output.text import counted
from rallypoint.coordinator.storage.contract import StorageError

if TYPE_CHECKING:
    from rallypoint.coordinator.copies import Progress, StoreCopy
    from rallypoint.coordinator.storage.copying import Contents

PROGRESS_INTERVAL_S = 2.0
"""A copy that takes less says nothing before its end."""


def add_store(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.description = "Work on whole stores while no service runs on them."
    actions = parser.add_subparsers(title="commands", dest="action", required=True, metavar="COMMAND")
    copy = actions.add_parser(
        "copy",
        help="copy a store, between files and etcd in any direction",
        description="Copy a whole store: groups, members, generations, committed offsets and topics. Stop the service,"
        " and every node of a cluster, first. The source stays as it is. The copy is compared with it key by key;"
        " before that, no service starts on the copy.",
        epilog=STATUSES,
        allow_abbrev=False,
    )
    copy.add_argument("source", metavar="FROM", help="the store to copy: sqlite:///PATH or etcd://HOST:PORT/PREFIX")
    copy.add_argument("target", metavar="TO", help="where the copy goes: a URL of the same form, of nothing yet")
    copy.add_argument("--replace", action="store_true", help="delete what the target holds, which is lost")
    copy.add_argument("--quiet", action="store_true", help="do not print how far the copy is")


def run_store(given: argparse.Namespace) -> int:
    """Copy. Returns the exit status."""
    from rallypoint.coordinator.copies import CopyUrlInvalid, StoreCopy  # noqa: PLC0415 - most commands need none of it

    copy: StoreCopy | None = None
    try:
        copy = StoreCopy(
            given.source,
            given.target,
            replace=given.replace,
            release=version("rallypoint"),
            on_progress=_say_nothing if given.quiet else ProgressLines(),
        )
        contents = asyncio.run(_until_signal(copy))
    except CopyUrlInvalid as error:
        return fail(f"{error}.", 2)
    except StorageError as error:
        return fail(f"The store is not copied: {error}.{_how_it_stands(copy, given.target)}", 1)
    except Ended as end:
        return fail(f"{end}.{_how_it_stands(copy, given.target)}", 128 + end.number)
    _tell(contents, given)
    return 0


async def _until_signal(copy: "StoreCopy") -> "Contents":
    """Run the copy. Raises Ended at the first signal, when both stores are closed; further ones change nothing."""
    loop, running = asyncio.get_running_loop(), asyncio.ensure_future(copy.run())
    came: list[int] = []

    def end(number: int) -> None:
        came.append(number)
        if len(came) == 1:
            running.cancel()

    # One that is ignored stays so, as under nohup.
    found = {number: signal.getsignal(number) for number in ENDING}
    watched = [number for number, handler in found.items() if handler not in {signal.SIG_IGN, None}]
    for number in watched:
        loop.add_signal_handler(number, end, number)
    try:
        return await running
    except (asyncio.CancelledError, StorageError):
        if came:
            raise Ended(came[0]) from None
        raise
    finally:
        for number in watched:
            loop.remove_signal_handler(number)  # which leaves the default, whatever was there before
            signal.signal(number, found[number])


def _how_it_stands(copy: "StoreCopy | None", target: str) -> str:
    if copy is None or not copy.is_unfinished:
        return ""
    return f" {target} is an unfinished copy now, and no service starts on it; copy again with --replace."


def _tell(contents: "Contents", given: argparse.Namespace) -> None:
    say(
        f"copied {given.source} to {given.target}, and compared: {counted(contents.groups, 'group')},"
        f" {counted(contents.members, 'member')}, {counted(contents.offsets, 'committed offset')},"
        f" {counted(contents.topics, 'topic')}; {counted(contents.records, 'record')},"
        f" {counted(contents.stored_bytes, 'byte')}",
        "Start services on the copy alone: one that runs on the source hands out the same generations.",
    )
    if contents.unreadable:
        warn(
            f"{contents.unreadable} records cannot be read. They are copied as they are, and the service will say of"
            " which groups they are"
        )


def _say_nothing(_: "Progress") -> None:
    pass


class ProgressLines:
    """Prints to standard error how far the copy is, every few seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._next_at = clock() + PROGRESS_INTERVAL_S

    def __call__(self, progress: "Progress") -> None:
        """Print it if it is time to."""
        now = self._clock()
        if now < self._next_at:
            return
        self._next_at = now + PROGRESS_INTERVAL_S
        of_total = "" if progress.total is None else f" of {progress.total}"
        warn(f"{progress.stage.value} {progress.records}{of_total} records")
