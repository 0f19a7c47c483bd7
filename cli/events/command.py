"""The command line of `rallypoint events`: what has happened to groups, and what happens, from all nodes."""

import argparse
import time
from queue import Empty, Queue
from typing import Any

from rallypoint.cli.calls.client import Client
from rallypoint.cli.calls.failures import STATUSES, CallFailed
from rallypoint.cli.events.lines import event_line
from rallypoint.cli.events.reading import Reader, Told, urls_of_nodes
from rallypoint.cli.running import Output, add_calling, run_calls, warn

QUIET_S = 1.0
NODES_INTERVAL_S = 15.0
"""How often it is looked for nodes that came."""


def add_events(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.description = (
        "Print the events that the nodes have kept, node by node; with -f go on with what happens. In a cluster all"
        " nodes are read. After a lost connection it goes on behind the last event; where events are gone, it says so"
        " in a `gap`."
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
        _read(client, output, {**query, "cursor": cursor}, follows=follows)

    return run_calls(given, body)


def _read(client: Client, output: Output, query: dict[str, Any], *, follows: bool) -> None:
    queue: Queue[Told] = Queue(maxsize=10_000)
    reading: dict[str, Reader] = {}
    ended: set[str] = set()

    def start(urls: tuple[str, ...]) -> None:
        for url in urls:
            if url not in reading:
                reading[url] = Reader(client, url, query, queue, follows=follows, quiet_s=QUIET_S)
                reading[url].start()

    start(urls_of_nodes(client))
    look_at = time.monotonic() + NODES_INTERVAL_S
    lost: set[str] = set()
    while follows or ended != set(reading):
        try:
            told = queue.get(timeout=QUIET_S)
        except Empty:
            told = None
        if told is not None:
            if told.event is not None:
                lost.discard(told.url)
                output.record(told.event, event_line(told.event))
            if told.failure is not None:
                _fail(told, lost, follows=follows)
            if told.is_end:
                ended.add(told.url)
        if follows and time.monotonic() >= look_at:
            look_at = time.monotonic() + NODES_INTERVAL_S
            try:
                start(urls_of_nodes(client))
            except CallFailed:  # the streams say so themselves
                continue


def _fail(told: Told, lost: set[str], *, follows: bool) -> None:
    assert told.failure is not None
    if not follows or told.failure.status != 3:
        raise told.failure
    if told.url not in lost:
        lost.add(told.url)
        warn(f"{told.failure} It is asked again until it answers.")
