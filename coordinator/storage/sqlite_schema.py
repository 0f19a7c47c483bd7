"""The tables of a store's file: how a new file gets them, and whether a file that is there has them.

    space(name, epoch)             who owns a keyspace: the epoch of its last acquisition
    entry(space, key, value)       what is stored
    last_commit(sequence)          one row, raised by one in every transaction that stores something, and at
                                   each start by a number at random

Tables besides these are left alone.
"""

import os
import sqlite3
from collections.abc import Callable
from pathlib import Path

from rallypoint.coordinator.storage.contract import StoredDataInvalid

SCHEMA_VERSION = 1
"""Kept in the file as `user_version`."""

APPLICATION_ID = 0x52_50_47_31
"""Kept in the file as `application_id`, so that another program's file is refused and not written into."""

_SCHEMA = (
    "CREATE TABLE space (name TEXT PRIMARY KEY, epoch INTEGER NOT NULL) WITHOUT ROWID",
    "CREATE TABLE entry (space TEXT NOT NULL, key BLOB NOT NULL, value BLOB NOT NULL, PRIMARY KEY (space, key))"
    " WITHOUT ROWID",
    "CREATE TABLE last_commit (id INTEGER PRIMARY KEY CHECK (id = 1), sequence INTEGER NOT NULL)",
    "INSERT INTO last_commit VALUES (1, 0)",
    f"PRAGMA application_id = {APPLICATION_ID}",
    f"PRAGMA user_version = {SCHEMA_VERSION}",
)

VALUE = "CASE typeof(value) WHEN 'blob' THEN value ELSE x'' END"
"""How the value of an entry is read. One of another type is damage, which its reader finds in an empty one."""

_COLUMNS = {
    "space": (("name", "TEXT", 1), ("epoch", "INTEGER", 0)),
    "entry": (("space", "TEXT", 1), ("key", "BLOB", 2), ("value", "BLOB", 0)),
    "last_commit": (("id", "INTEGER", 1), ("sequence", "INTEGER", 0)),
}
"""Name, type and place in the primary key of each column."""


def create(path: Path, connect: Callable[[Path], sqlite3.Connection]) -> None:
    """Make the file, whole and on disk, or none: it is made under another name and renamed.

    It is its owner's alone, and SQLite gives its log and its index the same mode. Raises OSError or sqlite3.Error.
    """
    new = path.with_name(f"{path.name}-new")
    for leftover in (new, path.with_name(f"{new.name}-journal")):
        leftover.unlink(missing_ok=True)
    os.close(os.open(new, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600))
    try:
        connection = connect(new)
        try:
            connection.execute("PRAGMA synchronous = EXTRA")
            connection.execute("BEGIN IMMEDIATE")
            for statement in _SCHEMA:
                connection.execute(statement)
            connection.execute("COMMIT")
        finally:
            connection.close()
        os.rename(new, path)
    except (OSError, sqlite3.Error):
        new.unlink(missing_ok=True)
        raise
    folder = os.open(path.parent, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def check(connection: sqlite3.Connection, path: Path) -> None:
    """Raise StoredDataInvalid if the file has not the tables of a store, or those of a newer program."""
    application_id = connection.execute("PRAGMA application_id").fetchone()[0]
    if application_id != APPLICATION_ID:
        raise StoredDataInvalid(f"{path} is another program's SQLite file; it is left as it is")
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    if version > SCHEMA_VERSION:
        raise StoredDataInvalid(
            f"{path} has schema {version}, written by a newer Rallypoint; this one knows up to {SCHEMA_VERSION}"
        )
    for table, columns in _COLUMNS.items():
        found = connection.execute("SELECT name, type, pk FROM pragma_table_info(?)", (table,)).fetchall()
        if not found:
            raise StoredDataInvalid(_damaged(path, f"the table {table} is missing"))
        if tuple(found) != columns:
            raise StoredDataInvalid(_damaged(path, f"the table {table} has other columns"))
    wrong = connection.execute("SELECT name FROM space WHERE typeof(epoch) <> 'integer' OR epoch < 1").fetchone()
    if wrong is not None:
        raise StoredDataInvalid(_damaged(path, f"the epoch of {wrong[0]} is no number"))


def sequence_of(connection: sqlite3.Connection, path: Path) -> int:
    """How many transactions the file has seen. Raises StoredDataInvalid if it does not say."""
    rows = connection.execute("SELECT sequence FROM last_commit").fetchall()
    if len(rows) != 1 or not isinstance(rows[0][0], int):
        raise StoredDataInvalid(_damaged(path, "the table last_commit has not its one row with a number"))
    sequence: int = rows[0][0]
    return sequence


def sequence_without_log(path: Path) -> int | None:
    """That of the file alone; None where it cannot be read so, as after a crash that left parts of it to the log.

    To be called while nothing in this process has the file open: to close a handle drops SQLite's locks.
    """
    try:
        connection = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro&immutable=1", uri=True)
        try:
            return sequence_of(connection, path)
        finally:
            connection.close()
    except (sqlite3.Error, StoredDataInvalid):
        return None


def _damaged(path: Path, what: str) -> str:
    return f"{path} is damaged, or another program has changed it: {what}; put a backup in its place"
