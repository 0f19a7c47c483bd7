"""A directory as a source: topics without a broker, for a start, for tests and for what is written once and read often.

    <path>/<topic>/topic.json                                {"partitions": 4}
    <path>/<topic>/<partition>/00000000000000000000.jsonl    a file is named after the offset of its first record
    <path>/<topic>/<partition>/00000000000000250000.jsonl

A line is one record: `{"key": "k", "value": "v", "timestamp": 1767225600000, "headers": [["h", "v"]]}`. All may be
absent or null. Bytes that are not UTF-8 stand as base64 under `key_base64` and `value_base64`, a header as
`["h", null, "base64"]`. Offsets count records across the files of a partition in the order of their names. Files only
grow; the oldest may be deleted. A line counts once its newline is written, so a reader never sees half a record.

Cost: looking where a partition ends reads what was appended since the last look; a range is found by counting lines
from the start of one file, so files are kept small (`FilesWriter` begins a new one after 16 MiB).
"""

import fcntl
import json
import os
import threading
from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa

from spark_bridge.errors import DataLost, OptionError, SourceError
from spark_bridge.offsets import Range, TopicPartition
from spark_bridge.options import OptionSpec, SourceOptions
from spark_bridge.sources.contract import TIMESTAMP_ABSENT, TIMESTAMP_CREATED, Source, record_schema

TOPIC_FILE = "topic.json"
SUFFIX = ".jsonl"
NAME_DIGITS = 20
FILE_BYTES_MAX = 16 * 1024 * 1024
BATCH_RECORDS_MAX = 10_000
CHUNK_BYTES = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Record:
    """One record as a line holds it. `timestamp_ms` since 1970."""

    value: bytes | None = None
    key: bytes | None = None
    timestamp_ms: int | None = None
    headers: Sequence[tuple[str, bytes | None]] = ()


@dataclass(slots=True)
class _Counted:
    """How far a file has been counted: complete lines, and the byte after the last of them."""

    lines: int = 0
    bytes_read: int = 0


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
        self._root = Path(path.removeprefix("file://"))
        self._fail_on_data_loss = options.fail_on_data_loss
        self._include_headers = options.include_headers
        self._counted: dict[Path, _Counted] = {}
        self._lock = threading.Lock()

    def partitions(self, topics: Iterable[str]) -> dict[str, int]:
        """As the contract says; a topic exists once its `topic.json` does."""
        counts = {topic: _read_count(self._root / topic) for topic in topics}
        return {topic: count for topic, count in counts.items() if count is not None}

    def earliest(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The number in the name of the oldest file."""
        return {tp: next((first for first, _ in self._files(tp)), 0) for tp in partitions}

    def latest(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The number in the name of the newest file, plus its complete lines."""
        return {tp: self._end(self._files(tp)) for tp in partitions}

    def offsets_for_times(self, times_ms: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Reads a partition from its beginning until a record is young enough; records without a time do not count."""
        return {tp: self._first_since(tp, time_ms) for tp, time_ms in times_ms.items()}

    def read(self, records: Range) -> Iterator[pa.RecordBatch]:
        """As the contract says. A file that ends before the next one begins has lost records."""
        schema = record_schema(self._include_headers)
        offsets: list[int] = []
        batch: list[Record] = []
        for offset, record in self._records((records.topic, records.partition), records.start, records.end):
            offsets.append(offset)
            batch.append(record)
            if len(batch) == BATCH_RECORDS_MAX:
                yield _to_batch(records, offsets, batch, schema)
                offsets, batch = [], []
        if batch:
            yield _to_batch(records, offsets, batch, schema)

    def _files(self, tp: TopicPartition) -> list[tuple[int, Path]]:
        """First offset and path of each file of a partition, in order."""
        folder = self._root / tp[0] / str(tp[1])
        try:
            names = sorted(entry.name for entry in os.scandir(folder) if entry.name.endswith(SUFFIX))
        except FileNotFoundError:
            if _read_count(self._root / tp[0]) is None:
                raise SourceError(f"there is no topic {tp[0]!r} in {self._root}") from None
            return []
        return [(_first_offset(folder / name), folder / name) for name in names]

    def _end(self, files: Sequence[tuple[int, Path]]) -> int:
        return files[-1][0] + self._count(files[-1][1]) if files else 0

    def _count(self, path: Path) -> int:
        """Complete lines of a file; only what was appended since the last call is read."""
        with self._lock:
            counted = self._counted.setdefault(path, _Counted())
            with path.open("rb") as file:
                if os.fstat(file.fileno()).st_size < counted.bytes_read:
                    # Made anew under the old name.
                    counted = self._counted[path] = _Counted()
                file.seek(counted.bytes_read)
                position = counted.bytes_read
                while chunk := file.read(CHUNK_BYTES):
                    newline = chunk.rfind(b"\n")
                    if newline >= 0:
                        counted.lines += chunk.count(b"\n")
                        counted.bytes_read = position + newline + 1
                    position += len(chunk)
            return counted.lines

    def _records(self, tp: TopicPartition, start: int, end: int) -> Iterator[tuple[int, Record]]:
        """The records from `start` up to `end`, with their offsets."""
        files = self._files(tp)
        position = start
        for (first, path), following in zip(files, [*files[1:], None], strict=True):
            stop = end if following is None else min(following[0], end)
            if position >= stop:
                continue
            if first > position:
                position = self._skip(tp, position, min(first, end))
            for offset, line in _lines(path, first, position, stop):
                yield offset, _parse(line, path, offset)
                position = offset + 1
            if position < stop:
                position = self._skip(tp, position, stop)
        if position < end:
            self._skip(tp, position, end)

    def _skip(self, tp: TopicPartition, position: int, to: int) -> int:
        if self._fail_on_data_loss:
            raise DataLost(
                f"{tp[0]}-{tp[1]} in {self._root} no longer holds the offsets {position} to {to - 1};"
                " set failOnDataLoss=false to go on without them"
            )
        return to

    def _first_since(self, tp: TopicPartition, time_ms: int) -> int:
        files = self._files(tp)
        end = self._end(files)
        if not files:
            return end
        for offset, record in self._records(tp, files[0][0], end):
            if record.timestamp_ms is not None and record.timestamp_ms >= time_ms:
                return offset
        return end


class FilesWriter:
    """Appends to one topic of a `FilesSource` directory. Several writers, also of several processes, may be at work.

    `partitions`: makes the topic, or lets it grow; None: it must exist. `file_bytes_max`: a file that is longer gets
    no more records.
    """

    def __init__(
        self, path: str | Path, topic: str, partitions: int | None = None, *, file_bytes_max: int = FILE_BYTES_MAX
    ) -> None:
        if not topic or "/" in topic or topic in {".", ".."}:
            raise ValueError(f"{topic!r} cannot be the name of a folder")
        self._folder = Path(path) / topic
        self._file_bytes_max = file_bytes_max
        self._ends: dict[int, tuple[Path, int, int]] = {}
        if partitions is not None:
            self.grow(partitions)
        count = _read_count(self._folder)
        if count is None:
            raise ValueError(f"there is no topic {topic!r} in {path}; say how many partitions it shall have")
        self.partitions = count

    def grow(self, partitions: int) -> None:
        """Let the topic have so many partitions, if it has fewer. ValueError if it has more: partitions never go."""
        self._folder.mkdir(parents=True, exist_ok=True)
        with _locked(self._folder):
            count = _read_count(self._folder) or 0
            if partitions < max(count, 1):
                raise ValueError(f"{self._folder} has {count} partitions and cannot have {partitions}")
            for partition in range(count, partitions):
                (self._folder / str(partition)).mkdir(exist_ok=True)
            partial = self._folder / f"{TOPIC_FILE}.partial"
            partial.write_text(json.dumps({"partitions": partitions}), encoding="utf-8")
            partial.replace(self._folder / TOPIC_FILE)
        self.partitions = partitions

    def append(self, partition: int, records: Iterable[Record]) -> int:
        """Write records to the end of a partition, all in one file; the offset of the first is returned.

        Half a line that a writer left behind when it died is cut off first. The operating system has the records when
        this returns; they are not forced to the disk.
        """
        if not 0 <= partition < self.partitions:
            raise ValueError(f"{self._folder} has the partitions 0 to {self.partitions - 1}, not {partition}")
        data = b"".join(_to_line(record) for record in records)
        folder = self._folder / str(partition)
        folder.mkdir(exist_ok=True)
        with _locked(folder):
            path, next_offset = self._last_file(partition, folder)
            with path.open("ab") as file:
                file.write(data)
                self._ends[partition] = path, file.tell(), next_offset + data.count(b"\n")
        return next_offset

    def _last_file(self, partition: int, folder: Path) -> tuple[Path, int]:
        """The file to append to, ending with a whole line, and the offset that its next line will have.

        Cheap while this writer is the only one; else the last file is counted.
        """
        names = sorted(entry.name for entry in os.scandir(folder) if entry.name.endswith(SUFFIX))
        if not names:
            return folder / _file_name(0), 0
        path = folder / names[-1]
        known, size, next_offset = self._ends.get(partition, (None, 0, 0))
        if path == known and path.stat().st_size == size:
            return (path if size < self._file_bytes_max else folder / _file_name(next_offset)), next_offset
        lines = whole = 0
        with path.open("r+b") as file:
            for line in file:
                if line.endswith(b"\n"):
                    lines += 1
                    whole += len(line)
            file.truncate(whole)
        next_offset = _first_offset(path) + lines
        return (path if whole < self._file_bytes_max else folder / _file_name(next_offset)), next_offset


def _file_name(first_offset: int) -> str:
    return f"{first_offset:0{NAME_DIGITS}d}{SUFFIX}"


def _first_offset(path: Path) -> int:
    stem = path.name.removesuffix(SUFFIX)
    if len(stem) != NAME_DIGITS or not (stem.isascii() and stem.isdigit()):
        raise SourceError(f"{path} is not named after an offset of {NAME_DIGITS} digits")
    return int(stem)


def _read_count(folder: Path) -> int | None:
    """The number of partitions of a topic, None if it does not exist."""
    try:
        text = (folder / TOPIC_FILE).read_text(encoding="utf-8")
    except (FileNotFoundError, NotADirectoryError):
        return None
    try:
        count = json.loads(text)["partitions"]
    except (ValueError, TypeError, KeyError) as error:
        raise SourceError(f"{folder / TOPIC_FILE} does not say {{'partitions': number}}") from error
    if not isinstance(count, int) or count < 1:
        raise SourceError(f"{folder / TOPIC_FILE}: {count!r} is no number of partitions")
    return count


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Keep other writers out of a folder; the lock goes with the process that holds it."""
    with (folder / ".lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _lines(path: Path, first: int, start: int, stop: int) -> Iterator[tuple[int, bytes]]:
    """The complete lines of a file with the offsets from `start` up to `stop`, fewer if it has fewer."""
    with path.open("rb") as file:
        for offset, line in enumerate(file, start=first):
            if offset >= stop or not line.endswith(b"\n"):
                return
            if offset >= start:
                yield offset, line


def _parse(line: bytes, path: Path, offset: int) -> Record:
    try:
        value = json.loads(line)
        return Record(
            value=_bytes(value, "value"),
            key=_bytes(value, "key"),
            timestamp_ms=_timestamp(value.get("timestamp")),
            headers=[_header(header) for header in value.get("headers") or ()],
        )
    except (ValueError, TypeError, AttributeError, Base64Error) as error:
        raise SourceError(f"{path}: the line of offset {offset} is no record: {error}") from error


def _timestamp(value: Any) -> int | None:
    if value is not None and (isinstance(value, bool) or not isinstance(value, int)):
        raise TypeError(f"timestamp is {type(value).__name__}, not a whole number of milliseconds")
    return value


def _bytes(value: Mapping[str, Any], name: str) -> bytes | None:
    encoded = value.get(f"{name}_base64")
    if encoded is not None:
        return b64decode(encoded, validate=True)
    text = value.get(name)
    if text is None:
        return None
    if not isinstance(text, str):
        raise TypeError(f"{name} is {type(text).__name__}, not text")
    return text.encode()


def _header(header: Sequence[str | None]) -> tuple[str, bytes | None]:
    key, value, *encoded = header
    if not isinstance(key, str):
        raise TypeError("the key of a header is text")
    if encoded and encoded[0] is not None:
        return key, b64decode(encoded[0], validate=True)
    return key, None if value is None else value.encode()


def _to_line(record: Record) -> bytes:
    line: dict[str, Any] = {}
    for name, content in (("key", record.key), ("value", record.value)):
        if content is not None:
            text = _text(content)
            line |= {name: text} if text is not None else {f"{name}_base64": b64encode(content).decode()}
    if record.timestamp_ms is not None:
        line["timestamp"] = record.timestamp_ms
    if record.headers:
        line["headers"] = [_header_line(key, content) for key, content in record.headers]
    return json.dumps(line, separators=(",", ":")).encode() + b"\n"


def _header_line(key: str, content: bytes | None) -> list[str | None]:
    text = None if content is None else _text(content)
    return [key, text] if content is None or text is not None else [key, None, b64encode(content).decode()]


def _text(content: bytes) -> str | None:
    try:
        return content.decode()
    except UnicodeDecodeError:
        return None


def _to_batch(records: Range, offsets: list[int], batch: list[Record], schema: pa.Schema) -> pa.RecordBatch:
    times = pa.array([r.timestamp_ms for r in batch], pa.int64()).cast(pa.timestamp("ms", tz="UTC"))
    columns = [
        pa.array([r.key for r in batch], pa.binary()),
        pa.array([r.value for r in batch], pa.binary()),
        pa.array([records.topic] * len(batch), pa.string()),
        pa.array([records.partition] * len(batch), pa.int32()),
        pa.array(offsets, pa.int64()),
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
