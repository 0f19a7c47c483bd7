"""Keys to partitions on Arrow arrays: what Kafka's producers computed, and what the rule for one key says."""

import random

import pytest

pytest.importorskip("pyarrow", reason="missing pyarrow: pip install 'rallypoint[spark]'")

import pyarrow as pa

from rallypoint.assignors.placement.partitioners import partition_for_key
from rallypoint.spark_bridge.key_partitions import WORDS_MAX, partitions_of
from tests.assignors.oracle_cases import cases_of


def test_agrees_with_kafka_producers() -> None:
    by_partitions: dict[int, list[tuple[bytes, int]]] = {}
    for case in cases_of("producer-partitioner.jsonl.gz"):
        pair = bytes.fromhex(case["input"]["key_hex"]), case["output"]["partition"]
        by_partitions.setdefault(case["input"]["partitions"], []).append(pair)
    assert sum(map(len, by_partitions.values())) == 1250
    for partitions, pairs in by_partitions.items():
        keys = pa.array([key for key, _ in pairs], pa.binary())
        assert partitions_of(keys, partitions).to_pylist() == [partition for _, partition in pairs]


def test_agrees_with_the_rule_for_one_key_at_every_length() -> None:
    drawn = random.Random(7)
    keys = [
        drawn.randbytes(length) for length in [*range(70), 4 * WORDS_MAX, 4 * WORDS_MAX + 3, 4 * WORDS_MAX + 4, 9999]
    ]
    drawn.shuffle(keys)
    for partitions in (1, 2, 7, 1000, 2**31 - 1):
        expected = [partition_for_key(key, partitions) for key in keys]
        assert partitions_of(pa.array(keys, pa.binary()), partitions).to_pylist() == expected


def test_nulls_have_no_partition_and_slices_are_read_from_where_they_begin() -> None:
    keys = pa.array([b"a", None, b"", b"longer than four", None, b"z"], pa.binary())
    whole = partitions_of(keys, 12).to_pylist()
    assert whole == [None if key is None else partition_for_key(key, 12) for key in keys.to_pylist()]
    assert partitions_of(keys, 12).type == pa.int32()
    for start in range(len(keys) + 1):
        assert partitions_of(keys.slice(start), 12).to_pylist() == whole[start:]
        assert partitions_of(keys.slice(start, 1), 12).to_pylist() == whole[start : start + 1]


@pytest.mark.parametrize("keys", [[], [None], [b""], [b"", None]])
def test_arrays_without_a_byte(keys: list[bytes | None]) -> None:
    expected = [None if key is None else partition_for_key(key, 5) for key in keys]
    assert partitions_of(pa.array(keys, pa.binary()), 5).to_pylist() == expected
