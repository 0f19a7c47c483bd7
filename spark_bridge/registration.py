"""The driver's main process: registers the data source, has its queries checked, and stops a query gracefully."""

import atexit
import logging
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import (
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

from rallypoint.spark_bridge.control import ControlDirectory
from rallypoint.spark_bridge.errors import RegistrationError
from rallypoint.spark_bridge.periodic_thread import PeriodicThread
from rallypoint.spark_bridge.query_checks import QueryChecks, readers_of
from rallypoint.spark_bridge.redaction import hide_secrets
from rallypoint.spark_bridge.source import RallypointDataSource
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
"""How often to ask whether the end of a stopped query has been announced."""

QUESTIONS_SECONDS = 0.1
"""How often to look for questions of readers. The start of a query waits for this."""

END_SECONDS = 5.0
"""How long a stop waits until the listeners have heard of the end of the query."""

_control: ControlDirectory | None = None
"""One directory for this process: reader ids are unique, so sessions may share it."""

_usable: set[str] = set()
"""Python executables that can run the bridge. A check takes as long as starting a query, so each is checked once."""

_checks: QueryChecks | None = None
"""Of all sessions of this process."""


def register(spark: SparkSession) -> None:
    """Register `format("rallypoint")` with a session, and check its queries. May be called again.

    `spark`: a session in this process. Spark Connect is not supported.

    Checks that the Python interpreter of Spark's workers can run the bridge. If it cannot, a local master is switched
    to this process's interpreter; otherwise RegistrationError contains the line to add to your program.
    """
    hide_secrets(spark.conf)
    choose_python(spark)
    spark.dataSource.register(source_class(control_directory(), spark.sparkContext.defaultParallelism))
    query_checks().add(spark)


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
        with _listeners_told(query, sleep):
            return Stop(query, control, lambda: readers_of(query), sleep=sleep, say=say).run(timeout_ms)

    return run_beside(attempt)


@contextmanager
def _listeners_told(query: "StreamingQuery", sleep: Callable[[float], None]) -> Iterator[None]:
    """At the end, wait until the session's listeners have heard of the end of a query that runs now.

    A program mostly ends after its `stop`. Were Spark still about to tell a listener then, it would find no Python
    and log that, with a traceback. The same happens while the interpreter shuts down, when no thread can be started to
    hear; then this is called in the caller's thread (`run_beside`), and adds no listener.
    """
    is_last = threading.current_thread() is threading.main_thread()
    manager = None if is_last else query_checks().manager_of(query)
    if manager is None:
        yield
        return
    listener = EndListener(query.runId)
    manager.addListener(listener)
    try:
        yield
        deadline = time.monotonic() + END_SECONDS
        while not listener.has_heard and time.monotonic() < deadline:
            sleep(LOOK_SECONDS)
        sleep(LOOK_SECONDS)  # what the listener returns is on its way to Spark
    finally:
        manager.removeListener(listener)


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


def query_checks() -> QueryChecks:
    """The checks of this process, in a thread that ends with it."""
    global _checks  # noqa: PLW0603 - one for the life of the process
    if _checks is None:
        _checks = QueryChecks(control_directory())
        thread = PeriodicThread(
            "rallypoint-checks", _checks.run_once, QUESTIONS_SECONDS, about="the checks of this driver's queries"
        )
        thread.start()
        atexit.register(thread.end, 0, final_run=False)
    return _checks


class EndListener(StreamingQueryListener):
    """Waits for the end of one run. It is added last, so the session's other listeners have heard of the end before."""

    def __init__(self, run: str) -> None:
        self._run = run
        self.has_heard = False

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802
        """Ignore it."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802
        """Ignore it."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802
        """Take note."""
        self.has_heard = self.has_heard or str(event.runId) == self._run
