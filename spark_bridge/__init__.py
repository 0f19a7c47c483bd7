"""Spark streaming queries as members of a consumer group: partitions move between queries, no query restarts.

    from spark_bridge import register
    register(spark)
    df = spark.readStream.format("rallypoint").option("coordinator", "http://127.0.0.1:8000") ...

This module is all that a user needs. PySpark is imported when one of its functions is called, not before, so that the
sources and the pure parts can be used without it. `DESIGN.md` tells how a batch travels.
"""

from typing import TYPE_CHECKING

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
    from pyspark.sql import SparkSession
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
