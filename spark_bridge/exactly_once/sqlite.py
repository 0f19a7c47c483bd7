"""Rows and positions in SQLite: for drivers on one machine, which write one at a time."""

import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

from rallypoint.spark_bridge.exactly_once.errors import LoadFailed
from rallypoint.spark_bridge.offsets import TopicPartition

POSITIONS = """
CREATE TABLE IF NOT EXISTS rallypoint_positions (
    name TEXT NOT NULL, topic TEXT NOT NULL, "partition" INTEGER NOT NULL, next_offset INTEGER NOT NULL,
    PRIMARY KEY (name, topic, "partition")
) WITHOUT ROWID
"""
READS = {sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION, sqlite3.SQLITE_RECURSIVE}
ENDED = (
    "the transaction has ended inside write, which continued: `OR ROLLBACK`, a trigger's RAISE(ROLLBACK) and a full"
    " disk roll all back and raise; let that error propagate, or use OR ABORT, which undoes its own statement alone"
)
BUSY_CODES = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}


class SQLite:
    """A database in a file, for `ExactlyOnce`.

    `path`: the file.
    `busy_timeout_ms`: how long a batch waits for the write lock, which another batch holds, before the attempt fails.
    """

    def __init__(self, path: str | Path, *, busy_timeout_ms: int = 60_000) -> None:
        self._path = path
        self._busy_seconds = busy_timeout_ms / 1000

    @contextmanager
    def transaction(self) -> Iterator["SQLiteTransaction"]:
        """Open the file, and acquire the write lock."""
        connecting = sqlite3.connect(
            # The authorizer of the guard sees a statement only when it is compiled, so none may be cached.
            self._path,
            timeout=self._busy_seconds,
            isolation_level=None,
            cached_statements=0,
        )
        with closing(connecting) as connection:
            connection.execute("BEGIN IMMEDIATE")
            guard = TransactionGuard(connection)
            try:
                connection.execute(POSITIONS)
                yield SQLiteTransaction(connection, guard)
            except BaseException as error:
                guard.lift()
                if connection.in_transaction:  # a full disk may have ended it
                    connection.execute("ROLLBACK")
                if isinstance(error, sqlite3.DatabaseError):
                    guard.explain()
                raise
            guard.lift()
            connection.execute("COMMIT")

    def is_transient(self, error: BaseException) -> bool:
        """A lock that another connection held for too long."""
        if not isinstance(error, sqlite3.OperationalError):
            return False
        return getattr(error, "sqlite_errorcode", 0) & 0xFF in BUSY_CODES


class TransactionGuard:
    """Prevents user code from ending the transaction of a connection, until it is lifted.

    It cannot prevent `INSERT OR ROLLBACK` or a trigger's `RAISE(ROLLBACK)`, which end it implicitly. After that it
    refuses all writes, because they would be committed.
    """

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._refusal = ""
        connection.set_authorizer(self._authorize)

    def lift(self) -> None:
        """Allow the transaction to end."""
        self._connection.set_authorizer(None)

    def check(self) -> None:
        """Raise LoadFailed if user code has tried to end the transaction, or it has ended."""
        if not self._connection.in_transaction:
            self._refusal = self._refusal or ENDED
        self.explain()

    def explain(self) -> None:
        """Raise LoadFailed if something was refused."""
        if self._refusal:
            raise LoadFailed(self._refusal)

    def _authorize(self, action: int, operation: str | None, *_: str | None) -> int:
        if action == sqlite3.SQLITE_TRANSACTION:
            self._refusal = self._refusal or (
                f"write has executed {operation}, which would separate its rows from the positions: the transaction"
                " ends when write returns. Python's `with connection:` ends one, too, and so does `executescript`;"
                " remove them"
            )
            return sqlite3.SQLITE_DENY
        if action not in READS and not self._connection.in_transaction:
            self._refusal = self._refusal or ENDED
            return sqlite3.SQLITE_DENY
        return sqlite3.SQLITE_OK


class SQLiteTransaction:
    """See `database.Transaction`."""

    def __init__(self, connection: sqlite3.Connection, guard: TransactionGuard) -> None:
        self.connection = connection
        self._guard = guard

    @contextmanager
    def guarded(self) -> Iterator[None]:
        """See `database.Transaction.guarded`."""
        yield
        self._guard.check()

    def positions(self, name: str) -> Mapping[TopicPartition, int]:
        """See `database.Transaction.positions`."""
        found = self.connection.execute(
            'SELECT topic, "partition", next_offset FROM rallypoint_positions WHERE name = ?', (name,)
        )
        return {(topic, partition): offset for topic, partition, offset in found}

    def move(self, name: str, tp: TopicPartition, seen: int | None, end: int) -> bool:
        """See `database.Transaction.move`. Always True if `seen` was read in the same transaction."""
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
        """See `database.Transaction.insert`. Writes times as ISO 8601 text, because SQLite has no type for them."""
        names = ", ".join(_quoted(column) for column in columns)
        marks = ", ".join("?" for _ in columns)
        statement = f"INSERT INTO {_quoted(table)} ({names}) VALUES ({marks})"
        self.connection.executemany(statement, (tuple(map(_plain, row)) for row in rows))


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _plain(value: Any) -> Any:
    return value.isoformat() if isinstance(value, datetime) else value
