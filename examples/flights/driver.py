"""One Spark driver of the demo, written as a user would write it. Start it twice, and the two share the flights.

It keeps no state: each micro-batch becomes a folder of Parquet files with the partition, the offset, the carrier and
the arrival delay of its flights. SIGTERM stops it gracefully. `proof` counts the output.
"""

import argparse

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col, from_json
from pyspark.sql.streaming.query import StreamingQuery

from examples.spark_driver import drive, make_parser, small_spark

parser = make_parser("python -m examples.flights.driver", __doc__, topic="flights")
parser.add_argument("--output", required=True, metavar="DIR", help="where the batches go")


def begin(spark: SparkSession, given: argparse.Namespace) -> StreamingQuery:
    """Start the query."""
    flights = (
        spark.readStream.format("rallypoint")
        .option("coordinator", given.coordinator)
        .option("group", "delays")
        .option("clientId", given.name)
        .option("sessionTimeoutMs", 30000)
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

    return (
        delays.writeStream.foreachBatch(save)
        .option("checkpointLocation", given.checkpoint)
        .trigger(processingTime="2 seconds")
        .start()
    )


def main() -> None:
    """Read flights until SIGTERM."""
    given = parser.parse_args()
    drive(small_spark(f"flights {given.name}"), lambda spark: begin(spark, given))


if __name__ == "__main__":
    main()
