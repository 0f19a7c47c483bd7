"""The command line of `rallypoint check`: judges a group for a monitoring system, once."""

import argparse

from rallypoint.cli.calls.client import Client, Json
from rallypoint.cli.calls.failures import CONDITION, DONE, STATUSES, CallFailed, UsageError
from rallypoint.cli.look.conditions import condition
from rallypoint.cli.output.text import counted, shown
from rallypoint.cli.running import Output, add_calling, run_calls
from rallypoint.cli.until.state import row_of

NAGIOS_OK, NAGIOS_WARNING, NAGIOS_CRITICAL, NAGIOS_UNKNOWN = range(4)
_NAMES = ("OK", "WARNING", "CRITICAL", "UNKNOWN")


def add_check(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.description = (
        "Judge a group once. The conditions say what is bad: --lag '>1000' ends with 5 if the lag is above 1,000, or is"
        " not known. With --format nagios the statuses are those of Nagios: 0 ok, 1 warning, 2 critical, 3 unknown."
        " With --format prometheus it prints metrics, as a textfile collector reads them."
    )
    parser.epilog = STATUSES
    parser.add_argument("group", metavar="GROUP", help="the id of the group")
    parser.add_argument("--lag", type=condition, metavar="'>N'", help="bad if its lag is so, or not known")
    parser.add_argument("--warn-lag", type=condition, metavar="'>N'", help="a warning if its lag is so; for nagios")
    parser.add_argument("--members", type=condition, metavar="'<N'", help="bad if it has so many members")
    parser.add_argument("--stable", action="store_true", help="bad unless it is Stable")
    parser.add_argument("--status", action="store_true", help="bad if its status is ERR; WARN is a warning")
    parser.add_argument(
        "--format", choices=("text", "nagios", "prometheus"), default="text", help="form of the answer. Default: text."
    )
    add_calling(parser, forms=("table", "json", "jsonl"))


def run_check(given: argparse.Namespace) -> int:
    """Run the command. Returns its exit status."""

    def body(client: Client, output: Output) -> int:
        if given.lag is None and given.members is None and not given.stable and not given.status:
            raise UsageError("Say what is bad: --lag '>N', --members '<N', --stable or --status.")
        try:
            row = row_of(client, given.group)
        except CallFailed as error:
            if given.format != "nagios" or error.status == UsageError.status:
                raise
            print(f"RALLYPOINT UNKNOWN - {error}")
            return NAGIOS_UNKNOWN
        bad, warnings = judged(row, given)
        if given.format == "nagios":
            level = NAGIOS_CRITICAL if bad else NAGIOS_WARNING if warnings else NAGIOS_OK
            print(nagios_line(row, given, level, [*bad, *warnings]))
            return level
        if given.format == "prometheus":
            print("\n".join(prometheus_lines(row, is_bad=bool(bad))))
        else:
            line = f"group {shown(given.group)}: {'; '.join(bad) or fine(row)}"
            output.tell({**row, "is_bad": bool(bad), "reasons": bad}, line)
        return CONDITION if bad else DONE

    return run_calls(given, body)


def fine(row: Json) -> str:
    """The group where nothing is bad."""
    lag = "not known" if row.get("lag") is None else f"{row['lag']:,}"
    return f"good: {row['state']}, {counted(row['member_count'], 'member')}, lag {lag}"


def judged(row: Json, given: argparse.Namespace) -> tuple[list[str], list[str]]:
    """What is bad, and what is worth a warning, in clauses."""
    bad: list[str] = []
    warnings: list[str] = []
    lag = row.get("lag")
    for asked, found in ((given.lag, bad), (given.warn_lag, warnings)):
        if asked is not None and lag is None:
            found.append("its lag is not known")
        elif asked is not None and asked.holds(lag):
            found.append(f"its lag is {lag:,}, {asked}")
    if given.members is not None and given.members.holds(row["member_count"]):
        bad.append(f"it has {counted(row['member_count'], 'member')}, {given.members}")
    if given.stable and row["state"] != "Stable":
        bad.append(f"it is {row['state']}")
    if given.status and row.get("status") in {"ERR", "WARN"}:
        (bad if row["status"] == "ERR" else warnings).append(f"its status is {row['status']}")
    return bad, warnings


def nagios_line(row: Json, given: argparse.Namespace, level: int, reasons: list[str]) -> str:
    """The line that Nagios reads, with the figures behind the bar."""
    said = shown("; ".join(reasons) or fine(row)).replace("|", "/")
    name = shown(row["group_id"]).replace("|", "/")
    lag = "U" if row.get("lag") is None else str(row["lag"])
    limits = [str(one.number) if one is not None and one.sign == ">" else "" for one in (given.warn_lag, given.lag)]
    figures = f"lag={lag};{limits[0]};{limits[1]};0 members={row['member_count']};;;0"
    return f"RALLYPOINT {_NAMES[level]} - group {name}: {said} | {figures}"


def prometheus_lines(row: Json, *, is_bad: bool) -> list[str]:
    """Metrics in the text form."""
    # A backslash before anything but n, another one and a quote would make the whole file unreadable.
    lines = (shown(line).replace("\\", "\\\\").replace('"', '\\"') for line in str(row["group_id"]).split("\n"))
    label = '{group_id="' + "\\n".join(lines) + '"}'
    found = [("rallypoint_check_bad", int(is_bad)), ("rallypoint_check_members", row["member_count"])]
    if row.get("lag") is not None:
        found.append(("rallypoint_check_lag", row["lag"]))
    return [line for name, value in found for line in (f"# TYPE {name} gauge", f"{name}{label} {value}")]
