"""Which real parts this machine has, and what a test does without one: nothing is judged here but presence.

A test that needs a part which is not here skips with a reason that begins with "missing". On a machine of a person
that is the end of it; where the environment says `CI`, tests/conftest.py turns each such skip into a failure, so a
machine that lost a part cannot turn green.
"""

import fcntl
import os
import random
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Protocol

import pytest

import rallypoint

ROOT = Path(__file__).resolve().parents[2]
CACHE = ROOT / ".cache"
USER_CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "rallypoint"
"""Of what is slow to make and the same for every checkout: a second one finds it."""

PYTHON_PATH = f"{Path(rallypoint.__path__[0]).parent}{os.pathsep}{ROOT}"
"""Of a process that imports the `rallypoint` that is tested, whatever is installed, and this checkout's `tests`."""

PORTS = range(20_000, 32_000)
PORTS_TRIED_MAX = 1_000
_taken: set[int] = set()
"""Ports that this process has locked: its own locks do not keep it from taking one again."""


def require(present: object, part: str, remedy: str) -> None:
    """Skip the calling test, or every test of the calling fixture, unless `present` is true.

    `part` is the name of what is missing, `remedy` the one line that brings it.
    """
    if not present:
        pytest.skip(f"missing {part}: {remedy}")


def require_program(name: str, remedy: str) -> Path:
    """Where on PATH the program is; skip if it is not."""
    found = shutil.which(name)
    require(found, name, remedy)
    assert found is not None
    return Path(found)


def find_java_home() -> Path | None:
    """The home of a Java 17 or later, or None. scripts/java.sh says where it looks."""
    answer = subprocess.run([ROOT / "scripts" / "java.sh"], capture_output=True, text=True, check=False)
    return Path(answer.stdout.strip()) if answer.returncode == 0 else None


@contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """Make the folder, and have it alone: of several processes of tests one fetches what belongs there, and the others
    wait, and find it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def free_port() -> int:
    """A loopback TCP port that is free now, from 20000 to 32000, and no other caller's as long as this process lives:
    neither a second call nor another process of tests gets it.

    Below 32768 the kernel hands out no ports to outgoing connections, so nobody takes it by chance before the program
    that is told to listen there, or while that program is started again. For programs that cannot be asked to listen
    on port 0 and say what they got.
    """
    chance = random.SystemRandom()
    for _ in range(PORTS_TRIED_MAX):
        port = chance.choice(PORTS)
        if port in _taken or not _take(port):
            continue
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise RuntimeError(f"{PORTS_TRIED_MAX} ports tried, none free")


def _take(port: int) -> bool:
    """Whether the port is this process's now. The system gives it back when the process ends, however it ends."""
    claims = _claims(os.getpid())
    try:
        fcntl.lockf(claims, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, port)
    except BlockingIOError:  # another process's
        return False
    _taken.add(port)
    return True


@cache
def _claims(_pid: int) -> int:
    """The file of which a process locks the byte at each port it takes. A process that is forked opens it anew: the
    locks are its parent's.
    """
    path = Path(tempfile.gettempdir()) / f"rallypoint-ports-of-tests-{os.getuid()}"
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


class Process(Protocol):
    """What `subprocess.Popen` is, as far as ending it goes."""

    def terminate(self) -> None: ...
    def kill(self) -> None: ...
    def wait(self, timeout: float | None = None) -> int: ...


def stop_process(process: Process, grace_seconds: float) -> None:
    """Ask the process to end, and kill it if it has not within the grace. Returns when it is gone."""
    process.terminate()
    try:
        process.wait(grace_seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def last_lines(log: Path, count: int = 20) -> str:
    """The end of a log file, for a message that says why a part did not start."""
    return "\n".join(log.read_text(errors="replace").splitlines()[-count:])


def whole_lines(file: Path) -> list[str]:
    """The lines of a file that a live process may still write: what stands behind the last line feed is no line yet."""
    written = file.read_bytes()
    return written[: written.rfind(b"\n") + 1].decode().splitlines()
