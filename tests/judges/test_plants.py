"""The raw sequences notice a service that deviates from Kafka: each of plants.toml, in a copy of the code."""

import asyncio
import os
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.end_to_end.service_process import ServiceProcess
from tests.fakes.changed_code import change, copy_code
from tests.judges.conftest import LIMITS, OPTIONS
from tests.judges.door_process import Judged, running_door
from tests.judges.test_raw_sequences import AT_ONCE, compared_twice, first_difference

ROOT = Path(__file__).parents[2]
COPIED = ("src", "protocol", "assignors", "coordinator", "member", "cli", "spark_bridge", "examples", "tests")
PLANTS: list[dict[str, Any]] = tomllib.loads((Path(__file__).parent / "plants.toml").read_text())["plant"]
OFTEN = 2
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
AT_ONCE_NEAR = 3
"""Where it is known which sequence notices it: that one is the first."""
PATIENT_SECONDS = 1.0
"""Half of what the sequences themselves have: a session of silent clients lasts twenty times as long, and is waited for
twice.
"""


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
    copy_code(code, COPIED)
    change(code / plant["file"], plant["old"], plant["new"])
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
    is_silent, near = plant["silent"], plant.get("seed")
    seeds = sorted(range(1, SEQUENCES + 1), key=lambda seed: (seed != near, seed))
    at_once = AT_ONCE[is_silent] if near is None else AT_ONCE_NEAR
    difference = asyncio.run(first_difference(planted, seeds, is_silent, at_once, PATIENT_SECONDS))
    assert difference is not None, f"{SEQUENCES} sequences, and none differs"
    without = asyncio.run(compared_twice(judged, difference.steps, PATIENT_SECONDS))
    assert without.difference is None, f"so does the service without the fault:\n{without.difference}"
