"""The data source `rallypoint`: implements PySpark's interface of a streaming data source.

The processes in which PySpark 4.3 creates the objects:

- `load()`: a short-lived process creates the `RallypointDataSource`, which checks the options.
- Query start: a second short-lived process creates a reader, only to pickle it for the executors.
- The query: one long-lived process beside the driver creates the reader that plans. Spark calls it on its main thread,
  and ends it with SIGTERM when the query stops, mostly without calling `stop`.
- Executors unpickle the reader and call `read`.

So nothing starts before the first planning call, and only what `read` needs is pickled: no coordinator, no token. Each
of these processes imports this module, also the worker processes of tasks. So the imports of a planner (a member, its
HTTP client and the models of its messages), which take longer than a small batch, run only when one is created.
"""

import json
import signal
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from types import FrameType
from typing import TYPE_CHECKING, Any, ClassVar

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from rallypoint.spark_bridge.errors import SchemaRefused
from rallypoint.spark_bridge.hidden_tracebacks import hides_traceback, traceback_hidden
from rallypoint.spark_bridge.offsets import INITIAL, Range, StreamOffset, ranges_between
from rallypoint.spark_bridge.source_options import SourceOptions
from rallypoint.spark_bridge.source_pool import read_task
from rallypoint.spark_bridge.sources.registry import parse_for_source
from rallypoint.spark_bridge.splitting import input_partitions

if TYPE_CHECKING:
    from pyarrow import RecordBatch

    from rallypoint.spark_bridge.options import BridgeOptions
    from rallypoint.spark_bridge.planner import Planner

NAME = "rallypoint"

ASYNCHRONOUS = (
    "asyncProgressTrackingEnabled cannot be used: with it Spark asks for the next batch before the last one is known to"
    " be complete, so offsets of records that may never be written would be committed"
)


def spark_schema(include_headers: bool) -> StructType:
    """The columns of Spark's own Kafka source."""
    header = StructType([StructField("key", StringType()), StructField("value", BinaryType())])
    columns = [
        StructField("key", BinaryType()),
        StructField("value", BinaryType()),
        StructField("topic", StringType()),
        StructField("partition", IntegerType()),
        StructField("offset", LongType()),
        StructField("timestamp", TimestampType()),
        StructField("timestampType", IntegerType()),
    ]
    return StructType([*columns, StructField("headers", ArrayType(header))] if include_headers else columns)


class RangesPartition(InputPartition):
    """One Spark task: ranges that are read one after another."""

    def __init__(self, ranges: Sequence[Range]) -> None:
        super().__init__([tuple(one) for one in ranges])


class RallypointDataSource(DataSource):
    """The class behind `format("rallypoint")`. `register` creates a subclass with a control directory."""

    control_directory: ClassVar[str | None] = None
    parallelism: ClassVar[int] = 1
    """How many tasks the session runs at a time, as of the registration of the class."""

    def __init__(self, options: dict[str, str]) -> None:
        super().__init__(options)
        self._is_schema_ours = False
        with traceback_hidden():
            self._bridge: BridgeOptions | None = parse_for_source(options)[0]

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return NAME

    def schema(self) -> StructType:
        """The columns, fixed except for the headers. Spark does not call it if the user has given a schema."""
        self._is_schema_ours = True
        return spark_schema(self._take_options().source.include_headers)

    def streamReader(self, schema: StructType) -> "RallypointReader":  # noqa: N802
        """Create the reader. Called once in each process.

        Spark sends this object to the executors with the reader, so it drops its options.
        """
        reader = RallypointReader(self._take_options(), self.control_directory, self.parallelism)
        self._bridge = None
        self.options = {}
        return reader

    def __getstate__(self) -> dict[str, Any]:
        """Refuse a schema of the user: Spark pickles this object before it creates a reader."""
        if not self._is_schema_ours:
            with traceback_hidden():
                raise SchemaRefused("schema", "cannot be given: the columns are fixed; leave .schema(...) out")
        return self.__dict__

    def _take_options(self) -> "BridgeOptions":
        assert self._bridge is not None, "streamReader is called once"
        return self._bridge


class RallypointReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans in one process, and reads in others. Spark calls the methods."""

    def __init__(self, options: "BridgeOptions", control_directory: str | None, parallelism: int) -> None:
        self._parallelism = options.parallelism or parallelism
        self._source_options: SourceOptions = options.source
        self._options: BridgeOptions | None = options
        self._control_directory = control_directory
        self._planner: Planner | None = None
        self._order = CallOrder()

    def __getstate__(self) -> dict[str, Any]:
        return {"_source_options": self._source_options}

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        """The same for every query: the starts of partitions are part of later offsets."""
        return dict(INITIAL)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """The limit by `maxOffsetsPerTrigger` or `minOffsetsPerTrigger`. Spark passes it to `latestOffset`."""
        assert self._options is not None
        most, least = self._options.max_offsets_per_trigger, self._options.min_offsets_per_trigger
        if most is not None:
            return ReadMaxRows(most)
        return ReadAllAvailable() if least is None else ReadMinRows(least)

    @hides_traceback
    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Fix the end of an `availableNow` query. Spark calls it first."""
        self._live().prepare_available_now()

    @hides_traceback
    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """Commit what is complete, take assigned partitions, and plan the next batch."""
        assert self._options is not None
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        least = None if isinstance(limit, ReadAllAvailable) else self._options.min_offsets_per_trigger
        end = dict(self._live().latest_offset(start, most, least))
        self._order.planned(end)
        return end

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        """The report in the query's progress, which `stop` and the checks of the driver read."""
        return None if self._planner is None else self._planner.report()

    @hides_traceback
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[RangesPartition]:
        """The input partitions of a batch, which depend only on its two offsets.

        If the order of calls shows asynchronous progress tracking, the query withdraws from its group.
        """
        if self._planner is not None and self._order.is_asynchronous(start, end):
            self._planner.withdraw(ASYNCHRONOUS)
        assert self._options is not None
        groups = input_partitions(
            ranges_between(StreamOffset.from_dict(start), StreamOffset.from_dict(end)),
            parallelism=self._parallelism,
            min_partitions=self._options.min_partitions,
            max_records=self._options.max_records_per_partition,
        )
        return [RangesPartition(group) for group in groups]

    def read(self, partition: InputPartition) -> Iterator["RecordBatch"]:
        """Read a task's ranges on an executor, with a source from the pool."""
        with traceback_hidden():
            yield from read_task(self._source_options, partition.value)

    def commit(self, end: dict[str, Any]) -> None:
        """Record the call, whose position in the order matters. Spark calls it after the next batch is planned."""
        self._order.committed(end)

    def stop(self) -> None:
        """Leave the group without committing."""
        if self._planner is not None:
            self._planner.close()

    def _live(self) -> "Planner":
        if self._planner is None:
            assert self._options is not None, "a pickled reader only reads"
            from rallypoint.spark_bridge.planning_process import start_planner  # noqa: PLC0415 - see the module's docstring

            self._planner = start_planner(self._options, self._control_directory, in_query=True)
            _leave_when_terminated()
        return self._planner


class CallOrder:
    """Detects asynchronous progress tracking by the order of Spark's calls.

    The synchronous engine calls `commit` with a batch's start before it calls `partitions` for the batch. A replayed
    batch, which an earlier process planned, is partitioned without `commit`.
    """

    def __init__(self) -> None:
        self._planned: str | None = None
        self._committed: str | None = None

    def planned(self, end: Mapping[str, Any]) -> None:
        """Record the result of `latestOffset`."""
        self._planned = json.dumps(end)

    def committed(self, end: Mapping[str, Any]) -> None:
        """Record the argument of `commit`."""
        self._committed = json.dumps(end)

    def is_asynchronous(self, start: Mapping[str, Any], end: Mapping[str, Any]) -> bool:
        """Whether a call of `partitions` with these offsets shows asynchronous progress tracking."""
        first = not start or start == end
        return not first and json.dumps(end) == self._planned and json.dumps(start) != self._committed


def _leave_when_terminated() -> None:
    """Let SIGTERM exit the process normally, which runs `stop`: the group reassigns the partitions at once.

    Spark sends the signal repeatedly, so only the first one counts.
    """
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, _end)


def _end(signum: int, frame: FrameType | None) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sys.exit(128 + signum)
