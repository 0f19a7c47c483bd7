"""The load on both databases: what is new, what is refused, and what becomes of a batch that fails half-way."""

import secrets
import sqlite3
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, suppress
from datetime import datetime
from pathlib import Path
from typing import Any

import psycopg
import pytest

from rallypoint.spark_bridge.exactly_once import ExactlyOnce, LoadFailed, PositionMoved
from rallypoint.spark_bridge.exactly_once.database import Transaction
from rallypoint.spark_bridge.exactly_once.postgresql import PostgreSQL
from rallypoint.spark_bridge.exactly_once.sqlite import SQLite
from tests.spark_bridge.exactly_once.batches import ListFrame, Loaded, LoadedPostgreSQL, LoadedSQLite, rows_of


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.postgresql)])
def loaded(request: pytest.FixtureRequest, tmp_path: Path) -> Loaded:
    if request.param == "sqlite":
        return LoadedSQLite(tmp_path / "load.db")
    return LoadedPostgreSQL(request.getfixturevalue("postgresql"), f"load_{secrets.token_hex(6)}")


KINDS = ("string", "int", "bigint", "string", "double")


def words(*ranges: tuple[int, int, int]) -> list[str]:
    return sorted(word for one in ranges for *_, word in rows_of(*one))


def test_a_batch_is_written_with_its_positions(loaded: Loaded) -> None:
    ExactlyOnce(loaded.database, "load", table="words")(ListFrame(rows_of(0, 0, 5) + rows_of(1, 7, 9)), 0)
    assert loaded.words() == words((0, 0, 5), (1, 7, 9))
    assert loaded.positions() == {("clicks", 0): 5, ("clicks", 1): 9}


def test_a_replay_writes_nothing(loaded: Loaded) -> None:
    load = ExactlyOnce(loaded.database, "load", table="words")
    frame = ListFrame(rows_of(0, 0, 5))
    load(frame, 0)
    load(frame, 0)
    assert loaded.words() == words((0, 0, 5))


def test_the_next_owner_that_reads_from_an_older_position_writes_the_rest(loaded: Loaded) -> None:
    ExactlyOnce(loaded.database, "load", table="words")(ListFrame(rows_of(0, 0, 5)), 3)
    ExactlyOnce(loaded.database, "load", table="words")(ListFrame(rows_of(0, 2, 8)), 0)
    assert loaded.words() == words((0, 0, 8))
    assert loaded.positions() == {("clicks", 0): 8}


def test_a_driver_that_was_taken_for_dead_writes_its_last_batch_in_vain(loaded: Loaded) -> None:
    old, new = (ExactlyOnce(loaded.database, "load", table="words") for _ in range(2))
    new(ListFrame(rows_of(0, 0, 8)), 0)
    old(ListFrame(rows_of(0, 0, 5)), 9)
    assert loaded.words() == words((0, 0, 8))
    assert loaded.positions() == {("clicks", 0): 8}


def test_rows_of_one_record_stay_together(loaded: Loaded) -> None:
    twins = [(*row[:3], f"{row[3]}-{side}") for row in rows_of(0, 0, 3) for side in "ab"]
    load = ExactlyOnce(loaded.database, "load", table="words")
    load(ListFrame(twins), 0)
    load(ListFrame(twins), 0)
    assert loaded.words() == [row[3] for row in twins]


def test_an_empty_batch_is_written(loaded: Loaded) -> None:
    ExactlyOnce(loaded.database, "load", table="words")(ListFrame([]), 0)
    assert loaded.words() == []
    assert loaded.positions() == {}


def test_two_loads_do_not_know_each_other(loaded: Loaded) -> None:
    for name in ("one", "two"):
        ExactlyOnce(loaded.database, name, table="words")(ListFrame(rows_of(0, 0, 2)), 0)
    assert loaded.words() == sorted(words((0, 0, 2)) * 2)


def test_a_write_that_fails_leaves_nothing(loaded: Loaded) -> None:
    def write(connection: Any, rows: Iterable[Sequence[Any]]) -> None:
        for row in rows:
            connection.execute(f"INSERT INTO words (word) VALUES ('{row[3]}')")
        raise OSError("the power went")

    with pytest.raises(OSError, match="the power went"):
        ExactlyOnce(loaded.database, "load", write=write)(ListFrame(rows_of(0, 0, 5)), 0)
    assert loaded.words() == []
    assert loaded.positions() == {}


def test_a_batch_that_cannot_be_read_to_its_end_leaves_nothing(loaded: Loaded) -> None:
    class Torn(ListFrame):
        def collect(self) -> Sequence[Sequence[Any]]:
            raise OSError("a task failed")

    with pytest.raises(OSError, match="a task failed"):
        ExactlyOnce(loaded.database, "load", table="words")(Torn([]), 0)
    assert loaded.words() == []
    assert loaded.positions() == {}


def test_the_rows_are_read_once_for_all_attempts_and_before_anybody_is_kept_waiting(loaded: Loaded) -> None:
    class Counted(ListFrame):
        collected = 0

        def collect(self) -> Sequence[Sequence[Any]]:
            self.collected += 1
            # Another driver writes something else meanwhile: with a transaction open, SQLite would let nobody.
            ExactlyOnce(loaded.database, "other", table="words")(ListFrame(rows_of(7, 0, 1)), 0)
            return super().collect()

    attempts: list[int] = []

    def write(connection: Any, rows: Iterable[Sequence[Any]]) -> None:
        attempts.append(len(list(rows)))
        if len(attempts) < 3:
            raise PositionMoved("somebody was faster")

    frame = Counted(rows_of(0, 0, 5))
    ExactlyOnce(loaded.database, "load", write=write, retry_backoff_ms=1)(frame, 0)
    assert (frame.collected, attempts) == (1, [5, 5, 5])
    assert loaded.words() == words((7, 0, 1))


def test_a_write_of_ones_own_is_in_the_transaction(loaded: Loaded) -> None:
    """Counting: what a batch adds to a sum, a replay must not add again."""

    def write(connection: Any, rows: Iterable[Sequence[Any]]) -> None:
        count = sum(1 for _ in rows)
        connection.execute(f"INSERT INTO words (word) VALUES ('{count}')")

    load = ExactlyOnce(loaded.database, "load", write=write)
    for _ in range(2):
        load(ListFrame(rows_of(0, 0, 5)), 0)
    assert loaded.words() == ["0", "5"]
    assert loaded.positions() == {("clicks", 0): 5}


def test_a_write_that_does_not_read_all_rows_is_refused(loaded: Loaded) -> None:
    def write(connection: Any, rows: Iterable[Sequence[Any]]) -> None:
        next(iter(rows))

    with pytest.raises(LoadFailed, match="has not read all rows"):
        ExactlyOnce(loaded.database, "load", write=write)(ListFrame(rows_of(0, 0, 5)), 0)
    assert loaded.positions() == {}


@pytest.mark.postgresql
@pytest.mark.parametrize("known", [0, 1])
def test_a_position_that_another_driver_moved_meanwhile_lets_the_batch_be_tried_again(
    known: int, postgresql: str
) -> None:
    """Not on SQLite, which lets one writer in at a time, so that nobody can be faster."""
    loaded = LoadedPostgreSQL(postgresql, f"load_{secrets.token_hex(6)}")
    ExactlyOnce(loaded.database, "load", table="words")(ListFrame(rows_of(0, 0, known)), 0)
    seen: list[int] = []

    def write(connection: Any, rows: Iterable[Sequence[Any]]) -> None:
        fresh = list(rows)
        if not seen:  # between this driver's reading of the positions and its commit, another one is through
            ExactlyOnce(loaded.database, "load", table="words")(ListFrame(rows_of(0, 0, 3)), 0)
        seen.append(len(fresh))
        for row in fresh:
            connection.execute("INSERT INTO words VALUES (%s, %s, %s, %s)", row)

    load = ExactlyOnce(loaded.database, "load", write=write, retry_backoff_ms=1)
    load(ListFrame(rows_of(0, 0, 5)), 4)
    assert seen == [5 - known, 2]
    assert loaded.words() == words((0, 0, 5))

    loses = ExactlyOnce(loaded.database, "load", table="words", attempts=1)
    with pytest.raises(PositionMoved, match="clicks-1"):
        loses(ListFrame(_FirstBy(loaded, rows_of(1, 0, 5))), 0)


class _FirstBy(list[Sequence[Any]]):
    """Rows that another driver writes while somebody reads them."""

    def __init__(self, loaded: Loaded, rows: Sequence[Sequence[Any]]) -> None:
        super().__init__(rows)
        self._loaded = loaded

    def __iter__(self) -> Iterator[Sequence[Any]]:
        ExactlyOnce(self._loaded.database, "load", table="words")(ListFrame(self[:]), 0)
        return super().__iter__()


def test_many_drivers_at_once_write_everything_once(loaded: Loaded) -> None:
    """Eight writers of overlapping batches, each in order, as after hand-overs in which nobody really died."""
    errors: list[BaseException] = []

    def drive(step: int) -> None:
        load = ExactlyOnce(loaded.database, "load", table="words", attempts=50, retry_backoff_ms=5)
        try:
            for start in range(0, 60, step):
                load(ListFrame(rows_of(0, start, start + step) + rows_of(1, start, start + step)), start)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=drive, args=(step,)) for step in (5, 6, 10, 12, 15, 20, 30, 60)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    assert loaded.words() == words((0, 0, 60), (1, 0, 60))
    assert loaded.positions() == {("clicks", 0): 60, ("clicks", 1): 60}


def test_a_forgotten_topic_begins_anew(loaded: Loaded) -> None:
    load = ExactlyOnce(loaded.database, "load", table="words")
    load(ListFrame(rows_of(0, 0, 2) + rows_of(1, 0, 2) + rows_of(0, 0, 2, "orders")), 0)
    assert load.forget("clicks") == 2
    assert loaded.positions() == {("orders", 0): 2}
    load(ListFrame(rows_of(0, 0, 1)), 1)
    assert loaded.words().count("clicks-0-0") == 2


def test_columns_may_be_dropped(loaded: Loaded) -> None:
    ExactlyOnce(loaded.database, "load", table="words", drop=("partition", "extra"))(
        ListFrame([("clicks", 3, 0, "w", 1.5)], ("topic", "partition", "offset", "word", "extra"), KINDS), 0
    )
    assert loaded.words() == ["w"]
    assert loaded.positions() == {("clicks", 3): 1}


@pytest.mark.parametrize("missing", ["topic", "partition", "offset"])
def test_a_batch_without_the_columns_of_the_source_is_refused(missing: str, tmp_path: Path) -> None:
    columns = [name for name in ("topic", "partition", "offset", "word") if name != missing]
    load = ExactlyOnce(LoadedSQLite(tmp_path / "load.db").database, "load", table="words")
    with pytest.raises(LoadFailed, match=f"no column {missing}"):
        load(ListFrame([], columns, ("string",) * 3), 0)


@pytest.mark.parametrize("name", ["_rallypoint_topic", "_rallypoint_partition", "_rallypoint_end", "_Rallypoint_END"])
def test_a_column_with_a_name_of_the_sinks_own_is_refused_before_anything_is_written(name: str, tmp_path: Path) -> None:
    """A load into files would fail in a batch that is half written, and only there."""
    loaded = LoadedSQLite(tmp_path / "load.db")
    load = ExactlyOnce(loaded.database, "load", table="words", drop=(name,))
    columns = ("topic", "partition", "offset", "word", name)
    with pytest.raises(LoadFailed, match=f"the column {name} has a name that the sink uses"):
        load(ListFrame([("clicks", 3, 0, "w", 1.5)], columns, KINDS), 0)
    assert (loaded.words(), loaded.positions()) == ([], {})


@pytest.mark.parametrize(
    ("column", "kind"),
    [
        ("topic", "binary"),
        ("topic", "string collate UTF8_LCASE"),
        ("partition", "double"),
        ("partition", "string"),
        ("offset", "decimal(20,0)"),
        ("offset", "timestamp"),
    ],
)
def test_a_column_of_the_source_has_the_type_of_the_source(column: str, kind: str, tmp_path: Path) -> None:
    """What is compared with the positions must be what they are."""
    columns = ("topic", "partition", "offset", "word")
    kinds = [kind if name == column else right for name, right in zip(columns, KINDS, strict=False)]
    loaded = LoadedSQLite(tmp_path / "load.db")
    with pytest.raises(LoadFailed) as refused:
        ExactlyOnce(loaded.database, "load", table="words")(ListFrame(rows_of(0, 0, 1), columns, kinds), 0)
    assert f"the column {column} is of the type {kind}, and must be " in str(refused.value)
    assert (loaded.words(), loaded.positions()) == ([], {})


def test_a_dropped_column_must_be_there(tmp_path: Path) -> None:
    load = ExactlyOnce(LoadedSQLite(tmp_path / "load.db").database, "load", table="words", drop=("wrod",))
    with pytest.raises(LoadFailed, match="drop names wrod"):
        load(ListFrame([]), 0)


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({}, "either table or write"),
        ({"table": "words", "write": print}, "either table or write"),
        ({"write": print, "drop": ("key",)}, "drop is for table"),
        ({"table": "words", "attempts": 0}, "attempts"),
        ({"table": "words", "retry_backoff_ms": 0}, "retry_backoff_ms"),
    ],
)
def test_what_cannot_be_is_refused_at_once(wrong: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        ExactlyOnce(SQLite("never-opened.db"), "load", **wrong)


def test_a_load_needs_a_name() -> None:
    with pytest.raises(ValueError, match="name"):
        ExactlyOnce(SQLite("never-opened.db"), "", table="words")


@pytest.mark.parametrize("way", ["with", "commit", "rollback", "execute", "script", "swallowed"])
def test_a_write_that_ends_the_transaction_of_sqlite_is_refused_and_nothing_is_written(
    way: str, tmp_path: Path
) -> None:
    """Python's own idiom would commit the rows without the positions: after a crash they were there twice."""
    loaded = LoadedSQLite(tmp_path / "load.db")

    def write(connection: sqlite3.Connection, rows: Iterable[Sequence[Any]]) -> None:
        insert = "INSERT INTO words VALUES (?, ?, ?, ?)"
        if way == "with":
            with connection:
                connection.executemany(insert, rows)
            return
        connection.executemany(insert, rows)
        match way:
            case "commit":
                connection.commit()
            case "rollback":
                connection.rollback()
            case "execute":
                connection.execute("END")
            case "script":
                connection.executescript("DELETE FROM words")
            case _:
                with suppress(sqlite3.DatabaseError):
                    connection.commit()

    load = ExactlyOnce(loaded.database, "load", write=write)
    for _ in range(2):
        with pytest.raises(LoadFailed, match=r"write has executed (COMMIT|ROLLBACK), which would separate its rows"):
            load(ListFrame(rows_of(0, 0, 3)), 0)
        assert (loaded.words(), loaded.positions()) == ([], {})


@pytest.mark.parametrize("way", ["conflict", "trigger"])
@pytest.mark.parametrize("then", ["goes on", "goes on by a savepoint", "looks", "is over"])
def test_a_write_that_catches_what_has_ended_the_transaction_of_sqlite_fails_and_nothing_is_written(
    way: str, then: str, tmp_path: Path
) -> None:
    """Nothing of that calls for an end. What is written afterwards would stay, without its positions."""
    loaded = LoadedSQLite(tmp_path / "load.db")
    with closing(sqlite3.connect(loaded.path)) as other:
        other.executescript(
            "CREATE TABLE taken (id INTEGER PRIMARY KEY); INSERT INTO taken VALUES (1); CREATE TABLE never (id INTEGER)"
            "; CREATE TRIGGER never_ever BEFORE INSERT ON never BEGIN SELECT RAISE(ROLLBACK, 'never'); END"
        )

    def write(connection: sqlite3.Connection, rows: Iterable[Sequence[Any]]) -> None:
        insert = "INSERT INTO words VALUES (?, ?, ?, ?)"
        first, *others = rows
        connection.execute(insert, first)
        with suppress(sqlite3.IntegrityError):
            into = "OR ROLLBACK INTO taken" if way == "conflict" else "INTO never"
            connection.execute(f"INSERT {into} VALUES (1)")
        assert not connection.in_transaction
        match then:
            case "goes on":
                for row in others:
                    connection.execute(insert, row)  # the very statement that was prepared before
            case "goes on by a savepoint":
                connection.execute("SAVEPOINT mine")
                connection.executemany(insert, others)
                connection.execute("RELEASE mine")
            case "looks":
                assert connection.execute("SELECT count(*) FROM words").fetchall() == [(0,)]

    load = ExactlyOnce(loaded.database, "load", write=write)
    for _ in range(2):
        with pytest.raises(LoadFailed, match="the transaction has ended inside write, which continued"):
            load(ListFrame(rows_of(0, 0, 3)), 0)
        assert (loaded.words(), loaded.positions()) == ([], {})


def test_savepoints_are_a_writes_own_affair_on_sqlite(tmp_path: Path) -> None:
    loaded = LoadedSQLite(tmp_path / "load.db")

    def write(connection: sqlite3.Connection, rows: Iterable[Sequence[Any]]) -> None:
        connection.execute("SAVEPOINT mine")
        connection.executemany("INSERT INTO words VALUES (?, ?, ?, ?)", rows)
        connection.execute("ROLLBACK TO mine")

    ExactlyOnce(loaded.database, "load", write=write)(ListFrame(rows_of(0, 0, 3)), 0)
    assert (loaded.words(), loaded.positions()) == ([], {("clicks", 0): 3})


@pytest.mark.postgresql
def test_a_write_that_ends_the_transaction_of_postgresql_is_refused(postgresql: str) -> None:
    loaded = LoadedPostgreSQL(postgresql, f"load_{secrets.token_hex(6)}")

    def write(connection: psycopg.Connection[Any], rows: Iterable[Sequence[Any]]) -> None:
        with connection:
            connection.cursor().executemany("INSERT INTO words VALUES (%s, %s, %s, %s)", list(rows))

    with pytest.raises(psycopg.ProgrammingError, match="forbidden within a Transaction context"):
        ExactlyOnce(loaded.database, "load", write=write)(ListFrame(rows_of(0, 0, 3)), 0)
    assert (loaded.words(), loaded.positions()) == ([], {})


@pytest.mark.postgresql
@pytest.mark.parametrize("statements", [("COMMIT",), ("ROLLBACK",), ("COMMIT", "BEGIN"), ("END; SELECT 1",)])
@pytest.mark.parametrize("after", [True, False])
def test_a_write_that_ends_the_transaction_of_postgresql_by_a_statement_fails(
    statements: tuple[str, ...], after: bool, postgresql: str
) -> None:
    """The driver does not see it. Nothing can take back what was committed; but the positions are not moved in a
    transaction of their own, as if all were well.
    """
    loaded = LoadedPostgreSQL(postgresql, f"load_{secrets.token_hex(6)}")

    def write(connection: psycopg.Connection[Any], rows: Iterable[Sequence[Any]]) -> None:
        for half in (True, False):
            if half == after:
                connection.cursor().executemany("INSERT INTO words VALUES (%s, %s, %s, %s)", list(rows))
            else:
                for statement in statements:
                    connection.execute(statement)

    load = ExactlyOnce(loaded.database, "load", write=write)
    with pytest.raises(LoadFailed, match="write has ended the transaction with a COMMIT or ROLLBACK of its own"):
        load(ListFrame(rows_of(0, 0, 3)), 0)
    assert loaded.positions() == {}


@pytest.mark.postgresql
def test_savepoints_are_a_writes_own_affair_on_postgresql(postgresql: str) -> None:
    loaded = LoadedPostgreSQL(postgresql, f"load_{secrets.token_hex(6)}")

    def write(connection: psycopg.Connection[Any], rows: Iterable[Sequence[Any]]) -> None:
        first, *others = rows
        with connection.transaction():
            connection.execute("INSERT INTO words VALUES (%s, %s, %s, %s)", first)
        with suppress(psycopg.errors.DivisionByZero), connection.transaction():
            connection.cursor().executemany("INSERT INTO words VALUES (%s, %s, %s, %s)", others)
            connection.execute("SELECT 1 / 0")

    ExactlyOnce(loaded.database, "load", write=write)(ListFrame(rows_of(0, 0, 3)), 0)
    assert (loaded.words(), loaded.positions()) == (["clicks-0-0"], {("clicks", 0): 3})


@pytest.mark.postgresql
def test_a_driver_that_stands_still_in_a_transaction_holds_up_others_for_a_time_and_they_say_so(
    postgresql: str, caplog: pytest.LogCaptureFixture
) -> None:
    loaded = LoadedPostgreSQL(postgresql, f"load_{secrets.token_hex(6)}")
    paused = PostgreSQL(loaded.conninfo, idle_timeout_ms=1_500)
    waiting = ExactlyOnce(
        PostgreSQL(loaded.conninfo, lock_timeout_ms=50), "load", table="words", attempts=500, retry_backoff_ms=1
    )

    def stand_still() -> None:
        with paused.transaction() as transaction:
            assert transaction.move("load", ("clicks", 0), None, 2)
            waiting(ListFrame(rows_of(0, 0, 3)), 0)
            transaction.positions("load")

    with pytest.raises(psycopg.Error) as ended:
        stand_still()
    assert "load: batch 0: canceling statement due to lock timeout" in caplog.text
    assert "trying again in" in caplog.text
    assert paused.is_transient(ended.value)
    assert (loaded.words(), loaded.positions()) == (words((0, 0, 3)), {("clicks", 0): 3})


def test_the_limits_of_postgresql_are_positive() -> None:
    for wrong in ({"lock_timeout_ms": 0}, {"idle_timeout_ms": 0}):
        with pytest.raises(ValueError, match="lock_timeout_ms and idle_timeout_ms"):
            PostgreSQL("dbname=shop", **wrong)


def test_instants_keep_their_zone(tmp_path: Path) -> None:
    loaded = LoadedSQLite(tmp_path / "load.db")
    local = datetime(2026, 1, 2, 3, 4, 5)  # as Spark hands it over
    frame = ListFrame(
        [("clicks", 0, 0, local), ("clicks", 0, 1, None)],
        ("topic", "partition", "offset", "word"),
        ("string", "int", "bigint", "timestamp"),
    )
    ExactlyOnce(loaded.database, "load", table="words")(frame, 0)
    with closing(sqlite3.connect(loaded.path)) as connection:
        (written,), (nothing,) = connection.execute('SELECT word FROM words ORDER BY "offset"').fetchall()
    assert datetime.fromisoformat(written) == local.astimezone()
    assert nothing is None


def test_a_lock_held_for_too_long_is_transient(tmp_path: Path) -> None:
    path = tmp_path / "load.db"
    loaded = LoadedSQLite(path)
    impatient = SQLite(path, busy_timeout_ms=1)
    with loaded.database.transaction(), pytest.raises(sqlite3.OperationalError) as caught, impatient.transaction():
        pass
    assert impatient.is_transient(caught.value)
    assert not impatient.is_transient(sqlite3.OperationalError("no such table: words"))
    assert not impatient.is_transient(OSError())


class Flaky:
    """A database that fails so many times before it works, and after `COMMIT` once where `late`."""

    def __init__(self, real: SQLite, failures: int, *, late: bool = False) -> None:
        self.real, self.failures, self.late = real, failures, late

    def transaction(self) -> Any:
        return self._fail_after() if self.late else self._fail_before()

    def _fail_before(self) -> Any:
        if self.failures:
            self.failures -= 1
            raise ConnectionError("gone")
        return self.real.transaction()

    def _fail_after(self) -> Any:
        outer, inner = self, self.real.transaction()

        class Late:
            def __enter__(self) -> Transaction:
                return inner.__enter__()

            def __exit__(self, *error: Any) -> None:
                inner.__exit__(*error)
                if outer.failures:
                    outer.failures -= 1
                    raise ConnectionError("gone before the answer came")

        return Late()

    def is_transient(self, error: BaseException) -> bool:
        return isinstance(error, ConnectionError)


@pytest.mark.parametrize("late", [False, True])
def test_a_connection_that_is_lost_is_made_again(late: bool, tmp_path: Path) -> None:
    """Also where it is lost after the commit and before its answer: then the second try finds nothing to write."""
    loaded = LoadedSQLite(tmp_path / "load.db")
    flaky = Flaky(loaded.database, 2, late=late)
    ExactlyOnce(flaky, "load", table="words", retry_backoff_ms=1)(ListFrame(rows_of(0, 0, 5)), 0)
    assert loaded.words() == words((0, 0, 5))
    flaky.failures = 3
    with pytest.raises(ConnectionError):
        ExactlyOnce(flaky, "load", table="words", attempts=3, retry_backoff_ms=1)(ListFrame(rows_of(0, 5, 6)), 1)


@pytest.mark.postgresql
def test_a_postgresql_that_is_gone_is_transient(postgresql: str) -> None:
    loaded = LoadedPostgreSQL(postgresql, f"load_{secrets.token_hex(6)}")

    def hang_up(connection: psycopg.Connection[Any], rows: Iterable[Sequence[Any]]) -> None:
        with psycopg.connect(postgresql, autocommit=True) as other:
            other.execute("SELECT pg_terminate_backend(%s)", (connection.info.backend_pid,))
        list(rows)

    with pytest.raises(psycopg.OperationalError) as gone:
        ExactlyOnce(loaded.database, "load", write=hang_up, attempts=1)(ListFrame(rows_of(0, 0, 1)), 0)
    assert loaded.database.is_transient(gone.value)
    with pytest.raises(psycopg.errors.UndefinedTable) as wrong:
        ExactlyOnce(loaded.database, "load", table="no_such_table")(ListFrame(rows_of(0, 0, 1)), 0)
    assert not loaded.database.is_transient(wrong.value)
