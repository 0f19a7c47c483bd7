"""Where the leader has the racks of replicas from, and what it makes of those that are none."""

from collections.abc import AsyncIterator
from importlib.metadata import EntryPoint
from typing import Any

import pytest

from rallypoint import AssignorFailed, GroupMember, MemberOptions
from rallypoint.assignors import registry
from rallypoint.assignors.contract import GroupSpec
from tests.fakes.fake_coordinator import FakeCoordinator
from tests.fakes.looking_assignor import Looking


@pytest.fixture
async def fake() -> AsyncIterator[FakeCoordinator]:
    async with FakeCoordinator() as coordinator:
        yield coordinator


def options(fake: FakeCoordinator, assignor: str = "range") -> MemberOptions:
    return MemberOptions(coordinator=fake.url, group_id="g", topics=("clicks",), assignors=(assignor,))


async def racks_seen(fake: FakeCoordinator, monkeypatch: pytest.MonkeyPatch, **given: Any) -> GroupSpec:
    """What the assignor of a leader is told."""
    offered = EntryPoint(name=Looking.name, value="tests.fakes.looking_assignor:Looking", group=registry.GROUP)
    monkeypatch.setattr(registry, "BUILT_IN", (*registry.BUILT_IN, offered))
    monkeypatch.setattr(Looking, "seen", [])
    async with GroupMember(options(fake, "looking"), **given) as member:
        await member.wait_assigned(30_000)
    (spec,) = Looking.seen
    return spec


X, Y = ("x",), ("y",)


async def test_racks_come_from_the_registry_with_its_counts(
    fake: FakeCoordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake.topics["views"] = 1
    fake.replica_racks = {"clicks": (X, Y, (), X), "views": (X,)}
    spec = await racks_seen(fake, monkeypatch)
    assert (spec.partitions_per_topic, spec.replica_racks) == ({"clicks": 4}, {"clicks": (X, Y, (), X)})


async def test_racks_may_be_a_mapping_or_a_function_and_those_of_the_registry_stay_with_its_counts(
    fake: FakeCoordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def ask(topics: frozenset[str]) -> dict[str, list[list[str]]]:
        return {topic: [["f"]] for topic in topics}

    fake.replica_racks = {"clicks": (X, X, X, X)}
    fixed = {"clicks": [["m"], ["n"]], "other": [["m"]]}
    for given, counted, racks in (
        ({"replica_racks": fixed}, 4, {"clicks": (("m",), ("n",))}),
        ({"replica_racks": ask}, 4, {"clicks": (("f",),)}),
        ({"partition_counts": {"clicks": 2}, "replica_racks": fixed}, 2, {"clicks": (("m",), ("n",))}),
        ({"partition_counts": {"clicks": 2}}, 2, {}),
    ):
        spec = await racks_seen(fake, monkeypatch, **given)
        assert (spec.partitions_per_topic, spec.replica_racks) == ({"clicks": counted}, racks)


async def test_racks_that_cannot_be_read_are_told_at_once_or_by_the_leader(fake: FakeCoordinator) -> None:
    with pytest.raises(ValueError, match="replica_racks: clicks"):
        GroupMember(options(fake), replica_racks={"clicks": ["x", "y"]})

    async def ask(topics: frozenset[str]) -> dict[str, str]:
        return dict.fromkeys(topics, "xy")

    member = GroupMember(options(fake), replica_racks=ask)
    await member.start()
    with pytest.raises(AssignorFailed, match="replica_racks: clicks"):
        await member.wait_assigned(30_000)
    await member.leave()
