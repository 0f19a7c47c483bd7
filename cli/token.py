"""The command line of `rallypoint token`."""

import argparse
import secrets

from rallypoint.coordinator.http.security import hash_token
from rallypoint.coordinator.settings import variable_of

TOKEN_BYTES = 32
TOKEN_PREFIX = "rp_"
"""Lets scanners for leaked secrets recognise a token."""


def add_token(parser: argparse.ArgumentParser) -> None:
    """Add the texts; there are no arguments."""
    parser.description = (
        "Generate a bearer token. Prints the token, and the setting with its hash. The token itself is not stored."
    )
    parser.epilog = "Exit status: 0 success, 2 usage error."


def run_token(_: argparse.Namespace) -> int:
    """Generate a token, and print it with its settings."""
    token = TOKEN_PREFIX + secrets.token_urlsafe(TOKEN_BYTES)
    hashed = hash_token(token)
    print(f"The token, for the client (Authorization: Bearer …); it is shown once:\n  {token}")
    print(f'Its hash, for the settings file:\n  tokens = ["{hashed}"]')
    print(f"or for the environment:\n  {variable_of('tokens')}={hashed}")
    return 0
