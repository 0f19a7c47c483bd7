"""How a directory of the source `files` is laid out: which file holds which offsets, and what is in it.

    <path>/<topic>/<partition>/00000000000000000000.jsonl    as `member.sources.directory` tells
    <path>/<topic>/<partition>/00000000000000250000.parquet  as `parquet_files` tells

Offsets count records across the files of a partition in the order of their names. Only the last file of a partition
grows, if its format can; the oldest may be deleted.
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
    """What files of one suffix hold."""

    @property
    def suffix(self) -> str:
        """How their names end."""

    def count(self, path: Path) -> int:
        """Complete records of a file."""

    def contents(self, path: Path, first: int, start: int, stop: int) -> Iterator[pa.RecordBatch]:
        """The records from the offset `start` up to `stop` of a file that begins with `first`, fewer if it has fewer.

        In batches that are not empty, with the columns `key`, `value` (binary), `timestamp` (microseconds, UTC, null
        where there is none) and `headers`.
        """


class JsonLines:
    """The lines of `member.sources`."""

    suffix = SUFFIX

    def __init__(self, directory: TopicDirectory) -> None:
        self._directory = directory

    def count(self, path: Path) -> int:
        """Complete lines; only what was appended since the last call is read."""
        return self._directory.count(path)

    def contents(self, path: Path, first: int, start: int, stop: int) -> Iterator[pa.RecordBatch]:
        """See `FileFormat`."""
        records = (read_line(line, path, offset) for offset, line in lines_between(path, first, start, stop))
        while batch := list(islice(records, BATCH_RECORDS_MAX)):
            yield _to_contents(batch)


def formats(directory: TopicDirectory) -> dict[str, FileFormat]:
    """By suffix."""
    known: tuple[FileFormat, ...] = (JsonLines(directory), ParquetFiles())
    return {one.suffix: one for one in known}


def files_of(topic_folder: Path, partition: int) -> list[DataFile]:
    """The files of a partition in the order of their offsets. SourceError if there is no such topic."""
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
