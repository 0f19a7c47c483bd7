"""A driver that the next test is to have: what it says of its queries, and who is told. No Spark is started."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="missing pyspark: pip install 'rallypoint[spark]'")

from rallypoint import spark as rallypoint_spark
from tests.end_to_end.program_process import Line
from tests.spark_bridge.driver_process import DriverProcess, IdleDrivers
from tests.spark_bridge.driver_program import QueryDriver


class Listening:
    """Hears what a driver says."""

    def __init__(self) -> None:
        self.lines: list[tuple[str, dict[str, Any]]] = []

    def say(self, what: str, **more: Any) -> None:
        self.lines.append((what, more))


class Answering(DriverProcess):
    """Says this of its end, and has no program."""

    def __init__(self, folder: Path, committed: bool, running: int) -> None:
        super().__init__(folder, "one")
        self._end = Line("idle", 0.0, {"committed": committed, "running": running})

    def obey(self, command: str, answer: str) -> Line:
        return self._end

    def show(self) -> str:
        return "its log"


def test_a_driver_says_how_many_queries_it_still_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rallypoint_spark, "register", lambda spark: None)
    voice: Any = Listening()
    session: Any = SimpleNamespace(streams=SimpleNamespace(active=["one that it was not told of"]))
    driver = QueryDriver(session, voice)
    driver.obey("idle")
    session.streams.active.clear()
    driver.obey("idle")
    assert voice.lines == [("idle", {"committed": True, "running": 1}), ("idle", {"committed": True, "running": 0})]


@pytest.mark.parametrize(
    ("committed", "running", "sentence"), [(True, 1, "given back with 1 queries"), (False, 0, "its log")]
)
def test_the_test_that_leaves_a_query_fails(tmp_path: Path, committed: bool, running: int, sentence: str) -> None:
    with pytest.raises(AssertionError, match=sentence):
        IdleDrivers(tmp_path).give_back(Answering(tmp_path, committed, running))


def test_one_that_runs_none_is_the_next_ones(tmp_path: Path) -> None:
    drivers, driver = IdleDrivers(tmp_path), Answering(tmp_path, True, 0)
    drivers.give_back(driver)
    assert drivers.take("one") is driver
