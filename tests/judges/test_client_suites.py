"""The tests that Kafka's clients have of themselves, run as they are, with the door for a broker.

What is left out of kafka-python's is said here, with the reason. franz-go's chain of groups reads a topic into another,
and that into a third, with members that come and go, and fails at a record that is lost, out of order or read twice.
"""

import os
import re
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from tests.judges.door_process import Judged, giving_assignments
from tests.real.kafka_clients import client_versions, require_franz, require_kafka_python_tests, require_python
from tests.real.parts import last_lines
from tests.sizes import by_size

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(500)]

SUITE_SECONDS = 400
ETL_RECORDS = {"calm": by_size(1, 3_000, 200_000), "chaos": by_size(1, 2_000, 50_000)}
BALANCERS = 3
"""Of franz-go's six: the other three are of the newer consumer protocol, which is not offered."""
ETL_ATTEMPTS = 2
KAFKA_PYTHON = ("kafka-python", client_versions()["kafka-python"])
KAFKA_PYTHON_TESTS = 35
LEFT_OUT = {
    "test_create_describe_delete_acls": "the broker has no authorizer",
    "test_create_partitions": "it asks for two replicas, and there is one broker",
    "test_kafka_version_infer": "it guesses the broker's version by APIs that the door does not offer",
}


def run_suite(command: list[str | Path], where: Path, log: Path, environment: Mapping[str, str]) -> int:
    """Its exit code; what it says is in the log."""
    with log.open("w") as out:
        return subprocess.run(
            command,
            cwd=where,
            env={**os.environ, **environment},
            stdout=out,
            stderr=subprocess.STDOUT,
            timeout=SUITE_SECONDS,
            check=False,
        ).returncode


def its_connections_ended_too_early(said: str) -> bool:
    """Whether nothing but that has failed. With chaos a connection lives for half a second to one and a half, by the
    suite's own clock; a machine that is busy for longer does not get a single call through, and the suite gives up.
    What the service cuts has other words: the end of a file, or a reset.
    """
    failures = re.findall(r"_test\.go:\d+: (?!.* completed in |FAILED TESTING)(.*)", said)
    return bool(failures) and all("use of closed network connection" in failure for failure in failures)


def chain_of_groups(weather: str) -> tuple[str, str, str]:
    what = f"TestGroupETL, {weather}: {ETL_RECORDS[weather]:,} records through {3 * BALANCERS} groups"
    return "franz-go", client_versions()["franz-go"], what


@pytest.mark.parametrize(
    "weather",
    [
        pytest.param("calm", marks=[pytest.mark.judge(*chain_of_groups("calm")), pytest.mark.long]),
        pytest.param("chaos", marks=pytest.mark.judge(*chain_of_groups("chaos"))),
    ],
)
def test_franz_gos_chain_of_groups(weather: str, judged: Judged, tmp_path: Path) -> None:
    """With chaos its connections break all the time, in the middle of a request and of an answer."""
    tests, log, records = require_franz()[1], tmp_path / "out.log", ETL_RECORDS[weather]
    environment = {
        "KGO_SEEDS": str(judged.door),
        "KGO_TEST_RF": "1",
        "KGO_TEST_RECORDS": str(records),
        **({"KGO_TEST_CHAOS": "1"} if weather == "chaos" else {}),
    }
    for _ in range(ETL_ATTEMPTS):
        with giving_assignments(judged.service_url):
            code = run_suite([tests, "-test.run", "^TestGroupETL$", "-test.v"], tmp_path, log, environment)
        if code == 0 or not its_connections_ended_too_early(log.read_text(errors="replace")):
            break
    assert code == 0, last_lines(log, 40)
    passed = re.findall(r"--- PASS: TestGroupETL/(\S+)", log.read_text(errors="replace"))
    assert len(passed) == BALANCERS, passed


@pytest.mark.parametrize(
    ("said", "is_its_own"),
    [
        ("    helpers_test.go:983: poll got unexpected errs: [{ 0 use of closed network connection}]", True),
        ("    helpers_test.go:990: key 17 was consumed twice", False),
        ("    helpers_test.go:983: errs: use of closed network connection\n    etl_test.go:51: key 17 was lost", False),
        (
            "    helpers_test.go:860: range completed in 3s\n    helpers_test.go:926: FAILED TESTING -- NOT DELETING",
            False,
        ),
        ("panic: test timed out", False),
    ],
)
def test_only_connections_that_ended_too_early_are_another_try(said: str, is_its_own: bool) -> None:
    assert its_connections_ended_too_early(said) is is_its_own


@pytest.mark.judge(*KAFKA_PYTHON, "its own tests")
def test_kafka_pythons_own_tests(judged: Judged, tmp_path: Path, did: Callable[..., None]) -> None:
    """Those of its consumer and of its administration, groups and all."""
    source, python, log = require_kafka_python_tests(), require_python(), tmp_path / "out.log"
    files = [f"test/integration/test_{name}_integration.py" for name in ("admin", "consumer")]
    command: list[str | Path] = [
        *(python, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-W", "ignore", "--show-capture=no", "--timeout=120"),
        *("-k", " and ".join(f"not {name}" for name in LEFT_OUT)),
        *files,
    ]
    environment = {
        "KAFKA_URI": f"kafka://{judged.door}",
        "KAFKA_VERSION": "4.1.0",
        # A folder must be there where it would find the scripts of a broker that it starts.
        "KAFKA_ROOT": str(tmp_path),
        "PYTHONPATH": str(source),
    }
    with giving_assignments(judged.service_url):
        code = run_suite(command, source, log, environment)
    assert code == 0, last_lines(log, 40)
    passed = re.search(r"^(\d+) passed", log.read_text(errors="replace"), re.MULTILINE)
    assert passed is not None, last_lines(log, 40)
    assert int(passed[1]) >= KAFKA_PYTHON_TESTS, passed[0]
    did((*KAFKA_PYTHON, f"its own tests: {passed[0]}"))
