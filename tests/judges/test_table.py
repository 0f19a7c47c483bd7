"""The table of verdicts has a row for each judge, whatever becomes of it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.judges.test_librdkafka import verdicts_in
from tests.real.parts import PYTHON_PATH

pytestmark = pytest.mark.slow

CASES = """
import pytest

@pytest.fixture
def broken(): raise RuntimeError("no broker")

@pytest.fixture
def left(): yield; raise RuntimeError("it left a process")

@pytest.mark.judge("librdkafka", "2.12.0", "its own tests")
def test_passes(did, tell):
    tell("half of it is done")
    did(("librdkafka", "2.12.0", "its own tests: 6 of 6"), ("another", "1", "looked on"))
@pytest.mark.judge("franz-go", "1.22.3", "a chain of groups")
def test_fails(did):
    assert not "a record is lost"
@pytest.mark.judge("java", "4.1.1", "workers")
def test_skips(): pytest.skip("missing Java: get one\\nand more of it")
@pytest.mark.judge("aiokafka", "0.12.0", "a member")
def test_cannot_begin(broken): ...
@pytest.mark.judge("kafka-python", "3.0.12", "its own tests")
def test_cannot_end(did, left): did(("kafka-python", "3.0.12", "its own tests: 35 passed"))
def test_of_something_else(): ...

@pytest.mark.parametrize("fails", [False, True, False])
@pytest.mark.judge("Kafka's classes", "4.1.1", "write messages")
def test_of_many(fails, request):
    assert not (fails and request.config.getoption("keyword") == "many")
"""


def run(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """A pytest of its own, with nothing but the judges' hooks."""
    (folder / "test_case.py").write_text(CASES)
    markers = "judge(client, version, what)"
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "tests.judges.conftest", "-o", f"markers={markers}", *options, "."],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": PYTHON_PATH},
        capture_output=True,
        text=True,
        check=False,
    )


def table(said: str) -> list[list[str]]:
    """The cells, with those of the head."""
    after = said.partition("Kafka's own clients as judges")[2].splitlines()[1:]
    rows = after[: next(place for place, line in enumerate(after) if not line or line.startswith("="))]
    return [[cell.strip() for cell in row.split("  ") if cell.strip()] for row in rows]


def test_who_failed_or_was_skipped_stands_in_the_table_too(tmp_path: Path) -> None:
    done = run(tmp_path)
    assert done.returncode == 1
    assert table(done.stdout) == [
        ["client", "version", "what it did", "verdict"],
        ["librdkafka", "2.12.0", "its own tests: 6 of 6", "passed"],
        ["another", "1", "looked on", "passed"],
        ["Kafka's classes", "4.1.1", "write messages", "passed"],
        ["java", "4.1.1", "workers", "SKIPPED: missing Java: get one"],
        ["franz-go", "1.22.3", "a chain of groups", "FAILED"],
        ["aiokafka", "0.12.0", "a member", "FAILED"],
        ["kafka-python", "3.0.12", "its own tests: 35 passed", "FAILED"],
    ]
    assert "\nWhy, stands above. To have those alone again that failed: make judges ARGS=--lf\n" in done.stdout
    assert "\nlibrdkafka  2.12.0  its own tests\n" in done.stdout, "who judges next is said before"
    assert " s  half of it is done " in done.stdout
    again = run(tmp_path, "--lf")
    assert [row[0] for row in table(again.stdout)[1:]] == ["franz-go", "aiokafka", "kafka-python"]


def test_where_nothing_failed_there_is_nothing_to_do(tmp_path: Path) -> None:
    done = run(tmp_path, "-k", "passes or skips")
    assert done.returncode == 0
    assert [row[-1] for row in table(done.stdout)[1:]] == ["passed", "passed", "SKIPPED: missing Java: get one"]
    assert "\nOf 3 rows 1 are not judged: something is missing.\n" in done.stdout
    assert "make judges" not in done.stdout
    assert "\nJudges that were not asked, by an option or for SIZE=long: 6 tests of test_case.py.\n" in done.stdout


def test_who_was_to_be_asked_and_was_not_stands_in_the_table_too(tmp_path: Path) -> None:
    """A run that ends at the first failure, or by Ctrl-C, has not asked the others."""
    done = run(tmp_path, "-x")
    assert [(row[0], row[-1]) for row in table(done.stdout)[1:]] == [
        ("librdkafka", "passed"),
        ("another", "passed"),
        ("java", "NOT RUN"),
        ("aiokafka", "NOT RUN"),
        ("kafka-python", "NOT RUN"),
        ("Kafka's classes", "NOT RUN"),
        ("franz-go", "FAILED"),
    ]
    assert "as judges" not in run(tmp_path, "--collect-only").stdout


def test_a_judge_of_several_tests_has_one_row_and_its_worst_verdict(tmp_path: Path) -> None:
    done = run(tmp_path, "-k", "many")
    assert [(row[0], row[-1]) for row in table(done.stdout)[1:]] == [("Kafka's classes", "FAILED")]
    assert done.stdout.count("Kafka's classes  4.1.1  write messages\n") == 1, "and is announced once"


def test_a_run_without_judges_has_no_table(tmp_path: Path) -> None:
    assert "as judges" not in run(tmp_path, "-k", "something_else").stdout


def test_a_test_of_librdkafka_that_was_skipped_has_not_passed() -> None:
    said = (
        "\x1b[0m\x1b[33m[0018_cgrp_term   /  0.000s] WARN: SKIPPING TEST: not applicable\n"
        "|\x1b[32m <MAIN>                 |     PASSED |   0.000s \x1b[0m|\n"
        "|\x1b[36m 0018_cgrp_term         |    SKIPPED |   0.000s \x1b[0m|\x1b[36m not applicable\x1b[0m\n"
        "|\x1b[32m 0132_strategy_ordering |     PASSED |  13.053s \x1b[0m|\n"
    )
    assert verdicts_in(said) == {"0018_cgrp_term": "SKIPPED", "0132_strategy_ordering": "PASSED"}
