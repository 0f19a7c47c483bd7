"""One seed is one run: in any process, whatever the order of sets in it, and on a clock that nobody waits for."""

import asyncio
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.real.parts import PYTHON_PATH
from tests.simulation.loop import VirtualLoop
from tests.simulation.runner import run
from tests.sizes import by_size

ROOT = Path(__file__).parents[2]
PURE = pytest.mark.pure("nodes and channels of the simulation are subclasses of the real ones")
SEEDS = by_size(5, 8, 25)
OTHERS = by_size(1, 2)
"""Other processes than this one, each with an order of its own; one costs a second before it runs anything."""


def digests(hash_seed: str) -> list[str]:
    command = (sys.executable, "-m", "tests.simulation", "--digest", "--from", "1", "--schedules", str(SEEDS))
    paths = os.pathsep.join(filter(None, (PYTHON_PATH, os.environ.get("PYTHONPATH"))))
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": paths}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    return [line for line in done.stdout.splitlines() if line[:1].isdigit() and len(line.split()) == 2]


@PURE
@pytest.mark.slow
def test_a_seed_is_the_same_run_in_any_process_whatever_the_order_of_sets() -> None:
    first, *others = [digests(str(hash_seed)) for hash_seed in range(1, 1 + OTHERS)]
    assert len(first) == SEEDS
    assert len({line.split()[1] for line in first}) == SEEDS, "two seeds gave one run"
    assert all(other == first for other in others)
    assert [f"{seed} {run(seed).digest}" for seed in range(1, SEEDS + 1)] == first


def test_virtual_hours_take_no_time_and_come_in_order() -> None:
    loop = VirtualLoop()
    came: list[tuple[float, str]] = []

    async def wait(hours: int, name: str) -> None:
        await asyncio.sleep(hours * 3600)
        came.append((loop.time(), name))

    async def main() -> None:
        await asyncio.gather(wait(3, "c"), wait(1, "a"), wait(2, "b"))

    began = time.monotonic()
    try:
        loop.run_until_complete(main())
    finally:
        loop.close()
    assert came == [(3600.0, "a"), (7200.0, "b"), (10800.0, "c")]
    assert time.monotonic() - began < 60
