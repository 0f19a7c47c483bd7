"""Spark streaming queries as members of a consumer group: partitions move between queries without a restart.

    from rallypoint.spark import register
    register(spark)
    df = spark.readStream.format("rallypoint").option("coordinator", "http://127.0.0.1:8000") ...

`register` makes the data source known to a session, `start` starts a query, `stop` stops one in order. `batches` is a
loop for programs that want each batch as a DataFrame. `ExactlyOnce` writes to PostgreSQL, SQLite or files exactly once.
`ProgressCommits` commits the progress of a query that is no member, `OffsetMirror` copies the group's offsets to Kafka,
and `Source` is what a source of your own implements. PySpark is imported when one of them is used, not before.
`docs/spark.md` is the guide.
"""

from typing import TYPE_CHECKING

from rallypoint._lazy import lazy_names

if TYPE_CHECKING:
    from rallypoint.member.sources.records import Record
    from rallypoint.spark_bridge.assigned_options import kafka_options
    from rallypoint.spark_bridge.batch_loop import BatchLoop
    from rallypoint.spark_bridge.entry import batches, register, stop
    from rallypoint.spark_bridge.errors import (
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
    from rallypoint.spark_bridge.exactly_once import ExactlyOnce, LoadFailed, PositionMoved
    from rallypoint.spark_bridge.exactly_once.files import ExactlyOnceFiles
    from rallypoint.spark_bridge.exactly_once.load import Frame
    from rallypoint.spark_bridge.exactly_once.postgresql import PostgreSQL
    from rallypoint.spark_bridge.exactly_once.sqlite import SQLite
    from rallypoint.spark_bridge.fencing_check import BatchFenced, FencingCheck
    from rallypoint.spark_bridge.mirror import OffsetMirror
    from rallypoint.spark_bridge.offsets import Range, TopicPartition
    from rallypoint.spark_bridge.option_text import OptionSpec
    from rallypoint.spark_bridge.partitioning import partition_for_key, repartition_by_key
    from rallypoint.spark_bridge.progress_commits import ProgressCommits
    from rallypoint.spark_bridge.source_options import SourceOptions
    from rallypoint.spark_bridge.sources.contract import Source, record_schema
    from rallypoint.spark_bridge.sources.files_writer import FilesWriter
    from rallypoint.spark_bridge.supervision import start

__all__ = [
    "BatchFenced",
    "BatchLoop",
    "BridgeError",
    "DataLost",
    "ExactlyOnce",
    "ExactlyOnceFiles",
    "FencingCheck",
    "FilesWriter",
    "Frame",
    "LoadFailed",
    "NotAssigned",
    "OffsetMirror",
    "OptionError",
    "OptionSpec",
    "PositionMoved",
    "PostgreSQL",
    "ProgressCommits",
    "QueryFenced",
    "QueryRefused",
    "Range",
    "Record",
    "RegistrationError",
    "SQLite",
    "Source",
    "SourceError",
    "SourceOptions",
    "StopTimeout",
    "TopicPartition",
    "batches",
    "kafka_options",
    "partition_for_key",
    "record_schema",
    "register",
    "repartition_by_key",
    "start",
    "stop",
]

_HOMES = {
    "rallypoint.spark_bridge.fencing_check": "BatchFenced FencingCheck",
    "rallypoint.spark_bridge.entry": "batches register stop",
    "rallypoint.spark_bridge.supervision": "start",
    "rallypoint.spark_bridge.batch_loop": "BatchLoop",
    "rallypoint.spark_bridge.assigned_options": "kafka_options",
    "rallypoint.spark_bridge.progress_commits": "ProgressCommits",
    "rallypoint.spark_bridge.mirror": "OffsetMirror",
    "rallypoint.spark_bridge.partitioning": "partition_for_key repartition_by_key",
    "rallypoint.spark_bridge.exactly_once": "ExactlyOnce LoadFailed PositionMoved",
    "rallypoint.spark_bridge.exactly_once.files": "ExactlyOnceFiles",
    "rallypoint.spark_bridge.exactly_once.load": "Frame",
    "rallypoint.spark_bridge.exactly_once.postgresql": "PostgreSQL",
    "rallypoint.spark_bridge.exactly_once.sqlite": "SQLite",
    "rallypoint.spark_bridge.errors": (
        "BridgeError DataLost NotAssigned OptionError QueryFenced QueryRefused "
        "RegistrationError SourceError StopTimeout "
    ),
    "rallypoint.spark_bridge.offsets": "Range TopicPartition",
    "rallypoint.spark_bridge.option_text": "OptionSpec",
    "rallypoint.spark_bridge.source_options": "SourceOptions",
    "rallypoint.spark_bridge.sources.contract": "Source record_schema",
    "rallypoint.spark_bridge.sources.files_writer": "FilesWriter",
    "rallypoint.member.sources.records": "Record",
}

if not TYPE_CHECKING:
    __getattr__ = lazy_names(globals(), _HOMES)


def __dir__() -> list[str]:
    return __all__
