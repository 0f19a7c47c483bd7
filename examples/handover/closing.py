"""The last words of an example, for a person: the picture, the figures and the verdict."""

import os
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from examples.handover.run import DRIVERS, Plot, Seen
from examples.handover.terminal import View, draw_letters, draw_timeline


def show_ownership(console: Console, seen: Seen, plot: Plot) -> None:
    """Who owned which partition, in colours or in letters."""
    view = View(
        now_ms=seen.end_ms,
        records=plot.records,
        committed=seen.last.committed,
        generation_id=seen.last.generation_id,
        spans=seen.spans(seen.end_ms),
        partitions=plot.partitions,
        drivers=DRIVERS,
        batches=(),
    )
    console.print("\nWho owned which partition")
    console.print(draw_timeline(view, console.width) if console.is_terminal else draw_letters(view), markup=False)


def tell_verdict(
    console: Console,
    sentences: Sequence[str],
    problems: Sequence[str],
    good: str,
    *,
    seconds: float,
    written: Sequence[Path],
) -> int:
    """Print figures, then what is wrong, or `good` where nothing is; the exit status, 1 if something is wrong."""
    for sentence in sentences:
        console.print(sentence, markup=False)
    for problem in problems:
        console.print(f"[bold red]✗[/] {problem}")
    if not problems:
        console.print(f"[green]✓[/] {good}")
    paths = ", ".join(os.path.relpath(path) for path in written)
    console.print(f"{seconds:.0f} s in all. Written: {paths}", markup=False)
    return 1 if problems else 0
