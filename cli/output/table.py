"""Tables for people: which columns fit, how wide they are, and the lines. Pure."""

from collections.abc import Iterable, Iterator, Sequence

from rallypoint.cli.output.columns import Column, Row
from rallypoint.cli.output.text import cut, padded, width

GAP = 2
SHRUNK_MIN = 12
"""To what a column is cut before another one is left out."""


class Table:
    """A table whose columns are laid out by its first rows, so that any number of rows passes through.

    Later rows that are wider are cut if there is a width to keep, and stand out otherwise.
    """

    def __init__(
        self, columns: Sequence[Column], first: Sequence[Row], now_ms: int, *, columns_max: int | None
    ) -> None:
        """Lay the table out.

        columns: all that are wanted, in order.
        first: the rows that the layout is made for.
        now_ms: the present.
        columns_max: how wide a line may be; None where there is no terminal.
        """
        self._now_ms = now_ms
        self._is_bounded = columns_max is not None
        wanted = {
            column.head: max([width(column.head), *(width(column.cell(row, now_ms)) for row in first)])
            for column in columns
        }
        self._columns, self._widths = fitted(columns, wanted, columns_max)

    def head(self) -> str:
        """The line over the rows."""
        return self._line([column.head for column in self._columns], colours=[None] * len(self._columns))

    def lines(self, rows: Iterable[Row], *, colour: bool) -> Iterator[str]:
        """A line for each row."""
        for row in rows:
            cells = [column.cell(row, self._now_ms) for column in self._columns]
            colours = [
                column.colours.get(str(column.value(row))) if colour and column.colours else None
                for column in self._columns
            ]
            yield self._line(cells, colours)

    def _line(self, cells: Sequence[str], colours: Sequence[str | None]) -> str:
        parts = []
        for at, (column, cell, code) in enumerate(zip(self._columns, cells, colours, strict=True)):
            fits = cut(cell, self._widths[at]) if self._is_bounded else cell
            is_last = at == len(cells) - 1 and not column.right
            part = fits if is_last else padded(fits, self._widths[at], right=column.right)
            parts.append(f"\x1b[{code}m{part}\x1b[0m" if code else part)
        return (" " * GAP).join(parts).rstrip()


def fitted(
    columns: Sequence[Column], wanted: dict[str, int], columns_max: int | None
) -> tuple[list[Column], list[int]]:
    """The columns that fit, and their widths.

    What may be cut is cut first, the widest most; then columns are left out, those of the highest rank first. If what
    must be there does not fit, it is wider than asked for.
    """
    kept = list(columns)
    while True:
        widths = _shrunk(kept, [wanted[column.head] for column in kept], columns_max)
        if columns_max is None or _total(widths) <= columns_max:
            return kept, widths
        last = max((column.rank, at) for at, column in enumerate(kept))
        if last[0] == 0:
            return kept, widths
        del kept[last[1]]


def _total(widths: Sequence[int]) -> int:
    return sum(widths) + GAP * (len(widths) - 1)


def _shrunk(columns: Sequence[Column], wanted: Sequence[int], columns_max: int | None) -> list[int]:
    widths = list(wanted)
    if columns_max is None:
        return widths
    while (over := _total(widths) - columns_max) > 0:
        shrinking = [at for at, column in enumerate(columns) if column.shrinks and widths[at] > SHRUNK_MIN]
        if not shrinking:
            break
        widest = max(shrinking, key=lambda at: widths[at])
        second = max([SHRUNK_MIN, *(widths[at] for at in shrinking if widths[at] < widths[widest])])
        widths[widest] = max(second, widths[widest] - over) if second < widths[widest] else widths[widest] - 1
    return widths


def pairs_lines(pairs: Sequence[tuple[str, str]], columns_max: int | None) -> list[str]:
    """Names and values, one a line, the values below each other."""
    longest = max((width(name) for name, _ in pairs), default=0)
    lines = [f"{padded(name, longest)}  {value}".rstrip() for name, value in pairs]
    return lines if columns_max is None else [cut(line, columns_max) for line in lines]


def paragraph(text: str, columns_max: int | None, indent: str = "") -> list[str]:
    """The text in lines that fit, all but the first indented."""
    if columns_max is None:
        return [text]
    lines = [""]
    for one in text.split(" "):
        joined = f"{lines[-1]} {one}" if lines[-1].strip() else lines[-1] + one
        if width(joined) > columns_max and lines[-1].strip():
            lines.append(indent + one)
        else:
            lines[-1] = joined
    return lines
