"""The entry point of the `rallypoint` command. Exit status: 0 success, 1 failure, 2 usage or configuration error.

Each failure is one sentence on standard error. A traceback is a bug.
"""

import argparse
import os
import secrets
import sys
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

from rallypoint.cli.assign.command import add_assign, run_assign
from rallypoint.cli.backup import add_backup, run_backup, run_restore
from rallypoint.cli.cluster.command import add_cluster, run_cluster
from rallypoint.cli.flags import add_settings, given_settings
from rallypoint.cli.store import add_store, run_store
from rallypoint.coordinator.http.security import hash_token
from rallypoint.coordinator.settings import (
    Settings,
    SettingsError,
    flag_of,
    load_settings,
    unknown_variables,
    variable_of,
    words_of_fixed,
)
from rallypoint.protocol.environment import ENV_PREFIX

TOKEN_BYTES = 32
TOKEN_PREFIX = "rp_"
"""Lets scanners for leaked secrets recognise a token."""

MEMBER_TOKEN = "RALLYPOINT_TOKEN"
"""The members' variable, whose name differs by one letter from the service's."""

EPILOG = (
    "Every setting can also be given in the environment, as RALLYPOINT_ and its name in capitals "
    "(RALLYPOINT_GROUP_MAX_SIZE), or in a TOML file (group_max_size = 500). A flag overrides the environment, and the "
    "environment overrides the file. Exit status: 0 stopped by a signal, 1 the service failed to start, 2 usage or "
    "configuration error."
)


def make_parser() -> argparse.ArgumentParser:
    """The command line. No abbreviations, so that a flag added later cannot change the meaning of a script."""
    parser = argparse.ArgumentParser(
        prog="rallypoint",
        description="Consumer groups over HTTP: a group coordinator.",
        epilog="Exit status: 0 success, 1 failure, 2 usage or configuration error; `COMMAND --help` says more.",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"rallypoint {version('rallypoint')}")
    commands = parser.add_subparsers(title="commands", dest="command", required=True, metavar="COMMAND")
    serve = commands.add_parser(
        "serve",
        help="run the service",
        description="Run the service until SIGTERM or SIGINT. Prints `listening on URL` once it answers.",
        epilog=EPILOG,
        usage="rallypoint serve [-h] [--config PATH] [--SETTING VALUE ...]",
        allow_abbrev=False,
    )
    serve.add_argument(
        "--config", type=Path, metavar="PATH", help="TOML file with settings. In the environment: RALLYPOINT_CONFIG."
    )
    add_settings(serve)
    commands.add_parser(
        "token",
        help="generate a bearer token",
        description="Generate a bearer token. Prints the token, and the setting with its hash. The token itself is not "
        "stored.",
        epilog="Exit status: 0 success, 2 usage error.",
        allow_abbrev=False,
    )
    add_backup(commands)
    add_store(commands)
    add_assign(commands)
    add_cluster(commands)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command. Returns its exit status; argparse exits by itself with 2, or 0 for --help."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    if words[:1] == ["serve"] and (fixed := fixed_flag(words)):
        return _fail(ValueError(f"{fixed}."), 2)
    given = make_parser().parse_args(words)
    if given.command == "token":
        return print_token()
    run = {
        "assign": run_assign,
        "backup": run_backup,
        "cluster": run_cluster,
        "restore": run_restore,
        "serve": run_service,
        "store": run_store,
    }[given.command]
    return run(given)


def fixed_flag(words: Sequence[str]) -> str | None:
    """The message for the first flag of a former setting; None if there is none."""
    flags = (word.partition("=")[0] for word in words if word.startswith("--"))
    known = {"--help", "--config", *map(flag_of, Settings.model_fields)}
    said = (words_of_fixed(flag[2:].replace("-", "_")) for flag in flags if flag not in known)
    return next(filter(None, said), None)


def run_service(given: argparse.Namespace) -> int:
    """Read the settings and serve."""
    try:
        settings = load_settings(given_settings(given), given.config)
    except SettingsError as error:
        return _fail(error, 2)
    for name in unknown_variables(os.environ):
        fixed = words_of_fixed(name.removeprefix(ENV_PREFIX).lower())
        words = f"is no setting: {fixed}." if fixed else "is no setting; is it misspelt?"
        print(f"rallypoint: {name} in the environment {words}", file=sys.stderr)
    if MEMBER_TOKEN in os.environ and not settings.tokens and settings.token_file is None:
        print(
            f"rallypoint: {MEMBER_TOKEN} is for members. The service requires no token; set {variable_of('tokens')} to"
            " the token's hash to require it.",
            file=sys.stderr,
        )
    return start(settings)


def start(settings: Settings) -> int:
    """Serve until a signal. Imports the service's libraries only now, because --help and `token` do not need them."""
    from rallypoint.coordinator.main import StartError, run  # noqa: PLC0415 - see above

    try:
        run(settings, version("rallypoint"))
    except SettingsError as error:
        return _fail(error, 2)
    except StartError as error:
        return _fail(error, 1)
    return 0


def print_token() -> int:
    """Generate a token, and print it with its settings."""
    token = TOKEN_PREFIX + secrets.token_urlsafe(TOKEN_BYTES)
    hashed = hash_token(token)
    print(f"The token, for the client (Authorization: Bearer …); it is shown once:\n  {token}")
    print(f'Its hash, for the settings file:\n  tokens = ["{hashed}"]')
    print(f"or for the environment:\n  {variable_of('tokens')}={hashed}")
    return 0


def _fail(error: Exception, status: int) -> int:
    print(f"rallypoint: {error}", file=sys.stderr)
    return status


if __name__ == "__main__":
    sys.exit(main())
