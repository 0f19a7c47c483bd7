"""What the judges share: a broker with a service behind the door, and the table of verdicts at the end of a run."""

from collections.abc import Iterator

import pytest

from tests.end_to_end.service_process import running_service
from tests.judges.door import Address
from tests.judges.door_process import Judged, running_door
from tests.judges.raw_sides import TOPICS
from tests.real.kafka import create_topic

INITIAL_DELAY_MS = 250
"""That of the broker that tests share (tests/real/kafka.py): where it is not 0, neither waits for ids handed out."""
OPTIONS = (
    *("--group-initial-rebalance-delay-ms", str(INITIAL_DELAY_MS)),
    *("--group-join-linger-ms", "0"),
    *("--group-min-session-timeout-ms", "1000"),
)
LIMITS = {"group_pending_timeout_ms": 60_000}
"""An id that was handed out lives as long as the session that it asked for, as in Kafka."""


@pytest.fixture(scope="session")
def judged(kafka_bootstrap_servers: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Judged]:
    """The service is set to do as Kafka does where the settings allow it."""
    kafka = Address.parse(kafka_bootstrap_servers)
    with (
        running_service(tmp_path_factory.mktemp("judged"), *OPTIONS, limits=LIMITS) as service,
        running_door(kafka, service.url) as door,
    ):
        yield Judged(kafka, door, service.url)


@pytest.fixture(scope="session")
def topics(judged: Judged) -> None:
    """Those that raw requests name."""
    for topic in TOPICS:
        create_topic(str(judged.kafka), topic, 4)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Client, version, what it did, verdict: of each test that said so with `record_property("judge", …)`."""
    rows = [("client", "version", "what it did", "verdict")]
    for verdict in ("passed", "failed", "skipped"):
        for report in terminalreporter.stats.get(verdict, ()):
            said = dict(getattr(report, "user_properties", ()))
            if "judge" in said:
                rows += [(*row, verdict) for row in said["judge"]]
    if len(rows) == 1:
        return
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    terminalreporter.section("Kafka's own clients as judges")
    for row in rows:
        terminalreporter.write_line(
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        )
