"""The wheel whose hot modules are compiled, built from this checkout, and a service and members that run on it."""

import json
import shutil
import subprocess
import sys
from itertools import chain
from pathlib import Path

import pytest

from tests.real.parts import ROOT, require_program

pytestmark = [pytest.mark.long, pytest.mark.timeout(1_500)]
"""To compile takes a processor four minutes. A full run has `tests/test_compiled.py`, which compiles nothing."""


@pytest.fixture(scope="module")
def python() -> Path:
    """The interpreter that has it."""
    require_program("cc", "sudo apt-get install gcc python3-dev")
    build = [ROOT / "scripts" / "compiled.sh", Path(sys.executable).parent]
    done = subprocess.run(build, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return Path(done.stdout.strip())


def run(*command: str | Path, cwd: Path) -> str:
    """What it prints."""
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_it_says_that_it_is_compiled(python: Path, tmp_path: Path) -> None:
    assert run(python, "-P", "-m", "rallypoint.cli.main", "--version", cwd=tmp_path).rstrip().endswith(", compiled")


def test_a_service_and_its_members_run_on_it(python: Path, tmp_path: Path) -> None:
    program = shutil.copy(ROOT / "tests" / "real" / "two_members.py", tmp_path)
    said = json.loads(run(python, program, cwd=tmp_path))
    assert (sorted(chain(*said["shares"])), said["committed"], said["status"]) == ([0, 1, 2, 3], 7, 0)


def test_what_was_not_changed_is_not_compiled_again(python: Path) -> None:
    """Else a measurement would begin with minutes of compiling."""
    built = python.stat().st_mtime_ns
    again = subprocess.run(
        [ROOT / "scripts" / "compiled.sh", Path(sys.executable).parent], capture_output=True, text=True, check=True
    )
    assert Path(again.stdout.strip()) == python
    assert python.stat().st_mtime_ns == built
    assert "compiling" not in again.stderr
