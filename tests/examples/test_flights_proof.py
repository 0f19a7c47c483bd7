"""Lost, read twice, and why: planted faults must be found, and what a killed batch explains must not count as one."""

import pandas as pd
import pytest

from examples.flights.proof import once, tally
from examples.handover.books import Batch

SIZES = {0: 3, 1: 2}
KILLED = Batch("B", 4)

Row = tuple[int, int, str, float | None, str, int]

ALL: list[Row] = [
    (0, 0, "UA", 1.0, "A", 0),
    (0, 1, "AA", None, "A", 1),
    (0, 2, "UA", 3.0, "A", 2),
    (1, 0, "B6", 4.0, "B", 3),
    (1, 1, "B6", 5.0, "A", 7),
]


def output(rows: list[Row]) -> pd.DataFrame:
    """As the drivers' files are read."""
    return pd.DataFrame(rows, columns=["partition", "offset", "carrier", "arr_delay", "driver", "batch_id"])


def test_each_record_once_is_all_right() -> None:
    count = tally(output(ALL), SIZES, KILLED)
    assert (count.records, count.rows, count.distinct, count.lost, count.twice) == (5, 5, 5, 0, 0)
    assert count.rows_by_driver == {"A": 4, "B": 1}
    assert count.problems() == []


@pytest.mark.parametrize("gone", range(len(ALL)))
def test_a_lost_record_is_found_and_its_partition_named(gone: int) -> None:
    count = tally(output(ALL[:gone] + ALL[gone + 1 :]), SIZES, KILLED)
    partition = ALL[gone][0]
    assert (count.lost, count.lost_by_partition) == (1, {partition: 1})
    assert count.problems() == [f"1 records are lost: 1 of partition {partition}."]


def test_a_whole_lost_partition_and_an_empty_output_are_found() -> None:
    assert tally(output([row for row in ALL if row[0] == 0]), SIZES, KILLED).lost_by_partition == {1: 2}
    assert tally(output([]), SIZES, KILLED).lost == 5


def test_the_killed_batch_may_be_read_again() -> None:
    count = tally(output([*ALL, (1, 1, "B6", 5.0, "B", 4), (0, 1, "AA", None, "B", 4)]), SIZES, KILLED)
    assert (count.twice, count.unexplained, count.lost) == (2, 0, 0)
    assert count.problems() == []


@pytest.mark.parametrize(
    "again",
    [
        pytest.param([(1, 1, "B6", 5.0, "B", 3)], id="another batch of the dead driver"),
        pytest.param([(1, 1, "B6", 5.0, "A", 4)], id="the same number of the other driver"),
        pytest.param([(1, 1, "B6", 5.0, "B", 4)] * 2, id="twice within the killed batch"),
        pytest.param([(1, 1, "B6", 5.0, "B", 4), (1, 1, "B6", 5.0, "A", 8)], id="also by two living batches"),
    ],
)
def test_any_other_second_reading_is_a_fault(again: list[Row]) -> None:
    count = tally(output(ALL + again), SIZES, KILLED)
    assert count.unexplained == 1
    assert count.problems() == ["1 records were read twice though their batch was not the killed one."]


def test_without_a_killed_batch_no_second_reading_is_explained() -> None:
    assert tally(output([*ALL, ALL[0]]), SIZES, None).unexplained == 1


@pytest.mark.parametrize(("carrier", "delay"), [("AA", 5.0), ("B6", 6.0), ("B6", None)])
def test_two_readings_must_agree(carrier: str, delay: float | None) -> None:
    count = tally(output([*ALL, (1, 1, carrier, delay, "B", 4)]), SIZES, KILLED)
    assert (count.differing, count.unexplained) == (1, 0)
    assert count.problems() == ["1 records were read twice with different contents."]


@pytest.mark.parametrize("place", [(0, 3), (1, -1), (2, 0)])
def test_a_row_that_no_record_answers_to_is_found(place: tuple[int, int]) -> None:
    count = tally(output([*ALL, (*place, "UA", 1.0, "A", 9)]), SIZES, KILLED)
    assert (count.alien, count.twice, count.lost) == (1, 0, 0)
    assert count.problems() == ["1 rows of the output belong to no record of the input."]
    assert count.rows == count.distinct + count.twice + count.alien


def test_counting_once_keeps_one_row_for_each_place() -> None:
    rows = once(output([*ALL, (1, 1, "B6", 5.0, "B", 4)]))
    assert sorted(zip(rows["partition"], rows["offset"], strict=True)) == sorted((p, o) for p, o, *_ in ALL)
