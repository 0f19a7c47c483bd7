"""The entry point of the `rallypoint` command. Each failure is one sentence on standard error. A traceback is a bug.

Nothing is imported here but what every command needs: `rallypoint --help` answers before a person notices.
"""

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rallypoint.cli.calls.failures import FAILED, INTERRUPTED, UNREAD, USAGE
from rallypoint.cli.commands import COMMANDS, listed
from rallypoint.cli.words import Parser, fault_before_the_command

EPILOG = (
    "`rallypoint COMMAND --help` says more. Exit status: 0 done, 1 failed, 2 usage or configuration error, 3 no node\n"
    "answers, 4 not allowed, 5 the condition that was asked for does not hold."
)


class _Version(argparse.Action):
    """Prints the version, which takes a while to find."""

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> None:
        from importlib.metadata import version  # noqa: PLC0415 - see above

        from rallypoint.coordinator.compiled import is_compiled  # noqa: PLC0415

        print(f"rallypoint {version('rallypoint')}{', compiled' if is_compiled() else ''}")
        parser.exit()


def make_parser(words: Sequence[str] | None = None) -> argparse.ArgumentParser:
    """The command line. No abbreviations, so that a flag added later cannot change the meaning of a script.

    `words`: those to parse: the arguments of their command alone are there. Without them those of every command.
    """
    parser = Parser(
        prog="rallypoint",
        description="Consumer groups over HTTP: a group coordinator, and what operators need to see and change groups.",
        usage="rallypoint [-h] [--version] COMMAND ...",
        epilog=f"{listed()}\n\n{EPILOG}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action=_Version, nargs=0, help="show the version and exit")
    wanted = None if words is None else next((word for word in words if not word.startswith("-")), "")
    commands = parser.add_subparsers(
        dest="command", required=True, metavar="COMMAND", help=argparse.SUPPRESS, prog="rallypoint"
    )
    for command in COMMANDS:
        own = commands.add_parser(command.name, help=command.help, allow_abbrev=False)
        if wanted in {None, command.name}:
            command.add(own)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command. Returns its exit status; argparse exits by itself with 2, or 0 for --help."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    if sys.stdout is None:  # closed by who started it, as by `>&-`
        sys.stdout = Path(os.devnull).open("w")  # noqa: SIM115 - it is open as long as the process runs
    if fault := fault_before_the_command(words, [command.name for command in COMMANDS]):
        print(f"rallypoint: {fault}", file=sys.stderr)
        return USAGE
    if words[:1] == ["serve"] and (fixed := _fixed_flag(words)):
        print(f"rallypoint: {fixed}.", file=sys.stderr)
        return USAGE
    try:
        given = make_parser(words).parse_args(words)
        status: int = given.run(given)
        sys.stdout.flush()
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        _drop_output()
        return UNREAD
    except OSError as error:
        if _can_write():
            raise
        _drop_output()
        print(f"rallypoint: standard output cannot be written: {error.strerror}.", file=sys.stderr)
        return FAILED
    return status


def _can_write() -> bool:
    """Whether standard output takes a line. Unbuffered it has forgotten what it could not write, so one is written."""
    try:
        sys.stdout.write("\n")
        sys.stdout.flush()
    except OSError:
        return False
    return True


def _drop_output() -> None:
    """The buffer has data that nobody takes: otherwise the interpreter would print an error at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _fixed_flag(words: Sequence[str]) -> str | None:
    from rallypoint.cli.serve import fixed_flag  # noqa: PLC0415 - no other command needs the settings

    return fixed_flag(words)


if __name__ == "__main__":
    sys.exit(main())
