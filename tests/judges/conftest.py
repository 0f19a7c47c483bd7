"""What the judges share: a broker with a service behind the door, and the table of verdicts at the end of a run."""

import time
from collections.abc import Callable, Iterator

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
LIMITS = {"group_pending_timeout_ms": 300_000}
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


Row = tuple[str, str, str]
"""Of the table: client, version, what it did."""
VERDICTS = {"passed": "passed", "skipped": "SKIPPED", "failed": "FAILED", "error": "FAILED"}
"""What stands in the table, by what pytest calls it."""
NOT_RUN = "NOT RUN"
"""Of a judge that was to be asked, and was not, for the run ended before."""
ORDER = ("passed", "SKIPPED", NOT_RUN, "FAILED")
"""Of the rows: what needs a look stands last."""
REASON_CHARACTERS = 100

JUDGES = pytest.StashKey[dict[str, Row]]()
"""Those that this run is to ask, by the ids of their tests."""
JUDGING = pytest.StashKey[Row | None]()
"""The one whose test runs."""
LEFT_OUT = pytest.StashKey[list[str]]()
"""The tests of those that it is not to ask."""


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Each test marked with `judge` has its row, whatever becomes of it."""
    judges = config.stash.setdefault(JUDGES, {})
    for item in items:
        if (row := row_of(item)) is not None:
            item.user_properties.append(("judge", [row]))
            judges[item.nodeid] = row


def pytest_deselected(items: list[pytest.Item]) -> None:
    """Count the judges that the size or an option leaves out, also after `pytest_collection_modifyitems`."""
    for item in items:
        if row_of(item) is not None:
            item.config.stash.setdefault(LEFT_OUT, []).append(item.nodeid)
            item.config.stash.setdefault(JUDGES, {}).pop(item.nodeid, None)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> None:
    """Say who judges next, once for all tests of one judge."""
    reporter = item.config.pluginmanager.get_plugin("terminalreporter")
    row, before = row_of(item), item.config.stash.get(JUDGING, None)
    item.config.stash[JUDGING] = row
    if row not in (None, before) and reporter is not None and not hasattr(item.config, "workerinput"):
        assert row is not None
        reporter.ensure_newline()
        reporter.write("  ".join(cell for cell in row if cell))


def row_of(item: pytest.Item) -> Row | None:
    """What the mark says: of a test that has not passed there is no more to say."""
    mark = item.get_closest_marker("judge")
    return None if mark is None else mark.args


@pytest.fixture
def did(record_property: Callable[[str, object], None]) -> Callable[..., None]:
    """For a test that has passed: the rows that the table has of it, in place of that of its mark."""
    return lambda *rows: record_property("judge", rows)


@pytest.fixture
def tell(request: pytest.FixtureRequest, capsys: pytest.CaptureFixture[str]) -> Callable[[str], None]:
    """Say on the terminal what happens now; of a test that runs beside others nobody hears it."""
    begin = time.monotonic()

    def tell(text: str) -> None:
        if not hasattr(request.config, "workerinput"):
            with capsys.disabled():
                print(f"\n  {int(time.monotonic() - begin):4} s  {text} ", end="", flush=True)

    return tell


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """The table, of each test marked with `judge`, and what to do about those that did not pass."""
    if terminalreporter.config.option.collectonly:
        return
    rows = [("client", "version", "what it did", "verdict"), *verdicts(terminalreporter)]
    if len(rows) == 1:
        return
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    terminalreporter.ensure_newline()
    terminalreporter.section("Kafka's own clients as judges")
    for row in rows:
        terminalreporter.write_line(
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        )
    skipped = sum(row[-1].startswith(VERDICTS["skipped"]) for row in rows)
    if skipped:
        terminalreporter.write_line(f"\nOf {len(rows) - 1} rows {skipped} are not judged: something is missing.")
    if left_out := terminalreporter.config.stash.get(LEFT_OUT, None):
        terminalreporter.write_line(
            f"\nJudges that were not asked, by an option or for SIZE=long: {len(left_out)} tests of"
            f" {', '.join(sorted({place.split('::', 1)[0] for place in left_out}))}."
        )
    if rows[-1][-1] == VERDICTS["failed"]:
        terminalreporter.write_line("\nWhy, stands above. To have those alone again that failed: make judges ARGS=--lf")


def verdicts(terminalreporter: pytest.TerminalReporter) -> list[tuple[str, str, str, str]]:
    """The rows with their verdicts. A test whose end fails has not passed; one that is not over has no verdict. Of
    several tests with one row the worst verdict counts.
    """
    last: dict[str, tuple[str, pytest.TestReport]] = {}
    for outcome, verdict in VERDICTS.items():
        for report in terminalreporter.stats.get(outcome, ()):
            last.pop(report.nodeid, None)
            last[report.nodeid] = verdict, report
    judges = terminalreporter.config.stash.get(JUDGES, {})
    rows = [(*row, NOT_RUN) for nodeid, row in judges.items() if nodeid not in last]
    for verdict, report in last.values():
        said = dict(getattr(report, "user_properties", ())).get("judge", ())
        rows += [(*row, f"{verdict}{reason_of(report)}") for row in said]
    rows.sort(key=lambda row: ORDER.index(row[-1].partition(":")[0]))
    worst: dict[Row, tuple[str, str, str, str]] = {}
    for row in rows:
        worst.pop(row[:3], None)
        worst[row[:3]] = row
    return list(worst.values())


def reason_of(report: pytest.TestReport) -> str:
    """Why a test was skipped, in short: the whole of it stands in the short test summary."""
    if not report.skipped or not isinstance(report.longrepr, tuple):
        return ""
    reason = report.longrepr[2].removeprefix("Skipped: ").splitlines()[0]
    return f": {reason}" if len(reason) <= REASON_CHARACTERS else f": {reason[:REASON_CHARACTERS]}…"
