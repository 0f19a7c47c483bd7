"""What a command has to show, whatever the form: rows with their columns, the service's own answer, and words."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from rallypoint.cli.output.columns import Column, Row


@dataclass(frozen=True, slots=True)
class Form:
    """How to write.

    name: one of FORMS.
    columns_max: the width of the terminal; None where there is none.
    colour: whether statuses have colours.
    now_ms: the present, for relative times.
    """

    name: str
    columns_max: int | None
    colour: bool
    now_ms: int

    @property
    def is_for_people(self) -> bool:
        """Whether words may stand around the rows."""
        return self.name in {"table", "wide"}


Lines = Callable[[Form], Iterable[str]]


def _no_lines(_: Form) -> Iterable[str]:
    return ()


@dataclass(frozen=True, slots=True)
class View:
    """What is shown.

    columns: of the table, those of `-o wide` included.
    rows: in order; they may be many, and are gone through once.
    id_key: the key that `-o name` prints.
    document: what `-o json` and `-o jsonl` print in place of the rows.
    above, below: lines around a table, for people alone; `below` is asked after the rows.
    empty: the line in place of a table without rows.
    people: the lines in place of the table of `-o table`, where a table says it badly; `-o wide` has the table.
    """

    columns: tuple[Column, ...]
    rows: Iterable[Row]
    id_key: str
    document: Any = None
    above: Lines = _no_lines
    below: Lines = _no_lines
    empty: str = ""
    people: Lines | None = None
