"""The command line of `rallypoint awaited`: whom the rebalance that is under way waits for."""

import argparse
from collections.abc import Iterable

from rallypoint.cli.calls.client import Client, Json
from rallypoint.cli.calls.failures import STATUSES
from rallypoint.cli.output.columns import Column, since, text
from rallypoint.cli.output.text import counted, shown
from rallypoint.cli.output.times import duration
from rallypoint.cli.output.view import Form, View
from rallypoint.cli.running import add_calling, run_view

WHAT_FOR = {
    "join": "to join",
    "sync": "to ask for its assignment",
    "assignment": "to bring the assignment",
}

AWAITED_COLUMNS: tuple[Column, ...] = (
    text("member_id", "MEMBER"),
    text("group_instance_id", "INSTANCE", rank=2),
    text("client_id", "CLIENT", rank=3),
    text("host", "HOST", rank=1),
    Column("awaited_for", "AWAITED", lambda value, _: WHAT_FOR.get(value, shown(str(value))), shrinks=True),
    since("since_ms", "SINCE"),
    since("heard_at_ms", "HEARD"),
)


def add_awaited(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.description = (
        "List the members that a group's rebalance waits for: for what, since when, and when each was last heard."
        " `rallypoint proceed` goes on without them."
    )
    parser.epilog = STATUSES
    parser.add_argument("group", metavar="GROUP", help="the id of the group")
    add_calling(parser, watches=True)


def run_awaited(given: argparse.Namespace) -> int:
    """Run the command. Returns its exit status."""
    return run_view(given, lambda client: _view(client, given.group))


def _view(client: Client, group_id: str) -> View:
    group = client.call("describe", group_id=group_id)
    rebalances = client.call("list_rebalances", group_id=group_id)["rebalances"]
    newest = rebalances[0] if rebalances and rebalances[0]["outcome"] == "in_progress" else None
    rows = newest["awaited"] if newest else []
    until_ms = group.get("awaited_until_ms")

    def below(form: Form) -> Iterable[str]:
        return [] if newest is None else _below(newest, len(rows), until_ms, form.now_ms)

    return View(
        AWAITED_COLUMNS, rows, "member_id", below=below, empty=f"The group is {group['state']} and waits for nobody."
    )


def _below(rebalance: Json, shown_count: int, until_ms: int | None, now_ms: int) -> list[str]:
    more = rebalance["awaited_count"] - shown_count
    lines = [""] + ([f"and {counted(more, 'member')} more"] if more > 0 else [])
    since = duration(max(0, now_ms - rebalance["began_at_ms"]))
    lines.append(f"Rebalance {rebalance['rebalance_id']} began {since} ago: {shown(rebalance['reason'])}.")
    if until_ms is not None:
        lines.append(f"It goes on without them in {duration(max(0, until_ms - now_ms))}.")
    return lines
