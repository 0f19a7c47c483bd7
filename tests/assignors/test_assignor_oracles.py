"""The assignors against what Kafka's own jars gave for the same groups. See tests/oracles/README.md."""

from typing import Any

import pytest

from rallypoint.assignors.contract import Assignor, GroupSpec, MemberSubscription
from rallypoint.assignors.range import RangeAssignor
from rallypoint.assignors.roundrobin import RoundRobinAssignor
from tests.assignors.oracle_cases import cases_of, worked_examples


def spec_of(case: dict[str, Any]) -> GroupSpec:
    return GroupSpec(
        case["input"]["partitions_per_topic"],
        {
            member_id: MemberSubscription(tuple(said["topics"]), said["group_instance_id"], rack_id=said["rack"])
            for member_id, said in case["input"]["subscriptions"].items()
        },
        case["input"].get("replica_racks", {}),
    )


@pytest.mark.parametrize(
    ("assignor", "file", "compared", "static", "racks"),
    [
        (RangeAssignor(), "range-structured.jsonl.gz", 137, 10, 21),
        (RangeAssignor(), "range-random.jsonl.gz", 2600, 267, 300),
        (RoundRobinAssignor(), "roundrobin-structured.jsonl.gz", 114, 10, 0),
        (RoundRobinAssignor(), "roundrobin-random.jsonl.gz", 2300, 277, 0),
    ],
    ids=["range-structured", "range-random", "roundrobin-structured", "roundrobin-random"],
)
def test_agrees_with_kafka(assignor: Assignor, file: str, compared: int, static: int, racks: int) -> None:
    """Every line of the file but those of 2.0.1 where versions differ, and those that say that the jar threw."""
    seen = seen_static = seen_racks = 0
    for case in cases_of(file):
        assert case["algorithm"] == assignor.name
        if case["id"].endswith("@2.0.1") or "error" in case["output"]:
            continue
        spec = spec_of(case)
        expected = {member: tuple((topic, n) for topic, n in share) for member, share in case["output"].items()}
        assert assignor.assign(spec) == expected, case["id"]
        seen += 1
        seen_static += any(said.group_instance_id is not None for said in spec.subscriptions.values())
        seen_racks += bool(spec.replica_racks)
    assert (seen, seen_static, seen_racks) == (compared, static, racks)


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
    section = worked_examples(assignor.name)
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
