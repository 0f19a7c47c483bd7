"""The flag without which a command that loses something only says what it would do."""

import argparse


def add_execute(parser: argparse.ArgumentParser) -> None:
    """Add it."""
    parser.add_argument("--execute", action="store_true", help="do it; without this flag nothing is changed")


def dry_run_line() -> str:
    """The last line of a dry run."""
    return "nothing was changed: --execute does it"
