"""The function for `foreachBatch`: reads a batch to the driver, and writes its new rows and positions together.

Nothing here knows a database or imports Spark: of the DataFrame it needs the columns and the rows.
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

WHOLE = ("tinyint", "smallint", "int", "bigint")
NEEDED = {"topic": ("string",), "partition": WHOLE, "offset": WHOLE}
"""The columns that say which rows are new, and their types in Spark's SQL."""
WRITTEN = ("_rallypoint_topic", "_rallypoint_partition", "_rallypoint_end")
"""Columns that a load into files puts beside a batch's own, to leave out what is written."""
BACKOFF_MAX_MS = 5_000

Write = Callable[[Any, Iterable[Sequence[Any]]], None]


class Frame(Protocol):
    """What is used of a DataFrame."""

    @property
    def columns(self) -> list[str]:
        """Names of the columns."""

    @property
    def dtypes(self) -> list[tuple[str, str]]:
        """Names and types of the columns, the types as Spark's SQL writes them."""

    def collect(self) -> Sequence[Any]:
        """The rows."""


class ExactlyOnce:
    """A function for `foreachBatch` that writes each record of a group's topics exactly once into a database.

    This holds across replays, hand-overs, and late writes by a driver that was taken for dead.

    `database`: `PostgreSQL(…)` or `SQLite(…)`.
    `name`: the name of this load. All drivers that write the same thing share it; two loads into one database have two.
    `table`: the table that gets the batch's columns, under the same names.
    `write`: in place of `table`, `write(connection, rows)` writes the rows as it likes. It runs inside the transaction,
    must read all rows, and must neither commit nor roll back. Rows are sequences in the order of the batch's columns.
    `drop`: columns that are not written to `table`.
    `attempts`: how often a batch is tried in all, after transient errors of the database and after a position that
    another driver has moved meanwhile. Then, and after any other error, the query fails; it may be started again.
    `retry_backoff_ms`: the first pause between attempts; it doubles up to 5 s.

    The batch must have the source's columns `topic`, `partition` and `offset`. A record may have become several rows or
    none. The rows of a batch are in the driver's memory while it is written; limit them by `maxOffsetsPerTrigger`.
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
        # Before the transaction, which makes others wait, and once for all attempts. DataFrame.toLocalIterator would
        # need less memory here, but Spark 4.3 keeps everything that it returns for as long as the session lives.
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
        """Forget the positions of a topic. Returns how many there were. Stop the queries first.

        Call this for a topic that was deleted and recreated, whose offsets start at 0 again, or to write records again.
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
        kept = [place for place, name in enumerate(frame.columns) if name not in self._drop]
        instants = frozenset(place for place, (_, kind) in enumerate(frame.dtypes) if kind == "timestamp")
        assert self._table is not None
        transaction.insert(
            self._table,
            [frame.columns[place] for place in kept],
            ([_instant(row[place]) if place in instants else row[place] for place in kept] for row in rows),
        )


def check_columns(dtypes: Sequence[tuple[str, str]], drop: Collection[str]) -> None:
    """LoadFailed if a batch with columns of these names and types cannot be written."""
    columns = [name for name, _ in dtypes]
    if missing := [name for name in NEEDED if name not in columns]:
        raise LoadFailed(
            f"the batch has no column {' and no '.join(missing)}: keep topic, partition and offset of the source"
            " until the rows are written; they say which of them are new"
        )
    if taken := [name for name in columns if name.lower() in WRITTEN]:
        raise LoadFailed(
            f"the column {taken[0]} has a name that the sink uses beside the batch's own columns; give it another one"
        )
    for name, kind in dtypes:
        if kind not in NEEDED.get(name, (kind,)):
            raise LoadFailed(
                f"the column {name} is of the type {kind}, and must be {' or '.join(NEEDED[name])}: its values"
                " are compared with what was written before"
            )
    if strange := sorted(set(drop) - set(columns)):
        raise LoadFailed(f"drop names {', '.join(strange)}, and the batch has {', '.join(columns)}")


def _instant(value: datetime | None) -> datetime | None:
    """Spark returns an instant as local time without a zone; a database needs the zone."""
    return None if value is None else value.astimezone(UTC)
