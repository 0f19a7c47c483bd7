"""The last words of the demo, for a person: the picture, the two tables, the figures and the verdict."""

from collections.abc import Mapping, Sequence

from rich.console import Console

from examples.flights.report import Outcome
from examples.flights.run import DRIVERS
from examples.flights.terminal import View, draw_carriers, draw_letters, draw_timeline


def tell(console: Console, outcome: Outcome, airlines: Mapping[str, str], paths: Sequence[str]) -> int:
    """Print it all; the exit status, 1 if something is wrong. `paths`: files that were written."""
    seen = outcome.seen
    view = View(
        now_ms=seen.end_ms,
        records=outcome.tally.records,
        committed=seen.last.committed,
        generation_id=seen.last.generation_id,
        spans=seen.spans(seen.end_ms),
        partitions=outcome.partitions,
        drivers=DRIVERS,
        batches=(),
    )
    console.print("\nWho owned which partition")
    console.print(draw_timeline(view, console.width) if console.is_terminal else draw_letters(view), markup=False)
    console.print("\nFlights and mean arrival delay in minutes, by what the drivers wrote and by the file itself")
    console.print(draw_carriers(outcome.found, outcome.expected, airlines))
    for sentence in outcome.sentences():
        console.print(sentence, markup=False)
    problems = outcome.problems()
    for problem in problems:
        console.print(f"[bold red]✗[/] {problem}")
    if not problems:
        console.print(
            "[green]✓[/] No record is lost, and the drivers' table equals the one computed from the file directly."
        )
    console.print(f"{outcome.seconds:.0f} s in all. Written: {', '.join(paths)}", markup=False)
    return 1 if problems else 0
