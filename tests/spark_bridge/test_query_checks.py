"""What the driver answers its readers, without Spark: queries are as much of one as it looks at."""

import json
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="missing pyspark: pip install 'rallypoint[spark]'")

from rallypoint.spark_bridge import query_checks
from rallypoint.spark_bridge.control import ControlDirectory, Question, ReaderControl, Request
from rallypoint.spark_bridge.errors import BridgeError
from rallypoint.spark_bridge.query_checks import QueryChecks

OURS = {"reader_id": "r1", "allow_stateful": False, "refused": "", "assigned": {}, "lag": 3}


class Session:
    """A session with the queries that a test puts in."""

    def __init__(self, number: int = 7, gateway: object = "of one JVM") -> None:
        self.active: list[Query | None] = []
        self.streams: Any = self
        self.sparkContext = SimpleNamespace(_gateway=gateway)
        active_by_id = SimpleNamespace(values=lambda: list(self.active))
        shared = SimpleNamespace(hashCode=lambda: number, activeStreamingQueries=lambda: active_by_id)
        self._jsparkSession = SimpleNamespace(hashCode=lambda: number, sharedState=lambda: shared)


class Query:
    """One that runs until it is stopped, and one moment longer."""

    def __init__(
        self,
        session: Session,
        run: str,
        *,
        engine: str = "MicroBatchExecution",
        sink: str = "noop",
        source: str = "rallypoint",
    ) -> None:
        self.id = f"query of {run}"
        self.runId = run
        self.lastProgress: Any = None
        self.stopped = threading.Event()
        self.looked_at = 0
        leaf = SimpleNamespace(
            getClass=lambda: SimpleNamespace(getSimpleName=lambda: "StreamingRelationV2"),
            sourceName=lambda: source,
            extraOptions=lambda: SimpleNamespace(getOrDefault=lambda name, default: default),
        )
        self._execution = SimpleNamespace(
            getClass=lambda: SimpleNamespace(getSimpleName=lambda: engine),
            sink=lambda: SimpleNamespace(toString=lambda: sink),
            analyzedPlan=lambda: SimpleNamespace(
                collectLeaves=lambda: SimpleNamespace(size=lambda: 1, apply=lambda index: leaf)
            ),
        )
        session.active.append(self)

    @property
    def _jsq(self) -> Any:
        self.looked_at += 1
        return self._execution

    def stop(self) -> None:
        self.stopped.set()


def progress(offsets: list[Any], *operators: str) -> Any:
    return SimpleNamespace(
        sources=[SimpleNamespace(latestOffset=offset) for offset in offsets],
        stateOperators=[SimpleNamespace(operatorName=name) for name in operators],
    )


def report(**changes: Any) -> str:
    return json.dumps({"rallypoint": OURS | changes, "end_offsets": {}})


@pytest.fixture
def session() -> Session:
    return Session()


@pytest.fixture
def directory(tmp_path: Path) -> ControlDirectory:
    return ControlDirectory(tmp_path)


@pytest.fixture
def checks(directory: ControlDirectory, session: Session, monkeypatch: pytest.MonkeyPatch) -> QueryChecks:
    monkeypatch.setattr(query_checks, "StreamingQuery", lambda execution: execution)
    checks = QueryChecks(directory)
    checks.add(session)  # type: ignore[arg-type]
    checks.add(session)  # type: ignore[arg-type]
    return checks


@pytest.fixture
def reader(tmp_path: Path) -> ReaderControl:
    return ReaderControl(str(tmp_path), "r1")


@pytest.mark.parametrize(
    "change",
    [
        {"sink": "FileSink[/tmp/written]"},
        {"sink": "FileSink[/tmp/written]", "source": "RallyPoint"},
        {"engine": "AsyncProgressTrackingMicroBatchExecution"},
    ],
    ids=["file sink", "format in other letters", "asynchronous"],
)
def test_no_query_begins_while_a_refused_one_runs(
    checks: QueryChecks, session: Session, directory: ControlDirectory, reader: ReaderControl, change: dict[str, str]
) -> None:
    good, bad = Query(session, "good"), Query(session, "bad", **change)
    session.active.append(None)  # one that has just ended
    reader.tell("start")
    for _ in range(3):
        checks.run_once()
        assert bad.stopped.wait(10)
        assert directory.questions() == [Question("r1", "start")]
    session.active.remove(bad)
    checks.run_once()
    assert directory.questions() == []
    assert not good.stopped.is_set()
    assert (good.looked_at, bad.looked_at) == (1, 1)


def test_a_query_that_comes_later_is_looked_at(checks: QueryChecks, session: Session, reader: ReaderControl) -> None:
    Query(session, "good")
    reader.tell("start")
    checks.run_once()
    bad = Query(session, "bad", sink="FileSink[/tmp/written]")
    reader.tell("start")
    checks.run_once()
    assert bad.stopped.wait(10)


def test_a_session_that_was_stopped_keeps_back_no_query_of_the_next(
    checks: QueryChecks, directory: ControlDirectory, reader: ReaderControl
) -> None:
    ended = Session(8)
    checks.add(ended)  # type: ignore[arg-type]
    del ended.streams  # Spark makes no manager for it any more
    reader.tell("start")
    checks.run_once()
    assert directory.questions() == []


def test_a_java_process_that_died_keeps_back_no_query_of_the_next(
    checks: QueryChecks, session: Session, directory: ControlDirectory, reader: ReaderControl
) -> None:
    del session.active  # the connection is gone
    reader.tell("start")
    with pytest.raises(AttributeError):
        checks.run_once()
    checks.add(Session(8, gateway="of another"))  # type: ignore[arg-type]
    checks.run_once()
    assert directory.questions() == []


def test_a_query_whose_state_cannot_be_seen_does_not_go_on(
    checks: QueryChecks, session: Session, directory: ControlDirectory, reader: ReaderControl
) -> None:
    """Spark keeps no progress if it is told to keep less than two."""
    Query(session, "ours").lastProgress = None
    reader.tell("batch")
    with pytest.raises(BridgeError, match=r"reader r1 cannot be checked: .*numRecentProgressUpdates"):
        checks.run_once()
    assert directory.questions() == [Question("r1", "batch")]


@pytest.mark.parametrize("offset", ["None", None, "", "17", '{"clicks":{"0":5}}', "nonsense", '"text"', "[1]"])
def test_a_stateful_query_is_refused_whatever_stands_beside_our_source(
    checks: QueryChecks, session: Session, directory: ControlDirectory, reader: ReaderControl, offset: str | None
) -> None:
    Query(session, "no batch yet")
    Query(session, "of others").lastProgress = progress([offset], "stateStoreSave")
    query = Query(session, "ours")
    query.lastProgress = progress([offset, report()])
    reader.tell("batch")
    checks.run_once()
    assert reader.request() is None
    assert directory.questions() == []
    query.lastProgress = progress([offset, report()], "stateStoreSave")
    reader.tell("batch")
    checks.run_once()
    request = reader.request()
    assert request is not None
    assert request.action == "refuse"
    assert "the query keeps state (stateStoreSave)" in request.reason


def test_a_stateful_query_that_is_allowed_goes_on(
    checks: QueryChecks, session: Session, directory: ControlDirectory, reader: ReaderControl
) -> None:
    Query(session, "ours").lastProgress = progress([report(allow_stateful=True)], "stateStoreSave")
    reader.tell("batch")
    checks.run_once()
    assert reader.request() is None
    assert directory.questions() == []


def test_a_query_whose_reader_asks_for_its_end_is_stopped(
    checks: QueryChecks, session: Session, reader: ReaderControl, caplog: pytest.LogCaptureFixture
) -> None:
    other, query = Query(session, "other"), Query(session, "ours")
    other.lastProgress = progress([report(reader_id="r2")])
    query.lastProgress = progress([report()])
    reader.tell("stop", "it left its group")
    checks.run_once()
    assert query.stopped.wait(10)
    assert not other.stopped.is_set()
    assert "it left its group" in caplog.text


def test_a_check_that_failed_is_made_again_and_keeps_back_no_other(
    checks: QueryChecks, session: Session, directory: ControlDirectory, tmp_path: Path
) -> None:
    Query(session, "ours").lastProgress = progress([report(reader_id="r2")], "stateStoreSave")
    first, second = ReaderControl(str(tmp_path), "r1"), ReaderControl(str(tmp_path), "r2")
    first.tell("start")
    second.tell("batch")
    session.active[0]._execution = SimpleNamespace()  # type: ignore[union-attr]  # the connection to the JVM breaks
    with pytest.raises(AttributeError):
        checks.run_once()
    assert isinstance(second.request(), Request)
    assert directory.questions() == [Question("r1", "start")]
