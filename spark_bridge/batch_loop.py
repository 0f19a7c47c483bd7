"""A driver's own loop of batches: exact ranges as plain DataFrames, committed once the caller's function has returned.

It uses the same member, planner and rules as `format("rallypoint")`, but no streaming query: no checkpoint, no trigger,
no listener. The group's committed offsets are the only position. Everything here runs in the caller's thread.
"""

import json
import logging
import secrets
import signal
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from queue import Empty, SimpleQueue
from types import FrameType
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from rallypoint.spark_bridge.control import ControlDirectory, Request
from rallypoint.spark_bridge.errors import OptionError
from rallypoint.spark_bridge.offsets import INITIAL, Range, StreamOffset, ranges_between
from rallypoint.spark_bridge.options import BridgeOptions
from rallypoint.spark_bridge.planner import Planner
from rallypoint.spark_bridge.planning_process import start_planner
from rallypoint.spark_bridge.redaction import hide_secrets
from rallypoint.spark_bridge.registration import choose_python
from rallypoint.spark_bridge.source import RangesPartition, spark_schema
from rallypoint.spark_bridge.source_options import SourceOptions
from rallypoint.spark_bridge.source_pool import read_task
from rallypoint.spark_bridge.sources.registry import parse_for_source
from rallypoint.spark_bridge.spark_connect import refuse_connect
from rallypoint.spark_bridge.splitting import input_partitions

if TYPE_CHECKING:
    from pyarrow import RecordBatch

log = logging.getLogger("rallypoint.spark")

Write = Callable[[DataFrame, int], None]
Reader = Literal["spark", "bridge"]

READ_COMMITTED = {"kafka.isolation.level": "read_committed"}


class BatchLoop:
    """Reads what the group assigns to this driver, batch by batch, and calls `write(frame, batch_id)` with each.

    A batch is committed when `write` has returned, before the next one is planned. Partitions are handed over in
    between. If `write` raises, nothing is committed, and the next reader starts with the same records.

    `options`: those of `format("rallypoint")`, as text.
    `write`: called with each batch; `batch_id` counts from 0 in each run.
    `reader`: `spark` reads with Spark's own Kafka source, whose connector must be on the class path; it is the default
    for the source `kafka`. `bridge` reads with the bridge's source, the default for all others.
    `reader_options`: for Spark's Kafka source, if its options differ from librdkafka's, as with SASL.
    `interval_ms`: the pause if there is nothing to read.

    Raises OptionError for options that are missing, unknown or invalid.
    """

    def __init__(
        self,
        spark: SparkSession,
        options: Mapping[str, str],
        write: Write,
        *,
        reader: Reader | None = None,
        reader_options: Mapping[str, str] | None = None,
        interval_ms: int = 1_000,
    ) -> None:
        refuse_connect(spark, "BatchLoop")
        if interval_ms < 1:
            raise ValueError(f"interval_ms: {interval_ms} must be at least 1")
        self._spark = spark
        self._options = parse_for_source(options)[0]
        self._write = write
        self._interval_seconds = interval_ms / 1000
        self._frame_of = self._choose_reader(reader, dict(reader_options or {}))
        self._stopping = False
        self._running: tuple[ControlDirectory, str] | None = None
        """The control directory and the reader id of the current run."""
        # `stop` may interrupt the running thread between any two of its steps, so neither may block it.
        self._lock = threading.RLock()
        self._wake: SimpleQueue[None] = SimpleQueue()

    def run(self, *, available_now: bool = False) -> bool:
        """Read until `stop`, or with `available_now` until everything is read that was there at the beginning.

        Returns True if everything that was written is committed. Returns False if the last batch could not be
        committed, because no coordinator answered or its partitions were lost; it will be read again. An error of
        `write`, the source or the member ends the run. The member always leaves the group at the end.
        """
        control = ControlDirectory.create()
        try:
            planner = start_planner(self._options, str(control.path), in_query=False)
            try:
                return self._run(planner, control, available_now)
            finally:
                with self._lock:
                    self._running = None
                planner.close()
        finally:
            control.remove()

    def stop(self) -> None:
        """End the run gracefully: finish and commit the current batch, leave the group.

        A run that waits for partitions ends at once. May be called from any thread and in a signal handler. A stopped
        loop cannot run again.
        """
        with self._lock:
            if not self._stopping:
                self._stopping = True
                self._ask()
        self._wake.put(None)

    def _ask(self) -> None:
        """Leave the reader the request to stop, if there is one."""
        if self._running is not None:
            control, reader_id = self._running
            control.ask(reader_id, Request("stop"))

    def _run(self, planner: Planner, control: ControlDirectory, available_now: bool) -> bool:
        reader_id = planner.report()["rallypoint"]["reader_id"]
        with self._lock:
            self._running = control, reader_id
            if self._stopping:
                self._ask()
        if available_now:
            planner.prepare_available_now()
        most, least = self._options.max_offsets_per_trigger, self._options.min_offsets_per_trigger
        start: Mapping[str, Any] = INITIAL
        batch_id = 0
        while True:
            end = planner.latest_offset(start, most, least)
            if (answer := control.answer(reader_id)) is not None:
                if not answer.committed:
                    log.warning("the last batch may be read again by its next owner: %s", answer.detail)
                return answer.committed
            if end != start:
                ranges = ranges_between(StreamOffset.from_dict(start), StreamOffset.from_dict(end))
                self._write(self._frame_of(ranges), batch_id)
                start, batch_id = end, batch_id + 1
            elif available_now:
                self.stop()
            else:
                with suppress(Empty):
                    self._wake.get(timeout=self._interval_seconds)

    # --- frames ------------------------------------------------------------------------------------------------------

    def _choose_reader(self, reader: Reader | None, extra: dict[str, str]) -> Callable[[Sequence[Range]], DataFrame]:
        source = self._options.source
        if reader is None:
            reader = "spark" if source.name == "kafka" else "bridge"
        if reader == "bridge":
            if extra:
                raise OptionError("reader_options", "are for reader='spark'; the bridge's own reader takes none")
            choose_python(self._spark)
            found = ranges_source(self._options, self._spark.sparkContext.defaultParallelism)
            self._spark.dataSource.register(found)
            return lambda ranges: self._read(found.name(), {"ranges": json.dumps(ranges)})
        if reader != "spark":
            raise OptionError("reader", f"spark or bridge, not {reader!r}")
        if source.name != "kafka":
            raise OptionError("reader", f"Spark has no reader of its own for the source {source.name!r}")
        hide_secrets(self._spark.conf)
        given = {name: value for name, value in source.own.items() if name.startswith("kafka.")}
        flags = {
            "includeHeaders": str(source.include_headers).lower(),
            "failOnDataLoss": str(source.fail_on_data_loss).lower(),
        }
        return lambda ranges: self._read("kafka", {**READ_COMMITTED, **given, **flags, **extra, **kafka_ranges(ranges)})

    def _read(self, form: str, options: Mapping[str, str]) -> DataFrame:
        return self._spark.read.format(form).options(**options).load()


def run_batches(
    spark: SparkSession,
    options: Mapping[str, str],
    write: Write,
    *,
    available_now: bool = False,
    reader: Reader | None = None,
    reader_options: Mapping[str, str] | None = None,
    interval_ms: int = 1_000,
) -> bool:
    """Run a `BatchLoop` until SIGTERM, which ends it gracefully; a second SIGTERM ends it at once.

    Only the main thread handles signals. See `BatchLoop` for the parameters and `BatchLoop.run` for the result.
    """
    loop = BatchLoop(spark, options, write, reader=reader, reader_options=reader_options, interval_ms=interval_ms)
    with stopped_by_sigterm(loop):
        return loop.run(available_now=available_now)


@contextmanager
def stopped_by_sigterm(loop: BatchLoop) -> Iterator[None]:
    """Turn the first SIGTERM into `stop`, and restore the previous handler at the end."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(signum: int, frame: FrameType | None) -> None:
        signal.signal(signum, before)
        loop.stop()

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def kafka_ranges(ranges: Sequence[Range]) -> dict[str, str]:
    """Exact ranges as options of Spark's Kafka source. One range for each partition."""
    assign: dict[str, list[int]] = {}
    starts: dict[str, dict[str, int]] = {}
    ends: dict[str, dict[str, int]] = {}
    for one in ranges:
        assign.setdefault(one.topic, []).append(one.partition)
        starts.setdefault(one.topic, {})[str(one.partition)] = one.start
        ends.setdefault(one.topic, {})[str(one.partition)] = one.end
    return {"assign": json.dumps(assign), "startingOffsets": json.dumps(starts), "endingOffsets": json.dumps(ends)}


def ranges_source(options: BridgeOptions, parallelism: int) -> type["RangesDataSource"]:
    """The class to register. A class made in a function is pickled by value, with the source's options.

    These contain no token and no coordinator.
    """

    class RegisteredRanges(RangesDataSource):
        """Of one loop."""

        format_name = f"rallypoint-ranges-{secrets.token_hex(8)}"
        source_options = options.source
        min_partitions = options.min_partitions
        max_records = options.max_records_per_partition
        tasks = options.parallelism or parallelism

    return RegisteredRanges


class RangesDataSource(DataSource):
    """Exact ranges of a source of the bridge, as a DataFrame. One option: `ranges`, as JSON."""

    format_name: ClassVar[str]
    source_options: ClassVar[SourceOptions]
    min_partitions: ClassVar[int | None]
    max_records: ClassVar[int | None]
    tasks: ClassVar[int]

    @classmethod
    def name(cls) -> str:
        """One for each loop."""
        return cls.format_name

    def schema(self) -> StructType:
        """As that of the stream."""
        return spark_schema(self.source_options.include_headers)

    def reader(self, schema: StructType) -> "RangesReader":
        """See `RangesReader`."""
        ranges = [Range(*one) for one in json.loads(self.options["ranges"])]
        groups = input_partitions(
            ranges, parallelism=self.tasks, min_partitions=self.min_partitions, max_records=self.max_records
        )
        return RangesReader(self.source_options, groups)


class RangesReader(DataSourceReader):
    """Reads what it was made with. The methods are Spark's."""

    def __init__(self, options: SourceOptions, groups: Sequence[Sequence[Range]]) -> None:
        self._options = options
        self._groups = groups

    def partitions(self) -> Sequence[InputPartition]:
        """One a task."""
        return [RangesPartition(group) for group in self._groups]

    def read(self, partition: InputPartition) -> Iterator["RecordBatch"]:
        """On an executor."""
        return read_task(self._options, partition.value)
