"""How a command that calls a service runs and ends: its client, its output, and each failure as one sentence."""

import argparse
import sys
import time
from collections.abc import Callable, Iterable
from itertools import islice
from typing import Any

from rallypoint.cli.calls import failures
from rallypoint.cli.calls.client import Client, Json
from rallypoint.cli.contexts.connection import add_connection, add_curl, client_of
from rallypoint.cli.output import terminal
from rallypoint.cli.output.times import duration_ms
from rallypoint.cli.output.view import Form, View
from rallypoint.cli.output.writing import FORMS, compact, lines_of

WATCH_INTERVAL_MS = 2_000
INTERVAL_MIN_MS, INTERVAL_MAX_MS = 50, 86_400_000


def now_ms() -> int:
    """The present, by this machine's clock."""
    return time.time_ns() // 1_000_000


class Output:
    """Standard output, in the form that was asked for."""

    def __init__(self, given: argparse.Namespace) -> None:
        """`given`: has `output` and `no_color` where they were given."""
        self.name: str = getattr(given, "output", "table")
        self._has_colour = not getattr(given, "no_color", False)
        self.screen_lines: int | None = None

    @property
    def form(self) -> Form:
        """By the terminal as it is now."""
        columns = terminal.columns_of(sys.stdout)
        return Form(self.name, columns, self._has_colour and terminal.has_colour(sys.stdout), now_ms())

    def show(self, view: View) -> None:
        """Print a view."""
        self.print_lines(lines_of(view, self.form))

    def tell(self, document: Json, *lines: str) -> None:
        """Print what was done: the service's answer as JSON, or the lines."""
        if self.name in {"json", "jsonl"}:
            self.show(View((), (), "", document=document))
        else:
            self.print_lines(lines)

    def print_lines(self, lines: Iterable[str]) -> None:
        """Print lines as they come."""
        for line in islice(lines, self.screen_lines):
            print(line)
        sys.stdout.flush()

    def record(self, document: Any, line: str) -> None:
        """Print one of a list without an end: the line, or JSON on one line."""
        print(compact(document) if self.name in {"json", "jsonl"} else line, flush=True)


def warn(text: str) -> None:
    """Print a sentence to standard error."""
    print(f"rallypoint: {text}", file=sys.stderr)


Body = Callable[[Client, Output], int | None]
"""What a command does. Returns its exit status, None for 0; raises CallFailed."""


def add_calling(
    parser: argparse.ArgumentParser, *, forms: tuple[str, ...] = FORMS, watches: bool = False, curl: bool = True
) -> None:
    """The flags of a command that calls a service and shows something.

    forms: what -o takes.
    watches: whether it can be shown again and again.
    curl: whether its request can be printed.
    """
    group = parser.add_argument_group("output")
    group.add_argument(
        "-o", "--output", choices=forms, default=argparse.SUPPRESS, help=f"form of the output. Default: {forms[0]}."
    )
    group.add_argument(
        "--no-color",
        action="store_true",
        default=argparse.SUPPRESS,
        help="no colours; so does NO_COLOR in the environment",
    )
    if watches:
        group.add_argument(
            "-w",
            "--watch",
            nargs="?",
            type=_watch_flag,
            const=WATCH_INTERVAL_MS,
            default=argparse.SUPPRESS,
            metavar="TIME",
            help="show it again and again, by default every 2s, until Ctrl-C; stands behind a GROUP, or is written as"
            " --watch=TIME",
        )
    if curl:
        add_curl(group)  # type: ignore[arg-type]  # an argument group takes arguments as a parser does
    add_connection(parser)


def duration_flag(text: str) -> int:
    """The value of a flag that is a time, in milliseconds."""
    try:
        return duration_ms(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def interval_flag(text: str) -> int:
    """The value of a flag that is how often something is done, in milliseconds."""
    interval_ms = duration_flag(text)
    if not INTERVAL_MIN_MS <= interval_ms <= INTERVAL_MAX_MS:
        raise argparse.ArgumentTypeError(f"{text!r} is not between 50ms and 1d")
    return interval_ms


def _watch_flag(text: str) -> int:
    try:
        duration_ms(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{error}; if it is a name, put it before the flag") from error
    return interval_flag(text)


def run_calls(given: argparse.Namespace, body: Body) -> int:
    """Run a command. Returns its exit status; Ctrl-C and a closed standard output are left to `main`."""
    client: Client | None = None
    try:
        client = client_of(given)
        return body(client, Output(given)) or failures.DONE
    except failures.RequestPrinted as printed:
        print(printed)
        return failures.DONE
    except failures.CallFailed as error:
        warn(str(error))
        return error.status
    finally:
        if client is not None:
            client.close()


def run_view(given: argparse.Namespace, view_of: Callable[[Client], View]) -> int:
    """Run a command that shows a view, once or, with --watch, again and again.

    What fails at first ends the command. Who watches sees the failures that come later, and what follows them.
    """

    def body(client: Client, output: Output) -> None:
        interval_ms = getattr(given, "watch", None)
        if interval_ms is None:
            output.show(view_of(client))
            return
        is_screen = sys.stdout.isatty() and output.form.is_for_people
        has_shown = False
        while True:
            try:
                view = view_of(client)
                if is_screen:
                    output.screen_lines = terminal.lines_of(sys.stdout) - 1
                    sys.stdout.write("\x1b[H\x1b[2J")
                output.show(view)
                has_shown = True
            except failures.CallFailed as error:
                if not has_shown or not _may_pass(error):
                    raise
                warn(str(error))
            if not is_screen and output.form.is_for_people:
                print(flush=True)
            time.sleep(interval_ms / 1_000)

    return run_calls(given, body)


def _may_pass(failure: failures.CallFailed) -> bool:
    """Whether it may be over the next time: no node answers, or a list lacks groups. What is refused stays so."""
    return isinstance(failure, failures.Unreachable) or (failure.status == failures.FAILED and failure.problem is None)
