"""Child processes: started in a session of their own, ended in good order or at one blow, never left behind.

A Spark driver is a tree of processes: Python, the Java machine it starts, and the Pythons that one starts. They share
the session of the first, so they are found whatever became of their parents.
"""

import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import psutil

LOG_TAIL_LINES = 15
LOOK_SECONDS = 0.05


class Child:
    """A running program whose output is added to `log`. `name` is for messages."""

    def __init__(self, name: str, command: Sequence[str], log: Path, environment: Mapping[str, str]) -> None:
        self.name = name
        self.log = log
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=dict(environment),
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        """Of the program itself."""
        return self._process.pid

    @property
    def exit_status(self) -> int | None:
        """None while it runs; negative: the signal that ended it."""
        return self._process.poll()

    def ask_to_end(self) -> None:
        """SIGTERM to the program itself, which sees to its children."""
        if self.exit_status is None:
            self._process.send_signal(signal.SIGTERM)

    def freeze(self) -> None:
        """SIGSTOP to all its processes: none of them does anything until `thaw`, or ever after `kill`."""
        self._send_to_all(signal.SIGSTOP)

    def thaw(self) -> None:
        """All its processes go on."""
        self._send_to_all(signal.SIGCONT)

    def kill(self) -> None:
        """SIGKILL to all its processes, as when a machine loses power.

        They are stopped first: otherwise one sees another die and says goodbye to the group.
        """
        self.freeze()
        self._send_to_all(signal.SIGKILL)
        self._process.wait()

    def end(self, timeout_seconds: float) -> bool:
        """Ask it to end, wait, kill what is left. True: it ended by itself, with status 0 or by that SIGTERM."""
        self.ask_to_end()
        deadline = time.monotonic() + timeout_seconds
        while (self.exit_status is None or self._session()) and time.monotonic() < deadline:
            time.sleep(LOOK_SECONDS)
        orderly = self.exit_status in {0, -signal.SIGTERM}
        self.kill()
        return orderly

    def log_tail(self) -> str:
        """The last lines that it wrote."""
        lines = self.log.read_text("utf-8", "replace").splitlines()
        return "\n".join(lines[-LOG_TAIL_LINES:])

    def _send_to_all(self, number: signal.Signals) -> None:
        for pid in self._session():
            _send(pid, number)

    def _session(self) -> list[int]:
        """All living processes of its session. The system gives its number to no other while one of them lives."""
        return [pid for pid in psutil.pids() if _session_of(pid) == self._process.pid and _lives(pid)]


def _session_of(pid: int) -> int | None:
    try:
        return os.getsid(pid)
    except (ProcessLookupError, PermissionError):
        return None


def _lives(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def _send(pid: int, number: signal.Signals) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return


class Children:
    """All children of a run; leaving the `with` ends those that still live, the first one started last."""

    END_SECONDS = 5.0

    def __init__(self) -> None:
        self._started: list[Child] = []

    def start(self, name: str, command: Sequence[str], log: Path, environment: Mapping[str, str]) -> Child:
        """Start one more."""
        child = Child(name, command, log, environment)
        self._started.append(child)
        return child

    def __enter__(self) -> "Children":
        return self

    def __exit__(self, *_: object) -> None:
        # All but the first are asked before any is waited for. The first is the service, to which the drivers say
        # goodbye.
        for child in self._started[1:]:
            child.ask_to_end()
        for child in reversed(self._started):
            child.end(self.END_SECONDS)
