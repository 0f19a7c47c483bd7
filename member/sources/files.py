"""A directory of topics as a source for consumers. What it looks like on the disk is told in `directory`."""

import logging
from collections.abc import Mapping
from pathlib import Path

from rallypoint.member.consumer.contract import Fetched, OffsetOutOfRange
from rallypoint.member.sources.directory import TOPIC_FILE, TopicDirectory, TopicPartition
from rallypoint.member.sources.errors import RecordsLost
from rallypoint.member.sources.records import Record, read_line

log = logging.getLogger(__name__)


class FilesSource:
    """Reads what a `FilesWriter` appends. For `BlockingConsumer`; wrap it with `threaded` for `Consumer`.

    A read that begins where the last one ended costs what it reads. One that begins elsewhere counts the lines of one
    file.

    Args:
        path: The directory that has a folder for each topic.
    """

    def __init__(self, path: str | Path) -> None:
        self._directory = TopicDirectory(Path(path))
        self._missing = ""
        self._places: dict[TopicPartition, tuple[Path, int, int]] = {}

    def partition_counts(self, topics: frozenset[str] | None) -> Mapping[str, int]:
        """As `CountedSource` says; a topic exists once its `topic.json` does."""
        names = self._directory.topics() if topics is None else sorted(topics)
        counts = {topic: self._directory.partition_count(topic) for topic in names}
        self._tell_what_is_missing([topic for topic, count in counts.items() if count is None])
        return {topic: count for topic, count in counts.items() if count is not None}

    def _tell_what_is_missing(self, topics: list[str]) -> None:
        """Once, and again when it is something else: a path is misspelt more often than a topic."""
        root = self._directory.root
        if not root.is_dir():
            missing = f"there is no directory {root.absolute()}, which is to hold a folder for each topic"
        elif topics:
            missing = (
                f"the directory {root.absolute()} has no topic {', '.join(topics)}: no such folder with a {TOPIC_FILE}"
            )
        else:
            missing = ""
        if missing and missing != self._missing:
            log.warning("nothing can be read: %s", missing)
        self._missing = missing

    def earliest(self, topic: str, partition: int) -> int:
        """The number in the name of the oldest file."""
        return self._directory.earliest((topic, partition))

    def latest(self, topic: str, partition: int) -> int:
        """The number in the name of the newest file, plus its complete lines."""
        return self._directory.latest((topic, partition))

    def read(self, topic: str, partition: int, offset: int, record_count_max: int) -> Fetched[Record]:
        """Read complete lines of one file from `offset` on, without waiting. RecordsLost if a file ends too early."""
        tp = (topic, partition)
        files = self._directory.files(tp)
        earliest = files[0][0] if files else 0
        at = max((index for index, (first, _) in enumerate(files) if first <= offset), default=None)
        if at is None:
            if offset == earliest:
                return Fetched((), offset)
            raise OffsetOutOfRange(f"{topic}-{partition} begins at {earliest}, not at {offset}")
        first, path = files[at]
        records, end = self._read_file(tp, path, first, offset, record_count_max)
        if not records and end < offset:
            raise OffsetOutOfRange(f"{topic}-{partition} ends at {end}, before {offset}")
        if not records and at + 1 < len(files):
            raise RecordsLost(f"{path} ends at {end}, and {files[at + 1][1].name} follows")
        return Fetched(records, end)

    def _read_file(
        self, tp: TopicPartition, path: Path, first: int, offset: int, record_count_max: int
    ) -> tuple[list[Record], int]:
        """Records from `offset` on, and the offset that follows: below `offset` if the file has fewer lines."""
        known, known_offset, known_byte = self._places.get(tp, (None, 0, 0))
        position, byte = (known_offset, known_byte) if (known, known_offset) == (path, offset) else (first, 0)
        records: list[Record] = []
        with path.open("rb") as file:
            file.seek(byte)
            while len(records) < record_count_max and (line := file.readline()).endswith(b"\n"):
                if position >= offset:
                    records.append(read_line(line, path, position))
                position += 1
                byte += len(line)
        self._places[tp] = (path, position, byte)
        return records, position
