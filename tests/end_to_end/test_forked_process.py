"""What is forked is what the interpreter would have started: its output, its variables, its end, its signals."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from tests.end_to_end.forked_process import ForkedProcess
from tests.real.parts import free_port

Done = tuple[int, str, str]
ENDS: dict[str, tuple[str, tuple[str, ...], Mapping[str, str]]] = {
    "well": ("rallypoint.cli.main", ("--version",), {}),
    "with a status": ("rallypoint.cli.main", ("serve", "--port", "no number"), {}),
    "with an error": ("json.tool", ("no-such-file",), {}),
    "by its variables": ("rallypoint.cli.main", ("serve", "--help"), {"COLUMNS": "50"}),
    "with paths": ("site", (), {}),
}


def started(module: str, arguments: tuple[str, ...], variables: Mapping[str, str]) -> Done:
    done = subprocess.run(
        [sys.executable, "-m", module, *arguments],
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    return done.returncode, done.stdout, done.stderr


def forked(module: str, arguments: tuple[str, ...], variables: Mapping[str, str], log: Path) -> Done:
    with log.open("w") as file:
        process = ForkedProcess(module, arguments, {**os.environ, **variables}, file)
    said, _ = process.communicate(60)
    assert process.returncode is not None
    return process.returncode, said, log.read_text()


@pytest.mark.parametrize("how", ENDS)
def test_it_ends_as_the_interpreters_own_does(how: str, tmp_path: Path) -> None:
    module, arguments, variables = ENDS[how]
    own = started(module, arguments, variables)
    assert forked(module, arguments, variables, tmp_path / "log") == own
    assert (own[0] == 0) == (how in {"well", "by its variables", "with paths"})


@pytest.mark.parametrize(
    ("tell", "status"),
    [
        (ForkedProcess.kill, -signal.SIGKILL),
        (ForkedProcess.terminate, -signal.SIGTERM),
        (lambda process: process.send_signal(signal.SIGINT), 0),
    ],
    ids=["SIGKILL", "SIGTERM", "SIGINT"],
)
def test_it_hears_signals_while_others_run(tell: Callable[[ForkedProcess], None], status: int, tmp_path: Path) -> None:
    ports = free_port(), free_port()
    with (tmp_path / "log").open("w") as log:
        one, other = (
            ForkedProcess("http.server", ("--bind", "127.0.0.1", str(port)), os.environ, log) for port in ports
        )
    try:
        for port in ports:
            wait_until_it_listens(port)
        with pytest.raises(subprocess.TimeoutExpired):
            one.wait(0.05)
        tell(one)
        assert one.wait(30) == one.poll() == status
        tell(one)  # nobody hears it, nor another process of the same pid
        assert other.poll() is None
    finally:
        other.kill()
        for process in (one, other):
            process.communicate(30)
    assert other.returncode == -signal.SIGKILL


def wait_until_it_listens(port: int) -> None:
    until = time.monotonic() + 30
    while True:
        try:
            with socket.create_connection(("127.0.0.1", port), timeout=5):
                return
        except ConnectionRefusedError:
            assert time.monotonic() < until
            time.sleep(0.05)
