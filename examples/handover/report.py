"""What came of a run as far as all examples share it: its figures, report.json and the picture. It asks no service.

Whether the output is right is counted by each example.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from examples.handover.books import planned_again
from examples.handover.ownership import count_moves
from examples.handover.picture import BatchBar, Picture, draw
from examples.handover.run import DRIVERS, RunRecord, Scenario

LEAD_MS = 2_000
"""What a picture shows of the time before anybody owns anything."""


def run_metrics(seen: RunRecord) -> dict[str, Any]:
    """What report.json says of the run itself; times in milliseconds since its start."""
    moves = count_moves(seen.spans(seen.end_ms))
    return {
        "partitions_handed_over": moves.handed_over,
        "partitions_taken_over": moves.taken_over,
        "records_planned_again": planned_again(seen.books),
        "killed": {
            "driver": None if seen.killed is None else seen.killed.driver,
            "batch_id": None if seen.killed is None else seen.killed.batch_id,
            "batch_written": seen.killed_batch.written,
            "at_ms": seen.killed_at_ms,
            "taken_for_dead_at_ms": seen.removed_at_ms,
            "taken_over_at_ms": seen.taken_over_at_ms,
        },
        "events": [asdict(event) for event in seen.events],
        "ownership": [asdict(span) for span in seen.spans(seen.end_ms)],
        "batches": [asdict(bar) for bar in batch_bars(seen)],
    }


def run_sentences(seen: RunRecord) -> list[str]:
    """The hand-overs, the kill and what was planned twice, in words."""
    moves = count_moves(seen.spans(seen.end_ms))
    lines = [
        f"Partitions that changed hands: {moves.handed_over} between two batches of a living driver,"
        f" {moves.taken_over} left behind by the killed one."
    ]
    if seen.killed is not None and seen.killed_at_ms is not None:
        state = "written, its end not committed to the group" if seen.killed_batch.written else "in flight"
        lines.append(f"Killed at {seen.killed_at_ms / 1000:.1f} s: driver B, its batch {seen.killed.batch_id} {state}.")
    lines.append(
        f"Spark's own books: {len(seen.books)} batches of"
        f" {sum(batch.records for batch in seen.books):,} records, {planned_again(seen.books):,} of them for the second"
        " time."
    )
    return lines


def batch_bars(seen: RunRecord) -> list[BatchBar]:
    """The drivers' batches in the time of the run. One that was never complete ends with its driver."""
    bars = []
    for planned in seen.books:
        ended_ms = seen.killed_at_ms if planned.batch.driver == "B" else None
        end_ms = seen.end_ms if ended_ms is None else ended_ms
        if planned.complete_at_ms is not None:
            end_ms = planned.complete_at_ms - seen.began_at_ms
        start_ms = planned.planned_at_ms - seen.began_at_ms
        bars.append(
            BatchBar(
                planned.batch.driver,
                planned.batch.batch_id,
                start_ms,
                max(end_ms, start_ms),
                planned.records,
                complete=planned.complete_at_ms is not None,
            )
        )
    return bars


def picture_of(seen: RunRecord, scenario: Scenario, summary: str) -> str:
    """The SVG of the run."""
    return draw(
        Picture(
            topic=scenario.topic,
            spans=seen.spans(seen.end_ms),
            snapshots=[one for one in seen.snapshots if one.at_ms <= seen.end_ms],
            events=seen.events,
            drivers=DRIVERS,
            partitions=scenario.partitions,
            records=scenario.records,
            end_ms=seen.end_ms,
            summary=summary,
            batches=batch_bars(seen),
            from_ms=_picture_begins_ms(seen),
        )
    )


def _picture_begins_ms(seen: RunRecord) -> int:
    """Shortly before somebody owns something: that Spark takes its time to start needs no picture."""
    first_ms = next((one.at_ms for one in seen.snapshots if one.owners), 0)
    return max(first_ms - LEAD_MS, 0)


def save(folder: Path, metrics: Mapping[str, Any], picture: str) -> Sequence[Path]:
    """Write report.json and ownership.svg; their paths."""
    report, svg = folder / "report.json", folder / "ownership.svg"
    report.write_text(json.dumps(metrics, indent=2) + "\n", "utf-8")
    svg.write_text(picture, "utf-8")
    return report, svg
