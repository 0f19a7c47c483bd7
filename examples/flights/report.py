"""What came of the demo: figures and verdict. It asks no service."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import pandas as pd

from examples.flights.batches import FlightsLayout, count_unseen, read_output
from examples.flights.carriers import Carrier, by_carrier
from examples.flights.proof import Tally, once, tally
from examples.handover.report import run_metrics
from examples.handover.run import RunRecord


@dataclass(frozen=True, slots=True)
class Outcome:
    """`found` is the table from the drivers' output with each record once, `expected` the one from the file."""

    seen: RunRecord
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
        metrics = run_metrics(self.seen)
        metrics["killed"]["rows_no_reader_sees"] = self.unseen
        return {
            "ok": not self.problems(),
            "problems": self.problems(),
            "seconds": round(self.seconds, 1),
            "partitions": self.partitions,
            "records": asdict(self.tally),
            **metrics,
            "carriers": [one.to_json() for one in self.found],
        }


def judge(
    layout: FlightsLayout, seen: RunRecord, flights: pd.DataFrame, sizes: Mapping[int, int], *, seconds: float
) -> Outcome:
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
