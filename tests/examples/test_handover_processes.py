"""Children of the demo: real processes, for a moment each."""

import os
import platform
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from examples.handover.processes import Child, Children

WAITS = "import time; print('ready', flush=True); time.sleep(60)"
DEAF = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); " + WAITS
# As Spark's Python daemon: a grandchild that leads a process group of its own.
FAMILY = f"""
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", {WAITS!r}], process_group=0)
print("grandchild", child.pid, flush=True)
child.wait()
"""


# A clone whose parent waits, as vfork's does, until the child runs a program or ends; and it stops before.
BETWEEN = """
import ctypes, os, platform, signal
clone = {"x86_64": 56, "aarch64": 220}[platform.machine()]
print("ready", flush=True)
child = ctypes.CDLL(None).syscall(clone, 0x4000 | signal.SIGCHLD, 0, 0, 0, 0)
if child == 0:
    os.kill(os.getpid(), signal.SIGSTOP)
    os._exit(0)
os.waitpid(child, 0)
print("gone on", flush=True)
"""


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[[str], Child]]:
    """Starts a Python with a program, and returns once that has printed something. None outlives the test."""
    started: list[Child] = []

    def start_one(program: str) -> Child:
        child = Child("a program", [sys.executable, "-c", program], tmp_path / f"{len(started)}.log", os.environ)
        started.append(child)
        wait_for_output(child)
        return child

    yield start_one
    for child in started:
        child.kill()


def wait_for_output(child: Child) -> None:
    deadline = time.monotonic() + 60
    while not child.log.read_text() and time.monotonic() < deadline:
        time.sleep(0.01)


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, "it has not come to that"
        time.sleep(0.01)


def test_a_kill_takes_the_whole_family(start: Callable[[str], Child]) -> None:
    child = start(FAMILY)
    grandchild = psutil.Process(int(child.log_tail().split()[1]))
    child.kill()
    assert child.exit_status == -signal.SIGKILL
    psutil.wait_procs([grandchild], timeout=10)
    assert not grandchild.is_running() or grandchild.status() == psutil.STATUS_ZOMBIE


@pytest.mark.skipif(
    sys.platform != "linux" or platform.machine() not in {"x86_64", "aarch64"}, reason="names Linux' own calls"
)
def test_who_waits_for_a_child_that_stopped_before_its_program_is_frozen(start: Callable[[str], Child]) -> None:
    child = start(BETWEEN)
    # Its own stop has to come before the thaw, which would otherwise not end it.
    wait_for(lambda: {one.status() for one in psutil.Process(child.pid).children()} == {psutil.STATUS_STOPPED})
    wait_for(lambda: psutil.Process(child.pid).status() == psutil.STATUS_DISK_SLEEP)
    child.freeze()
    assert "gone on" not in child.log_tail()
    child.thaw()
    wait_for(lambda: "gone on" in child.log_tail())


def test_an_end_in_good_order(start: Callable[[str], Child]) -> None:
    child = start(WAITS)
    assert child.end(20)
    assert child.exit_status == -signal.SIGTERM
    assert child.end(0), "ending it again does no harm"


def test_what_does_not_listen_is_killed(start: Callable[[str], Child]) -> None:
    child = start(DEAF)
    assert not child.end(0.05)
    assert child.exit_status == -signal.SIGKILL


def test_a_failure_is_no_good_order_and_the_log_says_why(tmp_path: Path) -> None:
    child = Child("fails", [sys.executable, "-c", "raise SystemExit('no luck')"], tmp_path / "log", os.environ)
    while child.exit_status is None:
        time.sleep(0.01)
    assert not child.end(20)
    assert child.log_tail() == "no luck"


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError, None])
def test_no_child_outlives_the_run(tmp_path: Path, error: type[BaseException] | None) -> None:
    started: list[Child] = []

    def run() -> None:
        with Children() as children:
            for name in ("service", "driver"):
                command = [sys.executable, "-c", WAITS]
                started.append(children.start(name, command, tmp_path / name, os.environ))
                wait_for_output(started[-1])
            if error is not None:
                raise error

    if error is None:
        run()
    else:
        with pytest.raises(error):
            run()
    assert [child.exit_status for child in started] == [-signal.SIGTERM] * 2


COUNTS = """
import itertools, time
for number in itertools.count():
    print(number, flush=True)
    time.sleep(0.01)
"""


def test_what_is_frozen_does_nothing_until_it_is_thawed(start: Callable[[str], Child]) -> None:
    child = start(COUNTS)
    child.freeze()
    deadline = time.monotonic() + 60
    while psutil.Process(child.pid).status() != psutil.STATUS_STOPPED and time.monotonic() < deadline:
        time.sleep(0.01)
    written = child.log.read_text()
    time.sleep(0.1)
    assert child.log.read_text() == written
    child.thaw()
    deadline = time.monotonic() + 60
    while child.log.read_text() == written and time.monotonic() < deadline:
        time.sleep(0.01)
    assert child.log.read_text() != written


# As Spark's Python daemon does, only faster.
FORKS = """
import os, time
print("ready", flush=True)
for _ in range(200):
    if os.fork() == 0:
        time.sleep(120)
        os._exit(0)
    time.sleep(0.002)
time.sleep(120)
"""


def test_what_is_started_while_it_is_frozen_stops_too(start: Callable[[str], Child]) -> None:
    child = start(FORKS)
    for _ in range(4):
        child.freeze()
        assert {process.status() for process in session_of(child)} == {psutil.STATUS_STOPPED}
        child.thaw()
    child.kill()
    assert session_of(child) == []


def session_of(child: Child) -> list[psutil.Process]:
    """Its processes, but for those that have ended."""

    def is_one(pid: int) -> bool:
        try:
            return os.getsid(pid) == child.pid and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
        except (ProcessLookupError, psutil.NoSuchProcess):
            return False

    return [psutil.Process(pid) for pid in psutil.pids() if is_one(pid)]
