"""The load without Spark: orders, the count with planted faults, the table in a real PostgreSQL, the command line."""

import secrets
from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg
import pytest

from examples.exactly_once import private_server, sinks
from examples.exactly_once.demo import main
from examples.exactly_once.orders import TOPIC, lay_out, make_orders, write_orders
from examples.exactly_once.proof import Tally, tally
from examples.exactly_once.sinks import Row
from rallypoint.spark_bridge.sources.files import FilesWriter
from tests.spark_bridge.exactly_once.batches import ListFrame

SENT = lay_out(make_orders(6), 4)
ROWS = [Row(*place, order, "AB"[place[1]]) for place, order in SENT.items()]


def test_orders_are_the_same_ones_each_time_and_go_round() -> None:
    assert make_orders(6) == make_orders(9)[:6]
    assert [(place, order.order_id) for place, order in SENT.items()] == [
        ((0, 0), 0), ((1, 0), 1), ((2, 0), 2), ((3, 0), 3), ((0, 1), 4), ((1, 1), 5),
    ]  # fmt: skip


def test_orders_are_written_where_they_are_said_to_stand(tmp_path: Path) -> None:
    writer = FilesWriter(tmp_path, TOPIC, 4)
    places = list(SENT)
    write_orders(writer, SENT, places[:3])
    write_orders(writer, SENT, places[3:])
    for partition in range(4):
        (file,) = (tmp_path / TOPIC / str(partition)).glob("*.jsonl")
        lines = file.read_text().splitlines()
        orders = [order for place, order in SENT.items() if place[0] == partition]
        assert [str(order.customer) in line for order, line in zip(orders, lines, strict=True)] == [True] * len(orders)


def test_each_order_once_is_no_problem() -> None:
    count = tally(ROWS, SENT)
    assert count.problems() == []
    assert (count.records, count.rows, count.distinct, count.rows_by_driver) == (6, 6, 6, {"A": 4, "B": 2})


@pytest.mark.parametrize(
    ("rows", "fault"),
    [
        (ROWS[1:], {"lost": 1, "rows": 5, "distinct": 5}),
        ([*ROWS, ROWS[0]], {"twice": 1, "rows": 7}),
        ([*ROWS, ROWS[0], ROWS[0]], {"twice": 2, "rows": 8}),
        ([*ROWS[1:], ROWS[1]], {"lost": 1, "twice": 1, "distinct": 5}),
        ([*ROWS, ROWS[0]._replace(offset=2)], {"alien": 1, "rows": 7}),
        ([ROWS[0]._replace(order=ROWS[0].order._replace(customer="nobody")), *ROWS[1:]], {"differing": 1}),
    ],
)
def test_each_fault_is_found(rows: list[Row], fault: dict[str, int]) -> None:
    count = tally(rows, SENT)
    right = tally(ROWS, SENT)
    assert count == replace(right, **fault, cents=count.cents, rows_by_driver=count.rows_by_driver)
    assert count.problems()


def test_a_wrong_sum_alone_is_a_problem() -> None:
    right = tally(ROWS, SENT)
    assert replace(right, cents=right.cents - 1).problems() == [
        f"The table adds up to {right.cents - 1:,} cents, the topic to {right.cents:,}."
    ]


@pytest.fixture
def database(postgresql: str) -> str:
    """A database of its own."""
    name = f"orders_{secrets.token_hex(6)}"
    with psycopg.connect(postgresql, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
    return f"{postgresql} dbname={name}"


def batch(rows: list[Row]) -> ListFrame:
    """Rows as the driver's query makes them."""
    columns = ("topic", "partition", "offset", "order_id", "customer", "cents", "driver")
    kinds = ("string", "int", "bigint", "bigint", "string", "bigint", "string")
    return ListFrame([(TOPIC, row.partition, row.offset, *row.order, row.driver) for row in rows], columns, kinds)


def count_after_a_replay(sink: Any, conninfo: str) -> Tally:
    """What stands in the table once a batch came again."""
    for number, rows in enumerate((ROWS[:4], ROWS[:4], ROWS[4:])):
        sink(batch(rows), number)
    return tally(sinks.read_rows(conninfo), SENT)


@pytest.mark.postgresql
def test_a_batch_that_comes_again_is_written_once_or_by_the_plain_sink_twice(database: str) -> None:
    conninfo = sinks.make_table(database)
    assert count_after_a_replay(sinks.exactly_once(conninfo), conninfo).problems() == []
    conninfo = sinks.make_table(database)
    count = count_after_a_replay(sinks.Plain(conninfo), conninfo)
    assert (count.twice, count.lost) == (4, 0)
    assert count.problems()[0] == "4 rows are of orders that the table has already."


@pytest.mark.postgresql
def test_a_schema_that_it_did_not_make_is_left_alone(database: str) -> None:
    with psycopg.connect(database) as connection:
        connection.execute(f"CREATE SCHEMA {sinks.SCHEMA}")
        connection.execute(f"CREATE TABLE {sinks.SCHEMA}.precious ()")
    with pytest.raises(sinks.Unusable, match="did not make"):
        sinks.make_table(database)
    with psycopg.connect(database) as connection:
        connection.execute(f"SELECT * FROM {sinks.SCHEMA}.precious")


def test_a_database_that_is_not_there_is_said(
    tmp_path: Path, java_home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    where = f"host={tmp_path} dbname=none"
    assert main(["--output", str(tmp_path / "out"), "--postgresql", where]) == 2
    assert capsys.readouterr().err.startswith("PostgreSQL cannot be used: connection")


def test_without_postgresql_it_says_what_to_type(
    tmp_path: Path, java_home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(private_server, "find_programs", lambda: None)
    assert main(["--output", str(tmp_path / "out")]) == 2
    said = capsys.readouterr().err
    assert "--postgresql postgresql://" in said
    assert private_server.REMEDY in said
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("value", ["999", "1000001", "-1", "many"])
def test_a_number_of_records_out_of_range_is_refused(value: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["--records", value])
    assert "not a number from 1000 to 1000000" in capsys.readouterr().err
