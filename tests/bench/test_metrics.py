"""The arithmetic of the benchmarks."""

import math

import pytest

from bench.metrics import (
    Cost,
    Repetition,
    Tally,
    is_right,
    load_result,
    per_1000,
    percentile,
    ratio,
    rebalance_result,
    total_cost,
)

MIB = 1024 * 1024


def cost(*, seconds: float = 2.0, cpu_seconds: float = 0.5) -> Cost:
    return Cost(seconds, cpu_seconds, rss_before_bytes=50 * MIB, rss_bytes=60 * MIB, others_cores=0.25)


@pytest.mark.parametrize(
    ("percent", "expected"), [(1, 1.0), (50, 50.0), (50.1, 51.0), (99, 99.0), (99.1, 100.0), (100, 100.0)]
)
def test_percentile_is_the_nearest_rank(percent: float, expected: float) -> None:
    assert percentile([float(value) for value in range(100, 0, -1)], percent) == expected


def test_percentile_of_one_value_is_that_value() -> None:
    assert percentile([7.0], 1) == percentile([7.0], 99) == 7.0


@pytest.mark.parametrize(("values", "percent"), [([], 50), ([1.0], 0), ([1.0], 101)])
def test_percentile_refuses_what_has_none(values: list[float], percent: float) -> None:
    with pytest.raises(ValueError, match="percentile"):
        percentile(values, percent)


def test_per_1000_and_ratio() -> None:
    assert per_1000(0.5, 4000) == 0.125
    assert math.isnan(per_1000(0.5, 0))
    assert ratio(3.0, 1.5) == 2.0
    assert math.isnan(ratio(3.0, 0.0))


def test_a_load_counts_wrong_answers_as_requests_but_not_as_latencies() -> None:
    tally = Tally()
    for milliseconds in (1, 2, 3):
        tally.right(milliseconds / 1000)
    for number in range(7):
        tally.wrong(f"fault {number}")
    result = load_result("heartbeat", tally, cost(), connections=4, members=3)
    assert (result.requests, result.errors) == (10, 7)
    assert result.requests_per_second == 5.0
    assert result.cpu_seconds_per_1000 == 50.0
    assert (result.p50_ms, result.p99_ms, result.max_ms) == (2.0, 3.0, 3.0)
    assert result.first_errors == ("fault 0", "fault 1", "fault 2", "fault 3", "fault 4")
    assert not is_right(result)


def test_a_load_is_right_when_every_answer_was_and_there_was_one() -> None:
    tally = Tally()
    assert not is_right(load_result("empty", tally, cost(), connections=1, members=1))
    tally.right(0.001)
    assert is_right(load_result("one", tally, cost(), connections=1, members=1))


def test_a_rebalance_takes_the_median_round_and_a_rounds_share_of_the_cost() -> None:
    rounds = [Repetition(0.3, 1, 30), Repetition(0.1, 2, 20), Repetition(0.2, 1, 10)]
    result = rebalance_result("one-joins", rounds, cost(cpu_seconds=0.6), members=10)
    assert result.median_ms == pytest.approx(200)
    assert result.min_ms == pytest.approx(100)
    assert result.max_ms == pytest.approx(300)
    assert (result.rounds, result.generations_max, result.requests) == (3, 2, 20)
    assert result.cpu_seconds == pytest.approx(0.2)
    assert is_right(result)


def test_a_rebalance_without_a_bystander_has_no_stall() -> None:
    assert math.isnan(rebalance_result("all-rejoin", [Repetition(0.1, 1, 2)], cost(), members=1).stall_ms)


def test_costs_together_weigh_others_by_their_time() -> None:
    first = Cost(1.0, 0.5, 10, 20, others_cores=1.0, load_cpu_seconds=0.25)
    second = Cost(3.0, 0.25, 30, 40, others_cores=0.0, load_cpu_seconds=0.5)
    assert total_cost([first, second]) == Cost(4.0, 0.75, 10, 40, 0.25, 0.75)
