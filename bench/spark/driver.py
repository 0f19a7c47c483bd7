"""One Spark driver as a process of its own, which runs queries on request and reports how long they took.

`python -m bench.spark.driver '{"cores": 2, "jars": [...], "conf": {...}}'`. Each line on standard input is a command as
JSON, with `do` and what it needs; each line on standard output is an answer as JSON with `what` and `at_s`, the
system's monotonic clock, which all processes of a machine share. The end of standard input ends the driver.

- `read`: run a query to its end with a sink that throws all rows away, all columns of them. Says `read` with the
  milliseconds of each batch that had records, how many they were, what it took from `register` to the end, and what
  the query took beside all its triggers.
- `load`: the same into PostgreSQL, in one of the `WAYS` of `bench.spark.loads`.
- `start`, `stop`: a query that goes on, whose every batch leaves a file that says which records it wrote.

It runs on the PySpark of whichever Python runs it: nothing else of this project is imported but what a command needs.
"""

import json
import os
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from pyspark import __version__ as pyspark_version
from pyspark.sql import DataFrame, SparkSession

from bench.spark import PLAIN, RALLYPOINT, READY

PATIENCE_S = 240.0


class Driver:
    """A session, and the query that goes on."""

    def __init__(self, say: Callable[..., None], cores: int, jars: list[str], conf: Mapping[str, str]) -> None:
        builder = SparkSession.builder.master(f"local[{cores}]").appName("rallypoint-bench")
        if jars:
            builder = builder.config("spark.jars", ",".join(jars))
        for name, value in conf.items():
            builder = builder.config(name, value)
        self._spark: Any = builder.getOrCreate()
        self._spark.sparkContext.setLogLevel("ERROR")
        self._say = say
        self._query: Any = None
        say("ready", pyspark=pyspark_version)

    def register(self) -> None:
        """Make our source known; a PySpark that is too old for it has no such command."""
        from rallypoint.spark import register  # noqa: PLC0415 - see the module's docstring

        register(self._spark)

    def read(self, format: str, options: Mapping[str, str], checkpoint: str) -> None:  # noqa: A002 - Spark's word
        """All there is, then end."""
        began = time.monotonic()
        self._run("read", self._frame(format, options).writeStream.format("noop"), checkpoint, began)

    def load(self, format: str, options: Mapping[str, str], checkpoint: str, way: str, into: str) -> None:  # noqa: A002
        """All there is, into PostgreSQL."""
        began = time.monotonic()
        from bench.spark.loads import WAYS  # noqa: PLC0415 - see the module's docstring

        stream = self._frame(format, options)
        self._run("loaded", stream.writeStream.foreachBatch(WAYS[way](into, stream.columns)), checkpoint, began)

    def _frame(self, format: str, options: Mapping[str, str]) -> DataFrame:  # noqa: A002
        if format == RALLYPOINT:
            self.register()
        elif format in {READY, PLAIN}:
            from bench.spark.floor_sources import SOURCES  # noqa: PLC0415 - see the module's docstring

            self._spark.dataSource.register(SOURCES[format])
        stream: DataFrame = self._spark.readStream.format(format).options(**options).load()
        return stream

    def _run(self, what: str, writer: Any, checkpoint: str, asked: float) -> None:
        began = time.monotonic()
        query = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
        ended = query.awaitTermination(PATIENCE_S)
        ended_at = time.monotonic()
        triggers = query.recentProgress
        batches = [each for each in triggers if each["numInputRows"]]
        if not ended:
            query.stop()
        self._say(
            what, ended=ended,
            query_ms=(ended_at - asked) * 1000,
            beside_ms=(ended_at - began) * 1000 - sum(each["durationMs"]["triggerExecution"] for each in triggers),
            records=sum(each["numInputRows"] for each in batches),
            batches_ms=[each["durationMs"]["triggerExecution"] for each in batches],
        )  # fmt: skip

    def start(self, name: str, options: Mapping[str, str], checkpoint: str, out: str, hold_s: float) -> None:
        """A member of the group until `stop`. Says `first` with its first batch."""
        from rallypoint import spark as rallypoint_spark  # noqa: PLC0415 - see the module's docstring

        stream = self._frame(RALLYPOINT, options)
        sink = Sink(name, Path(out), hold_s, self._say)
        writer = stream.writeStream.foreachBatch(sink).option("checkpointLocation", checkpoint)
        self._query = rallypoint_spark.start(writer.trigger(processingTime="0 seconds").start)

    def stop(self) -> None:
        """End it in good order. Says `stopped`."""
        from rallypoint import spark as rallypoint_spark  # noqa: PLC0415

        self._say("stopped", committed=rallypoint_spark.stop(self._query))

    def end(self) -> None:
        """Let Spark go."""
        self._spark.stop()


class Sink:
    """Leaves a file for each batch: which records it has, from when to when it was written. A file is whole or not
    there. It then holds the batch for a while, as a slower sink would, so that whoever kills the driver finds one.
    """

    def __init__(self, name: str, out: Path, hold_s: float, say: Callable[..., None]) -> None:
        self._name = name
        self._out = out
        self._hold_s = hold_s
        self._say = say
        self._is_first = True
        # On from those of a query of this name that was here before.
        self._written = len(list(out.glob(f"{name}-*.json")))

    def __call__(self, frame: DataFrame, batch_id: int) -> None:
        """What `foreachBatch` calls."""
        begin_s = time.monotonic()
        records: dict[int, list[int]] = {}
        for row in frame.select("partition", "offset").collect():
            records.setdefault(row.partition, []).append(row.offset)
        if not records:
            return
        self._written += 1
        batch = {"driver": self._name, "number": self._written, "begin_s": begin_s, "end_s": time.monotonic()}
        path = self._out / f"{self._name}-{self._written:06}"
        partial = path.with_suffix(".partial")
        partial.write_text(json.dumps({**batch, "records": records}), "utf-8")
        partial.rename(path.with_suffix(".json"))
        if self._is_first:
            self._is_first = False
            self._say("first", partitions=sorted(records))
        time.sleep(self._hold_s)


def run(arguments: Mapping[str, Any]) -> None:
    """Do what is asked until the end of standard input."""
    # The JVM has this process's standard output, too, and what it writes there is no answer.
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)

    def say(what: str, **more: Any) -> None:
        print(json.dumps({"what": what, "at_s": time.monotonic(), **more}), file=answers, flush=True)

    driver = Driver(say, arguments["cores"], arguments["jars"], arguments["conf"])
    commands: dict[str, Callable[..., None]] = {
        "read": driver.read, "load": driver.load, "start": driver.start, "stop": driver.stop,
    }  # fmt: skip
    for line in sys.stdin:
        given = json.loads(line)
        try:
            commands[given.pop("do")](**given)
        except Exception as error:
            traceback.print_exc()  # into the log; its lines name this machine's folders
            say("failed", error=f"{type(error).__name__}: {str(error).partition(chr(10))[0]}")
    driver.end()


if __name__ == "__main__":
    run(json.loads(sys.argv[1]))
