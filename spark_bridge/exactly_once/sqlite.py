"""SQLite as the place of rows and positions: for one machine, whose drivers take turns in writing."""

import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

from spark_bridge.offsets import TopicPartition

POSITIONS = """
CREATE TABLE IF NOT EXISTS rallypoint_positions (
    name TEXT NOT NULL, topic TEXT NOT NULL, "partition" INTEGER NOT NULL, next_offset INTEGER NOT NULL,
    PRIMARY KEY (name, topic, "partition")
) WITHOUT ROWID
"""
BUSY_CODES = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}


class SQLite:
    """A database in a file. A batch holds the one lock for writing while it is written; the next one waits
    `busy_timeout_ms` for it before that counts as a failure.
    """

    def __init__(self, path: str | Path, *, busy_timeout_ms: int = 60_000) -> None:
        self._path = path
        self._busy_seconds = busy_timeout_ms / 1000

    @contextmanager
    def transaction(self) -> Iterator["SQLiteTransaction"]:
        """Open the file, and take the lock."""
        with closing(sqlite3.connect(self._path, timeout=self._busy_seconds, isolation_level=None)) as connection:
            connection.execute("BEGIN IMMEDIATE")
            try:
                connection.execute(POSITIONS)
                yield SQLiteTransaction(connection)
            except BaseException:
                if connection.in_transaction:  # a full disk may have ended it
                    connection.execute("ROLLBACK")
                raise
            connection.execute("COMMIT")

    def is_transient(self, error: BaseException) -> bool:
        """A lock that somebody else held for too long."""
        if not isinstance(error, sqlite3.OperationalError):
            return False
        return getattr(error, "sqlite_errorcode", 0) & 0xFF in BUSY_CODES


class SQLiteTransaction:
    """See `database.Transaction`."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.connection = connection

    def positions(self, name: str) -> Mapping[TopicPartition, int]:
        """See `database.Transaction.positions`."""
        found = self.connection.execute(
            'SELECT topic, "partition", next_offset FROM rallypoint_positions WHERE name = ?', (name,)
        )
        return {(topic, partition): offset for topic, partition, offset in found}

    def move(self, name: str, tp: TopicPartition, seen: int | None, end: int) -> bool:
        """See `database.Transaction.move`. Always true while the lock is held, if `seen` was read under it."""
        if seen is None:
            statement = "INSERT INTO rallypoint_positions VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING"
            return self.connection.execute(statement, (name, *tp, end)).rowcount == 1
        statement = (
            'UPDATE rallypoint_positions SET next_offset = ? WHERE name = ? AND topic = ? AND "partition" = ?'
            " AND next_offset = ?"
        )
        return self.connection.execute(statement, (end, name, *tp, seen)).rowcount == 1

    def forget(self, name: str, topic: str) -> int:
        """See `database.Transaction.forget`."""
        statement = "DELETE FROM rallypoint_positions WHERE name = ? AND topic = ?"
        return self.connection.execute(statement, (name, topic)).rowcount

    def insert(self, table: str, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
        """See `database.Transaction.insert`. Times are written as ISO 8601 text, for SQLite has no type for them."""
        names = ", ".join(_quoted(column) for column in columns)
        marks = ", ".join("?" for _ in columns)
        statement = f"INSERT INTO {_quoted(table)} ({names}) VALUES ({marks})"
        self.connection.executemany(statement, (tuple(map(_plain, row)) for row in rows))


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _plain(value: Any) -> Any:
    return value.isoformat() if isinstance(value, datetime) else value
