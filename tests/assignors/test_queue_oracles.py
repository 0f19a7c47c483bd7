"""MetaQ's and RocketMQ's rules against what their own jars computed. See tests/oracles/README.md."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest

from rallypoint.assignors.other_systems import metaq, rocketmq
from rallypoint.assignors.other_systems.allocation import AllocationError
from tests.assignors.oracle_cases import cases_of, worked_examples

METAQ = {"metaq-default": metaq.allocate_default, "metaq-consistent-hash": metaq.allocate_by_hash}


def rocketmq_answer(case: dict[str, Any]) -> dict[str, Sequence[rocketmq.MessageQueue]]:
    queues = [rocketmq.MessageQueue(*queue) for queue in case["input"]["queues"]]
    consumers = case["input"]["consumers"]
    if case["algorithm"] == "rocketmq-consistent-hash":
        return dict(rocketmq.allocate_by_hash(queues, consumers, case["input"]["virtual_nodes"]))
    by_name = {
        "rocketmq-averagely": rocketmq.allocate_averagely,
        "rocketmq-averagely-by-circle": rocketmq.allocate_by_circle,
    }
    return dict(by_name[case["algorithm"]](queues, consumers))


def test_agrees_with_metaq() -> None:
    seen: Counter[str] = Counter()
    for case in cases_of("metaq.jsonl.gz"):
        given = METAQ[case["algorithm"]](case["input"]["partitions"], case["input"]["consumers"])
        assert {consumer: list(share) for consumer, share in given.items()} == case["output"], case["id"]
        seen[case["algorithm"]] += 1
    assert seen == {"metaq-default": 468, "metaq-consistent-hash": 468}


def test_agrees_with_rocketmq() -> None:
    seen: Counter[str] = Counter()
    for case in cases_of("rocketmq.jsonl.gz"):
        if all("error" in share for share in case["output"].values()):
            with pytest.raises(AllocationError, match=r"^queues: "):
                rocketmq_answer(case)
            seen["refused"] += 1
        else:
            given = {c: [list(queue) for queue in share] for c, share in rocketmq_answer(case).items()}
            assert given == case["output"], case["id"]
            seen[case["algorithm"]] += 1
    assert seen == {
        "rocketmq-averagely": 447,
        "rocketmq-averagely-by-circle": 447,
        "rocketmq-consistent-hash": 447,
        "refused": 15,
    }


def test_agrees_with_the_worked_examples() -> None:
    examples = worked_examples("metaq_default")
    assert len(examples) == 2
    for example in examples:
        given = metaq.allocate_default(example["partitions"], example["consumers"])
        assert {consumer: list(share) for consumer, share in given.items()} == example["output"], example["name"]
