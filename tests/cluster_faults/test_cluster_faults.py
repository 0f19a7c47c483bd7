"""Real nodes and a real etcd on hosts of their own, under faults; and without the fence, where the judges object."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.cluster_faults.command import NOT_PERMITTED
from tests.cluster_faults.faults import FAULTS
from tests.cluster_faults.network import missing_programs
from tests.cluster_faults.servers import find_faketime
from tests.real.etcd import REMEDY, find_etcd
from tests.real.parts import PYTHON_PATH, ROOT, require
from tests.real.porcupine import REMEDY as PORCUPINE_REMEDY
from tests.real.porcupine import find_porcupine
from tests.sizes import by_size

pytestmark = [pytest.mark.etcd, pytest.mark.slow]

GROUPS = 4
INTERVAL_MS = by_size(0, 600, 200)
"""Between the commits of a member. That many of them meet a fault is what a long run is for."""
ATTEMPTS_MAX = 4
"""Runs without the fence, until both judges have objected."""


def played(folder: Path, *options: str) -> tuple[int, str, dict[str, Any]]:
    """The exit status, what was said, and the report."""
    require(find_etcd(), "etcd", REMEDY)
    require(find_porcupine(), "porcupine", PORCUPINE_REMEDY)
    require(not missing_programs(), "programs", " ".join(missing_programs()))
    require(find_faketime(), "libfaketime", "apt-get install libfaketime")
    command = [sys.executable, "-m", "tests.cluster_faults", "--output", str(folder), "--groups", str(GROUPS), *options]
    done = subprocess.run(
        command, cwd=ROOT, env={**os.environ, "PYTHONPATH": PYTHON_PATH}, capture_output=True, text=True, check=False
    )
    if done.returncode == NOT_PERMITTED:
        pytest.skip(f"not permitted here: {done.stderr}")
    assert done.returncode in {0, 1}, done.stdout + done.stderr
    return done.returncode, done.stdout + done.stderr, json.loads((folder / "report.json").read_text())


@pytest.mark.parametrize(
    "faults",
    [
        ("etcd-cut-in", "clock"),
        pytest.param(tuple(FAULTS), marks=pytest.mark.long),
    ],
    ids=lambda faults: f"{len(faults)}-from-{faults[0]}",
)
def test_nothing_is_lost_and_every_history_has_an_order(tmp_path: Path, faults: tuple[str, ...]) -> None:
    status, said, report = played(tmp_path / "out", "--interval-ms", str(INTERVAL_MS), "--faults", *faults)
    assert (status, report["problems"]) == (0, []), said
    assert [row["fault"] for row in report["faults"]] == list(faults)
    for row in report["faults"]:
        assert row["rounds"] == 1
        assert row["acknowledged"] > GROUPS, "there was no load, so this shows nothing"
    assert report["porcupine"]["operations"] > report["members"]["acknowledged"]
    assert report["history"]["appends"] > 0
    assert not [
        process.pid
        for process in psutil.process_iter(["cmdline"])
        if str(tmp_path) in " ".join(process.info["cmdline"] or ())
    ]


@pytest.mark.long
def test_without_the_fence_both_judges_object(tmp_path: Path) -> None:
    """Whether a node that wakes does harm is a matter of chance, as is whether a client sees it."""
    objected: set[str] = set()
    told = ""
    for attempt in range(ATTEMPTS_MAX):
        _, said, report = played(tmp_path / str(attempt), "--faults", "pause", "--rounds", "2", "--without-fence")
        told += said
        objected |= judges_of(report)
        if objected == {"audit", "porcupine"}:
            return
    pytest.fail(f"only {objected or 'nobody'} objects\n{told}")


def judges_of(report: dict[str, Any]) -> set[str]:
    """Who objected."""
    rounds = report["rounds"]
    written = [said for one in rounds for said in one["objections"] if "written under the epoch" in said]
    unordered = [*report["porcupine"]["problems"], *(said for one in rounds for said in one["not_linearizable"])]
    return {name for name, objections in (("audit", written), ("porcupine", unordered)) if objections}
