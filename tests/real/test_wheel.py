"""The distribution as users get it: a wheel in an empty environment, beside others whose packages have our names."""

import json
import shutil
import subprocess
import sys
import zipfile
from itertools import chain
from pathlib import Path

import pytest

from tests.real.parts import ROOT, require
from tests.real.pythons import InstallError, copy_project, run_pip

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

NAMESAKES = ("protocol", "member", "coordinator")
"""Distributions of the index whose packages are called as folders of this project."""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from a copy, so that nothing is built in the checkout."""
    folder = tmp_path_factory.mktemp("wheel")
    try:
        run_pip(
            Path(sys.executable), "wheel", "--no-deps", "--wheel-dir", str(folder), str(copy_project(folder / "in"))
        )
    except InstallError as error:
        require(False, "package index", str(error))
    (built,) = folder.glob("*.whl")
    return built


def test_the_wheel_has_one_package_and_no_tests(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as zipped:
        names = zipped.namelist()
    assert {name.partition("/")[0] for name in names if ".dist-info/" not in name} == {"rallypoint"}
    packages = {name.split("/")[1] for name in names if name.count("/") > 1 and ".dist-info/" not in name}
    assert packages == {"assignors", "cli", "coordinator", "member", "protocol", "spark_bridge"}
    assert "rallypoint/py.typed" in names
    page = ROOT / "coordinator" / "http" / "ui"
    files = {f"{folder}/{path.name}" for folder in ("static", "vendor") for path in (page / folder).iterdir()}
    assert {f"rallypoint/coordinator/http/ui/{name}" for name in files} <= set(names), "the operators' page"


def test_it_works_in_an_empty_environment_beside_its_folders_namesakes(wheel: Path, tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "env")], check=True)
    python = tmp_path / "env" / "bin" / "python"
    try:
        # What is not imported needs no bytecode: to compile all of it takes longer than the rest.
        for arguments in (("-c", str(ROOT / "constraints.txt"), str(wheel)), ("--no-deps", *NAMESAKES)):
            run_pip(Path(sys.executable), "install", "--no-compile", *arguments, into=python)
    except InstallError as error:
        require(False, "package index", str(error))
    (tmp_path / "here").mkdir()
    program = shutil.copy(ROOT / "tests" / "real" / "two_members.py", tmp_path / "here")
    (tmp_path / "here" / "protocol.py").write_text("raise RuntimeError('a file beside the program was imported')\n")
    done = subprocess.run(
        [python, program], cwd=tmp_path / "here", capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert (sorted(chain(*said["shares"])), said["committed"], said["status"]) == ([0, 1, 2, 3], 7, 0)
    version = subprocess.run([python.parent / "rallypoint", "--version"], capture_output=True, text=True, check=True)
    assert version.stdout.startswith("rallypoint ")
