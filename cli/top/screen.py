"""What the live screen shows, and what keys do. Pure: rows and the present come in, lines go out."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from rallypoint.cli.calls.client import Json
from rallypoint.cli.look.groups import GROUP_COLUMNS, totals_line
from rallypoint.cli.output.columns import Row
from rallypoint.cli.output.table import Table
from rallypoint.cli.output.text import cut, padded, shown

SORTS = (("lag", True), ("status", True), ("last_rebalance", True), ("member_count", True), ("group_id", False))
"""What `s` goes through: the key of the service's order, and whether it is turned round at first."""

HELP = "q quit  s sort  r reverse  / search  up/down choose  enter describe  w why  esc back  space refresh"


@dataclass(frozen=True, slots=True)
class State:
    """Where the screen is.

    sort: place in SORTS.
    descending: the order is turned round.
    search: what ids must have in them.
    typed: what is being typed as the next search; None while nothing is.
    chosen: the row that the mark is on.
    detail: what is shown in place of the list: "describe", "why", or nothing.
    offset: the first line of the detail that is shown.
    is_done: the screen is to be left.
    """

    sort: int = 0
    descending: bool = True
    search: str = ""
    typed: str | None = None
    chosen: int = 0
    detail: str = ""
    offset: int = 0
    is_done: bool = False

    @property
    def query(self) -> dict[str, object]:
        """The parameters of the list."""
        return {
            "sort": SORTS[self.sort][0],
            "descending": self.descending or None,
            "search": self.search or None,
            "totals": True,
        }


def pressed(state: State, key: str, row_count: int) -> State:
    """The state after a key: a character, or `up`, `down`, `page_up`, `page_down`, `enter`, `escape`, `backspace`."""
    if state.typed is not None:
        return _typed(state, state.typed, key)
    if key in {"q", "Q"}:
        return replace(state, is_done=True)
    step = {"up": -1, "k": -1, "down": 1, "j": 1, "page_up": -10, "page_down": 10}.get(key)
    if state.detail:
        if step is not None:
            return replace(state, offset=max(0, state.offset + step))
        if key in {"escape", "backspace", "enter"}:
            return replace(state, detail="", offset=0)
        return replace(state, detail="why", offset=0) if key == "w" else state
    if step is not None:
        return replace(state, chosen=min(max(0, state.chosen + step), max(0, row_count - 1)))
    match key:
        case "s":
            sort = (state.sort + 1) % len(SORTS)
            return replace(state, sort=sort, descending=SORTS[sort][1], chosen=0)
        case "r":
            return replace(state, descending=not state.descending, chosen=0)
        case "/":
            return replace(state, typed=state.search)
        case "escape":
            return replace(state, search="", chosen=0)
        case "enter" | "w" if row_count:
            return replace(state, detail="why" if key == "w" else "describe", offset=0)
        case _:
            return state


def _typed(state: State, typed: str, key: str) -> State:
    if key == "enter":
        return replace(state, search=typed, typed=None, chosen=0)
    if key == "escape":
        return replace(state, typed=None)
    if key == "backspace":
        return replace(state, typed=typed[:-1])
    return replace(state, typed=typed + key) if len(key) == 1 and key.isprintable() else state


@dataclass(frozen=True, slots=True)
class Line:
    """A line of the screen. style: "head", "chosen", "bad", or nothing."""

    text: str
    style: str = ""


def frame(
    state: State,
    rows: Sequence[Row],
    totals: Json | None,
    detail: Sequence[str],
    said: str,
    *,
    columns: int,
    lines: int,
    now_ms: int,
) -> list[Line]:
    """The whole screen: a head, the list or the detail, and a line of keys or of what went wrong.

    rows: of the list. detail: the lines in place of it. said: what went wrong; empty if nothing did.
    """
    sort = f"by {SORTS[state.sort][0]}{' (reversed)' if state.descending != SORTS[state.sort][1] else ''}"
    search = f", with {shown(state.search)!r} in the id" if state.search else ""
    head = [Line(cut(f"rallypoint top: {sort}{search}", columns), "head")]
    if totals is not None:
        head.append(Line(cut(totals_line(totals), columns)))
    room = max(0, lines - len(head) - 2)
    if state.detail:
        offset = min(state.offset, max(0, len(detail) - 1))
        body = [Line(cut(one, columns)) for one in detail[offset : offset + room]]
    else:
        body = _list(state, rows, columns, room, now_ms)
    body += [Line("")] * (room - len(body))
    foot = f"search: {shown(state.typed)}_" if state.typed is not None else said or HELP
    return [*head, Line(""), *body, Line(cut(foot, columns), "bad" if said else "head")][:lines]


def _list(state: State, rows: Sequence[Row], columns: int, room: int, now_ms: int) -> list[Line]:
    if not rows:
        return [Line("There are no such groups.")][:room]
    first = max(0, min(state.chosen - room + 2, len(rows) - room + 1))
    seen = rows[first : first + max(0, room - 1)]
    table = Table([one for one in GROUP_COLUMNS if not one.wide], seen or rows[:1], now_ms, columns_max=columns)
    found = [Line(table.head(), "head")]
    for at, text in enumerate(table.lines(seen, colour=False), start=first):
        style = "chosen" if at == state.chosen else "bad" if rows[at].get("status") == "ERR" else ""
        found.append(Line(padded(text, columns) if style == "chosen" else text, style))
    return found[:room]
