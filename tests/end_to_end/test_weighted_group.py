"""Members that say what their partitions weigh, the assignor `weighted`, and the service as a process."""

from pathlib import Path

from pydantic import JsonValue

from rallypoint import Assignment, GroupMember, MemberOptions
from tests.end_to_end.service_process import ServiceProcess, running_service

QUICK = ("--group-initial-rebalance-delay-ms", "0")
LAGS = {"0": 50, "1": 10, "2": 10, "3": 10, "4": 10, "5": 10}


class Worker:
    """A member that knows the lag of what it reads, and of nothing else."""

    def __init__(self, service: ServiceProcess, name: str) -> None:
        self.lags: dict[str, JsonValue] = {}
        self.member = GroupMember(
            MemberOptions(
                coordinator=service.url, group_id="lags", topics=("clicks",), client_id=name, assignors=("weighted",)
            ),
            on_assigned=self._read,
            user_data_at_join=lambda: {"weights": {"clicks": self.lags}},
        )

    async def _read(self, held: Assignment) -> None:
        self.lags = {str(partition): LAGS[str(partition)] for _, partition in held.partitions}


def numbers(held: Assignment) -> list[int]:
    return sorted(partition for _, partition in held.partitions)


async def test_the_heavy_partition_alone_weighs_as_much_as_all_others(tmp_path: Path) -> None:
    with running_service(tmp_path, *QUICK) as service:
        assert service.send("PUT", "/v1/topics/clicks", {"partitions": 6})[0] == 200
        one, two = Worker(service, "one"), Worker(service, "two")
        async with one.member:
            alone = await one.member.wait_assigned(30_000)
            assert numbers(alone) == [0, 1, 2, 3, 4, 5]
            async with two.member:
                its = await two.member.wait_assigned(30_000)
                mine = await one.member.wait_assigned(30_000, newer_than=alone.generation_id)
                assert (numbers(mine), numbers(its)) == ([1, 2, 3, 4, 5], [0])
            again = await one.member.wait_assigned(30_000, newer_than=mine.generation_id)
            assert numbers(again) == [0, 1, 2, 3, 4, 5]
        assert service.stop() == 0
