"""The cluster as a user runs it, small: three members of etcd, three nodes, a kill and a pause."""

import json
import os
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import psutil
import pytest

from tests.real.etcd import REMEDY, find_etcd
from tests.real.parts import PYTHON_PATH, ROOT, require

GROUPS = 6


@pytest.mark.etcd
@pytest.mark.slow
def test_nothing_is_lost_when_a_node_is_killed_and_one_is_paused(tmp_path: Path) -> None:
    require(find_etcd(), "etcd", REMEDY)
    folder = tmp_path / "out"
    command = [sys.executable, "-m", "examples.cluster", "--output", str(folder)]
    command += ["--faults", "kill", "pause", "--groups", str(GROUPS)]

    done = subprocess.run(
        command, cwd=ROOT, env={**os.environ, "PYTHONPATH": PYTHON_PATH}, capture_output=True, text=True, check=False
    )

    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads((folder / "report.json").read_text())
    assert (report["ok"], report["problems"]) == (True, [])
    killed, started, paused, woken = report["episodes"]
    for episode in (killed, started, paused, woken):
        assert (episode["times"], episode["rebalances"]) == (1, 0)
        assert episode["acknowledged"] > GROUPS
        assert episode["moved"] > 0
    # The node that is gone without a word keeps what it has until its lease has run out.
    assert killed["median_ms"] > report["lease_ttl_ms"] / 2
    commits, history = report["commits"], report["history"]
    assert (commits["lost"], commits["gone_back"]) == (0, 0)
    assert history["generations"] >= GROUPS
    assert history["hand_overs"] > 0
    assert history["appends"] > commits["acknowledged"] / GROUPS
    assert {node_id for _, _, node_id in report["owners"]} == {"a", "b", "c", None}
    bars = ElementTree.parse(folder / "coordinators.svg").iter("{http://www.w3.org/2000/svg}rect")
    assert len(list(bars)) > 50
    assert not [
        process.pid
        for process in psutil.process_iter(["cmdline"])
        if str(folder) in " ".join(process.info["cmdline"] or ())
    ]
