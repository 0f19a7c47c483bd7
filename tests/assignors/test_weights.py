"""Reading what members report: whose word counts, what stands in for silence, and what garbage does (nothing)."""

import math
from typing import Any

import pytest

from rallypoint.assignors.contract import GroupSpec, MemberSubscription
from rallypoint.assignors.measure import owners_before
from rallypoint.assignors.weights import LEAST, UNIT, WEIGHT_MAX, counted_weights


def counted(partitions: dict[str, int], *members: MemberSubscription) -> dict[str, list[int]]:
    spec = GroupSpec(partitions, {f"m{place}": member for place, member in enumerate(members)})
    return counted_weights(spec, owners_before(spec))


def saying(weights: Any, *owned: int, generation_id: int = 1) -> MemberSubscription:
    owned_partitions = tuple(("t", partition) for partition in owned)
    return MemberSubscription(
        ("t", "u"), owned=owned_partitions, generation_id=generation_id, user_data={"weights": weights}
    )


def test_weights_count_in_units_of_their_mean() -> None:
    assert counted({"t": 3}, saying({"t": {"0": 1, "1": 2.5, "2": 5.5}})) == {
        "t": [UNIT // 3, round(UNIT * 5 / 6), round(UNIT * 11 / 6)]
    }


def test_the_unit_of_the_reports_does_not_matter() -> None:
    in_records, in_millions = ({"t": {"0": 3 * unit, "1": 9 * unit}} for unit in (1_000_000, 1))
    assert counted({"t": 2}, saying(in_records)) == counted({"t": 2}, saying(in_millions))


def test_the_owner_knows_best() -> None:
    owner, other = saying({"t": {"0": 1, "1": 1}}, 0), saying({"t": {"0": 100, "1": 3}})
    assert counted({"t": 2}, owner, other) == counted({"t": 2}, other, owner) == {"t": [UNIT // 2, 3 * UNIT // 2]}


def test_who_owned_it_in_an_older_generation_is_another() -> None:
    gone, owner = saying({"t": {"0": 9, "1": 1}}, 0, generation_id=1), saying({"t": {"0": 1}}, 0, generation_id=2)
    assert counted({"t": 2}, gone, owner) == {"t": [UNIT, UNIT]}


def test_of_two_that_do_not_own_it_the_heavier_word_counts() -> None:
    assert counted({"t": 2}, saying({"t": {"0": 3, "1": 1}}), saying({"t": {"0": 1}})) == {
        "t": [3 * UNIT // 2, UNIT // 2]
    }


def test_silence_about_a_partition_is_the_mean_of_its_topic_and_about_a_topic_that_of_all() -> None:
    assert counted({"t": 3, "u": 2}, saying({"t": {"0": 1, "2": 3}})) == {
        "t": [UNIT // 2, UNIT, 3 * UNIT // 2],
        "u": [UNIT, UNIT],
    }
    heavy_u = counted({"t": 2, "u": 2}, saying({"t": {"0": 1}, "u": {"0": 3}}))
    assert heavy_u == {"t": [UNIT // 2] * 2, "u": [3 * UNIT // 2] * 2}


def test_no_word_at_all_or_nothing_but_zeros_makes_all_equal() -> None:
    assert counted({"t": 2}, MemberSubscription(("t",))) == {"t": [UNIT, UNIT]}
    assert counted({"t": 2}, saying({"t": {"0": 0, "1": 0.0}})) == {"t": [UNIT, UNIT]}


def test_an_idle_partition_is_not_nothing() -> None:
    assert counted({"t": 2}, saying({"t": {"0": 0, "1": 10}})) == {"t": [LEAST, 2 * UNIT]}


def test_the_smallest_numbers_there_are_do_no_harm() -> None:
    tiny = math.ulp(0.0)
    assert counted({"t": 2, "u": 9}, saying({"t": {"0": tiny, "1": 0}})) == {"t": [UNIT] * 2, "u": [UNIT] * 9}


def test_topics_that_nobody_wants_or_that_do_not_exist_are_left_out() -> None:
    member = MemberSubscription(("t",), user_data={"weights": {"gone": {"0": 5}, "v": {"0": 7}, "t": {"1": 5, "0": 1}}})
    assert counted({"t": 1, "v": 1}, member) == {"t": [UNIT]}


@pytest.mark.parametrize(
    "weight", [-1, -0.5, math.nan, math.inf, -math.inf, WEIGHT_MAX + 1, 10**400, 1e300, True, None, "7", [7], {"7": 7}]
)
def test_what_is_no_weight_is_not_said(weight: object) -> None:
    assert counted({"t": 3}, saying({"t": {"0": weight, "1": 1, "2": 3}})) == counted(
        {"t": 3}, saying({"t": {"1": 1, "2": 3}})
    )


@pytest.mark.parametrize("name", ["-1", "+1", "01", "1.0", " 1", "1 ", "", "x", "²", "١", "3", "1" * 5000, 1, None])
def test_what_is_no_partition_is_not_said(name: object) -> None:
    assert counted({"t": 3}, saying({"t": {name: 9, "1": 1, "2": 3}})) == counted(
        {"t": 3}, saying({"t": {"1": 1, "2": 3}})
    )


@pytest.mark.parametrize(
    "user_data",
    [None, 7, "weights", ["weights"], {}, {"weights": None}, {"weights": [1]}, {"weights": {"t": None}},
     {"weights": {"t": [5, 6]}}, {"weight": {"t": {"0": 5}}}],
)  # fmt: skip
def test_another_form_says_nothing(user_data: Any) -> None:
    assert counted({"t": 2}, MemberSubscription(("t",), user_data=user_data)) == {"t": [UNIT, UNIT]}


def test_beside_garbage_the_rest_of_a_report_counts() -> None:
    report = {"t": {"0": "much", "1": 1}, "u": 5, "v": {"x": 1}}
    assert counted({"t": 2, "u": 1}, saying(report | {"u": {"0": 3}})) == {"t": [UNIT // 2] * 2, "u": [3 * UNIT // 2]}
