"""The table of orders in PostgreSQL, in a schema of its own, and two ways to write to it: each order once, or plainly.

The table has no key: nothing but the way of writing keeps an order from being there twice, so counting shows it.
"""

from collections.abc import Iterator
from typing import NamedTuple

import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from examples.exactly_once.orders import Order
from rallypoint.spark import ExactlyOnce, Frame, PostgreSQL

SCHEMA = "rallypoint_example"
MADE = "Made by the example exactly_once of Rallypoint, which makes it anew when it runs again."
TABLE = """
CREATE TABLE orders (
    topic text NOT NULL, "partition" integer NOT NULL, "offset" bigint NOT NULL,
    order_id bigint NOT NULL, customer text NOT NULL, cents bigint NOT NULL, driver text NOT NULL
)
"""
CONNECT_TIMEOUT_SECONDS = 10


class Unusable(Exception):  # noqa: N818
    """The database cannot be used; the text is one sentence."""


class Row(NamedTuple):
    """A row of the table: where its order stood in the topic, the order, and which driver wrote it."""

    partition: int
    offset: int
    order: Order
    driver: str


def make_table(conninfo: str) -> str:
    """Make the schema with the table, empty; the connection string with which the table is found.

    A schema of that name is replaced if an earlier run made it. Raises Unusable.
    """
    try:
        with psycopg.connect(conninfo, connect_timeout=CONNECT_TIMEOUT_SECONDS) as connection:
            found = connection.execute(
                "SELECT obj_description(oid, 'pg_namespace') FROM pg_namespace WHERE nspname = %s", (SCHEMA,)
            ).fetchone()
            if found is not None and found[0] != MADE:
                raise Unusable(f"The database has a schema {SCHEMA} that this example did not make; name another one.")
            name = sql.Identifier(SCHEMA)
            connection.execute(sql.SQL("DROP SCHEMA IF EXISTS {} CASCADE").format(name))
            connection.execute(sql.SQL("CREATE SCHEMA {}").format(name))
            connection.execute(sql.SQL("COMMENT ON SCHEMA {} IS {}").format(name, sql.Literal(MADE)))
            connection.execute(sql.SQL("SET search_path TO {}").format(name))
            connection.execute(TABLE)
        options = conninfo_to_dict(conninfo).get("options")
        return make_conninfo(conninfo, options=f"{options or ''} -c search_path={SCHEMA}".strip())
    except psycopg.Error as error:
        raise Unusable(f"PostgreSQL cannot be used: {str(error).strip()}") from error


def read_rows(conninfo: str) -> Iterator[Row]:
    """All rows of the table, in any order."""
    with psycopg.connect(conninfo) as connection, connection.cursor("rows") as cursor:
        cursor.execute('SELECT "partition", "offset", order_id, customer, cents, driver FROM orders')
        for partition, offset, order_id, customer, cents, driver in cursor:
            yield Row(partition, offset, Order(order_id, customer, cents), driver)


def exactly_once(conninfo: str) -> ExactlyOnce:
    """Rows and positions in one transaction: whatever is read again is not written again."""
    return ExactlyOnce(PostgreSQL(conninfo), "orders", table="orders")


class Plain:
    """The same rows in a transaction of their own, and no positions: what is read again is written again."""

    def __init__(self, conninfo: str) -> None:
        self._conninfo = conninfo

    def __call__(self, frame: Frame, batch_id: int) -> None:
        """Write a batch."""
        columns = sql.SQL(", ").join(map(sql.Identifier, frame.columns))
        statement = sql.SQL("COPY orders ({}) FROM STDIN").format(columns)
        with psycopg.connect(self._conninfo) as connection, connection.cursor().copy(statement) as copy:
            for row in frame.collect():
                copy.write_row(row)
