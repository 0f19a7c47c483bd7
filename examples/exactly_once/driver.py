"""One Spark driver of the load, written as a user would write it. Start it twice, and the two share the orders.

The environment variable ORDERS_DATABASE holds the database's connection string, because it may contain a password.
SIGTERM stops the driver gracefully. `proof` counts the rows.
"""

import argparse
import os

from pyspark.sql import SparkSession
from pyspark.sql.functions import col, from_json, lit
from pyspark.sql.streaming.query import StreamingQuery

from examples.exactly_once.sinks import Plain, exactly_once
from examples.spark_driver import add_sink, drive, make_parser, small_spark

parser = make_parser("python -m examples.exactly_once.driver", __doc__, topic="orders")
add_sink(parser, batch_records=2000)


def begin(spark: SparkSession, given: argparse.Namespace) -> StreamingQuery:
    """Start the query."""
    records = (
        spark.readStream.format("rallypoint")
        .option("coordinator", given.coordinator)
        .option("group", "orders")
        .option("clientId", given.name)
        .option("sessionTimeoutMs", 30000)
        .option("source", "files")
        .option("path", given.topics)
        .option("subscribe", "orders")
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", given.batch_records)
        .load()
    )
    order = from_json(col("value").cast("string"), "order_id LONG, customer STRING, cents LONG")
    orders = records.select("topic", "partition", "offset", order.alias("order"), lit(given.name).alias("driver"))
    rows = orders.select("topic", "partition", "offset", "order.*", "driver")

    database = os.environ["ORDERS_DATABASE"]
    return (
        rows.writeStream.foreachBatch(exactly_once(database) if given.sink == "exactly-once" else Plain(database))
        .option("checkpointLocation", given.checkpoint)
        .trigger(processingTime="1 second")
        .start()
    )


def main() -> None:
    """Load orders until SIGTERM."""
    given = parser.parse_args()
    drive(small_spark(f"orders {given.name}"), lambda spark: begin(spark, given))


if __name__ == "__main__":
    main()
