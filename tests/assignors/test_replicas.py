"""The placing of replicas: Kafka's own answers, the worked examples, what holds for any placement, what is refused."""

from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rallypoint.assignors.placement.replicas import (
    Broker,
    Placement,
    PlacementError,
    place,
    place_by_rack,
    place_simply,
)
from tests.assignors.oracle_cases import cases_of, worked_examples

REFUSED = {
    "replicas/s/factor-over-brokers": "replication_factor: 3 replicas need as many brokers, and there are 2",
    "replicas/s/no-brokers": "replication_factor: 1 replicas need as many brokers, and there are 0",
    "replicas/s/no-partitions": "partitions: there must be at least 1, not 0",
    "replicas/s/negative-partitions": "partitions: there must be at least 1, not -1",
    "replicas/s/factor-zero": "replication_factor: it must be at least 1, not 0",
    "replicas/s/racks-missing-for-one": "brokers: 1 has no rack; name one for each, or for none",
    "replicas/s/racks-factor-over-brokers": "replication_factor: 3 replicas need as many brokers, and there are 2",
}


def answer(case: dict[str, Any]) -> Placement[int]:
    asked = case["input"]
    sizes = (asked["partitions"], asked["replication_factor"], asked["fixed_start_index"], asked["start_partition_id"])
    if case["algorithm"] == "replicas":
        return place([broker["id"] for broker in asked["brokers"]], *sizes)
    return place_by_rack([Broker(broker["id"], broker["rack"]) for broker in asked["brokers"]], *sizes)


def test_agrees_with_kafka() -> None:
    seen: Counter[str] = Counter()
    for case in cases_of("replica-placement.jsonl.gz"):
        if "error" in case["output"]:
            with pytest.raises(PlacementError) as refused:
                answer(case)
            assert str(refused.value) == REFUSED[case["id"]]
            seen["refused"] += 1
        else:
            given = {str(partition): list(ids) for partition, ids in answer(case).items()}
            assert given == case["output"], case["id"]
            seen[case["algorithm"]] += 1
    assert seen == {"replicas": 375, "replicas-rack-aware": 441, "refused": len(REFUSED)}


def test_agrees_with_the_worked_examples() -> None:
    by_kafka, simple = worked_examples("replica_placement")
    placed = place(
        by_kafka["brokers"],
        by_kafka["partitions"],
        by_kafka["replication_factor"],
        by_kafka["fixed_start_index"],
        by_kafka["start_partition_id"],
        by_kafka["initial_shift"],
    )
    assert {str(partition): list(ids) for partition, ids in placed.items()} == by_kafka["output"]
    simply = place_simply(simple["brokers"], simple["partitions"], simple["replication_factor"])
    assert {str(partition): list(ids) for partition, ids in simply.items()} == simple["output"]


@given(brokers=st.integers(1, 12), data=st.data(), start=st.integers(0, 40), partition=st.integers(-3, 40))
def test_replicas_differ_and_leaders_are_even(brokers: int, data: st.DataObject, start: int, partition: int) -> None:
    factor = data.draw(st.integers(1, brokers))
    placed = place(range(brokers), 3 * brokers, factor, start, partition)
    assert list(placed) == list(range(max(0, partition), max(0, partition) + 3 * brokers))
    assert all(len(set(ids)) == factor == len(ids) for ids in placed.values())
    assert set(Counter(ids[0] for ids in placed.values()).values()) == {3}


@given(racks=st.lists(st.sampled_from("abcd"), min_size=1, max_size=10), data=st.data(), start=st.integers(0, 40))
def test_no_rack_has_two_replicas_while_another_has_none(racks: list[str], data: st.DataObject, start: int) -> None:
    factor = data.draw(st.integers(1, len(racks)))
    brokers = [Broker(f"node-{n}", rack) for n, rack in enumerate(racks)]
    rack_of = {broker.id: broker.rack for broker in brokers}
    for ids in place_by_rack(brokers, 2 * len(racks), factor, start).values():
        assert len(set(ids)) == factor == len(ids)
        assert len({rack_of[one] for one in ids}) == min(factor, len(set(racks)))


def test_the_racks_take_turns_in_the_order_of_their_names() -> None:
    brokers = [Broker(5, "b"), Broker(1, "b"), Broker(2, "a"), Broker(0, "b")]
    assert [ids[0] for ids in place_by_rack(brokers, 4, 1).values()] == [2, 0, 1, 5]


def test_what_cannot_be_placed_is_refused_with_a_sentence() -> None:
    with pytest.raises(PlacementError, match="listed twice"):
        place(["a", "a"], 1, 1)
    with pytest.raises(PlacementError, match="listed twice"):
        place_by_rack([Broker("a", "r"), Broker("a", "s")], 1, 1)
    for start, shift in ((-1, None), (0, -1)):
        with pytest.raises(PlacementError, match="at least 0"):
            place([1, 2], 1, 1, start, 0, shift)
    with pytest.raises(PlacementError, match="as many brokers"):
        place_simply([1], 1, 2)
