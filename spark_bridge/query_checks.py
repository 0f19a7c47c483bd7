"""Checks what a reader cannot see: the plan and the engine of its query. Runs in the driver's main process.

A reader asks by a file (`control`), and a thread looks for such files:

- `start`, before the reader joins its group: it waits while a query of the session that is refused still runs. So a
  query with Spark's file sink or under asynchronous progress tracking ends before it has read anything.
- `batch`, after its first batch: it waits until the query's progress has been looked at, which shows whether it keeps
  state. The reader is then asked to fail.
- `stop`: the reader has found asynchronous progress tracking by itself. If it failed, Spark's thread would die and the
  query would hang. So it has left its group, and the query is stopped here.

A listener would hear of all this, too. But PySpark copies each progress to Python by many small calls, whether anybody
needs it or not, and that costs half as much as a batch of 1,000 records.
"""

import logging
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pyspark.sql.streaming.query import StreamingQuery

from rallypoint.spark_bridge.control import ControlDirectory, Question, Request
from rallypoint.spark_bridge.errors import BridgeError
from rallypoint.spark_bridge.option_text import OptionText
from rallypoint.spark_bridge.progress_reports import Report, reports_in
from rallypoint.spark_bridge.source import ASYNCHRONOUS, NAME

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQueryManager

log = logging.getLogger("rallypoint.spark")

STATEFUL = (
    "the query keeps state ({operators}), which does not move with a partition to another member of the group, so"
    " its results would be wrong; use a group of its own, or set allowStateful=true if you know that this is right"
)

FILE_SINK = (
    "the query writes with Spark's own file sink, whose log counts the batches of one checkpoint: if drivers share a"
    " folder, readers ignore the batches of all but one, and their records are lost; write with foreachBatch and"
    " rallypoint.spark.ExactlyOnceFiles, or set allowFileSink=true if no other query writes there"
)


class QueryChecks:
    """Answers the readers of all registered sessions. `add` may be called from any thread."""

    def __init__(self, control: ControlDirectory) -> None:
        self._control = control
        self._gateway: Any = None
        """To the JVM of the sessions. A process has one at a time, and another only if the first has died."""
        self._managers: dict[int, StreamingQueryManager] = {}
        """Of the sessions, by the identity of their Java object."""
        self._active_by_id: dict[int, Any] = {}
        """Java's map of the active queries that all sessions of a Spark context have, by its identity."""
        self._allowed: set[str] = set()
        """Runs of active queries that are not refused."""
        self._stopping: set[str] = set()
        """Runs of active queries that are refused."""

    def add(self, spark: "SparkSession") -> None:
        """Check the queries of this session, too, and of all others of its Spark context.

        `foreachBatch` has a session of its own, which knows the source and is never registered.

        The manager and the map are taken here: they answer when the session has been stopped, too.
        """
        gateway, session = spark.sparkContext._gateway, spark._jsparkSession
        if gateway is not self._gateway:
            self._gateway, self._managers, self._active_by_id = gateway, {}, {}
        active_by_id = session.sharedState().activeStreamingQueries()
        self._managers[session.hashCode()] = spark.streams
        self._active_by_id[session.sharedState().hashCode()] = active_by_id

    def run_once(self) -> bool:
        """Answer the questions that there are. Returns True: a question that is not settled comes again.

        Raises the last error; the other questions are answered nevertheless.
        """
        failed: Exception | None = None
        for question in self._control.questions():
            try:
                if self._handle(question):
                    self._control.settle(question.reader_id)
            except Exception as error:  # whatever it is, the thread logs it
                failed = error
        if failed is not None:
            raise failed
        return True

    def manager_of(self, query: StreamingQuery) -> "StreamingQueryManager | None":
        """The manager of a query's session; None if the query has ended, or the session is not registered."""
        run = query.runId
        managers = list(self._managers.values())
        return next((one for one in managers if any(other.runId == run for other in one.active)), None)

    def _handle(self, question: Question) -> bool:
        """Returns whether it is answered."""
        if question.kind == "start":
            return self._stop_refused()
        if question.kind == "batch":
            self._check_state(question.reader_id)
        else:
            for query in self._queries_of(question.reader_id):
                _stop_in_a_thread(query, question.reason)
        return True

    def _stop_refused(self) -> bool:
        """Stop the active queries that are refused. Returns whether there are none.

        Before its first progress it is not known which query a reader belongs to. So no query begins while a refused
        one is still active.
        """
        active: set[str] = set()
        for query in self._active():
            run = query.runId
            active.add(run)
            if run in self._allowed | self._stopping:
                continue
            reason = _refusal(query)
            if reason is None:
                self._allowed.add(run)
            else:
                self._stopping.add(run)
                _stop_in_a_thread(query, reason)
        self._allowed &= active
        self._stopping &= active
        return not self._stopping

    def _check_state(self, reader_id: str) -> None:
        queries = self._queries_of(reader_id)
        if not queries:
            raise BridgeError(
                f"the query of the reader {reader_id} cannot be checked: no active query has a progress that names it,"
                " as if spark.sql.streaming.numRecentProgressUpdates were less than 2"
            )
        for query in queries:
            progress = query.lastProgress
            operators = sorted({one.operatorName for one in progress.stateOperators}) if progress is not None else []
            if not operators:
                continue
            for report in _reports(progress):
                if not report.allow_stateful:
                    request = Request("refuse", STATEFUL.format(operators=", ".join(operators)))
                    self._control.ask(report.reader_id, request)

    def _queries_of(self, reader_id: str) -> list[StreamingQuery]:
        return [query for query in self._active() if reader_id in readers_of(query)]

    def _active(self) -> Iterator[StreamingQuery]:
        for active_by_id in list(self._active_by_id.values()):
            # One that has ended meanwhile is None.
            yield from (StreamingQuery(execution) for execution in active_by_id.values() if execution is not None)


def readers_of(query: StreamingQuery) -> list[str]:
    """The readers of a query, known from its first progress on."""
    progress = query.lastProgress
    return [] if progress is None else [report.reader_id for report in _reports(progress)]


def _reports(progress: Any) -> list[Report]:
    return reports_in(source.latestOffset for source in progress.sources)


def _refusal(query: StreamingQuery) -> str | None:
    """Why a query of the source may not run, by the engine's class, the sink's name and the source options.

    The reader also detects an asynchronous engine, after two batches.
    """
    execution = query._jsq
    is_asynchronous = "Async" in execution.getClass().getSimpleName()
    writes_files = str(execution.sink().toString()).startswith("FileSink[")
    if not is_asynchronous and not writes_files:
        return None
    leaves = execution.analyzedPlan().collectLeaves()
    for leaf in (leaves.apply(index) for index in range(leaves.size())):
        if leaf.getClass().getSimpleName() == "StreamingRelationV2" and leaf.sourceName().lower() == NAME:
            if is_asynchronous:
                return ASYNCHRONOUS
            options = OptionText({"allowFileSink": leaf.extraOptions().getOrDefault("allowFileSink", "false")})
            return None if options.boolean("allowFileSink", default=False) else FILE_SINK
    return None


def _stop_in_a_thread(query: StreamingQuery, reason: str) -> None:
    """Stop a query in a new thread: that may take as long as Spark waits for the query's thread."""
    log.error("query %s: %s", query.id, reason)
    threading.Thread(target=query.stop, name="rallypoint-stop", daemon=True).start()
