"""The cases of the published jars, read from tests/oracles. See the README there."""

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rallypoint.assignors.contract import Assignment, GroupSpec, MemberSubscription

ORACLES = Path(__file__).parents[1] / "oracles"


def cases_of(file: str) -> Iterator[dict[str, Any]]:
    with gzip.open(ORACLES / file, "rt", encoding="ascii") as lines:
        for line in lines:
            yield json.loads(line)


def worked_examples(section: str) -> list[dict[str, Any]]:
    examples = json.loads((ORACLES / "worked-examples.json").read_text(encoding="utf-8"))[section]
    assert isinstance(examples, list)
    return examples


def spec_of(case: dict[str, Any]) -> GroupSpec:
    """A line of a group of consumers as an assignor sees it, with owned partitions and racks."""
    given = case["input"]
    return GroupSpec(
        given["partitions_per_topic"],
        {
            member_id: MemberSubscription(
                topics=tuple(said["topics"]),
                group_instance_id=said["group_instance_id"],
                owned=tuple((topic, partition) for topic, partition in said["owned"]),
                generation_id=-1 if said["generation"] is None else said["generation"],
                rack_id=said["rack"],
            )
            for member_id, said in given["subscriptions"].items()
        },
        given.get("replica_racks", {}),
    )


def assignment_of(case: dict[str, Any]) -> Assignment:
    """What the jar gave."""
    return {member: tuple((topic, n) for topic, n in share) for member, share in case["output"].items()}
