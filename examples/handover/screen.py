"""What the reader sees while the demo works: a live picture in a terminal, plain lines everywhere else."""

from collections.abc import Callable
from typing import Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.text import Text

from examples.handover.terminal import CELLS_MAX, View, draw_timeline

LINE_EVERY_MS = 5_000


def elapsed_text(at_ms: int) -> str:
    """Seconds since the start, aligned."""
    return f"{at_ms / 1000:6.1f} s"


def _status(view: View) -> str:
    batches = ", ".join(f"{driver} {count}" for driver, count in zip(view.drivers, view.batches, strict=True))
    return f"{view.committed:>7,} of {view.records:,} records committed   batches: {batches}"


class PlainScreen:
    """Lines, for logs."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._last_line_ms = -LINE_EVERY_MS

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        return

    def say(self, at_ms: int, text: str) -> None:
        """One line."""
        self._console.print(f"{elapsed_text(at_ms)}  {text}")

    def show(self, view: View) -> None:
        """One line every five seconds."""
        if view.now_ms - self._last_line_ms >= LINE_EVERY_MS:
            self._last_line_ms = view.now_ms
            self._console.print(f"{elapsed_text(view.now_ms)}  {_status(view)}")


class LiveScreen:
    """A picture below the lines, redrawn a few times a second. `clock`: the run's time in ms."""

    def __init__(self, console: Console, clock: Callable[[], int]) -> None:
        self._console = console
        self._clock = clock
        self._view: View | None = None
        self._live = Live(console=console, get_renderable=self._draw, refresh_per_second=4, transient=True)

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def say(self, at_ms: int, text: str) -> None:
        """One line above the picture."""
        self._console.print(f"{elapsed_text(at_ms)}  {text}")

    def show(self, view: View) -> None:
        """Drawn at the next refresh."""
        self._view = view

    def _draw(self) -> RenderableType:
        view = self._view
        if view is None:
            return Text(f"{elapsed_text(self._clock())}  starting")
        return Group(
            Text(""),
            draw_timeline(view, self._console.width),
            Text(f"{elapsed_text(self._clock())}  {_status(view)}   generation {max(view.generation_id, 0)}"),
            ProgressBar(total=view.records, completed=view.committed, width=min(self._console.width, CELLS_MAX + 4)),
        )


def make_screen(console: Console, clock: Callable[[], int]) -> PlainScreen | LiveScreen:
    """The kind that fits where the output goes."""
    return LiveScreen(console, clock) if console.is_terminal else PlainScreen(console)
