"""Parquet in the directory source: exact ranges over row groups and files, the types it takes, and what it refuses."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import rallypoint.member.sources.writer
from rallypoint.member.sources import errors
from rallypoint.member.sources.directory import TopicDirectory
from rallypoint.spark_bridge.errors import SourceError
from rallypoint.spark_bridge.offsets import Range
from rallypoint.spark_bridge.sources.contract import record_schema
from rallypoint.spark_bridge.sources.files import FilesSource, FilesWriter
from tests.spark_bridge.sources.test_files_source import TP, numbered, source, values

AT_MS = 1767225600123


def numbers(first: int, count: int) -> pa.Table:
    return pa.table({"value": [str(n) for n in range(first, first + count)]})


def rows(found: FilesSource, start: int, end: int, *, headers: bool = False) -> list[dict[str, Any]]:
    batches = list(found.read(Range(*TP, start, end)))
    assert all(batch.schema.equals(record_schema(headers)) for batch in batches)
    found_rows: list[dict[str, Any]] = pa.Table.from_batches(batches, record_schema(headers)).to_pylist()
    return found_rows


def test_ranges_are_exact_over_row_groups_and_formats(tmp_path: Path) -> None:
    writer = FilesWriter(tmp_path, "clicks", 1)
    writer.append(0, numbered(0, 4))
    assert writer.append_table(0, numbers(4, 3)) == 4
    pq.write_table(numbers(7, 10), tmp_path / "clicks" / "0" / f"{7:020d}.parquet", row_group_size=3)
    assert writer.append(0, numbered(17, 2)) == 17
    assert FilesWriter(tmp_path, "clicks").append(0, numbered(19, 1)) == 19
    assert writer.append_table(0, numbers(20, 1)) == 20
    reader = source(tmp_path)
    assert reader.earliest([TP]) == {TP: 0}
    assert reader.latest([TP]) == {TP: 21}
    for start in range(21):
        for end in range(start + 1, 22):
            assert values(reader, start, end) == [(n, str(n).encode()) for n in range(start, end)]


def test_a_file_that_is_added_while_others_are_read_is_seen(tmp_path: Path) -> None:
    writer = FilesWriter(tmp_path, "clicks", 1)
    writer.append_table(0, numbers(0, 5))
    reader = source(tmp_path)
    reading = reader.read(Range(*TP, 0, 5))
    (tmp_path / "clicks" / "0" / f"{5:020d}.parquet.partial").write_bytes(b"PAR1 and not yet more")
    assert reader.latest([TP]) == {TP: 5}
    writer.append_table(0, numbers(5, 5))
    assert reader.latest([TP]) == {TP: 10}
    assert sum(batch.num_rows for batch in reading) == 5
    assert len(values(reader, 3, 10)) == 7


@pytest.mark.parametrize(
    "time",
    [
        pa.array([AT_MS, None], pa.int64()),
        pa.array([AT_MS, None], pa.timestamp("ms")),
        pa.array([AT_MS * 1_000_000, None], pa.timestamp("ns", tz="Europe/Paris")),
    ],
)
def test_every_column_is_taken(tmp_path: Path, time: pa.Array) -> None:
    kind = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    table = pa.table(
        {
            "value": pa.array([b"\xff", None], pa.large_binary()),
            "key": pa.array(["k", None]),
            "timestamp": time,
            "headers": pa.array([[{"key": "h", "value": b"1"}], None], kind),
            "what nobody asked for": [1, 2],
        }
    )
    FilesWriter(tmp_path, "clicks", 1).append_table(0, table)
    first, second = rows(source(tmp_path, include_headers=True), 0, 2, headers=True)
    assert first == {
        "key": b"k",
        "value": b"\xff",
        "topic": "clicks",
        "partition": 0,
        "offset": 0,
        "timestamp": datetime.fromtimestamp(AT_MS / 1000, UTC),
        "timestampType": 0,
        "headers": [{"key": "h", "value": b"1"}],
    }
    assert (second["key"], second["value"], second["timestamp"], second["timestampType"]) == (None, None, None, -1)
    assert source(tmp_path).offsets_for_times({TP: AT_MS}) == {TP: 0}
    assert source(tmp_path).offsets_for_times({TP: AT_MS + 1}) == {TP: 2}


@pytest.mark.parametrize(
    ("column", "content"),
    [("value", pa.array([1])), ("key", pa.array([1.5])), ("timestamp", pa.array(["now"])), ("headers", pa.array([1]))],
)
def test_a_column_of_another_type_is_named_by_the_writer_and_by_the_reader(
    tmp_path: Path, column: str, content: pa.Array
) -> None:
    table = pa.table({column: content})
    says = rf"the column {column} of type \w+ cannot be read"
    with pytest.raises(SourceError, match=says):
        FilesWriter(tmp_path, "clicks", 1).append_table(0, table)
    assert list((tmp_path / "clicks" / "0").glob("*.parquet*")) == []
    pq.write_table(table, tmp_path / "clicks" / "0" / f"{0:020d}.parquet")
    with pytest.raises(SourceError, match=says):
        rows(source(tmp_path), 0, 1)


def test_half_a_file_is_named(tmp_path: Path) -> None:
    FilesWriter(tmp_path, "clicks", 1)
    (tmp_path / "clicks" / "0" / f"{0:020d}.parquet").write_bytes(b"PAR1")
    with pytest.raises(SourceError, match=r"0\.parquet is no Parquet file, or not a whole one"):
        source(tmp_path).latest([TP])


def test_a_table_without_rows_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="has no place among the offsets"):
        FilesWriter(tmp_path, "clicks", 1).append_table(0, numbers(0, 0))


def test_the_topics_are_the_folders_that_say_so(tmp_path: Path) -> None:
    FilesWriter(tmp_path, "clicks", 1)
    FilesWriter(tmp_path, "orders", 2)
    (tmp_path / "checkpoint").mkdir()
    assert source(tmp_path).topics() == {"clicks", "orders"}
    assert source(tmp_path / "nowhere").topics() == frozenset()


def test_a_member_without_spark_says_that_it_cannot_read_or_continue_it(tmp_path: Path) -> None:
    FilesWriter(tmp_path, "clicks", 1).append_table(0, numbers(0, 2))
    with pytest.raises(errors.SourceError, match=r"0\.parquet is a Parquet file, which the Spark bridge reads"):
        TopicDirectory(tmp_path).latest(TP)
    with pytest.raises(errors.SourceError, match="append with the writer of the Spark bridge"):
        rallypoint.member.sources.writer.FilesWriter(tmp_path, "clicks").append(0, numbered(2, 1))
