"""Every checker earns its trust: the simulation runs on a copy of the packages with one fault in it, and must find it.

The same seeds pass on a copy without a fault, so it is the fault that is found.
"""

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.changed_code import change, copy_code
from tests.simulation.__main__ import failure_of
from tests.simulation.checker import Sight
from tests.simulation.checkers import Judge
from tests.simulation.plan import FOCI, plan_of
from tests.simulation.runner import run
from tests.sizes import by_size

ROOT = Path(__file__).parents[3]
COPIED = ("src", "protocol", "assignors", "coordinator", "member", "tests/simulation")
SCHEDULES = by_size(0, 10, 300)
"""Run without a fault: every law must hold in them. In more of them it holds by the tests of the simulation itself."""
OF_A_FOCUS = by_size(0, 10, 100)
"""As many with each focus."""
SCHEDULES_MAX = 2_000
"""Run with a fault, at the most: the first that breaks a law which is for it ends them. Most faults take a few."""
NEAR_SEED = 10
"""Run before them with a fault that has a `seed`, from that seed on."""
PLANTS: list[dict[str, Any]] = tomllib.loads((Path(__file__).parent / "plants.toml").read_text())["plant"]


def one_for_each_law() -> list[str]:
    """The names of plants that every run of all tests plants: for each law the first that it alone may find."""
    of_law = {plant["caught_by"][0]: plant["name"] for plant in reversed(PLANTS) if len(plant["caught_by"]) == 1}
    return list(of_law.values())


FIRST = one_for_each_law()
PARAMETERS = [
    pytest.param(plant, id=plant["name"].replace(" ", "-"), marks=[] if plant["name"] in FIRST else [pytest.mark.long])
    for plant in PLANTS
]


def copy(to: Path) -> None:
    copy_code(to, COPIED, "test_*")


def search(plant: dict[str, Any], where: Path) -> "subprocess.CompletedProcess[str]":
    """Run schedules of the copy until a law that is for the fault is broken, first those near the plant's seed."""
    chosen = ["--until", ",".join(plant["caught_by"])]
    if "focus" in plant:
        chosen += ["--focus", plant["focus"]]
    if "seed" in plant:
        done = simulate(where, "--from", str(plant["seed"]), "--schedules", str(NEAR_SEED), *chosen)
        if done.returncode != 0:
            return done
    return simulate(where, "--schedules", str(SCHEDULES_MAX), *chosen)


def simulate(where: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    """The simulation of the copy, in a process that sees no other."""
    environment = {**os.environ, "PYTHONPATH": f"{where / 'src'}{os.pathsep}{where}", "PYTHONDONTWRITEBYTECODE": "1"}
    command = (sys.executable, "-m", "tests.simulation", *arguments)
    return subprocess.run(command, cwd=where, env=environment, capture_output=True, text=True, check=False, timeout=900)


def test_the_text_that_each_plant_replaces_stands_in_the_code_once() -> None:
    """Seen in a moment, so that whoever changes a rule plants its faults again in the same commit."""
    astray = {plant["name"] for plant in PLANTS if (ROOT / plant["file"]).read_text().count(plant["old"]) != 1}
    assert astray == set()


def test_each_plant_is_python() -> None:
    """A plant that stands too far to the left ends every run at its import, and tests nothing."""
    for plant in PLANTS:
        text = (ROOT / plant["file"]).read_text()
        compile(text.replace(plant["old"], plant["new"]), plant["name"], "exec")


@pytest.mark.slow
@pytest.mark.parametrize("plant", PARAMETERS)
def test_the_planted_fault_is_found(plant: dict[str, Any], tmp_path: Path) -> None:
    copy(tmp_path)
    change(tmp_path / plant["file"], plant["old"], plant["new"])
    done = search(plant, tmp_path)
    found = re.search(r"^seed (\d+): (\w+): ", done.stdout, re.MULTILINE)
    assert done.returncode == 1, f"not found in {SCHEDULES_MAX} schedules\n{done.stdout}{done.stderr}"
    assert found, done.stdout + done.stderr
    assert found[2] in plant["caught_by"], done.stdout


@pytest.mark.slow
def test_without_a_fault_the_same_schedules_pass(tmp_path: Path) -> None:
    copy(tmp_path)
    done = simulate(tmp_path, "--schedules", str(SCHEDULES))
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("focus", FOCI)
def test_without_a_fault_those_of_each_focus_pass(focus: str) -> None:
    """Not in a copy: that a copy without a fault passes needs no second look."""
    for seed in range(1, OF_A_FOCUS + 1):
        result = run(seed, focus)
        assert result.violation is None, failure_of(result, focus)


@pytest.mark.slow
def test_without_a_fault_every_law_holds_where_faults_are_looked_for_first() -> None:
    for plant in PLANTS:
        if "seed" in plant:
            result = run(plant["seed"], plant.get("focus"))
            assert result.violation is None, failure_of(result, plant.get("focus"))


def test_for_each_law_there_is_a_plant_that_it_alone_may_find() -> None:
    laws = {type(law).__name__ for law in Judge(Sight(plan_of(1))).laws} | {"NoFault"}
    alone = {plant["caught_by"][0] for plant in PLANTS if len(plant["caught_by"]) == 1}
    assert laws - alone == set()
    assert len(FIRST) == len(alone)
    assert {name for plant in PLANTS for name in plant["caught_by"]} == laws
