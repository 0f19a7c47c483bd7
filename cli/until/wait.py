"""The command line of `rallypoint wait`: returns when a group is as it should be."""

import argparse
import time
from collections.abc import Callable

from rallypoint.cli.calls.client import Client, Json
from rallypoint.cli.calls.failures import STATUSES, CallFailed, ConditionFailed, Unreachable, UsageError
from rallypoint.cli.output.terminal import Progress
from rallypoint.cli.output.text import counted, shown
from rallypoint.cli.output.times import duration
from rallypoint.cli.running import Output, add_calling, duration_flag, run_calls
from rallypoint.cli.until.state import row_of
from rallypoint.cli.words import OFFSET_MAX, number_flag

TIMEOUT_MS = 600_000
POLL_S = 0.5


def add_wait(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.description = (
        "Wait until all that is asked for holds of a group. Ends with 5 if it does not hold in time. A node that does"
        " not answer for a while is waited for as well."
    )
    parser.epilog = STATUSES
    parser.add_argument("group", metavar="GROUP", help="the id of the group")
    parser.add_argument("--stable", action="store_true", help="it is Stable: no rebalance is under way")
    parser.add_argument(
        "--lag", type=number_flag(0, OFFSET_MAX), metavar="N", help="its lag is known, and N at the most"
    )
    parser.add_argument(
        "--members",
        type=number_flag(0, OFFSET_MAX),
        metavar="N",
        help="it has N members or more; a group that does not exist yet is waited for",
    )
    parser.add_argument(
        "--timeout", type=duration_flag, default=TIMEOUT_MS, metavar="TIME", help="how long to wait. Default: 10m."
    )
    add_calling(parser, forms=("table", "json", "jsonl"))


def run_wait(given: argparse.Namespace) -> int:
    """Run the command. Returns its exit status."""

    def body(client: Client, output: Output) -> None:
        if not given.stable and given.lag is None and given.members is None:
            raise UsageError("Say what to wait for: --stable, --lag N or --members N.")
        may_begin = bool(given.members)
        row = until(client, given.group, lambda found: missing(found, given), given.timeout, may_begin=may_begin)
        lag = "" if row.get("lag") is None else f", lag {row['lag']:,}"
        output.tell(row, f"group {shown(given.group)} is {row['state']}: {counted(row['member_count'], 'member')}{lag}")

    return run_calls(given, body)


def missing(row: Json, given: argparse.Namespace) -> str:
    """What does not hold yet, as a clause; empty if all does."""
    rest = []
    if given.stable and row["state"] != "Stable":
        rest.append(f"it is {row['state']}")
    if given.members is not None and row["member_count"] < given.members:
        rest.append(f"it has {row['member_count']:,} of {given.members:,} members")
    if given.lag is not None and row.get("lag") is None:
        rest.append("its lag is not known")
    elif given.lag is not None and row["lag"] > given.lag:
        rest.append(f"its lag is {row['lag']:,}")
    return ", ".join(rest)


def until(
    client: Client, group_id: str, missing_of: Callable[[Json], str], timeout_ms: int, *, may_begin: bool = False
) -> Json:
    """The group's row when nothing is missing any more. Raises ConditionFailed after the time, or CallFailed.

    may_begin: a group that does not exist is waited for, since it begins with its first member.
    """
    began = time.monotonic()
    with Progress() as progress:
        while True:
            row: Json | None = None
            try:
                row = row_of(client, group_id)
                rest = missing_of(row)
            except Unreachable as error:
                rest = str(error)
                if time.monotonic() - began >= timeout_ms / 1_000:
                    raise
            except CallFailed as error:
                if not may_begin or error.error_name != "GROUP_ID_NOT_FOUND":
                    raise
                rest = "there is no such group yet"
            if row is not None and not rest:
                return row
            waited_ms = (time.monotonic() - began) * 1_000
            if waited_ms >= timeout_ms:
                raise ConditionFailed(f"Group {shown(group_id)!r} is not ready after {duration(timeout_ms)}: {rest}.")
            progress.say(f"waiting for {group_id} for {duration(waited_ms)}: {rest}")
            time.sleep(min(POLL_S, max(0.0, (timeout_ms - waited_ms) / 1_000)))
