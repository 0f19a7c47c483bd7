"""The last words of the demo, for a person: the picture, the two tables, the figures and the verdict."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from rich.console import Console

from examples.flights.carriers_table import draw_carriers
from examples.flights.report import Outcome
from examples.handover.closing import print_verdict, show_ownership
from examples.handover.run import Scenario


def tell(
    console: Console, outcome: Outcome, scenario: Scenario, airlines: Mapping[str, str], written: Sequence[Path]
) -> int:
    """Print it all; the exit status, 1 if something is wrong. `written`: the files of the report."""
    show_ownership(console, outcome.seen, scenario)
    console.print("\nFlights and mean arrival delay in minutes, by what the drivers wrote and by the file itself")
    console.print(draw_carriers(outcome.found, outcome.expected, airlines))
    return print_verdict(
        console,
        outcome.sentences(),
        outcome.problems(),
        "No record is lost, and the drivers' table equals the one computed from the file directly.",
        seconds=outcome.seconds,
        written=written,
    )
