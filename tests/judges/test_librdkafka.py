"""librdkafka's own tests of groups, as they are, with the door for a broker. They take minutes, so only a long run has
them: `make judges SIZE=long`.

0030 and 0081 are left out: the one commits offsets of topics that do not exist, which the service takes
(docs/kafka-differences.md); the other wants a broker with an authorizer.
"""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.end_to_end.service_process import running_service
from tests.judges.conftest import LIMITS, OPTIONS
from tests.judges.door import Address
from tests.judges.door_process import running_door
from tests.real.kafka import KAFKA_VERSION, require_jars, running_broker
from tests.real.librdkafka import LIBRDKAFKA_VERSION, require_tests
from tests.real.parts import last_lines

pytestmark = [pytest.mark.kafka, pytest.mark.long, pytest.mark.timeout(1500)]

TESTS = {
    "0018": "a group ends in every way",
    "0056": "two members in threads",
    "0102": "static members",
    "0113": "cooperative rebalances",
    "0118": "commits in a rebalance",
    "0120": "members that subscribe to different topics",
    "0132": "the order of strategies",
}
RUN_SECONDS = 1200


@pytest.fixture(scope="module")
def door(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Address]:
    """In front of a broker that makes a topic when it is asked for one, as the tests want it."""
    home, jars = require_jars()
    changed = {"auto.create.topics.enable": "true", "num.partitions": "4", "group.min.session.timeout.ms": "1000"}
    with (
        running_broker(tmp_path_factory.mktemp("kafka"), jars, home, settings=changed) as broker,
        running_service(tmp_path_factory.mktemp("service"), *OPTIONS, limits=LIMITS) as service,
        running_door(Address.parse(broker.bootstrap_servers), service.url) as door,
    ):
        yield door


def judge(test: str) -> pytest.MarkDecorator:
    return pytest.mark.judge("librdkafka", LIBRDKAFKA_VERSION, f"its own test {test}: {TESTS[test]}")


@pytest.mark.parametrize("test", [pytest.param(test, marks=judge(test)) for test in TESTS])
def test_librdkafkas_own_tests(test: str, door: Address, tmp_path: Path) -> None:
    runner, environment = require_tests()
    (tmp_path / "test.conf").write_text(f"bootstrap.servers={door}\n")
    log = tmp_path / "out.log"
    with log.open("w") as out:
        code = subprocess.run(
            [runner, "-p1"],
            cwd=tmp_path,
            env={**os.environ, **environment, "TESTS": test, "TEST_KAFKA_VERSION": KAFKA_VERSION},
            stdout=out,
            stderr=subprocess.STDOUT,
            timeout=RUN_SECONDS,
            check=False,
        ).returncode
    assert code == 0, last_lines(log, 40)
    assert f" {test}_" in log.read_text(errors="replace"), "it ran another test, or none"
