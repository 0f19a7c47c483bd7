"""How the metrics of Spark look: rows of tables."""

from collections.abc import Mapping, Sequence

from bench.spark import RALLYPOINT, RALLYPOINT_UNIX
from bench.spark.metrics import MovesResult, SpeedResult

CONNECTOR = "spark-sql-kafka-0-10"
VERSIONS = ("pyspark", "pyarrow", "confluent-kafka", CONNECTOR)
"""What stands beside the metrics, besides Python and Kafka."""

BASES: Mapping[str, str] = {
    "spark-throughput": "spark", "spark-small-batches": "spark", "spark-exactly-once": "plain-driver",
}  # fmt: skip
"""The way that the others are compared with."""
AIMS: Mapping[tuple[str, str], str] = {
    **{("spark-throughput", way): "at most 1.0" for way in (RALLYPOINT, RALLYPOINT_UNIX)},
    **{("spark-small-batches", way): "at most 1.2" for way in (RALLYPOINT, RALLYPOINT_UNIX)},
}  # fmt: skip

SPEED_HEADER = (
    "what", "way", "PySpark", "CPU-s/million", "CPU x", "ms a batch", "time x", "aim of the time", "least", "most",
    "start and end ms", "batches", "records a batch", "records/s", "other cores",
)  # fmt: skip
MOVES_HEADER = (
    "what", "PySpark", "rounds", "median ms", "least", "most", "records", "lost", "twice", "twice unexplained",
    "load average",
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
        f"{result.median_ms:,.0f}", time, AIMS.get((result.name, result.way), "-"), f"{result.min_ms:,.0f}",
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
