"""A directory of topics as a source for Spark. What it looks like on the disk, and who writes it: `member.sources`."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import ClassVar

import pyarrow as pa

from member.sources import errors
from member.sources.directory import TopicDirectory
from member.sources.records import Record
from member.sources.writer import FilesWriter
from spark_bridge.errors import DataLost, OptionError, SourceError
from spark_bridge.offsets import Range, TopicPartition
from spark_bridge.options import OptionSpec, SourceOptions
from spark_bridge.sources.contract import TIMESTAMP_ABSENT, TIMESTAMP_CREATED, Source, record_schema

__all__ = ["BATCH_RECORDS_MAX", "FilesSource", "FilesWriter", "Record"]

BATCH_RECORDS_MAX = 10_000


class FilesSource(Source):
    """Reads the directory `path`. Counts are kept for each file, so asking again for an end is cheap."""

    name: ClassVar[str] = "files"
    options: ClassVar[tuple[OptionSpec, ...]] = (
        OptionSpec("path", "the directory that holds a folder for each topic; `.load(path)` sets it", "required"),
    )

    def __init__(self, options: SourceOptions) -> None:
        path = options.own.get("path")
        if path is None:
            raise OptionError("path", "is required for the source 'files'")
        self._directory = TopicDirectory(Path(path.removeprefix("file://")))
        self._fail_on_data_loss = options.fail_on_data_loss
        self._include_headers = options.include_headers

    def topics(self) -> frozenset[str]:
        """The folders with a `topic.json`."""
        try:
            return frozenset(
                entry.name for entry in os.scandir(self._root) if (self._root / entry / TOPIC_FILE).exists()
            )
        except OSError as error:
            raise SourceError(f"{self._root} cannot be listed: {error}") from error

    def partitions(self, topics: Iterable[str]) -> dict[str, int]:
        """As the contract says; a topic exists once its `topic.json` does."""
        with _in_the_bridges_words():
            counts = {topic: self._directory.partition_count(topic) for topic in topics}
        return {topic: count for topic, count in counts.items() if count is not None}

    def earliest(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The number in the name of the oldest file."""
        with _in_the_bridges_words():
            return {tp: self._directory.earliest(tp) for tp in partitions}

    def latest(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The number in the name of the newest file, plus its complete lines."""
        with _in_the_bridges_words():
            return {tp: self._directory.latest(tp) for tp in partitions}

    def offsets_for_times(self, times_ms: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Reads a partition from its beginning until a record is young enough; records without a time do not count."""
        with _in_the_bridges_words():
            return {tp: self._directory.first_since(tp, time_ms) for tp, time_ms in times_ms.items()}

    def read(self, records: Range) -> Iterator[pa.RecordBatch]:
        """As the contract says. A file that ends before the next one begins has lost records."""
        schema = record_schema(self._include_headers)
        tp = (records.topic, records.partition)
        batch: list[Record] = []
        with _in_the_bridges_words():
            for record in self._directory.records(
                tp, records.start, records.end, accept_loss=not self._fail_on_data_loss
            ):
                batch.append(record)
                if len(batch) == BATCH_RECORDS_MAX:
                    yield _to_batch(records, batch, schema)
                    batch = []
            if batch:
                yield _to_batch(records, batch, schema)


@contextmanager
def _in_the_bridges_words() -> Iterator[None]:
    try:
        yield
    except errors.RecordsLost as error:
        raise DataLost(f"{error}; set failOnDataLoss=false to go on without them") from error
    except errors.SourceError as error:
        raise SourceError(str(error)) from error


def _to_batch(records: Range, batch: list[Record], schema: pa.Schema) -> pa.RecordBatch:
    times = pa.array([r.timestamp_ms for r in batch], pa.int64()).cast(pa.timestamp("ms", tz="UTC"))
    columns = [
        pa.array([r.key for r in batch], pa.binary()),
        pa.array([r.value for r in batch], pa.binary()),
        pa.array([records.topic] * len(batch), pa.string()),
        pa.array([records.partition] * len(batch), pa.int32()),
        pa.array([r.offset for r in batch], pa.int64()),
        times.cast(pa.timestamp("us", tz="UTC")),
        pa.array([TIMESTAMP_ABSENT if r.timestamp_ms is None else TIMESTAMP_CREATED for r in batch], pa.int32()),
    ]
    if "headers" in schema.names:
        columns.append(
            pa.array(
                [[{"key": key, "value": value} for key, value in r.headers] or None for r in batch],
                schema.field("headers").type,
            )
        )
    return pa.RecordBatch.from_arrays(columns, schema=schema)
