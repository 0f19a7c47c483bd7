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
STOPPED_SECONDS = 30.0
STOPPED_LOOK_SECONDS = 0.002
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
        """SIGSTOP to all its processes: none of them does anything until `thaw`, or ever after `kill`.

        One that has not stopped yet may start another, which has not got the signal. So it goes on until none is new.
        """
        stopped: set[int] = set()
        while new := set(self._session()) - stopped:
            for pid in new:
                _send(pid, signal.SIGSTOP)
            for pid in new:
                wait_until_stopped(pid)
            stopped |= new

    def thaw(self) -> None:
        """All its processes go on."""
        self._send_to_all(signal.SIGCONT)

    def kill(self) -> None:
        """SIGKILL to all its processes, as when a machine loses power.

        They are stopped first: otherwise one sees another die and says goodbye to the group. What one of them has
        started meanwhile is killed, too.
        """
        self._send_to_all(signal.SIGSTOP)
        while living := self._session():
            for pid in living:
                _send(pid, signal.SIGKILL)
            time.sleep(STOPPED_LOOK_SECONDS)
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


def wait_until_stopped(pid: int) -> None:
    """Wait until a process that was sent SIGSTOP does nothing any more, or is gone.

    The signal wakes one thread, which stops the others when it gets to run: on a busy machine they go on for a while.
    Raises TimeoutError after half a minute.
    """
    deadline = time.monotonic() + STOPPED_SECONDS
    while not _is_stopped(pid):
        if time.monotonic() > deadline:
            raise TimeoutError(f"process {pid} has not stopped within {STOPPED_SECONDS:.0f} s")
        time.sleep(STOPPED_LOOK_SECONDS)


def _waits_for_stopped_child(pid: int) -> bool:
    """Whether it has started a process by vfork that was stopped before it runs its own program. Until then a thread
    waits for it, and no signal but SIGKILL ends that wait: both do nothing. Raises NoSuchProcess where it is gone.
    """
    process = psutil.Process(pid)
    program = process.cmdline()
    return any(_is_stopped_copy(child, program) for child in process.children())


def _is_stopped_copy(child: psutil.Process, program: list[str]) -> bool:
    try:
        return child.status() == psutil.STATUS_STOPPED and child.cmdline() == program
    except psutil.NoSuchProcess:  # which says nothing of its parent
        return False


def _is_stopped(pid: int) -> bool:
    threads = Path(f"/proc/{pid}/task")
    try:
        if threads.parent.parent.joinpath("self").exists():
            states = {_state_in(stat) for stat in threads.glob("*/stat")}
            return states <= set("TtZX") or (states <= set("TtZXD") and _waits_for_stopped_child(pid))
        return psutil.Process(pid).status() in {psutil.STATUS_STOPPED, psutil.STATUS_ZOMBIE}
    except (ProcessLookupError, psutil.NoSuchProcess):
        return True


def _state_in(stat: Path) -> str:
    """The letter of a thread's state; X: it is gone. The name before it may have spaces and parentheses in it."""
    try:
        return stat.read_text("utf-8", "replace").rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return "X"


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
