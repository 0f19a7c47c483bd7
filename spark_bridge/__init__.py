"""Spark streaming queries as members of a consumer group: partitions move between queries, no query restarts.

    from spark_bridge import register
    register(spark)
    df = spark.readStream.format("rallypoint").option("coordinator", "http://127.0.0.1:8000") ...

This module is all that a user needs. PySpark is imported when one of its functions is called, not before, so that the
sources and the pure parts can be used without it. `DESIGN.md` tells how a batch travels.
"""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Literal

from spark_bridge.errors import (
    BridgeError,
    DataLost,
    NotAssigned,
    OptionError,
    QueryFenced,
    QueryRefused,
    RegistrationError,
    SourceError,
    StopTimeout,
)
from spark_bridge.supervision import start

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

__all__ = [
    "BridgeError",
    "DataLost",
    "NotAssigned",
    "OptionError",
    "QueryFenced",
    "QueryRefused",
    "RegistrationError",
    "SourceError",
    "StopTimeout",
    "batches",
    "register",
    "start",
    "stop",
]


def register(spark: "SparkSession") -> None:
    """Make `format("rallypoint")` known to a session. See `spark_bridge.registration.register`."""
    from spark_bridge import registration  # noqa: PLC0415 - PySpark only when it is wanted

    registration.register(spark)


def stop(query: "StreamingQuery", timeout_ms: int = 60_000) -> bool:
    """End a query so that nothing is read twice. See `spark_bridge.registration.stop`."""
    from spark_bridge import registration  # noqa: PLC0415 - PySpark only when it is wanted

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
    from spark_bridge import batch_loop  # noqa: PLC0415 - PySpark only when it is wanted

    return batch_loop.run_batches(
        spark,
        options,
        write,
        available_now=available_now,
        reader=reader,
        reader_options=reader_options,
        interval_ms=interval_ms,
    )
