"""What the tests of the load share: a frame that is a list, a database with a table to load, and how to read it."""

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, Protocol

import psycopg

from rallypoint.spark_bridge.exactly_once.database import Database
from rallypoint.spark_bridge.exactly_once.postgresql import PostgreSQL
from rallypoint.spark_bridge.exactly_once.sqlite import SQLite

Row = tuple[str, int, int, str]


class ListFrame:
    """A batch as Spark hands it over, as far as the load looks at it."""

    def __init__(
        self,
        rows: Sequence[Sequence[Any]],
        columns: Sequence[str] = ("topic", "partition", "offset", "word"),
        kinds: Sequence[str] = ("string", "int", "bigint", "string"),
    ) -> None:
        self._rows = rows
        self.columns = list(columns)
        self.dtypes = list(zip(columns, kinds, strict=True))

    def collect(self) -> Sequence[Sequence[Any]]:
        return self._rows


def rows_of(partition: int, start: int, end: int, topic: str = "clicks") -> list[Row]:
    """Records of one partition, each with a word that says which it is."""
    return [(topic, partition, offset, f"{topic}-{partition}-{offset}") for offset in range(start, end)]


class Loaded(Protocol):
    """A database to load into, and a look at what is in it."""

    @property
    def database(self) -> Database:
        """Where to load to."""

    def words(self) -> list[str]:
        """What was written, in order of the words; one that was written twice stands there twice."""

    def positions(self, name: str = "load") -> dict[tuple[str, int], int]:
        """What the load of this name has written."""


class LoadedSQLite:
    """A file with a table `words`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.database = SQLite(path)
        with closing(sqlite3.connect(path)) as connection:
            connection.execute('CREATE TABLE words (topic TEXT, "partition" INTEGER, "offset" INTEGER, word TEXT)')

    def words(self) -> list[str]:
        with closing(sqlite3.connect(self.path)) as connection:
            return [word for (word,) in connection.execute("SELECT word FROM words ORDER BY word")]

    def positions(self, name: str = "load") -> dict[tuple[str, int], int]:
        with self.database.transaction() as transaction:
            return dict(transaction.positions(name))


class LoadedPostgreSQL:
    """A schema of its own, with a table `words`."""

    def __init__(self, conninfo: str, schema: str) -> None:
        with psycopg.connect(conninfo) as connection:
            connection.execute(f'CREATE SCHEMA "{schema}"')
        self.conninfo = f"{conninfo} options='-c search_path={schema}'"
        self.database = PostgreSQL(self.conninfo)
        with psycopg.connect(self.conninfo) as connection:
            connection.execute('CREATE TABLE words (topic text, "partition" integer, "offset" bigint, word text)')

    def words(self) -> list[str]:
        with psycopg.connect(self.conninfo) as connection:
            return [word for (word,) in connection.execute('SELECT word FROM words ORDER BY word COLLATE "C"')]

    def positions(self, name: str = "load") -> dict[tuple[str, int], int]:
        with self.database.transaction() as transaction:
            return dict(transaction.positions(name))
