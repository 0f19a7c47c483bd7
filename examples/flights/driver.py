"""One Spark driver of the demo, written as a user would write it. Start it twice, and the two share the flights.

It keeps no state: each micro-batch becomes a folder of Parquet files with the partition, the offset, the carrier and
the arrival delay of its flights. SIGTERM ends it in good order. Whoever counts the output is in `proof`, not here.
"""

import argparse
import signal
import threading

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col, from_json

from spark_bridge import register, stop

parser = argparse.ArgumentParser(prog="python -m examples.flights.driver", description=__doc__)
parser.add_argument("--name", required=True, help="how this driver is called in the group")
parser.add_argument("--coordinator", required=True, metavar="URL", help="where `rallypoint serve` listens")
parser.add_argument("--topics", required=True, metavar="DIR", help="the directory that holds the topic `flights`")
parser.add_argument("--output", required=True, metavar="DIR", help="where the batches go")
parser.add_argument("--checkpoint", required=True, metavar="DIR", help="where Spark keeps this query's progress")


def main() -> None:
    """Read flights until SIGTERM."""
    given = parser.parse_args()
    stopping = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopping.set())

    spark = (
        SparkSession.builder.appName(f"flights {given.name}")
        .master("local[1]")
        .config("spark.driver.memory", "1g")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .getOrCreate()
    )
    register(spark)

    flights = (
        spark.readStream.format("rallypoint")
        .option("coordinator", given.coordinator)
        .option("group", "delays")
        .option("clientId", given.name)
        .option("sessionTimeoutMs", 6000)
        .option("source", "files")
        .option("path", given.topics)
        .option("subscribe", "flights")
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", 9000)
        .load()
    )
    flight = from_json(col("value").cast("string"), "carrier STRING, arr_delay DOUBLE")
    delays = flights.select("partition", "offset", flight.alias("flight")).select("partition", "offset", "flight.*")

    def save(batch: DataFrame, batch_id: int) -> None:
        batch.write.mode("overwrite").parquet(f"{given.output}/batch-{batch_id:04}")

    query = (
        delays.writeStream.foreachBatch(save)
        .option("checkpointLocation", given.checkpoint)
        .trigger(processingTime="2 seconds")
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
