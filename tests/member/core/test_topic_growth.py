"""What a member does about topics that have grown: the decision alone."""

from collections.abc import Mapping

import pytest

from rallypoint.member.assignment import Assignment
from rallypoint.member.core.topic_growth import rebalance_reason, topics_to_count, unregistered


def held(
    generation_id: int = 1, *, leader: bool = True, counts: Mapping[str, int] | None = None, unsaid: bool = False
) -> Assignment:
    counts = {"clicks": 2, "orders": 1} if counts is None else counts
    return Assignment(
        generation_id, "m", leader, "range", frozenset({("clicks", 0)}), partition_counts=None if unsaid else counts
    )


def test_the_leader_counts_every_topic_of_its_assignment_and_nobody_else_does() -> None:
    assert topics_to_count(held(), follows_registry=False) == frozenset({"clicks", "orders"})
    assert topics_to_count(held(leader=False), follows_registry=False) is None
    assert topics_to_count(None, follows_registry=False) is None


def test_an_assignment_that_does_not_say_its_counts_is_the_services_business_where_it_knows_the_topics() -> None:
    assert topics_to_count(held(unsaid=True), follows_registry=True) is None
    assert topics_to_count(held(unsaid=True), follows_registry=False) == frozenset()
    assert topics_to_count(held(), follows_registry=True) == frozenset({"clicks", "orders"})


@pytest.mark.parametrize(
    ("counts", "reason"),
    [
        ({"clicks": 2, "orders": 1, "other": 9}, None),
        ({"clicks": 3, "orders": 1}, "the number of partitions changed: clicks from 2 to 3"),
        ({"clicks": 1}, "the number of partitions changed: clicks from 2 to 1, orders from 1 to 0"),
    ],
)
def test_other_counts_than_were_assigned_are_a_reason_for_a_rebalance(
    counts: dict[str, int], reason: str | None
) -> None:
    assert rebalance_reason(held(), held(), counts) == reason


def test_a_leader_that_finds_an_assignment_of_unknown_counts_asks_for_a_rebalance() -> None:
    reason = rebalance_reason(held(unsaid=True), held(unsaid=True), {})
    assert reason is not None
    assert "has not said" in reason


@pytest.mark.parametrize("now", [None, held(2), held(leader=False)], ids=["lost", "newer", "led by another"])
def test_counts_of_an_assignment_that_is_past_are_no_reason(now: Assignment | None) -> None:
    assert rebalance_reason(held(), now, {"clicks": 9}) is None


def test_what_has_more_partitions_than_are_registered_is_registered_and_nothing_else() -> None:
    registered = {"clicks": 2, "orders": 4, "same": 2}
    assert unregistered(registered, {"clicks": 3, "orders": 3, "same": 2, "new": 1}) == {"clicks": 3, "new": 1}
