"""Drawings for a terminal: who owned which partition, in letters, and where there are colours in those, too. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Group
from rich.text import Text

from examples.handover.ownership import Span, span_at

STYLES = ("bold bright_white on blue", "bold black on orange1")
DEAD_STYLE = "red"
DEAD_CELL, EMPTY_CELL = "×", "·"
CELLS_MAX = 100


@dataclass(frozen=True, slots=True)
class View:
    """The state of a run, enough to draw it."""

    now_ms: int
    records: int
    committed: int
    generation_id: int
    spans: Sequence[Span]
    partitions: int
    drivers: Sequence[str]
    batches: Sequence[int]


def owners_by_cell(view: View, cells: int) -> list[list[Span | None]]:
    """For each partition who owned it in the middle of each of `cells` equal pieces of the time so far."""
    width_ms = max(view.now_ms, 1) / cells
    return [
        [span_at(view.spans, partition, int((cell + 0.5) * width_ms)) for cell in range(cells)]
        for partition in range(view.partitions)
    ]


def draw_timeline(view: View, width: int) -> Group:
    """The picture in colours, a letter in each cell."""
    cells = max(min(width - 6, CELLS_MAX), 10)
    lines = []
    for partition, owners in enumerate(owners_by_cell(view, cells)):
        line = Text(f"{partition:>3} ", style="dim")
        for span in owners:
            if span is None:
                line.append(EMPTY_CELL, style="dim")
            elif span.alive:
                line.append(span.owner[:1], style=STYLES[view.drivers.index(span.owner)])
            else:
                line.append(DEAD_CELL, style=DEAD_STYLE)
        lines.append(line)
    legend = Text("    ")
    for number, driver in enumerate(view.drivers):
        legend.append(driver[:1] * 2, style=STYLES[number]).append(f" driver {driver}   ")
    legend.append(DEAD_CELL * 2, style=DEAD_STYLE).append(" its owner was dead, not noticed yet   ")
    legend.append(EMPTY_CELL * 2, style="dim").append(" between two owners")
    axis = Text("    0 s" + f"{view.now_ms / 1000:.0f} s".rjust(cells - 3), style="dim")
    return Group(*lines, axis, legend)


def draw_letters(view: View, cells: int = 72) -> str:
    """The same picture for logs."""
    rows = [
        f"{partition:>3} " + "".join("." if span is None else span.owner[:1] if span.alive else "x" for span in owners)
        for partition, owners in enumerate(owners_by_cell(view, cells))
    ]
    axis = "    0 s" + f"{view.now_ms / 1000:.0f} s".rjust(cells - 3)
    return "\n".join([*rows, axis, "    x: its owner was dead, not noticed yet   .: between two owners"])
