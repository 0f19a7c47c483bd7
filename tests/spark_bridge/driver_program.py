"""A driver as a user would write it, with a JVM of its own: `python -m tests.spark_bridge.driver_program [SPEC]`.

Without a SPEC it obeys its standard input, a command a line: `start SPEC`, a query; `stop` it in good order; `idle`,
the same if it runs still; `end`. With one it runs a loop of batches at once, until SIGTERM; exit code 0 if all that was
written is committed. SPEC is a `Spec` as JSON. The words `hold` and `release` are obeyed at any time: while it is held,
a batch stands still once half of its records are written; with `files`, once its files are staged and nothing is
decided.

It says what happens as JSON lines, `what`, `at_s` and more: `ready`; `started`; `held`; `stopped`; `idle`; `failed`,
with the sentence; `ended`. What it writes goes to its ledger's file. It does not say what the query's progress is: a
listener of PySpark's costs as much CPU time as a batch.
"""

import json
import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from rallypoint import spark as rallypoint_spark
from rallypoint.spark_bridge.exactly_once.files import ExactlyOnceFiles
from tests.spark_bridge.ledger import Place, append_rows
from tests.spark_bridge.spark_run import running_spark


@dataclass(frozen=True, slots=True)
class Spec:
    """What a driver is told: the options of the stream, where its checkpoint and its ledger are, jars it needs.

    `files`: a folder into which it writes exactly once, before each batch goes to the ledger.
    """

    options: Mapping[str, str]
    ledger: Path
    checkpoint: Path | None = None
    jars: Sequence[Path] = field(default=())
    files: Path | None = None

    def to_json(self) -> str:
        """For the command line."""
        return json.dumps(asdict(self), default=str)

    @classmethod
    def from_json(cls, text: str) -> "Spec":
        """What `to_json` wrote."""
        value = json.loads(text)
        checkpoint = None if value["checkpoint"] is None else Path(value["checkpoint"])
        files = None if value["files"] is None else Path(value["files"])
        jars = [Path(jar) for jar in value["jars"]]
        return cls(value["options"], Path(value["ledger"]), checkpoint, jars, files)


class Voice:
    """Says one JSON object a line on what was the standard output; what others print there goes to the log."""

    def __init__(self) -> None:
        self._out = os.fdopen(os.dup(1), "w", buffering=1)
        self._lock = threading.Lock()
        os.dup2(2, 1)

    def say(self, what: str, **more: Any) -> None:
        """From any thread."""
        with self._lock:
            self._out.write(json.dumps({"what": what, "at_s": time.monotonic(), **more}) + "\n")


class Sink:
    """What `foreachBatch` calls: it writes to the ledger, and stands still in the middle while it is held."""

    def __init__(self, voice: Voice, ledger: Path) -> None:
        self._voice = voice
        self._ledger = ledger
        self._free = threading.Event()
        self._free.set()

    def hold(self) -> None:
        """The next batch with more than one record stands still."""
        self._free.clear()

    def release(self) -> None:
        """It goes on."""
        self._free.set()

    def write(self, frame: DataFrame, batch: int) -> None:
        """Every other record, then the rest: so a batch that stands still has something of each partition."""
        columns = frame.select("topic", "partition", "offset", "value").collect()
        rows = sorted(((row.topic, row.partition, row.offset), bytes(row.value)) for row in columns)
        if self._free.is_set() or len(rows) < 2:
            append_rows(self._ledger, batch, rows)
            return
        append_rows(self._ledger, batch, rows[::2])
        self._voice.say("held", batch=batch, places=[place for place, _ in rows])
        self._free.wait()
        append_rows(self._ledger, batch, rows[1::2])


class HeldFiles(ExactlyOnceFiles):
    """Stands still, if it is told to, between the staging of a batch and the decision."""

    def __init__(self, path: Path, staged: Callable[[], None]) -> None:
        super().__init__(str(path), "clicks-to-files", partition_by=["partition"])
        self._staged = staged

    def save(self, frame: DataFrame, folder: str) -> None:
        super().save(frame, folder)
        self._staged()


class FilesSink(Sink):
    """Writes each batch into files first; the ledger then says which records the driver took for written."""

    def __init__(self, voice: Voice, ledger: Path, files: Path) -> None:
        super().__init__(voice, ledger)
        self._files = HeldFiles(files, self._stand_still)
        self._batch, self._places = 0, list[Place]()

    def write(self, frame: DataFrame, batch: int) -> None:
        rows = frame.select("topic", "partition", "offset", "value").collect()
        self._batch, self._places = batch, [(row.topic, row.partition, row.offset) for row in rows]
        self._files(frame, batch)
        append_rows(
            self._ledger, batch, [(place, bytes(row.value)) for place, row in zip(self._places, rows, strict=True)]
        )

    def _stand_still(self) -> None:
        if not self._free.is_set():
            self._voice.say("held", batch=self._batch, places=self._places)
            self._free.wait()


def sink_of(spec: Spec, voice: Voice) -> Sink:
    """Where its batches go."""
    return Sink(voice, spec.ledger) if spec.files is None else FilesSink(voice, spec.ledger, spec.files)


class QueryDriver:
    """One query at a time, as it is told."""

    def __init__(self, spark: SparkSession, voice: Voice) -> None:
        self._spark = spark
        self._voice = voice
        self._query: StreamingQuery | None = None
        self.sink: Sink | None = None
        rallypoint_spark.register(spark)

    def obey(self, command: str) -> None:
        """A line of standard input."""
        match command.split(" ", 1):
            case ["start", spec]:
                self.start(Spec.from_json(spec))
            case ["stop"]:
                self.stop()
            case ["idle"]:
                self.idle()
            case _:
                raise ValueError(command)

    def start(self, spec: Spec) -> None:
        """Begin, again if Spark's Python came late."""
        sink = self.sink = sink_of(spec, self._voice)
        self._query = rallypoint_spark.start(lambda: self._begin(spec, sink))
        self._voice.say("started")
        threading.Thread(target=self._await, args=(self._query,), daemon=True).start()

    def stop(self) -> None:
        """In good order."""
        assert self._query is not None
        self._voice.say("stopped", committed=rallypoint_spark.stop(self._query))

    def idle(self) -> None:
        """Have no query, so that the next may be another test's. `committed`: of one that ran, what `stop` said;
        `running`: how many still run.
        """
        is_running = self._query is not None and self._query.isActive
        committed = rallypoint_spark.stop(self._query) if self._query is not None and is_running else True
        self._query, self.sink = None, None
        self._voice.say("idle", committed=committed, running=len(self._spark.streams.active))

    def _begin(self, spec: Spec, sink: Sink) -> StreamingQuery:
        frame = self._spark.readStream.format("rallypoint").options(**spec.options).load()
        writer = frame.writeStream.foreachBatch(sink.write)
        writer = writer.option("checkpointLocation", str(spec.checkpoint))
        return writer.trigger(processingTime="2 seconds").start()

    def _await(self, query: StreamingQuery) -> None:
        try:
            query.awaitTermination()
        except Exception as error:
            self._voice.say("failed", sentence=str(error))


def listen(sink: Callable[[], Sink | None], commands: "SimpleQueue[str]") -> None:
    """Obey what cannot wait, and pass on the rest."""
    for line in sys.stdin:
        command, current = line.strip(), sink()
        if command in {"hold", "release"}:
            assert current is not None, "nothing runs that could be held"
            {"hold": current.hold, "release": current.release}[command]()
        else:
            commands.put(command)
    commands.put("end")


def run_queries(spark: SparkSession, voice: Voice) -> None:
    """One after the other, as it is told, until `end`."""
    commands: SimpleQueue[str] = SimpleQueue()
    driver = QueryDriver(spark, voice)
    threading.Thread(target=listen, args=(lambda: driver.sink, commands), daemon=True).start()
    voice.say("ready")
    while (command := commands.get()) != "end":
        driver.obey(command)


def main(text: str | None) -> None:
    """Run until `end`, or SIGTERM."""
    voice = Voice()
    spec = None if text is None else Spec.from_json(text)
    os.environ["PYSPARK_PYTHON"] = sys.executable
    logging.basicConfig(level=logging.INFO)
    code = 0
    with running_spark(*(() if spec is None else spec.jars)) as spark:
        if spec is None:
            run_queries(spark, voice)
        else:
            sink = sink_of(spec, voice)
            threading.Thread(target=listen, args=(lambda: sink, SimpleQueue()), daemon=True).start()
            code = 0 if rallypoint_spark.batches(spark, spec.options, sink.write, interval_ms=100) else 1
    voice.say("ended")
    sys.exit(code)


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else None)
