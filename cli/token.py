"""The command line of `rallypoint token`."""

import argparse
import secrets
import time
from datetime import UTC, datetime

from rallypoint.cli.output.times import duration_ms
from rallypoint.coordinator.access.tokens import (
    UNNAMED,
    TokenEntry,
    entry_text,
    hash_token,
    is_token_name,
    read_instant,
)
from rallypoint.coordinator.settings import variable_of

TOKEN_BYTES = 32
TOKEN_PREFIX = "rp_"  # noqa: S105 - no secret
"""Lets scanners for leaked secrets recognise a token."""
LAST_YEAR = 9999


def add_token(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.description = (
        "Generate a bearer token. Prints the token, and the setting with its hash. The token itself is not stored. "
        "`rallypoint token new NAME` names it, so that rules and audit lines can."
    )
    parser.epilog = "Exit status: 0 success, 2 usage error."
    actions = parser.add_subparsers(title="commands", dest="action", metavar="[COMMAND]")
    new = actions.add_parser(
        "new",
        help="generate a token with a name",
        description="Generate a bearer token of the principal token:NAME. Several tokens may have one name: to replace "
        "one, add the new one to the service's token file, give it to the clients, and take the old line away.",
        epilog="Exit status: 0 success, 2 usage error.",
        allow_abbrev=False,
    )
    new.add_argument("name", type=_name, metavar="NAME", help="letters, digits, dots, dashes and underscores")
    new.add_argument(
        "--expires",
        type=_end,
        dest="expires_at_ms",
        metavar="TIME",
        help="when it ends: after a duration (90d, 12h), or at an instant (2027-02-23T12:00:00Z). By default it has no"
        " end",
    )


def _name(text: str) -> str:
    if not is_token_name(text):
        raise argparse.ArgumentTypeError(
            f"{text!r} is no name: letters, digits, dots, dashes and underscores, 128 at most"
        )
    return text


def _end(text: str) -> int:
    now_ms = round(time.time() * 1000)
    end_ms = read_instant(text)
    if end_ms is None:
        try:
            end_ms = now_ms + duration_ms(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(f"{error}, or an instant like 2027-02-23T12:00:00Z") from error
    if end_ms <= now_ms:
        raise argparse.ArgumentTypeError(f"{text!r} is in the past")
    if end_ms >= datetime(LAST_YEAR, 1, 1, tzinfo=UTC).timestamp() * 1000:
        raise argparse.ArgumentTypeError(f"{text!r} is too far ahead; without --expires the token has no end")
    return end_ms


def run_token(given: argparse.Namespace) -> int:
    """Generate a token, and print it with its settings."""
    token = TOKEN_PREFIX + secrets.token_urlsafe(TOKEN_BYTES)
    named = given.action == "new"
    name, expires_at_ms = (given.name, given.expires_at_ms) if named else (UNNAMED, None)
    entry = entry_text(TokenEntry(name, hash_token(token), expires_at_ms))
    print(f"The token, for the client (Authorization: Bearer …); it is shown once:\n  {token}")
    if named:
        print(f"Its line for the service's token file:\n  {entry}")
    print(f'Its {"entry" if named else "hash"}, for the settings file:\n  tokens = ["{entry}"]')
    if named:
        print(f'or for the environment:\n  {variable_of("tokens")}="{entry}"')
    else:
        print(f"or for the environment:\n  {variable_of('tokens')}={entry}")
    return 0
