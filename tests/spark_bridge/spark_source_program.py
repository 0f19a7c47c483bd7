"""A driver on Spark's own Kafka source, for what the bridge offers beside it: `python -m … '{"coordinator": …}'`.

It reads a final assignment to its end, says on standard output which records those were, then reads the whole topic as
the query `etl` while `ProgressCommits` listens, until standard input ends. It runs on the connector's own PySpark.
"""

import json
import sys
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from rallypoint.spark_bridge.assigned_options import kafka_options
from rallypoint.spark_bridge.progress_commits import ProgressCommits


def main(
    coordinator: str,
    bootstrap: str,
    topic: str,
    partitions: list[int],
    committed: dict[str, int],
    jars: list[str],
    conf: dict[str, str],
    checkpoints: str,
) -> None:
    """Both, one after the other. `committed`: by the partition's number, as text."""
    builder = SparkSession.builder.master("local[2]").config("spark.jars", ",".join(jars))
    for name, value in {"spark.ui.enabled": "false", **conf}.items():
        builder = builder.config(name, value)
    spark: Any = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    read: list[tuple[int, int]] = []

    def write(frame: DataFrame, batch_id: int) -> None:
        read.extend((row.partition, row.offset) for row in frame.select("partition", "offset").collect())

    def stream(**options: str) -> Any:
        source = spark.readStream.format("kafka").option("kafka.bootstrap.servers", bootstrap)
        return source.options(**options).load().writeStream

    offsets = {(topic, int(partition)): offset for partition, offset in committed.items()}
    assigned = kafka_options([(topic, partition) for partition in partitions], offsets)
    query = stream(**assigned).foreachBatch(write).option("checkpointLocation", f"{checkpoints}/assigned")
    query.trigger(availableNow=True).start().awaitTermination()
    print(f"read {json.dumps(sorted(read))}", flush=True)
    commits = ProgressCommits(spark, coordinator, "shown", query_name="etl")
    whole = stream(subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger="20").format("noop")
    shown = whole.queryName("etl").option("checkpointLocation", f"{checkpoints}/shown").start()
    sys.stdin.read()
    shown.stop()
    if not commits.close():
        raise SystemExit("the last progress was not committed")
    spark.stop()


if __name__ == "__main__":
    main(**json.loads(sys.argv[1]))
