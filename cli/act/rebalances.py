"""The command lines that hold, start and hasten rebalances."""

import argparse

from rallypoint.cli.act.execution import add_execute, dry_run_line
from rallypoint.cli.calls.client import Client, Json
from rallypoint.cli.calls.failures import STATUSES
from rallypoint.cli.output.text import counted, shown
from rallypoint.cli.output.times import duration
from rallypoint.cli.running import Output, add_calling, duration_flag, now_ms, run_calls

FORMS = ("table", "json", "jsonl")
FREEZE_MS = 300_000
FREEZE_ENDS = ("time", "members_present", "members_replaced")


def _add(parser: argparse.ArgumentParser, text: str) -> None:
    parser.description = text
    parser.epilog = STATUSES
    parser.add_argument("group", metavar="GROUP", help="the id of the group")


def add_freeze(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    _add(parser, "Hold a group's rebalances for a while. One follows when it is over, if there is reason for it.")
    parser.add_argument(
        "--for",
        dest="duration_ms",
        type=duration_flag,
        default=FREEZE_MS,
        metavar="TIME",
        help="for how long, such as 5m or 90s; services allow 15m. Default: 5m.",
    )
    parser.add_argument(
        "--until",
        choices=FREEZE_ENDS,
        default="time",
        help="what ends it before: members_present, all members of now are there again once one had gone;"
        " members_replaced, each has gone and come back. Default: time, nothing.",
    )
    parser.add_argument("--reason", metavar="TEXT", help="why; whoever describes the group sees it")
    add_calling(parser, forms=FORMS)


def run_freeze(given: argparse.Namespace) -> int:
    """Run the command. Returns its exit status."""

    def body(client: Client, output: Output) -> None:
        wanted = {"duration_ms": given.duration_ms, "until": given.until, "reason": given.reason}
        answer = client.call("freeze", body=wanted, group_id=given.group)
        output.tell(answer, freeze_line(answer))

    return run_calls(given, body)


def freeze_line(answer: Json) -> str:
    """What holds now, in a sentence."""
    name = shown(answer["group_id"])
    if answer["frozen_until_ms"] is None:
        return f"group {name} is not frozen"
    held = f"; {counted(answer['held_count'], 'cause')} of a rebalance held" if answer["held_count"] else ""
    return f"group {name} is frozen for {duration(max(0, answer['frozen_until_ms'] - now_ms()))}{held}"


def add_thaw(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    _add(parser, "End a group's freeze. What was held back starts one rebalance.")
    add_calling(parser, forms=FORMS)


def run_thaw(given: argparse.Namespace) -> int:
    """Run the command. Returns its exit status."""

    def body(client: Client, output: Output) -> None:
        answer = client.call("thaw", group_id=given.group)
        output.tell(answer, freeze_line(answer))

    return run_calls(given, body)


def add_cooldown(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    _add(parser, "Set the least time between two rebalances of a group; what comes earlier waits, and shares one.")
    chosen = parser.add_mutually_exclusive_group(required=True)
    chosen.add_argument("time", nargs="?", type=duration_flag, metavar="TIME", help="such as 20s; 0s is none")
    chosen.add_argument("--default", action="store_true", help="that of the service's settings")
    add_calling(parser, forms=FORMS)


def run_cooldown(given: argparse.Namespace) -> int:
    """Run the command. Returns its exit status."""

    def body(client: Client, output: Output) -> None:
        answer = client.call("cooldown", body={"cooldown_ms": given.time}, group_id=given.group)
        whose = " (the service's setting)" if answer["is_default"] else ""
        output.tell(
            answer, f"group {shown(answer['group_id'])} cools down for {duration(answer['cooldown_ms'])}{whose}"
        )

    return run_calls(given, body)


def add_rebalance(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    _add(parser, "Start a rebalance now, also of a group that is frozen or cools down.")
    parser.add_argument("--reason", metavar="TEXT", help="why; `rallypoint why` shows it")
    add_calling(parser, forms=FORMS)


def run_rebalance(given: argparse.Namespace) -> int:
    """Run the command. Returns its exit status."""

    def body(client: Client, output: Output) -> None:
        answer = client.call("start_rebalance", body={"reason": given.reason}, group_id=given.group)
        name, number = shown(answer["group_id"]), answer["rebalance_id"]
        if number is None:
            line = f"group {name} has no members, and nothing to rebalance"
        elif answer["started"]:
            line = f"rebalance {number} of group {name} has begun"
        else:
            line = f"rebalance {number} of group {name} was under way already"
        output.tell(answer, line)

    return run_calls(given, body)


def add_join_wait(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    _add(
        parser,
        "Set how long a rebalance of a group waits for members to join. Who is slower is left out, and comes back as a"
        " newcomer.",
    )
    chosen = parser.add_mutually_exclusive_group(required=True)
    chosen.add_argument("time", nargs="?", type=duration_flag, metavar="TIME", help="such as 30s; 3s at the least")
    chosen.add_argument("--default", action="store_true", help="that of the service's settings")
    add_calling(parser, forms=FORMS)


def run_join_wait(given: argparse.Namespace) -> int:
    """Run the command. Returns its exit status."""

    def body(client: Client, output: Output) -> None:
        answer = client.call("join_wait", body={"join_wait_max_ms": given.time}, group_id=given.group)
        whose = " (the service's setting)" if answer["is_default"] else ""
        most = answer["join_wait_max_ms"]
        time = "as long as its members' own rebalance timeouts say" if most is None else duration(most)
        output.tell(answer, f"group {shown(answer['group_id'])} waits for members {time}{whose}")

    return run_calls(given, body)


def add_proceed(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    _add(
        parser,
        "Let the rebalance that is under way go on without the members that it waits for. They are removed, and come"
        " back as newcomers. `rallypoint awaited` lists them.",
    )
    parser.add_argument("--reason", metavar="TEXT", help="why; `rallypoint why` shows it")
    add_execute(parser)
    add_calling(parser, forms=FORMS)


def run_proceed(given: argparse.Namespace) -> int:
    """Run the command. Returns its exit status."""

    def body(client: Client, output: Output) -> None:
        wanted = {"reason": given.reason, "dry_run": not given.execute}
        answer = client.call("proceed", body=wanted, group_id=given.group)
        output.tell(answer, *proceed_lines(answer))

    return run_calls(given, body)


def proceed_lines(answer: Json) -> list[str]:
    """Who is left out, in sentences."""
    if answer["rebalance_id"] is None:
        return [f"no rebalance of group {shown(answer['group_id'])} is under way"]
    verb = "would go on" if answer["dry_run"] else "goes on"
    count = counted(answer["left_out_count"], "member")
    lines = [f"rebalance {answer['rebalance_id']} {verb} without {count}"]
    lines += [f"  {shown(one['group_instance_id'] or one['member_id'])}" for one in answer["left_out"]]
    more = answer["left_out_count"] - len(answer["left_out"])
    return lines + ([f"  and {more:,} more"] if more else []) + ([dry_run_line()] if answer["dry_run"] else [])
