"""The service and its member on other versions of Python than the one of these tests, as far as they are here.

A version that is not here is not missing: Debian has one. CONTRIBUTING.md says what is tried where.
"""

import json
import os
import subprocess
import tomllib
from itertools import chain
from pathlib import Path

import pytest

from tests.real.parts import PYTHON_PATH, ROOT, require
from tests.real.pythons import IN_FULL, OTHERS, InstallError, find_python, make_environment
from tests.sizes import in_long

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

UNITS = ("tests/protocol", "tests/coordinator/core", "tests/member/core")
RUN_SECONDS = 300.0
# What an exception keeps, and how many turns of the loop a call takes, differs between versions.
ORDERS = ("tests/coordinator/http/test_ended_connections.py", "tests/member/channel/test_random_channels.py")
# More examples of a property find what is wrong with a rule, and that is the same on each version.
SMALL = ("--size", "small")
WITHOUT = ("--ignore", "tests/coordinator/core/test_bounded_steps.py")


@pytest.fixture(params=[version if version in IN_FULL else in_long(version) for version in OTHERS])
def python(request: pytest.FixtureRequest) -> Path:
    """Of each version, with what a service and a member need."""
    version: str = request.param
    found = find_python(version)
    if found is None:
        pytest.skip(f"not on this machine: python{version}, on PATH or of pyenv")
    try:
        return make_environment(version, found)
    except InstallError as error:
        require(False, "package index", str(error))
        raise


def run(python: Path, *command: str) -> "subprocess.CompletedProcess[str]":
    """With warnings as errors, and nothing of this environment."""
    environment = {**os.environ, "PYTHONPATH": PYTHON_PATH, "PYTHONWARNINGS": "error"}
    return subprocess.run(
        [python, *command], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=RUN_SECONDS, check=False
    )


def test_a_group_works_and_its_units_pass(python: Path) -> None:
    done = run(python, "-m", "tests.real.two_members")
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    said = json.loads(done.stdout)
    assert (sorted(map(len, said["shares"])), sorted(chain(*said["shares"]))) == ([2, 2], [0, 1, 2, 3])
    assert (said["committed"], said["status"]) == (7, 0)
    done = run(python, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *SMALL, *UNITS, *ORDERS, *WITHOUT)
    assert done.returncode == 0, done.stdout[-5000:]


def test_the_versions_that_are_promised_are_those_that_are_tried() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    prefix = "Programming Language :: Python :: 3."
    named = [one.removeprefix(prefix) for one in project["classifiers"] if one.startswith(prefix)]
    assert [f"3.{minor}" for minor in named] == ["3.11", *OTHERS]
    assert project["requires-python"] == ">=3.11"
