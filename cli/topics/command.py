"""The command line of `rallypoint topics`: lists the registered topics, and registers, changes and deletes them."""

import argparse
from collections.abc import Callable, Iterable, Iterator

from rallypoint.cli.act.execution import add_execute, dry_run_line
from rallypoint.cli.calls.client import PAGE_ROWS, Client, Json
from rallypoint.cli.calls.failures import STATUSES, CallFailed, UsageError
from rallypoint.cli.look.groups import GROUP_COLUMNS
from rallypoint.cli.output.columns import Column, Row, number, text
from rallypoint.cli.output.table import pairs_lines
from rallypoint.cli.output.text import counted, shown
from rallypoint.cli.output.view import Form, View
from rallypoint.cli.running import Output, add_calling, run_calls, run_view
from rallypoint.cli.words import number_flag

ACTION_FORMS = ("table", "json", "jsonl")


def end_of(row: Row) -> int | None:
    """The sum of the ends that were reported; None if none was."""
    ends = row.get("end_offsets") or {}
    return sum(ends.values()) if ends else None


TOPIC_COLUMNS: tuple[Column, ...] = (
    text("topic", "TOPIC"),
    number("partitions", "PARTITIONS"),
    Column("end_offsets", "RECORDS", lambda value, _: f"{value:,}", right=True, rank=2, of=end_of),
    number("version", "VERSION", wide=True),
)


def add_topics(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.description = "List the registered topics; or, with an action, show or change one."
    parser.epilog = STATUSES
    parser.add_argument("--prefix", metavar="TEXT", help="only topics whose name begins so")
    add_calling(parser, watches=True)
    actions = parser.add_subparsers(title="actions", dest="action", metavar="[ACTION]")
    describe = actions.add_parser(
        "describe",
        help="show a topic and its groups",
        description="Show a topic, and the groups that subscribe to it or have committed it.",
        epilog=STATUSES,
        allow_abbrev=False,
    )
    describe.add_argument("topic", metavar="TOPIC", help="the name of the topic")
    add_calling(describe, watches=True)
    put = actions.add_parser(
        "set",
        help="register a topic, or let it grow",
        description="Register a topic, let it grow, or report the end offsets of its partitions. The groups of a topic"
        " that grows rebalance.",
        epilog=STATUSES,
        allow_abbrev=False,
    )
    put.add_argument("topic", metavar="TOPIC", help="the name of the topic")
    put.add_argument(
        "--partitions", type=number_flag(1, 1_000_000), metavar="N", help="how many it has; needed for a new topic"
    )
    put.add_argument(
        "--end",
        action="append",
        type=_end,
        default=[],
        metavar="PARTITION=OFFSET",
        help="the offset after the last record of a partition; may be repeated",
    )
    delete = actions.add_parser(
        "delete",
        help="take a topic out of the registry",
        description="Take a topic out of the registry, and its committed offsets out of every group.",
        epilog=STATUSES,
        allow_abbrev=False,
    )
    delete.add_argument("topic", metavar="TOPIC", help="the name of the topic")
    for action in (put, delete):
        add_execute(action)
        add_calling(action, forms=ACTION_FORMS)


def _end(given: str) -> tuple[str, int]:
    partition, sign, offset = given.partition("=")
    if not sign or not all(part.isascii() and part.isdigit() for part in (partition, offset)):
        raise argparse.ArgumentTypeError(f"{given!r} must be written as PARTITION=OFFSET")
    return partition, int(offset)


def run_topics(given: argparse.Namespace) -> int:
    """Run the command. Returns its exit status."""
    if given.action is None:
        return run_view(given, lambda client: _listed(client, given.prefix))
    if given.action == "describe":
        return run_view(given, lambda client: _described(client, given.topic))
    actions: dict[str, Callable[[argparse.Namespace, Client, Output], None]] = {"set": _set, "delete": _delete}

    def body(client: Client, output: Output) -> None:
        if given.prefix is not None or hasattr(given, "watch"):
            raise UsageError(f"--prefix and --watch are for the list: remove them, or {given.action}.")
        actions[given.action](given, client, output)

    return run_calls(given, body)


def _listed(client: Client, prefix: str | None) -> View:
    def rows() -> Iterator[Row]:
        for page in client.pages("list_topics", query={"prefix": prefix}):
            yield from page["topics"]

    return View(TOPIC_COLUMNS, rows(), "topic", empty="There are no such topics in the registry.")


def _described(client: Client, topic: str) -> View:
    found = client.call("describe_topic", query={"limit": PAGE_ROWS}, topic=topic)

    def rows() -> Iterator[Row]:
        yield from found["groups"]
        cursor = found["next_cursor"]
        while cursor is not None:
            page = client.call("describe_topic", query={"limit": PAGE_ROWS, "cursor": cursor}, topic=topic)
            yield from page["groups"]
            cursor = page["next_cursor"]

    def above(form: Form) -> Iterable[str]:
        end = end_of(found)
        facts = [
            ("topic", shown(found["topic"])),
            ("partitions", f"{found['partitions']:,}" if found["is_registered"] else "not registered"),
            ("records", "ends were not reported" if end is None else f"{end:,}"),
            ("groups", f"{found['group_count']:,}"),
        ]
        yield from pairs_lines(facts, form.columns_max)
        yield ""

    return View(GROUP_COLUMNS, rows(), "group_id", above=above, empty="No group reads it.")


def _known(client: Client, topic: str) -> Json | None:
    """The topic as it is registered now."""
    found = client.call("list_topics", query={"prefix": topic, "limit": 1})["topics"]
    return found[0] if found and found[0]["topic"] == topic else None


def _set(given: argparse.Namespace, client: Client, output: Output) -> None:
    body: Json = {"partitions": given.partitions, "end_offsets": dict(given.end)}
    if not given.execute or given.partitions is None:
        # With --curl this is the request that is printed, but where the dry run is that anyway.
        known = _known(client, given.topic)
        if given.partitions is None:
            if known is None:
                raise UsageError(f"There is no topic {shown(given.topic)!r} yet: name its --partitions.")
            body["partitions"] = known["partitions"]
        if not given.execute:
            output.tell(
                {"dry_run": True, "before": known, "after": body}, _set_line(given.topic, known, body), dry_run_line()
            )
            return
    topic = client.call("put_topic", body=body, topic=given.topic)
    output.tell(topic, f"topic {shown(topic['topic'])} has {counted(topic['partitions'], 'partition')}")


def _set_line(topic: str, known: Json | None, wanted: Json) -> str:
    ends = len(wanted["end_offsets"])
    more = f", and {counted(ends, 'end')} would be reported" if ends else ""
    if known is None:
        return f"topic {shown(topic)} would be registered with {counted(wanted['partitions'], 'partition')}{more}"
    before, after = known["partitions"], wanted["partitions"]
    if before == after:
        return f"topic {shown(topic)} has {counted(before, 'partition')} already{more}"
    if after < before:
        raise CallFailed(f"Topic {shown(topic)!r} has {before:,} partitions, and cannot shrink: delete it first.")
    return f"topic {shown(topic)} would grow from {before:,} to {after:,} partitions; its groups rebalance{more}"


def _delete(given: argparse.Namespace, client: Client, output: Output) -> None:
    if not given.execute:
        found = client.call("describe_topic", query={"limit": 1}, topic=given.topic)
        if not found["is_registered"]:
            raise CallFailed(f"The registry has no topic {shown(given.topic)!r}; `rallypoint topics` lists all.")
        output.tell(
            {"dry_run": True, "before": found},
            f"topic {shown(given.topic)} would go, with its {counted(found['partitions'], 'partition')}, and its"
            f" committed offsets in {counted(found['group_count'], 'group')}",
            dry_run_line(),
        )
        return
    gone = client.call("delete_topic", topic=given.topic)
    output.tell(gone, f"topic {shown(gone['topic'])} is gone, with its committed offsets in every group")
