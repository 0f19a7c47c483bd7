"""Processes of the server of forks, in the hands of a test: as `subprocess.Popen`, as far as tests use it."""

import atexit
import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import IO

from tests.end_to_end.fork_server import NUMBER, Request
from tests.real.parts import ROOT


@cache
def _server() -> socket.socket:
    """Where to ask, in this process; begun by the first who does."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        number = theirs.fileno()
        command = [sys.executable, "-m", "tests.end_to_end.fork_server", str(number)]
        quiet = subprocess.DEVNULL
        server = subprocess.Popen(command, pass_fds=[number], stdin=quiet, stdout=quiet, cwd=ROOT)

    def end() -> None:
        ours.close()
        server.wait()

    atexit.register(end)
    return ours


class ForkedProcess:
    """`python -m MODULE` with these arguments and variables, and a pipe for its standard output.

    `has_input`: one for its standard input, too, which is else empty. `namespace`: of the network.
    """

    def __init__(
        self,
        module: str,
        arguments: Sequence[str],
        environment: Mapping[str, str],
        stderr: IO[str],
        *,
        has_input: bool = False,
        namespace: Path | None = None,
    ) -> None:
        self.args = [sys.executable, "-m", module, *arguments]
        self.stdin: IO[str] | None = None
        if has_input:
            input_read, input_write = os.pipe()
            self.stdin = os.fdopen(input_write, "w", buffering=1)
        else:
            input_read = os.open(os.devnull, os.O_RDONLY)
        output_read, output_write = os.pipe()
        self.stdout: IO[str] | None = os.fdopen(output_read)
        self._told, told_write = os.pipe()
        self.returncode: int | None = None
        request: Request = {
            "module": module,
            "arguments": list(arguments),
            "environment": dict(environment),
            "folder": os.getcwd(),
            "namespace": None if namespace is None else str(namespace),
        }
        theirs = (input_read, output_write, told_write)
        files = [input_read, output_write, stderr.fileno(), told_write]
        try:
            socket.send_fds(_server(), [json.dumps(request).encode()], files)
        finally:
            for file in theirs:
                os.close(file)
        self.pid = self._read()

    def _read(self) -> int:
        """The next number that the server tells. AssertionError if it has ended."""
        found = os.read(self._told, NUMBER.size)
        assert len(found) == NUMBER.size, "the server of forks has ended"
        number: int = NUMBER.unpack(found)[0]
        return number

    def poll(self) -> int | None:
        """The exit status, if it has ended."""
        return self._wait_ms(0)

    def wait(self, timeout: float | None = None) -> int:
        """The exit status. Raises subprocess.TimeoutExpired where it does not end in time."""
        status = self._wait_ms(None if timeout is None else int(timeout * 1000))
        if status is None:
            assert timeout is not None
            raise subprocess.TimeoutExpired(self.args, timeout)
        return status

    def _wait_ms(self, timeout_ms: int | None) -> int | None:
        if self.returncode is None:
            poll = select.poll()
            poll.register(self._told, select.POLLIN)
            if poll.poll(timeout_ms):
                self.returncode = self._read()
                os.close(self._told)
        return self.returncode

    def communicate(self, timeout: float | None = None) -> tuple[str, None]:
        """Close its input, and return what it says until it ends; what it says to its log is not here."""
        assert self.stdout is not None
        until_s = None if timeout is None else time.monotonic() + timeout
        if self.stdin is not None:
            self.stdin.close()
        said = self.stdout.read()
        self.stdout.close()
        self.wait(None if until_s is None else max(0.0, until_s - time.monotonic()))
        return said, None

    def send_signal(self, number: signal.Signals) -> None:
        """If it has not ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        """SIGTERM."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """SIGKILL."""
        self.send_signal(signal.SIGKILL)
