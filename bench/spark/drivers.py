"""Spark drivers as processes: started on the one PySpark or the other, told what to do, measured and killed."""

import asyncio
import contextlib
import json
import os
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from time import monotonic
from typing import Any, NamedTuple

import psutil

from bench.process import ProcessError, busy_cpu_seconds, environment
from bench.program import LINE_BYTES_MAX, Program
from tests.real.parts import free_port
from tests.real.spark_kafka import SparkPair

START_TIMEOUT_S = 120.0
COMMAND_TIMEOUT_S = 240.0
GONE_TIMEOUT_S = 20.0
CORES = 2
"""How many tasks a driver runs at a time."""


class Driver:
    """A running one. `started_s`: when its process was started, by the system's monotonic clock."""

    def __init__(self, name: str, process: asyncio.subprocess.Process) -> None:
        self.name = name
        self.started_s = monotonic()
        self.pyspark = ""
        self._process = process
        self._program = Program(name, process)

    async def wait_ready(self) -> dict[str, Any]:
        """Return when it has a session."""
        ready = await self._program.line("ready", timeout_s=START_TIMEOUT_S)
        self.pyspark = ready["pyspark"]
        return ready

    def tell(self, do: str, **more: Any) -> None:
        """Send a command."""
        self._program.tell(json.dumps({"do": do, **more}))

    async def line(self, what: str) -> dict[str, Any]:
        """The answer of that kind. ProcessError where the command failed."""
        said = await self._program.line(what, "failed", timeout_s=COMMAND_TIMEOUT_S)
        if said["what"] == "failed":
            raise ProcessError(f"{self.name}: {said['error']}")
        return said

    async def ask(self, do: str, what: str, **more: Any) -> dict[str, Any]:
        """Send a command, and wait for its answer."""
        self.tell(do, **more)
        return await self.line(what)

    def cpu_seconds(self) -> float:
        """User and system time of the process and all that came of it: JVM, planning process, tasks."""
        total = 0.0
        for one in self._family():
            with contextlib.suppress(psutil.NoSuchProcess):
                times = one.cpu_times()
                # Those that have ended are counted by who waited for them.
                total += times.user + times.system + times.children_user + times.children_system
        return total

    async def kill(self, *, everything: bool) -> float:
        """SIGKILL for the driver: this process and its JVM; or for everything that came of it, as when a machine is
        lost. When it was, by the system's monotonic clock. Returns once all of it is gone.
        """
        family = self._family()
        for one in family:
            with contextlib.suppress(psutil.NoSuchProcess):  # a task's process may end between any two lines
                if everything or one.pid == self._process.pid or one.name() == "java":
                    one.kill()
        killed_s = monotonic()
        await self._program.kill()
        _, alive = await asyncio.to_thread(psutil.wait_procs, family, GONE_TIMEOUT_S)
        for one in alive:
            with contextlib.suppress(psutil.NoSuchProcess):
                one.kill()
        return killed_s

    async def end(self) -> None:
        """Close its standard input, which ends it; kill it where it does not."""
        family = self._family()
        await self._program.end()
        _, alive = await asyncio.to_thread(psutil.wait_procs, family, GONE_TIMEOUT_S)
        for one in alive:
            with contextlib.suppress(psutil.NoSuchProcess):
                one.kill()

    def _family(self) -> list[psutil.Process]:
        try:
            own = psutil.Process(self._process.pid)
            return [own, *own.children(recursive=True)]
        except psutil.NoSuchProcess:
            return []


class DriverMeter:
    """What a stretch of time costs a driver, from the making of this to `stop`."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._began_s = monotonic()
        self._cpu_before = driver.cpu_seconds()
        self._busy_before = busy_cpu_seconds()

    def stop(self) -> "DriverCost":
        """The cost until now."""
        cpu_seconds = self._driver.cpu_seconds() - self._cpu_before
        others = max(0.0, busy_cpu_seconds() - self._busy_before - cpu_seconds)
        return DriverCost(monotonic() - self._began_s, cpu_seconds, others)


class DriverCost(NamedTuple):
    """Processor time of the driver with all that came of it, and of everything else, the broker's included."""

    seconds: float
    cpu_seconds: float
    others_cpu_seconds: float


@asynccontextmanager
async def driver(
    directory: Path, name: str, java_home: Path, pair: SparkPair | None = None, conf: Mapping[str, str] | None = None
) -> AsyncIterator[Driver]:
    """A driver on this Python's PySpark, or on that of the pair with its connector; gone at the end. `conf`: of its
    session, besides what a driver on this machine needs.

    It is not ready yet. Its log is in the directory.
    """
    python = Path(sys.executable) if pair is None else pair.python
    surroundings = environment(os.environ) if pair is None else pair.environment(os.environ)
    surroundings |= {"PYSPARK_PYTHON": str(python), "JAVA_HOME": str(java_home)}
    arguments = {
        "cores": CORES,
        "jars": [] if pair is None else [str(path) for path in pair.jars],
        "conf": _conf() | dict(conf or {}),
    }
    command = (str(python), "-P", "-m", "bench.spark.driver", json.dumps(arguments))
    with (directory / f"{name}.log").open("ab") as log:
        process = await asyncio.create_subprocess_exec(
            *command, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=log, cwd=directory,
            env=surroundings, limit=LINE_BYTES_MAX,
        )  # fmt: skip
    running = Driver(name, process)
    try:
        yield running
    finally:
        await running.end()


def _conf() -> dict[str, str]:
    """Loopback, ports below the ephemeral ones, no page. What may change a figure is Spark's default."""
    return {
        "spark.ui.enabled": "false",
        "spark.driver.memory": "1g",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.port": str(free_port()),
        "spark.blockManager.port": str(free_port()),
        "spark.sql.streaming.stopTimeout": "30s",
    }
