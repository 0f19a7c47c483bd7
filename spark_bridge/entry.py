"""The entry points `register`, `stop` and `batches`, which `rallypoint.spark` exports.

They import PySpark when they are called, so that sources and pure modules can be used without it.
"""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Literal

from rallypoint.spark_bridge.pyspark_version import check_pyspark
from rallypoint.spark_bridge.spark_connect import refuse_connect

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery


def register(spark: "SparkSession") -> None:
    """Register `format("rallypoint")` with a session. See `spark_bridge.registration.register`."""
    check_pyspark()
    refuse_connect(spark, "register")
    from rallypoint.spark_bridge import registration  # noqa: PLC0415 - PySpark only when it is wanted

    registration.register(spark)


def stop(query: "StreamingQuery", timeout_ms: int = 60_000) -> bool:
    """Stop a query so that nothing is read twice. See `spark_bridge.registration.stop`."""
    refuse_connect(query, "stop")
    from rallypoint.spark_bridge import registration  # noqa: PLC0415 - PySpark only when it is wanted

    return registration.stop(query, timeout_ms)


def batches(
    spark: "SparkSession",
    options: Mapping[str, str],
    write: "Callable[[DataFrame, int], None]",
    *,
    available_now: bool = False,
    reader: Literal["spark", "bridge"] | None = None,
    reader_options: Mapping[str, str] | None = None,
    interval_ms: int = 1_000,
) -> bool:
    """Run a loop of batches of plain DataFrames. See `spark_bridge.batch_loop.run_batches`."""
    check_pyspark()
    refuse_connect(spark, "batches")
    from rallypoint.spark_bridge import batch_loop  # noqa: PLC0415 - PySpark only when it is wanted

    return batch_loop.run_batches(
        spark,
        options,
        write,
        available_now=available_now,
        reader=reader,
        reader_options=reader_options,
        interval_ms=interval_ms,
    )
