"""How fast queries read: ours beside Spark's own source, and into PostgreSQL exactly once beside plainly.

Both read the same records of the same broker, one after the other in turns, each on a driver of its own that is warm
and on one engine: the PySpark that Spark's own connector was released with, which is the oldest that ours runs on.

A query's last batch ends where the topic ends, where Spark's own source waits for records that do not come; batches are
small enough that the median is none of those.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from bench.crowd import WrongAnswerError
from bench.kafka import MissingPartError
from bench.plan import Plan
from bench.process import ProcessError
from bench.spark import RALLYPOINT, RALLYPOINT_UNIX, UNIX_SOCKETS
from bench.spark.drivers import Driver, DriverCost, DriverMeter
from bench.spark.environment import running_environment, spark_pair
from bench.spark.loads import WAYS, count_rows, make_table
from bench.spark.metrics import SpeedResult, speed_result
from examples.exactly_once.private_server import REMEDY, find_programs, running_postgresql

SPARK = "spark"
RECORDS = 2_000_000
THROUGHPUT_BATCHES = 8
SMALL_RECORDS = 1_200
SMALL_BATCHES = 25
LOAD_RECORDS = 240_000
LOAD_BATCHES = 8
SHORT = 20
"""A short plan reads so many times fewer records in a batch."""

ROUNDS_MAX = 2
WARM = 2
"""Rounds before any counts: in the first, Spark compiles the query, and the JVM the loops."""


@dataclass(slots=True)
class Measured:
    """Of one way, over all rounds that count."""

    batches_ms: list[float] = field(default_factory=list)
    beside_ms: list[float] = field(default_factory=list)
    records: int = 0
    costs: list[DriverCost] = field(default_factory=list)

    def add(self, said: Mapping[str, Any], cost: DriverCost) -> None:
        """A round more."""
        self.batches_ms += said["batches_ms"]
        self.beside_ms.append(said["beside_ms"])
        self.records += said["records"]
        self.costs.append(cost)

    def result(self, name: str, way: str, pyspark: str) -> SpeedResult:
        """The metrics."""
        return speed_result(
            name, way, pyspark, self.batches_ms, beside_ms=self.beside_ms, records=self.records,
            cpu_seconds=sum(cost.cpu_seconds for cost in self.costs),
            others_cores=sum(cost.others_cpu_seconds for cost in self.costs) / sum(cost.seconds for cost in self.costs),
        )  # fmt: skip


async def measure_throughput(plan: Plan) -> Sequence[SpeedResult]:
    """All columns of 2,000,000 records of 200 bytes in 12 partitions, thrown away."""
    records = RECORDS // (1 if plan.rounds > 1 else SHORT)
    return await _beside("spark-throughput", plan, records, records // THROUGHPUT_BATCHES)


async def measure_small_batches(plan: Plan) -> Sequence[SpeedResult]:
    """100 records of each partition a batch."""
    batches = SMALL_BATCHES if plan.rounds > 1 else 4
    return await _beside("spark-small-batches", plan, SMALL_RECORDS * batches, SMALL_RECORDS)


async def _beside(name: str, plan: Plan, records: int, of_batch: int) -> Sequence[SpeedResult]:
    async with running_environment(plan) as found:
        pair = await spark_pair(found.java_home)
        await found.produce(records)
        async with (
            found.drivers(pair, RALLYPOINT) as (ours,),
            found.drivers(pair, RALLYPOINT_UNIX, conf=UNIX_SOCKETS) as (over_unix,),
            found.drivers(pair, SPARK) as (theirs,),
        ):
            drivers = {RALLYPOINT: ours, RALLYPOINT_UNIX: over_unix, SPARK: theirs}
            measured = {way: Measured() for way in drivers}
            for number in range(WARM + rounds_of(plan)):
                for way, driver in drivers.items():
                    query = found.query(None if way == SPARK else f"{name}-{way}-{number}", of_batch)
                    said, cost = await _run(driver, "read", "read", **query)
                    _check(name, way, said, records)
                    if number >= WARM:
                        measured[way].add(said, cost)
            return [measured[way].result(name, way, driver.pyspark) for way, driver in drivers.items()]


async def measure_exactly_once(plan: Plan) -> Sequence[SpeedResult]:
    """All columns of 240,000 records into PostgreSQL, in batches of 30,000."""
    records = LOAD_RECORDS // (1 if plan.rounds > 1 else SHORT)
    name = "spark-exactly-once"
    async with running_environment(plan) as found, postgresql() as conninfo:
        await found.produce(records)
        async with found.drivers(None, RALLYPOINT) as (driver,):
            measured = {way: Measured() for way in WAYS}
            for number in range(WARM + rounds_of(plan)):
                for way in WAYS:
                    await asyncio.to_thread(make_table, conninfo, way)
                    query = found.query(f"{way}-{number}", records // LOAD_BATCHES)
                    said, cost = await _run(driver, "load", "loaded", way=way, into=conninfo, **query)
                    _check(name, way, said, records)
                    if (rows := await asyncio.to_thread(count_rows, conninfo, way)) != records:
                        raise WrongAnswerError(f"{name}, {way}: {rows} rows of {records} records")
                    if number >= WARM:
                        measured[way].add(said, cost)
            return [measured[way].result(name, way, driver.pyspark) for way in WAYS]


def rounds_of(plan: Plan) -> int:
    """How many count."""
    return min(plan.rounds, ROUNDS_MAX)


async def _run(driver: Driver, do: str, what: str, **more: Any) -> tuple[dict[str, Any], DriverCost]:
    meter = DriverMeter(driver)
    said = await driver.ask(do, what, **more)
    return said, meter.stop()


def _check(name: str, way: str, said: Mapping[str, Any], records: int) -> None:
    if not said["ended"] or said["records"] != records:
        raise WrongAnswerError(f"{name}, {way}: {said['records']} of {records} records, and the query's end: {said}")


@asynccontextmanager
async def postgresql() -> AsyncIterator[str]:
    """A fresh one; its connection string. Raises MissingPartError, ProcessError."""
    programs = find_programs()
    if programs is None:
        raise MissingPartError(f"it needs PostgreSQL: {REMEDY}")
    starting = running_postgresql(programs)
    try:
        conninfo = await asyncio.to_thread(starting.__enter__)
    except RuntimeError as error:
        raise ProcessError(str(error)) from error
    try:
        yield conninfo
    finally:
        await asyncio.to_thread(starting.__exit__, None, None, None)
