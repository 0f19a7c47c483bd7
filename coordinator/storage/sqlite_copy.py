"""Copies a store's file to a backup, while a service may have it open, and back to its place, while none has.

A backup is one file with no log beside it. SQLite's own backup makes it, which reads what is in the log, too, and all
of it as of one instant. Both ways the new file is completed, checked and synced under another name, and then renamed. A
store that is replaced lies aside meanwhile (`replacing.py`).
"""

import logging
import os
import secrets
import shutil
import sqlite3
import stat
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from rallypoint.coordinator.storage import sqlite_schema
from rallypoint.coordinator.storage.contract import StorageError, StorageUnavailable, StoredDataInvalid
from rallypoint.coordinator.storage.file_lock import FileLock, Note, read_note
from rallypoint.coordinator.storage.file_match import has_log, log_bytes, log_of, mismatch, sequence_alone
from rallypoint.coordinator.storage.file_place import FILE_BYTES_MIN, found_at, is_folder
from rallypoint.coordinator.storage.replacing import (
    aside_of,
    give_name,
    put_back,
    put_in_place,
    remove,
    sync,
    what_lies_aside,
)
from rallypoint.coordinator.storage.restoring import Prepared, Replaced, Row
from rallypoint.coordinator.storage.sqlite_file import START_STEP_BITS, connect

logger = logging.getLogger(__name__)

Look = Callable[[Iterable[Row]], Replaced]
"""What is to be known of a store before it is replaced, from all that is in it."""

Progress = Callable[[int, int, int], None]
"""Called after each step of a copy, with SQLite's code, the pages that remain and all of them. It may raise."""

Prepare = Callable[[Iterable[Row], Replaced], Prepared]
"""What to write into a backup before it is served, from all that is in it and what is known of the replaced store."""

_ALL_ROWS = f"SELECT space, CAST(key AS BLOB), {sqlite_schema.VALUE} FROM entry ORDER BY space, key"

_OWN = ("", "-wal", "-shm", "-journal", "-lock")

OWN_NAMES = (*_OWN, "-new", "-new-journal", *(f"-replaced{what}" for what in _OWN))
"""What the names of a store's files have behind that of the store: SQLite's, ours, and those of a restore."""

COPY_PAGES = 1000
"""Pages that are copied at a time, between which a signal can end the command: 4 MiB."""

_WAL_VERSION = 2
"""In the header of a file that is to be read with a log. A backup says 1."""


def _go_on(_: int, __: int, ___: int) -> None:
    """Python handles a signal when one of its functions is called."""


def back_up(path: Path, target: Path, progress: Progress = _go_on) -> int:
    """Copy the store of the file `path` to the file `target`, which must not be there. Returns the bytes of it.

    Raises StorageUnavailable, StoredDataInvalid for a store that is damaged or has lost its log, and what `progress`
    raises. Then nothing is left.
    """
    real = Path(os.path.realpath(path))
    found = found_at(real)
    if found is None or not stat.S_ISREG(found.st_mode):
        raise StorageUnavailable(f"there is no store {path}")
    _refuse_own(target, path, real)
    _refuse_present(target)
    # In this order: a service may raise each of them meanwhile, the note last.
    note = read_note(real)
    if note is not None and note.ruin:
        raise StoredDataInvalid(f"{real} is not whole: {note.ruin} while it was open")
    alone = sequence_alone(real)
    _refuse_mismatch(mismatch(real, note, alone))
    with _new_beside(target) as new:
        try:
            with closing(_read_only(real)) as source, closing(connect(new)) as copy:
                # One instant for all steps: they read within this transaction.
                source.execute("BEGIN")
                source.execute("SELECT count(*) FROM sqlite_master").fetchone()
                source.backup(copy, pages=COPY_PAGES, progress=progress)
                _leave_no_log(copy)
                sequence = _check(copy, real)
        except sqlite3.Error as error:
            raise StorageUnavailable(f"cannot copy {real} to {target}: {error}") from error
        _refuse_mismatch(mismatch(real, note, alone, sequence))
        try:
            sync(new)
            length = new.stat().st_size
            give_name(new, target)
            try:
                sync(target.parent)
            except BaseException:
                remove(target)
                raise
        except FileExistsError as error:
            raise StorageUnavailable(_present(target)) from error
        except OSError as error:
            raise StorageUnavailable(f"cannot make {target}: {error.strerror}") from error
    return length


def restore(backup: Path, path: Path, look: Look, prepare: Prepare, *, replace: bool) -> bool:
    """Put a backup in the place of a store. The backup stays.

    backup: the file of the backup.
    path: the file of the store.
    look: reads the store that is replaced.
    prepare: writes into the new store before it takes its place.
    replace: whether a store that is there may be replaced, with its log.

    Returns whether the backup is known to be complete. It is not if it is a file as a service has it, which lacks what
    was in the log if it was copied while one ran. Raises KeyspaceHeld if a service has `path` open, StorageUnavailable,
    StoredDataInvalid, and what `prepare` raises. Then the store is as it was, with its log, or the error says where it
    lies.
    """
    if not is_folder(path.parent):
        raise StorageUnavailable(f"cannot make {path}: the folder {path.parent} does not exist")
    real = Path(os.path.realpath(path))
    is_whole = _is_one_file(backup, real)
    lock = FileLock(path, real)
    try:
        if put_back(real):
            logger.warning("%s was put back: an earlier restore, which was to replace it, was cut off", real)
        is_there = real.exists()
        if is_there:
            lock.take_file(real)
        if not replace and (is_there or log_bytes(real)):
            raise StorageUnavailable(f"{real if is_there else log_of(real)} is there; --force replaces it")
        with _new_beside(real) as new:
            sequence, generation_floor = _prepare_copy(backup, new, prepare, _see(real, lock.note, look), lock.note)
            sync(new)
            put_in_place(real, new)
        lock.write_note(Note(sequence, sequence, generation_floor=generation_floor))
    except OSError as error:
        aside = what_lies_aside(real)
        raise StorageUnavailable(f"cannot restore {real}: {error}{'; ' if aside else ''}{aside}") from error
    finally:
        lock.release()
    return is_whole


def _see(real: Path, note: Note | None, look: Look) -> Replaced:
    """What is known of the store that is to be replaced, from its file, its log and its note. Changes none of them."""
    if not real.exists():
        seen = Replaced(0, "there was no store")
    else:
        try:
            seen = _read_through(real, note, look)
        except (sqlite3.Error, StorageError) as error:
            seen = Replaced(0, f"the store that was replaced could not be read: {error}")
    known = 0 if note is None else note.generation_floor
    return Replaced(max(seen.highest_generation, known), seen.unread)


def _read_through(real: Path, note: Note | None, look: Look) -> Replaced:
    length = real.stat().st_size
    if length < FILE_BYTES_MIN:
        # SQLite takes it for a new one, and removes its log.
        raise StoredDataInvalid(f"{real} has {length} bytes")
    alone = sequence_alone(real)
    # Without a log nothing is made beside the file either.
    with closing(_read_only(real, is_alone=not has_log(real))) as connection:
        connection.execute("BEGIN")
        sequence = _check(connection, real)
        seen = look(connection.execute(_ALL_ROWS))
    if note is None:
        lost = "nothing beside it said how far it had got"
    elif note.ruin:
        lost = f"it is not whole: {note.ruin} while it was open"
    elif mismatch(real, note, alone, sequence):
        lost = "its last commits are missing"
    else:
        lost = seen.unread
    return Replaced(
        seen.highest_generation, f"the store that was replaced could not be read whole: {lost}" if lost else ""
    )


def _is_one_file(backup: Path, real: Path) -> bool:
    """Whether the file says that nothing of it is in a log. Raises StorageUnavailable where it cannot be a backup."""
    try:
        found = os.stat(backup)
        header = b""
        if stat.S_ISREG(found.st_mode):
            with backup.open("rb") as file:
                header = file.read(20)
    except OSError as error:
        raise StorageUnavailable(f"cannot read {backup}: {error.strerror}") from error
    if Path(os.path.realpath(backup)) == real:
        raise StorageUnavailable(f"{backup} is the store itself")
    if Path(os.path.realpath(backup)) in aside_of(real):
        raise StorageUnavailable(f"{backup} is what a restore has left: rename it first")
    if len(header) < 20:
        raise StoredDataInvalid(f"{backup} is no SQLite file")
    if log_bytes(backup):
        log = log_of(backup).name
        raise StorageUnavailable(f"{backup} is no backup but a store, for its log {log} is beside it; back it up")
    return header[18] != _WAL_VERSION


def _prepare_copy(backup: Path, new: Path, prepare: Prepare, replaced: Replaced, note: Note | None) -> tuple[int, int]:
    """Make the file that is to be the store.

    Returns its sequence, which is above that of the note and none that was there before, and its floor of generations.
    """
    shutil.copyfile(backup, new)
    try:
        with closing(connect(new)) as connection:
            found = _check(connection, backup)
            _leave_no_log(connection)
            connection.execute("PRAGMA synchronous = EXTRA")
            connection.execute("BEGIN IMMEDIATE")
            prepared = prepare(connection.execute(_ALL_ROWS), replaced)
            for keyspace, write in prepared.writes:
                connection.execute("INSERT OR REPLACE INTO entry VALUES (?, ?, ?)", (keyspace, write.key, write.value))
            sequence = max(found, 0 if note is None else note.sequence) + 1 + secrets.randbits(START_STEP_BITS)
            connection.execute("UPDATE last_commit SET sequence = ?", (sequence,))
            connection.execute("COMMIT")
    except sqlite3.Error as error:
        raise StorageUnavailable(f"cannot make a store of {backup}: {error}") from error
    return sequence, prepared.generation_floor


def _check(connection: sqlite3.Connection, path: Path) -> int:
    """Read every page. Returns the sequence; raises StoredDataInvalid where the file is no store, or not whole."""
    try:
        sqlite_schema.check(connection, path)
        found: str = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
        if found != "ok":
            raise StoredDataInvalid(f"{path} is damaged: {found}")
        return sqlite_schema.sequence_of(connection, path)
    except sqlite3.DatabaseError as error:
        raise StoredDataInvalid(f"{path} is no SQLite file, or is damaged: {error}") from error


def _read_only(path: Path, *, is_alone: bool = False) -> sqlite3.Connection:
    """`is_alone`: the file has no log, and nobody writes to it."""
    uri = f"{path.absolute().as_uri()}?mode=ro{'&immutable=1' if is_alone else ''}"
    return sqlite3.connect(uri, uri=True, isolation_level=None)


def _leave_no_log(connection: sqlite3.Connection) -> None:
    """Let the file say that it has none, so that it is whole by itself."""
    connection.execute("PRAGMA journal_mode = DELETE")


def _refuse_mismatch(what: str) -> None:
    if what:
        raise StoredDataInvalid(what)


def _refuse_own(target: Path, given: Path, real: Path) -> None:
    """A backup under such a name would be taken for a part of the store, or removed with it."""
    place = Path(os.path.realpath(target.parent)) / target.name
    for store in (given.absolute(), real):
        folder = Path(os.path.realpath(store.parent))
        # The store itself is there, which is another sentence.
        if place in [folder / f"{store.name}{what}" for what in OWN_NAMES[1:]]:
            raise StorageUnavailable(f"{target} is the name of a file of the store itself; a backup has one of its own")


def _refuse_present(target: Path) -> None:
    # What lies beside it under SQLite's names would be taken for its own.
    for name in (target, *(target.with_name(f"{target.name}-{what}") for what in ("wal", "journal"))):
        if os.path.lexists(name):
            raise StorageUnavailable(_present(name))


def _present(target: Path) -> str:
    return f"{target} is there already; a backup replaces nothing"


@contextmanager
def _new_beside(target: Path) -> Iterator[Path]:
    """A new file of its owner alone, to be filled and renamed. Whatever is left of it in the end is removed."""
    try:
        handle, name = tempfile.mkstemp(prefix=f"{target.name}-new-", dir=target.parent)
    except OSError as error:
        raise StorageUnavailable(f"cannot make {target}: {error.strerror}") from error
    os.close(handle)
    new = Path(name)
    try:
        yield new
    finally:
        for leftover in (new, *(new.with_name(f"{new.name}-{what}") for what in ("journal", "wal", "shm"))):
            remove(leftover)
