"""The common parts of the examples' Spark drivers: options, a small Spark session, and a graceful stop.

Each driver has its own query.
"""

import argparse
import logging
import signal
import threading
from collections.abc import Callable

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from rallypoint.spark import register, stop


def make_parser(program: str, description: str | None, *, topic: str) -> argparse.ArgumentParser:
    """The options of a driver that reads a topic of files."""
    parser = argparse.ArgumentParser(prog=program, description=description)
    parser.add_argument("--name", required=True, help="how this driver is called in the group")
    parser.add_argument("--coordinator", required=True, metavar="URL", help="where `rallypoint serve` listens")
    parser.add_argument("--topics", required=True, metavar="DIR", help=f"the directory that holds the topic `{topic}`")
    parser.add_argument("--checkpoint", required=True, metavar="DIR", help="where Spark keeps this query's progress")
    return parser


def add_sink(parser: argparse.ArgumentParser, *, batch_records: int) -> None:
    """The options of a driver that writes to a database. `batch_records`: the default."""
    parser.add_argument("--batch-records", type=int, default=batch_records, metavar="N", help="most records in a batch")
    parser.add_argument("--sink", choices=("exactly-once", "plain"), default="exactly-once", help="see `sinks`")


def small_spark(application: str) -> SparkSession.Builder:
    """A small session that listens on loopback: one task at a time, for several drivers on one machine.

    A task that failed is tried again, as on a cluster: on a busy machine a Python that Spark starts may not connect in
    its ten seconds.
    """
    return (
        SparkSession.builder.appName(application)
        .master("local[1,4]")
        .config("spark.driver.memory", "1g")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
    )


def drive(spark_builder: SparkSession.Builder, begin: Callable[[SparkSession], StreamingQuery]) -> None:
    """Run the query that `begin` starts until SIGTERM or Ctrl-C. Then end its batch, commit, and leave the group."""
    stopping = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopping.set())
    logging.basicConfig()
    logging.getLogger("rallypoint.spark").setLevel(logging.INFO)  # a sink says which rows were there already

    spark = spark_builder.getOrCreate()
    # Only now: PySpark sets a handler of its own, which would cancel the batch.
    signal.signal(signal.SIGINT, lambda *_: stopping.set())
    register(spark)
    query = begin(spark)

    while query.isActive and not stopping.wait(0.2):
        pass
    if query.isActive:
        stop(query)
    query.awaitTermination()
    spark.stop()
