"""One Spark driver of the word count, written as a user would write it. Start it twice, and the two share the lines.

The query keeps no state: it makes words of lines, and the sink counts them in SQLite. SIGTERM ends it in good order.
Whoever compares the counts is in `proof`, not here.
"""

import argparse
import logging
import signal
import threading
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql.functions import col, explode, lit, lower, regexp_extract_all

from examples.wordcount.sinks import Plain, exactly_once
from spark_bridge import register, stop

parser = argparse.ArgumentParser(prog="python -m examples.wordcount.driver", description=__doc__)
parser.add_argument("--name", required=True, help="how this driver is called in the group")
parser.add_argument("--coordinator", required=True, metavar="URL", help="where `rallypoint serve` listens")
parser.add_argument("--topics", required=True, metavar="DIR", help="the directory that holds the topic `lines`")
parser.add_argument("--database", required=True, type=Path, metavar="FILE", help="SQLite with the table `words`")
parser.add_argument("--checkpoint", required=True, metavar="DIR", help="where Spark keeps this query's progress")
parser.add_argument("--batch-records", type=int, default=1000, metavar="N", help="most lines in a batch")
parser.add_argument("--sink", choices=("exactly-once", "plain"), default="exactly-once", help="see `sinks`")


def main() -> None:
    """Count words until SIGTERM."""
    given = parser.parse_args()
    stopping = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopping.set())
    logging.basicConfig()
    logging.getLogger("rallypoint.spark").setLevel(logging.INFO)  # the sink says which rows were there already

    spark = (
        SparkSession.builder.appName(f"word count {given.name}")
        .master("local[1]")
        .config("spark.driver.memory", "1g")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .getOrCreate()
    )
    register(spark)

    lines = (
        spark.readStream.format("rallypoint")
        .option("coordinator", given.coordinator)
        .option("group", "word-count")
        .option("clientId", given.name)
        .option("sessionTimeoutMs", 6000)
        .option("source", "files")
        .option("path", given.topics)
        .option("subscribe", "lines")
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", given.batch_records)
        .load()
    )
    found = regexp_extract_all(col("value").cast("string"), lit(r"(\p{L}+)"))
    words = lines.select("topic", "partition", "offset", explode(found).alias("word")).withColumn("word", lower("word"))

    count = exactly_once(given.database) if given.sink == "exactly-once" else Plain(given.database)
    query = (
        words.writeStream.foreachBatch(count)
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
