"""What came of a run: figures, verdict, report.json and the picture. It asks no service."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from examples.flights.batches import Layout, count_unseen, read_output
from examples.flights.carriers import Carrier, by_carrier
from examples.flights.picture import Picture, draw
from examples.flights.proof import Tally, once, tally
from examples.flights.run import DRIVERS, Seen


@dataclass(frozen=True, slots=True)
class Outcome:
    """`found` is the table from the drivers' output with each record once, `expected` the one from the file."""

    seen: Seen
    tally: Tally
    unseen: int
    found: tuple[Carrier, ...]
    expected: tuple[Carrier, ...]
    partitions: int
    seconds: float

    def problems(self) -> list[str]:
        """What must not be, one sentence each; empty: the run is a success."""
        problems = self.tally.problems()
        if self.found != self.expected:
            problems.append("The carriers' table of the drivers differs from the one of the file.")
        return problems

    def sentences(self) -> list[str]:
        """The figures in words."""
        count, seen = self.tally, self.seen
        lines = [
            f"Records: {count.records:,} in the topic, {count.distinct:,} read, {count.lost:,} lost,"
            f" {count.twice:,} read twice.",
            "Rows written: "
            + ", ".join(f"{rows:,} by driver {name}" for name, rows in count.rows_by_driver.items())
            + ".",
        ]
        if seen.killed is None:
            return lines
        if count.twice:
            lines.append(
                f"Read twice: {seen.killed}, which was written when the driver died, its end not committed; the new"
                " owner had to read it again. The table counts each record once."
            )
        elif self.unseen:
            lines.append(
                f"In flight when its driver died: {seen.killed}. {self.unseen:,} of its rows were on disk, in files"
                " that no reader sees until a batch ends. Driver A read its records instead."
            )
        else:
            lines.append(f"In flight when its driver died: {seen.killed}. Driver A read its records instead.")
        return lines

    def summary(self) -> str:
        """One line for the picture."""
        count = self.tally
        return (
            f"{count.records:,} flights, {self.partitions} partitions, two Spark drivers, one killed:"
            f" {count.lost:,} lost, {count.twice:,} read twice"
        )

    def to_json(self) -> dict[str, Any]:
        """The content of report.json."""
        seen = self.seen
        return {
            "ok": not self.problems(),
            "problems": self.problems(),
            "seconds": round(self.seconds, 1),
            "partitions": self.partitions,
            "records": asdict(self.tally),
            "killed": {
                "driver": None if seen.killed is None else seen.killed.driver,
                "batch_id": None if seen.killed is None else seen.killed.batch_id,
                "batch_written": seen.killed_batch.written,
                "rows_no_reader_sees": self.unseen,
                "at_ms": seen.killed_at_ms,
                "taken_for_dead_at_ms": seen.missed_at_ms,
                "taken_over_at_ms": seen.taken_over_at_ms,
            },
            "events": [asdict(event) for event in seen.events],
            "ownership": [asdict(span) for span in seen.spans(seen.end_ms)],
            "carriers": [one.to_json() for one in self.found],
        }


def judge(layout: Layout, seen: Seen, flights: pd.DataFrame, sizes: Mapping[int, int], *, seconds: float) -> Outcome:
    """Count what the drivers wrote against the flights of the file."""
    output = read_output(layout)
    return Outcome(
        seen=seen,
        tally=tally(output, sizes, seen.killed),
        unseen=0 if seen.killed is None else count_unseen(layout, seen.killed),
        found=by_carrier(once(output)),
        expected=by_carrier(flights),
        partitions=len(sizes),
        seconds=seconds,
    )


def save(outcome: Outcome, folder: Path) -> tuple[Path, Path]:
    """Write report.json and ownership.svg; their paths."""
    seen = outcome.seen
    report, picture = folder / "report.json", folder / "ownership.svg"
    report.write_text(json.dumps(outcome.to_json(), indent=2) + "\n", "utf-8")
    svg = draw(
        Picture(
            spans=seen.spans(seen.end_ms),
            sightings=[one for one in seen.sightings if one.at_ms <= seen.end_ms],
            events=seen.events,
            drivers=DRIVERS,
            partitions=outcome.partitions,
            records=outcome.tally.records,
            end_ms=seen.end_ms,
            summary=outcome.summary(),
        )
    )
    picture.write_text(svg, "utf-8")
    return report, picture
