"""Programs that say what happens to them, one JSON object a line, and take commands: to be asked, stopped, killed."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, TypeVar

from examples.handover.processes import wait_until_stopped
from tests.end_to_end.fork_server import PRELOADED
from tests.end_to_end.forked_process import ForkedProcess

T = TypeVar("T")

WAIT_SECONDS = 30.0
END_SECONDS = 20.0


@dataclass(frozen=True)
class Line:
    """One line of a program: what happened, when by the machine's monotonic clock, and the rest."""

    what: str
    at_s: float
    more: dict[str, Any]


@dataclass
class ProgramProcess:
    """The program `module` with `arguments`, and its log in `folder`. `namespace`: of the network, for a member.

    `new_session`: it, and all that it starts, are a session of the operating system.
    """

    folder: Path
    name: str
    module: str
    arguments: Sequence[str]
    namespace: Path | None = None
    new_session: bool = False
    lines: list[Line] = field(default_factory=list)
    _process: "subprocess.Popen[str] | ForkedProcess | None" = None
    _reader: threading.Thread | None = None

    @property
    def log(self) -> str:
        """What it wrote to its log."""
        return (self.folder / f"{self.name}.log").read_text()

    def start(self) -> None:
        """Start it; returns at once."""
        with (self.folder / f"{self.name}.log").open("a") as log:
            if self.module in PRELOADED:
                assert not self.new_session
                self._process = ForkedProcess(
                    self.module, self.arguments, os.environ, log, has_input=True, namespace=self.namespace
                )
            else:
                assert self.namespace is None
                self._process = subprocess.Popen(
                    [sys.executable, "-m", self.module, *self.arguments],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=log,
                    text=True,
                    bufsize=1,
                    start_new_session=self.new_session,
                )
        assert self._process.stdout is not None
        self._reader = threading.Thread(target=self._read, args=(self._process.stdout,))
        self._reader.start()

    def _read(self, output: IO[str]) -> None:
        for text in output:
            line = json.loads(text)
            self.lines.append(Line(line.pop("what"), line.pop("at_s"), line))
        self.lines.append(Line("gone", time.monotonic(), {}))

    @property
    def pid(self) -> int:
        """Of the process that runs."""
        assert self._process is not None
        return self._process.pid

    @property
    def is_running(self) -> bool:
        """Whether it was started, and not ended since by what is done to it here."""
        return self._process is not None

    def tell(self, command: str) -> None:
        """Send it a command."""
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.write(command + "\n")

    def wait_for(self, *what: str, since: int = 0, seconds: float = WAIT_SECONDS) -> Line:
        """The first line of that kind from line `since` on."""

        def find() -> Line | None:
            return next((line for line in self.lines[since:] if line.what in what), None)

        return wait_until(find, f"{self.name} to say {' or '.join(what)}", self.show, seconds)

    def show(self) -> str:
        """For a message: what it said, and the end of its log."""
        said = "\n".join(f"{line.at_s:.3f} {line.what} {line.more}" for line in self.lines)
        return f"--- {self.name} said\n{said}\n--- its log\n{self.log[-3000:]}"

    # --- what is done to it ------------------------------------------------------------------------------------------

    def pause(self) -> None:
        """SIGSTOP: it stands still, and its connections stay open."""
        self._signal(signal.SIGSTOP)
        wait_until_stopped(self.pid)

    def resume(self) -> None:
        """SIGCONT."""
        self._signal(signal.SIGCONT)

    def kill(self) -> float:
        """SIGKILL; when that was."""
        at_s = time.monotonic()
        self._signal(signal.SIGKILL)
        self._gone()
        return at_s

    def end(self, command: str) -> Line:
        """Send the command by which it ends; its last line, which must be `ended`. It must end well."""
        assert self._process is not None
        mark = len(self.lines)
        self.tell(command)
        last = self.wait_for("ended", since=mark)
        assert self._process.wait(END_SECONDS) == 0, self.log
        self._gone()
        return last

    def make_sure_it_is_gone(self) -> None:
        """Kill it if it runs, stopped or not."""
        if self._process is not None:
            self.kill()

    def _signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    def _gone(self) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        assert self._reader is not None
        self._process.wait(END_SECONDS)
        self._reader.join(END_SECONDS)
        self._process.stdin.close()
        self._process.stdout.close()
        self._process = None


def wait_until(find: Callable[[], T | None], what: str, show: Callable[[], str], seconds: float = WAIT_SECONDS) -> T:
    """Ask again and again until there is something true; AssertionError, with what `show` gives, if it never is."""
    deadline = time.monotonic() + seconds
    while True:
        found = find()
        if found:
            return found
        if time.monotonic() > deadline:
            raise AssertionError(f"waited {seconds} s for {what}\n{show()}")
        time.sleep(0.03)
