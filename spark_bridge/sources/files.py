"""The source `files`: reads a directory of topics. `files_layout` describes its layout, `files_writer` writes it.

Finding the end of a partition reads what was appended since the last call. Finding a range of JSON lines counts the
lines of one file from its start, so `FilesWriter` keeps files small: it begins a new one after 16 MiB.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from stat import S_ISDIR
from typing import ClassVar

import pyarrow as pa
import pyarrow.compute as pc

from rallypoint.member.sources import errors
from rallypoint.member.sources.directory import TopicDirectory
from rallypoint.member.sources.records import Record
from rallypoint.spark_bridge.errors import DataLost, OptionError, SourceError
from rallypoint.spark_bridge.offsets import Range, TopicPartition
from rallypoint.spark_bridge.option_text import OptionSpec
from rallypoint.spark_bridge.source_options import SourceOptions
from rallypoint.spark_bridge.sources.contract import (
    BATCH_RECORDS_MAX,
    TIMESTAMP_ABSENT,
    TIMESTAMP_CREATED,
    Source,
    record_schema,
)
from rallypoint.spark_bridge.sources.files_layout import DataFile, FileFormat, files_of, formats
from rallypoint.spark_bridge.sources.files_writer import FilesWriter

__all__ = ["BATCH_RECORDS_MAX", "FilesSource", "FilesWriter", "Record"]


class FilesSource(Source):
    """Reads the directory `path`. It caches the record count of each file, so `latest` is cheap."""

    name: ClassVar[str] = "files"
    options: ClassVar[tuple[OptionSpec, ...]] = (
        OptionSpec("path", "the directory that holds a folder for each topic; `.load(path)` sets it", "required"),
    )

    def __init__(self, options: SourceOptions) -> None:
        path = options.own.get("path")
        if path is None:
            raise OptionError("path", "is required for the source 'files'")
        self._directory = TopicDirectory(Path(path.removeprefix("file://")))
        self._formats = formats(self._directory)
        self._fail_on_data_loss = options.fail_on_data_loss
        self._include_headers = options.include_headers

    def check(self) -> None:
        """Check that `path` is a directory. If it does not exist yet, the query's start reports the missing topics."""
        path = self._directory.root
        try:
            is_directory = S_ISDIR(path.stat().st_mode)
        except FileNotFoundError:
            return
        except (NotADirectoryError, ValueError):  # ValueError: of a null byte
            is_directory = False
        except OSError as error:
            raise SourceError(f"the directory {str(path)!r} cannot be read: {error}") from error
        if not is_directory:
            raise OptionError("path", f"{str(path)!r} is not a directory")

    def topics(self) -> frozenset[str]:
        """The folders with a `topic.json`."""
        with _as_bridge_errors():
            return frozenset(self._directory.topics())

    def partitions(self, topics: Iterable[str]) -> dict[str, int]:
        """See `Source.partitions`. A topic exists once its `topic.json` does."""
        with _as_bridge_errors():
            counts = {topic: self._directory.partition_count(topic) for topic in topics}
        return {topic: count for topic, count in counts.items() if count is not None}

    def earliest(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The number in the name of the oldest file."""
        with _as_bridge_errors():
            return {tp: next((file.first for file in self._files(tp)), 0) for tp in partitions}

    def latest(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The number in the name of the newest file, plus its complete records."""
        with _as_bridge_errors():
            return {tp: self._end(self._files(tp)) for tp in partitions}

    def offsets_for_times(self, times_ms: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Reads each partition from its beginning to the first such record. Only records with a timestamp count."""
        with _as_bridge_errors():
            return {tp: self._first_since(tp, time_ms) for tp, time_ms in times_ms.items()}

    def read(self, records: Range) -> Iterator[pa.RecordBatch]:
        """See `Source.read`. If a file ends before the offset at which the next one begins, records are lost."""
        schema = record_schema(self._include_headers)
        with _as_bridge_errors():
            for first, contents in self._contents((records.topic, records.partition), records.start, records.end):
                yield _to_batch(records, first, contents, schema)

    def _files(self, tp: TopicPartition) -> list[DataFile]:
        return files_of(self._directory.root / tp[0], tp[1])

    def _format(self, file: DataFile) -> FileFormat:
        return self._formats[file.path.suffix]

    def _end(self, files: Sequence[DataFile]) -> int:
        return files[-1].first + self._format(files[-1]).count(files[-1].path) if files else 0

    def _contents(self, tp: TopicPartition, start: int, end: int) -> Iterator[tuple[int, pa.RecordBatch]]:
        """The records from `start` up to `end`, in batches with the offset of their first record."""
        files = self._files(tp)
        position = start
        for file, following in zip(files, [*files[1:], None], strict=True):
            stop = end if following is None else min(following.first, end)
            if position >= stop:
                continue
            if file.first > position:
                position = self._skip(tp, position, min(file.first, end))
            for contents in self._format(file).contents(file.path, file.first, position, stop):
                yield position, contents
                position += contents.num_rows
            if position < stop:
                position = self._skip(tp, position, stop)
        if position < end:
            self._skip(tp, position, end)

    def _skip(self, tp: TopicPartition, position: int, to: int) -> int:
        if self._fail_on_data_loss:
            raise DataLost(
                f"{tp[0]}-{tp[1]} in {self._directory.root} no longer holds the offsets {position} to {to - 1};"
                " set failOnDataLoss=false to continue without them"
            )
        return to

    def _first_since(self, tp: TopicPartition, time_ms: int) -> int:
        files = self._files(tp)
        end = self._end(files)
        if not files:
            return end
        since = pa.scalar(time_ms, pa.int64()).cast(pa.timestamp("ms", tz="UTC"))
        for first, contents in self._contents(tp, files[0].first, end):
            young = pc.fill_null(pc.greater_equal(contents.column("timestamp"), since), False)
            found = pc.index(young, True).as_py()
            if found >= 0:
                return int(first + found)
        return end


@contextmanager
def _as_bridge_errors() -> Iterator[None]:
    try:
        yield
    except errors.SourceError as error:
        raise SourceError(str(error)) from error
    except OSError as error:
        raise SourceError(f"the source 'files' cannot be read: {error}") from error


def _to_batch(records: Range, first: int, contents: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    count = contents.num_rows
    times = contents.column("timestamp")
    absent = pa.scalar(TIMESTAMP_ABSENT, pa.int32())
    columns = [
        contents.column("key"),
        contents.column("value"),
        pa.repeat(pa.scalar(records.topic), count),
        pa.repeat(pa.scalar(records.partition, pa.int32()), count),
        pa.array(range(first, first + count), pa.int64()),
        times,
        pc.if_else(pc.is_null(times), absent, pa.scalar(TIMESTAMP_CREATED, pa.int32())),
    ]
    if "headers" in schema.names:
        columns.append(contents.column("headers"))
    return pa.RecordBatch.from_arrays(columns, schema=schema)
