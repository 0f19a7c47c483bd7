"""The command line of `rallypoint describe`: one group, with its members and its partitions."""

import argparse
from collections.abc import Iterable, Iterator
from heapq import nsmallest

from rallypoint.cli.calls.client import Client, Json
from rallypoint.cli.calls.failures import STATUSES
from rallypoint.cli.look.members import MEMBER_COLUMNS
from rallypoint.cli.offsets.columns import PARTITION_COLUMNS
from rallypoint.cli.output.columns import COLOURS, Row, member_name
from rallypoint.cli.output.table import pairs_lines, paragraph
from rallypoint.cli.output.text import counted, list_text, shown
from rallypoint.cli.output.times import ago, duration
from rallypoint.cli.output.view import Form, View
from rallypoint.cli.output.writing import table_lines
from rallypoint.cli.running import add_calling, run_view

MEMBERS_SHOWN = 50
PARTITIONS_SHOWN = 50
"""Of each table; the commands for members and offsets have all."""


def add_describe(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.description = (
        "Describe a group: what it does now, in a sentence; its status and lag; its members, and its partitions, the"
        " worst first. `members` and `offsets get` list all of them. `-o json` is the answer of the service."
    )
    parser.epilog = STATUSES
    parser.add_argument("group", metavar="GROUP", help="the id of the group")
    add_calling(parser, watches=True)


def run_describe(given: argparse.Namespace) -> int:
    """Run the command. Returns its exit status."""
    return run_view(given, lambda client: group_view(client, given.group))


def group_view(client: Client, group_id: str) -> View:
    """A group with its members and partitions."""
    group = client.call("describe", group_id=group_id)
    members = sorted(group["members"], key=member_name)

    def people(form: Form) -> Iterable[str]:
        if group.get("explanation"):  # which a service of an earlier release does not give
            yield from paragraph(shown(group["explanation"]), form.columns_max)
            yield ""
        yield from pairs_lines(facts(group, form), form.columns_max)
        if members:
            yield ""
            yield from table_lines(MEMBER_COLUMNS, members[:MEMBERS_SHOWN], form)
            if len(members) > MEMBERS_SHOWN:
                yield f"and {counted(len(members) - MEMBERS_SHOWN, 'member')} more: `rallypoint members`"
        yield from _partitions(client, group_id, form)

    return View(MEMBER_COLUMNS, members, "member_id", document=group, people=people)


def _partitions(client: Client, group_id: str, form: Form) -> Iterable[str]:
    """The worst of all, of which no more than are shown are kept. Cost: a call for each 1,000."""
    count = 0

    def rows() -> Iterator[Row]:
        nonlocal count
        for page in client.pages("list_partitions", group_id=group_id):
            count += len(page["partitions"])
            yield from page["partitions"]

    worst = nsmallest(
        PARTITIONS_SHOWN, rows(), key=lambda row: (-(row.get("lag") or 0), row["topic"], row["partition"])
    )
    if not worst:
        return
    yield ""
    yield from table_lines(PARTITION_COLUMNS, worst, form)
    if count > PARTITIONS_SHOWN:
        yield f"and {counted(count - PARTITIONS_SHOWN, 'partition')} more: `rallypoint offsets get`"


def facts(group: Json, form: Form) -> list[tuple[str, str]]:
    """Names and values over the tables: those that say something."""
    status = group.get("status")
    coloured = f"\x1b[{COLOURS[status]}m{status}\x1b[0m" if form.colour and status in COLOURS else status
    found = [
        ("group", shown(group["group_id"])),
        ("state", group["state"]),
        ("status", coloured or "not known"),
        ("lag", "not known" if group.get("lag") is None else f"{group['lag']:,}"),
        ("generation", f"{group['generation_id']:,}"),
        ("type", shown(group["protocol_type"])),
        ("assignor", shown(group["protocol_name"])),
        ("leader", shown(group["leader"] or "")),
        ("members", _members(group)),
        ("topics", list_text(group.get("topics") or [])),
        ("cool-down", duration(group["cooldown_ms"]) if group["cooldown_ms"] else ""),
        ("frozen", _freeze(group, form.now_ms)),
        ("held", _held(group, form.now_ms)),
        ("flapping", list_text([one["sentence"] for one in group.get("flapping") or []], 3)),
    ]
    return [(name, value) for name, value in found if value]


def _members(group: Json) -> str:
    text = f"{len(group['members']):,}"
    for key, noun in (("idle_member_count", "without partitions"), ("useful_member_count", "would be useful")):
        if group.get(key):
            text += f", {group[key]:,} {noun}"
    if group.get("unowned_partition_count"):
        text += f"; {counted(group['unowned_partition_count'], 'partition')} without an owner"
    return text


def _freeze(group: Json, now_ms: int) -> str:
    if group.get("frozen_until_ms") is None:
        return ""
    text = f"for {duration(max(0, group['frozen_until_ms'] - now_ms))} more"
    if group.get("freeze_missing_count"):
        missing = list_text(list(group["freeze_missing"]))
        text += f", or until {missing} {'is' if group['freeze_missing_count'] == 1 else 'are'} back"
    return f"{text} ({shown(group['freeze_reason'])})" if group.get("freeze_reason") else text


def _held(group: Json, now_ms: int) -> str:
    if not group.get("held_count"):
        return ""
    causes = [f"{shown(one['reason'])} ({ago(one['at_ms'], now_ms)})" for one in group["held"][:3]]
    more = group["held_count"] - len(causes)
    return "; ".join(causes) + (f"; and {more:,} more" if more else "")
