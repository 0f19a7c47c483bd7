"""The demo as a user runs it: the service, two Spark drivers, a kill. Minutes."""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from subprocess import PIPE, STDOUT
from xml.etree import ElementTree

import psutil
import pytest

from examples.handover.service import describe_group

ROOT = Path(__file__).parents[2]


@pytest.mark.spark
@pytest.mark.programs
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_no_flight_is_lost(tmp_path: Path, java_home: Path) -> None:
    # A kill after the batch is written is played by the examples with a database, which are over sooner.
    folder = tmp_path / "out"
    command = [sys.executable, "-u", "-m", "examples.flights.demo", "--stay", "--output", str(folder)]
    environment = {**os.environ, "JAVA_HOME": str(java_home)}
    with subprocess.Popen(command, cwd=ROOT, env=environment, stdout=PIPE, stderr=STDOUT, text=True) as demo:
        assert demo.stdout is not None
        said = ""
        for line in demo.stdout:
            said += line
            if found := re.search(
                r"Two drivers share the group\. Its page: (http://127\.0\.0\.1:\d+)/#/groups/delays ", line
            ):
                group = describe_group(found[1], "delays")
                assert group is not None
                sharing = {member.client_id for member in group.members}
                demo.send_signal(signal.SIGINT)

    assert demo.returncode == 0, said
    assert re.search(r"live, while this runs: http://127\.0\.0\.1:\d+/#/groups/delays$", said, re.MULTILINE)
    assert sharing == {"A", "C"}
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
    # The grace of a lost connection is 2 s; the session would be 45 s.
    assert 1_500 < killed["taken_for_dead_at_ms"] - killed["at_ms"] < 40_000
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
