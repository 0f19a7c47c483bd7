"""What a driver of the benchmarks leaves behind: a file for each batch, whichever of its queries wrote it."""

import json
from pathlib import Path
from typing import Any, NamedTuple

import pytest

pytest.importorskip("pyspark", reason="missing pyspark: pip install 'rallypoint[spark]'")

from bench.spark.driver import Sink


class Row(NamedTuple):
    partition: int
    offset: int


class Frame:
    """A batch, as far as the sink looks at it."""

    def __init__(self, *rows: Row) -> None:
        self._rows = rows

    def select(self, *columns: str) -> "Frame":
        assert columns == Row._fields
        return self

    def collect(self) -> tuple[Row, ...]:
        return self._rows


def test_a_query_that_begins_anew_leaves_the_files_of_the_one_before(tmp_path: Path) -> None:
    said: list[tuple[str, Any]] = []

    def say(what: str, **more: Any) -> None:
        said.append((what, more["partitions"]))

    for query in range(2):
        sink = Sink("second", tmp_path, 0.0, say)
        for number in range(2):
            batch: Any = Frame(Row(query, number))
            sink(batch, number)
    written = [json.loads(path.read_text("utf-8")) for path in sorted(tmp_path.glob("*.json"))]
    assert [(each["number"], each["records"]) for each in written] == [
        (1, {"0": [0]}), (2, {"0": [1]}), (3, {"1": [0]}), (4, {"1": [1]}),
    ]  # fmt: skip
    assert said == [("first", [0]), ("first", [1])]
