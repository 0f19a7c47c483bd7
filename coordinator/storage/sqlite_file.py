"""The SQLite file of a store, and the one connection to it: schema, durability, transactions, doubt. No threads here.

    space(name, epoch)             who owns a space: the epoch of its last acquisition
    entry(space, key, value)       what is stored
    last_commit(sequence)          one row, raised by one in every transaction that stores something

The sequence is what settles a doubt. When COMMIT fails, nobody can say whether the transaction is in the file: SQLite
may have written all of it and failed to sync, and the next to open the file would find it. So the connection is
closed, the file opened anew and checkpointed, which copies whatever is valid and syncs it; then the sequence tells.
"""

import logging
import os
import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from coordinator.storage.contract import (
    AppendDoubtful,
    AppendFailed,
    Fenced,
    StorageError,
    StorageUnavailable,
    StoredDataInvalid,
    Write,
)
from coordinator.storage.file_lock import FileLock

SCHEMA_VERSION = 1
"""Kept in the file as `user_version`."""

APPLICATION_ID = 0x52_50_47_31
"""Kept in the file as `application_id`, so that another program's file is refused and not written into."""

CHECKPOINT_PAGES = 1000
"""Pages in the write-ahead log at which a commit also copies them into the file: 4 MiB, SQLite's own default."""

LOG_SIZE_MAX_BYTES = 64 * 1024 * 1024
"""What the write-ahead log is cut to after a checkpoint, should one huge transaction have made it longer."""

BUSY_TIMEOUT_S = 5.0
"""How long a write waits for another program (a shell, a backup) that has the file locked."""

_SCHEMA = (
    "CREATE TABLE space (name TEXT PRIMARY KEY, epoch INTEGER NOT NULL) WITHOUT ROWID",
    "CREATE TABLE entry (space TEXT NOT NULL, key BLOB NOT NULL, value BLOB NOT NULL, PRIMARY KEY (space, key))"
    " WITHOUT ROWID",
    "CREATE TABLE last_commit (id INTEGER PRIMARY KEY CHECK (id = 1), sequence INTEGER NOT NULL)",
    "INSERT INTO last_commit VALUES (1, 0)",
    f"PRAGMA application_id = {APPLICATION_ID}",
    f"PRAGMA user_version = {SCHEMA_VERSION}",
)

ROWS_AT_ONCE = 32
"""Rows that one statement puts: as many as there usually are in a busy transaction, at least."""

_PUT = "INSERT INTO entry VALUES {} ON CONFLICT (space, key) DO UPDATE SET value = excluded.value"
_PUT_ROW = _PUT.format("(?, ?, ?)")
_PUT_ROWS = _PUT.format(", ".join(["(?, ?, ?)"] * ROWS_AT_ONCE))

logger = logging.getLogger(__name__)

Connect = Callable[[Path], sqlite3.Connection]


@dataclass(frozen=True, slots=True)
class Batch:
    """What one append stores, and under which epoch."""

    space: str
    epoch: int
    writes: Sequence[Write]


def connect(path: Path) -> sqlite3.Connection:
    """A connection that leaves transactions to its user. It is used by one thread at a time."""
    return sqlite3.connect(path, timeout=BUSY_TIMEOUT_S, isolation_level=None, check_same_thread=False)


class SqliteFile:
    """An open store file. Not for two threads at once."""

    def __init__(self, path: Path, connect: Connect = connect) -> None:
        """Open or create the file. Raises SpaceHeld, StorageUnavailable or StoredDataInvalid, each naming it."""
        self.path = path
        self._connect = connect
        if not path.parent.is_dir():
            raise StorageUnavailable(f"cannot open {path}: the folder {path.parent} does not exist")
        self._lock = FileLock(path)
        self._connection: sqlite3.Connection | None = None
        self._sequence = 0
        self._doubtful_epochs: dict[str, int] = {}
        try:
            self._open()
        except BaseException:
            self._lock.release()
            raise

    def close(self) -> None:
        """Copy the log into the file, sync, close, and let other processes have it."""
        try:
            self._close_connection()
        finally:
            self._lock.release()

    def durability(self) -> dict[str, int | str]:
        """What the writing connection itself says of how it writes."""
        connection = self._connected()
        names = ("journal_mode", "synchronous", "wal_autocheckpoint", "journal_size_limit")
        return {name: connection.execute(f"PRAGMA {name}").fetchone()[0] for name in names}

    # --- reading and owning ------------------------------------------------------------------------------------------

    def acquire(self, space: str) -> int:
        """Raise the epoch of the space and return it: whoever had the space before is fenced."""
        connection = self._connected()
        try:
            connection.execute("BEGIN IMMEDIATE")
            row = connection.execute(
                "INSERT INTO space VALUES (?, 1) ON CONFLICT (name) DO UPDATE SET epoch = epoch + 1 RETURNING epoch",
                (space,),
            ).fetchone()
            connection.execute("COMMIT")
        except sqlite3.Error as error:
            # The outcome does not matter: an epoch that nobody was given owns nothing.
            self._abandon_connection(error)
            raise StorageUnavailable(f"cannot acquire {space} in {self.path}: {error}") from error
        epoch: int = row[0]
        return epoch

    def read_page(
        self, space: str, epoch: int, prefix: bytes, after: bytes | None, rows_max: int
    ) -> list[tuple[bytes, bytes]]:
        """Rows of the space in the order of keys that begin with `prefix` and come after `after`."""
        connection = self._connected()
        try:
            if epoch != self._epoch_of(connection, space):
                raise Fenced(f"epoch {epoch} of {space} is over")
            # No key begins with 0xff bytes only, for keys are UTF-8: the end of the prefix always exists.
            end = b"\xff" if not prefix else prefix[:-1] + bytes((prefix[-1] + 1,))
            return connection.execute(
                "SELECT key, value FROM entry WHERE space = ? AND key >= ? AND key > ? AND key < ?"
                " ORDER BY key LIMIT ?",
                (space, prefix, b"" if after is None else after, end, rows_max),
            ).fetchall()
        except sqlite3.Error as error:
            self._abandon_connection(error)
            raise StorageUnavailable(f"cannot read {space} in {self.path}: {error}") from error

    def _epoch_of(self, connection: sqlite3.Connection, space: str) -> int | None:
        """The epoch that may write now; None where nobody may, after a doubt or where nobody ever acquired it."""
        row = connection.execute("SELECT epoch FROM space WHERE name = ?", (space,)).fetchone()
        return None if row is None or self._doubtful_epochs.get(space) == row[0] else row[0]

    # --- writing -----------------------------------------------------------------------------------------------------

    def append(self, batches: Sequence[Batch]) -> list[StorageError | None]:
        """Store the batches in one transaction. Returns the fate of each: None, or the error its owner gets.

        A batch that cannot be stored takes no other with it: they are then tried one by one.
        """
        try:
            connection = self._connected()
            connection.execute("BEGIN IMMEDIATE")
        except (sqlite3.Error, StorageError) as error:
            self._abandon_connection(error)
            return [AppendFailed(f"cannot write to {self.path}: {error}") for _ in batches]
        try:
            fates = self._write(connection, batches)
            if all(fates):
                connection.execute("ROLLBACK")
                return fates
        except sqlite3.Error as error:
            self._roll_back(connection, error)
            if len(batches) == 1:
                return [AppendFailed(f"cannot write to {self.path}: {error}")]
            return [self.append([batch])[0] for batch in batches]
        try:
            connection.execute("COMMIT")
        except sqlite3.Error as error:
            return self._settle(batches, fates, error)
        self._sequence += 1
        return fates

    def _write(self, connection: sqlite3.Connection, batches: Sequence[Batch]) -> list[StorageError | None]:
        epochs = {space: self._epoch_of(connection, space) for space in {batch.space for batch in batches}}
        fates: list[StorageError | None] = []
        final: dict[tuple[str, bytes], bytes | None] = {}
        for batch in batches:
            if batch.epoch != epochs[batch.space]:
                fates.append(Fenced(f"epoch {batch.epoch} of {batch.space} is over"))
                continue
            fates.append(None)
            for key, value in batch.writes:
                final[batch.space, key] = value
        _put(connection, [(space, key, value) for (space, key), value in final.items() if value is not None])
        connection.executemany(
            "DELETE FROM entry WHERE space = ? AND key = ?",
            (space_key for space_key, value in final.items() if value is None),
        )
        connection.execute("UPDATE last_commit SET sequence = ?", (self._sequence + 1,))
        return fates

    def _settle(
        self, batches: Sequence[Batch], fates: list[StorageError | None], error: sqlite3.Error
    ) -> list[StorageError | None]:
        """Find out whether the transaction whose COMMIT failed is in the file after all."""
        failure = AppendFailed(f"cannot commit to {self.path}: {error}")
        connection = self._connected()
        if _code_of(error) == sqlite3.SQLITE_FULL and self._roll_back(connection, error):
            # The frame that ends the transaction is the last to be written, so it is not there.
            return [fate or failure for fate in fates]
        logger.error("COMMIT failed in %s (%s); opening it anew to see whether it went in", self.path, error)
        wanted = self._sequence + 1
        self._abandon_connection(error)
        try:
            connection = self._connected()
            if self._sequence != wanted:
                return [fate or failure for fate in fates]
            # It is there to be read; only a checkpoint proves that it also is on disk.
            busy, _, _ = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
            if not busy:
                return fates
            reason = "another program has it open"
        except (sqlite3.Error, StorageError) as second:
            reason = str(second)
        self._abandon_connection(error)
        doubt = AppendDoubtful(f"COMMIT failed in {self.path} ({error}), and then: {reason}")
        for batch, fate in zip(batches, fates, strict=True):
            if fate is None:
                self._doubtful_epochs[batch.space] = batch.epoch
        return [fate or doubt for fate in fates]

    def _roll_back(self, connection: sqlite3.Connection, error: sqlite3.Error) -> bool:
        """Undo what was not committed. False where that failed too: then the connection is gone."""
        try:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
        except sqlite3.Error:
            self._abandon_connection(error)
            return False
        return True

    # --- the connection ----------------------------------------------------------------------------------------------

    def _connected(self) -> sqlite3.Connection:
        """The connection; opened anew where it had to be given up."""
        if self._connection is None:
            self._open()
        assert self._connection is not None
        return self._connection

    def _open(self) -> None:
        try:
            self._create_privately()
            connection = self._connect(self.path)
        except (OSError, sqlite3.Error) as error:
            raise StorageUnavailable(f"cannot open {self.path}: {error}") from error
        try:
            self._prepare(connection)
        except sqlite3.Error as error:
            connection.close()
            if _code_of(error) in (sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT):
                raise StoredDataInvalid(f"{self.path} is no SQLite file, or is damaged: {error}") from error
            raise StorageUnavailable(f"cannot open {self.path}: {error}") from error
        except StorageError:
            connection.close()
            raise
        self._connection = connection

    def _create_privately(self) -> None:
        """Create the file for its owner alone; SQLite gives its log and index files the same mode."""
        try:
            os.close(os.open(self.path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600))
        except FileExistsError:
            return
        folder = os.open(self.path.parent, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    def _prepare(self, connection: sqlite3.Connection) -> None:
        version = connection.execute("PRAGMA user_version").fetchone()[0]
        application_id = connection.execute("PRAGMA application_id").fetchone()[0]
        is_empty = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0] == 0
        if not is_empty and application_id != APPLICATION_ID:
            raise StoredDataInvalid(f"{self.path} is another program's SQLite file; it is left as it is")
        if version > SCHEMA_VERSION:
            raise StoredDataInvalid(
                f"{self.path} has schema {version}, written by a newer Rallypoint; this one knows up to"
                f" {SCHEMA_VERSION}"
            )
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
        if is_empty:
            connection.execute("BEGIN IMMEDIATE")
            for statement in _SCHEMA:
                connection.execute(statement)
            connection.execute("COMMIT")
        self._sequence = connection.execute("SELECT sequence FROM last_commit").fetchone()[0]

    def _abandon_connection(self, error: Exception) -> None:
        """Close after an error; what closing itself complains about adds nothing to it."""
        try:
            self._close_connection()
        except sqlite3.Error as second:
            logger.warning("closing %s after %r: %s", self.path, error, second)

    def _close_connection(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()


def _put(connection: sqlite3.Connection, rows: list[tuple[str, bytes, bytes]]) -> None:
    """Many rows by one statement: the driver gives the interpreter's lock away for each, and has to get it back."""
    whole = len(rows) - len(rows) % ROWS_AT_ONCE
    for first in range(0, whole, ROWS_AT_ONCE):
        connection.execute(_PUT_ROWS, [cell for row in rows[first : first + ROWS_AT_ONCE] for cell in row])
    connection.executemany(_PUT_ROW, rows[whole:])


def _code_of(error: sqlite3.Error) -> int | None:
    """SQLite's own number of the error; None where the error is the driver's."""
    return getattr(error, "sqlite_errorcode", None)
