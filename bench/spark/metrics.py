"""The arithmetic of Spark's benchmarks: what batches took, and which records were written how often. Pure."""

import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from bench.metrics import percentile


@dataclass(frozen=True, slots=True)
class SpeedResult:
    """Queries of one way to read or write, several times. `way`: whose; `pyspark`: its version. Times are those of a
    batch, as Spark gives them (`triggerExecution`); `beside_ms`: what a query took beside its batches, which is its
    start and its end, as a median. `cpu_seconds_per_million`: of the driver, its JVM and all its Pythons for a million
    records, a query's start and end included.
    """

    name: str
    way: str
    pyspark: str
    records: int
    batches: int
    records_of_batch: float
    median_ms: float
    min_ms: float
    max_ms: float
    beside_ms: float
    records_per_second: float
    cpu_seconds_per_million: float
    others_cores: float


def speed_result(
    name: str, way: str, pyspark: str, batches_ms: Sequence[float], *, beside_ms: Sequence[float], records: int,
    cpu_seconds: float, others_cores: float,
) -> SpeedResult:  # fmt: skip
    """The metrics of at least one query and one batch. The rate is that of the median batch."""
    of_batch = records / len(batches_ms)
    median_ms = percentile(batches_ms, 50)
    return SpeedResult(
        name=name,
        way=way,
        pyspark=pyspark,
        records=records,
        batches=len(batches_ms),
        records_of_batch=of_batch,
        median_ms=median_ms,
        min_ms=min(batches_ms),
        max_ms=max(batches_ms),
        beside_ms=percentile(beside_ms, 50),
        records_per_second=of_batch / median_ms * 1000,
        cpu_seconds_per_million=cpu_seconds * 1_000_000 / records,
        others_cores=others_cores,
    )


@dataclass(frozen=True, slots=True)
class QueryResult:
    """Whole queries of one way to read, medians of the rounds.

    query_ms: from `register` and `load` until all is read.
    cpu_seconds: of the driver, its JVM and all its Pythons meanwhile.
    batch_ms: of all batches, as Spark gives them (`triggerExecution`).
    beside_ms: from `start()` to the end, less all triggers.
    """

    name: str
    way: str
    pyspark: str
    rounds: int
    records: int
    batches: int
    query_ms: float
    query_min_ms: float
    query_max_ms: float
    cpu_seconds: float
    cpu_seconds_min: float
    cpu_seconds_max: float
    batch_ms: float
    beside_ms: float
    others_cores: float


def query_result(
    name: str, way: str, pyspark: str, *, records: int, query_ms: Sequence[float], cpu_seconds: Sequence[float],
    batches_ms: Sequence[float], beside_ms: Sequence[float], others_cores: float,
) -> QueryResult:  # fmt: skip
    """The metrics of at least one query and one batch; `records` are those of one query."""
    return QueryResult(
        name=name,
        way=way,
        pyspark=pyspark,
        rounds=len(query_ms),
        records=records,
        batches=len(batches_ms),
        query_ms=percentile(query_ms, 50),
        query_min_ms=min(query_ms),
        query_max_ms=max(query_ms),
        cpu_seconds=percentile(cpu_seconds, 50),
        cpu_seconds_min=min(cpu_seconds),
        cpu_seconds_max=max(cpu_seconds),
        batch_ms=percentile(batches_ms, 50),
        beside_ms=percentile(beside_ms, 50),
        others_cores=others_cores,
    )


@dataclass(frozen=True, slots=True)
class Batch:
    """What one driver wrote at once. `number` counts its batches from 1; times are the system's monotonic clock."""

    driver: str
    number: int
    begin_s: float
    end_s: float
    records: Mapping[int, Sequence[int]]
    """Partition → offsets."""


@dataclass(frozen=True, slots=True)
class Account:
    """Of all records that were there. `twice`: written more than once; `unexplained`: those of them for which the last
    batches of drivers that were killed are not the reason. `strange`: written, and never produced.
    """

    records: int
    lost: int
    twice: int
    unexplained: int
    strange: int


def account(batches: Collection[Batch], ends: Mapping[int, int], killed: Collection[str]) -> Account:
    """Compare what was written with what was there: `ends` says where each partition ends.

    A driver that is killed may have written its last batch without having told its group; nothing else may be written
    again.
    """
    last: dict[str, int] = {}
    for batch in batches:
        last[batch.driver] = max(last.get(batch.driver, 0), batch.number)
    all_copies: Counter[tuple[int, int]] = Counter()
    unexcused: Counter[tuple[int, int]] = Counter()
    for batch in batches:
        excused = batch.driver in killed and batch.number == last[batch.driver]
        for partition, offsets in batch.records.items():
            for offset in offsets:
                all_copies[partition, offset] += 1
                unexcused[partition, offset] += not excused
    there = {(partition, offset) for partition, end in ends.items() for offset in range(end)}
    return Account(
        records=len(there),
        lost=sum(all_copies[one] == 0 for one in there),
        twice=sum(copies > 1 for copies in all_copies.values()),
        unexplained=sum(copies > 1 for copies in unexcused.values()),
        strange=sum(one not in there for one in all_copies),
    )


class Commit(NamedTuple):
    """A change of what the group has committed of a partition. `owner`: the committing query's checkpoint id."""

    partition: int
    offset: int
    owner: str
    at_s: float


def slowest_taking(commits: Sequence[Commit], batches: Sequence[Batch], begin_s: float, end_s: float) -> float:
    """Of the partitions whose owner changed in that stretch: the longest time from the last commit of the old owner to
    the first batch of the new one. NaN if none changed.

    `commits` in the order in which they were seen. The new owner's first batch is the first that has a record at or
    above the offset at which it took the partition.
    """
    times_s: list[float] = []
    last: dict[int, Commit] = {}
    for commit in commits:
        before = last.get(commit.partition)
        last[commit.partition] = commit
        if before is None or before.owner == commit.owner or not begin_s <= commit.at_s < end_s:
            continue
        first_s = min(
            batch.begin_s for batch in batches if max(batch.records.get(commit.partition, [-1])) >= commit.offset
        )
        times_s.append(first_s - before.at_s)
    return max(times_s, default=math.nan)


def slowest_takeover(batches: Sequence[Batch], killed: str, killed_s: float) -> float:
    """Of the partitions that a killed driver had read: the longest time from its end to another's batch with them."""
    owned = {partition for batch in batches if batch.driver == killed for partition in batch.records}
    return max(
        min(
            batch.begin_s
            for batch in batches
            if batch.driver != killed and batch.begin_s >= killed_s and partition in batch.records
        )
        - killed_s
        for partition in owned
    )


@dataclass(frozen=True, slots=True)
class MovesResult:
    """Partitions that went from driver to driver, several times. Times are those of the slowest partition of a round;
    what is `lost`, written `twice`, `unexplained` or `strange` as in `Account`.
    """

    name: str
    pyspark: str
    rounds: int
    median_ms: float
    min_ms: float
    max_ms: float
    records: int
    lost: int
    twice: int
    unexplained: int
    strange: int
    load_average: float


def moves_result(
    name: str, pyspark: str, times_s: Sequence[float], found: Account, *, load_average: float
) -> MovesResult:
    """The metrics of at least one round."""
    return MovesResult(
        name=name,
        pyspark=pyspark,
        rounds=len(times_s),
        median_ms=percentile(times_s, 50) * 1000,
        min_ms=min(times_s) * 1000,
        max_ms=max(times_s) * 1000,
        records=found.records,
        lost=found.lost,
        twice=found.twice,
        unexplained=found.unexplained,
        strange=found.strange,
        load_average=load_average,
    )


def is_whole(result: MovesResult) -> bool:
    """Whether every record was written, and once but for what a killed driver could not tell."""
    return not (result.lost or result.unexplained or result.strange)
