"""Whether a store's file, its log and the note beside them belong together: to one store, in its newest state.

A service, a backup, and a restore (of what it replaces) check this before they open a store. Three sequences decide:
that of the file without its log, that of both together, and those in the note (`file_lock.py`). Each only ever grows,
so read them in this order if a service may be running: the note, the file alone, both together.
"""

from pathlib import Path

from rallypoint.coordinator.storage import sqlite_schema
from rallypoint.coordinator.storage.contract import StorageUnavailable
from rallypoint.coordinator.storage.file_lock import Note

LOG_HEADER_BYTES = 32
"""A log of this size has no commit."""


def has_log(path: Path) -> bool:
    """Whether anything is in the log beside the file. It may be in the file, too. Raises StorageUnavailable."""
    return log_bytes(path) > LOG_HEADER_BYTES


def log_bytes(path: Path) -> int:
    """The size of the log beside the file, 0 where there is none. Raises StorageUnavailable.

    One look: a service that stops removes its log, and between two looks it would be gone.
    """
    log = log_of(path)
    try:
        return log.stat().st_size
    except FileNotFoundError:
        return 0
    except OSError as error:
        raise StorageUnavailable(f"the log {log} cannot be looked at: {error.strerror}") from error


def log_of(path: Path) -> Path:
    """The name of the write-ahead log."""
    return path.with_name(f"{path.name}-wal")


def sequence_alone(path: Path) -> int | None:
    """That of the file without its log; None where it has none, or cannot be read without it.

    To be called while nothing in this process has the file open. Raises StorageUnavailable.
    """
    return sqlite_schema.sequence_without_log(path) if has_log(path) else None


def mismatch(path: Path, note: Note | None, alone: int | None, found: int | None = None) -> str:
    """Why the store must not be taken as it is; "" where nothing speaks against it.

    `alone` is what `sequence_alone` gave, `found` the sequence of the file with its log, None before that was read: a
    file that does not fit to its log is better not opened with it.
    """
    log, lock = log_of(path).name, f"{path.name}-lock"
    if note is not None and alone is not None and alone < note.base:
        return (
            f"{path} does not belong to its log {log}: it is an older copy, or of another store (it is at"
            f" commit {alone}, and the log begins at {note.base}); put the file of the log back, or, to go on with"
            f" this one, move {log} away, remove {lock} and start again"
        )
    if found is None:
        return ""
    if alone is not None and found < alone:
        return (
            f"{path} does not belong to its log {log}, which was cut off, or is older or of"
            f" another store: the file is at commit {alone}, and the log leads to {found}; put the file's own"
            f" log back, or, to go on without one, move {log} away, and start again"
        )
    if note is not None and found < note.sequence:
        return (
            f"{path} has gone back: it is at commit {found}, and was at {note.sequence}; its log was lost,"
            f" or it is an older copy; to go on without the last commits, remove only {lock} and"
            " start again; otherwise put the newest back with its log"
        )
    return ""
