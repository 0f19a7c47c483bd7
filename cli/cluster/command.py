"""The command line of `rallypoint cluster`: shows the cluster, drains, resumes and removes nodes, and moves shards.

Exit status: 0 success, 1 refused, failed or not done in time, 2 usage error, 130 Ctrl-C, 141 standard output was
closed.
"""

import argparse
import asyncio
import os
import sys
import time
from collections.abc import Callable, Coroutine
from typing import Any

from pydantic import BaseModel

from rallypoint.cli.cluster.client import CallFailed, ClusterClient
from rallypoint.cli.cluster.report import cluster_text
from rallypoint.cli.cluster.waits import Progress, drain_progress, move_progress
from rallypoint.member.options import coordinator_urls
from rallypoint.member.tokens import Token, TokenFile, is_token
from rallypoint.protocol import admin_messages as admin
from rallypoint.protocol.environment import ENV_PREFIX

DEFAULT_URL = "http://127.0.0.1:8000"
URLS_VARIABLE = ENV_PREFIX + "COORDINATOR"
TOKEN_VARIABLE = ENV_PREFIX + "TOKEN"
WAIT_TIMEOUT_MS = 60_000
POLL_S = 0.25
"""How often a node is asked whether a change is done."""

INTERRUPTED = 130
UNREAD = 141
"""As a shell reports the end by SIGINT and by SIGPIPE."""

STATUSES = (
    "Exit status: 0 success, 1 refused, failed or not done in time, 2 usage error, 130 Ctrl-C, 141 standard output was"
    " closed."
)


class UsageError(Exception):
    """The arguments are invalid. The message is one sentence that names the flag."""


def add_cluster(commands: Any) -> None:
    """Add the command to the others."""
    parser = commands.add_parser(
        "cluster",
        help="show and change a cluster of nodes",
        description="Show the nodes of a cluster and who coordinates its shards; or, with an action, change that. Any"
        " node may be asked.",
        epilog=STATUSES,
        allow_abbrev=False,
    )
    parser.add_argument("--shards", action="store_true", help="show each shard: who coordinates it, and who steps in")
    _add_common(parser)
    actions = parser.add_subparsers(title="actions", dest="action", metavar="ACTION")
    drain = actions.add_parser(
        "drain",
        help="let a node hand over everything",
        description="Let a node hand over everything that it coordinates, and take nothing more. It runs on.",
        epilog=STATUSES,
        allow_abbrev=False,
    )
    drain.add_argument("node", metavar="NODE", help="the id of the node")
    resume = actions.add_parser(
        "resume",
        help="end the drain of a node",
        description="End the drain of a node. It gets back what it is preferred for.",
        epilog=STATUSES,
        allow_abbrev=False,
    )
    resume.add_argument("node", metavar="NODE", help="the id of the node")
    remove = actions.add_parser(
        "remove",
        help="take a node that does not run out of the cluster",
        description="Take a node that does not run out of the cluster for good. If it runs again, it joins as any"
        " other.",
        epilog=STATUSES,
        allow_abbrev=False,
    )
    remove.add_argument("node", metavar="NODE", help="the id of the node")
    move = actions.add_parser(
        "move",
        help="give a shard to a node",
        description="Make a node the preferred one for a shard. The shard is handed over within seconds.",
        epilog=STATUSES,
        allow_abbrev=False,
    )
    move.add_argument("shard", type=_shard, metavar="SHARD", help="the number of the shard")
    move.add_argument("node", metavar="NODE", help="the id of the node")
    for action in (drain, resume, remove, move):
        _add_common(action)
    for action in (drain, move):
        action.add_argument("--wait", action="store_true", help="return when it is done")
        action.add_argument(
            "--timeout-ms",
            type=_timeout,
            metavar="MS",
            help=f"how long --wait waits, in milliseconds. Default: {WAIT_TIMEOUT_MS}.",
        )


def _add_common(parser: argparse.ArgumentParser) -> None:
    """Flags that may stand before or behind the action. A default of the one behind would undo the one before."""
    parser.add_argument(
        "--coordinator",
        default=argparse.SUPPRESS,
        metavar="URLS",
        help="URLs of nodes, separated by commas; the first that answers counts. In the environment:"
        f" {URLS_VARIABLE}. Default: {DEFAULT_URL}.",
    )
    parser.add_argument(
        "--token-file",
        default=argparse.SUPPRESS,
        metavar="PATH",
        help=f"file with the bearer token, if the service requires one. In the environment, the token itself:"
        f" {TOKEN_VARIABLE}.",
    )
    parser.add_argument(
        "--output", choices=("table", "json"), default=argparse.SUPPRESS, help="form of the output. Default: table."
    )


def _shard(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 6):
        raise argparse.ArgumentTypeError(f"{text!r} is not the number of a shard")
    return int(text)


def _timeout(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 9):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of milliseconds")
    return int(text)


def run_cluster(given: argparse.Namespace) -> int:
    """Run the command. Returns its exit status."""
    try:
        _check(given)
        urls = _urls_of(given)
        token = _token_of(given)
        print(asyncio.run(_asked(given, urls, token)), flush=True)
    except UsageError as error:
        print(f"rallypoint: {error}", file=sys.stderr)
        return 2
    except CallFailed as error:
        print(f"rallypoint: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # The buffer still has data without a reader: otherwise the interpreter would print an error at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return UNREAD
    return 0


def _check(given: argparse.Namespace) -> None:
    if given.action is not None and given.shards:
        raise UsageError(f"--shards is for the cluster alone: remove it, or {given.action}")
    if given.action in {"drain", "move"} and given.timeout_ms is not None and not given.wait:
        raise UsageError("--timeout-ms is for --wait: add that")


def _urls_of(given: argparse.Namespace) -> tuple[str, ...]:
    text = getattr(given, "coordinator", None)
    if text is None:
        text = os.environ.get(URLS_VARIABLE, DEFAULT_URL)
    try:
        return coordinator_urls(text)
    except ValueError as error:
        raise UsageError(f"--{error}") from error


def _token_of(given: argparse.Namespace) -> Token | None:
    path = getattr(given, "token_file", None)
    if path is None:
        token = os.environ.get(TOKEN_VARIABLE)
        if token is not None and not is_token(token):
            raise UsageError(f"{TOKEN_VARIABLE} in the environment holds no token")
        return token
    try:
        return TokenFile(path)()
    except (OSError, ValueError) as error:
        raise UsageError(f"--token-file: {error}") from error


async def _asked(given: argparse.Namespace, urls: tuple[str, ...], token: Token | None) -> str:
    """What to print."""
    async with ClusterClient(urls, token) as client:
        if given.action is None:
            cluster = await client.describe()
            return _shown(given, cluster, cluster_text(cluster, with_shards=given.shards))
        actions: dict[str, Callable[[argparse.Namespace, ClusterClient], Coroutine[Any, Any, str]]] = {
            "drain": _drain,
            "resume": _resume,
            "remove": _remove,
            "move": _move,
        }
        return await actions[given.action](given, client)


async def _drain(given: argparse.Namespace, client: ClusterClient) -> str:
    node = await client.drain(given.node)
    if not given.wait:
        return _shown(given, node, f"node {node.node_id} is drained: it has {node.shards} shards to hand over")
    cluster = await _until_done(given, client, lambda seen: drain_progress(seen, given.node))
    node = next(one for one in cluster.nodes if one.node_id == given.node)
    return _shown(given, node, f"node {node.node_id} is drained: it has handed over everything")


async def _resume(given: argparse.Namespace, client: ClusterClient) -> str:
    node = await client.resume(given.node)
    return _shown(
        given, node, f"node {node.node_id} is not drained: it is preferred for {node.preferred_shards} shards"
    )


async def _remove(given: argparse.Namespace, client: ClusterClient) -> str:
    node = await client.remove(given.node)
    return _shown(given, node, f"node {node.node_id} is removed from the cluster")


async def _move(given: argparse.Namespace, client: ClusterClient) -> str:
    shard = await client.move(given.shard, given.node)
    if not given.wait:
        owner = "no node" if shard.owner is None else f"node {shard.owner}"
        return _shown(given, shard, f"node {given.node} is preferred for shard {shard.shard}, which is at {owner}")
    cluster = await _until_done(given, client, lambda seen: move_progress(seen, given.shard, given.node))
    return _shown(given, cluster.shards[given.shard], f"node {given.node} coordinates shard {given.shard}")


async def _until_done(
    given: argparse.Namespace, client: ClusterClient, progress_of: Callable[[admin.ClusterAnswer], Progress]
) -> admin.ClusterAnswer:
    """The cluster in which it is done. Raises CallFailed where it does not go on, or is not done in time.

    A node may see the change a moment after another one has made it, so only what holds for two looks counts as stuck.
    """
    timeout_ms = WAIT_TIMEOUT_MS if given.timeout_ms is None else given.timeout_ms
    deadline_s = time.monotonic() + timeout_ms / 1000
    was_stuck = False
    while True:
        cluster = await client.describe()
        progress = progress_of(cluster)
        if progress.is_done:
            return cluster
        if progress.stuck is not None and was_stuck:
            raise CallFailed(progress.stuck)
        was_stuck = progress.stuck is not None
        if time.monotonic() >= deadline_s:
            raise CallFailed(f"It is not done after {timeout_ms} ms: {progress.rest}.")
        await asyncio.sleep(POLL_S)


def _shown(given: argparse.Namespace, answer: BaseModel, text: str) -> str:
    return answer.model_dump_json(indent=2) if getattr(given, "output", "table") == "json" else text
