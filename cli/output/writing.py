"""Writes a view in the form that was asked for, row by row: a list of any length takes no more memory than a page."""

import csv
import io
import json
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice
from typing import Any

from rallypoint.cli.output.columns import Column, Row
from rallypoint.cli.output.table import Table
from rallypoint.cli.output.text import shown
from rallypoint.cli.output.view import Form, View

FORMS = ("table", "wide", "json", "jsonl", "csv", "name")
LAYOUT_ROWS = 1_000
"""By how many rows a table is laid out: a page of the service."""


def lines_of(view: View, form: Form) -> Iterator[str]:
    """The view, line by line. JSON is in ASCII, so whatever an id holds, a terminal obeys nothing of it."""
    if form.name == "json":
        yield from _json_lines(view)
    elif form.name == "jsonl":
        yield from (compact(row) for row in (view.rows if view.document is None else [view.document]))
    elif form.name == "name":
        yield from (shown(str(row[view.id_key])) for row in view.rows)
    elif form.name == "csv":
        yield from _csv_lines(view.columns, view.rows)
    else:
        yield from _table_lines(view, form)


def compact(value: Any) -> str:
    """JSON on one line."""
    return json.dumps(value, separators=(",", ":"))


def _json_lines(view: View) -> Iterator[str]:
    if view.document is not None:
        yield json.dumps(view.document, indent=2)
        return
    row_before: str | None = None
    yield "["
    for row in view.rows:
        if row_before is not None:
            yield f"{row_before},"
        row_before = f"  {compact(row)}"
    if row_before is not None:
        yield row_before
    yield "]"


def _csv_lines(columns: Sequence[Column], rows: Iterable[Row]) -> Iterator[str]:
    yield csv_line([column.key for column in columns])
    for row in rows:
        yield csv_line([_csv_cell(column.value(row)) for column in columns])


def _csv_cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | tuple):
        return " ".join(_csv_cell(one) for one in value)
    if isinstance(value, dict):
        return compact(value)
    return shown(str(value))


def csv_line(cells: Iterable[str]) -> str:
    """One line, without its end."""
    text = io.StringIO()
    csv.writer(text, lineterminator="").writerow(list(cells))
    return text.getvalue()


def _table_lines(view: View, form: Form) -> Iterator[str]:
    yield from view.above(form)
    if view.people is not None and form.name == "table":
        yield from view.people(form)
        yield from view.below(form)
        return
    yield from table_lines(view.columns, view.rows, form, empty=view.empty)
    yield from view.below(form)


def table_lines(columns: Sequence[Column], rows: Iterable[Row], form: Form, *, empty: str = "") -> Iterator[str]:
    """A table alone. `empty`: the line in place of one without rows."""
    chosen = [column for column in columns if form.name == "wide" or not column.wide]
    rest = iter(rows)
    first = list(islice(rest, LAYOUT_ROWS))
    if not first:
        if empty:
            yield empty
        return
    table = Table(chosen, first, form.now_ms, columns_max=None if form.name == "wide" else form.columns_max)
    yield table.head()
    yield from table.lines(chain(first, rest), colour=form.colour)
