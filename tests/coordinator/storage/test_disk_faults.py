"""Each call that the store makes of its disk fails, once and for good; `tests/fakes/disk_fault_cases.py` says how, and
`copy_fault_cases.py` for backup and restore.
"""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fakes.faulty_disk import environment_of


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """In memory where there is such a place: the disk's own syncs are not what is looked at."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else tmp_path) as folder:
        yield Path(folder)


@pytest.mark.slow
def test_whatever_call_of_the_disk_fails_nothing_is_lost_and_the_first_good_write_works(folder: Path) -> None:
    struck = run_cases(folder, "tests.fakes.disk_fault_cases")
    parts = ("making", "opening", "using", "recovering", "closing")
    assert {name.split()[0] for name in struck} == set(parts)
    for name in (
        "making RENAME",
        "opening OPEN",
        "opening MMAP",
        "using WRITE",
        "using SYNC",
        "using TRUNCATE",
        "closing UNLINK",
    ):
        assert struck[name] > 0, "the suite strikes what it is meant to strike"
    assert sum(struck.values()) > 500


@pytest.mark.slow
def test_a_copy_on_a_disk_that_fails_is_whole_or_refused(folder: Path) -> None:
    struck = run_cases(folder, "tests.fakes.copy_fault_cases")
    for part in ("backing_up", "restoring"):
        for call in ("OPEN", "WRITE", "SYNC", "UNLINK", "RENAME"):
            assert struck[f"{part} {call}"] > 0, "the suite strikes what it is meant to strike"
    for where in ("in_place", "aside", "beside_the_restored"):
        assert struck[f"left {where}"] > 0, "each end of a restore that failed is looked at"
    assert sum(struck.values()) > 150


def run_cases(folder: Path, program: str) -> dict[str, int]:
    """How often each kind of call failed in each part."""
    store = folder / "store"
    store.mkdir()
    command = [sys.executable, "-m", program, str(store), str(folder / "plan")]
    if os.environ.get("EVERY_ERROR"):
        command.append("full")
    environment = environment_of(folder, store) | {"PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    return {part: int(count) for part, _, count in (line.rpartition(" ") for line in done.stdout.splitlines())}
