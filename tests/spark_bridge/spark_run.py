"""What a Spark test needs: the service, a session that is light, queries that read a topic fixture, and patience.

PySpark is imported when it is wanted, for some who need the service alone.
"""

import logging
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

import pytest

from tests.end_to_end.forked_process import ForkedProcess
from tests.real.java_classes import SETTINGS
from tests.real.parts import free_port, last_lines, stop_process
from tests.spark_bridge.topic_fixture import TopicFixture

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

WITH_SPARK = [
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.timeout(600),
    # PySpark leaves sockets to the collector, and calls what Python 3.12 will drop.
    pytest.mark.filterwarnings("default"),
]
"""The marks of tests that run Spark."""
WITH_DRIVERS = [*WITH_SPARK, pytest.mark.drivers]
"""Of those that start several drivers: another process runs them, of several that run tests."""

PATIENCE_SECONDS = 240.0
"""Twenty times what an idle machine takes; several processes of tests share two cores with what they start."""


@contextmanager
def running_service(
    directory: Path, *, port: int = 0, storage: str = "memory:", more: Sequence[str] = ()
) -> Iterator[str]:
    """The coordinator, on memory and a port of its own unless told otherwise; its URL. `more`: further arguments."""
    arguments = ("serve", "--port", str(port), "--storage", storage, *more, "--group-initial-rebalance-delay-ms", "0")
    log = directory / "service.log"
    with log.open("w") as errors:
        process = ForkedProcess("rallypoint.cli.main", arguments, os.environ, errors)
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line.startswith("listening on "), last_lines(log)
        yield line.split()[-1]
    finally:
        stop_process(process, 10)
        assert process.stdout is not None
        process.stdout.close()


@contextmanager
def running_spark(*jars: Path) -> "Iterator[SparkSession]":
    """A local session with two threads; loopback, ports below the ephemeral ones. `jars`: more for its class path."""
    from pyspark.sql import SparkSession  # noqa: PLC0415 - see the module's text

    builder = SparkSession.builder.master("local[2]").appName("rallypoint-tests")
    settings = {
        "spark.ui.enabled": "false",
        "spark.driver.memory": "1g",
        # A session lives for a minute or two: the best code that a JVM can make for it comes too late to pay.
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.port": str(free_port()),
        "spark.blockManager.port": str(free_port()),
        **SETTINGS,
        "spark.sql.streaming.stopTimeout": "30s",
        **({"spark.jars": ",".join(map(str, jars))} if jars else {}),
    }
    for name, value in settings.items():
        builder = builder.config(name, value)
    # It takes leave of each connection when the interpreter ends, by a stream that is closed then.
    logging.getLogger("py4j").setLevel(logging.WARNING)
    session: SparkSession = builder.getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    try:
        yield session
    finally:
        session.stop()


def wait_until(
    condition: Callable[[], bool],
    what: str,
    *queries: "StreamingQuery",
    failed: Callable[[], str] = lambda: "",
    pause_seconds: float = 0.05,
) -> None:
    """Wait for a condition; fail at once if a query ended with an error, or with what `failed` says."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        for query in queries:
            assert query.exception() is None, str(query.exception())
        assert not (trouble := failed()), trouble
        assert time.monotonic() < deadline, f"{what}: not within {PATIENCE_SECONDS:.0f} s"
        time.sleep(pause_seconds)


class QueryFixture(TopicFixture):
    """A topic fixture, and queries of this process that read it."""

    def __init__(self, spark: "SparkSession", url: str, path: Path) -> None:
        super().__init__(url, path)
        self._spark = spark

    def load(self, **options: str) -> "DataFrame":
        """The stream. Options with an empty value are left out."""
        return self._spark.readStream.format("rallypoint").options(**self.options(**options)).load()

    def start(
        self,
        name: str,
        *,
        available_now: bool = False,
        before: Callable[[int], None] = lambda batch: None,
        write: Callable[["DataFrame", int], None] | None = None,
        options: Mapping[str, str] = MappingProxyType({}),
    ) -> "StreamingQuery":
        """A query with a checkpoint of this name, into the ledger unless it is to `write` elsewhere."""
        writer = self.load(**options).writeStream.foreachBatch(write or self.ledger.of(name, before))
        writer = writer.option("checkpointLocation", self.checkpoint(name))
        if available_now:
            return writer.trigger(availableNow=True).start()
        return writer.trigger(processingTime="200 milliseconds").start()

    def checkpoint(self, name: str) -> str:
        """Where a query of this name has its checkpoint."""
        return str(self.path / f"checkpoint-{name}")

    def run(self, name: str, **options: str) -> None:
        """A query that reads what is there."""
        query = self.start(name, available_now=True, options=options)
        assert query.awaitTermination(int(PATIENCE_SECONDS))

    def wait_for_all(self, *queries: "StreamingQuery") -> None:
        """Until the ledger has as many records as there are."""
        wait_until(lambda: len(self.ledger.written) >= self.produced, f"{self.produced} records", *queries)

    def stop_all(self) -> None:
        """At the end of a test, whatever came of it."""
        for query in self._spark.streams.active:
            query.stop()
