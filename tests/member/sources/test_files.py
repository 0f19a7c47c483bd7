"""A directory of topics as a source for consumers: where it begins, goes on and ends, and what is no record."""

from pathlib import Path

import pytest

from rallypoint.member.consumer import Fetched, OffsetOutOfRange
from rallypoint.member.sources.errors import RecordsLost, SourceError
from rallypoint.member.sources.files import FilesSource
from rallypoint.member.sources.records import Record
from rallypoint.member.sources.writer import FilesWriter


def numbered(first: int, count: int) -> list[Record]:
    return [Record(value=str(n).encode()) for n in range(first, first + count)]


def read(source: FilesSource, offset: int, record_count_max: int = 100) -> tuple[list[bytes | None], int]:
    fetched: Fetched[Record] = source.read("clicks", 0, offset, record_count_max)
    numbers = [record.offset for record in fetched.records]
    assert numbers == list(range(offset, fetched.next_offset)), "each record says its offset"
    return [record.value for record in fetched.records], fetched.next_offset


def test_it_reads_on_across_files_and_finds_any_place(tmp_path: Path) -> None:
    writer = FilesWriter(tmp_path, "clicks", 1, file_bytes_max=30)
    for first in range(0, 12, 3):
        writer.append(0, numbered(first, 3))
    assert len(list((tmp_path / "clicks" / "0").glob("*.jsonl"))) == 4
    source = FilesSource(tmp_path)
    offset, found = 0, []
    while offset < 12:
        values, offset = read(source, offset, 2)
        found += values
    assert found == [str(n).encode() for n in range(12)]
    assert read(source, 12) == ([], 12)
    assert read(source, 7, 1) == ([b"7"], 8)
    writer.append(0, numbered(12, 1))
    assert read(source, 12) == ([b"12"], 13)
    assert (source.earliest("clicks", 0), source.latest("clicks", 0)) == (0, 13)


def test_reading_on_does_not_read_again_what_was_read(tmp_path: Path) -> None:
    FilesWriter(tmp_path, "clicks", 1).append(0, numbered(0, 3))
    source = FilesSource(tmp_path)
    assert read(source, 0, 2) == ([b"0", b"1"], 2)
    (path,) = (tmp_path / "clicks" / "0").glob("*.jsonl")
    text = path.read_bytes()
    path.write_bytes(text.replace(b'{"value":"0"}\n', b"no line at all"))
    assert read(source, 2) == ([b"2"], 3), "what stands before was not even counted"
    with pytest.raises(SourceError, match="the line of offset 0 is no record"):
        read(source, 0)


def test_half_a_line_is_no_record_yet(tmp_path: Path) -> None:
    FilesWriter(tmp_path, "clicks", 1).append(0, numbered(0, 1))
    (path,) = (tmp_path / "clicks" / "0").glob("*.jsonl")
    source = FilesSource(tmp_path)
    with path.open("ab") as file:
        file.write(b'{"value":"1"')
        file.flush()
        assert read(source, 0) == ([b"0"], 1)
        assert read(source, 1) == ([], 1)
        file.write(b"}\n")
    assert read(source, 1) == ([b"1"], 2)


def test_what_is_gone_or_not_there_yet_is_out_of_range(tmp_path: Path) -> None:
    writer = FilesWriter(tmp_path, "clicks", 2, file_bytes_max=1)
    for first in range(3):
        writer.append(0, numbered(first, 1))
    oldest, middle, _ = sorted((tmp_path / "clicks" / "0").glob("*.jsonl"))
    source = FilesSource(tmp_path)
    oldest.unlink()
    assert source.earliest("clicks", 0) == 1
    for offset, words in ((0, "begins at 1, not at 0"), (4, "ends at 3, before 4")):
        with pytest.raises(OffsetOutOfRange, match=words):
            read(source, offset)
    assert source.read("clicks", 1, 0, 10) == Fetched((), 0)
    with pytest.raises(OffsetOutOfRange, match="begins at 0, not at 5"):
        source.read("clicks", 1, 5, 10)
    middle.write_bytes(b"")
    with pytest.raises(RecordsLost, match=r"ends at 1, and 0+2\.jsonl follows"):
        read(source, 1)


def test_it_knows_its_topics(tmp_path: Path) -> None:
    source = FilesSource(tmp_path / "none yet")
    assert source.partition_counts(None) == {}
    source = FilesSource(tmp_path)
    FilesWriter(tmp_path, "clicks", 3)
    FilesWriter(tmp_path, "orders", 1)
    (tmp_path / "stray").mkdir()
    assert source.partition_counts(None) == {"clicks": 3, "orders": 1}
    assert source.partition_counts(frozenset({"orders", "nothing"})) == {"orders": 1}
    with pytest.raises(SourceError, match="there is no topic 'nothing'"):
        source.read("nothing", 0, 0, 1)


def test_a_directory_that_is_not_there_is_named_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    source = FilesSource(tmp_path / "topcis")
    for _ in range(2):
        assert source.partition_counts(frozenset({"clicks"})) == {}
    (said,) = caplog.messages
    assert said == (
        f"nothing can be read: there is no directory {tmp_path / 'topcis'}, which is to hold a folder for each topic"
    )


def test_a_topic_that_is_not_there_is_named_and_again_when_it_goes(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    source = FilesSource(tmp_path)
    assert source.partition_counts(None) == {}
    assert caplog.messages == []
    for _ in range(2):
        assert source.partition_counts(frozenset({"clicks"})) == {}
    FilesWriter(tmp_path, "clicks", 2)
    assert source.partition_counts(frozenset({"clicks"})) == {"clicks": 2}
    (tmp_path / "clicks" / "topic.json").unlink()
    assert source.partition_counts(frozenset({"clicks"})) == {}
    assert (
        caplog.messages
        == [f"nothing can be read: the directory {tmp_path} has no topic clicks: no such folder with a topic.json"] * 2
    )


def test_a_topic_has_at_least_one_partition(tmp_path: Path) -> None:
    for partitions in (0, -1):
        with pytest.raises(ValueError, match=rf"^partitions: {partitions} is below the least, 1$"):
            FilesWriter(tmp_path, "clicks", partitions)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("record", "said"),
    [
        (Record("text"), "value: bytes, not str"),  # type: ignore[arg-type]
        (Record(b"", key=7), "key: bytes, not int"),  # type: ignore[arg-type]
        (Record(headers=[("h", "text")]), "the header 'h': bytes, not str"),  # type: ignore[list-item]
    ],
)
def test_what_is_not_bytes_is_named_and_nothing_is_written(tmp_path: Path, record: Record, said: str) -> None:
    writer = FilesWriter(tmp_path, "clicks", 1)
    with pytest.raises(TypeError, match=f"^{said}$"):
        writer.append(0, [Record(b"good"), record])
    assert [one for one in (tmp_path / "clicks" / "0").iterdir() if one.read_bytes()] == []
