"""The benchmarks of Spark, by name. Each uses a broker, a service and one or two drivers; all take some minutes."""

from collections.abc import Mapping
from importlib.metadata import version

from bench.plan import Benchmark
from bench.spark.moves import measure_moves
from bench.spark.speed import measure_backlog, measure_exactly_once, measure_first_query, measure_small_batches
from bench.spark.tables import CONNECTOR
from bench.spark.tables import VERSIONS as NAMES
from tests.real.spark_kafka import CONNECTOR_VERSION

BENCHMARKS: Mapping[str, Benchmark] = {
    "spark-backlog": Benchmark(
        "1,000,000 records in one batch, beside Spark's own Kafka source and two floors", measure_backlog, 1_200
    ),
    "spark-small-batches": Benchmark("batches of 1,000 records, beside the same", measure_small_batches, 1_800),
    "spark-first-query": Benchmark("the first query of a session, beside the same", measure_first_query, 1_800),
    "spark-exactly-once": Benchmark("rows into PostgreSQL exactly once, beside plainly", measure_exactly_once),
    "spark-moves": Benchmark(
        "a second driver comes and goes, then one is started and killed: partitions without an owner, a first record,"
        " and a takeover",
        measure_moves,
        2_700,
    ),
}
"""Left out unless they are asked for, by name or by `--spark`."""

VERSIONS: Mapping[str, str] = {
    **{name: version(name) for name in NAMES if name != CONNECTOR}, CONNECTOR: CONNECTOR_VERSION,
}  # fmt: skip
"""The packages whose versions are reported with the results. The Kafka connector has PySpark's version."""
