"""A process that loads three batches and kills itself at a step: `python killed_load.py KIND WHERE STEP BATCH`.

STEP is one of STEPS, BATCH the batch in which; without them it loads to the end. The batches overlap those of a run
that was killed before, as replays do.
"""

import os
import signal
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from rallypoint.spark_bridge.exactly_once import ExactlyOnce
from rallypoint.spark_bridge.exactly_once.database import Database, Transaction
from rallypoint.spark_bridge.exactly_once.postgresql import PostgreSQL
from rallypoint.spark_bridge.exactly_once.sqlite import SQLite
from rallypoint.spark_bridge.offsets import TopicPartition
from tests.spark_bridge.exactly_once.batches import ListFrame, rows_of

STEPS = ("opened", "read_positions", "between_rows", "rows_written", "moved_one", "before_commit", "after_commit")
BATCHES = [rows_of(0, start, start + 10) + rows_of(1, start, start + 10) for start in (0, 10, 20)]


class Deadly:
    """A database that kills the process where it is told to."""

    def __init__(self, real: Database, step: str, batch: int) -> None:
        self.real, self.step, self.batch = real, step, batch
        self.batches = -1

    def reach(self, step: str) -> None:
        if (step, self.batches) == (self.step, self.batch):
            os.kill(os.getpid(), signal.SIGKILL)

    @contextmanager
    def transaction(self) -> Iterator[Transaction]:
        self.batches += 1
        with self.real.transaction() as inner:
            self.reach("opened")
            yield DeadlyTransaction(inner, self)
            self.reach("before_commit")
        self.reach("after_commit")

    def is_transient(self, error: BaseException) -> bool:
        return self.real.is_transient(error)


class DeadlyTransaction:
    """Its transactions."""

    def __init__(self, inner: Transaction, deadly: Deadly) -> None:
        self._inner, self._deadly = inner, deadly
        self.connection = inner.connection

    def guarded(self) -> AbstractContextManager[None]:
        return self._inner.guarded()

    def positions(self, name: str) -> Mapping[TopicPartition, int]:
        found = self._inner.positions(name)
        self._deadly.reach("read_positions")
        return found

    def move(self, name: str, tp: TopicPartition, seen: int | None, end: int) -> bool:
        moved = self._inner.move(name, tp, seen, end)
        self._deadly.reach("moved_one")
        return moved

    def forget(self, name: str, topic: str) -> int:
        return self._inner.forget(name, topic)

    def insert(self, table: str, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
        self._inner.insert(table, columns, self._counted(rows))
        self._deadly.reach("rows_written")

    def _counted(self, rows: Iterable[Sequence[Any]]) -> Iterator[Sequence[Any]]:
        for count, row in enumerate(rows):
            if count == 5:
                self._deadly.reach("between_rows")
            yield row


def main(kind: str, where: str, step: str = "", batch: str = "-1") -> None:
    """Load."""
    real: Database = SQLite(where) if kind == "sqlite" else PostgreSQL(where)
    load = ExactlyOnce(Deadly(real, step, int(batch)), "load", table="words")
    for number, rows in enumerate(BATCHES):
        load(ListFrame(rows), number)


if __name__ == "__main__":
    main(*sys.argv[1:])
