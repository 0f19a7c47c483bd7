"""The command line of `rallypoint events`: what has happened to groups, and what happens, from all nodes."""

import argparse
from typing import Any

from rallypoint.cli.calls.client import Client
from rallypoint.cli.calls.failures import STATUSES, CallFailed
from rallypoint.cli.events.lines import event_line
from rallypoint.cli.events.reading import Reading
from rallypoint.cli.running import Output, add_calling, run_calls, warn


def add_events(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.description = (
        "Print the events that the service has kept, in a cluster those of all nodes; with -f go on with what happens."
        " After a lost connection it goes on behind the last event, at any node that runs; where events are gone, it"
        " says so in a `gap`."
    )
    parser.epilog = STATUSES
    parser.add_argument("group", nargs="?", metavar="GROUP", help="only events of this group")
    parser.add_argument("-f", "--follow", action="store_true", help="go on with what happens, until Ctrl-C")
    parser.add_argument("--prefix", metavar="TEXT", help="only events of groups whose id begins so")
    parser.add_argument(
        "--kinds", metavar="KINDS", help="only these kinds, with commas between. Default: all but commits."
    )
    parser.add_argument("--new", action="store_true", help="with -f: without the events that were kept")
    add_calling(parser, forms=("table", "json", "jsonl"))


def run_events(given: argparse.Namespace) -> int:
    """Run the command. Returns its exit status."""
    query = {"group_id": given.group, "prefix": given.prefix, "kinds": given.kinds}

    def body(client: Client, output: Output) -> None:
        follows = given.follow
        cursor = None if given.new and follows else "oldest"
        if getattr(given, "curl", False):
            with client.stream(client.urls[0], {**query, "cursor": cursor}):
                return
        _print(client, output, {**query, "cursor": cursor}, follows=follows)

    return run_calls(given, body)


def _print(client: Client, output: Output, query: dict[str, Any], *, follows: bool) -> None:
    lost_at: set[str] = set()

    def lost(failure: CallFailed, further: str) -> None:
        if not lost_at:
            warn(f"{failure} It goes on at {further} as soon as that answers.")
        lost_at.add(further)

    for event in Reading(client, query, follows=follows, lost=lost).events():
        lost_at.clear()
        output.record(event, event_line(event))
