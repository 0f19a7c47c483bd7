"""`ExactlyOnce`, a function for `foreachBatch`: writes the new rows of a batch and the positions in one transaction.

Nothing here knows a particular database or imports Spark. Of a DataFrame it uses the columns and the rows.
"""

import logging
import random
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from datetime import UTC, datetime
from typing import Any, Protocol

from rallypoint.spark_bridge.exactly_once.database import Database, Transaction
from rallypoint.spark_bridge.exactly_once.errors import LoadFailed, PositionMoved
from rallypoint.spark_bridge.exactly_once.positions import FreshRows

log = logging.getLogger("rallypoint.spark")

INTEGERS = ("tinyint", "smallint", "int", "bigint")
NEEDED = {"topic": ("string",), "partition": INTEGERS, "offset": INTEGERS}
"""The columns that decide which rows are new, and their types in Spark SQL."""
WRITTEN = ("_rallypoint_topic", "_rallypoint_partition", "_rallypoint_end")
"""Columns that a load into files adds to a batch, to filter out rows that are written already."""
BACKOFF_MAX_MS = 5_000

Write = Callable[[Any, Iterable[Sequence[Any]]], None]


class Frame(Protocol):
    """What is used of a DataFrame."""

    @property
    def columns(self) -> list[str]:
        """Names of the columns."""

    @property
    def dtypes(self) -> list[tuple[str, str]]:
        """Names and Spark SQL types of the columns."""

    def collect(self) -> Sequence[Any]:
        """The rows."""


class ExactlyOnce:
    """A function for `foreachBatch` that writes each record of a group's topics exactly once into a database.

    This holds across replays, rebalances, and late writes by a driver whose session had expired.

    `database`: `PostgreSQL(…)` or `SQLite(…)`.
    `name`: the name of this load. All drivers of one load use the same name; two loads into one database need two.
    `table`: the table to insert the batch's columns into, under the same names.
    `write`: instead of `table`, a function `write(connection, rows)`. It runs inside the transaction, must read all
    rows, and must neither commit nor roll back. Rows are sequences in the order of the batch's columns.
    `drop`: columns that are not written to `table`.
    `attempts`: the most attempts for a batch. It is tried again after transient errors of the database, and if another
    driver has moved a position concurrently. After the last attempt, and after any other error, the query fails; it
    can be started again.
    `retry_backoff_ms`: the first pause between attempts. It doubles up to 5 s.

    The batch must have the source's columns `topic`, `partition` and `offset`. A record may have become several rows or
    none. The driver holds the rows of a batch in memory; limit them with `maxOffsetsPerTrigger`.
    """

    def __init__(
        self,
        database: Database,
        name: str,
        *,
        table: str | None = None,
        write: Write | None = None,
        drop: Sequence[str] = (),
        attempts: int = 10,
        retry_backoff_ms: int = 200,
    ) -> None:
        if (table is None) == (write is None):
            raise ValueError("ExactlyOnce: give either table or write")
        if write is not None and drop:
            raise ValueError("ExactlyOnce: drop is for table; a write of your own takes the columns that it wants")
        if not name:
            raise ValueError("ExactlyOnce: name must not be empty")
        if attempts < 1:
            raise ValueError("ExactlyOnce: attempts must be at least 1")
        if retry_backoff_ms < 1:
            raise ValueError("ExactlyOnce: retry_backoff_ms must be at least 1")
        self._database = database
        self._name = name
        self._table = table
        self._own_write = write
        self._drop = frozenset(drop)
        self._attempts = attempts
        self._retry_backoff_ms = retry_backoff_ms

    def __call__(self, frame: Frame, batch_id: int) -> None:
        """Write a batch, as `foreachBatch` calls it. Returns once it is committed."""
        check_columns(frame.dtypes, self._drop)
        # Before the transaction, which may hold locks, and once for all attempts. DataFrame.toLocalIterator would need
        # less memory here, but Spark 4.3 keeps everything that it returns for the life of the session.
        collected = frame.collect()
        for attempt in range(1, self._attempts + 1):
            try:
                rows = self._write_once(frame, collected)
            except Exception as error:
                if attempt == self._attempts or not self._may_pass(error):
                    raise
                pause_ms = min(self._retry_backoff_ms * 2 ** (attempt - 1), BACKOFF_MAX_MS) * random.uniform(0.5, 1)
                log.warning("%s: batch %d: %s; trying again in %.0f ms", self._name, batch_id, error, pause_ms)
                time.sleep(pause_ms / 1000)
            else:
                if rows.skipped:
                    log.info(
                        "%s: batch %d: %d of %d rows were written before",
                        self._name,
                        batch_id,
                        rows.skipped,
                        rows.read,
                    )
                return

    def forget(self, topic: str) -> int:
        """Delete the positions of a topic. Returns how many there were. Stop the queries first.

        Call it for a topic that was deleted and recreated, whose offsets start at 0 again, or to write records again.
        The rows stay.
        """
        with self._database.transaction() as transaction:
            return transaction.forget(self._name, topic)

    def _may_pass(self, error: Exception) -> bool:
        return isinstance(error, PositionMoved) or self._database.is_transient(error)

    def _write_once(self, frame: Frame, collected: Sequence[Any]) -> FreshRows:
        with self._database.transaction() as transaction:
            seen = transaction.positions(self._name)
            rows = FreshRows(collected, frame.columns, seen)
            if self._own_write is not None:
                with transaction.guarded():
                    self._own_write(transaction.connection, rows)
            else:
                self._insert(transaction, frame, rows)
            if not rows.exhausted:
                raise LoadFailed(f"{self._name}: write has not read all rows, so it cannot have written them")
            for tp, before, end in rows.moves:
                if not transaction.move(self._name, tp, before, end):
                    raise PositionMoved(f"another driver has written {tp[0]}-{tp[1]} meanwhile")
        return rows

    def _insert(self, transaction: Transaction, frame: Frame, rows: FreshRows) -> None:
        written = [index for index, name in enumerate(frame.columns) if name not in self._drop]
        instants = frozenset(index for index, (_, dtype) in enumerate(frame.dtypes) if dtype == "timestamp")
        assert self._table is not None
        transaction.insert(
            self._table,
            [frame.columns[index] for index in written],
            ([_instant(row[index]) if index in instants else row[index] for index in written] for row in rows),
        )


def check_columns(dtypes: Sequence[tuple[str, str]], drop: Collection[str]) -> None:
    """Raise LoadFailed if a batch with these columns cannot be written."""
    columns = [name for name, _ in dtypes]
    if missing := [name for name in NEEDED if name not in columns]:
        raise LoadFailed(
            f"the batch has no column {' and no '.join(missing)}: keep topic, partition and offset of the source"
            " until the rows are written; they say which of them are new"
        )
    if taken := [name for name in columns if name.lower() in WRITTEN]:
        raise LoadFailed(f"the column {taken[0]} has a name that the sink uses itself; rename it")
    for name, dtype in dtypes:
        if dtype not in NEEDED.get(name, (dtype,)):
            raise LoadFailed(
                f"the column {name} is of the type {dtype}, and must be {' or '.join(NEEDED[name])}: its values"
                " are compared with what was written before"
            )
    if unknown := sorted(set(drop) - set(columns)):
        raise LoadFailed(f"drop names {', '.join(unknown)}, and the batch has {', '.join(columns)}")


def _instant(value: datetime | None) -> datetime | None:
    """The same time with a zone: Spark returns local time without one, and a database needs it."""
    return None if value is None else value.astimezone(UTC)
