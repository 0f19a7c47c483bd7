"""The table of carriers in a terminal: the drivers' figures beside the file's. Pure."""

from collections.abc import Mapping, Sequence

from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from examples.flights.carriers import Carrier


def draw_carriers(found: Sequence[Carrier], expected: Sequence[Carrier], names: Mapping[str, str]) -> Table:
    """What the drivers wrote beside what the file says."""
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    table.add_column("carrier", no_wrap=True, max_width=28)
    for heading in ("drivers", "mean", "file", "mean"):
        table.add_column(heading, justify="right")
    table.add_column("")
    left = {one.carrier: one for one in found}
    right = {one.carrier: one for one in expected}
    for code in sorted(left | right):
        a, b = left.get(code), right.get(code)
        equal = a == b
        table.add_row(
            f"{code} {names.get(code, '')}",
            *_figures(a),
            *_figures(b),
            Text("✓" if equal else "differs", style="green" if equal else "bold red"),
        )
    return table


def _figures(carrier: Carrier | None) -> tuple[str, str]:
    if carrier is None:
        return "-", "-"
    return f"{carrier.flights:,}", "-" if carrier.mean_delay is None else f"{carrier.mean_delay:.3f}"
