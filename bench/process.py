"""The process under measurement: started, looked at, stopped. Its environment holds no setting but those given."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from time import perf_counter
from urllib.parse import urlsplit

import psutil

import rallypoint
from bench.metrics import Cost

START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 30.0
REST_INTERVAL_S = 0.2
REST_CPU_S = 0.03
"""Processor time in such an interval that is none: a bystander who asks whether it lives takes as much."""
ANNOUNCEMENT = "listening on "
SETTING_PREFIX = "RALLYPOINT_"


class ProcessError(Exception):
    """The process under measurement did not start, or did not stop as it should."""


class Server:
    """A running process, and the address it announced."""

    def __init__(self, pid: int, url: str) -> None:
        parts = urlsplit(url)
        assert parts.hostname is not None
        assert parts.port is not None
        self.host = parts.hostname
        self.port = parts.port
        self.was_killed = False
        self._process = psutil.Process(pid)

    def kill(self) -> None:
        """SIGKILL: it ends with whatever it was at."""
        self.was_killed = True
        self._process.kill()

    def cpu_seconds(self) -> float:
        """User and system time of all its threads until now. The system counts in hundredths of a second."""
        times = self._process.cpu_times()
        return float(times.user + times.system)

    def loop_cpu_seconds(self) -> float:
        """The processor time that its first thread, which is its event loop's, has used."""
        first = next(thread for thread in self._process.threads() if thread.id == self._process.pid)
        return float(first.user_time + first.system_time)

    def rss_bytes(self) -> int:
        """Memory it has in use now."""
        return int(self._process.memory_info().rss)

    async def rest(self) -> None:
        """Return when it has hardly used a processor for a moment: it has done with what was asked of it."""
        before = -1.0
        while (now := self.cpu_seconds()) - before > REST_CPU_S:
            before = now
            await asyncio.sleep(REST_INTERVAL_S)

    def meter(self, *, since_its_start: bool = False) -> "Meter":
        """Begin to measure. `since_its_start`: what it has used until now counts too."""
        return Meter(self, 0.0 if since_its_start else self.cpu_seconds())


class Meter:
    """What a stretch of time costs, from its making to `stop`."""

    def __init__(self, server: Server, cpu_before: float) -> None:
        """`cpu_before`: the processor time of the service from which on it counts."""
        self._server = server
        self._rss_before_bytes = server.rss_bytes()
        self._own_before = _own_cpu_seconds()
        self._busy_before = busy_cpu_seconds()
        self._cpu_before = cpu_before
        self._began = perf_counter()

    def stop(self) -> Cost:
        """The cost until now."""
        seconds = perf_counter() - self._began
        cpu_seconds = self._server.cpu_seconds() - self._cpu_before
        own = _own_cpu_seconds() - self._own_before
        busy = busy_cpu_seconds() - self._busy_before
        return Cost(
            seconds=seconds,
            cpu_seconds=cpu_seconds,
            rss_before_bytes=self._rss_before_bytes,
            rss_bytes=self._server.rss_bytes(),
            others_cores=max(0.0, busy - own - cpu_seconds) / seconds,
            load_cpu_seconds=own,
        )


def _own_cpu_seconds() -> float:
    times = psutil.Process().cpu_times()
    return float(times.user + times.system)


def busy_cpu_seconds() -> float:
    """Time that all processors of the machine were at work, for whomever; what the host of a virtual one took, too."""
    times = psutil.cpu_times()
    return float(sum(times) - times.idle - getattr(times, "iowait", 0.0) - getattr(times, "guest", 0.0))


@asynccontextmanager
async def running(command: list[str], directory: Path) -> AsyncIterator[Server]:
    """Run a command that prints `listening on URL` once it answers; on leaving, SIGTERM. Raises ProcessError.

    `directory` is where it works, and where its log goes, to `log.txt`.
    """
    log_path = directory / "log.txt"
    with log_path.open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            *command, stdout=asyncio.subprocess.PIPE, stderr=log, cwd=directory, env=environment(os.environ)
        )
    try:
        url = await _announced(process, log_path)
    except BaseException:
        await _kill(process)
        raise
    server = Server(process.pid, url)
    try:
        yield server
    finally:
        if server.was_killed:
            await _kill(process)
        else:
            await _stop(process, log_path)


def environment(given: Mapping[str, str]) -> dict[str, str]:
    """The environment for the process: that of this one, without settings, and with the packages that this one has."""
    kept = {name: value for name, value in given.items() if not name.startswith(SETTING_PREFIX)}
    root, package = Path(__file__).resolve().parent.parent, Path(rallypoint.__path__[0])
    own = (str(package.parent), str(root))
    return {**kept, "PYTHONPATH": os.pathsep.join(filter(None, (*own, given.get("PYTHONPATH"))))}


def python(module: str, *arguments: str) -> list[str]:
    """The command that runs a module with this Python. `-P`: files where it works hide no module."""
    return [sys.executable, "-P", "-m", module, *arguments]


async def _announced(process: asyncio.subprocess.Process, log_path: Path) -> str:
    assert process.stdout is not None
    try:
        async with asyncio.timeout(START_TIMEOUT_S):
            line = (await process.stdout.readline()).decode().strip()
    except TimeoutError as error:
        raise ProcessError(f"it did not start within {START_TIMEOUT_S:.0f} s{last_lines(log_path)}") from error
    if not line.startswith(ANNOUNCEMENT):
        raise ProcessError(f"it did not start{f' but said {line!r}' if line else ''}{last_lines(log_path)}")
    return line.removeprefix(ANNOUNCEMENT)


async def _stop(process: asyncio.subprocess.Process, log_path: Path) -> None:
    if process.returncode is None:
        process.terminate()
    try:
        async with asyncio.timeout(STOP_TIMEOUT_S):
            status = await process.wait()
    except TimeoutError as error:
        await _kill(process)
        raise ProcessError(f"it did not stop within {STOP_TIMEOUT_S:.0f} s{last_lines(log_path)}") from error
    if status != 0:
        raise ProcessError(f"it ended with status {status}{last_lines(log_path)}")


async def _kill(process: asyncio.subprocess.Process) -> None:
    if process.returncode is None:
        process.kill()
    await process.wait()


def last_lines(log_path: Path) -> str:
    """The end of a log, as the end of a sentence that says what went wrong."""
    lines = log_path.read_text("utf-8", errors="replace").splitlines()[-10:]
    return "; its log ends:\n  " + "\n  ".join(lines) if lines else ""
