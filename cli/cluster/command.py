"""The command line of `rallypoint cluster`: shows the nodes and who coordinates which shard, and changes that."""

import argparse
import time
from collections.abc import Callable, Iterator

from rallypoint.cli.calls.client import Client, Json
from rallypoint.cli.calls.failures import STATUSES, CallFailed, UsageError
from rallypoint.cli.cluster.report import NODE_COLUMNS, SHARD_COLUMNS, summary_lines
from rallypoint.cli.cluster.waits import Progress, drain_progress, move_progress
from rallypoint.cli.output import terminal
from rallypoint.cli.output.view import Form, View
from rallypoint.cli.output.writing import table_lines
from rallypoint.cli.running import Output, add_calling, run_calls, run_view
from rallypoint.cli.words import MS_MAX, number_flag

WAIT_TIMEOUT_MS = 60_000
POLL_S = 0.25
"""How often a node is asked whether a change is done."""

ACTION_FORMS = ("table", "json", "jsonl")


def add_cluster(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.description = (
        "Show the nodes of a cluster and who coordinates its shards; or, with an action, change that. Any node may be"
        " asked."
    )
    parser.epilog = STATUSES
    parser.add_argument("--shards", action="store_true", help="show each shard: who coordinates it, and who steps in")
    add_calling(parser, watches=True)
    actions = parser.add_subparsers(title="actions", dest="action", metavar="[ACTION]")
    for name, text, more in (
        ("drain", "let a node hand over everything", " that it coordinates, and take nothing more. It runs on."),
        ("resume", "end the drain of a node", ". It gets back what it is preferred for."),
        (
            "remove",
            "take a node that does not run out of the cluster",
            " for good. If it runs again, it joins as any other.",
        ),
        ("move", "give a shard to a node", ": it becomes the preferred one. The shard is handed over within seconds."),
    ):
        action = actions.add_parser(
            name, help=text, description=text[0].upper() + text[1:] + more, epilog=STATUSES, allow_abbrev=False
        )
        if name == "move":
            action.add_argument("shard", type=_shard, metavar="SHARD", help="the number of the shard")
        action.add_argument("node", metavar="NODE", help="the id of the node")
        add_calling(action, forms=ACTION_FORMS)
        if name in {"drain", "move"}:
            action.add_argument("--wait", action="store_true", help="return when it is done")
            action.add_argument(
                "--timeout-ms",
                type=number_flag(0, MS_MAX),
                metavar="MS",
                help=f"how long --wait waits, in milliseconds. Default: {WAIT_TIMEOUT_MS}.",
            )


def _shard(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 6):
        raise argparse.ArgumentTypeError(f"{text!r} is not the number of a shard")
    return int(text)


def run_cluster(given: argparse.Namespace) -> int:
    """Run the command. Returns its exit status."""
    if given.action is None:
        return run_view(given, lambda client: _view(client, with_shards=given.shards))
    actions = {"drain": _drain, "resume": _resume, "remove": _remove, "move": _move}

    def body(client: Client, output: Output) -> None:
        _check(given)
        actions[given.action](given, client, output)

    return run_calls(given, body)


def _check(given: argparse.Namespace) -> None:
    if given.shards:
        raise UsageError(f"--shards is for the cluster alone: remove it, or {given.action}")
    if hasattr(given, "watch"):
        raise UsageError(f"--watch is for the cluster alone: remove it, or {given.action}")
    if given.action in {"drain", "move"} and given.timeout_ms is not None and not given.wait:
        raise UsageError("--timeout-ms is for --wait: add that")


def _view(client: Client, *, with_shards: bool) -> View:
    cluster = client.call("describe_cluster")

    def lines(form: Form) -> Iterator[str]:
        yield from table_lines(NODE_COLUMNS, cluster["nodes"], form)
        yield from ("", *summary_lines(cluster))
        if with_shards:
            yield ""
            yield from table_lines(SHARD_COLUMNS, cluster["shards"], form)

    if with_shards:
        return View(SHARD_COLUMNS, cluster["shards"], "shard", document=cluster, people=lines)
    return View(NODE_COLUMNS, cluster["nodes"], "node_id", document=cluster, people=lines)


def _drain(given: argparse.Namespace, client: Client, output: Output) -> None:
    node = client.call("drain_node", node_id=given.node)
    if not given.wait:
        output.tell(node, f"node {node['node_id']} is drained: it has {node['shards']} shards to hand over")
        return
    cluster = _until_done(given, client, lambda seen: drain_progress(seen, given.node))
    node = next(one for one in cluster["nodes"] if one["node_id"] == given.node)
    output.tell(node, f"node {node['node_id']} is drained: it has handed over everything")


def _resume(given: argparse.Namespace, client: Client, output: Output) -> None:
    node = client.call("resume_node", node_id=given.node)
    shards = node["preferred_shards"]
    output.tell(
        node, f"node {node['node_id']} is not drained any more: it gets the {shards} shards it is preferred for"
    )


def _remove(given: argparse.Namespace, client: Client, output: Output) -> None:
    node = client.call("remove_node", node_id=given.node)
    output.tell(node, f"node {node['node_id']} is removed from the cluster")


def _move(given: argparse.Namespace, client: Client, output: Output) -> None:
    shard = client.call("move_shard", body={"node_id": given.node}, shard=str(given.shard))
    if not given.wait:
        owner = "no node" if shard["owner"] is None else f"node {shard['owner']}"
        output.tell(shard, f"node {given.node} is preferred for shard {shard['shard']}, which is at {owner}")
        return
    cluster = _until_done(given, client, lambda seen: move_progress(seen, given.shard, given.node))
    output.tell(cluster["shards"][given.shard], f"node {given.node} coordinates shard {given.shard}")


def _until_done(given: argparse.Namespace, client: Client, progress_of: Callable[[Json], Progress]) -> Json:
    """The cluster in which it is done. Raises CallFailed where it does not go on, or is not done in time.

    A node may see the change a moment after another one has made it, so only what holds for two looks counts as stuck.
    """
    timeout_ms = WAIT_TIMEOUT_MS if given.timeout_ms is None else given.timeout_ms
    deadline_s = time.monotonic() + timeout_ms / 1000
    was_stuck = False
    with terminal.Progress() as line:
        while True:
            cluster = client.call("describe_cluster")
            progress = progress_of(cluster)
            if progress.is_done:
                return cluster
            if progress.stuck is not None and was_stuck:
                raise CallFailed(progress.stuck)
            was_stuck = progress.stuck is not None
            if time.monotonic() >= deadline_s:
                raise CallFailed(f"It is not done after {timeout_ms} ms: {progress.rest}.")
            line.say(progress.rest)
            time.sleep(POLL_S)
