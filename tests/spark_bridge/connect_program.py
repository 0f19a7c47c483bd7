"""A program with a session of Spark Connect, on a server of its own: `python -m tests.spark_bridge.connect_program`.

It does what a user of the bridge does first, and prints for each a line of JSON: what, the error's type, its words.
"""

import json
import tempfile
from collections.abc import Callable
from typing import Any

from pyspark.sql import SparkSession

from rallypoint import spark as rallypoint_spark
from rallypoint.spark_bridge.batch_loop import BatchLoop
from rallypoint.spark_bridge.exactly_once.files import ExactlyOnceFiles
from rallypoint.spark_bridge.fencing_check import FencingCheck

OPTIONS = {"coordinator": "http://127.0.0.1:1", "group": "clicks", "subscribe": "a", "source": "files", "path": "/tmp"}


def say(what: str, call: Callable[[], Any]) -> None:
    """Print how a call fails; nothing where it does not."""
    try:
        call()
    except Exception as error:
        print(json.dumps([what, type(error).__name__, str(error)]), flush=True)


def main() -> None:
    """All of it, then end the server."""
    spark = SparkSession.builder.remote("local[1]").getOrCreate()
    with tempfile.TemporaryDirectory() as folder:
        rates = spark.readStream.format("rate").load().writeStream.format("noop")
        query = rates.option("checkpointLocation", f"{folder}/rate").start()
        ours = spark.readStream.format("rallypoint").options(**OPTIONS)
        fencing = FencingCheck("http://127.0.0.1:1", "clicks", checkpoint=folder)
        rows = spark.sql("select 'a' as topic, 0 as partition, 0L as offset")
        say("register", lambda: rallypoint_spark.register(spark))
        say("batches", lambda: rallypoint_spark.batches(spark, OPTIONS, print))
        say("BatchLoop", lambda: BatchLoop(spark, OPTIONS, print))
        say("start", lambda: rallypoint_spark.start(lambda: ours.load().writeStream.format("noop").start()))
        say("stop", lambda: rallypoint_spark.stop(query, timeout_ms=1))
        say("FencingCheck", lambda: fencing.lost(rows, 0))
        say("ExactlyOnceFiles", lambda: ExactlyOnceFiles(f"{folder}/out", "clicks")(rows, 0))
        query.stop()
    spark.stop()


if __name__ == "__main__":
    main()
