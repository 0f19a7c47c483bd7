"""The data source "rallypoint" as Spark sees it. All that is known about PySpark's calls is in this file and in
`registration`.

Where the objects live, as PySpark 4.3 runs them:

- `load()`: a short-lived process makes the `RallypointDataSource`, which checks the options.
- Query start: a second short-lived process makes a reader, only to pickle it for the executors.
- The query: one long-lived process beside the driver makes the reader that plans. Spark calls it on its main thread,
  and ends it with SIGTERM when the query stops, mostly without calling `stop`.
- Executors unpickle the reader and call `read`.

So nothing starts before the first planning call, and only what `read` needs is pickled: no coordinator, no token. Each
of these processes imports this module, one for each task that runs at a time among them, so what only a planner needs
is imported where one is made: a member, its HTTP client and the models of its messages take longer than a small batch.
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
    " be complete, and the group would be told of records that may never be written"
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
    """What `format("rallypoint")` finds. `register` makes a subclass that knows a control directory."""

    control_directory: ClassVar[str | None] = None
    parallelism: ClassVar[int] = 1
    """How many tasks the session runs at a time, as far as it knew when the class was registered."""

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
        """Fixed but for the headers. Not called where the user has given columns."""
        self._is_schema_ours = True
        return spark_schema(self._take_options().source.include_headers)

    def streamReader(self, schema: StructType) -> "RallypointReader":  # noqa: N802
        """Called once in each process. This object travels to the executors behind the reader, so it forgets all."""
        reader = RallypointReader(self._take_options(), self.control_directory, self.parallelism)
        self._bridge = None
        self.options = {}
        return reader

    def __getstate__(self) -> dict[str, Any]:
        """Pickled first when Spark has a schema, and asks for the reader only when the query starts."""
        if not self._is_schema_ours:
            with traceback_hidden():
                raise SchemaRefused("schema", "cannot be given: the columns are fixed; leave .schema(...) out")
        return self.__dict__

    def _take_options(self) -> "BridgeOptions":
        assert self._bridge is not None, "streamReader is called once"
        return self._bridge


class RallypointReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans in one process, reads in others. The methods are Spark's."""

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
        """The same for every query: all starts live in the offsets."""
        return dict(INITIAL)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """From `maxOffsetsPerTrigger`, else `minOffsetsPerTrigger`; Spark passes it back where its trigger wants it."""
        assert self._options is not None
        most, least = self._options.max_offsets_per_trigger, self._options.min_offsets_per_trigger
        if most is not None:
            return ReadMaxRows(most)
        return ReadAllAvailable() if least is None else ReadMinRows(least)

    @hides_traceback
    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Called before anything else of an `availableNow` query."""
        self._live().prepare_available_now()

    @hides_traceback
    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """Commit what is complete, keep or take partitions, plan."""
        assert self._options is not None
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        least = None if isinstance(limit, ReadAllAvailable) else self._options.min_offsets_per_trigger
        end = dict(self._live().latest_offset(start, most, least))
        self._order.planned(end)
        return end

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        """Shown in the query's progress; `register`'s listener and `stop` read it."""
        return None if self._planner is None else self._planner.report()

    @hides_traceback
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[RangesPartition]:
        """Depends on the two offsets alone. Where the order of calls shows that batches may not be complete when they
        are taken for complete, the query withdraws from its group.
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
        """On an executor: a source for the task's ranges, which stays for the next task."""
        with traceback_hidden():
            yield from read_task(self._source_options, partition.value)

    def commit(self, end: dict[str, Any]) -> None:
        """Comes once the next batch is planned, hence too late to be of use; only its place in the order counts."""
        self._order.committed(end)

    def stop(self) -> None:
        """Leave, commit nothing."""
        if self._planner is not None:
            self._planner.close()

    def _live(self) -> "Planner":
        if self._planner is None:
            assert self._options is not None, "a pickled reader only reads"
            from rallypoint.spark_bridge.planning_process import start_planner  # noqa: PLC0415 - see the module's docstring

            self._planner = start_planner(self._options, self._control_directory)
            _leave_when_terminated()
        return self._planner


class CallOrder:
    """Notices from the order of Spark's calls that the commit log is written asynchronously.

    In the plain engine the commit of a batch's start comes before the batch is partitioned. A batch that was planned by
    an earlier process is replayed without either.
    """

    def __init__(self) -> None:
        self._planned: str | None = None
        self._committed: str | None = None

    def planned(self, end: Mapping[str, Any]) -> None:
        """`latestOffset` returned this."""
        self._planned = json.dumps(end)

    def committed(self, end: Mapping[str, Any]) -> None:
        """`commit` was called with this."""
        self._committed = json.dumps(end)

    def is_asynchronous(self, start: Mapping[str, Any], end: Mapping[str, Any]) -> bool:
        """Whether `partitions`, called with these, shows it."""
        first = not start or start == end
        return not first and json.dumps(end) == self._planned and json.dumps(start) != self._committed


def _leave_when_terminated() -> None:
    """Turn Spark's SIGTERM into an orderly end, which runs `stop`: partitions are free at once, not after a session.

    Spark signals more than once and waits for nothing, so the first signal counts.
    """
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, _end)


def _end(signum: int, frame: FrameType | None) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sys.exit(128 + signum)
