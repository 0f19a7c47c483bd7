"""Each attack has a defence, and a test that fails without it.

Which, attacks.toml says. Here a copy of the code has one defence after the other taken away, and that test must see it.
"""

import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.fakes.changed_code import change, copy_code, write

ROOT = Path(__file__).parents[2]
COPIED = (
    "src",
    "protocol",
    "assignors",
    "coordinator",
    "member",
    "cli",
    "spark_bridge",
    "examples",
    "bench",
    "docs",
    "tests",
)
ATTACKS: list[dict[str, str]] = tomllib.loads((Path(__file__).parent / "attacks.toml").read_text())["attack"]
OF_ATTACKS = pytest.mark.parametrize("attack", ATTACKS, ids=[attack["name"].replace(" ", "-") for attack in ATTACKS])


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    to = tmp_path_factory.mktemp("copy")
    copy_code(to, COPIED)
    shutil.copy(ROOT / "pyproject.toml", to)
    return to


def run_test(test: str, where: Path) -> "subprocess.CompletedProcess[str]":
    """In a process that sees the copy alone."""
    environment = {**os.environ, "PYTHONPATH": f"{where / 'src'}{os.pathsep}{where}", "PYTHONDONTWRITEBYTECODE": "1"}
    command = (sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-p", "no:xdist", test)
    return subprocess.run(command, cwd=where, env=environment, capture_output=True, text=True, check=False, timeout=600)


def test_each_defence_stands_in_the_code_once_and_without_it_the_code_is_python() -> None:
    """Seen in a moment, so that whoever changes a defence changes its row in the same commit."""
    for attack in ATTACKS:
        text = (ROOT / attack["file"]).read_text()
        assert text.count(attack["old"]) == 1, attack["name"]
        compile(text.replace(attack["old"], attack["new"]), attack["name"], "exec")


def test_each_attack_has_a_name_of_its_own_and_a_test_that_is_there() -> None:
    assert len({attack["name"] for attack in ATTACKS}) == len(ATTACKS)
    for attack in ATTACKS:
        file, _, test = attack["test"].partition("::")
        assert f"def {test}(" in (ROOT / file).read_text(), attack["name"]


@pytest.mark.long
@OF_ATTACKS
def test_the_attack_is_seen_without_its_defence(attack: dict[str, str], copy: Path) -> None:
    file = copy / attack["file"]
    text = file.read_text()
    try:
        change(file, attack["old"], attack["new"])
        done = run_test(attack["test"], copy)
    finally:
        write(file, text)
    assert done.returncode == 1, f"{done.stdout}{done.stderr}"
    assert " failed" in done.stdout, "the test itself has to object: an error before it proves nothing"


@pytest.mark.long
def test_with_all_defences_each_of_these_tests_passes(copy: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": f"{copy / 'src'}{os.pathsep}{copy}"}
    tests = sorted({attack["test"] for attack in ATTACKS})
    command = (sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", *tests)
    done = subprocess.run(command, cwd=copy, env=environment, capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, f"{done.stdout}{done.stderr}"
