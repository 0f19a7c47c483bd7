"""Every checker earns its trust: the simulation runs on a copy of the packages with one fault in it, and must find it.

The same seeds pass on a copy without a fault, so it is the fault that is found.
"""

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from tests.simulation.checker import Sight
from tests.simulation.checkers import Judge
from tests.simulation.plan import plan_of

ROOT = Path(__file__).parents[3]
PACKAGES = ("protocol", "assignors", "coordinator", "member", "tests/simulation")
SCHEDULES = 300
"""Run without a fault: every law must hold in them."""
SCHEDULES_MAX = 2_000
"""Run with a fault, at the most: the first that breaks a law which is for it ends them. Most faults take a few."""
PLANTS: list[dict[str, Any]] = tomllib.loads((Path(__file__).parent / "plants.toml").read_text())["plant"]

pytestmark = pytest.mark.slow


def copy(to: Path) -> None:
    for package in PACKAGES:
        shutil.copytree(ROOT / package, to / package, ignore=shutil.ignore_patterns("__pycache__", "test_*.py"))


def simulate(where: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    """The simulation of the copy, in a process that sees no other."""
    environment = {**os.environ, "PYTHONPATH": str(where), "PYTHONDONTWRITEBYTECODE": "1"}
    command = (sys.executable, "-m", "tests.simulation", *arguments)
    return subprocess.run(command, cwd=where, env=environment, capture_output=True, text=True, check=False, timeout=240)


@pytest.mark.parametrize("plant", PLANTS, ids=[plant["name"].replace(" ", "-") for plant in PLANTS])
def test_the_planted_fault_is_found(plant: dict[str, Any], tmp_path: Path) -> None:
    copy(tmp_path)
    file = tmp_path / plant["file"]
    text = file.read_text()
    assert text.count(plant["old"]) == 1, f"{plant['file']} is not as it was: {plant['old']!r}"
    file.write_text(text.replace(plant["old"], plant["new"]))
    done = simulate(tmp_path, "--schedules", str(SCHEDULES_MAX), "--until", ",".join(plant["caught_by"]))
    found = re.search(r"^seed (\d+): (\w+): ", done.stdout, re.MULTILINE)
    assert done.returncode == 1, f"not found in {SCHEDULES_MAX} schedules\n{done.stdout}{done.stderr}"
    assert found, done.stdout + done.stderr
    assert found[2] in plant["caught_by"], done.stdout


def test_without_a_fault_the_same_schedules_pass(tmp_path: Path) -> None:
    copy(tmp_path)
    done = simulate(tmp_path, "--schedules", str(SCHEDULES))
    assert done.returncode == 0, done.stdout + done.stderr


def test_for_each_law_there_is_a_plant_that_it_alone_may_find() -> None:
    laws = {type(law).__name__ for law in Judge(Sight(plan_of(1))).laws} | {"NoFault"}
    alone = {plant["caught_by"][0] for plant in PLANTS if len(plant["caught_by"]) == 1}
    assert laws - alone == set()
    assert {name for plant in PLANTS for name in plant["caught_by"]} == laws
