"""Records to partitions: keys against what Kafka's producers computed, and the ways for records without one."""

import random
from collections import Counter

import pytest

from rallypoint.assignors.placement.partitioners import (
    Stay,
    by_chance,
    in_turn,
    murmur2,
    partition_for_key,
    partition_for_record,
    stick,
)
from rallypoint.protocol.group_hash import java_string_hash, shard_of_group
from tests.assignors.oracle_cases import cases_of


def never() -> int:
    raise AssertionError("a record that has a place needs no other way")


def test_agrees_with_kafka_producers() -> None:
    seen = 0
    tails = set()
    for case in cases_of("producer-partitioner.jsonl.gz"):
        key, partitions = bytes.fromhex(case["input"]["key_hex"]), case["input"]["partitions"]
        assert murmur2(key) == case["output"]["murmur2"], case["id"]
        assert partition_for_key(key, partitions) == case["output"]["partition"], case["id"]
        assert partition_for_record(None, key, partitions, never) == case["output"]["partition"], case["id"]
        seen += 1
        tails.add(len(key) % 4)
    assert seen == 1250
    assert tails == {0, 1, 2, 3}


def test_agrees_with_kafka_on_the_place_of_a_group() -> None:
    seen = 0
    for case in cases_of("coordinator-partition.jsonl.gz"):
        group_id, partitions = case["input"]["group_id"], case["input"]["partitions"]
        answer = {"hash": java_string_hash(group_id), "partition": shard_of_group(group_id, partitions)}
        assert answer == case["output"], case["id"]
        seen += 1
    assert seen == 780


def test_a_named_partition_goes_before_the_key() -> None:
    assert partition_for_key(b"user-1", 12) != 3
    assert partition_for_record(3, b"user-1", 12, never) == 3
    assert partition_for_record(0, None, 12, never) == 0


def test_an_empty_key_is_a_key_and_none_is_not() -> None:
    assert partition_for_record(None, b"", 1000, never) == partition_for_key(b"", 1000)
    assert partition_for_record(None, None, 12, lambda: 7) == 7


@pytest.mark.parametrize("partition", [-1, 12])
def test_a_partition_that_does_not_exist_is_refused_whoever_names_it(partition: int) -> None:
    with pytest.raises(ValueError, match=f"partition {partition} does not exist: the topic has 0 to 11"):
        partition_for_record(partition, b"key", 12, never)
    with pytest.raises(ValueError, match="does not exist"):
        partition_for_record(None, None, 12, lambda: partition)


def test_round_robin_visits_every_partition_in_turn() -> None:
    assert [in_turn(turn, 3) for turn in range(7)] == [0, 1, 2, 0, 1, 2, 0]


def test_chance_reaches_every_partition_and_nothing_beyond() -> None:
    drawn = random.Random(1)
    counts = Counter(by_chance(drawn.random(), 5) for _ in range(5000))
    assert set(counts) == set(range(5))
    assert min(counts.values()) > 900
    just_below_one = 1 - 2**-53
    assert by_chance(0.0, 5) == 0
    assert all(by_chance(just_below_one, partitions) == partitions - 1 for partitions in (1, 3, 7, 2**31 - 1))


def test_a_stay_holds_until_its_time_and_then_moves_elsewhere() -> None:
    first = stick(None, now_ms=1000, stay_ms=500, partitions=4, chance=0.6)
    assert first == Stay(partition=2, until_ms=1500)
    assert stick(first, now_ms=1499, stay_ms=500, partitions=4, chance=0.1) is first
    for chance in (0.0, 0.3, 0.6, 0.99):
        after = stick(first, now_ms=1500, stay_ms=500, partitions=4, chance=chance)
        assert after.partition != first.partition
        assert after.until_ms == 2000
    reached = {stick(first, 1500, 500, 4, chance).partition for chance in (0.0, 0.4, 0.8)}
    assert reached == {0, 1, 3}


def test_the_only_partition_is_stayed_with_again() -> None:
    assert stick(Stay(0, 10), now_ms=10, stay_ms=5, partitions=1, chance=0.9) == Stay(0, 15)


def test_a_stay_in_a_partition_that_is_gone_is_over() -> None:
    assert stick(Stay(7, 10_000), now_ms=0, stay_ms=5, partitions=4, chance=0.0) == Stay(0, 5)
