"""The command line of `rallypoint top`, and the loop around its screen. curses draws, `screen` decides."""

import argparse
import curses
import locale
import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rallypoint.cli.calls.client import PAGE_ROWS, Client, Json
from rallypoint.cli.calls.failures import STATUSES, CallFailed, UsageError
from rallypoint.cli.look.describe import group_view
from rallypoint.cli.look.why import rebalances_view
from rallypoint.cli.output.columns import Row
from rallypoint.cli.output.view import Form
from rallypoint.cli.output.writing import lines_of
from rallypoint.cli.running import Output, add_calling, interval_flag, now_ms, run_calls
from rallypoint.cli.top.screen import HELP, Line, State, frame, pressed

if TYPE_CHECKING:
    from curses import window as Window  # noqa: N812 - a class, though its name is small

INTERVAL_MS = 2_000
TICK_MS = 100

_KEYS = {
    curses.KEY_UP: "up",
    curses.KEY_DOWN: "down",
    curses.KEY_PPAGE: "page_up",
    curses.KEY_NPAGE: "page_down",
    curses.KEY_ENTER: "enter",
    10: "enter",
    13: "enter",
    27: "escape",
    curses.KEY_BACKSPACE: "backspace",
    127: "backspace",
    8: "backspace",
}


def add_top(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.description = f"Show the groups with the most lag, live, on one screen. Keys: {HELP}."
    parser.epilog = STATUSES
    parser.add_argument(
        "--every", type=interval_flag, default=INTERVAL_MS, metavar="TIME", help="how often to look. Default: 2s."
    )
    add_calling(parser, forms=("table",), curl=False)


def run_top(given: argparse.Namespace) -> int:
    """Run the command. Returns its exit status."""

    def body(client: Client, _: Output) -> None:
        if not (sys.stdin.isatty() and sys.stdout.isatty()):
            raise UsageError("`rallypoint top` needs a terminal; `rallypoint groups --sort lag -r` does not.")
        client.call("list_groups", query={"limit": 1})  # what fails at once is said in a sentence, not on the screen
        locale.setlocale(locale.LC_ALL, "")
        try:
            curses.wrapper(lambda window: Screen(client, window, given.every).run())
        except curses.error as error:
            raise CallFailed(f"The terminal cannot show the screen: {error}.") from error

    return run_calls(given, body)


class Screen:
    """The state, what was read last, and the window."""

    def __init__(self, client: Client, window: "Window", interval_ms: int) -> None:
        """Draw nothing yet."""
        self._client = client
        self._window = window
        self._interval_ms = interval_ms
        self._state = State()
        self._rows: Sequence[Row] = ()
        self._totals: Json | None = None
        self._detail: Sequence[str] = ()
        self._said = ""
        self._look_at_ms = 0

    def run(self) -> None:
        """Until `q` or Ctrl-C."""
        curses.use_default_colors()
        with_cursor = curses.tigetstr("civis") is not None
        if with_cursor:
            curses.curs_set(0)
        self._window.timeout(TICK_MS)
        while not self._state.is_done:
            if time.monotonic_ns() // 1_000_000 >= self._look_at_ms:
                self._look()
            self._draw()
            self._press(self._window.getch())

    def _look(self) -> None:
        lines, columns = self._window.getmaxyx()
        try:
            if self._state.detail and self._rows:
                self._detail = self._detail_lines(str(self._rows[self._state.chosen]["group_id"]), columns)
            else:
                # One page is more than a screen, and what is chosen stays in it.
                limit = min(PAGE_ROWS, max(100, lines))
                page = self._client.call("list_groups", query={**self._state.query, "limit": limit})
                self._rows, self._totals = page["groups"], page["totals"]
                self._state = pressed(self._state, "none", len(self._rows))
            self._said = ""
        except CallFailed as error:
            self._said = str(error)
        self._look_at_ms = time.monotonic_ns() // 1_000_000 + self._interval_ms

    def _detail_lines(self, group_id: str, columns: int) -> list[str]:
        view_of = rebalances_view if self._state.detail == "why" else group_view
        form = Form("table", columns, False, now_ms())
        return list(lines_of(view_of(self._client, group_id), form))

    def _press(self, code: int) -> None:
        if code == -1:
            return
        key = _KEYS.get(code) or (chr(code) if 32 <= code < 127 else "")
        before = self._state
        self._state = pressed(before, key, len(self._rows))
        if key == " " or (before.query, before.detail) != (self._state.query, self._state.detail):
            self._detail = ()
            self._look_at_ms = 0

    def _draw(self) -> None:
        lines, columns = self._window.getmaxyx()
        shown = frame(
            self._state, self._rows, self._totals, self._detail, self._said,
            columns=columns - 1, lines=lines, now_ms=now_ms(),
        )  # fmt: skip
        self._window.erase()
        for at, line in enumerate(shown):
            self._window.addstr(at, 0, line.text, _attribute(line))
        self._window.refresh()


def _attribute(line: Line) -> int:
    return {"head": curses.A_BOLD, "chosen": curses.A_REVERSE, "bad": curses.A_BOLD}.get(line.style, curses.A_NORMAL)
