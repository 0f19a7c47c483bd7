"""The table of commands. Each is imported when it is asked for, since --help is to answer at once.

The module of a command has `add_NAME(parser)`, which adds its arguments, and `run_NAME(given)`, which returns its exit
status; the name with underscores for dashes.
"""

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module

SECTIONS = {
    "look": "Look",
    "act": "Act (what loses something is a dry run without --execute)",
    "wait": "Wait and check",
    "service": "The service and its store",
    "setup": "Set up",
}


@dataclass(frozen=True, slots=True)
class Command:
    """A command: where it is, and what it is for, in a few words."""

    name: str
    section: str
    module: str
    help: str

    def add(self, parser: argparse.ArgumentParser) -> None:
        """Import it, and add its arguments."""
        add: Callable[[argparse.ArgumentParser], None] = getattr(self._imported(), f"add_{self._stem}")
        add(parser)
        run: Callable[[argparse.Namespace], int] = getattr(self._imported(), f"run_{self._stem}")
        parser.set_defaults(run=run)

    @property
    def _stem(self) -> str:
        return self.name.replace("-", "_")

    def _imported(self) -> object:
        return import_module(f"rallypoint.cli.{self.module}")


COMMANDS = (
    Command("groups", "look", "look.groups", "list groups, with state, members and lag"),
    Command("members", "look", "look.members", "list a group's members, and what each owns"),
    Command("describe", "look", "look.describe", "describe a group: what it does now, its members and partitions"),
    Command("why", "look", "look.why", "say why a group rebalanced, and how that went"),
    Command("awaited", "look", "look.awaited", "list the members that a group waits for"),
    Command("events", "look", "events.command", "follow what happens to groups"),
    Command("top", "look", "top.command", "the groups that need a look, live, on one screen"),
    Command("preview", "look", "look.preview", "show what the next assignment would be"),
    Command("offsets", "look", "offsets.command", "show, reset, export, import and delete committed offsets"),
    Command("topics", "look", "topics.command", "list, describe, register and delete topics"),
    Command("cluster", "look", "cluster.command", "show and change a cluster of nodes"),
    Command("freeze", "act", "act.rebalances", "hold a group's rebalances for a while"),
    Command("thaw", "act", "act.rebalances", "end a group's freeze"),
    Command("cooldown", "act", "act.rebalances", "set the least time between two rebalances"),
    Command("join-wait", "act", "act.rebalances", "set how long a rebalance waits for members"),
    Command("proceed", "act", "act.rebalances", "go on without the members that a rebalance waits for"),
    Command("rebalance", "act", "act.rebalances", "start a rebalance now"),
    Command("deploy", "act", "until.deploy", "run a command that restarts a group's members, as one rebalance"),
    Command("kick", "act", "act.members", "take members out of a group"),
    Command("delete", "act", "act.members", "delete a group with its committed offsets"),
    Command("wait", "wait", "until.wait", "wait until a group is stable, has caught up, or has its members"),
    Command("check", "wait", "until.check", "judge a group for Nagios, Prometheus or a script"),
    Command("serve", "service", "serve", "run the service"),
    Command("token", "service", "token", "generate a bearer token"),
    Command("access", "service", "access", "check a policy file, and say who may do what"),
    Command("backup", "service", "backup", "copy the store to a file, also while the service runs"),
    Command("restore", "service", "backup", "replace the store by a backup"),
    Command("store", "service", "store", "copy a whole store to another place or engine"),
    Command("context", "setup", "contexts.command", "list, choose and set the services that commands speak to"),
    Command("completion", "setup", "completion", "print a script that completes commands and group names"),
    Command("assign", "setup", "assign.command", "compute an assignment offline"),
)
"""In the order of --help."""


def listed() -> str:
    """The commands by section, as --help shows them."""
    longest = max(len(command.name) for command in COMMANDS)
    lines = []
    for section, title in SECTIONS.items():
        own = [f"  {one.name.ljust(longest)}  {one.help}" for one in COMMANDS if one.section == section]
        lines += ["", f"{title}:", *own]
    return "\n".join(lines).lstrip("\n")
