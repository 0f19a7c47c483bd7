"""The demo as a user runs it: the service, two Spark drivers, a kill. Minutes."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import psutil
import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_no_flight_is_lost(tmp_path: Path, java_home: Path) -> None:
    # A kill after the batch is written is played by the examples with a database, which are over sooner.
    folder = tmp_path / "out"
    command = [sys.executable, "-m", "examples.flights.demo", "--output", str(folder)]

    done = subprocess.run(
        command, cwd=ROOT, env={**os.environ, "JAVA_HOME": str(java_home)}, capture_output=True, text=True, check=False
    )

    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"live, while this runs: http://127\.0\.0\.1:\d+/#/groups/delays$", done.stdout, re.MULTILINE)
    report = json.loads((folder / "report.json").read_text())
    records = report["records"]
    assert report["ok"]
    assert (records["records"], records["distinct"], records["lost"]) == (336_776, 336_776, 0)
    assert sum(carrier["flights"] for carrier in report["carriers"]) == 336_776
    assert min(records["rows_by_driver"][name] for name in "AB") > 9_000
    owners = {(span["owner"], span["alive"]) for span in report["ownership"]}
    assert owners == {("A", True), ("B", True), ("B", False)}
    killed = report["killed"]
    assert killed["driver"] == "B"
    # The grace of a lost connection is 2 s.
    assert 1_500 < killed["taken_for_dead_at_ms"] - killed["at_ms"] < 20_000
    # Nothing but the killed batch, of at most so many records, is read twice.
    assert records["twice"] <= 9_000
    if not killed["batch_written"]:
        assert records["twice"] == 0
    ElementTree.parse(folder / "ownership.svg")
    assert not [
        process.pid
        for process in psutil.process_iter(["cmdline"])
        if str(folder) in " ".join(process.info["cmdline"] or ())
    ]
