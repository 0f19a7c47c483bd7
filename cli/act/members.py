"""The command lines that take something away: `rallypoint kick` and `rallypoint delete`."""

import argparse

from rallypoint.cli.act.execution import add_execute, dry_run_line
from rallypoint.cli.calls.client import Client
from rallypoint.cli.calls.failures import STATUSES, CallFailed
from rallypoint.cli.output.text import counted, shown
from rallypoint.cli.output.times import duration
from rallypoint.cli.running import Output, add_calling, now_ms, run_calls

FORMS = ("table", "json", "jsonl")


def add_kick(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.description = (
        "Take members out of a group, in one rebalance. A member that runs on joins again as a newcomer; one that"
        " hangs does not. `rallypoint preview --leave` shows who would get its partitions."
    )
    parser.epilog = STATUSES
    parser.add_argument("group", metavar="GROUP", help="the id of the group")
    parser.add_argument("member", nargs="+", metavar="MEMBER", help="a member id or an instance id")
    parser.add_argument("--reason", metavar="TEXT", help="why; `rallypoint why` shows it")
    add_execute(parser)
    add_calling(parser, forms=FORMS)


def run_kick(given: argparse.Namespace) -> int:
    """Run the command. Returns its exit status."""

    def body(client: Client, output: Output) -> None:
        wanted = {"members": given.member, "reason": given.reason, "dry_run": not given.execute}
        answer = client.call("remove_members", body=wanted, group_id=given.group)
        unknown = [one["member_id"] for one in answer["members"] if one["error_code"]]
        lines = [
            f"{shown(one['member_id'])}: {_result(one['error_name'], is_dry=answer['dry_run'])}"
            for one in answer["members"]
        ]
        if answer["rebalance_id"] is not None:
            lines.append(f"rebalance {answer['rebalance_id']} shares out what they owned")
        elif answer.get("held_until_ms") is not None:
            lines.append(f"the rebalance is held for {duration(max(0, answer['held_until_ms'] - now_ms()))}")
        output.tell(answer, *lines, *([dry_run_line()] if answer["dry_run"] else []))
        if unknown:
            raise CallFailed(
                f"The group knows no member {shown(unknown[0])!r}; `rallypoint members` lists those that it has."
            )

    return run_calls(given, body)


def _result(error_name: str, *, is_dry: bool) -> str:
    if error_name != "NONE":
        return f"not removed, {error_name}"
    return "would be removed" if is_dry else "removed"


def add_delete(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.description = "Delete a group with its committed offsets. It must have no members."
    parser.epilog = STATUSES
    parser.add_argument("group", metavar="GROUP", help="the id of the group")
    add_execute(parser)
    add_calling(parser, forms=FORMS)


def run_delete(given: argparse.Namespace) -> int:
    """Run the command. Returns its exit status."""

    def body(client: Client, output: Output) -> None:
        if given.execute:
            gone = client.call("delete_group", group_id=given.group)
            output.tell(gone, f"group {shown(gone['group_id'])} is gone, with its committed offsets")
            return
        group = client.call("describe", group_id=given.group)
        if group["members"]:
            raise CallFailed(
                f"Group {shown(given.group)!r} has {counted(len(group['members']), 'member')}, and would not be"
                " deleted: stop them first."
            )
        count = sum(len(partitions) for partitions in group["offsets"].values())
        output.tell(
            {"dry_run": True, "group_id": given.group, "committed_partition_count": count},
            f"group {shown(given.group)} would go, with the committed offsets of {counted(count, 'partition')}",
            dry_run_line(),
        )

    return run_calls(given, body)
