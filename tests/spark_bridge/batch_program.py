"""A driver as a user would write it: `python batch_program.py URL BOOTSTRAP TOPIC OUT JARS`.

Appends a line to OUT for each record, after each batch; ends at SIGTERM.
"""

import logging
import sys
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

import spark_bridge
from tests.real.parts import free_port


def main(url: str, bootstrap: str, topic: str, out: str, jars: str) -> None:
    """Run batches until SIGTERM; exit code 0 if all that was written is committed."""
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").config("spark.jars", jars)
    for name in ("spark.driver.port", "spark.blockManager.port"):
        builder = builder.config(name, str(free_port()))
    builder = builder.config("spark.driver.host", "127.0.0.1").config("spark.driver.bindAddress", "127.0.0.1")
    spark: SparkSession = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    logging.basicConfig(level=logging.INFO)

    def write(frame: DataFrame, batch_id: int) -> None:
        rows = frame.selectExpr("topic", "partition", "offset", "cast(value as string) value").collect()
        with Path(out).open("a") as lines:
            lines.writelines(f"{row.partition} {row.offset} {row.value}\n" for row in rows)

    options = {
        "coordinator": url,
        "group": "batches",
        "source": "kafka",
        "kafka.bootstrap.servers": bootstrap,
        "subscribe": topic,
        "startingOffsets": "earliest",
        "maxOffsetsPerTrigger": "40",
    }
    committed = spark_bridge.batches(spark, options, write, interval_ms=100)
    spark.stop()
    sys.exit(0 if committed else 1)


if __name__ == "__main__":
    main(*sys.argv[1:])
