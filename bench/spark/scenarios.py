"""The benchmarks of Spark, by name. Each uses a broker, a service and one or two drivers; all take some minutes."""

from collections.abc import Mapping
from importlib.metadata import version

from bench.plan import Benchmark
from bench.spark.moves import measure_moves
from bench.spark.speed import measure_exactly_once, measure_small_batches, measure_throughput
from bench.spark.tables import CONNECTOR
from bench.spark.tables import VERSIONS as NAMES
from tests.real.spark_kafka import CONNECTOR_VERSION

BENCHMARKS: Mapping[str, Benchmark] = {
    "spark-throughput": Benchmark("records read by a query, beside Spark's own Kafka source", measure_throughput),
    "spark-small-batches": Benchmark("batches of few records, beside Spark's own Kafka source", measure_small_batches),
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
