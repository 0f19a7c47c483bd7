"""The command line of `rallypoint completion`: scripts for shells, and the names that those scripts ask for.

A shell expands what a completion offers: bash runs `$(…)` in it. Names are a stranger's text, so those alone are
offered that mean nothing to a shell.
"""

import argparse
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

from rallypoint.cli.calls.client import Client
from rallypoint.cli.calls.failures import STATUSES
from rallypoint.cli.contexts import connection
from rallypoint.cli.running import Output, run_calls

SHELLS = ("bash", "zsh", "fish")
OFFERED_MAX = 1_000
NAME_TIMEOUT_MS = 2_000
"""Somebody waits with a finger on Tab."""

_HARMLESS = re.compile(r"[A-Za-z0-9_.:@%+=/][A-Za-z0-9_.:@%+=/-]*")

ASKED = {"GROUP": "groups", "TOPIC": "topics", "NODE": "nodes"}
"""What a shell asks for, by the metavar of an argument."""


def add_completion(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.description = (
        "Print a script that completes commands, flags and the names of groups, topics and nodes: load it with"
        " `source <(rallypoint completion bash)`, or the same for zsh, or `rallypoint completion fish | source`. The"
        " script asks for `groups`, `topics` and `nodes`; names that a shell would expand are not offered."
    )
    parser.epilog = STATUSES
    parser.add_argument("what", choices=(*SHELLS, *ASKED.values()), help="the shell, or the names to print")
    connection.add_connection(parser)


def run_completion(given: argparse.Namespace) -> int:
    """Run the command. Returns its exit status."""
    if given.what in SHELLS:
        print(script(given.what))
        return 0
    sources: dict[str, Callable[[Client], Iterator[str]]] = {"groups": _groups, "topics": _topics, "nodes": _nodes}
    if "request_timeout_ms" not in given:
        given.request_timeout_ms = NAME_TIMEOUT_MS

    def body(client: Client, output: Output) -> None:
        output.print_lines(offered(sources[given.what](client)))

    return run_calls(given, body)


def offered(names: Iterable[str]) -> Sequence[str]:
    """The first names that a shell takes as they are."""
    return list(islice((name for name in names if _HARMLESS.fullmatch(name)), OFFERED_MAX))


def _groups(client: Client) -> Iterator[str]:
    return (group["group_id"] for page in client.pages("list_groups") for group in page["groups"])


def _topics(client: Client) -> Iterator[str]:
    return (topic["topic"] for page in client.pages("list_topics") for topic in page["topics"])


def _nodes(client: Client) -> Iterator[str]:
    return (node["node_id"] for node in client.call("describe_cluster")["nodes"])


def script(shell: str) -> str:
    """The script for a shell, made from the parser of every command."""
    import shtab  # noqa: PLC0415 - no other command needs it

    from rallypoint.cli.main import make_parser  # noqa: PLC0415 - it imports the table that has this command

    parser = make_parser()
    for action in _actions(parser):
        if action.metavar in ASKED:
            action.complete = shtab.cmd(f"rallypoint completion {ASKED[str(action.metavar)]} 2>/dev/null")
        elif action.metavar in {"PATH", "FILE"}:
            action.complete = shtab.FILE
    return str(shtab.complete(parser, shell=shell))


def _actions(parser: argparse.ArgumentParser) -> Iterator[Any]:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            action.help = "what to do"  # one without help has no completion
            for below in action.choices.values():
                yield from _actions(below)
        else:
            yield action
