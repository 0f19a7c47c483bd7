"""The directory as a source: what counts as a record, where a partition ends, and what a torn line does not do."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from rallypoint.spark_bridge.errors import DataLost, OptionError, SourceError
from rallypoint.spark_bridge.offsets import Range
from rallypoint.spark_bridge.options import SourceOptions
from rallypoint.spark_bridge.sources.contract import record_schema
from rallypoint.spark_bridge.sources.files import BATCH_RECORDS_MAX, FilesSource, FilesWriter, Record

TP = ("clicks", 0)


def source(path: Path, **options: Any) -> FilesSource:
    return FilesSource(SourceOptions("files", ("clicks",), own={"path": str(path)}, **options))


def values(found: FilesSource, start: int, end: int) -> list[tuple[int, bytes]]:
    rows = pa.Table.from_batches(found.read(Range(*TP, start, end)), record_schema(False)).to_pylist()
    return [(row["offset"], row["value"]) for row in rows]


def numbered(first: int, count: int) -> list[Record]:
    return [Record(value=str(n).encode()) for n in range(first, first + count)]


def files_of(path: Path) -> list[Path]:
    return sorted((path / "clicks" / "0").glob("*.jsonl"))


def test_what_the_system_refuses_is_an_error_of_the_source(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"the source 'files' cannot be read: .*File name too long"):
        source(tmp_path).partitions(["x" * 300])
    (tmp_path / "file").touch()
    with pytest.raises(SourceError, match=r"cannot be read: .*Not a directory"):
        source(tmp_path / "file").topics()
    with pytest.raises(SourceError, match="File name too long"):
        source(tmp_path / ("x" * 300)).check()


def test_a_topic_exists_once_its_file_does_and_may_have_empty_partitions(tmp_path: Path) -> None:
    reader = source(tmp_path)
    assert reader.partitions(["clicks", "orders"]) == {}
    FilesWriter(tmp_path, "clicks", 3).append(1, numbered(0, 2))
    assert reader.partitions(["clicks", "orders"]) == {"clicks": 3}
    partitions = [("clicks", p) for p in range(3)]
    assert reader.earliest(partitions) == dict.fromkeys(partitions, 0)
    assert reader.latest(partitions) == {("clicks", 0): 0, ("clicks", 1): 2, ("clicks", 2): 0}


def test_a_topic_grows_and_never_shrinks(tmp_path: Path) -> None:
    FilesWriter(tmp_path, "clicks", 2)
    assert FilesWriter(tmp_path, "clicks").partitions == 2
    FilesWriter(tmp_path, "clicks", 4)
    assert source(tmp_path).partitions(["clicks"]) == {"clicks": 4}
    with pytest.raises(ValueError, match="has 4 partitions and cannot have 3"):
        FilesWriter(tmp_path, "clicks", 3)
    with pytest.raises(ValueError, match="say how many partitions"):
        FilesWriter(tmp_path, "orders")


def test_a_range_is_read_exactly_across_files(tmp_path: Path) -> None:
    writer = FilesWriter(tmp_path, "clicks", 1, file_bytes_max=60)
    firsts = [writer.append(0, numbered(n, 3)) for n in range(0, 30, 3)]
    assert firsts == list(range(0, 30, 3))
    assert len(files_of(tmp_path)) > 3
    reader = source(tmp_path)
    assert reader.latest([TP]) == {TP: 30}
    for start, end in [(0, 30), (4, 5), (7, 23), (29, 30), (6, 6)]:
        assert values(reader, start, end) == [(n, str(n).encode()) for n in range(start, end)]


def test_long_ranges_come_in_several_batches(tmp_path: Path) -> None:
    FilesWriter(tmp_path, "clicks", 1).append(0, numbered(0, BATCH_RECORDS_MAX + 5))
    batches = list(source(tmp_path).read(Range(*TP, 2, BATCH_RECORDS_MAX + 5)))
    assert [batch.num_rows for batch in batches] == [BATCH_RECORDS_MAX, 3]


def test_a_torn_line_is_no_record_until_its_newline_is_written(tmp_path: Path) -> None:
    FilesWriter(tmp_path, "clicks", 1).append(0, numbered(0, 2))
    reader = source(tmp_path)
    assert reader.latest([TP]) == {TP: 2}
    line = b'{"value":"2"}\n'
    with files_of(tmp_path)[0].open("ab") as file:
        for byte in line[:-1]:
            file.write(bytes([byte]))
            file.flush()
            assert reader.latest([TP]) == {TP: 2}
        assert values(source(tmp_path), 0, 2) == [(0, b"0"), (1, b"1")]
        with pytest.raises(DataLost, match="no longer holds the offsets 2 to 2"):
            values(source(tmp_path), 0, 3)
        file.write(b"\n")
    assert reader.latest([TP]) == {TP: 3}
    assert values(reader, 2, 3) == [(2, b"2")]


def test_a_new_writer_cuts_off_what_a_dead_one_left_behind(tmp_path: Path) -> None:
    FilesWriter(tmp_path, "clicks", 1).append(0, numbered(0, 2))
    with files_of(tmp_path)[0].open("ab") as file:
        file.write(b'{"value":"a half that is longer than some of the lines that take its place')
    reader = source(tmp_path)
    assert reader.latest([TP]) == {TP: 2}
    assert FilesWriter(tmp_path, "clicks").append(0, numbered(2, 9)) == 2
    assert reader.latest([TP]) == {TP: 11}
    assert values(reader, 0, 11) == [(n, str(n).encode()) for n in range(11)]


def test_two_writers_take_turns(tmp_path: Path) -> None:
    one = FilesWriter(tmp_path, "clicks", 1)
    other = FilesWriter(tmp_path, "clicks")
    assert [writer.append(0, numbered(n, 1)) for n, writer in enumerate([one, other, other, one, one])] == [
        0,
        1,
        2,
        3,
        4,
    ]
    assert values(source(tmp_path), 0, 5) == [(n, str(n).encode()) for n in range(5)]


def test_every_field_of_a_record_survives(tmp_path: Path) -> None:
    records = [
        Record(value=b"v", key=b"k", timestamp_ms=1767225600123, headers=[("h", b"1"), ("h", None), ("b", b"\xff")]),
        Record(value=b"\xff\x00", key=b"\xfe"),
        Record(value=None, key="ключ".encode()),
        Record(value=b""),
    ]
    FilesWriter(tmp_path, "clicks", 1).append(0, records)
    reader = source(tmp_path, include_headers=True)
    (batch,) = reader.read(Range(*TP, 0, 4))
    assert batch.schema.equals(record_schema(True))
    rows = batch.to_pylist()
    assert [row["value"] for row in rows] == [b"v", b"\xff\x00", None, b""]
    assert [row["key"] for row in rows] == [b"k", b"\xfe", "ключ".encode(), None]
    assert rows[0]["timestamp"].timestamp() == pytest.approx(1767225600.123)
    assert [row["timestampType"] for row in rows] == [0, -1, -1, -1]
    assert [(header["key"], header["value"]) for header in rows[0]["headers"]] == [
        ("h", b"1"),
        ("h", None),
        ("b", b"\xff"),
    ]
    assert [row["headers"] for row in rows[1:]] == [None, None, None]
    assert {(row["topic"], row["partition"]) for row in rows} == {TP}


def test_deleted_files_are_the_earliest_offset_and_a_loss_to_who_needs_them(tmp_path: Path) -> None:
    writer = FilesWriter(tmp_path, "clicks", 1, file_bytes_max=1)
    for n in range(4):
        writer.append(0, numbered(n, 2))
    oldest, _, third, _ = files_of(tmp_path)
    oldest.unlink()
    reader = source(tmp_path)
    assert reader.earliest([TP]) == {TP: 2}
    with pytest.raises(DataLost, match="no longer holds the offsets 1 to 1"):
        values(reader, 1, 6)
    third.unlink()
    with pytest.raises(DataLost, match="no longer holds the offsets 4 to 5"):
        values(reader, 2, 8)
    lenient = source(tmp_path, fail_on_data_loss=False)
    assert [offset for offset, _ in values(lenient, 0, 8)] == [2, 3, 6, 7]


def test_a_file_made_anew_under_its_old_name_is_counted_anew(tmp_path: Path) -> None:
    FilesWriter(tmp_path, "clicks", 1).append(0, numbered(0, 9))
    reader = source(tmp_path)
    assert reader.latest([TP]) == {TP: 9}
    files_of(tmp_path)[0].write_bytes(b'{"value":"0"}\n')
    assert reader.latest([TP]) == {TP: 1}


def test_offsets_for_times(tmp_path: Path) -> None:
    records = [Record(timestamp_ms=time_ms) for time_ms in (100, None, 200, 150, 300)]
    FilesWriter(tmp_path, "clicks", 1).append(0, records)
    reader = source(tmp_path)
    assert [reader.offsets_for_times({TP: time_ms})[TP] for time_ms in (0, 101, 250, 301)] == [0, 2, 4, 5]


def bad_lines() -> Sequence[str]:
    return ["[]", "nonsense", '{"value":1}', '{"value_base64":"*"}', '{"timestamp":"now"}', '{"headers":[[1,"x"]]}']


@pytest.mark.parametrize("line", bad_lines())
def test_a_line_that_is_no_record_is_named(tmp_path: Path, line: str) -> None:
    FilesWriter(tmp_path, "clicks", 1)
    (tmp_path / "clicks" / "0" / f"{0:020d}.jsonl").write_text(f'{{"value":"0"}}\n{line}\n')
    with pytest.raises(SourceError, match="the line of offset 1 is no record"):
        values(source(tmp_path, include_headers=True), 0, 2)


def test_names_that_are_no_offset_and_counts_that_are_none_are_named(tmp_path: Path) -> None:
    FilesWriter(tmp_path, "clicks", 1)
    stray = tmp_path / "clicks" / "0" / "notes.jsonl"
    stray.write_text("")
    with pytest.raises(SourceError, match="is not named after an offset"):
        source(tmp_path).latest([TP])
    stray.unlink()
    (tmp_path / "clicks" / "topic.json").write_text(json.dumps({"partitions": "two"}))
    with pytest.raises(SourceError, match="is no number of partitions"):
        source(tmp_path).partitions(["clicks"])


def test_a_topic_that_vanished_and_a_missing_path_are_named(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="there is no topic 'clicks'"):
        source(tmp_path).latest([TP])
    with pytest.raises(OptionError, match=r"^option path: is required"):
        FilesSource(SourceOptions("files", ("clicks",)))


def test_a_writer_refuses_what_is_no_folder_or_partition(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="cannot be the name of a folder"):
        FilesWriter(tmp_path, "../up", 1)
    with pytest.raises(ValueError, match="has the partitions 0 to 0, not 1"):
        FilesWriter(tmp_path, "clicks", 1).append(1, numbered(0, 1))
