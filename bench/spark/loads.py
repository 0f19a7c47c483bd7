"""Ways to put the rows of a query into PostgreSQL, as functions for `foreachBatch`: exactly once, and plainly.

A plain way writes a batch again when it is read again. It is what `ExactlyOnce` is compared with: the same COPY,
through the driver or from the executors, without positions.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import psycopg
from psycopg import sql

from rallypoint.spark_bridge.exactly_once import ExactlyOnce
from rallypoint.spark_bridge.exactly_once.postgresql import PostgreSQL

EXACTLY_ONCE = "exactly-once"
THROUGH_DRIVER = "plain-driver"
FROM_EXECUTORS = "plain-executors"

Write = Callable[[Any, int], None]

COLUMNS = """
key bytea, value bytea, topic text, "partition" integer, "offset" bigint, "timestamp" timestamptz,
"timestampType" integer
"""


def make_table(conninfo: str, way: str) -> None:
    """An empty table for the rows, named after the way, with the columns of Kafka's source and no index.

    No position is known any more, so that the same records can be written again.
    """
    with psycopg.connect(conninfo) as connection:
        connection.execute("DROP TABLE IF EXISTS rallypoint_positions")
        name = sql.Identifier(way)
        connection.execute(sql.SQL("DROP TABLE IF EXISTS {}").format(name))
        connection.execute(sql.SQL("CREATE TABLE {} ({})").format(name, sql.SQL(COLUMNS)))


def count_rows(conninfo: str, way: str) -> int:
    """How many there are in it."""
    with psycopg.connect(conninfo) as connection:
        found = connection.execute(sql.SQL("SELECT count(*) FROM {}").format(sql.Identifier(way))).fetchone()
    assert found is not None
    return int(found[0])


def exactly_once(conninfo: str, columns: Sequence[str]) -> Write:
    """Rows and positions in one transaction."""
    return ExactlyOnce(PostgreSQL(conninfo), "bench", table=EXACTLY_ONCE)


def plain_driver(conninfo: str, columns: Sequence[str]) -> Write:
    """The rows alone, through the driver."""

    def write(frame: Any, batch_id: int) -> None:
        copy_rows(conninfo, THROUGH_DRIVER, columns, frame.collect())

    return write


def plain_executors(conninfo: str, columns: Sequence[str]) -> Write:
    """The rows alone, each task by itself: a batch that fails in the middle leaves a part behind."""

    def write(frame: Any, batch_id: int) -> None:
        frame.foreachPartition(lambda rows: copy_rows(conninfo, FROM_EXECUTORS, columns, rows))

    return write


def copy_rows(conninfo: str, table: str, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """By COPY, in one transaction."""
    statement = sql.SQL("COPY {} ({}) FROM STDIN").format(
        sql.Identifier(table), sql.SQL(", ").join(map(sql.Identifier, columns))
    )
    with psycopg.connect(conninfo) as connection, connection.cursor() as cursor, cursor.copy(statement) as copy:
        for row in rows:
            copy.write_row(row)


WAYS: Mapping[str, Callable[[str, Sequence[str]], Write]] = {
    EXACTLY_ONCE: exactly_once, THROUGH_DRIVER: plain_driver, FROM_EXECUTORS: plain_executors,
}  # fmt: skip
"""By name, which is that of the table."""
