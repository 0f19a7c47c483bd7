"""Which nodes a command asks, with which token and certificates: flags over the environment over a context.

The token and the certificates of a context go to the nodes of that context alone. Where a flag or the environment names
other nodes, nothing of the context is used.
"""

import argparse
import os
import shlex
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rallypoint.cli.calls.client import Client
from rallypoint.cli.calls.failures import UsageError
from rallypoint.cli.calls.transport import Tls
from rallypoint.cli.contexts import file
from rallypoint.cli.output.text import shown
from rallypoint.cli.words import MS_MAX, number_flag
from rallypoint.member.tokens import TokenFile, is_token
from rallypoint.member.urls import coordinator_urls
from rallypoint.protocol.environment import ENV_PREFIX

DEFAULT_URL = "http://127.0.0.1:8000"
REQUEST_TIMEOUT_MS = 10_000
TOKEN_COMMAND_TIMEOUT_S = 60.0

URLS_VARIABLE = ENV_PREFIX + "COORDINATOR"
TOKEN_VARIABLE = ENV_PREFIX + "TOKEN"
CONTEXT_VARIABLE = ENV_PREFIX + "CONTEXT"


@dataclass(frozen=True, slots=True)
class Connection:
    """Whom to ask. `token` gives it when it is needed; None: none is sent."""

    urls: tuple[str, ...]
    token: Callable[[], str | None]
    tls: Tls


def add_connection(parser: argparse.ArgumentParser) -> None:
    """The flags of every command that calls a service. They may stand before or behind an action, so none has a
    default: that of the one behind would undo the one before.
    """
    group = parser.add_argument_group("which service")
    group.add_argument(
        "--context",
        default=argparse.SUPPRESS,
        metavar="NAME",
        help=f"the context to use (`rallypoint context list`). In the environment: {CONTEXT_VARIABLE}.",
    )
    group.add_argument(
        "--coordinator",
        default=argparse.SUPPRESS,
        metavar="URLS",
        help="URLs of nodes, separated by commas; the first that answers counts. In the environment:"
        f" {URLS_VARIABLE}. Default: that of the context, else {DEFAULT_URL}.",
    )
    group.add_argument(
        "--token-file",
        default=argparse.SUPPRESS,
        metavar="PATH",
        help="file with the bearer token, if the service requires one. In the environment, the token itself:"
        f" {TOKEN_VARIABLE}.",
    )
    for flag, name, text in (
        ("--ca", "CA", "certificates to trust in place of the system's, in PEM"),
        ("--cert", "CERTIFICATE", "the client's certificate, in PEM"),
        ("--key", "KEY", "the key of the client's certificate, if it is in another file"),
    ):
        group.add_argument(
            flag, default=argparse.SUPPRESS, metavar="PATH", help=f"{text}. In the environment: {ENV_PREFIX}{name}."
        )
    group.add_argument(
        "--request-timeout-ms",
        type=number_flag(1, MS_MAX),
        default=argparse.SUPPRESS,
        metavar="MS",
        help=f"how long a node may take to answer, in milliseconds. Default: {REQUEST_TIMEOUT_MS}.",
    )


def add_curl(parser: argparse.ArgumentParser) -> None:
    """The flag of commands that send one request, or begin with one."""
    parser.add_argument(
        "--curl",
        action="store_true",
        default=argparse.SUPPRESS,
        help="print the first request as a command line for curl, and send nothing; the token is not in it",
    )


def client_of(given: argparse.Namespace, environment: Mapping[str, str] = os.environ) -> Client:
    """The client that the flags, the environment and the context ask for. Raises UsageError."""
    flags = vars(given)
    connection = connection_of(flags, environment, lambda: file.read(file.path_of(environment)))
    timeout_ms = flags.get("request_timeout_ms", REQUEST_TIMEOUT_MS)
    return Client(
        connection.urls,
        connection.token,
        connection.tls,
        timeout_s=timeout_ms / 1_000,
        prints=flags.get("curl", False),
    )


def connection_of(
    flags: Mapping[str, Any], environment: Mapping[str, str], contexts: Callable[[], dict[str, Any]]
) -> Connection:
    """Resolve the three places. Raises UsageError.

    flags: those that were given, by name.
    environment: variables by name.
    contexts: reads the file; called only where it may count.
    """
    urls = flags.get("coordinator", environment.get(URLS_VARIABLE) or None)
    name = flags.get("context", environment.get(CONTEXT_VARIABLE) or None)
    if urls is not None and not urls.strip():
        # As where a script's variable is not set: another service must not be asked in its place.
        raise UsageError("--coordinator is empty: name the URL of a node.")
    if "coordinator" in flags and "context" in flags:
        raise UsageError("--coordinator and --context both say which service to ask: leave one out.")
    # A context that is named by a flag goes before nodes that the environment names.
    context = _context(contexts(), name) if urls is None or "context" in flags else {}
    where = "--coordinator" if urls is not None and not context else f"context {shown(str(name or 'current'))}"
    try:
        found = coordinator_urls(context["coordinator"] if context else urls or DEFAULT_URL)
    except ValueError as error:
        raise UsageError(f"{where}: {str(error).removeprefix('coordinator: ')}") from error
    return Connection(found, _token(flags, environment, context), _tls(flags, environment, context))


def _context(contents: dict[str, Any], name: str | None) -> dict[str, Any]:
    contexts: dict[str, dict[str, Any]] = contents["contexts"]
    wanted = contents.get("current") if name is None else name
    if wanted is None:
        return {}
    if wanted not in contexts:
        known = ", ".join(map(shown, contexts)) or "none yet: `rallypoint context set NAME --coordinator URL`"
        raise UsageError(f"There is no context {shown(str(wanted))!r}. There are: {known}.")
    return contexts[wanted]


def _tls(flags: Mapping[str, Any], environment: Mapping[str, str], context: Mapping[str, str]) -> Tls:
    named: dict[str, str] = {}

    def path(flag: str, key: str) -> str | None:
        variable = ENV_PREFIX + key.upper()
        places = (
            (f"--{flag}", flags.get(flag)),
            (variable, environment.get(variable)),
            (f"{key} of the context", context.get(key)),
        )
        for place, found in places:
            if found:
                expanded = Path(found).expanduser()
                named[key] = f"{place}: {shown(str(expanded))}"
                _check_readable(expanded, named[key])
                return str(expanded)
        return None

    tls = Tls(path("ca", "ca"), path("cert", "certificate"), path("key", "key"))
    if tls.key is not None and tls.certificate is None:
        raise UsageError("--key needs --cert, the certificate that it belongs to.")
    for one, key, said in (
        (Tls(ca=tls.ca), "ca", "holds no certificate in PEM"),
        (tls, "certificate", "is no certificate in PEM with its key behind it or in --key"),
    ):
        try:
            if one != Tls():
                one.context()
        except OSError as error:
            raise UsageError(f"{named[key]} {said}: {error.strerror or error}.") from error
    return tls


def _check_readable(path: Path, named: str) -> None:
    try:
        path.open("rb").close()
    except OSError as error:
        raise UsageError(f"{named} cannot be read: {error.strerror}.") from error


def _token(
    flags: Mapping[str, Any], environment: Mapping[str, str], context: Mapping[str, Any]
) -> Callable[[], str | None]:
    if "token_file" in flags:
        return _of_file(flags["token_file"], "--token-file")
    if TOKEN_VARIABLE in environment:
        token = environment[TOKEN_VARIABLE]
        if not is_token(token):
            raise UsageError(f"{TOKEN_VARIABLE} in the environment holds no token.")
        return lambda: token
    if "token_file" in context:
        return _of_file(context["token_file"], "token_file of the context")
    if "token_command" in context:
        return _TokenCommand(context["token_command"])
    return lambda: None


def _of_file(path: str, where: str) -> Callable[[], str]:
    expanded = TokenFile(Path(path).expanduser())

    def token() -> str:
        try:
            return expanded()
        except OSError as error:
            raise UsageError(f"{where}: {shown(path)} cannot be read: {error.strerror}.") from error
        except ValueError as error:
            raise UsageError(f"{where}: {shown(str(error))}.") from error

    token()
    return token


class _TokenCommand:
    """Runs a command that prints the token, once, when the first request needs it."""

    def __init__(self, command: str | list[str]) -> None:
        self._words = shlex.split(command) if isinstance(command, str) else command
        self._token: str | None = None

    def __call__(self) -> str:
        if self._token is None:
            self._token = self._run()
        return self._token

    def _run(self) -> str:
        said = f"token_command of the context, {shown(shlex.join(self._words))},"
        try:
            ended = subprocess.run(
                self._words, stdout=subprocess.PIPE, text=True, timeout=TOKEN_COMMAND_TIMEOUT_S, check=False
            )
        except (OSError, ValueError, subprocess.TimeoutExpired) as error:
            raise UsageError(f"{said} cannot be run: {getattr(error, 'strerror', None) or error}.") from error
        token = ended.stdout.strip()
        if ended.returncode:
            raise UsageError(f"{said} ended with status {ended.returncode}.")
        if not is_token(token):
            raise UsageError(f"{said} printed no token.")
        return token
