"""Spark's own books of a query: which batches it planned, which are complete, when, and what they read.

A checkpoint has a file in `offsets` for each batch that was planned and one in `commits` for each that is complete. The
times are those of the files.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import NamedTuple

from rallypoint.spark import Range
from rallypoint.spark_bridge.offset_log import offsets_in
from rallypoint.spark_bridge.offsets import StreamOffset, ranges_between


class Batch(NamedTuple):
    """One micro-batch of one driver."""

    driver: str
    batch_id: int

    def __str__(self) -> str:
        return f"batch {self.batch_id} of driver {self.driver}"


@dataclass(frozen=True, slots=True)
class BatchProgress:
    """How far a driver is.

    `complete`: how many batches with records it has completed. A driver that has just got its partitions, or lost them,
    may plan a batch without any. `last`: the newest batch that Spark has planned, None before the first; it is either
    `in_flight` or complete. `writing`: some of its output is on its way. `written`: its output is in place.
    """

    complete: int = 0
    last: int | None = None
    in_flight: bool = False
    writing: bool = False
    written: bool = False


@dataclass(frozen=True, slots=True)
class Layout:
    """What stands where in the folder of a run."""

    root: Path

    @property
    def topics(self) -> Path:
        """The directory of the `files` source."""
        return self.root / "topics"

    def checkpoint(self, driver: str) -> Path:
        """Spark's own books of a driver's query."""
        return self.root / "checkpoints" / driver

    def log(self, name: str) -> Path:
        """What a program printed."""
        return self.root / "logs" / f"{name}.log"


def read_progress(checkpoint: Path) -> BatchProgress:
    """How far a query is, by its checkpoint alone: output is on its way until the batch is complete, then in place."""
    planned, complete = _numbered(checkpoint / "offsets"), _numbered(checkpoint / "commits")
    if not planned:
        return BatchProgress()
    last = max(planned)
    in_flight = last not in complete
    count = sum(batch.complete_at_ms is not None and batch.records > 0 for batch in read_batches(checkpoint, ""))
    return BatchProgress(count, last, in_flight=in_flight, writing=in_flight, written=not in_flight)


@dataclass(frozen=True, slots=True)
class PlannedBatch:
    """A batch as the checkpoint tells it; times in milliseconds since 1970. `complete_at_ms`: None, it never was."""

    batch: Batch
    ranges: tuple[Range, ...]
    planned_at_ms: int
    complete_at_ms: int | None

    @property
    def records(self) -> int:
        """How many offsets it covers."""
        return sum(one.end - one.start for one in self.ranges)


def read_batches(checkpoint: Path, driver: str) -> tuple[PlannedBatch, ...]:
    """All batches of a driver, in order. For queries with one source."""
    planned, complete = _numbered(checkpoint / "offsets"), _numbered(checkpoint / "commits")
    batches = []
    before = StreamOffset()
    for number in sorted(planned):
        offset = _offset_in(planned[number])
        batches.append(
            PlannedBatch(
                Batch(driver, number),
                tuple(ranges_between(before, offset)),
                _written_at_ms(planned[number]),
                _written_at_ms(complete[number]) if number in complete else None,
            )
        )
        before = offset
    return tuple(batches)


def planned_again(batches: Iterable[PlannedBatch]) -> int:
    """How many records stand in more than one batch, each counted once for each batch after the first."""
    times: Counter[tuple[str, int, int]] = Counter(
        (part.topic, part.partition, offset)
        for batch in batches
        for part in batch.ranges
        for offset in range(part.start, part.end)
    )
    return times.total() - len(times)


@cache
def _offset_in(file: Path) -> StreamOffset:
    """Read once: a run looks at its drivers' progress many times a second, and Spark changes no file of a batch."""
    return next(iter(offsets_in(file.read_text("utf-8")).values()), StreamOffset())


def _numbered(folder: Path) -> dict[int, Path]:
    return {int(path.name): path for path in folder.glob("[0-9]*") if path.name.isdecimal()}


def _written_at_ms(path: Path) -> int:
    return path.stat().st_mtime_ns // 1_000_000
