"""The simulation of the cluster runs on a copy of the packages with one fault in it, and must find it."""

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[4]
PACKAGES = ("protocol", "assignors", "coordinator", "member", "tests/simulation", "tests/fakes")
SCHEDULES_MAX = 400
"""Run with a fault, at the most: the first that breaks a law which is for it ends them. Most faults take a few."""
PLANTS: list[dict[str, Any]] = tomllib.loads((Path(__file__).parent / "plants.toml").read_text())["plant"]
OF_THE_FENCE = 5
PARAMETERS = [
    pytest.param(plant, id=plant["name"].replace(" ", "-"), marks=[] if number < OF_THE_FENCE else [pytest.mark.long])
    for number, plant in enumerate(PLANTS)
]


def copy(to: Path) -> None:
    shutil.copytree(ROOT / "src", to / "src", symlinks=True)
    for package in PACKAGES:
        shutil.copytree(ROOT / package, to / package, ignore=shutil.ignore_patterns("__pycache__", "test_*.py"))


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
    copy(tmp_path)
    file = tmp_path / plant["file"]
    file.write_text(file.read_text().replace(plant["old"], plant["new"]))
    environment = {
        **os.environ,
        "PYTHONPATH": f"{tmp_path / 'src'}{os.pathsep}{tmp_path}",
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    command = (sys.executable, "-m", "tests.simulation.cluster", "--schedules", str(SCHEDULES_MAX))
    done = subprocess.run(
        (*command, "--focus", plant.get("focus", ""), "--until", ",".join(plant["caught_by"])),
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=900,
    )
    found = re.search(r"^seed (\d+): (\w+): ", done.stdout, re.MULTILINE)
    assert done.returncode == 1, f"not found in {SCHEDULES_MAX} schedules\n{done.stdout}{done.stderr}"
    assert found, done.stdout + done.stderr
    assert found[2] in plant["caught_by"], done.stdout
