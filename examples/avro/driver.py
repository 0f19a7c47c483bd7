"""A Spark driver that reads clicks in Confluent's Avro from Kafka, each record once into SQLite. Start it twice.

    python -m examples.avro.driver --bootstrap-servers 127.0.0.1:9092 --registry http://127.0.0.1:8081

Versions of the schema may be mixed in the topic: each record is decoded by that of its writer, and has the columns of
the reader's. What cannot be decoded goes into the table `refused`, with the reason. SIGTERM ends it in good order.
"""

import argparse
import json
import sqlite3
from collections.abc import Iterable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import arrow_udf  # type: ignore[attr-defined]
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import StructType

from examples.avro.decoder import Registry, decode
from examples.spark_driver import drive
from rallypoint.spark import ExactlyOnce, SQLite

READER_SCHEMA = json.dumps(
    {
        "type": "record",
        "name": "Click",
        "fields": [
            {"name": "user", "type": "string"},
            {"name": "url", "type": "string"},
            # The first version had no such field: this stands for it.
            {"name": "country", "type": "string", "default": "unknown"},
        ],
    }
)
CLICK = "user string, url string, country string"
"""The reader's schema in Spark's words."""

TABLES = """
    CREATE TABLE IF NOT EXISTS clicks (topic, partition, offset, user, url, country);
    CREATE TABLE IF NOT EXISTS refused (topic, partition, offset, error);
"""


def decoded(records: DataFrame, registry: Registry) -> DataFrame:
    """The topic, partition and offset of each record, with its `click` or the `error` of decoding it."""
    result = StructType.fromDDL(f"record struct<{CLICK}>, error string")
    result_in_arrow = to_arrow_type(result)

    @arrow_udf(result)  # type: ignore[untyped-decorator]
    def read_avro(values: pa.Array) -> pa.Array:
        return pa.array(list(decode(registry, READER_SCHEMA, values.to_pylist())), result_in_arrow)

    read = records.select("topic", "partition", "offset", read_avro("value").alias("read"))
    return read.selectExpr("topic", "partition", "offset", "read.record AS click", "read.error AS error")


def save(connection: Any, rows: Iterable[Sequence[Any]]) -> None:
    """Write each row into one of the tables, in the transaction that moves the positions."""
    for topic, partition, offset, click, error in rows:
        if error is None:
            connection.execute("INSERT INTO clicks VALUES (?, ?, ?, ?, ?, ?)", (topic, partition, offset, *click))
        else:
            connection.execute("INSERT INTO refused VALUES (?, ?, ?, ?)", (topic, partition, offset, error))


def begin(spark: SparkSession, given: argparse.Namespace) -> StreamingQuery:
    """Start the query. The service, the topic and the registry must be there."""
    with closing(sqlite3.connect(given.database)) as connection:
        connection.executescript(TABLES)
    records = (
        spark.readStream.format("rallypoint")
        .option("coordinator", given.coordinator)
        .option("group", given.group)
        .option("source", "kafka")
        .option("kafka.bootstrap.servers", given.bootstrap_servers)
        .option("subscribe", given.topic)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", given.batch_records)
        .load()
    )
    clicks = decoded(records, Registry(given.registry, given.credentials_file))
    return (
        clicks.writeStream.foreachBatch(ExactlyOnce(SQLite(given.database), given.group, write=save))
        .option("checkpointLocation", given.checkpoint)
        .trigger(processingTime="1 second")
        .start()
    )


def make_parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m examples.avro.driver", description="Clicks in Avro, into SQLite.")
    parser.add_argument("--coordinator", default="http://127.0.0.1:8000", metavar="URL", help="of the service")
    parser.add_argument("--bootstrap-servers", default="127.0.0.1:9092", help="brokers, with commas between")
    parser.add_argument("--registry", default="http://127.0.0.1:8081", metavar="URL", help="of the schema registry")
    parser.add_argument(
        "--credentials-file", metavar="FILE", help="holds user:password for the registry, on each executor's machine"
    )
    parser.add_argument("--topic", default="clicks")
    parser.add_argument("--group", default="avro-clicks", help="who shares the partitions")
    parser.add_argument("--database", default=Path("clicks.db"), type=Path, metavar="FILE", help="SQLite")
    parser.add_argument("--checkpoint", default="checkpoint-avro", metavar="DIR", help="of this driver alone")
    parser.add_argument("--batch-records", type=int, default=10_000, metavar="N", help="most records in a batch")
    return parser


def main() -> None:
    """Run until SIGTERM or SIGINT."""
    given = make_parser().parse_args()
    drive(SparkSession.builder.appName("avro clicks").master("local[2]"), lambda spark: begin(spark, given))


if __name__ == "__main__":
    main()
