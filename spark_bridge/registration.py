"""What the driver's main process does: make the data source known, watch its queries, and stop one in good order."""

import atexit
import json
import logging
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

from spark_bridge.control import ControlDirectory, Request
from spark_bridge.errors import RegistrationError, StopTimeout
from spark_bridge.source import ASYNCHRONOUS, RallypointDataSource

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

log = logging.getLogger("rallypoint.spark")

NEEDED = ("pyarrow", "spark_bridge.planner", "spark_bridge.sources.contract")
"""What the Python that Spark starts must be able to import."""

CHECK_SECONDS = 60.0
LOOK_SECONDS = 0.1

STATEFUL = (
    "the query keeps state ({operators}), which stays behind when a partition moves to another member of the group, so"
    " its results would be wrong; use a group of its own, or set allowStateful=true if you know that this is right"
)

_control: ControlDirectory | None = None
"""One directory for this process: reader ids are unique, so sessions may share it."""

_watched: set[int] = set()
"""Sessions, by the identity of their Java object, that have the listener."""


def register(spark: SparkSession) -> None:
    """Make `format("rallypoint")` known to a session, and watch its queries. Again does no harm.

    Checks that the Python that Spark starts has what the bridge needs. On a local master it is set to this one where it
    has not; elsewhere RegistrationError says which line to write.
    """
    check_session(spark)
    choose_python(spark)
    spark.dataSource.register(source_class(control_directory(), spark.sparkContext.defaultParallelism))
    session = spark._jsparkSession.hashCode()
    if session not in _watched:
        _watched.add(session)
        spark.streams.addListener(Watch(spark, control_directory()))


def stop(query: "StreamingQuery", timeout_ms: int = 60_000) -> bool:
    """End a query so that nothing of it is read again: plan no more, wait for the batch in flight, commit, leave, stop.

    It takes until Spark asks for new data the next time, that is the rest of the batch and of the trigger interval.
    True: the group has the end of everything the query completed. False: it had lost its partitions or had ended by
    itself before. StopTimeout after `timeout_ms`: the query runs on as if nothing had been asked.
    """
    deadline = time.monotonic() + timeout_ms / 1000
    control = control_directory()
    asked: dict[str, bool | None] = {}
    while query.isActive:
        for reader_id in _readers(query):
            if reader_id not in asked:
                control.ask(reader_id, Request("stop"))
                asked[reader_id] = None
        for reader_id, committed in asked.items():
            answer = control.answer(reader_id) if committed is None else None
            if answer is not None:
                asked[reader_id] = answer.committed
                if not answer.committed:
                    log.warning("the last batch may be read again by its next owner: %s", answer.detail)
        if asked and all(committed is not None for committed in asked.values()):
            query.stop()
            return all(asked.values())
        if time.monotonic() > deadline:
            for reader_id in asked:
                control.withdraw(reader_id)
            raise StopTimeout(
                f"Spark did not ask for new data within {timeout_ms} ms, so the query could not end in good order;"
                " give stop() more time than a batch and a trigger interval take"
            )
        time.sleep(LOOK_SECONDS)
    return False


def check_session(spark: SparkSession) -> None:
    """RegistrationError for a Spark Connect session, whose planning process is on another machine."""
    if not hasattr(spark, "_jsparkSession"):
        raise RegistrationError("register needs a SparkSession of this process, not one of Spark Connect")


def choose_python(spark: SparkSession) -> None:
    """See to it that Spark starts a Python that works, or say how."""
    context = spark.sparkContext
    chosen = context.pythonExec
    problem = problem_of_python(chosen)
    if problem is None:
        return
    line = f'os.environ["PYSPARK_PYTHON"] = "{sys.executable}"'
    sentence = f"Spark starts the Python {chosen!r}, where the bridge cannot run: {problem}"
    if str(context.master).startswith("local") and chosen != sys.executable:
        own_problem = problem_of_python(sys.executable)
        if own_problem is None:
            context.pythonExec = sys.executable
            log.warning(
                "%s; taking %s instead. To choose it yourself, write before the session: %s",
                sentence,
                sys.executable,
                line,
            )
            return
    raise RegistrationError(f"{sentence}. Before the SparkSession is made, write: {line}")


def problem_of_python(executable: str) -> str | None:
    """Why a Python interpreter cannot run the bridge; None if it can. Starts it, and imports what is needed."""
    program = "import sys, importlib\nprint(*sys.version_info[:2], sep='.')\n" + "".join(
        f"importlib.import_module({name!r})\n" for name in NEEDED
    )
    try:
        done = subprocess.run(
            [executable, "-c", program], capture_output=True, text=True, timeout=CHECK_SECONDS, check=False
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
    """The class to register. It is pickled whole because it is made here, so the path of the directory goes with it,
    and how many tasks the session runs at a time.
    """

    class RegisteredDataSource(RallypointDataSource):
        """`rallypoint`, with the way back to this driver."""

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


class Watch(StreamingQueryListener):
    """Sees what the reader cannot see: the plan and the engine.

    A stateful query fails with a sentence, which its reader raises. A query under asynchronous progress tracking is
    stopped and the sentence logged: if its reader failed, Spark's thread would die and leave the query in limbo.
    """

    def __init__(self, spark: SparkSession, control: ControlDirectory) -> None:
        self._spark = spark
        self._control = control
        self._checked: set[str] = set()

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802
        """Nothing is known yet."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802
        """A first batch is over at the latest here."""
        progress = event.progress
        reports = list(_reports(progress))
        if any(report["refused"] for report in reports):
            self._stop(str(progress.id))
        run = str(progress.runId)
        if run in self._checked or not reports:
            return
        self._checked.add(run)
        operators = ", ".join(sorted({one.operatorName for one in progress.stateOperators}))
        for report in reports:
            if operators and not report["allow_stateful"]:
                self._control.ask(report["reader_id"], Request("refuse", STATEFUL.format(operators=operators)))
        if self._is_asynchronous(str(progress.id)):
            log.error("query %s: %s", progress.id, ASYNCHRONOUS)
            self._stop(str(progress.id))

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802
        """Nothing happened."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802
        """The run will not be heard of again."""
        self._checked.discard(str(event.runId))

    def _stop(self, query_id: str) -> None:
        """In a thread of its own, for stopping waits for events that this listener's thread delivers."""
        query = self._spark.streams.get(query_id)
        if query is not None:
            threading.Thread(target=query.stop, name="rallypoint-stop", daemon=True).start()

    def _is_asynchronous(self, query_id: str) -> bool:
        """From the name of the engine's class; the reader notices from the order of calls, too, but a batch later."""
        query = self._spark.streams.get(query_id)
        if query is None:
            return False
        return "Async" in query._jsq.streamingQuery().getClass().getSimpleName()


def _readers(query: "StreamingQuery") -> list[str]:
    """The readers of a query, known from its first progress on."""
    progress = query.lastProgress
    return [] if progress is None else [report["reader_id"] for report in _reports(progress)]


def _reports(progress: Any) -> Iterator[dict[str, Any]]:
    """What the sources of this bridge said of themselves in a progress."""
    for source in progress.sources:
        latest = json.loads(source.latestOffset or "null")
        if isinstance(latest, dict) and isinstance(latest.get("rallypoint"), dict):
            yield latest["rallypoint"]
