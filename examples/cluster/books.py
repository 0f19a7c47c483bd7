"""What the members of the load write down, one JSON object a line. Times are milliseconds of the machine's clock.

Every process of a machine reads the same monotonic clock, so the books of several processes can be compared.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import BinaryIO

import msgspec

TOPIC = "steps"
"""The one topic of all groups."""

Place = tuple[str, int]
"""A group and a partition of the topic."""


class Commit(msgspec.Struct, frozen=True, tag="commit"):
    """A commit, from its call to its end.

    offsets: by partition.
    error: the name of the error with which it was refused; None where it was acknowledged.
    """

    group_id: str
    member: str
    began_ms: int
    ended_ms: int
    offsets: dict[int, int]
    error: str | None = None

    @property
    def places(self) -> Mapping[Place, int]:
        """The offsets by place."""
        return {(self.group_id, partition): offset for partition, offset in self.offsets.items()}


class Fetch(msgspec.Struct, frozen=True, tag="fetch"):
    """What the service said is committed. offsets: of all partitions of the group that have one."""

    group_id: str
    member: str
    began_ms: int
    ended_ms: int
    offsets: dict[int, int]


class Assigned(msgspec.Struct, frozen=True, tag="assigned"):
    """The member was assigned partitions."""

    group_id: str
    member: str
    at_ms: int
    generation_id: int
    partitions: tuple[int, ...]


class Failed(msgspec.Struct, frozen=True, tag="failed"):
    """The member has stopped for good, or could not fetch. error: why."""

    group_id: str
    member: str
    at_ms: int
    error: str


Entry = Commit | Fetch | Assigned | Failed

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Entry).decode


class Writer:
    """Appends entries to a file, each at once, so that the entries of a process that was killed are there."""

    def __init__(self, path: Path) -> None:
        self._file: BinaryIO = path.open("ab", buffering=0)

    def write(self, entry: Entry) -> None:
        """Add one."""
        self._file.write(_encode(entry) + b"\n")

    def close(self) -> None:
        """No more entries."""
        self._file.close()


class Reader:
    """Reads what was added to the files since the last look."""

    def __init__(self, paths: tuple[Path, ...]) -> None:
        self._offsets = dict.fromkeys(paths, 0)

    def read(self) -> list[Entry]:
        """The whole lines that were added, file by file. A file that is not there yet has none."""
        entries: list[Entry] = []
        for path, offset in self._offsets.items():
            if path.exists():
                with path.open("rb") as file:
                    file.seek(offset)
                    whole, newline, _ = file.read().rpartition(b"\n")
                self._offsets[path] += len(whole) + len(newline)
                entries += [_decode(line) for line in whole.splitlines()]
        return entries
