"""Of several processes that run tests, one runs all that share something: seen in a run of its own."""

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.real.parts import PYTHON_PATH, ROOT

MODULE = """
import os
from pathlib import Path
import pytest

pytestmark = [getattr(pytest.mark, name) for name in {markers!r}]

def test_where() -> None:
    Path({file!r}).write_text(os.environ["PYTEST_XDIST_WORKER"])
"""
GROUPS = {
    "programs": ["spark", "programs"],
    "drivers": ["spark", "drivers"],
    "spark": ["spark"],
    "kafka": ["kafka"],
}
"""The markers of a module of each."""


@pytest.mark.slow
def test_modules_that_share_something_run_in_one_process(tmp_path: Path) -> None:
    """Each process is handed a module at once, unless two are a group. Those of a group do not stand side by side."""
    for number, group in enumerate([*GROUPS, *GROUPS]):
        text = MODULE.format(markers=GROUPS[group], file=str(tmp_path / f"{group}-{number}.txt"))
        (tmp_path / f"test_{number}.py").write_text(text)
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-c", ROOT / "pyproject.toml", "--rootdir", tmp_path, "-p", "tests.conftest",
         "-p", "no:cacheprovider", "--numprocesses", str(len(GROUPS)), "--dist", "loadgroup",
         "--no-loadscope-reorder", tmp_path],
        cwd=tmp_path, env={**kept, "PYTHONPATH": PYTHON_PATH}, capture_output=True, text=True, timeout=200, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    where = Counter((file.name.split("-")[0], file.read_text()) for file in tmp_path.glob("*.txt"))
    assert sorted(where.values()) == [2] * len(GROUPS)
    assert len({process for _, process in where}) == len(GROUPS)
