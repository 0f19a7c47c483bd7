"""The simulation of the cluster runs on a copy of the packages with one fault in it, and must find it."""

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.changed_code import change, copy_code

ROOT = Path(__file__).parents[4]
COPIED = ("src", "protocol", "assignors", "coordinator", "member", "tests/simulation", "tests/fakes")
SCHEDULES_MAX = 400
"""Run with a fault, at the most: the first that breaks a law which is for it ends them. Most faults take a few."""
NEAR_SEED = 5
"""Run before them with a fault that has a `seed`, from that seed on."""
PLANTS: list[dict[str, Any]] = tomllib.loads((Path(__file__).parent / "plants.toml").read_text())["plant"]
OF_THE_FENCE = 5
PARAMETERS = [
    pytest.param(plant, id=plant["name"].replace(" ", "-"), marks=[] if number < OF_THE_FENCE else [pytest.mark.long])
    for number, plant in enumerate(PLANTS)
]


def test_the_text_that_each_plant_replaces_stands_in_the_code_once() -> None:
    """Seen in a moment, so that whoever changes a rule plants its faults again in the same commit."""
    astray = {plant["name"] for plant in PLANTS if (ROOT / plant["file"]).read_text().count(plant["old"]) != 1}
    assert astray == set()


def test_each_plant_is_python() -> None:
    """A plant that cannot be imported ends every run at once, and tests nothing."""
    for plant in PLANTS:
        text = (ROOT / plant["file"]).read_text()
        compile(text.replace(plant["old"], plant["new"]), plant["name"], "exec")


@pytest.mark.slow
@pytest.mark.parametrize("plant", PARAMETERS)
def test_the_planted_fault_is_found(plant: dict[str, Any], tmp_path: Path) -> None:
    copy_code(tmp_path, COPIED, "test_*")
    change(tmp_path / plant["file"], plant["old"], plant["new"])
    environment = {
        **os.environ,
        "PYTHONPATH": f"{tmp_path / 'src'}{os.pathsep}{tmp_path}",
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    command = (sys.executable, "-m", "tests.simulation.cluster", "--focus", plant.get("focus", ""))
    near = [("--seed", str(plant["seed"]), "--schedules", str(NEAR_SEED))] if "seed" in plant else []
    for schedules in (*near, ("--schedules", str(SCHEDULES_MAX))):
        done = subprocess.run(
            (*command, *schedules, "--until", ",".join(plant["caught_by"])),
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=900,
        )
        if done.returncode != 0:
            break
    found = re.search(r"^seed (\d+): (\w+): ", done.stdout, re.MULTILINE)
    assert done.returncode == 1, f"not found in {SCHEDULES_MAX} schedules\n{done.stdout}{done.stderr}"
    assert found, done.stdout + done.stderr
    assert found[2] in plant["caught_by"], done.stdout
