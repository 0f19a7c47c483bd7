"""The function for `foreachBatch`: reads a batch to the driver, and writes its new rows and positions together.

Nothing here knows a database or imports Spark: of the DataFrame it needs the columns and the rows.
"""

import logging
import random
import time
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from typing import Any, Protocol

from spark_bridge.errors import BridgeError
from spark_bridge.exactly_once.database import Database, Transaction
from spark_bridge.exactly_once.positions import FreshRows

log = logging.getLogger("rallypoint.spark")

NEEDED = ("topic", "partition", "offset")
BACKOFF_MAX_MS = 5_000

Write = Callable[[Any, Iterable[Sequence[Any]]], None]


class LoadFailed(BridgeError):  # noqa: N818
    """The batch cannot be written as it is; nothing of it was."""


class PositionMoved(BridgeError):  # noqa: N818
    """Another driver wrote some of the same rows meanwhile. The batch is tried again, and skips those."""


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
    """Writes each record of a group's topics once, whatever is replayed, handed over, or written late by a driver that
    was taken for dead.

    `name`: of this load; positions are kept by it, so all drivers of a group that write the same thing share one, and
    two loads into one database have two. `table`: where the columns of the batch go, those of the same names; or
    `write(connection, rows)`, which writes the rows as it likes, inside the transaction, and must read all of them; it
    neither commits nor rolls back. Rows are sequences in the order of the batch's columns.

    The batch must have the columns `topic`, `partition` and `offset` of the source (`drop` leaves columns away when
    writing to `table`). A record may have become several rows or none. The rows of a batch are in the driver's memory
    while it is written: `maxOffsetsPerTrigger` says how many that are.

    Tried again: what the database calls transient, and a position that another driver has moved meanwhile, `attempts`
    times in all, with a pause that doubles from `retry_backoff_ms` to 5 s. Then, and for any other error, the query
    fails; it may be started again.
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
        """Write a batch; returns once it is committed. What `foreachBatch` calls."""
        self._check_columns(frame)
        # Before the transaction, which keeps others waiting, and once for all attempts. DataFrame.toLocalIterator would
        # hold less at a time here; but Spark 4.3 keeps whatever it hands over for as long as the session lives.
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
        """Forget the positions of a topic: for one that was deleted and made anew, whose offsets begin at 0 again, or
        before records are to be read and written again. The rows stay. How many positions there were.

        Stop the queries first.
        """
        with self._database.transaction() as transaction:
            return transaction.forget(self._name, topic)

    def _may_pass(self, error: Exception) -> bool:
        return isinstance(error, PositionMoved) or self._database.is_transient(error)

    def _check_columns(self, frame: Frame) -> None:
        if missing := [name for name in NEEDED if name not in frame.columns]:
            raise LoadFailed(
                f"the batch has no column {' and no '.join(missing)}: keep topic, partition and offset of the source"
                " until the rows are written; they say which of them are new"
            )
        if strange := sorted(self._drop - set(frame.columns)):
            raise LoadFailed(f"drop names {', '.join(strange)}, and the batch has {', '.join(frame.columns)}")

    def _write_once(self, frame: Frame, collected: Sequence[Any]) -> FreshRows:
        with self._database.transaction() as transaction:
            seen = transaction.positions(self._name)
            rows = FreshRows(collected, frame.columns, seen)
            if self._own_write is not None:
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


def _instant(value: datetime | None) -> datetime | None:
    """Spark gives an instant as this machine's local time without a zone; a database needs to know which instant."""
    return None if value is None else value.astimezone(UTC)
