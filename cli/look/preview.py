"""The command line of `rallypoint preview`: what the next assignment would be."""

import argparse
from typing import Any

from rallypoint.cli.calls.client import Client, Json
from rallypoint.cli.calls.failures import STATUSES, CallFailed, UsageError
from rallypoint.cli.output.columns import Column, number, text, word
from rallypoint.cli.output.numbers import numbers_text
from rallypoint.cli.output.text import counted, shown
from rallypoint.cli.output.view import View
from rallypoint.cli.running import Output, add_calling, run_calls
from rallypoint.cli.words import number_flag


def _partitions(value: dict[str, list[int]], _: int) -> str:
    return ", ".join(f"{shown(topic)} {numbers_text(sorted(found))}" for topic, found in sorted(value.items())) or "-"


PREVIEW_COLUMNS: tuple[Column, ...] = (
    text("member_id", "MEMBER"),
    text("group_instance_id", "INSTANCE", rank=3),
    word("change", "CHANGE", colours={"leaves": "33", "joins": "32"}),
    number("before_count", "BEFORE"),
    number("after_count", "AFTER"),
    Column("gained", "GAINS", _partitions, shrinks=True, rank=1),
    Column("lost", "LOSES", _partitions, shrinks=True, rank=2),
)


def add_preview(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.description = (
        "Show what the next assignment of a group would be if members left or joined, topics grew, or another assignor"
        " was used. Nothing is changed."
    )
    parser.epilog = STATUSES
    parser.add_argument("group", metavar="GROUP", help="the id of the group")
    parser.add_argument(
        "--leave", action="append", default=[], metavar="MEMBER", help="a member that leaves; may be repeated"
    )
    parser.add_argument("--join", type=number_flag(0, 10**9), default=0, metavar="N", help="how many members join")
    parser.add_argument(
        "--topic",
        action="append",
        default=[],
        metavar="TOPIC",
        help="what those who join subscribe to, by default what the members do; may be repeated",
    )
    parser.add_argument("--assignor", metavar="NAME", help="the assignor to use. Default: the group's present one.")
    parser.add_argument(
        "--partitions",
        action="append",
        type=_growth,
        default=[],
        metavar="TOPIC=N",
        help="a topic that grows to N partitions; may be repeated",
    )
    add_calling(parser)


def _growth(given: str) -> tuple[str, int]:
    topic, sign, count = given.rpartition("=")
    if not sign or not topic or not (count.isascii() and count.isdigit()):
        raise argparse.ArgumentTypeError(f"{given!r} must be written as TOPIC=N")
    return topic, int(count)


def run_preview(given: argparse.Namespace) -> int:
    """Run the command. Returns its exit status."""
    joins: dict[str, Any] = {"count": given.join}
    if given.topic:
        joins["topics"] = given.topic
    body: dict[str, Any] = {
        "leave": given.leave,
        "join": [joins] if given.join else [],
        "partitions": dict(given.partitions),
        "assignor": given.assignor,
    }
    return run_calls(given, lambda client, output: _show(given, client, output, body))


def _show(given: argparse.Namespace, client: Client, output: Output, body: Json) -> None:
    if given.topic and not given.join:
        raise UsageError("--topic is for those who join: add --join N.")
    try:
        output.show(_view(client, given.group, body))
    except CallFailed as error:
        field = (error.problem or {}).get("field")
        if field == "join.0.topics" and not given.topic:
            raise CallFailed(
                "Nobody in the group subscribes to a topic: name some with --topic.", error.problem
            ) from error
        if field == "assignor" and given.assignor is None:
            raise CallFailed("The group has no assignor yet: name one with --assignor.", error.problem) from error
        raise


def _view(client: Client, group_id: str, body: Json) -> View:
    answer = client.call("preview", body=body, group_id=group_id)
    return View(
        PREVIEW_COLUMNS, answer["members"], "member_id", document=answer, below=lambda _: ["", *summary(answer)],
        empty="The group has no members, and would have none.",
    )  # fmt: skip


def summary(answer: Json) -> list[str]:
    """The move in a few sentences."""
    lines = [
        f"{shown(answer['assignor'])}: {counted(answer['partitions_moved_count'], 'partition')} would move, in"
        f" {counted(answer['rebalance_count'], 'rebalance')}"
    ]
    if answer["unassigned_count"]:
        lines.append(f"{counted(answer['unassigned_count'], 'partition')} would have no owner")
    before, after = answer["evenness_before"], answer["evenness_after"]
    lines.append(f"partitions a member: {_span(before)} before, {_span(after)} after")
    return lines


def _span(evenness: Json) -> str:
    least, most = evenness["least_count"], evenness["most_count"]
    return f"{least:,}" if least == most else f"{least:,} to {most:,}"
