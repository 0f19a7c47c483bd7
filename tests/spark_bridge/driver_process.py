"""A driver in the hands of a test: told what to do, asked what happened, killed or stopped whole.

A driver is several processes: the program, its JVM, the planning process, the workers. They are one session of the
operating system, and a signal goes to all of them, as when a machine loses its power or stands still.
"""

import os
import signal
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from tests.end_to_end.program_process import Line, ProgramProcess
from tests.spark_bridge.driver_program import Spec
from tests.spark_bridge.ledger import Place
from tests.spark_bridge.spark_run import PATIENCE_SECONDS

PROGRAM = "tests.spark_bridge.driver_program"


@dataclass(frozen=True)
class HeldBatch:
    """A batch that stands still with half of its records written: its number, and all its records."""

    number: int
    places: frozenset[Place]


class SessionProcess(ProgramProcess):
    """A program and all that it starts: what is done to it is done to all of them.

    Where it is waited for, a busy machine has time, and it fails at once when the program is gone.
    """

    def __init__(self, folder: Path, name: str, program: str, arguments: Sequence[str]) -> None:
        super().__init__(folder, name, program, arguments, new_session=True)

    def say_next(self, what: str, since: int = 0) -> Line:
        """The first line of that kind from line `since` on. AssertionError if it fails or ends instead."""
        line = self.wait_for(what, "failed", "gone", since=since, seconds=PATIENCE_SECONDS)
        assert line.what == what, f"{self.name} did not say {what!r}\n{self.show()}"
        return line

    def check_that_it_runs(self) -> None:
        """AssertionError if its query has failed, or the driver is gone."""
        assert not {"failed", "gone"} & {line.what for line in self.lines}, self.show()

    def _signal(self, number: signal.Signals) -> None:
        reached: set[int] = set()
        while news := self._pids() - reached:  # also what was begun while the others were reached
            for pid in news:
                with suppress(ProcessLookupError):
                    os.kill(pid, number)
            reached |= news

    def _pids(self) -> set[int]:
        found = set()
        for pid in psutil.pids():
            with suppress(ProcessLookupError, PermissionError):
                if os.getsid(pid) == self.pid:
                    found.add(pid)
        return found


class DriverProcess(SessionProcess):
    """One driver. With a `spec` it runs a loop of batches at once; else it runs the queries that it is told."""

    def __init__(self, folder: Path, name: str, spec: Spec | None = None) -> None:
        super().__init__(folder, name, PROGRAM, () if spec is None else (spec.to_json(),))
        self._is_ready = False

    def begin(self, spec: Spec) -> None:
        """Start a query, once it can; returns when it has."""
        if not self._is_ready:
            self.say_next("ready")
            self._is_ready = True
        self.obey(f"start {spec.to_json()}", "started")

    def obey(self, command: str, answer: str) -> Line:
        """Tell it, and wait for its answer."""
        mark = len(self.lines)
        self.tell(command)
        return self.say_next(answer, since=mark)

    def hold_a_batch(self) -> HeldBatch:
        """Let its next batch stand still; returns when it does. There must be records to come."""
        line = self.obey("hold", "held")
        return HeldBatch(line.more["batch"], frozenset((t, p, offset) for t, p, offset in line.more["places"]))

    def terminate(self) -> int:
        """SIGTERM to the program alone, as a supervisor sends it; its exit code."""
        assert self._process is not None
        self._process.terminate()
        code = self._process.wait(PATIENCE_SECONDS)
        self._gone()
        return code


class IdleDrivers:
    """Drivers without a query, by name, for the next test: to start one takes ten seconds of CPU time."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._idle: dict[str, DriverProcess] = {}

    def take(self, name: str) -> DriverProcess:
        """The one of that name, or a new one, which is ready some seconds later."""
        driver = self._idle.pop(name, None)
        if driver is None:
            driver = DriverProcess(self._folder, name)
            driver.start()
        driver.lines.clear()
        return driver

    def give_back(self, driver: DriverProcess) -> None:
        """Its query is stopped if it runs; AssertionError if that is not in good order, or another runs still: it would
        take the time of the next test, and be a member of the group of this one.
        """
        said = driver.obey("idle", "idle").more
        assert said["committed"], driver.show()
        assert said["running"] == 0, f"{driver.name} is given back with {said['running']} queries\n{driver.show()}"
        self._idle[driver.name] = driver

    def end(self) -> None:
        """Each must end well."""
        drivers = list(self._idle.values())
        try:
            for driver in drivers:
                driver.end("end")
        finally:
            for driver in drivers:
                driver.make_sure_it_is_gone()
