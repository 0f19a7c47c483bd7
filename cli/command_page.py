"""Generates the reference of the command, `docs/command.md`, from its parser.

`python -m rallypoint.cli.command_page docs/command.md` writes it. A test compares the file with this output.
"""

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

from rallypoint.cli.commands import COMMANDS, SECTIONS
from rallypoint.cli.main import make_parser

HEAD = """\
# The command `rallypoint`

This page is the reference of every command and flag. [For operators](operators.md) shows how to use them. Commands that
look at groups and change them speak the [HTTP API](http.md), so they work from anywhere, at any node.

Exit status: **0** done · **1** failed · **2** usage or configuration error · **3** no node answers · **4** not allowed
· **5** the condition that was asked for does not hold · **130** Ctrl-C · **141** standard output was closed. Errors are
one sentence on standard error.
"""

SHARED_GROUPS = ("which service", "output")


def command_page() -> str:
    """The whole page."""
    return "\n".join(_lines()) + "\n"


def _lines() -> Iterator[str]:
    parsers = _choices(make_parser())
    yield HEAD
    yield "## Flags of every command that calls a service"
    yield ""
    yield "They may stand before or behind an action."
    yield ""
    shown = parsers["groups"]
    yield from _table([one for group in _groups(shown) for one in group if _is_shared(shown, one)])
    for section, title in SECTIONS.items():
        yield f"## {title}"
        yield ""
        for command in COMMANDS:
            if command.section == section:
                yield from _command(command.name, parsers[command.name], "###")


def _groups(parser: argparse.ArgumentParser) -> Iterator[list[argparse.Action]]:
    for group in parser._action_groups:
        if group.title in SHARED_GROUPS:
            yield group._group_actions


def _is_shared(parser: argparse.ArgumentParser, action: argparse.Action) -> bool:
    return any(action in group for group in _groups(parser)) and action.dest != "watch"


def _choices(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            return dict(action.choices)
    return {}


def _command(name: str, parser: argparse.ArgumentParser, mark: str) -> Iterator[str]:
    below = _choices(parser)
    own = [
        action
        for action in parser._actions
        if not isinstance(action, argparse._HelpAction | argparse._SubParsersAction) and not _is_shared(parser, action)
    ]
    positionals = [_named(action) for action in own if not action.option_strings]
    flags = [action for action in own if action.option_strings]
    usage = " ".join(["rallypoint", name, *(["[flags]"] if flags or below else []), *positionals])
    yield f"{mark} `rallypoint {name}`"
    yield ""
    yield parser.description or ""
    yield ""
    yield "```text"
    yield usage
    yield from (f"rallypoint {name} {one} …" for one in below)
    yield "```"
    yield ""
    if name == "serve":
        yield "Its flags are the [settings](settings.md)."
        yield ""
    elif own:
        yield from _table(own)
    for one, action in below.items():
        yield from _command(f"{name} {one}", action, mark + "#")


def _named(action: argparse.Action) -> str:
    metavar = action.metavar or action.dest.upper()
    name = metavar if isinstance(metavar, str) else " ".join(metavar)
    return f"[{name}]" if action.nargs in {"?", "*"} else name


def _table(actions: list[argparse.Action]) -> Iterator[str]:
    yield "| | |"
    yield "|---|---|"
    for action in actions:
        yield f"| {_head(action)} | {_cell(action.help or '')} |"
    yield ""


def _head(action: argparse.Action) -> str:
    if not action.option_strings:
        return f"`{_named(action)}`"
    value = "" if action.nargs == 0 or isinstance(action, argparse.BooleanOptionalAction) else f" {_value(action)}"
    return ", ".join(f"`{flag}{value}`" for flag in action.option_strings)


def _value(action: argparse.Action) -> str:
    if action.choices is not None:
        return "\\|".join(map(str, action.choices))
    name = _named(action)
    return f"[{name}]" if action.nargs == "?" and not name.startswith("[") else name


def _cell(text: str) -> str:
    return text.replace("%%", "%").replace("|", "\\|")


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(command_page())
