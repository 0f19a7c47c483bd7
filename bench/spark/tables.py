"""How the figures of Spark look: rows of tables."""

import math
from collections.abc import Mapping, Sequence

from bench.spark import RALLYPOINT, RALLYPOINT_UNIX
from bench.spark.figures import MovesResult, SpeedResult

CONNECTOR = "spark-sql-kafka-0-10"
VERSIONS = ("pyspark", "pyarrow", "confluent-kafka", CONNECTOR)
"""What stands beside the figures, besides Python and Kafka."""

BASES: Mapping[str, str] = {
    "spark-throughput": "spark", "spark-small-batches": "spark", "spark-exactly-once": "plain-driver",
}  # fmt: skip
"""The way that the others are compared with."""
AIMS: Mapping[tuple[str, str], str] = {
    **{("spark-throughput", way): "at most 1.0" for way in (RALLYPOINT, RALLYPOINT_UNIX)},
    **{("spark-small-batches", way): "at most 1.2" for way in (RALLYPOINT, RALLYPOINT_UNIX)},
}  # fmt: skip

SPEED_HEADER = (
    "what", "way", "PySpark", "batches", "records a batch", "ms a batch", "least", "most", "records/s",
    "CPU-s/million", "time x", "aim", "other cores",
)  # fmt: skip
MOVES_HEADER = (
    "what", "PySpark", "rounds", "median ms", "least", "most", "records", "lost", "twice", "twice unexplained",
    "load average",
)  # fmt: skip


def speed_rows(results: Sequence[SpeedResult]) -> list[Sequence[str]]:
    """`time x`: the median time of a batch, in multiples of the one it is compared with, where that was measured."""
    medians = {(each.name, each.way): each.median_ms for each in results}
    return [
        (
            each.name, each.way, each.pyspark, str(each.batches), f"{each.records_of_batch:,.0f}",
            f"{each.median_ms:,.0f}", f"{each.min_ms:,.0f}", f"{each.max_ms:,.0f}", f"{each.records_per_second:,.0f}",
            f"{each.cpu_seconds_per_million:.1f}", _times(each, medians), AIMS.get((each.name, each.way), "-"),
            f"{each.others_cores:.1f}",
        )
        for each in results
    ]  # fmt: skip


def _times(result: SpeedResult, medians: Mapping[tuple[str, str], float]) -> str:
    base = medians.get((result.name, BASES.get(result.name, "")), math.nan)
    return "-" if math.isnan(base) else f"{result.median_ms / base:.2f}"


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
