"""How fast queries read, ours beside Spark's own source and two floors, and write to PostgreSQL exactly once.

All that read have the same records of the same broker, in turns, each on a driver of its own and on one engine: the
PySpark that Spark's own connector was released with, which is the oldest that ours runs on. The floors
(`floor_sources`) share nothing with this project: what they cost, a source in Python cannot save.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from bench.crowd import WrongAnswerError
from bench.kafka import MissingPartError
from bench.plan import Plan
from bench.process import ProcessError
from bench.spark import PLAIN, RALLYPOINT, RALLYPOINT_UNIX, READY, READY_UNIX, SPARK, UNIX_SOCKETS
from bench.spark.drivers import Driver, DriverCost, DriverMeter
from bench.spark.environment import Environment, running_environment, spark_pair
from bench.spark.loads import WAYS, count_rows, make_table
from bench.spark.metrics import QueryResult, SpeedResult, query_result, speed_result
from examples.exactly_once.private_server import REMEDY, find_programs, running_postgresql

WAYS_TO_READ: Mapping[str, Mapping[str, str]] = {
    RALLYPOINT: {}, RALLYPOINT_UNIX: UNIX_SOCKETS, READY: {}, READY_UNIX: UNIX_SOCKETS, PLAIN: {}, SPARK: {},
}  # fmt: skip
"""What is beside each other, in the order of a round, and what its session is made with."""
BACKLOG_RECORDS = 1_000_000
SMALL_RECORDS = 1_000
SMALL_BATCHES = 40
LOAD_RECORDS = 240_000
LOAD_BATCHES = 8
SHORT = 20
"""A short plan reads so many times fewer records in a batch."""

ROUNDS_MAX = 3
WARM = 2
"""Rounds before any counts: in the first, Spark compiles the query, and the JVM the loops."""
BACKLOG_WARM = 6
"""The same of queries of a single batch, of which the JVM learns less."""


@dataclass(slots=True)
class Measured:
    """Of one way, over all rounds that count."""

    pyspark: str = ""
    batches_ms: list[float] = field(default_factory=list)
    beside_ms: list[float] = field(default_factory=list)
    query_ms: list[float] = field(default_factory=list)
    records: int = 0
    costs: list[DriverCost] = field(default_factory=list)

    def add(self, said: Mapping[str, Any], cost: DriverCost) -> None:
        """A round more."""
        self.batches_ms += said["batches_ms"]
        self.beside_ms.append(said["beside_ms"])
        self.query_ms.append(said["query_ms"])
        self.records += said["records"]
        self.costs.append(cost)

    def result(self, name: str, way: str, pyspark: str) -> SpeedResult:
        """The metrics."""
        return speed_result(
            name, way, pyspark, self.batches_ms, beside_ms=self.beside_ms, records=self.records,
            cpu_seconds=sum(cost.cpu_seconds for cost in self.costs), others_cores=self._others_cores(),
        )  # fmt: skip

    def queries(self, name: str, way: str, records: int) -> QueryResult:
        """The metrics of whole queries, each of so many records."""
        return query_result(
            name, way, self.pyspark, records=records, query_ms=self.query_ms,
            cpu_seconds=[cost.cpu_seconds for cost in self.costs], batches_ms=self.batches_ms,
            beside_ms=self.beside_ms, others_cores=self._others_cores(),
        )  # fmt: skip

    def _others_cores(self) -> float:
        return sum(cost.others_cpu_seconds for cost in self.costs) / sum(cost.seconds for cost in self.costs)


async def measure_backlog(plan: Plan) -> Sequence[QueryResult]:
    """All columns of 1,000,000 records of 200 bytes in 12 partitions, in one batch, thrown away."""
    records, warm = (BACKLOG_RECORDS, BACKLOG_WARM) if plan.rounds > 1 else (BACKLOG_RECORDS // SHORT, WARM)
    return await _beside("spark-backlog", plan, records, None, warm)


async def measure_small_batches(plan: Plan) -> Sequence[QueryResult]:
    """Batches of 1,000 records of all partitions."""
    records = SMALL_RECORDS * (SMALL_BATCHES if plan.rounds > 1 else 4)
    return await _beside("spark-small-batches", plan, records, SMALL_RECORDS, WARM)


async def measure_first_query(plan: Plan) -> Sequence[QueryResult]:
    """The first query of a session that has just begun, with `register` and `load`: 1,000 records in one batch."""
    name = "spark-first-query"
    async with running_environment(plan) as found:
        pair = await spark_pair(found.java_home)
        await found.produce(SMALL_RECORDS)
        measured = {way: Measured() for way in WAYS_TO_READ}
        for number in range(rounds_of(plan)):
            for way, conf in WAYS_TO_READ.items():
                async with found.drivers(pair, f"{way}-{number}", conf=conf) as (driver,):
                    await _read(name, driver, way, measured[way], found, SMALL_RECORDS, None)
                    measured[way].pyspark = driver.pyspark
        return [each.queries(name, way, SMALL_RECORDS) for way, each in measured.items()]


async def _beside(name: str, plan: Plan, records: int, of_batch: int | None, warm: int) -> Sequence[QueryResult]:
    async with running_environment(plan) as found, AsyncExitStack() as stack:
        pair = await spark_pair(found.java_home)
        await found.produce(records)
        drivers: dict[str, Driver] = {}
        for way, conf in WAYS_TO_READ.items():
            (drivers[way],) = await stack.enter_async_context(found.drivers(pair, way, conf=conf))
        measured = {way: Measured(drivers[way].pyspark) for way in drivers}
        for number in range(warm + rounds_of(plan)):
            for way, driver in drivers.items():
                into = measured[way] if number >= warm else Measured()
                await _read(name, driver, way, into, found, records, of_batch)
        return [each.queries(name, way, records) for way, each in measured.items()]


async def _read(
    name: str, driver: Driver, way: str, measured: Measured, found: Environment, records: int, of_batch: int | None
) -> None:
    """One query to its end."""
    said, cost = await _run(driver, "read", "read", **found.query_of(way, records, of_batch))
    _check(name, way, said, records)
    measured.add(said, cost)


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
