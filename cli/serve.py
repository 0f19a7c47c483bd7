"""The command line of `rallypoint serve`.

Exit status: 0 stopped by a signal, 1 failure, 2 usage or configuration error.
"""

import argparse
import os
import sys
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

from rallypoint.cli.flags import add_settings, given_settings
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

MEMBER_TOKEN = "RALLYPOINT_TOKEN"  # noqa: S105 - no secret
"""The members' variable, whose name differs by one letter from the service's."""

EPILOG = (
    "Every setting can also be given in the environment, as RALLYPOINT_ and its name in capitals "
    "(RALLYPOINT_GROUP_MAX_SIZE), or in a TOML file (group_max_size = 500). A flag overrides the environment, and the "
    "environment overrides the file. Exit status: 0 stopped by a signal, 1 the service failed to start, 2 usage or "
    "configuration error."
)


def fixed_flag(words: Sequence[str]) -> str | None:
    """The message for the first flag of a former setting; None if there is none."""
    flags = (word.partition("=")[0] for word in words if word.startswith("--"))
    known = {"--help", "--config", *map(flag_of, Settings.model_fields)}
    said = (words_of_fixed(flag[2:].replace("-", "_")) for flag in flags if flag not in known)
    return next(filter(None, said), None)


def add_serve(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.description = "Run the service until SIGTERM or SIGINT. Prints `listening on URL` once it answers."
    parser.epilog = EPILOG
    parser.usage = "rallypoint serve [-h] [--config PATH] [--SETTING VALUE ...]"
    parser.add_argument(
        "--config", type=Path, metavar="PATH", help="TOML file with settings. In the environment: RALLYPOINT_CONFIG."
    )
    add_settings(parser)


def run_serve(given: argparse.Namespace) -> int:
    """Read the settings and serve."""
    try:
        settings = load_settings(given_settings(given), given.config)
    except SettingsError as error:
        return _fail(error, 2)
    for name in unknown_variables(os.environ):
        fixed = words_of_fixed(name.removeprefix(ENV_PREFIX).lower())
        words = f"is no setting: {fixed}." if fixed else "is no setting; is it misspelt?"
        print(f"rallypoint: {name} in the environment {words}", file=sys.stderr)
    if MEMBER_TOKEN in os.environ and not (settings.tokens or settings.token_file or settings.access):
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


def _fail(error: Exception, status: int) -> int:
    print(f"rallypoint: {error}", file=sys.stderr)
    return status
