"""PostgreSQL as the place of rows and positions. Needs `pip install 'rallypoint[postgresql]'`."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import psycopg
from psycopg import sql
from psycopg.errors import DuplicateTable, UniqueViolation

from spark_bridge.offsets import TopicPartition

POSITIONS = """
CREATE TABLE IF NOT EXISTS rallypoint_positions (
    name text NOT NULL, topic text NOT NULL, "partition" integer NOT NULL, next_offset bigint NOT NULL,
    PRIMARY KEY (name, topic, "partition")
)
"""
MADE_AT_ONCE = (DuplicateTable, UniqueViolation)
"""What PostgreSQL says where two transactions make the same table for the first time."""


class PostgreSQL:
    """A database by its connection string (libpq's: a URI, or `host=… dbname=…`). Any isolation level will do.

    Batches of several drivers are written side by side. The table of positions stands in the first schema of the
    search path; where the role may not create tables, create it beforehand (its columns are in docs/spark.md).
    """

    def __init__(self, conninfo: str) -> None:
        self._conninfo = conninfo
        self._has_table = False

    @contextmanager
    def transaction(self) -> Iterator["PostgreSQLTransaction"]:
        """Connect, and begin."""
        with psycopg.connect(self._conninfo) as connection:
            if not self._has_table:
                self._make_table(connection)
            with connection.transaction():
                yield PostgreSQLTransaction(connection)

    def is_transient(self, error: BaseException) -> bool:
        """A connection that is lost or not to be had, a deadlock, a serialization failure."""
        return isinstance(error, psycopg.OperationalError)

    def _make_table(self, connection: psycopg.Connection[Any]) -> None:
        found = connection.execute("SELECT to_regclass('rallypoint_positions')").fetchone()
        connection.commit()
        if found is None or found[0] is None:
            with suppress(*MADE_AT_ONCE), connection.transaction():
                connection.execute(POSITIONS)
        self._has_table = True


class PostgreSQLTransaction:
    """See `database.Transaction`."""

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self.connection = connection

    def positions(self, name: str) -> Mapping[TopicPartition, int]:
        """See `database.Transaction.positions`. Takes no lock, so that a long batch holds up nobody; `move` sees who
        was faster.
        """
        found = self.connection.execute(
            'SELECT topic, "partition", next_offset FROM rallypoint_positions WHERE name = %s', (name,)
        )
        return {(topic, partition): offset for topic, partition, offset in found}

    def move(self, name: str, tp: TopicPartition, seen: int | None, end: int) -> bool:
        """See `database.Transaction.move`. Waits for a transaction that has moved the same position, until it ends."""
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
        """See `database.Transaction.insert`. By COPY. `table` may name its schema: `sales.clicks`."""
        statement = sql.SQL("COPY {} ({}) FROM STDIN").format(
            sql.Identifier(*table.split(".")), sql.SQL(", ").join(map(sql.Identifier, columns))
        )
        with self.connection.cursor() as cursor, cursor.copy(statement) as copy:
            for row in rows:
                copy.write_row(row)
