"""From the files on disk to the verdict: what drivers leave behind, read back, with planted faults."""

import json
from pathlib import Path
from xml.etree import ElementTree

import pandas as pd
import pytest
from rich.console import Console

from examples.flights.batches import FlightsLayout, look_at_batches, read_output
from examples.flights.closing import tell
from examples.flights.report import Outcome, judge
from examples.handover.books import Batch, BatchProgress
from examples.handover.ownership import GroupSnapshot
from examples.handover.picture import Event
from examples.handover.report import picture_of, save
from examples.handover.run import RunRecord, Scenario
from tests.examples.test_handover_books import complete, offset, plan

FLIGHTS = pd.DataFrame({"carrier": ["UA", "AA", "UA", "B6"], "arr_delay": [1.0, None, 3.0, 4.0]})
PLACES = ((0, 0), (0, 1), (1, 0), (1, 1))
SIZES = {0: 2, 1: 2}
PLOT = Scenario(
    group="delays",
    topic="flights",
    partitions=2,
    records=4,
    kill_when="running",
    driver=lambda name, url: (),
    look=lambda name: BatchProgress(),
    late=[],
)


def write(folder: Path, name: str, flights: list[int]) -> None:
    """One file with some of the flights, as a Spark task writes it."""
    folder.mkdir(parents=True, exist_ok=True)
    rows = FLIGHTS.iloc[flights].assign(
        partition=[PLACES[one][0] for one in flights], offset=[PLACES[one][1] for one in flights]
    )
    rows.to_parquet(folder / f"{name}.parquet", index=False)


@pytest.fixture
def layout(tmp_path: Path) -> FlightsLayout:
    """A has written 0, 1 and 3; B has written 2, and was killed with 3 finished but out of sight."""
    layout = FlightsLayout(tmp_path)
    write(layout.batch(Batch("A", 0)), "part-0", [0])
    write(layout.batch(Batch("A", 0)), "part-1", [1])
    write(layout.batch(Batch("B", 0)), "part-0", [2])
    write(layout.batch(Batch("A", 1)), "part-0", [3])
    write(layout.batch(Batch("B", 1)) / "_temporary" / "0" / "task_1", "part-0", [3])
    return layout


def seen() -> RunRecord:
    """The run that left it behind."""
    return RunRecord(
        snapshots=[
            GroupSnapshot(0, 1, frozenset("AB"), {0: "A", 1: "B"}, 2),
            GroupSnapshot(80, 2, frozenset("A"), {0: "A", 1: "A"}, 4),
        ],
        events=[Event(50, "B is killed", alarm=True)],
        killed=Batch("B", 1),
        killed_batch=BatchProgress(1, 1, in_flight=True, writing=True),
        killed_at_ms=50,
        removed_at_ms=70,
        taken_over_at_ms=80,
        end_ms=100,
    )


def outcome(layout: FlightsLayout) -> Outcome:
    """The verdict on what lies there."""
    return judge(layout, seen(), FLIGHTS, SIZES, seconds=9.0)


def test_all_is_well(layout: FlightsLayout) -> None:
    verdict = outcome(layout)
    assert verdict.problems() == []
    assert (verdict.tally.distinct, verdict.tally.lost, verdict.tally.twice, verdict.unseen) == (4, 0, 0, 1)
    assert "batch 1 of driver B. 1 of its rows" in " ".join(verdict.sentences())


def test_a_deleted_file_is_a_loss_and_changes_the_table(layout: FlightsLayout) -> None:
    (layout.batch(Batch("A", 0)) / "part-1.parquet").unlink()
    verdict = outcome(layout)
    assert verdict.problems() == [
        "1 records are lost: 1 of partition 0.",
        "The carriers' table of the drivers differs from the one of the file.",
    ]
    assert verdict.to_json()["ok"] is False


def test_a_wrong_delay_is_found_though_every_record_was_read(layout: FlightsLayout) -> None:
    FLIGHTS.iloc[[3]].assign(partition=1, offset=1, arr_delay=5.0).to_parquet(
        layout.batch(Batch("A", 1)) / "part-0.parquet", index=False
    )
    assert outcome(layout).problems() == ["The carriers' table of the drivers differs from the one of the file."]


def test_what_the_killed_batch_had_in_place_counts_as_read_twice(layout: FlightsLayout) -> None:
    write(layout.batch(Batch("B", 1)), "part-0", [3])
    verdict = outcome(layout)
    assert (verdict.problems(), verdict.tally.twice) == ([], 1)
    assert "Read twice: batch 1 of driver B" in " ".join(verdict.sentences())


def test_an_empty_folder_is_a_loss_of_everything(tmp_path: Path) -> None:
    assert outcome(FlightsLayout(tmp_path)).tally.lost == 4
    assert read_output(FlightsLayout(tmp_path)).empty


def test_the_report_and_the_picture_are_written(layout: FlightsLayout) -> None:
    report, picture = save(layout.root, outcome(layout).to_json(), picture_of(seen(), PLOT, "four flights"))
    metrics = json.loads(report.read_text())
    assert (metrics["ok"], metrics["records"]["lost"], metrics["killed"]["batch_id"]) == (True, 0, 1)
    assert [(span["partition"], span["owner"], span["alive"]) for span in metrics["ownership"]] == [
        (0, "A", True),
        (1, "B", True),
        (1, "B", False),
        (1, "A", True),
    ]
    assert ElementTree.parse(picture).getroot().tag.endswith("svg")


@pytest.mark.parametrize("terminal", [True, False])
def test_the_last_words_hold_the_verdict(layout: FlightsLayout, terminal: bool) -> None:
    def words(status: int) -> str:
        console = Console(force_terminal=terminal, width=120, record=True, quiet=False, color_system=None)
        with console.capture() as captured:
            assert tell(console, outcome(layout), PLOT, {"UA": "United"}, [layout.root / "report.json"]) == status
        return captured.get()

    assert "✓ No record is lost" in words(0)
    assert "UA United" in words(0)
    (layout.batch(Batch("B", 0)) / "part-0.parquet").unlink()
    assert "✓ No record is lost" not in words(1)
    assert "✗ 1 records are lost" in words(1)
    assert "differs" in words(1)


def test_spark_s_books_say_how_far_a_driver_is(tmp_path: Path) -> None:
    layout = FlightsLayout(tmp_path)
    assert look_at_batches(layout, "B") == BatchProgress()
    books = layout.checkpoint("B")
    plan(books, 0, offset({0: 0}, p0=5), 1_000)
    complete(books, 0, 1_500)
    plan(books, 1, offset({}, p0=9), 2_000)
    assert look_at_batches(layout, "B") == BatchProgress(complete=1, last=1, in_flight=True)
    (layout.batch(Batch("B", 1)) / "_temporary" / "0" / "task_7").mkdir(parents=True)
    assert look_at_batches(layout, "B") == BatchProgress(complete=1, last=1, in_flight=True, writing=True)
    (layout.batch(Batch("B", 1)) / "part-0.parquet").touch()
    assert look_at_batches(layout, "B") == BatchProgress(complete=1, last=1, in_flight=True), "no moment for a kill"
    (layout.batch(Batch("B", 1)) / "_SUCCESS").touch()
    complete(books, 1, 2_500)
    assert look_at_batches(layout, "B") == BatchProgress(complete=2, last=1, written=True)
