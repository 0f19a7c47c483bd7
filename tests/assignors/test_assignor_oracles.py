"""The assignors against what Kafka's own jars gave for the same groups. See tests/oracles/README.md."""

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from assignors.contract import Assignor, GroupSpec, MemberSubscription
from assignors.range import RangeAssignor
from assignors.roundrobin import RoundRobinAssignor

ORACLES = Path(__file__).parents[1] / "oracles"


def cases_of(file: str) -> Iterator[dict[str, Any]]:
    with gzip.open(ORACLES / file, "rt", encoding="ascii") as lines:
        for line in lines:
            yield json.loads(line)


def has_racks(case: dict[str, Any]) -> bool:
    subscriptions = case["input"]["subscriptions"].values()
    return "replica_racks" in case["input"] or any(subscription["rack"] for subscription in subscriptions)


def spec_of(case: dict[str, Any]) -> GroupSpec:
    return GroupSpec(
        case["input"]["partitions_per_topic"],
        {
            member_id: MemberSubscription(tuple(said["topics"]), said["group_instance_id"])
            for member_id, said in case["input"]["subscriptions"].items()
        },
    )


@pytest.mark.parametrize(
    ("assignor", "file", "compared", "static"),
    [
        (RangeAssignor(), "range-structured.jsonl.gz", 116, 10),
        (RangeAssignor(), "range-random.jsonl.gz", 2300, 267),
        (RoundRobinAssignor(), "roundrobin-structured.jsonl.gz", 114, 10),
        (RoundRobinAssignor(), "roundrobin-random.jsonl.gz", 2300, 277),
    ],
    ids=["range-structured", "range-random", "roundrobin-structured", "roundrobin-random"],
)
def test_agrees_with_kafka(assignor: Assignor, file: str, compared: int, static: int) -> None:
    seen = seen_static = 0
    for case in cases_of(file):
        assert case["algorithm"] == assignor.name
        if has_racks(case) or case["id"].endswith("@2.0.1") or "error" in case["output"]:
            continue
        spec = spec_of(case)
        expected = {member: tuple((topic, n) for topic, n in share) for member, share in case["output"].items()}
        assert assignor.assign(spec) == expected, case["id"]
        seen += 1
        seen_static += any(said.group_instance_id is not None for said in spec.subscriptions.values())
    assert (seen, seen_static) == (compared, static)


def test_where_versions_differ_only_a_topic_listed_twice_is_at_stake() -> None:
    older = [
        case
        for file in ("range-structured.jsonl.gz", "range-random.jsonl.gz")
        for case in cases_of(file)
        if case["id"].endswith("@2.0.1")
    ]
    assert [case["id"] for case in older] == ["range/s/topic-listed-twice@2.0.1"]


def test_where_kafka_refuses_an_empty_group_the_result_is_empty() -> None:
    refused = [case for case in cases_of("roundrobin-structured.jsonl.gz") if "error" in case["output"]]
    assert [case["id"] for case in refused] == ["roundrobin/s/no-members", "roundrobin/s/nothing"]
    for case in refused:
        assert RoundRobinAssignor().assign(spec_of(case)) == {}


@pytest.mark.parametrize(
    ("assignor", "examples"), [(RangeAssignor(), 6), (RoundRobinAssignor(), 4)], ids=["range", "roundrobin"]
)
def test_agrees_with_the_worked_examples(assignor: Assignor, examples: int) -> None:
    section = json.loads((ORACLES / "worked-examples.json").read_text(encoding="utf-8"))[assignor.name]
    assert len(section) == examples
    for example in section:
        spec = GroupSpec(
            example["partitions_per_topic"],
            {member: MemberSubscription(tuple(topics)) for member, topics in example["subscriptions"].items()},
        )
        given = {
            member: [f"{topic}-{partition}" for topic, partition in share]
            for member, share in assignor.assign(spec).items()
        }
        assert given == example["output"], example["name"]
