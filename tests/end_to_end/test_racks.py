"""Three members in three racks, the service as a process, and a topic whose replicas' racks it knows."""

from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from rallypoint import GroupMember, MemberOptions
from tests.end_to_end.service_process import ServiceProcess, running_service

QUICK = ("--group-initial-rebalance-delay-ms", "300")
WAIT_MS = 20_000
ZONES = ("a", "b", "c")
ONE_RACK = [["c"], ["a"], ["b"], ["b"], ["c"], ["a"]]
"""No sharing out by numbers alone fits. `range` goes through the partitions once, so choices could lead it astray."""
SOME_TWO_RACKS = [["c", "a"], ["a", "b"], ["b", "c"], ["b"], ["c"], ["a"]]


def member_in(service: ServiceProcess, zone: str, assignor: str) -> GroupMember:
    return GroupMember(
        MemberOptions(
            coordinator=service.url, group_id=assignor, topics=("clicks",), assignors=(assignor,), rack_id=zone
        )
    )


async def shares(service: ServiceProcess, assignor: str) -> dict[str, set[int]]:
    """Zone to partitions, once all three share a generation."""
    async with AsyncExitStack() as stack:
        members = {zone: await stack.enter_async_context(member_in(service, zone, assignor)) for zone in ZONES}
        newer_than = -1
        while True:
            held = {zone: await x.wait_assigned(WAIT_MS, newer_than=newer_than) for zone, x in members.items()}
            generations = {assignment.generation_id for assignment in held.values()}
            if len(generations) == 1 and sum(len(x.partitions) for x in held.values()) == 6:
                return {zone: {partition for _, partition in x.partitions} for zone, x in held.items()}
            newer_than = max(generations) - 1 if len(generations) > 1 else max(generations)


@pytest.mark.parametrize(("assignor", "racks"), [("range", ONE_RACK), ("sticky", SOME_TWO_RACKS)])
async def test_each_partition_goes_to_a_member_in_a_rack_of_its_replicas(
    tmp_path: Path, assignor: str, racks: list[list[str]]
) -> None:
    with running_service(tmp_path, *QUICK) as service:
        status, put = service.send("PUT", "/v1/topics/clicks", {"partitions": 6, "replica_racks": racks})
        assert (status, put["replica_racks"]) == (200, racks)
        service.kill()
        service.start()
        assert service.send("GET", "/v1/topics")[1]["topics"] == [put]
        near = await shares(service, assignor)
        assert [len(partitions) for partitions in near.values()] == [2, 2, 2]
        for zone, partitions in near.items():
            assert all(zone in racks[partition] for partition in partitions), near
        assert service.stop() == 0
