"""A listener hears of all queries of a session: whatever their sources say, it understands its own and no more."""

import json
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("pyspark", reason="missing pyspark: pip install 'rallypoint[spark]'")

from rallypoint.spark_bridge.control import ControlDirectory, ReaderControl, Request
from rallypoint.spark_bridge.progress_reports import Report, reports_in
from rallypoint.spark_bridge.registration import QueryListener

OURS = {"reader_id": "r1", "allow_stateful": False, "refused": "", "assigned": {}, "lag": 3}
REFUSED = OURS | {"refused": "it left its group"}
OTHERS = ["None", None, "", "null", "17", '{"clicks":{"0":5}}', "nonsense", "NaN", '"text"', "[1]", "[" * 100_000]

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text() | st.sampled_from(["rallypoint", *OURS]), inner),
)


@given(st.lists(st.text() | st.none() | values.map(json.dumps) | values.map(lambda v: json.dumps({"rallypoint": v}))))
def test_any_text_is_a_report_or_none(offsets: list[str | None]) -> None:
    assert all(isinstance(report, Report) for report in reports_in(offsets))


def test_ours_are_found_among_all_others() -> None:
    ours = json.dumps({"rallypoint": OURS, "end_offsets": {}})
    assert reports_in([*OTHERS, ours, *OTHERS]) == [Report("r1", allow_stateful=False, refused="")]


class Session:
    """As much of a SparkSession as a listener asks for: it knows the queries that a test puts in."""

    def __init__(self) -> None:
        self.streams: dict[str, Any] = {}


class Query:
    """As much of a query."""

    def __init__(self, last_progress: Any) -> None:
        self.lastProgress = last_progress
        self.stopped = threading.Event()

    def stop(self) -> None:
        self.stopped.set()


def progress(offsets: list[Any], *operators: str) -> Any:
    return SimpleNamespace(
        id="q",
        runId="run",
        sources=[SimpleNamespace(latestOffset=offset) for offset in offsets],
        stateOperators=[SimpleNamespace(operatorName=name) for name in operators],
    )


@pytest.fixture
def session() -> Session:
    return Session()


@pytest.fixture
def watch(tmp_path: Path, session: Session) -> QueryListener:
    return QueryListener(session, ControlDirectory(tmp_path))  # type: ignore[arg-type]


@pytest.mark.parametrize("offset", OTHERS)
def test_a_stateful_query_is_refused_whatever_stands_beside_our_source(
    watch: QueryListener, tmp_path: Path, offset: str | None
) -> None:
    ours = json.dumps({"rallypoint": OURS})
    watch.onQueryProgress(SimpleNamespace(progress=progress([offset], "stateStoreSave")))  # type: ignore[arg-type]
    reader = ReaderControl(str(tmp_path), "r1")
    assert reader.request() is None
    watch.onQueryProgress(SimpleNamespace(progress=progress([offset, ours], "stateStoreSave")))  # type: ignore[arg-type]
    request = reader.request()
    assert isinstance(request, Request)
    assert request.action == "refuse"


def test_a_query_whose_event_is_lost_is_checked_when_it_is_idle(watch: QueryListener, session: Session) -> None:
    idle: Any = SimpleNamespace(id="q", runId="run")
    watch.onQueryIdle(idle)  # it has ended meanwhile
    session.streams["q"] = Query(None)
    watch.onQueryIdle(idle)  # no batch yet
    query = session.streams["q"] = Query(progress([json.dumps({"rallypoint": REFUSED})]))
    watch.onQueryIdle(idle)
    assert query.stopped.wait(10)


def test_a_check_that_failed_is_made_again(watch: QueryListener, session: Session) -> None:
    event: Any = SimpleNamespace(progress=progress([json.dumps({"rallypoint": REFUSED})]))
    session.streams["q"] = SimpleNamespace()  # the connection to the JVM breaks
    with pytest.raises(AttributeError):
        watch.onQueryProgress(event)
    query = session.streams["q"] = Query(None)
    watch.onQueryProgress(event)
    assert query.stopped.wait(10)
