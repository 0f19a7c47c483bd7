"""A directory of topics: records without a broker, for a start, for tests and for what is written once and read often.

    <path>/<topic>/topic.json                                {"partitions": 4}
    <path>/<topic>/<partition>/00000000000000000000.jsonl    a file is named after the offset of its first record
    <path>/<topic>/<partition>/00000000000000250000.jsonl

A line is one record: `{"key": "k", "value": "v", "timestamp": 1767225600000, "headers": [["h", "v"]]}`. All may be
absent or null. Bytes that are not UTF-8 stand as base64 under `key_base64` and `value_base64`, a header as
`["h", null, "base64"]`. Offsets count records across the files of a partition in the order of their names. Files only
grow; the oldest may be deleted. A line counts once its newline is written, so a reader never sees half a record.

Cost: looking where a partition ends reads what was appended since the last look; a range is found by counting lines
from the start of one file, so files are kept small (`FilesWriter` begins a new one after 16 MiB).
This module finds and reads; `writer` appends.
"""

import json
import os
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from rallypoint.member.sources.errors import SourceError

TOPIC_FILE = "topic.json"
SUFFIX = ".jsonl"
OTHERS_SUFFIX = ".parquet"
"""Of files that hold offsets, too, and that nothing here can read or count."""
NAME_DIGITS = 20
CHUNK_BYTES = 1024 * 1024

TopicPartition = tuple[str, int]


@dataclass(slots=True)
class _Counted:
    """How far a file has been counted: complete lines, and the byte after the last of them."""

    lines: int = 0
    bytes_read: int = 0


class TopicDirectory:
    """Reads the directory at `root`, from any thread. Counts are kept for each file, so asking
    again for an end is cheap.

    Errors: SourceError for what is no such directory.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self._counted: dict[Path, _Counted] = {}
        self._lock = threading.Lock()

    def topics(self) -> list[str]:
        """The names of all topics, sorted; none if there is no directory yet."""
        try:
            with os.scandir(self.root) as entries:
                return sorted(entry.name for entry in entries if (Path(entry.path) / TOPIC_FILE).is_file())
        except FileNotFoundError:
            return []

    def partition_count(self, topic: str) -> int | None:
        """How many partitions a topic has; None if there is no such topic."""
        return read_count(self.root / topic)

    def earliest(self, tp: TopicPartition) -> int:
        """The number in the name of the oldest file."""
        return next((first for first, _ in self.files(tp)), 0)

    def latest(self, tp: TopicPartition) -> int:
        """The number in the name of the newest file, plus its complete lines."""
        return self._end(self.files(tp))

    def files(self, tp: TopicPartition) -> list[tuple[int, Path]]:
        """First offset and path of each file of a partition, in order."""
        folder = self.root / tp[0] / str(tp[1])
        try:
            names = sorted(entry.name for entry in os.scandir(folder) if entry.name.endswith((SUFFIX, OTHERS_SUFFIX)))
        except FileNotFoundError:
            if read_count(self.root / tp[0]) is None:
                raise SourceError(f"there is no topic {tp[0]!r} in {self.root}") from None
            return []
        for name in names:
            if name.endswith(OTHERS_SUFFIX):
                raise SourceError(f"{folder / name} is a Parquet file, which the Spark bridge reads and nobody else")
        return [(first_offset_of(folder / name), folder / name) for name in names]

    def _end(self, files: Sequence[tuple[int, Path]]) -> int:
        return files[-1][0] + self.count(files[-1][1]) if files else 0

    def count(self, path: Path) -> int:
        """Complete lines of a file; only what was appended since the last call is read."""
        with self._lock:
            counted = self._counted.setdefault(path, _Counted())
            with path.open("rb") as file:
                if os.fstat(file.fileno()).st_size < counted.bytes_read:
                    # Made again under the old name.
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


def file_name(first_offset: int) -> str:
    """The name of the file that begins with this offset."""
    return f"{first_offset:0{NAME_DIGITS}d}{SUFFIX}"


def first_offset_of(path: Path) -> int:
    """The offset in a file's name. SourceError if there is none."""
    stem = path.stem
    if len(stem) != NAME_DIGITS or not (stem.isascii() and stem.isdigit()):
        raise SourceError(f"{path} is not named after an offset of {NAME_DIGITS} digits")
    return int(stem)


def read_count(folder: Path) -> int | None:
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


def lines_between(path: Path, first: int, start: int, stop: int) -> Iterator[tuple[int, bytes]]:
    """The complete lines of a file with the offsets from `start` up to `stop`, fewer if it has fewer."""
    with path.open("rb") as file:
        for offset, line in enumerate(file, start=first):
            if offset >= stop or not line.endswith(b"\n"):
                return
            if offset >= start:
                yield offset, line
