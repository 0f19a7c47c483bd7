"""Sinks that count words in a table of SQLite: one counts each line exactly once, the other does not."""

import sqlite3
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from rallypoint.spark import ExactlyOnce, Frame, SQLite

TABLE = "CREATE TABLE words (word TEXT PRIMARY KEY, count INTEGER NOT NULL) WITHOUT ROWID"
BUSY_SECONDS = 60.0


def make_table(path: Path) -> None:
    """The table, empty, in a file that is not there yet."""
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(TABLE)


def read_counts(path: Path) -> Mapping[str, int]:
    """What the drivers counted."""
    with closing(sqlite3.connect(path)) as connection:
        return dict(connection.execute("SELECT word, count FROM words"))


def add_counts(connection: Any, rows: Iterable[Sequence[Any]]) -> None:
    """Add the words of some rows, whose last column is the word, to the table."""
    counts = Counter(row[-1] for row in rows)
    connection.executemany(
        "INSERT INTO words VALUES (?, ?) ON CONFLICT (word) DO UPDATE SET count = count + excluded.count",
        counts.items(),
    )


def exactly_once(path: Path) -> ExactlyOnce:
    """Counts and positions in one transaction: whatever is read again is not counted again."""
    return ExactlyOnce(SQLite(path), "word-count", write=add_counts)


class Plain:
    """The same counts in a transaction of their own, and no positions: what is read again is counted again."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __call__(self, frame: Frame, batch_id: int) -> None:
        """Count a batch."""
        with closing(sqlite3.connect(self._path, timeout=BUSY_SECONDS)) as connection, connection:
            add_counts(connection, frame.collect())
