"""A store's file as seen from outside: whether it may be opened, and whether it is still the file that was opened.

A file that is deleted, renamed or replaced can be written on through its handle, and nothing fails. Only a look at its
name shows that nobody will find what is written. The same holds for SQLite's two files beside it:

    <name>-wal   the write-ahead log: commits that are not in the file yet. Without it they are lost
    <name>-shm   an index of the log, shared by the programs that have the file open

Nothing here opens a file: to close a handle again would drop SQLite's locks.
"""

import os
import stat
from dataclasses import dataclass
from enum import Enum, auto
from pathlib import Path

from rallypoint.coordinator.storage.contract import StorageUnavailable, StoredDataInvalid
from rallypoint.coordinator.storage.file_lock import Note
from rallypoint.coordinator.storage.replacing import what_lies_aside

FILE_BYTES_MIN = 512
"""The smallest page of SQLite: a smaller file is none of a store."""


def found_at(path: Path) -> os.stat_result | None:
    """What is there; None where nothing is. Raises StorageUnavailable where the system does not say."""
    try:
        return os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise StorageUnavailable(f"cannot look at {path}: {error.strerror}") from error


def is_folder(path: Path) -> bool:
    """Whether a folder is there. Raises StorageUnavailable where the system does not say."""
    found = found_at(path)
    return found is not None and stat.S_ISDIR(found.st_mode)


def is_there(path: Path, note: Note | None) -> bool:
    """Whether the file is there, to be opened; False if it is to be made, since there never was one.

    Raises StoredDataInvalid if a store was there that is lost or cut off, and StorageUnavailable.
    """
    lock, log = _beside(path, "lock"), _beside(path, "wal")
    restart = f"remove {lock.name} and start again"
    try:
        found = os.stat(path)
    except FileNotFoundError:
        aside = what_lies_aside(path)
        if aside:
            raise StoredDataInvalid(f"{path} is missing: {aside}") from None
        log_bytes = log.stat().st_size if log.exists() else 0
        if log_bytes:
            raise StoredDataInvalid(
                f"{path} is missing, but its log {log.name} is there, with {log_bytes} bytes; put the file back, or,"
                f" to begin with an empty store, move {log.name} away, {restart}"
            ) from None
        if note is not None:
            raise StoredDataInvalid(
                f"{path} is missing; there was a store, at commit {note.sequence}; put the file back, or a backup"
                f" of it and {restart}, or, to begin with an empty store, {restart}"
            ) from None
        return False
    except OSError as error:
        raise StorageUnavailable(f"cannot open {path}: {error.strerror}") from error
    if not stat.S_ISREG(found.st_mode):
        raise StorageUnavailable(f"cannot open {path}: it is no file")
    if found.st_size < FILE_BYTES_MIN:
        raise StoredDataInvalid(
            f"{path} has {found.st_size} bytes and is no store, or was cut off; put a backup in its place and"
            f" {restart},"
            " or, to begin with an empty store, remove it, too"
        )
    if found.st_nlink > 1:
        raise StorageUnavailable(_linked(path, found))
    if note is not None and note.ruin:
        raise StoredDataInvalid(
            f"{path} is not whole: {note.ruin} while it was open; put a backup in its place without its log, or, to go"
            f" on with what is left, keep the log; in either case {restart}"
        )
    return True


class Remedy(Enum):
    """What can be done about a trouble with the files."""

    WAIT = auto()
    """Until somebody has put the files back."""
    RECREATE = auto()
    """The store's file is there, and SQLite can recreate the other one."""
    COUNT_PAGES = auto()
    """The file has become shorter: it may still hold all its pages, after another program's VACUUM."""
    READ_PAGES = auto()
    """The log has become shorter: all it held may be in the file, after another program's checkpoint."""
    NONE = auto()


@dataclass(frozen=True, slots=True)
class Trouble:
    """What is wrong with the files. `ruin` says it of the file, for the note, if it is not to be waited for."""

    text: str
    remedy: Remedy = Remedy.WAIT
    ruin: str = ""


class FilePlace:
    """The files of an open store. Each look costs three system calls."""

    def __init__(self, path: Path, log_bytes_kept: int) -> None:
        """Remember the file that is there now. SQLite itself cuts the log to `log_bytes_kept` and never to less."""
        self.path = path
        self._name = str(path)
        self._log_name = f"{path}-wal"
        self._log_bytes_kept = log_bytes_kept
        self.log_bytes = 0
        """Of the write-ahead log, at the last look."""
        found = os.stat(path)
        self._file = (found.st_dev, found.st_ino)
        self._file_bytes = found.st_size
        self._written_ns = found.st_mtime_ns
        self._was_linked = False
        self._beside: dict[str, tuple[int, int]] = {}

    def remember_files_beside(self) -> None:
        """SQLite has opened its other two files just now."""
        names = (self._log_name, f"{self.path}-shm")
        self._beside = {name: (found.st_dev, found.st_ino) for name in names for found in (os.stat(name),)}
        self.log_bytes = 0

    def accept_length(self, remedy: Remedy) -> None:
        """All is there though the file, or its log, has become shorter."""
        if remedy is Remedy.COUNT_PAGES:
            self._file_bytes = 0
        else:
            self.log_bytes = 0

    def trouble_with_file(self) -> Trouble | None:
        """What is wrong with the store's file itself."""
        try:
            found = os.stat(self._name)
        except FileNotFoundError:
            return Trouble(f"{self.path} was deleted or renamed while it was open; put it back")
        except OSError as error:
            return Trouble(f"{self.path} cannot be looked at: {error.strerror}")
        if (found.st_dev, found.st_ino) != self._file:
            return Trouble(f"{self.path} was replaced by another file while it was open; put it back, or restart")
        self._was_linked = self._was_linked or found.st_nlink > 1
        if self._was_linked and found.st_mtime_ns != self._written_ns:
            # Through the other name it has another log, and its pages do not fit to those of ours.
            return _ruined(self.path, "another program wrote to it through another hard link")
        if found.st_nlink > 1:
            return Trouble(_linked(self.path, found))
        self._was_linked = False
        if found.st_size < self._file_bytes:
            remedy = Remedy.COUNT_PAGES if found.st_size >= FILE_BYTES_MIN else Remedy.NONE
            return _ruined(self.path, f"it was cut to {found.st_size} bytes", remedy)
        self._file_bytes, self._written_ns = found.st_size, found.st_mtime_ns
        return None

    def trouble(self) -> Trouble | None:
        """What is wrong with any of the files."""
        trouble = self.trouble_with_file()
        if trouble is not None:
            return trouble
        for name, identity in self._beside.items():
            try:
                found = os.stat(name)
            except FileNotFoundError:
                return Trouble(f"{name} was deleted while it was open", Remedy.RECREATE)
            except OSError as error:
                return Trouble(f"{name} cannot be looked at: {error.strerror}")
            if (found.st_dev, found.st_ino) != identity:
                return Trouble(f"{name} was replaced by another file while it was open; put it back")
            if name == self._log_name:
                if found.st_size < self.log_bytes and found.st_size < self._log_bytes_kept:
                    return _ruined(self.path, f"its log was cut to {found.st_size} bytes", Remedy.READ_PAGES)
                self.log_bytes = found.st_size
        return None


def _ruined(path: Path, ruin: str, remedy: Remedy = Remedy.NONE) -> Trouble:
    return Trouble(f"{path} is not whole: {ruin} while it was open; stop, and put a backup in its place", remedy, ruin)


def _beside(path: Path, what: str) -> Path:
    return path.with_name(f"{path.name}-{what}")


def _linked(path: Path, found: os.stat_result) -> str:
    return (
        f"{path} has {found.st_nlink} hard links; SQLite keeps a log for each name, and two of them ruin the file;"
        " remove all names but one"
    )
