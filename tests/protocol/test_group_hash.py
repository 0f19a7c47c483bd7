"""Group ids to shards, against Java and against the vectors of the protocol."""

import gzip
import json
from pathlib import Path

import pytest

from rallypoint.protocol.group_hash import abs32, java_string_hash, shard_of_group

COORDINATOR_CASES = Path(__file__).parents[1] / "oracles" / "coordinator-partition.jsonl.gz"


@pytest.mark.parametrize(
    ("group_id", "hash_value", "shard"),
    [
        ("", 0, 0),
        ("a", 97, 47),
        ("group", 98629247, 47),
        ("my-group", -1906497762, 12),
        ("orders-billing", -2070039661, 11),
        ("grüppe", -1233264812, 12),
        ("😀", 1772899, 49),
        ("polygenelubricants", -(2**31), 0),
    ],
)
def test_c01_a_group_id_leads_to_its_shard(group_id: str, hash_value: int, shard: int) -> None:
    assert java_string_hash(group_id) == hash_value
    assert shard_of_group(group_id) == shard
    assert shard_of_group(group_id, 50) == shard


def test_agrees_with_java() -> None:
    seen = 0
    hashes = set()
    with gzip.open(COORDINATOR_CASES, "rt", encoding="ascii") as lines:
        for line in lines:
            case = json.loads(line)
            group_id, partitions = case["input"]["group_id"], case["input"]["partitions"]
            assert java_string_hash(group_id) == case["output"]["hash"], case["id"]
            assert shard_of_group(group_id, partitions) == case["output"]["partition"], case["id"]
            seen += 1
            hashes.add(case["output"]["hash"])
    assert seen == 780
    assert {-(2**31), 2**31 - 1, -1, 0} <= hashes


@pytest.mark.parametrize(("value", "absolute"), [(0, 0), (-1, 1), (2**31 - 1, 2**31 - 1), (1 - 2**31, 2**31 - 1)])
def test_abs32_is_the_absolute_value(value: int, absolute: int) -> None:
    assert abs32(value) == absolute


def test_abs32_of_the_smallest_number_is_zero() -> None:
    assert abs32(-(2**31)) == 0
