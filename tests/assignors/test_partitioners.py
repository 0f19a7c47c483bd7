"""Keys to partitions, against what Kafka's producers computed. See tests/oracles/README.md."""

import gzip
import json
from pathlib import Path

from assignors.partitioners import murmur2, partition_for_key

PRODUCER_CASES = Path(__file__).parents[1] / "oracles" / "producer-partitioner.jsonl.gz"


def test_agrees_with_kafka_producers() -> None:
    seen = 0
    tails = set()
    with gzip.open(PRODUCER_CASES, "rt", encoding="ascii") as lines:
        for line in lines:
            case = json.loads(line)
            key, partitions = bytes.fromhex(case["input"]["key_hex"]), case["input"]["partitions"]
            assert murmur2(key) == case["output"]["murmur2"], case["id"]
            assert partition_for_key(key, partitions) == case["output"]["partition"], case["id"]
            seen += 1
            tails.add(len(key) % 4)
    assert seen == 1250
    assert tails == {0, 1, 2, 3}
