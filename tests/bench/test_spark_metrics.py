"""Spark's benchmarks: what is counted as lost or twice, how long a partition stands still, and how it looks."""

import math
from collections.abc import Mapping, Sequence

import pytest

from bench.main import main, make_parser, names_of, plan_of
from bench.spark import scenarios
from bench.spark.metrics import (
    Account,
    Batch,
    Commit,
    QueryResult,
    account,
    is_whole,
    moves_result,
    query_result,
    slowest_takeover,
    slowest_taking,
    speed_result,
)
from bench.spark.moves import batch_of
from bench.spark.tables import QUERY_HEADER, SPEED_HEADER, moves_rows, query_rows, speed_rows


def batch(
    driver: str, number: int, records: Mapping[int, Sequence[int]], begin_s: float = 0.0, end_s: float = 0.0
) -> Batch:
    return Batch(driver, number, begin_s, end_s, records)


def test_every_record_once_is_whole() -> None:
    written = [batch("one", 1, {0: [0, 1], 1: [0]}), batch("two", 1, {1: [1]})]
    assert account(written, {0: 2, 1: 2}, []) == Account(records=4, lost=0, twice=0, unexplained=0, strange=0)


def test_a_record_that_nobody_wrote_is_lost() -> None:
    found = account([batch("one", 1, {0: [0, 2]})], {0: 3, 1: 1}, ["one"])
    assert (found.lost, found.twice) == (2, 0)


def test_only_the_last_batch_of_a_killed_driver_may_be_written_again() -> None:
    written = [batch("one", 1, {0: [0, 1]}), batch("one", 2, {0: [2, 3]}), batch("two", 1, {0: [2, 3, 4]})]
    assert account(written, {0: 5}, ["one"]) == Account(records=5, lost=0, twice=2, unexplained=0, strange=0)
    assert account(written, {0: 5}, []).unexplained == 2
    again = [*written, batch("two", 2, {0: [1]})]
    assert account(again, {0: 5}, ["one"]) == Account(records=5, lost=0, twice=3, unexplained=1, strange=0)


def test_a_record_that_two_living_drivers_wrote_is_not_explained_by_a_third_that_was_killed() -> None:
    written = [batch("one", 1, {0: [0]}), batch("two", 1, {0: [0]}), batch("three", 1, {0: [0]})]
    assert account(written, {0: 1}, ["one"]).unexplained == 1
    assert account(written, {0: 1}, ["one", "two"]).unexplained == 0


def test_a_record_that_was_never_produced_is_strange() -> None:
    assert account([batch("one", 1, {0: [0, 1], 5: [0]})], {0: 1}, []).strange == 2


@pytest.mark.parametrize("account_found", [Account(9, 1, 0, 0, 0), Account(9, 0, 2, 2, 0), Account(9, 0, 0, 0, 1)])
def test_what_is_not_whole_is_not_right(account_found: Account) -> None:
    assert not is_whole(moves_result("spark-kills", "4", [1.0], account_found, load_average=0.0))
    assert is_whole(moves_result("spark-kills", "4", [1.0], Account(9, 0, 2, 0, 0), load_average=0.0))


COMMITS = [
    Commit(0, 10, "a", 1.0),
    Commit(1, 10, "a", 1.0),
    Commit(0, 20, "a", 2.0),
    Commit(0, 20, "b", 2.5),
    Commit(1, 30, "a", 3.0),
    Commit(0, 40, "b", 4.0),
    Commit(0, 40, "a", 6.0),
]


def test_a_partition_stands_still_from_the_last_commit_of_one_to_the_first_batch_of_the_next() -> None:
    batches = [
        batch("elder", 1, {0: [10, 19], 1: [10]}, begin_s=1.5),
        batch("second", 1, {0: [20, 39]}, begin_s=2.75),
        batch("second", 2, {0: [39]}, begin_s=3.5),
        batch("elder", 2, {0: [40]}, begin_s=7.0),
    ]
    assert slowest_taking(COMMITS, batches, 2.0, 5.0) == pytest.approx(0.75)
    assert slowest_taking(COMMITS, batches, 5.0, 9.0) == pytest.approx(3.0)
    assert math.isnan(slowest_taking(COMMITS, batches, 0.0, 2.0))


def test_a_takeover_ends_when_all_partitions_of_the_dead_are_read() -> None:
    batches = [
        batch("second", 1, {2: [0], 3: [0]}, begin_s=1.0),
        batch("elder", 1, {1: [0], 2: [0]}, begin_s=1.5),
        batch("elder", 2, {2: [1]}, begin_s=4.0),
        batch("elder", 3, {2: [2], 3: [1]}, begin_s=5.0),
        batch("third", 1, {3: [2]}, begin_s=9.0),
    ]
    assert slowest_takeover(batches, "second", 2.0) == pytest.approx(3.0)


def test_what_a_driver_wrote_down_is_read() -> None:
    text = '{"driver": "one", "number": 3, "begin_s": 1.5, "end_s": 2.0, "records": {"11": [4, 5]}}'
    assert batch_of(text) == Batch("one", 3, 1.5, 2.0, {11: [4, 5]})


def test_speed_is_that_of_the_median_batch_and_is_shown_beside_its_base() -> None:
    ours = speed_result(
        "spark-exactly-once", "exactly-once", "4.3.0", [100, 200, 900], beside_ms=[10, 70, 20], records=3_000,
        cpu_seconds=0.9, others_cores=0.5,
    )  # fmt: skip
    base = speed_result(
        "spark-exactly-once", "plain-driver", "4.0.0", [400, 400, 400], beside_ms=[5], records=3_000, cpu_seconds=0.6,
        others_cores=0.5,
    )  # fmt: skip
    assert (ours.median_ms, ours.records_of_batch, ours.records_per_second) == (200, 1_000, 5_000)
    assert ours.cpu_seconds_per_million == pytest.approx(300)
    assert ours.beside_ms == 20
    place = {name: number for number, name in enumerate(SPEED_HEADER)}
    dearest, cheapest = speed_rows([base, ours])
    assert (dearest[place["way"]], cheapest[place["way"]]) == ("exactly-once", "plain-driver")
    assert [dearest[place[name]] for name in ("CPU x", "time x", "start and end ms")] == ["1.50", "0.50", "20"]
    assert [cheapest[place[name]] for name in ("CPU x", "time x", "start and end ms")] == ["1.00", "1.00", "5"]
    (alone,) = speed_rows([ours])
    assert (alone[place["CPU x"]], alone[place["time x"]]) == ("-", "-")


def query(way: str, query_ms: list[float], cpu_seconds: list[float], batches_ms: list[float]) -> QueryResult:
    return query_result(
        "spark-small-batches", way, "4.2.0", records=4_000, query_ms=query_ms, cpu_seconds=cpu_seconds,
        batches_ms=batches_ms, beside_ms=[90, 10, 20], others_cores=0.25,
    )  # fmt: skip


def test_queries_are_medians_and_are_shown_beside_their_base_with_the_aims_of_our_source() -> None:
    ours = query("rallypoint", [3_000, 9_000, 2_000], [3.0, 2.0, 8.0], [100, 300, 900, 200])
    floor = query("bench-ready", [2_000], [1.5], [100])
    base = query("spark", [1_500, 1_000, 900], [2.0, 1.0, 2.5], [125, 125, 125])
    assert (ours.rounds, ours.batches, ours.beside_ms) == (3, 4, 20)
    assert (ours.query_ms, ours.query_min_ms, ours.query_max_ms) == (3_000, 2_000, 9_000)
    assert (ours.cpu_seconds, ours.cpu_seconds_min, ours.cpu_seconds_max) == (3.0, 2.0, 8.0)
    place = {name: QUERY_HEADER.index(name) for name in ("way", "CPU x", "query x", "batch x")}
    rows = query_rows([ours, floor, base])
    assert [[row[index] for index in place.values()] for row in rows] == [
        ["rallypoint", "1.50", "3.00", "1.60"],
        ["bench-ready", "0.75", "2.00", "0.80"],
        ["spark", "1.00", "1.00", "1.00"],
    ]
    aims = [index for index, name in enumerate(QUERY_HEADER) if name == "aim"]
    assert [[row[index] for index in aims] for row in rows] == [["1.2", "-", "1.1"], ["-"] * 3, ["-"] * 3]
    (alone,) = query_rows([floor])
    assert [alone[index] for index in place.values()] == ["bench-ready", "-", "-", "-"]


def test_moves_are_shown_with_what_became_of_the_records() -> None:
    result = moves_result("spark-kills", "4.3.0", [0.5, 2.0, 0.25], Account(9_000, 1, 2, 3, 0), load_average=1.25)
    (row,) = moves_rows([result])
    assert row == ("spark-kills", "4.3.0", "3", "500", "250", "2,000", "9,000", "1", "2", "3", "1.2")


def test_spark_is_measured_where_it_is_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    assert not [name for name in names_of(make_parser().parse_args([])) if name.startswith("spark-")]
    assert names_of(make_parser().parse_args(["--spark"])) == tuple(scenarios.BENCHMARKS)
    assert plan_of(make_parser().parse_args(["--rounds", "2"])).moves == 2
    with pytest.raises(SystemExit):
        main(["--spark", "--only", "spark-moves"])
    assert "--spark: it says itself which benchmarks run; leave --only out" in capsys.readouterr().err
