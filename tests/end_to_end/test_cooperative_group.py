"""Members that keep their partitions while they join, and the service as a process: only what moves ever stops.

Each member works on each of its partitions in a task of its own, from `on_assigned` to `on_revoked`; a task counts and
commits without a pause, under the generation in which it began. Who worked on what, and when, is kept in one list.
"""

import asyncio
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import pytest

from rallypoint import Assignment, GroupMember, MemberOptions
from tests.end_to_end.service_process import ServiceProcess, running_service
from tests.sizes import in_long

QUICK = ("--group-initial-rebalance-delay-ms", "0")
PARTITIONS = 12
WAIT_MS = 20_000
TopicPartition = tuple[str, int]


class Diary:
    """What happened, in order: (name, "begins" or "ends", partition)."""

    def __init__(self) -> None:
        self.lines: list[tuple[str, str, TopicPartition]] = []
        self.commits: Counter[TopicPartition] = Counter()

    def owners(self) -> dict[TopicPartition, str]:
        """Who works on what at the end; fails where two worked on one partition at once."""
        owners: dict[TopicPartition, str] = {}
        for name, what, partition in self.lines:
            if what == "begins":
                assert partition not in owners, f"{name} begins on {partition}, which is {owners[partition]}'s"
                owners[partition] = name
            else:
                assert owners.pop(partition) == name
        return owners

    def since(self, line: int) -> list[tuple[str, str, TopicPartition]]:
        return self.lines[line:]


class Worker:
    """A member with a task for each of its partitions."""

    def __init__(
        self,
        service: ServiceProcess,
        name: str,
        diary: Diary,
        *assignors: str,
        transport: Literal["channel", "http"] = "channel",
    ) -> None:
        self.name = name
        self.diary = diary
        self.tasks: dict[TopicPartition, asyncio.Task[None]] = {}
        self.member = GroupMember(
            MemberOptions(
                coordinator=service.url,
                group_id="clicks",
                topics=("clicks",),
                client_id=name,
                assignors=assignors or ("cooperative-sticky",),
                transport=transport,
            ),
            on_assigned=self.on_assigned,
            on_revoked=self.on_revoked,
            on_lost=self.on_lost,
        )

    async def on_assigned(self, held: Assignment) -> None:
        assert held.kept == self.tasks.keys()
        for partition in held.partitions:
            self.diary.lines.append((self.name, "begins", partition))
            self.tasks[partition] = asyncio.create_task(self.work(partition, held.generation_id))

    async def on_revoked(self, held: Assignment) -> None:
        assert held.kept | held.partitions == self.tasks.keys()
        for partition in held.partitions:
            task = self.tasks.pop(partition)
            assert not task.done(), f"the work on {partition} stopped by itself: {task}"
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            self.diary.lines.append((self.name, "ends", partition))

    async def on_lost(self, held: Assignment) -> None:
        raise AssertionError(f"{self.name} lost {held}")

    async def work(self, partition: TopicPartition, generation_id: int) -> None:
        offset = 0
        while True:
            offset += 1
            await self.member.commit({partition: offset}, generation_id=generation_id)
            self.diary.commits[partition] += 1
            await asyncio.sleep(0.01)


async def at_rest(workers: Mapping[str, Worker], newer_than: int) -> int:
    """Wait until all are in one later generation in which every partition has an owner; that generation."""
    async with asyncio.timeout(WAIT_MS / 1000):
        while True:
            held = [await worker.member.wait_assigned(WAIT_MS) for worker in workers.values()]
            generations = {one.generation_id for one in held}
            is_whole = sum(len(one.partitions) for one in held) == PARTITIONS
            if len(generations) == 1 and is_whole and max(generations) > newer_than:
                return generations.pop()
            await asyncio.sleep(0.01)


def sizes(owners: Mapping[TopicPartition, str]) -> dict[str, int]:
    return dict(Counter(owners.values()))


def check_no_error(workers: Mapping[str, Worker]) -> None:
    for worker in workers.values():
        assert worker.member.error is None
        for partition, task in worker.tasks.items():
            assert not task.done(), f"{worker.name} stopped working on {partition}: {task}"


@pytest.mark.parametrize(
    ("a", "b", "c"),
    [in_long(*("channel",) * 3), in_long(*("http",) * 3), ("channel", "http", "channel")],
    ids=["channel", "http", "both"],
)
async def test_only_the_moved_partitions_ever_stop_when_members_come_and_go(
    tmp_path: Path, a: Literal["channel", "http"], b: Literal["channel", "http"], c: Literal["channel", "http"]
) -> None:
    with running_service(tmp_path, *QUICK) as service:
        assert service.send("PUT", "/v1/topics/clicks", {"partitions": PARTITIONS})[0] == 200
        diary = Diary()
        workers = {"a": Worker(service, "a", diary, transport=a), "b": Worker(service, "b", diary, transport=b)}
        async with workers["a"].member:
            generation = await at_rest({"a": workers["a"]}, -1)
            async with workers["b"].member:
                generation = await at_rest(workers, generation)
                assert sizes(diary.owners()) == {"a": 6, "b": 6}
                tasks = {**workers["a"].tasks, **workers["b"].tasks}
                line, before = len(diary.lines), Counter(diary.commits)

                workers["c"] = Worker(service, "c", diary, transport=c)
                async with workers["c"].member:
                    generation = await at_rest(workers, generation)
                    owners = diary.owners()
                    assert sizes(owners) == {"a": 4, "b": 4, "c": 4}
                    moved = {partition for partition, name in owners.items() if name == "c"}
                    stopped = [partition for _, what, partition in diary.since(line) if what == "ends"]
                    assert sorted(stopped) == sorted(moved), "each of the four once, and no other"
                    check_no_error(workers)
                    for partition in owners.keys() - moved:
                        assert workers[owners[partition]].tasks[partition] is tasks[partition], "the very same task"
                        assert diary.commits[partition] > before[partition], "it went on meanwhile"
                    line = len(diary.lines)
                del workers["c"]
                generation = await at_rest(workers, generation)
                assert sizes(diary.owners()) == {"a": 6, "b": 6}
                stopped = [partition for name, what, partition in diary.since(line) if what == "ends" and name != "c"]
                assert stopped == [], "who stays keeps everything"
                check_no_error(workers)
            # Who closes between two generations may find its last commits refused, and its work ended by that.
            del workers["b"]
            await at_rest(workers, generation)
            check_no_error(workers)
        assert diary.owners() == {}
        _, committed = service.send("GET", "/v1/groups/clicks/offsets")
        assert len(committed["offsets"]["clicks"]) == PARTITIONS
        assert service.stop() == 0


async def test_a_rolling_change_from_an_eager_rule_stays_sound(tmp_path: Path) -> None:
    """First both rules are offered, then the cooperative one alone: a member of each kind is in the group meanwhile."""
    with running_service(tmp_path, *QUICK) as service:
        assert service.send("PUT", "/v1/topics/clicks", {"partitions": PARTITIONS})[0] == 200
        diary = Diary()
        both = Worker(service, "both", diary, "cooperative-sticky", "range")
        async with both.member:
            generation = await at_rest({"both": both}, -1)
            old = Worker(service, "old", diary, "range")
            async with old.member:
                generation = await at_rest({"both": both, "old": old}, generation)
                assert both.member.assignment is not None
                assert both.member.assignment.protocol_name == "range"
            new = Worker(service, "new", diary)
            async with new.member:
                generation = await at_rest({"both": both, "new": new}, generation)
                assert both.member.assignment.protocol_name == "cooperative-sticky"
                assert sizes(diary.owners()) == {"both": 6, "new": 6}
                check_no_error({"both": both, "new": new})
            await at_rest({"both": both}, generation)
        assert diary.owners() == {}
        assert service.stop() == 0
