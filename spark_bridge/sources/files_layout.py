"""The layout of a directory of the source `files`: which file contains which offsets, and in which format.

    <path>/<topic>/<partition>/00000000000000000000.jsonl    see `member.sources.directory`
    <path>/<topic>/<partition>/00000000000000250000.parquet  see `parquet_files`

Offsets number the records of a partition across its files, in the order of the file names. Only the last file of a
partition grows, and only if it is JSON lines. The oldest files may be deleted.
"""

import os
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import NamedTuple, Protocol

import pyarrow as pa

from rallypoint.member.sources.directory import SUFFIX, TopicDirectory, first_offset_of, lines_between, read_count
from rallypoint.member.sources.errors import SourceError
from rallypoint.member.sources.records import Record, read_line
from rallypoint.spark_bridge.sources.contract import BATCH_RECORDS_MAX, HEADERS_TYPE
from rallypoint.spark_bridge.sources.parquet_files import ParquetFiles


class DataFile(NamedTuple):
    """One file of a partition, and the offset of its first record."""

    first: int
    path: Path


class FileFormat(Protocol):
    """The format of the files with one suffix."""

    @property
    def suffix(self) -> str:
        """The end of their names."""

    def count(self, path: Path) -> int:
        """The number of complete records in a file."""

    def contents(self, path: Path, first: int, start: int, stop: int) -> Iterator[pa.RecordBatch]:
        """The records from `start` up to `stop`, or up to the end of the file, in non-empty batches.

        `first`: the offset of the file's first record.

        The columns are `key`, `value` (binary), `timestamp` (microseconds, UTC, null if absent) and `headers`.
        """


class JsonLines:
    """JSON lines, as `member.sources` reads them."""

    suffix = SUFFIX

    def __init__(self, directory: TopicDirectory) -> None:
        self._directory = directory

    def count(self, path: Path) -> int:
        """The number of complete lines. Reads only what was appended since the last call."""
        return self._directory.count(path)

    def contents(self, path: Path, first: int, start: int, stop: int) -> Iterator[pa.RecordBatch]:
        """See `FileFormat`."""
        records = (read_line(line, path, offset) for offset, line in lines_between(path, first, start, stop))
        while batch := list(islice(records, BATCH_RECORDS_MAX)):
            yield _to_contents(batch)


def formats(directory: TopicDirectory) -> dict[str, FileFormat]:
    """All formats, by suffix."""
    known: tuple[FileFormat, ...] = (JsonLines(directory), ParquetFiles())
    return {one.suffix: one for one in known}


def files_of(topic_folder: Path, partition: int) -> list[DataFile]:
    """The files of a partition in the order of their offsets. Raises SourceError if the topic does not exist."""
    folder = topic_folder / str(partition)
    try:
        names = sorted(entry.name for entry in os.scandir(folder) if entry.name.endswith((SUFFIX, ParquetFiles.suffix)))
    except FileNotFoundError:
        if read_count(topic_folder) is None:
            raise SourceError(f"there is no topic {topic_folder.name!r} in {topic_folder.parent}") from None
        return []
    return [DataFile(first_offset_of(folder / name), folder / name) for name in names]


def _to_contents(records: list[Record]) -> pa.RecordBatch:
    times = pa.array([r.timestamp_ms for r in records], pa.int64()).cast(pa.timestamp("ms", tz="UTC"))
    headers = [[{"key": key, "value": value} for key, value in r.headers] or None for r in records]
    return pa.RecordBatch.from_pydict(
        {
            "key": pa.array([r.key for r in records], pa.binary()),
            "value": pa.array([r.value for r in records], pa.binary()),
            "timestamp": times.cast(pa.timestamp("us", tz="UTC")),
            "headers": pa.array(headers, HEADERS_TYPE),
        }
    )
