"""The rule for missing parts: a skip with its reason on a machine of a person, a failure where CI is set."""

import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from threading import Barrier

import pytest

from tests.real.parts import PYTHON_PATH, ROOT, alone_in, free_port, whole_lines

CASES = """
import pytest
from tests.real.parts import require

@pytest.fixture
def part():
    require(None, "part", "get one")

def test_fixture(part): ...
def test_body(): require(False, "part", "get one")
def test_present(): require(True, "part", "get one")
@pytest.mark.skipif(True, reason="missing part")
def test_mark(): ...
@pytest.mark.skip(reason="root may read every file")
def test_privilege(): ...
"""


def run(directory: Path, case: str, ci: str) -> str:
    """The closing line of a pytest run over one file, under the rules of this folder's conftest."""
    tests = directory / "tests"
    tests.mkdir()
    (tests / "conftest.py").write_text((ROOT / "tests" / "conftest.py").read_text())
    (tests / "test_case.py").write_text(case)
    answer = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", directory, "tests"],
        cwd=directory,
        env={**os.environ, "CI": ci, "PYTHONPATH": PYTHON_PATH},
        capture_output=True,
        text=True,
        check=False,
    )
    return answer.stdout.splitlines()[-1].partition(" in ")[0]


def test_what_is_missing_skips_on_a_machine_of_a_person(tmp_path: Path) -> None:
    assert run(tmp_path, CASES, ci="") == "1 passed, 4 skipped"


def test_what_is_missing_fails_in_ci_and_another_skip_does_not(tmp_path: Path) -> None:
    assert run(tmp_path, CASES, ci="true") == "1 failed, 1 passed, 1 skipped, 2 errors"


@pytest.mark.parametrize(("ci", "closing"), [("false", "1 skipped"), ("true", "1 error")])
def test_a_module_that_cannot_be_imported_follows_the_same_rule(tmp_path: Path, ci: str, closing: str) -> None:
    assert run(tmp_path, 'import pytest\npytest.importorskip("no_such_module")\n', ci) == closing


def test_a_free_port_is_below_the_kernels_own() -> None:
    assert 20_000 <= free_port() < 32_768


TAKE_PORTS = "from tests.real.parts import free_port; print(*(free_port() for _ in range(400))); input()"


def test_nobody_gets_a_port_twice() -> None:
    """Neither this process, of which each call would pick one of the earlier with a probability of some percent, nor
    another one that runs at the same time.
    """
    with ExitStack() as until_all_have_picked:
        others = [
            until_all_have_picked.enter_context(
                subprocess.Popen(
                    [sys.executable, "-c", TAKE_PORTS],
                    env={**os.environ, "PYTHONPATH": PYTHON_PATH},
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    text=True,
                )
            )
            for _ in range(2)
        ]
        picked = [free_port() for _ in range(400)]
        for other in others:
            assert other.stdout is not None
            picked += [int(port) for port in other.stdout.readline().split()]
        for other in others:
            other.communicate("\n")
    assert len(picked) == len(set(picked)) == 3 * 400


def test_a_folder_is_had_by_one_at_a_time(tmp_path: Path) -> None:
    """Each makes a file and takes it away again; nobody finds that of another."""
    folder, together = tmp_path / "made", Barrier(4)

    def take() -> list[str]:
        together.wait(30)
        found = []
        for _ in range(20):
            with alone_in(folder):
                found += [path.name for path in folder.iterdir() if path.name != ".lock"]
                (folder / "mine").touch()
                time.sleep(0.001)
                (folder / "mine").unlink()
        return found

    with ThreadPoolExecutor(4) as threads:
        assert [names for one in [threads.submit(take) for _ in range(4)] for names in one.result(60)] == []


@pytest.mark.parametrize(
    ("written", "lines"),
    [(b"", []), (b'{"a": ', []), (b'{"a": 1}\n', ['{"a": 1}']), (b'{"a": 1}\n\n{"a": "\xc3', ['{"a": 1}', ""])],
)
def test_a_line_that_is_being_written_is_no_line_yet(tmp_path: Path, written: bytes, lines: list[str]) -> None:
    file = tmp_path / "rows.jsonl"
    file.write_bytes(written)
    assert whole_lines(file) == lines
