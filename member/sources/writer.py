"""Appending to a directory of topics. What it looks like is told in `directory`."""

import json
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from rallypoint.member.sources.directory import (
    OTHERS_SUFFIX,
    SUFFIX,
    TOPIC_FILE,
    file_name,
    first_offset_of,
    read_count,
)
from rallypoint.member.sources.errors import SourceError
from rallypoint.member.sources.folder_lock import locked
from rallypoint.member.sources.records import Record, write_line

FILE_BYTES_MAX = 16 * 1024 * 1024


class FilesWriter:
    """Appends to one topic of a directory of topics. Several writers may work at once, in several processes, too.

    Raises ValueError for a topic that cannot be the name of a folder, and for one that does not exist if `partitions`
    is not given.

    Args:
        path: The directory that has a folder for each topic.
        topic: The name of the topic, and of its folder.
        partitions: Creates the topic, or lets it grow to so many partitions. None: the topic must exist.
        file_bytes_max: A file that is longer gets no more records.
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
        count = read_count(self._folder)
        if count is None:
            raise ValueError(f"there is no topic {topic!r} in {path}; say how many partitions it shall have")
        self.partitions = count

    def grow(self, partitions: int) -> None:
        """Let the topic have so many partitions, if it has fewer. Raises ValueError if it has more, or for none."""
        if partitions < 1:
            raise ValueError(f"partitions: {partitions} is below the least, 1")
        self._folder.mkdir(parents=True, exist_ok=True)
        with locked(self._folder):
            count = read_count(self._folder) or 0
            if partitions < count:
                raise ValueError(f"{self._folder} has {count} partitions and cannot have {partitions}")
            for partition in range(count, partitions):
                (self._folder / str(partition)).mkdir(exist_ok=True)
            partial = self._folder / f"{TOPIC_FILE}.partial"
            partial.write_text(json.dumps({"partitions": partitions}), encoding="utf-8")
            partial.replace(self._folder / TOPIC_FILE)
        self.partitions = partitions

    def append(self, partition: int, records: Iterable[Record]) -> int:
        """Write records to the end of a partition, all in one file. Returns the offset of the first.

        Raises TypeError for a key, a value or the value of a header that is not bytes; nothing is written then.
        Half a line that a writer left behind when it died is cut off first. The operating system has the records when
        this returns; they are not forced to the disk.
        """
        data = b"".join(write_line(record) for record in records)
        with self.opened(partition) as folder:
            path, next_offset = self.place_to_append(partition, folder)
            with path.open("ab") as file:
                file.write(data)
                self._ends[partition] = path, file.tell(), next_offset + data.count(b"\n")
        return next_offset

    @contextmanager
    def opened(self, partition: int) -> Iterator[Path]:
        """The folder of a partition, with other writers kept out. ValueError where the topic has none such."""
        if not 0 <= partition < self.partitions:
            raise ValueError(f"{self._folder} has the partitions 0 to {self.partitions - 1}, not {partition}")
        folder = self._folder / str(partition)
        folder.mkdir(exist_ok=True)
        with locked(folder):
            yield folder

    def place_to_append(self, partition: int, folder: Path) -> tuple[Path, int]:
        """The file to append to, ending with a whole line, and the offset that its next line will have.

        Cheap while this writer is the only one; else the last file is counted. SourceError after a Parquet file.
        """
        names = sorted(entry.name for entry in os.scandir(folder) if entry.name.endswith((SUFFIX, OTHERS_SUFFIX)))
        if not names:
            return folder / file_name(0), 0
        path = folder / names[-1]
        if path.suffix == OTHERS_SUFFIX:
            raise SourceError(f"{path} is a Parquet file: append with the writer of the Spark bridge")
        known, size, next_offset = self._ends.get(partition, (None, 0, 0))
        if path == known and path.stat().st_size == size:
            return (path if size < self._file_bytes_max else folder / file_name(next_offset)), next_offset
        lines = whole = 0
        with path.open("r+b") as file:
            for line in file:
                if line.endswith(b"\n"):
                    lines += 1
                    whole += len(line)
            file.truncate(whole)
        next_offset = first_offset_of(path) + lines
        return (path if whole < self._file_bytes_max else folder / file_name(next_offset)), next_offset
