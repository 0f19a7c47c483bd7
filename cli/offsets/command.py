"""The command line of `rallypoint offsets`: shows, resets, exports, imports and deletes what a group has committed."""

import argparse
from collections.abc import Callable, Iterator

from rallypoint.cli.act.execution import add_execute
from rallypoint.cli.calls.client import Client
from rallypoint.cli.calls.failures import STATUSES
from rallypoint.cli.offsets.changes import delete, export, import_offsets, reset
from rallypoint.cli.offsets.columns import PARTITION_COLUMNS
from rallypoint.cli.output.columns import Row
from rallypoint.cli.output.times import instant_ms
from rallypoint.cli.output.view import View
from rallypoint.cli.running import Output, add_calling, now_ms, run_calls, run_view
from rallypoint.cli.words import OFFSET_MAX, OFFSET_MIN, number_flag

PARTITION_STATUSES = ("ok", "warn", "stop", "stall", "rewind")
TOPICS_HELP = (
    "only this topic, all of its partitions, or those that are named behind a colon: `clicks` or `clicks:0,1`; may be"
    " repeated"
)
CHANGE_FORMS = ("table", "wide", "json", "jsonl", "csv")


def add_offsets(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.description = (
        "Show and change what a group has committed. A reset and an import need a group without members. What changes"
        " offsets is a dry run without --execute."
    )
    parser.epilog = STATUSES
    actions = parser.add_subparsers(title="actions", dest="action", required=True, metavar="ACTION")
    get = _action(
        actions,
        "get",
        "list partitions: offset, end, lag, owner and status",
        "List the partitions of the topics that a group subscribes to, owns or has committed, with offset, end, lag,"
        " status and owner; those without a commit as well.",
    )
    get.add_argument("--topic", metavar="TOPIC", help="only this topic")
    get.add_argument("--status", choices=PARTITION_STATUSES, help="only partitions of this status")
    get.add_argument(
        "--owned",
        action=argparse.BooleanOptionalAction,
        default=None,
        help="only partitions that have an owner, or have none",
    )
    add_calling(get, watches=True)

    resets = _action(
        actions,
        "reset",
        "put offsets elsewhere",
        "Put the committed offsets of a group without members elsewhere. Each partition is shown before and after.",
    )
    to = resets.add_mutually_exclusive_group(required=True)
    to.add_argument("--to-earliest", action="store_true", help="to offset 0")
    to.add_argument("--to-latest", action="store_true", help="to the ends that were last reported")
    to.add_argument("--to-offset", type=number_flag(OFFSET_MIN, OFFSET_MAX), metavar="N", help="to this offset")
    to.add_argument(
        "--shift-by",
        type=number_flag(OFFSET_MIN, OFFSET_MAX),
        metavar="N",
        help="so many records on, or back if negative",
    )
    to.add_argument(
        "--to-time",
        type=_time,
        metavar="TIME",
        help="to the ends that were last reported by then, so that nothing younger is passed over: a time like"
        " 2026-11-25T10:00:00Z, or -2h for two hours ago (written as --to-time=-2h)",
    )
    to.add_argument("--from-group", metavar="GROUP", help="to the offsets that another group has committed")
    to.add_argument(
        "--from-file", metavar="FILE", help="to the offsets of a file of `offsets export`; - for standard input"
    )
    resets.add_argument("--topic", action="append", default=[], metavar="TOPIC[:P,…]", help=TOPICS_HELP)
    add_execute(resets)
    add_calling(resets, forms=CHANGE_FORMS)

    exports = _action(
        actions,
        "export",
        "write committed offsets to a file",
        "Write the committed offsets to a file, whole or not at all, or to standard output. CSV is"
        " topic,partition,offset, as Kafka's own tool has it.",
    )
    exports.add_argument(
        "file", nargs="?", default="-", metavar="FILE", help="the file. Default: - for standard output."
    )
    exports.add_argument("--format", choices=("csv", "json"), default="csv", help="form of the file. Default: csv.")
    add_calling(exports, forms=("table",))

    imports = _action(
        actions,
        "import",
        "read committed offsets from a file",
        "Set the committed offsets to those of a file of `offsets export`, or of Kafka's own tool. A group that does"
        " not exist is made.",
    )
    imports.add_argument("file", metavar="FILE", help="the file, CSV or JSON; - for standard input")
    add_execute(imports)
    add_calling(imports, forms=CHANGE_FORMS)

    deletes = _action(
        actions,
        "delete",
        "delete committed offsets",
        "Delete the committed offsets of topics or single partitions. Those that members of the group may read stand.",
    )
    deletes.add_argument("--topic", action="append", required=True, metavar="TOPIC[:P,…]", help=TOPICS_HELP)
    deletes.add_argument(
        "--partition",
        action="append",
        type=number_flag(0, 10**9),
        default=[],
        metavar="P",
        help="of a --topic that is the only one",
    )
    add_execute(deletes)
    add_calling(deletes, forms=CHANGE_FORMS)


def _action(
    actions: "argparse._SubParsersAction[argparse.ArgumentParser]", name: str, text: str, more: str
) -> argparse.ArgumentParser:
    parser = actions.add_parser(name, help=text, description=more, epilog=STATUSES, allow_abbrev=False)
    parser.add_argument("group", metavar="GROUP", help="the id of the group")
    return parser


def _time(given: str) -> int:
    try:
        return instant_ms(given, now_ms())
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def run_offsets(given: argparse.Namespace) -> int:
    """Run the command. Returns its exit status."""
    if given.action == "get":
        return run_view(given, lambda client: _view(client, given))
    changes: dict[str, Callable[[argparse.Namespace, Client, Output], None]] = {
        "reset": reset,
        "export": export,
        "import": import_offsets,
        "delete": delete,
    }
    return run_calls(given, lambda client, output: changes[given.action](given, client, output))


def _view(client: Client, given: argparse.Namespace) -> View:
    query = {"topic": given.topic, "status": given.status, "owned": given.owned}

    def rows() -> Iterator[Row]:
        for page in client.pages("list_partitions", query=query, group_id=given.group):
            yield from page["partitions"]

    return View(PARTITION_COLUMNS, rows(), "partition", empty="The group has no such partitions.")
