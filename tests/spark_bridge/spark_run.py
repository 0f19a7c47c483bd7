"""What a Spark test needs: the service, a session that is light, and a sink that keeps what each batch wrote."""

import json
import logging
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.request import urlopen

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from tests.real.parts import ROOT, free_port, last_lines, stop_process

PATIENCE_SECONDS = 90.0
"""Ten times what an idle machine takes."""


@contextmanager
def running_service(directory: Path, *, port: int = 0, storage: str = "memory:") -> Iterator[str]:
    """The coordinator, on memory and a port of its own unless told otherwise; its URL."""
    command = [sys.executable, "-m", "cli.main", "serve", "--port", str(port), "--storage", storage]
    log = directory / "service.log"
    with log.open("wb") as errors:
        process = subprocess.Popen(
            [*command, "--group-initial-rebalance-delay-ms", "0"], stdout=subprocess.PIPE, stderr=errors, cwd=ROOT
        )
    try:
        assert process.stdout is not None
        line = process.stdout.readline().decode()
        assert line.startswith("listening on "), last_lines(log)
        yield line.split()[-1]
    finally:
        stop_process(process, 10)
        assert process.stdout is not None
        process.stdout.close()


@contextmanager
def running_spark() -> Iterator[SparkSession]:
    """A local session with two threads; loopback, ports below the ephemeral ones."""
    builder = SparkSession.builder.master("local[2]").appName("rallypoint-tests")
    settings = {
        "spark.ui.enabled": "false",
        "spark.driver.memory": "1g",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.port": str(free_port()),
        "spark.blockManager.port": str(free_port()),
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.streaming.stopTimeout": "30s",
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


class Sink:
    """For each record the batches that wrote it, as (query, batch id): a replay of a batch is the same batch."""

    def __init__(self) -> None:
        self.written: dict[tuple[str, int, int], set[tuple[str, int]]] = {}
        self.partitions: dict[str, set[int]] = {}

    def of(self, name: str, before: Callable[[int], None] = lambda batch: None) -> Callable[[DataFrame, int], None]:
        """What `foreachBatch` of the query `name` does; `before` may raise once the records are written."""

        def write(frame: DataFrame, batch: int) -> None:
            rows = [(row.topic, row.partition, row.offset) for row in frame.collect()]
            for row in rows:
                self.written.setdefault(row, set()).add((name, batch))
            self.partitions[name] = {partition for _, partition, _ in rows} or self.partitions.get(name, set())
            before(batch)

        return write

    def check_exactly(self, topic: str, partitions: int, records: int) -> None:
        """Every record of a topic is written, and by one batch."""
        expected = {(topic, partition, offset) for partition in range(partitions) for offset in range(records)}
        assert self.written.keys() == expected, sorted(self.written.keys() ^ expected)[:20]
        twice = {row: batches for row, batches in self.written.items() if len(batches) > 1}
        assert not twice, sorted(twice.items())[:20]


def wait_until(condition: Callable[[], bool], what: str, *queries: StreamingQuery) -> None:
    """Wait for a condition; fail at once if a query ended with an error."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        for query in queries:
            assert query.exception() is None, str(query.exception())
        assert time.monotonic() < deadline, f"{what}: not within {PATIENCE_SECONDS:.0f} s"
        time.sleep(0.05)


def describe(url: str, group: str) -> dict[str, Any]:
    """The group as the service shows it."""
    with urlopen(f"{url}/v1/groups/{group}", timeout=10) as answer:
        value: dict[str, Any] = json.load(answer)
    return value
