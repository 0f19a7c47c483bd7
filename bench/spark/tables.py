"""How the metrics of Spark look: rows of tables."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from bench.spark import RALLYPOINT, RALLYPOINT_UNIX, SPARK
from bench.spark.metrics import MovesResult, QueryResult, SpeedResult

CONNECTOR = "spark-sql-kafka-0-10"
VERSIONS = ("pyspark", "pyarrow", "confluent-kafka", CONNECTOR)
"""What stands beside the metrics, besides Python and Kafka."""

BASES: Mapping[str, str] = {
    "spark-backlog": SPARK, "spark-small-batches": SPARK, "spark-first-query": SPARK,
    "spark-exactly-once": "plain-driver",
}  # fmt: skip
"""The way that the others are compared with."""


class Aims(NamedTuple):
    """The most that our source should take, in multiples of Spark's: processor time, a query's time, a batch's."""

    cpu: str = "-"
    query: str = "-"
    batch: str = "-"


AIMS: Mapping[str, Aims] = {
    "spark-backlog": Aims(cpu="1.1", query="1.0"),
    "spark-small-batches": Aims(cpu="1.2", batch="1.1"),
    "spark-first-query": Aims(query="1.2"),
}
OURS = {RALLYPOINT, RALLYPOINT_UNIX}

QUERY_HEADER = (
    "what", "way", "PySpark", "CPU-s", "least", "most", "CPU x", "aim", "query ms", "least", "most", "query x", "aim",
    "ms a batch", "batch x", "aim", "start and end ms", "queries", "batches", "other cores",
)  # fmt: skip

SPEED_HEADER = (
    "what", "way", "PySpark", "CPU-s/million", "CPU x", "ms a batch", "time x", "least", "most",
    "start and end ms", "batches", "records a batch", "records/s", "other cores",
)  # fmt: skip
MOVES_HEADER = (
    "what", "PySpark", "rounds", "median ms", "least", "most", "records", "lost", "twice", "twice unexplained",
    "load average",
)  # fmt: skip


def query_rows(results: Sequence[QueryResult]) -> list[Sequence[str]]:
    """Of each kind in the order in which they were measured. `CPU x`, `query x`, `batch x`: in multiples of the one it
    is compared with, where that was measured.
    """
    bases = {each.name: each for each in results if each.way == BASES.get(each.name)}
    return [_query_row(each, bases.get(each.name)) for each in results]


def _query_row(result: QueryResult, base: QueryResult | None) -> Sequence[str]:
    aims = AIMS.get(result.name, Aims()) if result.way in OURS else Aims()
    times = ("-", "-", "-")
    if base is not None:
        times = (
            f"{result.cpu_seconds / base.cpu_seconds:.2f}", f"{result.query_ms / base.query_ms:.2f}",
            f"{result.batch_ms / base.batch_ms:.2f}",
        )  # fmt: skip
    return (
        result.name, result.way, result.pyspark, f"{result.cpu_seconds:.2f}", f"{result.cpu_seconds_min:.2f}",
        f"{result.cpu_seconds_max:.2f}", times[0], aims.cpu, f"{result.query_ms:,.0f}", f"{result.query_min_ms:,.0f}",
        f"{result.query_max_ms:,.0f}", times[1], aims.query, f"{result.batch_ms:,.0f}", times[2], aims.batch,
        f"{result.beside_ms:,.0f}", str(result.rounds), str(result.batches), f"{result.others_cores:.1f}",
    )  # fmt: skip


def speed_rows(results: Sequence[SpeedResult]) -> list[Sequence[str]]:
    """Of each kind, whoever takes most processor time first. `CPU x`, `time x`: processor time, and the median time of
    a batch, in multiples of the one it is compared with, where that was measured.
    """
    bases = {each.name: each for each in results if each.way == BASES.get(each.name)}
    kinds = list(dict.fromkeys(each.name for each in results))
    ordered = sorted(results, key=lambda each: (kinds.index(each.name), -each.cpu_seconds_per_million))
    return [_speed_row(each, bases.get(each.name)) for each in ordered]


def _speed_row(result: SpeedResult, base: SpeedResult | None) -> Sequence[str]:
    cpu = "-" if base is None else f"{result.cpu_seconds_per_million / base.cpu_seconds_per_million:.2f}"
    time = "-" if base is None else f"{result.median_ms / base.median_ms:.2f}"
    return (
        result.name, result.way, result.pyspark, f"{result.cpu_seconds_per_million:.1f}", cpu,
        f"{result.median_ms:,.0f}", time, f"{result.min_ms:,.0f}",
        f"{result.max_ms:,.0f}", f"{result.beside_ms:,.0f}", str(result.batches), f"{result.records_of_batch:,.0f}",
        f"{result.records_per_second:,.0f}", f"{result.others_cores:.1f}",
    )  # fmt: skip


def moves_rows(results: Sequence[MovesResult]) -> list[Sequence[str]]:
    """Times of the slowest partition of a round, and what became of the records."""
    return [
        (
            each.name, each.pyspark, str(each.rounds), f"{each.median_ms:,.0f}", f"{each.min_ms:,.0f}",
            f"{each.max_ms:,.0f}", f"{each.records:,}", str(each.lost), f"{each.twice:,}", str(each.unexplained),
            f"{each.load_average:.1f}",
        )
        for each in results
    ]  # fmt: skip
