"""The command line of `rallypoint members`, and the columns of members."""

import argparse

from rallypoint.cli.calls.client import Client
from rallypoint.cli.calls.failures import STATUSES
from rallypoint.cli.output.columns import Column, Row, length, member_name, number, since, text, word
from rallypoint.cli.output.numbers import numbers_text
from rallypoint.cli.output.text import shown
from rallypoint.cli.output.view import View
from rallypoint.cli.running import add_calling, run_view


def partitions_of(row: Row) -> str:
    """What a consumer's assignment gives it, by topic; empty where it cannot be read."""
    assignment = row.get("assignment")
    partitions = assignment.get("partitions") if isinstance(assignment, dict) else None
    if not isinstance(partitions, dict):
        return ""
    return ", ".join(
        f"{shown(str(topic))} {numbers_text(sorted(numbers))}"
        for topic, numbers in sorted(partitions.items())
        if isinstance(numbers, list) and numbers and all(isinstance(one, int) for one in numbers)
    )


MEMBER_COLUMNS: tuple[Column, ...] = (
    Column("member_id", "MEMBER", lambda value, _: shown(value), shrinks=True),
    text("group_instance_id", "INSTANCE", rank=2),
    text("client_id", "CLIENT", rank=5),
    text("host", "HOST", rank=3),
    number("partition_count", "PARTITIONS"),
    number("lag", "LAG"),
    Column("is_leader", "LEADER", lambda value, _: "yes" if value else "", rank=6),
    word("connection", "BY", rank=7),
    since("heard_at_ms", "HEARD", rank=1),
    since("joined_at_ms", "JOINED", rank=4),
    length("session_timeout_ms", "SESSION", wide=True),
    length("rebalance_timeout_ms", "REBALANCE", wide=True),
    Column("assignment", "OWNS", lambda value, _: str(value), shrinks=True, rank=8, of=partitions_of),
)


def add_members(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.description = "List the members of a group: where each runs, what it owns, its lag, and when it was heard."
    parser.epilog = STATUSES
    parser.add_argument("group", metavar="GROUP", help="the id of the group")
    add_calling(parser, watches=True)


def run_members(given: argparse.Namespace) -> int:
    """Run the command. Returns its exit status."""
    return run_view(given, lambda client: _view(client, given.group))


def _view(client: Client, group_id: str) -> View:
    group = client.call("describe", group_id=group_id)
    rows = sorted(group["members"], key=member_name)
    return View(MEMBER_COLUMNS, rows, "member_id", empty=f"The group is {group['state']} and has no members.")
