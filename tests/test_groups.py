"""Of several processes that run tests, one runs all that share something: seen in a run of its own."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.real.parts import PYTHON_PATH, ROOT

MODULE = """
import os
from pathlib import Path
import pytest

@pytest.mark.{marker}
def test_where() -> None:
    Path({file!r}).write_text(os.environ["PYTEST_XDIST_WORKER"])
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("markers", "workers"),
    [(("spark", "spark"), 1), (("drivers", "drivers"), 1), (("spark", "drivers"), 2), (("spark", "kafka"), 2)],
)
def test_modules_that_share_something_run_in_one_process(
    tmp_path: Path, markers: tuple[str, str], workers: int
) -> None:
    """Two processes are handed a module each at once, unless the two are a group."""
    for number, marker in enumerate(markers):
        text = MODULE.format(marker=marker, file=str(tmp_path / f"{number}.txt"))
        (tmp_path / f"test_{number}.py").write_text(text)
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-c", ROOT / "pyproject.toml", "--rootdir", tmp_path, "-p", "tests.conftest",
         "-p", "no:cacheprovider", "--numprocesses", "2", "--dist", "loadgroup", "--no-loadscope-reorder", tmp_path],
        cwd=tmp_path, env={**kept, "PYTHONPATH": PYTHON_PATH}, capture_output=True, text=True, timeout=200, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert len({(tmp_path / f"{number}.txt").read_text() for number in range(2)}) == workers
