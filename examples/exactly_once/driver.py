"""One Spark driver of the load, written as a user would write it. Start it twice, and the two share the orders.

The database's connection string stands in the environment as ORDERS_DATABASE, for it may hold a password. SIGTERM ends
the driver in good order. Whoever counts the rows is in `proof`, not here.
"""

import argparse
import logging
import os
import signal
import threading

from pyspark.sql import SparkSession
from pyspark.sql.functions import col, from_json, lit

from examples.exactly_once.sinks import Plain, exactly_once
from spark_bridge import register, stop

parser = argparse.ArgumentParser(prog="python -m examples.exactly_once.driver", description=__doc__)
parser.add_argument("--name", required=True, help="how this driver is called in the group")
parser.add_argument("--coordinator", required=True, metavar="URL", help="where `rallypoint serve` listens")
parser.add_argument("--topics", required=True, metavar="DIR", help="the directory that holds the topic `orders`")
parser.add_argument("--checkpoint", required=True, metavar="DIR", help="where Spark keeps this query's progress")
parser.add_argument("--batch-records", type=int, default=2000, metavar="N", help="most orders in a batch")
parser.add_argument("--sink", choices=("exactly-once", "plain"), default="exactly-once", help="see `sinks`")


def main() -> None:
    """Load orders until SIGTERM."""
    given = parser.parse_args()
    stopping = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopping.set())
    logging.basicConfig()
    logging.getLogger("rallypoint.spark").setLevel(logging.INFO)  # the sink says which rows were there already

    spark = (
        SparkSession.builder.appName(f"orders {given.name}")
        .master("local[1]")
        .config("spark.driver.memory", "1g")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .getOrCreate()
    )
    register(spark)

    records = (
        spark.readStream.format("rallypoint")
        .option("coordinator", given.coordinator)
        .option("group", "orders")
        .option("clientId", given.name)
        .option("sessionTimeoutMs", 6000)
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
    query = (
        rows.writeStream.foreachBatch(exactly_once(database) if given.sink == "exactly-once" else Plain(database))
        .option("checkpointLocation", given.checkpoint)
        .trigger(processingTime="1 second")
        .start()
    )

    while query.isActive and not stopping.wait(0.2):
        pass
    if query.isActive:
        stop(query)
    query.awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main()
