"""The log of a load into files: which offsets are written, by which files. Entries are numbered and immutable.

Each entry is complete: it holds the positions of all partitions once its files are in place, and the sources and
targets of the files. So only the last entry counts, and the others may be deleted. An entry is added under the number
after the last one, and only if that number is free: if two drivers continue from the same entry, one of them succeeds.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from rallypoint.spark_bridge.exactly_once.errors import LoadFailed
from rallypoint.spark_bridge.exactly_once.file_store import FileStore
from rallypoint.spark_bridge.offsets import TopicPartition

ENTRIES_KEPT = 10
"""How many entries are kept for inspection."""
NUMBER = re.compile(r"(\d{20})\.json")


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry of the log.

    `number`: its number in the log.
    `ends`: the next offset to write of each partition that was ever written.
    `staging`: the name of the staging folder.
    `files`: the target of each file of the staging folder.
    `swept`: the number of the last entry after which staging folders were deleted. No later entry may name a staging
    folder that was created before it.
    `folder`: the URL of the folder of the files, if the log is elsewhere.
    """

    number: int = 0
    ends: Mapping[TopicPartition, int] = field(default_factory=dict)
    staging: str = ""
    files: Mapping[str, str] = field(default_factory=dict)
    swept: int = 0
    folder: str = ""

    def to_json(self) -> str:
        """The content of the entry's file."""
        ends: dict[str, dict[str, int]] = {}
        for (topic, partition), end in sorted(self.ends.items()):
            ends.setdefault(topic, {})[str(partition)] = end
        value = {
            "folder": self.folder,
            "ends": ends,
            "staging": self.staging,
            "files": dict(self.files),
            "swept": self.swept,
        }
        return json.dumps(value, indent=1)

    @classmethod
    def from_json(cls, number: int, text: str) -> "Entry":
        """Parse what `to_json` returned for this number. Raises ValueError for anything else."""
        match json.loads(text):
            case {
                "folder": str(folder),
                "ends": dict(ends),
                "staging": str(staging),
                "files": dict(files),
                "swept": int(swept),
            }:
                return cls(number, dict(_ends(ends)), staging, files, swept, folder)
        raise ValueError("it does not have the form of an entry")


def _ends(by_topic: Mapping[str, Any]) -> Iterator[tuple[TopicPartition, int]]:
    for topic, some in by_topic.items():
        if not isinstance(some, dict):
            raise ValueError(f"the topic {topic} has no partitions")
        for name, end in some.items():
            if not isinstance(end, int):
                raise ValueError(f"the position of {topic}-{name} is {end!r}, which is no offset")
            yield (topic, int(name)), end


class FileLog:
    """The log in one folder of a file store.

    `store`: the file system.
    `folder`: the folder of the log.
    `files_at`: the `Entry.folder` of its entries.
    """

    def __init__(self, store: FileStore, folder: str, files_at: str = "") -> None:
        self._store = store
        self._folder = folder
        self._files_at = files_at

    def last(self) -> Entry:
        """The last entry; one with number 0 if there is none yet. Deletes all but the last `ENTRIES_KEPT` entries.

        Raises LoadFailed if the entry is for another folder of files, or if it cannot be read, because then it is
        unknown what is written.
        """
        while True:
            names = self._store.children(self._folder)
            numbers = sorted(int(found[1]) for name in names if (found := NUMBER.fullmatch(name)))
            if not numbers:
                return Entry(folder=self._files_at)
            text = self._store.read(self._path(numbers[-1]))
            if text is not None:
                for number in numbers[:-ENTRIES_KEPT]:
                    self._store.remove(self._path(number))
                return self._read(numbers[-1], text)
            # Others have been added since, and this one was deleted.

    def put(self, entry: Entry) -> bool:
        """Add an entry. Returns False if its number is taken.

        True means that the file was created, not that it counts: if a driver hangs until the entry of that number was
        added and deleted, it creates one that is never read. Check `last`. Raises LoadFailed, and adds nothing, if the
        entry could not be read again unchanged.
        """
        text = _text_of(entry)
        return self._store.put_if_absent(self._path(entry.number), text)

    def _read(self, number: int, text: str) -> Entry:
        try:
            entry = Entry.from_json(number, text)
        except ValueError as error:
            raise LoadFailed(
                f"{self._store.url}/{self._path(number)} is no entry of a log ({error}): it was changed or truncated."
                " Restore it; without it, it is unknown what is written"
            ) from error
        if entry.folder != self._files_at:
            raise LoadFailed(
                f"{self._store.url}/{self._path(entry.number)} is for {entry.folder or 'the folder it is in'}, and"
                f" not for {self._files_at or 'that'}: a log belongs to one folder; use another name or another log"
            )
        return entry

    def _path(self, number: int) -> str:
        return f"{self._folder}/{number:020}.json"


def _text_of(entry: Entry) -> str:
    """The entry as text. Raises LoadFailed if it could not be read again, because an entry cannot be changed."""
    try:
        text = entry.to_json()
        same = Entry.from_json(entry.number, text) == entry
    except (TypeError, ValueError) as error:
        raise LoadFailed(f"this cannot be written to the log: {error}") from error
    if not same:
        raise LoadFailed("this cannot be written to the log: topics are text, partitions and offsets are whole numbers")
    return text


def check_log_location(store: FileStore, path: str, location: str) -> None:
    """Write the log's location into the folder of the files. Raises LoadFailed if another location is there already.

    With two logs, the same records could be written twice.
    """
    if not store.put_if_absent(path, location) and (noted := store.read(path)) != location:
        raise LoadFailed(
            f"{store.url}/{path} says that the log of this load is at {noted}, and not at {location}: all drivers that"
            " write one load need the same log="
        )
