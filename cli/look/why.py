"""The command line of `rallypoint why`: the last rebalances of a group, each in one sentence.

The sentence is the service's, the same that its page shows.
"""

import argparse
from collections.abc import Iterator

from rallypoint.cli.calls.client import Client
from rallypoint.cli.calls.failures import STATUSES
from rallypoint.cli.output.columns import Column, Row, length, number, since, text, word
from rallypoint.cli.output.table import paragraph
from rallypoint.cli.output.text import padded, shown, width
from rallypoint.cli.output.times import ago, instant
from rallypoint.cli.output.view import Form, View
from rallypoint.cli.running import add_calling, run_view
from rallypoint.cli.words import number_flag

LAST = 10

REBALANCE_COLUMNS: tuple[Column, ...] = (
    number("rebalance_id", "REBALANCE"),
    since("began_at_ms", "BEGAN"),
    word("trigger", "TRIGGER"),
    text("reason", "REASON"),
    word("outcome", "OUTCOME"),
    number("previous_generation_id", "FROM GENERATION"),
    number("generation_id", "TO GENERATION"),
    length("join_phase_ms", "JOIN PHASE"),
    length("sync_phase_ms", "SYNC PHASE"),
    number("member_count", "MEMBERS"),
    number("partitions_moved", "MOVED"),
    number("awaited_count", "AWAITED"),
    text("sentence", "SENTENCE", wide=True),
)


def add_why(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.description = (
        "Say why a group rebalanced: its last rebalances, the newest first, each with what began it, whom it waited"
        " for, what moved, and how it ended. `-o wide` has the figures."
    )
    parser.epilog = STATUSES
    parser.add_argument("group", metavar="GROUP", help="the id of the group")
    parser.add_argument(
        "-n", "--last", type=number_flag(1, 10**9), default=LAST, metavar="N", help=f"how many. Default: {LAST}."
    )
    add_calling(parser, watches=True)


def run_why(given: argparse.Namespace) -> int:
    """Run the command. Returns its exit status."""
    return run_view(given, lambda client: rebalances_view(client, given.group, given.last))


def said_of(row: Row) -> str:
    """The sentence; of a service of an earlier release, the reason and the outcome."""
    return shown(row.get("sentence") or f"{row['reason']}; {row['outcome']}")


def rebalances_view(client: Client, group_id: str, last: int = LAST) -> View:
    """The last rebalances of a group."""
    rows = client.call("list_rebalances", group_id=group_id)["rebalances"][:last]

    def people(form: Form) -> Iterator[str]:
        if not rows:
            yield "The group has not rebalanced yet."
        longest = max((width(ago(row["began_at_ms"], form.now_ms)) for row in rows), default=0)
        for row in rows:
            when = padded(ago(row["began_at_ms"], form.now_ms), longest, right=True)
            first = f"{when}  "
            sentence = f"{first}#{row['rebalance_id']} at {instant(row['began_at_ms'])}: {said_of(row)}"
            yield from paragraph(sentence, form.columns_max, " " * len(first))

    return View(REBALANCE_COLUMNS, rows, "rebalance_id", people=people, empty="The group has not rebalanced yet.")
