"""The examples that write to a database, as a user runs them: the service, two Spark drivers, a kill."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import psutil
import pytest

ROOT = Path(__file__).parents[2]


def run(java_home: Path, folder: Path, *arguments: str) -> tuple[subprocess.CompletedProcess[str], dict[str, Any]]:
    """Run an example to its end; what it printed, and its report."""
    command = [sys.executable, "-m", *arguments, "--output", str(folder)]
    environment = {**os.environ, "JAVA_HOME": str(java_home)}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert (folder / "report.json").is_file(), done.stdout + done.stderr
    ElementTree.parse(folder / "ownership.svg")
    assert not [
        process.pid
        for process in psutil.process_iter(["cmdline"])
        if str(folder) in " ".join(process.info["cmdline"] or ())
    ]
    return done, json.loads((folder / "report.json").read_text())


def assert_played(report: dict[str, Any]) -> None:
    """Both drivers owned something, B was killed, and A has taken over what B left."""
    owners = {(span["owner"], span["alive"]) for span in report["ownership"]}
    assert owners == {("A", True), ("B", True), ("B", False)}
    assert report["partitions_handed_over"] >= 4
    assert report["partitions_taken_over"] >= 4
    assert report["killed"]["taken_over_at_ms"] > report["killed"]["at_ms"]
    assert {bar["driver"] for bar in report["batches"] if bar["records"]} == {"A", "B"}


@pytest.mark.spark
@pytest.mark.programs
@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.long
def test_every_word_is_counted_once(tmp_path: Path, java_home: Path) -> None:
    done, report = run(java_home, tmp_path / "out", "examples.wordcount", "--kill-when", "running")
    assert (done.returncode, report["problems"]) == (0, []), done.stdout
    assert report["counts"]["occurrences"] > 10_000
    assert_played(report)


@pytest.mark.spark
@pytest.mark.programs
@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.long
def test_a_sink_without_positions_counts_a_batch_twice_and_the_example_says_so(tmp_path: Path, java_home: Path) -> None:
    done, report = run(java_home, tmp_path / "out", "examples.wordcount", "--kill-when", "written", "--sink", "plain")
    assert (done.returncode, report["ok"]) == (1, False), done.stdout
    assert report["counts"]["surplus"] > 0
    assert report["counts"]["lost"] == 0
    assert report["records_planned_again"] > 0
    assert "occurrences of words were counted twice." in done.stdout


@pytest.mark.spark
@pytest.mark.programs
@pytest.mark.postgresql
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_every_order_is_in_the_table_once(tmp_path: Path, java_home: Path, postgresql: str) -> None:
    done, report = run(
        java_home, tmp_path / "out", "examples.exactly_once", "--kill-when", "written", "--postgresql", postgresql
    )
    assert (done.returncode, report["problems"]) == (0, []), done.stdout
    records = report["records"]
    assert (records["records"], records["rows"], records["distinct"]) == (20_000, 20_000, 20_000)
    assert min(records["rows_by_driver"][name] for name in "AB") > 0
    # What B had written and not committed was read again: that it is not there twice is the sink's doing.
    assert report["killed"]["batch_written"]
    assert report["records_planned_again"] > 0
    assert_played(report)
