"""The driver's main process: registers the data source, listens to its queries, and stops a query gracefully."""

import atexit
import logging
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

from rallypoint.spark_bridge.control import ControlDirectory, Request
from rallypoint.spark_bridge.errors import RegistrationError
from rallypoint.spark_bridge.option_text import OptionText
from rallypoint.spark_bridge.progress_reports import Report, reports_in
from rallypoint.spark_bridge.redaction import hide_secrets
from rallypoint.spark_bridge.source import ASYNCHRONOUS, RallypointDataSource
from rallypoint.spark_bridge.stopping import Stop, run_beside

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

log = logging.getLogger("rallypoint.spark")

NEEDED = ("pyarrow", "aiohttp", "pydantic", "rallypoint.spark_bridge.planning_process")
"""Modules that the Python interpreter of Spark's workers must have."""

CHECK = """
import sys
from importlib.util import find_spec

print(*sys.version_info[:2], sep=".")
for name in sys.argv[1:]:
    if find_spec(name) is None:
        raise ModuleNotFoundError(f"No module named {name!r}")
"""
"""A program that finds modules without importing them: an import of all takes ten times as long, and a session's first
query waits for it."""

CHECK_SECONDS = 60.0

LOOK_SECONDS = 0.01
"""How often to ask whether the start of a refused query has been announced: it must be stopped before it reads. And
whether the end of a stopped one has been."""

END_SECONDS = 5.0
"""How long a stop waits until the listener has heard of the end of the query."""

STATEFUL = (
    "the query keeps state ({operators}), which does not move with a partition to another member of the group, so"
    " its results would be wrong; use a group of its own, or set allowStateful=true if you know that this is right"
)

FILE_SINK = (
    "the query writes with Spark's own file sink, whose log counts the batches of one checkpoint: if drivers share a"
    " folder, readers ignore the batches of all but one, and their records are lost; write with foreachBatch and"
    " rallypoint.spark.ExactlyOnceFiles, or set allowFileSink=true if no other query writes there"
)

_control: ControlDirectory | None = None
"""One directory for this process: reader ids are unique, so sessions may share it."""

_usable: set[str] = set()
"""Python executables that can run the bridge. A check takes as long as starting a query, so each is checked once."""

_watched: set[int] = set()
"""Sessions, by the identity of their Java object, that have the listener."""

_runs: set[str] = set()
"""Runs of queries whose start a listener has heard of, and whose end it has not."""


def register(spark: SparkSession) -> None:
    """Register `format("rallypoint")` with a session, and listen to its queries. May be called again.

    `spark`: a session in this process. Spark Connect is not supported.

    Checks that the Python interpreter of Spark's workers can run the bridge. If it cannot, a local master is switched
    to this process's interpreter; otherwise RegistrationError contains the line to add to your program.
    """
    hide_secrets(spark.conf)
    choose_python(spark)
    spark.dataSource.register(source_class(control_directory(), spark.sparkContext.defaultParallelism))
    session = spark._jsparkSession.hashCode()
    if session not in _watched:
        _watched.add(session)
        spark.streams.addListener(QueryListener(spark, control_directory()))


def stop(query: "StreamingQuery", timeout_ms: int = 60_000) -> bool:
    """Stop a query so that nothing is read again: plan no more, wait for the batch in flight, commit, leave, stop.

    `query`: a query that reads the format `rallypoint`.
    `timeout_ms`: how long to wait until Spark asks for new data: give it more than a batch and a trigger interval take.

    Returns True if everything that the query completed is committed. Returns False if the query had lost its
    partitions, or had ended by itself before its reader received the request. Raises StopTimeout after `timeout_ms`;
    the query keeps running as before. If the reader has received the request by then, it plans nothing more, so `stop`
    waits for its answer. Returns when the listeners of the session have heard of the end, or after five seconds more.
    May be called from any thread and in a signal handler.
    """
    control = control_directory()

    def attempt(sleep: Callable[[float], None], say: Callable[[str], None]) -> bool:
        is_committed = Stop(query, control, lambda: _readers(query), sleep=sleep, say=say).run(timeout_ms)
        _wait_until_heard(str(query.runId), sleep)
        return is_committed

    return run_beside(attempt)


def _wait_until_heard(run: str, sleep: Callable[[float], None]) -> None:
    """Wait until the listener has heard of the end of a run.

    A program mostly ends after its `stop`. Were Spark still about to tell the listener then, it would find no Python
    and log that, with a traceback.
    """
    deadline = time.monotonic() + END_SECONDS
    while run in _runs and time.monotonic() < deadline:
        sleep(LOOK_SECONDS)
    sleep(LOOK_SECONDS)  # what the listener returns is on its way to Spark


def choose_python(spark: SparkSession) -> None:
    """Make Spark start a Python interpreter that can run the bridge. Raises RegistrationError if there is none."""
    context = spark.sparkContext
    chosen = context.pythonExec
    if chosen in _usable:
        return
    problem = problem_of_python(chosen)
    if problem is None:
        _usable.add(chosen)
        return
    line = f'os.environ["PYSPARK_PYTHON"] = "{sys.executable}"'
    sentence = f"Spark starts the Python {chosen!r}, where the bridge cannot run: {problem}"
    if str(context.master).startswith("local") and chosen != sys.executable:
        own_problem = problem_of_python(sys.executable)
        if own_problem is None:
            context.pythonExec = sys.executable
            _usable.add(sys.executable)
            log.warning(
                "%s; taking %s instead. To choose it yourself, write before the session: %s",
                sentence,
                sys.executable,
                line,
            )
            return
    raise RegistrationError(f"{sentence}. Before the SparkSession is made, write: {line}")


def problem_of_python(executable: str) -> str | None:
    """Why a Python interpreter cannot run the bridge; None if it can. Starts it, and looks for `NEEDED` there."""
    try:
        done = subprocess.run(
            [executable, "-c", CHECK, *NEEDED], capture_output=True, text=True, timeout=CHECK_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"it cannot be started ({error})"
    own = "{}.{}".format(*sys.version_info[:2])
    version = done.stdout.strip()
    if version and version != own:
        return f"it is Python {version}, and the driver runs {own}"
    if done.returncode != 0:
        return (done.stderr.strip().splitlines() or [f"it ended with {done.returncode}"])[-1]
    return None


def source_class(control: ControlDirectory, tasks: int) -> type[RallypointDataSource]:
    """Create the class to register. It is pickled by value, as it is created in a function, with its attributes.

    `control`: the directory whose path it carries.
    `tasks`: how many tasks the session runs at a time.
    """

    class RegisteredDataSource(RallypointDataSource):
        """`rallypoint`, with the control directory of this driver."""

        control_directory = str(control.path)
        parallelism = tasks

    return RegisteredDataSource


def control_directory() -> ControlDirectory:
    """The directory of this process; removed when it ends."""
    global _control  # noqa: PLW0603 - one for the life of the process
    if _control is None:
        _control = ControlDirectory.create()
        atexit.register(_control.remove)
    return _control


class QueryListener(StreamingQueryListener):
    """Checks what the reader cannot see: a query's plan and engine.

    It asks the reader of a stateful query to fail. It stops a query under asynchronous progress tracking, or with
    Spark's file sink, before it reads anything, and logs the reason. If the reader failed under asynchronous progress
    tracking, Spark's thread would die and the query would hang. Records that the file sink leaves out would be
    committed.
    """

    def __init__(self, spark: SparkSession, control: ControlDirectory) -> None:
        self._spark = spark
        self._control = control
        self._checked: set[str] = set()

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802
        """Check the engine and the sink. Spark starts the source only after all listeners have returned."""
        _runs.add(str(event.runId))
        query = self._spark.streams.get(str(event.id))
        reason = None if query is None else _refusal(query)
        if query is not None and reason is not None:
            log.error("query %s: %s", event.id, reason)
            _stop_in_a_thread(partial(_stop_once_announced, query, query.status["message"]))

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802
        """Check the plan after the first batch of each run, and stop queries that were refused."""
        self._check(event.progress)

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802
        """Check the last batch, in case its event was lost: a query that is refused makes no other batch."""
        query = self._spark.streams.get(str(event.id))
        progress = None if query is None else query.lastProgress
        if progress is not None:
            self._check(progress)

    def _check(self, progress: Any) -> None:
        reports = _reports(progress)
        query = self._spark.streams.get(str(progress.id))
        if query is not None and any(report.refused for report in reports):
            _stop_in_a_thread(query.stop)
        run = str(progress.runId)
        if run in self._checked or not reports:
            return
        operators = ", ".join(sorted({one.operatorName for one in progress.stateOperators}))
        for report in reports:
            if operators and not report.allow_stateful:
                self._control.ask(report.reader_id, Request("refuse", STATEFUL.format(operators=operators)))
        self._checked.add(run)

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802
        """Forget the run."""
        self._checked.discard(str(event.runId))
        _runs.discard(str(event.runId))


def _refusal(query: "StreamingQuery") -> str | None:
    """Why a query of the source may not run, by the engine's class, the sink's name and the source options.

    The reader also detects an asynchronous engine, after two batches.
    """
    execution = query._jsq.streamingQuery()
    is_asynchronous = "Async" in execution.getClass().getSimpleName()
    writes_files = str(execution.sink().toString()).startswith("FileSink[")
    if not is_asynchronous and not writes_files:
        return None
    leaves = execution.analyzedPlan().collectLeaves()
    for leaf in (leaves.apply(index) for index in range(leaves.size())):
        if leaf.getClass().getSimpleName() == "StreamingRelationV2" and leaf.sourceName() == "rallypoint":
            if is_asynchronous:
                return ASYNCHRONOUS
            options = OptionText({"allowFileSink": leaf.extraOptions().getOrDefault("allowFileSink", "false")})
            return None if options.boolean("allowFileSink", default=False) else FILE_SINK
    return None


def _stop_in_a_thread(stop: Callable[[], None]) -> None:
    """Stop a query in a new thread, because stopping waits for events that the listener's thread delivers."""
    threading.Thread(target=stop, name="rallypoint-stop", daemon=True).start()


def _stop_once_announced(query: "StreamingQuery", announcing: str) -> None:
    """Stop a query whose start is being announced, once it has been.

    `announcing`: the message of the query's status meanwhile.

    Spark announces a start on the thread of the query, and a stop interrupts that thread. Spark removes the listener
    that is interrupted from its session, whether it is this one or the user's, and the queries that follow would be
    unwatched.
    """
    while query.isActive and query.status["message"] == announcing:
        time.sleep(LOOK_SECONDS)
    query.stop()


def _readers(query: "StreamingQuery") -> list[str]:
    """The readers of a query, known from its first progress on."""
    progress = query.lastProgress
    return [] if progress is None else [report.reader_id for report in _reports(progress)]


def _reports(progress: Any) -> list[Report]:
    return reports_in(source.latestOffset for source in progress.sources)
