"""The terminal of this process: whether there is one, how wide it is, and progress of long work on standard error."""

import os
import shutil
import sys
import time
from collections.abc import Callable
from typing import TextIO

from rallypoint.cli.output.text import cut, shown

PROGRESS_INTERVAL_S = 0.2


def columns_of(stream: TextIO) -> int | None:
    """The width of the terminal that a stream is; None if it is none."""
    return shutil.get_terminal_size((80, 24)).columns if stream.isatty() else None


def lines_of(stream: TextIO) -> int:
    """The height of the terminal that a stream is."""
    return shutil.get_terminal_size((80, 24)).lines if stream.isatty() else 24


def has_colour(stream: TextIO) -> bool:
    """Whether a stream is a terminal that shows colours, and nobody has asked for none (https://no-color.org)."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


class Progress:
    """One line on standard error that is written over while long work goes on. Without a terminal it says nothing."""

    def __init__(self, stream: TextIO | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        """`stream`: standard error by default."""
        self._stream = sys.stderr if stream is None else stream
        self._clock = clock
        self._is_shown = self._stream.isatty()
        self._next_at = clock()
        self._is_dirty = False

    def say(self, text: str, *, at_once: bool = False) -> None:
        """Show how far it is, a few times a second at the most."""
        if not self._is_shown or (self._clock() < self._next_at and not at_once):
            return
        self._next_at = self._clock() + PROGRESS_INTERVAL_S
        columns = shutil.get_terminal_size((80, 24)).columns
        self._stream.write(f"\r\x1b[K{cut(shown(text), columns - 1)}")
        self._stream.flush()
        self._is_dirty = True

    def end(self) -> None:
        """Take the line away."""
        if self._is_dirty:
            self._stream.write("\r\x1b[K")
            self._stream.flush()
            self._is_dirty = False

    def __enter__(self) -> "Progress":
        """Begin with nothing."""
        return self

    def __exit__(self, *_: object) -> None:
        """Take the line away."""
        self.end()
