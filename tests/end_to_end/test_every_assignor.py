"""Two real members form a group with each assignor that there is, whatever its protocol."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from rallypoint import GroupMember, MemberOptions
from rallypoint.assignors import registry
from tests.end_to_end.service_process import ServiceProcess, running_service

PARTITIONS = 12
EVERYTHING = {("clicks", partition) for partition in range(PARTITIONS)}


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServiceProcess]:
    folder: Path = tmp_path_factory.mktemp("every_assignor")
    with running_service(folder, "--group-initial-rebalance-delay-ms", "0") as running:
        assert running.send("PUT", "/v1/topics/clicks", {"partitions": PARTITIONS})[0] == 200
        yield running
        assert running.stop() == 0


@pytest.mark.parametrize("name", registry.names())
async def test_two_members_share_everything_and_pass_it_on(service: ServiceProcess, name: str) -> None:
    options = MemberOptions(coordinator=service.url, group_id=name, topics=("clicks",), assignors=(name,))
    async with GroupMember(options) as one:
        assert (await one.wait_assigned(30_000)).partitions == EVERYTHING
        async with GroupMember(options) as two, asyncio.timeout(30):
            while True:
                mine, yours = await one.wait_assigned(30_000), await two.wait_assigned(30_000)
                if mine.generation_id == yours.generation_id and mine.partitions | yours.partitions == EVERYTHING:
                    break
                await asyncio.sleep(0.01)
            assert not mine.partitions & yours.partitions
            assert {mine.protocol_name, yours.protocol_name} == {name}
            # A hash ring may weigh two members as it likes, but leaves neither without a part of twelve.
            assert min(len(mine.partitions), len(yours.partitions)) > 0
        newest = mine.generation_id
        async with asyncio.timeout(30):
            while (mine := await one.wait_assigned(30_000, newer_than=newest)).partitions != EVERYTHING:
                newest = mine.generation_id
