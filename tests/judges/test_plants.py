"""The raw sequences notice a service that deviates from Kafka: each of plants.toml, in a copy of the code."""

import asyncio
import os
import shutil
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.end_to_end.service_process import ServiceProcess
from tests.judges.conftest import LIMITS, OPTIONS
from tests.judges.door_process import Judged, running_door
from tests.judges.test_raw_sequences import PATIENT_SECONDS, compared, first_difference

ROOT = Path(__file__).parents[2]
COPIED = ("src", "protocol", "assignors", "coordinator", "member", "cli", "spark_bridge", "examples", "tests")
PLANTS: list[dict[str, Any]] = tomllib.loads((Path(__file__).parent / "plants.toml").read_text())["plant"]
OFTEN = 3
"""So many of the first are planted in each full run; the others in a long one: each takes ten seconds of CPU time."""
OF_PLANTS = pytest.mark.parametrize(
    "plant",
    [
        pytest.param(
            plant,
            id=plant["name"].replace(" ", "-"),
            marks=[
                pytest.mark.judge("raw requests", "", f"notice a planted fault: {plant['name']}"),
                *(() if number < OFTEN else (pytest.mark.long,)),
            ],
        )
        for number, plant in enumerate(PLANTS)
    ],
)
SEQUENCES = 120
"""So many at most until one differs."""


def test_each_plant_has_its_place_and_is_python() -> None:
    for plant in PLANTS:
        text = (ROOT / plant["file"]).read_text()
        assert text.count(plant["old"]) == 1, plant["name"]
        compile(text.replace(plant["old"], plant["new"]), plant["name"], "exec")


@pytest.fixture
def planted(judged: Judged, plant: dict[str, Any], tmp_path: Path) -> Iterator[Judged]:
    """The broker that all share, and a service of its own whose code deviates."""
    code, store = tmp_path / "code", tmp_path / "store"
    store.mkdir()
    for name in COPIED:
        shutil.copytree(ROOT / name, code / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
    file = code / plant["file"]
    file.write_text(file.read_text().replace(plant["old"], plant["new"]))
    environment = {"PYTHONPATH": f"{code / 'src'}{os.pathsep}{code}"}
    service = ServiceProcess(store, OPTIONS, environment=environment, limits=LIMITS)
    try:
        service.start()
        with running_door(judged.kafka, service.url) as door:
            yield Judged(judged.kafka, door, service.url)
    finally:
        service.kill()
    assert " ERROR " not in service.log, "it fails, which is no deviation, and anybody would notice"


@pytest.mark.kafka
@pytest.mark.usefixtures("topics")
@OF_PLANTS
def test_the_deviation_is_noticed(plant: dict[str, Any], planted: Judged, judged: Judged) -> None:
    difference = asyncio.run(first_difference(planted, range(1, SEQUENCES + 1), plant["silent"]))
    assert difference is not None, f"{SEQUENCES} sequences, and none differs"
    without = asyncio.run(compared(judged, difference.steps, PATIENT_SECONDS))
    assert without.difference is None, f"so does the service without the fault:\n{without.difference}"
