"""The command line of `rallypoint context`: lists, chooses, sets and removes the contexts of the file."""

import argparse
import os
import shlex
from typing import TYPE_CHECKING, Any

from rallypoint.cli.calls.failures import STATUSES, CallFailed, UsageError
from rallypoint.cli.contexts import file
from rallypoint.cli.output.columns import Column, text, word
from rallypoint.cli.output.text import shown
from rallypoint.cli.output.view import View
from rallypoint.cli.output.writing import FORMS
from rallypoint.cli.running import Output, warn
from rallypoint.member.urls import coordinator_urls

if TYPE_CHECKING:
    from tomlkit import TOMLDocument

CONTEXT_COLUMNS: tuple[Column, ...] = (
    Column("is_current", "", lambda value, _: "*" if value else " "),
    text("name", "CONTEXT"),
    text("coordinator", "COORDINATOR"),
    word("token", "TOKEN"),
    text("ca", "CA"),
    text("certificate", "CERTIFICATE"),
)


def add_context(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.description = (
        "A context names a service: its URLs, where its token comes from, and certificates. They are kept in"
        " ~/.config/rallypoint/config.toml. Flags and the environment go before them. A context's token goes to that"
        " context's URLs alone."
    )
    parser.epilog = STATUSES
    actions = parser.add_subparsers(title="actions", dest="action", required=True, metavar="ACTION")
    listing = actions.add_parser("list", help="list the contexts", description="List them.", allow_abbrev=False)
    listing.add_argument("-o", "--output", choices=FORMS, default="table", help="form of the output. Default: table.")
    use = actions.add_parser(
        "use", help="choose the context that commands use", description="Choose a context.", allow_abbrev=False
    )
    use.add_argument("name", metavar="NAME", help="of the context")
    put = actions.add_parser(
        "set",
        help="make or change a context",
        description="Make a context, or change what is named of one. The first one is chosen at once. An empty value"
        " takes a setting away.",
        allow_abbrev=False,
    )
    put.add_argument("name", metavar="NAME", help="of the context")
    put.add_argument("--coordinator", metavar="URLS", help="URLs of nodes, separated by commas")
    put.add_argument("--token-file", metavar="PATH", help="file with the bearer token, read for each command")
    put.add_argument(
        "--token-command", metavar="COMMAND", help="a command that prints the token; its words as a shell has them"
    )
    put.add_argument("--ca", metavar="PATH", help="certificates to trust in place of the system's, in PEM")
    put.add_argument("--cert", dest="certificate", metavar="PATH", help="the client's certificate, in PEM")
    put.add_argument("--key", metavar="PATH", help="the key of the certificate, if it is in another file")
    remove = actions.add_parser("remove", help="remove a context", description="Remove a context.", allow_abbrev=False)
    remove.add_argument("name", metavar="NAME", help="of the context")


def run_context(given: argparse.Namespace) -> int:
    """Run the command. Returns its exit status."""
    actions = {"list": _list, "use": _use, "set": _set, "remove": _remove}
    try:
        actions[given.action](given)
    except CallFailed as error:
        warn(str(error))
        return error.status
    return 0


def _list(given: argparse.Namespace) -> None:
    path = file.path_of(os.environ)
    contents = file.read(path)
    current = contents.get("current")
    rows = [
        {
            "is_current": name == current,
            "name": name,
            "token": next((key for key in ("token_file", "token_command") if key in context), None),
            **{key: context.get(key) for key in ("coordinator", "ca", "certificate")},
        }
        for name, context in contents["contexts"].items()
    ]
    Output(given).show(
        View(
            CONTEXT_COLUMNS,
            rows,
            "name",
            empty=f"There are no contexts in {shown(str(path))}: `rallypoint context set NAME --coordinator URL`.",
        )
    )


def _known(name: str) -> dict[str, Any]:
    contexts: dict[str, dict[str, Any]] = file.read(file.path_of(os.environ))["contexts"]
    if name not in contexts:
        raise UsageError(
            f"There is no context {shown(name)!r}. There are: {', '.join(map(shown, contexts)) or 'none'}."
        )
    return contexts[name]


def _use(given: argparse.Namespace) -> None:
    _known(given.name)

    def edit(document: "TOMLDocument") -> None:
        _set_current(document, given.name)

    file.change(file.path_of(os.environ), edit)
    print(f"commands use {shown(given.name)} from now on")


def _set(given: argparse.Namespace) -> None:
    settings: dict[str, Any] = {key: getattr(given, key) for key in file.KEYS if getattr(given, key) is not None}
    path = file.path_of(os.environ)
    contents = file.read(path)
    if settings.get("coordinator"):
        try:
            coordinator_urls(settings["coordinator"])
        except ValueError as error:
            raise UsageError(f"--{error}.") from error
    if settings.get("token_command"):
        settings["token_command"] = shlex.split(settings["token_command"])
    merged = {**contents["contexts"].get(given.name, {}), **settings}
    merged = {key: value for key, value in merged.items() if value}
    # What is given now replaces its alternative.
    for given_now, other in (("token_file", "token_command"), ("token_command", "token_file")):
        if settings.get(given_now) and other not in settings:
            merged.pop(other, None)
    file.check(path, given.name, merged)

    def edit(document: "TOMLDocument") -> None:
        import tomlkit  # noqa: PLC0415 - only what changes the file needs it

        contexts = document.setdefault("contexts", tomlkit.table(is_super_table=True))
        context = contexts.setdefault(given.name, tomlkit.table())
        for key in [key for key in context if key not in merged]:
            del context[key]
        for key, value in merged.items():
            if context.get(key) != value:
                context[key] = value
        if "current" not in document:
            _set_current(document, given.name)

    file.change(path, edit)
    print(f"context {shown(given.name)} is {shown(merged['coordinator'])}")


def _remove(given: argparse.Namespace) -> None:
    _known(given.name)

    def edit(document: "TOMLDocument") -> None:
        contexts: Any = document["contexts"]
        del contexts[given.name]
        if document.get("current") == given.name:
            del document["current"]

    file.change(file.path_of(os.environ), edit)
    print(f"context {shown(given.name)} is removed")


def _set_current(document: "TOMLDocument", name: str) -> None:
    """It stands above the tables: a key behind one would be of that table."""
    if "current" in document:
        document["current"] = name
        return
    rest = dict(document.items())
    for key in rest:
        document.remove(key)
    document.add("current", name)
    for key, value in rest.items():
        document.add(key, value)
