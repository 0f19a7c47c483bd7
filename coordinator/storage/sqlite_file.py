"""The SQLite file of a store, and the one connection to it: durability, transactions, doubt. No threads here.

The tables are in `sqlite_schema.py`. The sequence in `last_commit` settles four questions:

- *Is the transaction in the file whose COMMIT failed?* SQLite may have written all of it and failed to sync, and the
  next to open the file would find it. So the connection is closed, the file reopened and checkpointed, which copies
  whatever is valid and syncs it; then the sequence tells.
- *Has the file gone back?* A log that was deleted, or an older file in its place, has a lower sequence than the one
  that was last known here, or, at a start, than the note beside the file (`file_lock.py`).
- *Does the log that a crash left belong to the file?* A file that the log can be replayed into is not behind the
  sequence that the file had when the log began, and not ahead of the one that the log leads to.
- *Does somebody else write?* Each transaction finds the sequence that the last one left.

`trouble` says in a few words why nothing can be stored now. It comes with any failure of the file, and with the loss of
the file (`file_place.py`); it goes with the next transaction that works, which `look` tries by itself.
"""

import logging
import os
import secrets
import sqlite3
from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass
from pathlib import Path

from rallypoint.coordinator.storage import sqlite_schema
from rallypoint.coordinator.storage.contract import (
    AppendDoubtful,
    AppendFailed,
    Fenced,
    StorageError,
    StorageUnavailable,
    StoredDataInvalid,
    Write,
)
from rallypoint.coordinator.storage.file_lock import FileLock, Note
from rallypoint.coordinator.storage.file_match import has_log, log_of, mismatch, sequence_alone
from rallypoint.coordinator.storage.file_place import FilePlace, Remedy, Trouble, is_folder, is_there
from rallypoint.coordinator.storage.replacing import what_lies_aside

CHECKPOINT_PAGES = 1000
"""Pages in the write-ahead log at which a commit also copies them into the file: 4 MiB, SQLite's own default."""

LOG_SIZE_MAX_BYTES = 64 * 1024 * 1024
"""What the write-ahead log is cut to after a checkpoint, should one huge transaction have made it longer."""

LOG_SIZE_WARN_BYTES = 2 * LOG_SIZE_MAX_BYTES
"""A log of this size is held open by a reader: the largest batch and a checkpoint come to less."""

BUSY_TIMEOUT_S = 5.0
"""How long a write waits for another program (a shell, a backup) that has the file locked."""

CLOSE_BUSY_TIMEOUT_MS = 250
"""How long a close waits for a program that reads: a part of what a stop has left when the drain is over."""

START_STEP_BITS = 40
"""How far a start raises the sequence, at random. So no two starts count through the same numbers, of one store that
was copied or of two, and a sequence tells to which of them a file or a log belongs.
"""

_IN_A_FEW_WORDS = {
    sqlite3.SQLITE_FULL: "the disk is full",
    sqlite3.SQLITE_READONLY: "the file or its disk is read-only",
    sqlite3.SQLITE_BUSY: "another program has the file locked",
    sqlite3.SQLITE_CANTOPEN: "the file cannot be opened",
    sqlite3.SQLITE_IOERR: "the disk fails",
    sqlite3.SQLITE_CORRUPT: "the file is damaged",
    sqlite3.SQLITE_NOTADB: "the file is damaged",
}

ROWS_AT_ONCE = 32
"""Rows that one statement puts, at the most: as many as there usually are in a busy transaction, at least."""

_PUT = [
    f"INSERT INTO entry VALUES {', '.join(['(?, ?, ?)'] * count)}"
    " ON CONFLICT (space, key) DO UPDATE SET value = excluded.value"
    for count in range(ROWS_AT_ONCE + 1)
]
"""By the number of rows."""

logger = logging.getLogger(__name__)

Connect = Callable[[Path], sqlite3.Connection]


@dataclass(frozen=True, slots=True)
class Batch:
    """What one append stores, and under which epoch."""

    keyspace: str
    epoch: int
    writes: Sequence[Write]


def connect(path: Path) -> sqlite3.Connection:
    """A connection to a file that is there. It leaves transactions to its user, and is used by one thread at a time."""
    uri = f"{path.absolute().as_uri()}?mode=rw"
    return sqlite3.connect(uri, uri=True, timeout=BUSY_TIMEOUT_S, isolation_level=None, check_same_thread=False)


class SqliteFile:
    """An open store file. Not for two threads at once, but for `trouble` and `log_bytes`, which any may read."""

    def __init__(
        self, path: Path, connect: Connect = connect, *, log_size_warn_bytes: int = LOG_SIZE_WARN_BYTES
    ) -> None:
        """Open the file, or make it if there never was one. Raises KeyspaceHeld, StorageUnavailable or
        StoredDataInvalid, each naming it.
        """
        self.trouble: str | None = None
        if not is_folder(path.parent):
            raise StorageUnavailable(f"cannot open {path}: the folder {path.parent} does not exist")
        self.path = Path(os.path.realpath(path))
        self._connect = connect
        self._connection: sqlite3.Connection | None = None
        self._sequence = 0
        self._base = 0
        self._data_version = 0
        self._epochs: dict[str, int] = {}
        self._refusal: str | None = None
        self._doubtful_epochs: dict[str, int] = {}
        self._log_size_warn_bytes = self._log_warn_next_bytes = log_size_warn_bytes
        self._lock = FileLock(path, self.path)
        try:
            if not is_there(self.path, self._lock.note):
                self._create()
            elif self._lock.note is None:
                logger.warning(
                    "nothing beside %s says how far it had got: if it is a copy that was made with cp while a service"
                    " ran, the last commits are missing, perhaps all; `rallypoint backup` and `rallypoint restore` copy"
                    " a store",
                    self.path,
                )
            aside = what_lies_aside(self.path)
            if aside:
                logger.warning("%s", aside)
            self._lock.take_file(self.path)
            self._place = FilePlace(self.path, LOG_SIZE_MAX_BYTES)
            self._check_log()
            self._open(is_first=True)
        except BaseException:
            self._lock.release()
            raise

    def close(self) -> None:
        """Copy the log into the file, sync, close, and let other processes have it. Raises nothing.

        What cannot be copied, as while another program reads the file, stays in the log, where the next start finds it,
        and a warning says so. Nothing is copied into a file that is not as it was.
        """
        try:
            is_copied = False
            trouble = self._place.trouble()
            if trouble is not None and trouble.remedy is not Remedy.RECREATE:
                self._lock.keep_log()
            elif self._refusal is None:
                is_copied = self._copy_log()
            self._abandon_connection("at the end")
            if not is_copied:
                self._warn_of_log()
        finally:
            self._lock.release()

    def _copy_log(self) -> bool:
        """Whether all that is in the log is in the file now, and on disk.

        To close a connection does this by itself, but only if nobody else has the file open, and without a word.
        """
        if self._connection is None:
            return False
        try:
            self._connection.execute(f"PRAGMA busy_timeout = {CLOSE_BUSY_TIMEOUT_MS}")
            _, frames, copied = self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        except sqlite3.Error as error:
            logger.warning("copying the log into %s: %s", self.path, error)
            return False
        return bool(frames == copied)

    def _warn_of_log(self) -> None:
        try:
            is_left = has_log(self.path)
        except StorageUnavailable as error:
            logger.warning("%s", error)
            return
        if is_left:
            logger.warning(
                "the last commits of %s stay in its log, %s, since they could not be copied into it, as while another"
                " program reads it: keep both",
                self.path,
                log_of(self.path).name,
            )

    @property
    def log_bytes(self) -> int:
        """Size of the write-ahead log, at the last look."""
        return self._place.log_bytes

    def durability(self) -> dict[str, int | str]:
        """What the writing connection itself says of how it writes."""
        connection = self._connected()
        names = ("journal_mode", "synchronous", "wal_autocheckpoint", "journal_size_limit")
        return {name: connection.execute(f"PRAGMA {name}").fetchone()[0] for name in names}

    # --- reading and owning ------------------------------------------------------------------------------------------

    def acquire(self, keyspace: str) -> int:
        """Raise the epoch of the keyspace and return it: whoever had the keyspace before is fenced."""
        connection = self._connected()
        try:
            connection.execute("BEGIN IMMEDIATE")
            row = connection.execute(
                "INSERT INTO space VALUES (?, 1) ON CONFLICT (name) DO UPDATE SET epoch = epoch + 1 RETURNING epoch",
                (keyspace,),
            ).fetchone()
            connection.execute("COMMIT")
        except sqlite3.Error as error:
            # The outcome does not matter: an epoch that nobody was given owns nothing.
            self._epochs.pop(keyspace, None)
            self._fail(error)
            raise StorageUnavailable(f"cannot acquire {keyspace} in {self.path}: {error}") from error
        epoch: int = row[0]
        self._epochs[keyspace] = epoch
        return epoch

    def read_page(
        self, keyspace: str, epoch: int, prefix: bytes, after: bytes | None, rows_max: int
    ) -> list[tuple[bytes, bytes]]:
        """Rows of the keyspace in the order of keys that begin with `prefix` and come after `after`."""
        connection = self._connected()
        try:
            if epoch != self._epoch_of(connection, keyspace):
                raise Fenced(f"epoch {epoch} of {keyspace} is over")
            # No key begins with 0xff bytes only, for keys are UTF-8: the end of the prefix always exists.
            end = b"\xff" if not prefix else prefix[:-1] + bytes((prefix[-1] + 1,))
            # One lower bound alone: of two, SQLite searches by the first, and steps over every row before the second.
            comparison, start = (">=", prefix) if after is None or after < prefix else (">", after)
            return connection.execute(
                f"SELECT key, {sqlite_schema.VALUE} FROM entry"
                f" WHERE space = ? AND key {comparison} ? AND key < ? ORDER BY key LIMIT ?",
                (keyspace, start, end, rows_max),
            ).fetchall()
        except sqlite3.Error as error:
            self._fail(error)
            raise StorageUnavailable(f"cannot read {keyspace} in {self.path}: {error}") from error

    def _current(self, connection: sqlite3.Connection, owners: Set[tuple[str, int]]) -> Set[tuple[str, int]]:
        """Those of the keyspaces, with their epochs, that may write now. Asked in one go, for nearly always all may."""
        pairs = ", ".join(["(?, ?)"] * len(owners))
        (count,) = connection.execute(
            f"SELECT count(*) FROM space WHERE (name, epoch) IN (VALUES {pairs})",
            [cell for pair in owners for cell in pair],
        ).fetchone()
        if count == len(owners) and self._doubtful_epochs.items().isdisjoint(owners):
            return owners
        return {(keyspace, epoch) for keyspace, epoch in owners if epoch == self._epoch_of(connection, keyspace)}

    def _epoch_of(self, connection: sqlite3.Connection, keyspace: str) -> int | None:
        """The epoch that may write now; None where nobody may, after a doubt or where nobody ever acquired it."""
        row = connection.execute("SELECT epoch FROM space WHERE name = ?", (keyspace,)).fetchone()
        return None if row is None or self._doubtful_epochs.get(keyspace) == row[0] else row[0]

    # --- writing -----------------------------------------------------------------------------------------------------

    def append(self, batches: Sequence[Batch]) -> list[StorageError | None]:
        """Store the batches in one transaction. Returns the fate of each: None, or the error its owner gets.

        A batch that cannot be stored takes no other with it: they are then tried one by one.
        """
        try:
            connection = self._connected()
            connection.execute("BEGIN IMMEDIATE")
        except (sqlite3.Error, StorageError) as error:
            self._fail(error)
            return [AppendFailed(f"cannot write to {self.path}: {error}") for _ in batches]
        try:
            fates = self._write(connection, batches)
            if all(fates):
                connection.execute("ROLLBACK")
                return fates
        except (sqlite3.Error, StorageError) as error:
            self._fail(error)
            if len(batches) == 1 or isinstance(error, StorageError):
                return [AppendFailed(f"cannot write to {self.path}: {error}") for _ in batches]
            return [self.append([batch])[0] for batch in batches]
        try:
            connection.execute("COMMIT")
        except sqlite3.Error as error:
            return self._settle(batches, fates, error)
        self._sequence += 1
        try:
            self._check_place()
        except StorageError as error:
            # It went into a file that nobody will find, perhaps.
            self._fail(error)
            return self._doubt(batches, fates, str(error))
        self._succeed()
        return fates

    def _write(self, connection: sqlite3.Connection, batches: Sequence[Batch]) -> list[StorageError | None]:
        current = self._current(connection, {(batch.keyspace, batch.epoch) for batch in batches})
        fates: list[StorageError | None] = []
        final: dict[tuple[str, bytes], bytes | None] = {}
        for batch in batches:
            if (batch.keyspace, batch.epoch) not in current:
                fates.append(Fenced(f"epoch {batch.epoch} of {batch.keyspace} is over"))
                continue
            fates.append(None)
            for key, value in batch.writes:
                final[batch.keyspace, key] = value
        _put(connection, [(keyspace, key, value) for (keyspace, key), value in final.items() if value is not None])
        connection.executemany(
            "DELETE FROM entry WHERE space = ? AND key = ?",
            (keyspace_key for keyspace_key, value in final.items() if value is None),
        )
        self._raise_sequence(connection)
        return fates

    def _raise_sequence(self, connection: sqlite3.Connection, step: int = 1) -> None:
        """Raises StorageUnavailable, now and for good, if another program has written since our last transaction."""
        raised = connection.execute(
            "UPDATE last_commit SET sequence = ? WHERE sequence = ?", (self._sequence + step, self._sequence)
        )
        if raised.rowcount != 1:
            self._refuse(f"another program writes to {self.path}; stop it, and restart")

    def _settle(
        self, batches: Sequence[Batch], fates: list[StorageError | None], error: sqlite3.Error
    ) -> list[StorageError | None]:
        """Find out whether the transaction whose COMMIT failed is in the file after all."""
        failure = AppendFailed(f"cannot commit to {self.path}: {error}")
        if _code_of(error) == sqlite3.SQLITE_FULL and self._roll_back():
            # The frame that ends a transaction is the last to be written, so it is not there.
            self._note_trouble(error)
            return [fate or failure for fate in fates]
        logger.error("COMMIT failed in %s (%s); reopening it to see whether it went in", self.path, error)
        wanted = self._sequence + 1
        self._note_trouble(error)
        self._abandon_connection(repr(error))
        try:
            found = self._open()
            if found != wanted:
                return [fate or failure for fate in fates]
            # It is there to be read; only a checkpoint proves that it also is on disk.
            self._checkpoint()
            self._succeed()
            return fates
        except (sqlite3.Error, StorageError) as second:
            self._fail(second)
            return self._doubt(batches, fates, f"COMMIT failed ({error}), and then: {second}")

    def _doubt(
        self, batches: Sequence[Batch], fates: list[StorageError | None], reason: str
    ) -> list[StorageError | None]:
        """Fence the keyspaces until they are acquired again, because the outcome is not known."""
        doubt = AppendDoubtful(f"{self.path}: {reason}")
        for batch, fate in zip(batches, fates, strict=True):
            if fate is None:
                self._doubtful_epochs[batch.keyspace] = batch.epoch
        return [fate or doubt for fate in fates]

    def _checkpoint(self) -> None:
        """Copy the whole log into the file and sync it. Raises sqlite3.Error or StorageUnavailable."""
        assert self._connection is not None
        busy, _, _ = self._connection.execute("PRAGMA wal_checkpoint(FULL)").fetchone()
        if busy:
            raise StorageUnavailable(f"{self.path}: another program has it open")

    # --- how it stands -----------------------------------------------------------------------------------------------

    def look(self) -> None:
        """To be called each second or so: see whether the files are there, and, after a failure, whether one can write
        again. Raises nothing.
        """
        try:
            self._check_writers(self._connected())
            if self.trouble is not None:
                self._probe()
        except (sqlite3.Error, StorageError) as error:
            self._fail(error)
        if self.log_bytes >= self._log_warn_next_bytes:
            logger.warning(
                "the log of %s has grown to %d MiB; a program that reads the file for long keeps it from being copied"
                " into the file",
                self.path,
                self.log_bytes >> 20,
            )
            self._log_warn_next_bytes = 2 * self.log_bytes
        elif self.log_bytes < self._log_size_warn_bytes:
            self._log_warn_next_bytes = self._log_size_warn_bytes

    def _check_writers(self, connection: sqlite3.Connection) -> None:
        """Raise StorageUnavailable, now and for good, if another program has changed what is the store's own."""
        version = _value(connection, "PRAGMA data_version")
        if version == self._data_version:
            return
        epochs = dict(connection.execute("SELECT name, epoch FROM space").fetchall())
        is_ours = sqlite_schema.sequence_of(connection, self.path) == self._sequence
        if not is_ours or any(epochs.get(keyspace) != epoch for keyspace, epoch in self._epochs.items()):
            self._refuse(f"another program writes to {self.path}; stop it, and restart")
        self._data_version = version

    def _probe(self) -> None:
        """Store nothing but a higher sequence."""
        connection = self._connected()
        connection.execute("BEGIN IMMEDIATE")
        self._raise_sequence(connection)
        connection.execute("COMMIT")
        self._sequence += 1
        self._check_place()
        self._succeed()

    def _succeed(self) -> None:
        self._lock.write_note(Note(self._sequence, self._base))
        if self.trouble is not None:
            logger.warning("%s can be written again", self.path)
            self.trouble = None

    def _fail(self, error: sqlite3.Error | StorageError) -> None:
        """Undo what was begun. The connection is kept after errors that do not come from it: a full disk, the lock of
        another program, files that are not in place.
        """
        self._note_trouble(error)
        if isinstance(error, sqlite3.Error) and _code_of(error) not in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_BUSY):
            self._abandon_connection(repr(error))
        else:
            self._roll_back()

    def _note_trouble(self, error: sqlite3.Error | StorageError) -> None:
        trouble = _in_a_few_words(error)
        if self.trouble != trouble:
            logger.error(
                "nothing can be stored: %s", error if isinstance(error, StorageError) else f"{self.path}: {error}"
            )
        self.trouble = trouble

    def _refuse(self, text: str) -> None:
        self._refusal = text
        raise StorageUnavailable(text)

    # --- the connection ----------------------------------------------------------------------------------------------

    def _connected(self) -> sqlite3.Connection:
        """The connection; opened again if it had to be given up. Raises StorageError if the files are not in place."""
        try:
            if self._refusal is not None:
                raise StorageUnavailable(self._refusal)
            if self._connection is not None:
                self._check_place()
            if self._connection is None:
                self._open()
        except StorageError as error:
            self._note_trouble(error)
            raise
        assert self._connection is not None
        return self._connection

    def _check_place(self) -> None:
        """Raise StorageUnavailable if the files are not where they were. A log that was deleted is made again."""
        while (trouble := self._place.trouble()) is not None:
            if trouble.remedy is Remedy.RECREATE:
                self._recreate(trouble.text)
            elif self._is_whole(trouble.remedy):
                self._place.accept_length(trouble.remedy)
            else:
                self._take_for_bad(trouble)

    def _recreate(self, trouble: str) -> None:
        logger.error("%s; its commits are copied into the file from its handle", trouble)
        try:
            self._checkpoint()
        except sqlite3.Error as error:
            raise StorageUnavailable(f"{trouble}, and cannot be made again: {error}") from error
        self._abandon_connection(trouble)
        self._open()

    def _is_whole(self, remedy: Remedy) -> bool:
        """Whether a file, or a log, that has become shorter still has all that is stored."""
        assert self._connection is not None
        if remedy is Remedy.COUNT_PAGES:
            return self.path.stat().st_size >= _bytes_of_pages(self._connection)
        if remedy is not Remedy.READ_PAGES:
            return False
        # A connection of its own has nothing in memory yet. It closes nothing, for ours stays open.
        try:
            connection = self._connect(self.path)
            try:
                return _can_read_all(connection)
            finally:
                connection.close()
        except sqlite3.Error as error:
            raise StorageUnavailable(f"{self.path} cannot be read: {error}") from error

    def _take_for_bad(self, trouble: Trouble) -> None:
        """Raise StorageUnavailable; for good, for the next start, too, and without a copy, if the files are ruined."""
        if not trouble.ruin:
            raise StorageUnavailable(trouble.text)
        self._lock.keep_log()
        self._lock.write_note(Note(self._sequence, self._base, trouble.ruin))
        self._refuse(trouble.text)

    def _create(self) -> None:
        try:
            sqlite_schema.create(self.path, self._connect)
        except (OSError, sqlite3.Error) as error:
            raise StorageUnavailable(f"cannot make {self.path}: {error}") from error

    def _open(self, *, is_first: bool = False) -> int:
        """Open the file that is there, and raise its sequence, which shows that it can be written.

        Returns the sequence that was found. Raises StorageUnavailable or StoredDataInvalid.
        """
        trouble = self._place.trouble_with_file()
        if trouble is not None and trouble.remedy is not Remedy.COUNT_PAGES:
            self._take_for_bad(trouble)
        try:
            connection = self._connect(self.path)
        except sqlite3.Error as error:
            raise StorageUnavailable(f"cannot open {self.path}: {error}") from error
        try:
            found = self._prepare(connection, is_first)
            self._place.remember_files_beside()
        except sqlite3.Error as error:
            if is_first:
                self._lock.keep_log()
            _close(connection, self.path)
            if _code_of(error) in (sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT):
                raise StoredDataInvalid(self._unreadable(error)) from error
            raise StorageUnavailable(f"cannot open {self.path}: {error}") from error
        except OSError as error:
            _close(connection, self.path)
            raise StorageUnavailable(f"cannot open {self.path}: {error}") from error
        except StorageError:
            if is_first:
                self._lock.keep_log()
            _close(connection, self.path)
            raise
        self._connection = connection
        self._succeed()
        return found

    def _unreadable(self, error: sqlite3.Error) -> str:
        """What to say of a file that SQLite cannot read. Its log, if it has one, was not read without it."""
        if not self._base:
            return f"{self.path} is no SQLite file, or is damaged: {error}"
        return (
            f"{self.path} does not belong to its log {self.path.name}-wal, or one of them is damaged: together they are"
            f" no database ({error}), and the file alone is at commit {self._base}; put the file's own log back, or a"
            f" backup without a log, or, to go on with this file alone, move {self.path.name}-wal away, remove"
            f" {self._lock.path.name} and start again"
        )

    def _prepare(self, connection: sqlite3.Connection, is_first: bool) -> int:
        sqlite_schema.check(connection, self.path)
        journal_mode = connection.execute("PRAGMA journal_mode = WAL").fetchone()[0]
        connection.execute("PRAGMA synchronous = FULL")
        synchronous = connection.execute("PRAGMA synchronous").fetchone()[0]
        if (journal_mode, synchronous) != ("wal", 2):
            raise StorageUnavailable(
                f"{self.path} cannot be written durably: SQLite gives journal_mode {journal_mode} and synchronous"
                f" {synchronous} where wal and 2 are needed; is it on a network file system?"
            )
        connection.execute(f"PRAGMA wal_autocheckpoint = {CHECKPOINT_PAGES}")
        connection.execute(f"PRAGMA journal_size_limit = {LOG_SIZE_MAX_BYTES}")
        self._check_length(connection)
        connection.execute("BEGIN IMMEDIATE")
        found = sqlite_schema.sequence_of(connection, self.path)
        self._check_sequence(found, is_first)
        self._sequence = found
        step = 1 + secrets.randbits(START_STEP_BITS) if is_first else 1
        self._raise_sequence(connection, step)
        connection.execute("COMMIT")
        self._sequence += step
        if is_first:
            self._begin_log(connection)
        self._data_version = _value(connection, "PRAGMA data_version")
        return found

    def _begin_log(self, connection: sqlite3.Connection) -> None:
        """Copy all that is in the log into the file, so that what comes into the log from now on belongs to that."""
        busy, frames, copied = connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
        if not busy and frames == copied:
            self._base = self._sequence

    def _check_log(self) -> None:
        """Raise StoredDataInvalid if the log that a crash left belongs to a newer file, or to one of another store."""
        alone = sequence_alone(self.path)
        wrong = mismatch(self.path, self._lock.note, alone)
        if wrong:
            raise StoredDataInvalid(wrong)
        self._base = alone or 0

    def _check_length(self, connection: sqlite3.Connection) -> None:
        """Raise StoredDataInvalid if the file was cut off. After a crash, pages behind its end may be in the log."""
        length, needed = self.path.stat().st_size, _bytes_of_pages(connection)
        if length < needed and not _can_read_all(connection):
            self._lock.keep_log()
            raise StoredDataInvalid(
                f"{self.path} was cut off: it has {length} bytes of {needed}, and its log has not all of the rest; put"
                f" a backup in its place, and remove its log and {self._lock.path.name}"
            )

    def _check_sequence(self, found: int, is_first: bool) -> None:
        """Raise if the file is older than it was, or somebody else has written to it."""
        wrong = mismatch(self.path, self._lock.note, self._base or None, found) if is_first else ""
        if wrong:
            raise StoredDataInvalid(wrong)
        if not is_first and found < self._sequence:
            self._refuse(
                f"{self.path} has gone back while it was open: it is at commit {found}, and was at {self._sequence};"
                " its log was lost; stop, and put a backup in its place"
            )
        if not is_first and found > self._sequence + 1:
            self._refuse(f"another program writes to {self.path}; stop it, and restart")

    def _roll_back(self) -> bool:
        """Undo what was not committed. False if that failed too: then the connection is gone."""
        try:
            if self._connection is not None and self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
        except sqlite3.Error as error:
            self._abandon_connection(repr(error))
            return False
        return True

    def _abandon_connection(self, reason: str) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            _close(connection, f"{self.path} ({reason})")


def _close(connection: sqlite3.Connection, what: object) -> None:
    """Close; what that complains about changes nothing: what was committed is in the log."""
    try:
        connection.close()
    except sqlite3.Error as error:
        logger.warning("closing %s: %s", what, error)


def _value(connection: sqlite3.Connection, statement: str) -> int:
    value: int = connection.execute(statement).fetchone()[0]
    return value


def _bytes_of_pages(connection: sqlite3.Connection) -> int:
    """What the file has when all that is stored is in it."""
    return _value(connection, "PRAGMA page_count") * _value(connection, "PRAGMA page_size")


def _can_read_all(connection: sqlite3.Connection) -> bool:
    """Whether each page can be read and fits to the others. Reads the whole file."""
    try:
        found: str = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
    except sqlite3.Error as error:
        if _code_of(error) not in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_IOERR):
            raise
        return False
    return found == "ok"


def _put(connection: sqlite3.Connection, rows: list[tuple[str, bytes, bytes]]) -> None:
    """Many rows by one statement: the driver gives the interpreter's lock away for each, and has to get it back."""
    for first in range(0, len(rows), ROWS_AT_ONCE):
        some = rows[first : first + ROWS_AT_ONCE]
        connection.execute(_PUT[len(some)], [cell for row in some for cell in row])


def _in_a_few_words(error: sqlite3.Error | StorageError) -> str:
    """Without the name of a file, for anybody to read."""
    cause = error.__cause__ if isinstance(error, StorageError) else error
    if isinstance(cause, sqlite3.Error):
        return _IN_A_FEW_WORDS.get(_code_of(cause) or 0, "the store fails")
    return "the file is not in its place, or not as it was"


def _code_of(error: sqlite3.Error) -> int | None:
    """SQLite's own number of the error; None where the error is the driver's."""
    code: int | None = getattr(error, "sqlite_errorcode", None)
    # Python gives the extended code: what went wrong is in its last byte.
    return None if code is None else code & 0xFF
