"""Drivers that come, go and are killed, while records are produced: how long their partitions stand still, and whether
any record is lost or written twice. Every setting of group and service is its default.

What each driver wrote stands in files of its own; a record counts as written once such a file is whole.
"""

import asyncio
import json
import os
import random
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from math import isnan
from pathlib import Path
from time import monotonic

from bench.connection import Connection, Frames
from bench.crowd import WrongAnswerError
from bench.plan import Plan
from bench.process import ProcessError
from bench.spark.drivers import Driver
from bench.spark.environment import PARTITIONS, TOPIC, Environment, Filling, running_environment
from bench.spark.metrics import Batch, Commit, MovesResult, account, moves_result, slowest_takeover, slowest_taking

GROUP = "moves"
PRODUCED = 60
"""Records each time, five a partition."""
PRODUCING_INTERVAL_S = 0.05
LOOK_INTERVAL_S = 0.02
HOLD_S = 0.1
"""How long a batch lasts besides what Spark takes, as with a slower sink: so most kills are within one."""
PATIENCE_S = 120.0
SEED = 2026

FIRST, SECOND = "elder", "second"


class Workload:
    """Produces records, reads what the drivers write, and watches what the group commits."""

    def __init__(self, found: Environment, stack: AsyncExitStack) -> None:
        self.found = found
        self.out = found.directory / "out"
        self.out.mkdir()
        self.batches: list[Batch] = []
        self.commits: list[Commit] = []
        self.killed: list[str] = []
        self.filling = stack.enter_context(Filling(found.bootstrap_servers))
        self.load_average = os.getloadavg()[0]
        self._stack = stack
        self._read: set[Path] = set()
        self._producing = True
        self._tasks: list[asyncio.Task[None]] = []

    def begin(self) -> None:
        """Produce, and watch; also again after `end`."""
        self._producing = True
        self._tasks = [asyncio.create_task(self._produce()), asyncio.create_task(self._watch())]

    async def driver(self, name: str) -> Driver:
        """One that will be gone at the end."""
        return await self._stack.enter_async_context(self.found.driver(name))

    def join(self, driver: Driver, *, checkpoint: str) -> None:
        """Tell it to be a member of the group."""
        driver.tell(
            "start", name=driver.name, options=self.found.options(GROUP), out=str(self.out), hold_s=HOLD_S,
            checkpoint=str(self.found.directory / checkpoint),
        )  # fmt: skip

    async def wait_until_reads(self, name: str, count: int, since_s: float) -> None:
        """Return when batches of the driver, begun since then, have had records of so many partitions."""

        def has_read() -> bool:
            batches = [each for each in self.batches if each.driver == name and each.begin_s >= since_s]
            return len({partition for each in batches for partition in each.records}) >= count

        await self._wait_until(has_read, f"{name} reads {count} partitions")

    async def end(self) -> None:
        """Produce no more, and return when all that was produced has been committed."""
        self._producing = False
        await self._tasks[0]
        wanted = self.filling.ends
        await self._wait_until(lambda: self._committed() == wanted, "everything is committed")
        self._tasks[1].cancel()
        await self._look()

    def result(self, name: str, pyspark: str, times_s: Sequence[float]) -> MovesResult:
        """The results, with a count of the records in all batches that were ever written."""
        found = account(self.batches, self.filling.ends, self.killed)
        return moves_result(name, pyspark, times_s, found, load_average=self.load_average)

    def _committed(self) -> dict[int, int]:
        return {each.partition: each.offset for each in self.commits}

    async def _produce(self) -> None:
        while self._producing:
            await asyncio.to_thread(self.filling.add, PRODUCED)
            await asyncio.sleep(PRODUCING_INTERVAL_S)

    async def _watch(self) -> None:
        """Note each change of the group's committed offsets."""
        server, last = self.found.server, dict[int, Commit]()
        connection = await Connection.open(server.host, server.port)
        request = Frames(server.host, server.port).get(f"/v1/groups/{GROUP}/offsets")
        while True:
            answer = await connection.exchange(request)
            at_s = monotonic()
            topics = answer.json()["offsets"] if answer.status == 200 else {}
            for partition, entry in topics.get(TOPIC, {}).items():
                owner = json.loads(entry["metadata"])["lineage"]
                commit = Commit(int(partition), entry["offset"], owner, at_s)
                if commit[:3] != last.get(commit.partition, ())[:3]:
                    self.commits.append(commit)
                    last[commit.partition] = commit
            await asyncio.sleep(LOOK_INTERVAL_S)

    async def _wait_until(self, condition: Callable[[], bool], what: str) -> None:
        deadline = monotonic() + PATIENCE_S
        while not condition():
            if monotonic() > deadline:
                raise ProcessError(f"{what}: not within {PATIENCE_S:.0f} s")
            for task in self._tasks:
                if task.done() and (error := task.exception()) is not None:
                    raise error
            await asyncio.sleep(LOOK_INTERVAL_S)
            await self._look()

    async def _look(self) -> None:
        """Read the files that are new."""
        for path in sorted(set(await asyncio.to_thread(lambda: list(self.out.glob("*.json")))) - self._read):
            self._read.add(path)
            self.batches.append(batch_of(path.read_text("utf-8")))


def batch_of(text: str) -> Batch:
    """What a driver wrote down of a batch."""
    value = json.loads(text)
    records = {int(partition): offsets for partition, offsets in value["records"].items()}
    return Batch(value["driver"], value["number"], value["begin_s"], value["end_s"], records)


@asynccontextmanager
async def play(plan: Plan) -> AsyncIterator[tuple[Workload, Driver]]:
    """Run a workload with a first driver, which owns all partitions."""
    async with running_environment(plan) as found, AsyncExitStack() as stack:
        workload = Workload(found, stack)
        first = await workload.driver(FIRST)
        workload.begin()
        workload.join(first, checkpoint=FIRST)
        await first.wait_ready()
        await workload.wait_until_reads(FIRST, PARTITIONS, 0.0)
        yield workload, first


async def measure_moves(plan: Plan) -> Sequence[MovesResult]:
    """Drivers that come and go in good order, then others that are killed, beside the same first one."""
    async with play(plan) as (workload, first):
        return [await measure_handovers(workload, first, plan.moves), *await measure_kills(workload, first, plan.moves)]


async def measure_handovers(workload: Workload, first: Driver, moves: int) -> MovesResult:
    """A second driver's query starts, and ends in good order, in turns: half of the partitions go there and back. Of an
    odd number of moves there is one more, so that the first owns all again.
    """
    times_s: list[float] = []
    second = await workload.driver(SECOND)
    await second.wait_ready()
    marks_s: list[float] = []
    for number in range(moves + moves % 2):
        marks_s.append(monotonic())
        if number % 2 == 0:
            workload.join(second, checkpoint=SECOND)
            await workload.wait_until_reads(SECOND, PARTITIONS // 2, marks_s[-1])
        else:
            second.tell("stop")
            if not (await second.line("stopped"))["committed"]:
                raise WrongAnswerError("a driver that ended in good order had not committed")
            await workload.wait_until_reads(FIRST, PARTITIONS, monotonic())
    await second.end()
    await workload.end()
    for begin_s, end_s in zip(marks_s, [*marks_s[1:], monotonic()], strict=True):
        times_s.append(slowest_taking(workload.commits, workload.batches, begin_s, end_s))
        if isnan(times_s[-1]):
            raise WrongAnswerError("a driver came or went, and no partition changed hands")
    return workload.result("spark-handovers", first.pyspark, times_s)


async def measure_kills(workload: Workload, first: Driver, moves: int) -> Sequence[MovesResult]:
    """A second driver comes, and is killed: the driver alone and all that came of it in turns, at any moment."""
    chance = random.Random(SEED)
    starts_s: list[float] = []
    times_s: list[float] = []
    workload.begin()
    for number in range(moves):
        second = await workload.driver(f"{SECOND}-{number}")
        workload.join(second, checkpoint=second.name)
        starts_s.append((await second.line("first"))["at_s"] - second.started_s)
        await workload.wait_until_reads(second.name, PARTITIONS // 2, 0.0)
        await asyncio.sleep(chance.uniform(0.0, 1.0))
        killed_s = await second.kill(everything=number % 2 == 1)
        workload.killed.append(second.name)
        await workload.wait_until_reads(FIRST, PARTITIONS, killed_s)
        times_s.append(slowest_takeover(workload.batches, second.name, killed_s))
    await workload.end()
    return [
        workload.result("spark-kills", first.pyspark, times_s),
        workload.result("spark-second-driver", first.pyspark, starts_s),
    ]
