"""One Spark driver of the word count, written as a user would write it. Start it twice, and the two share the lines.

The query keeps no state: it splits lines into words, and the sink counts them in SQLite. SIGTERM stops it gracefully.
`proof` compares the counts.
"""

import argparse
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql.functions import col, explode, lit, lower, regexp_extract_all
from pyspark.sql.streaming.query import StreamingQuery

from examples.spark_driver import add_sink, drive, make_parser, small_spark
from examples.wordcount.sinks import Plain, exactly_once

parser = make_parser("python -m examples.wordcount.driver", __doc__, topic="lines")
parser.add_argument("--database", required=True, type=Path, metavar="FILE", help="SQLite with the table `words`")
add_sink(parser, batch_records=1000)


def begin(spark: SparkSession, given: argparse.Namespace) -> StreamingQuery:
    """Start the query."""
    lines = (
        spark.readStream.format("rallypoint")
        .option("coordinator", given.coordinator)
        .option("group", "word-count")
        .option("clientId", given.name)
        .option("sessionTimeoutMs", 30000)
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
    return (
        words.writeStream.foreachBatch(count)
        .option("checkpointLocation", given.checkpoint)
        .trigger(processingTime="1 second")
        .start()
    )


def main() -> None:
    """Count words until SIGTERM."""
    given = parser.parse_args()
    drive(small_spark(f"word count {given.name}"), lambda spark: begin(spark, given))


if __name__ == "__main__":
    main()
