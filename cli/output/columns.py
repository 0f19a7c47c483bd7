"""What a column of a table is: where its value is found in a row, and how people see it.

A row is an object of the service's answer, as JSON has it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from rallypoint.cli.output.text import list_text, shown
from rallypoint.cli.output.times import ago, duration

Row = dict[str, Any]
Text = Callable[[Any, int], str]
"""Of a value that is not null, and the present in milliseconds: what people see."""

NOTHING = "-"
COLOURS = {"OK": "32", "WARN": "33", "STALL": "31", "STOP": "31", "REWIND": "31", "ERR": "31"}
"""Of a status, as a terminal has them. The word is shown as well."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column.

    key: of the value in the row, and the name of the column in CSV.
    head: over the column.
    text: how people see a value.
    right: it is a number.
    wide: shown by `-o wide` alone.
    shrinks: it may be cut where the terminal is narrow.
    rank: the column of the highest rank is left out first where the terminal is still too narrow; 0: never.
    colours: the codes of a terminal, by value.
    of: the value, where it is not that of the key as it stands.
    """

    key: str
    head: str
    text: Text
    right: bool = False
    wide: bool = False
    shrinks: bool = False
    rank: int = 0
    colours: dict[str, str] | None = None
    of: Callable[[Row], Any] | None = None

    def value(self, row: Row) -> Any:
        """What the row has."""
        return row.get(self.key) if self.of is None else self.of(row)

    def cell(self, row: Row, now_ms: int) -> str:
        """What people see."""
        value = self.value(row)
        return NOTHING if value is None or value == "" else self.text(value, now_ms)


def text(key: str, head: str, *, wide: bool = False, rank: int = 0) -> Column:
    """A text of a stranger, which may be cut."""
    return Column(key, head, lambda value, _: shown(str(value)), shrinks=True, wide=wide, rank=rank)


def word(key: str, head: str, *, wide: bool = False, rank: int = 0, colours: dict[str, str] | None = None) -> Column:
    """A word of the service's own, whole."""
    return Column(key, head, lambda value, _: shown(str(value)), wide=wide, rank=rank, colours=colours)


def number(key: str, head: str, *, wide: bool = False, rank: int = 0) -> Column:
    """A number, at the right; a fraction has one digit."""
    return Column(
        key, head, lambda value, _: f"{value:,.1f}" if isinstance(value, float) else f"{value:,}",
        right=True, wide=wide, rank=rank,
    )  # fmt: skip


def since(key: str, head: str, *, wide: bool = False, rank: int = 0) -> Column:
    """How long ago an instant is."""
    return Column(key, head, lambda value, now_ms: ago(int(value), now_ms), right=True, wide=wide, rank=rank)


def length(key: str, head: str, *, wide: bool = False, rank: int = 0) -> Column:
    """How long something takes, of milliseconds."""
    return Column(key, head, lambda value, _: duration(value), right=True, wide=wide, rank=rank)


def names(key: str, head: str, *, wide: bool = False, rank: int = 0) -> Column:
    """A list of names of strangers."""
    return Column(key, head, lambda value, _: list_text(value) or NOTHING, shrinks=True, wide=wide, rank=rank)


def member(key: str, head: str, *, wide: bool = False, rank: int = 0) -> Column:
    """A member by its names: the instance id, else the member id."""
    return Column(key, head, lambda value, _: shown(member_name(value)), shrinks=True, wide=wide, rank=rank)


def member_name(one: Row) -> str:
    """The name by which people know a member: its instance id if it is static, else its member id."""
    return str(one.get("group_instance_id") or one["member_id"])
