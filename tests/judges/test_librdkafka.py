"""librdkafka's own tests of groups, as they are, with the door for a broker. They take minutes, so only a long run has
them: `make judges SIZE=long`.

0030 and 0081 are left out: the one commits offsets of topics that do not exist, which the service takes
(docs/kafka-differences.md); the other wants a broker with an authorizer. So is 0120, which talks to a broker that
librdkafka makes up.
"""

import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.end_to_end.service_process import running_service
from tests.judges.conftest import LIMITS, OPTIONS
from tests.judges.door import Address
from tests.judges.door_process import Judged, giving_assignments, running_door
from tests.real.kafka import KAFKA_VERSION, require_jars, running_broker
from tests.real.librdkafka import LIBRDKAFKA_VERSION, require_tests
from tests.real.parts import last_lines

pytestmark = [pytest.mark.kafka, pytest.mark.long, pytest.mark.timeout(1500)]

TESTS = {
    "0018_cgrp_term": "a group ends in every way",
    "0056_balanced_group_mt": "two members in threads",
    "0102_static_group_rebalance": "static members",
    "0113_cooperative_rebalance": "cooperative rebalances",
    "0118_commit_rebalance": "commits in a rebalance",
    "0132_strategy_ordering": "the order of strategies",
}
RUN_SECONDS = 1200
ROW = re.compile(r"^\|\s*(\d{4}_\w+) *\| *(\w+) \|", re.MULTILINE)
"""Of the table that it prints in the end, without colours: a test, and what became of it."""
COLOURS = re.compile(r"\x1b\[\d*m")


@pytest.fixture(scope="module")
def judged(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Judged]:
    """In front of a broker that makes a topic when it is asked for one, as the tests want it."""
    home, jars = require_jars()
    changed = {"auto.create.topics.enable": "true", "num.partitions": "4", "group.min.session.timeout.ms": "1000"}
    with (
        running_broker(tmp_path_factory.mktemp("kafka"), jars, home, settings=changed) as broker,
        running_service(tmp_path_factory.mktemp("service"), *OPTIONS, limits=LIMITS) as service,
        running_door(Address.parse(broker.bootstrap_servers), service.url) as door,
    ):
        yield Judged(Address.parse(broker.bootstrap_servers), door, service.url)


def judge(test: str) -> pytest.MarkDecorator:
    return pytest.mark.judge("librdkafka", LIBRDKAFKA_VERSION, f"its own test {test}: {TESTS[test]}")


def verdicts_in(log: str) -> dict[str, str]:
    """What became of each test, by its name."""
    return dict(ROW.findall(COLOURS.sub("", log)))


@pytest.mark.parametrize("test", [pytest.param(test, marks=judge(test)) for test in TESTS])
def test_librdkafkas_own_tests(test: str, judged: Judged, tmp_path: Path) -> None:
    """A number has more than one test, and some are of a broker that is made up."""
    runner, environment = require_tests()
    (tmp_path / "test.conf").write_text(f"bootstrap.servers={judged.door}\n")
    log = tmp_path / "out.log"
    number = test.partition("_")[0]
    with log.open("w") as out, giving_assignments(judged.service_url):
        code = subprocess.run(
            [runner, "-p1"],
            cwd=tmp_path,
            env={**os.environ, **environment, "TESTS": number, "TEST_KAFKA_VERSION": KAFKA_VERSION},
            stdout=out,
            stderr=subprocess.STDOUT,
            timeout=RUN_SECONDS,
            check=False,
        ).returncode
    assert code == 0, last_lines(log, 40)
    assert verdicts_in(log.read_text(errors="replace")).get(test) == "PASSED", last_lines(log, 40)
