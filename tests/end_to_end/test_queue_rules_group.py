"""The rules of MetaQ and RocketMQ as a group's assignor: two static members and the service as a process."""

from contextlib import AsyncExitStack
from pathlib import Path

from rallypoint import GroupMember, MemberOptions
from rallypoint.assignors import registry
from rallypoint.assignors.contract import GroupSpec, MemberSubscription
from tests.end_to_end.service_process import ServiceProcess, running_service

RULES = [name for name in registry.names(installed=()) if name.startswith(("metaq-", "rocketmq-"))]
PARTITIONS = 12


def member(service: ServiceProcess, rule: str, instance_id: str) -> GroupMember:
    return GroupMember(
        MemberOptions(
            coordinator=service.url,
            group_id=rule,
            topics=("clicks",),
            group_instance_id=instance_id,
            assignors=(rule,),
        )
    )


async def shares_of_a_group(service: ServiceProcess, rule: str) -> dict[str, tuple[tuple[str, int], ...]]:
    """What each of two members holds once both are in one generation, by instance id."""
    async with AsyncExitStack() as stack:
        one = await stack.enter_async_context(member(service, rule, "node-1"))
        first = await one.wait_assigned(30_000)
        two = await stack.enter_async_context(member(service, rule, "node-2"))
        second = await two.wait_assigned(30_000)
        shared = await one.wait_assigned(30_000, newer_than=first.generation_id)
        assert shared.generation_id == second.generation_id
        return {"node-1": tuple(sorted(shared.partitions)), "node-2": tuple(sorted(second.partitions))}


async def test_two_members_share_a_topic_by_every_rule(tmp_path: Path) -> None:
    both = {name: MemberSubscription(("clicks",), name) for name in ("node-1", "node-2")}
    with running_service(tmp_path, "--group-initial-rebalance-delay-ms", "0") as service:
        assert service.send("PUT", "/v1/topics/clicks", {"partitions": PARTITIONS})[0] == 200
        for rule in RULES:
            expected = registry.find(rule).assign(GroupSpec({"clicks": PARTITIONS}, both))
            assert await shares_of_a_group(service, rule) == expected, rule
        assert service.stop() == 0
    assert len(RULES) == 5
