"""Rows and positions in PostgreSQL. Needs `pip install 'rallypoint[postgresql]'`."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.errors import (
    DuplicateObject,
    DuplicateTable,
    IdleInTransactionSessionTimeout,
    InvalidSavepointSpecification,
    NoActiveSqlTransaction,
    UniqueViolation,
)

from rallypoint.spark_bridge.exactly_once.errors import LoadFailed
from rallypoint.spark_bridge.offsets import TopicPartition

POSITIONS = """
CREATE TABLE IF NOT EXISTS rallypoint_positions (
    name text NOT NULL, topic text NOT NULL, "partition" integer NOT NULL, next_offset bigint NOT NULL,
    PRIMARY KEY (name, topic, "partition")
)
"""
KEEPALIVE = {"keepalives_idle": 30, "keepalives_interval": 10, "keepalives_count": 3}
"""Keepalives in seconds, for both sides: a dead host is detected after a minute, and its locks are released. The
connection string can override them for this side.
"""
CREATED_CONCURRENTLY = (DuplicateObject, DuplicateTable, UniqueViolation)
"""What PostgreSQL raises if two transactions create the same table concurrently. It depends on their timing: the name
of the table, its row type or its index may exist first.
"""


class PostgreSQL:
    """A database, for `ExactlyOnce`. Works with any isolation level, and several drivers write concurrently.

    `conninfo`: libpq's connection string: a URI, or `host=… dbname=…`.
    `lock_timeout_ms`: how long a batch waits for another driver's transaction that has moved the same positions, before
    it logs this and tries again.
    `idle_timeout_ms`: after this idle time the server ends the session of a driver that hangs inside a transaction.

    The table of positions is in the first schema of the search path. If the role may not create tables, create it
    beforehand; its columns are in docs/spark-sinks.md.
    """

    def __init__(self, conninfo: str, *, lock_timeout_ms: int = 10_000, idle_timeout_ms: int = 60_000) -> None:
        if lock_timeout_ms < 1 or idle_timeout_ms < 1:
            raise ValueError("PostgreSQL: lock_timeout_ms and idle_timeout_ms must be at least 1")
        self._conninfo = make_conninfo("", **{**KEEPALIVE, **conninfo_to_dict(conninfo)})
        limits = {"lock_timeout": lock_timeout_ms, "idle_in_transaction_session_timeout": idle_timeout_ms}
        settings = {**limits, **{f"tcp_{name}": value for name, value in KEEPALIVE.items()}}
        calls = [sql.SQL("set_config({}, {}, true)").format(name, str(value)) for name, value in settings.items()]
        self._limit = sql.SQL("SELECT {}").format(sql.SQL(", ").join(calls))
        self._has_table = False

    @contextmanager
    def transaction(self) -> Iterator["PostgreSQLTransaction"]:
        """Connect, and begin."""
        with psycopg.connect(self._conninfo) as connection:
            if not self._has_table:
                self._make_table(connection)
            with connection.transaction():
                connection.execute(self._limit)
                yield PostgreSQLTransaction(connection)

    def is_transient(self, error: BaseException) -> bool:
        """A lost or failed connection, a deadlock, a lock timeout, an idle session that the server ended, or a
        serialization failure.
        """
        return isinstance(error, (psycopg.OperationalError, IdleInTransactionSessionTimeout))

    def _make_table(self, connection: psycopg.Connection[Any]) -> None:
        found = connection.execute("SELECT to_regclass('rallypoint_positions')").fetchone()
        connection.commit()
        if found is None or found[0] is None:
            with suppress(*CREATED_CONCURRENTLY), connection.transaction():
                connection.execute(POSITIONS)
        self._has_table = True


class PostgreSQLTransaction:
    """See `database.Transaction`."""

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self.connection = connection

    @contextmanager
    def guarded(self) -> Iterator[None]:
        """See `database.Transaction.guarded`.

        Uses a savepoint, which does not survive the end of the transaction. psycopg itself refuses `commit()` and
        `rollback()` here, but not the SQL statements.
        """
        self.connection.execute("SAVEPOINT rallypoint_write")
        yield
        try:
            self.connection.execute("RELEASE SAVEPOINT rallypoint_write")
        except (InvalidSavepointSpecification, NoActiveSqlTransaction) as error:
            raise LoadFailed(
                "write has ended the transaction with a COMMIT or ROLLBACK of its own, so its rows and the positions"
                " are no longer in one transaction: what it committed is written, and will be written again by the next"
                " attempt. Remove the statement; the transaction ends when write returns"
            ) from error

    def positions(self, name: str) -> Mapping[TopicPartition, int]:
        """See `database.Transaction.positions`. Takes no lock, so a long batch blocks no other; `move` detects
        conflicts.
        """
        found = self.connection.execute(
            'SELECT topic, "partition", next_offset FROM rallypoint_positions WHERE name = %s', (name,)
        )
        return {(topic, partition): offset for topic, partition, offset in found}

    def move(self, name: str, tp: TopicPartition, seen: int | None, end: int) -> bool:
        """See `database.Transaction.move`. Waits until a transaction that has moved the same position ends."""
        if seen is None:
            statement = "INSERT INTO rallypoint_positions VALUES (%s, %s, %s, %s) ON CONFLICT DO NOTHING"
            return self.connection.execute(statement, (name, *tp, end)).rowcount == 1
        statement = (
            'UPDATE rallypoint_positions SET next_offset = %s WHERE name = %s AND topic = %s AND "partition" = %s'
            " AND next_offset = %s"
        )
        return self.connection.execute(statement, (end, name, *tp, seen)).rowcount == 1

    def forget(self, name: str, topic: str) -> int:
        """See `database.Transaction.forget`."""
        statement = "DELETE FROM rallypoint_positions WHERE name = %s AND topic = %s"
        return self.connection.execute(statement, (name, topic)).rowcount

    def insert(self, table: str, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
        """See `database.Transaction.insert`. Uses COPY. `table` may include its schema: `sales.clicks`."""
        statement = sql.SQL("COPY {} ({}) FROM STDIN").format(
            sql.Identifier(*table.split(".")), sql.SQL(", ").join(map(sql.Identifier, columns))
        )
        with self.connection.cursor() as cursor, cursor.copy(statement) as copy:
            for row in rows:
                copy.write_row(row)
