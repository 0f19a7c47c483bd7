"""A stop and a reader that hears of it at any moment: no query is left that runs and has left its group."""

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from itertools import product
from pathlib import Path
from types import FrameType

import pytest

from rallypoint.spark_bridge.control import Answer, ControlDirectory, ReaderControl, Request
from rallypoint.spark_bridge.errors import StopTimeout
from rallypoint.spark_bridge.stopping import LOOK_SECONDS, TAKEN_SECONDS, Stop, run_beside

TIMEOUT_MS = 300
STEPS = range(16)
"""More than the driver makes in that time, counting what comes between two looks of it."""


class Reader:
    """Takes the request in one of its steps, as far as there is one, and answers some steps later, or never."""

    def __init__(
        self, directory: Path, name: str, takes_at: int, answers_after: int | None, *, problem: str = ""
    ) -> None:
        self.control = ReaderControl(str(directory), name)
        self.has_left = False
        self.has_answered = False
        self._takes_at = takes_at
        self._answers_after = answers_after
        self._problem = problem
        self._step = 0
        self._left_at = 0

    def step(self) -> None:
        self._step += 1
        if not self.has_left and self._step > self._takes_at and self.control.take() == Request("stop"):
            self.has_left = True
            self._left_at = self._step
        if self.has_left and self._answers_after is not None and self._step == self._left_at + self._answers_after:
            self.control.answer(Answer(committed=not self._problem, detail=self._problem))
            self.has_answered = True


class Play:
    """The driver, whose every act comes after one step of each reader; its clock moves while it sleeps.

    `ends_by_itself`: as an `availableNow` run does, at once when its readers have answered that they are done.
    """

    def __init__(self, path: Path, *readers: Reader, ends_by_itself: bool = False) -> None:
        self.now = 0.0
        self._is_stopped = False
        self._ends_by_itself = ends_by_itself
        self.readers = readers
        self.interrupted_at: float | None = None
        self.begins_another_at: float | None = None
        self._directory = ControlDirectory(path)

    def run(self, timeout_ms: int = TIMEOUT_MS) -> bool:
        names = [reader.control.reader_id for reader in self.readers]
        return Stop(self, self, lambda: names, clock=lambda: self.now, sleep=self.sleep).run(timeout_ms)

    @property
    def isActive(self) -> bool:  # noqa: N802 - Spark's name
        self._go_on()
        is_done = self._ends_by_itself and all(reader.has_answered for reader in self.readers)
        return not self._is_stopped and not is_done

    def stop(self) -> None:
        self._is_stopped = True

    def sleep(self, seconds: float) -> None:
        self._go_on()
        self.now += seconds
        if self.interrupted_at is not None and self.now >= self.interrupted_at:
            raise KeyboardInterrupt
        if self.begins_another_at is not None and self.now >= self.begins_another_at:
            self.begins_another_at = None
            with suppress(StopTimeout):
                self.run()

    def ask(self, reader_id: str, request: Request, *, say: Callable[[str], None]) -> None:
        self._go_on()
        self._directory.ask(reader_id, request, say=say)

    def withdraw(self, reader_id: str, attempt: str) -> bool:
        self._go_on()
        return self._directory.withdraw(reader_id, attempt)

    def answer(self, reader_id: str) -> Answer | None:
        self._go_on()
        return self._directory.answer(reader_id)

    def remove(self) -> None:
        self._directory.remove()

    def check(self) -> None:
        """No reader leaves a query that runs, now or later."""
        for _ in STEPS:
            self._go_on()
        assert not (self.isActive and any(reader.has_left for reader in self.readers))

    def _go_on(self) -> None:
        for reader in self.readers:
            reader.step()


@pytest.mark.parametrize(("takes_at", "answers_after"), [*product(STEPS, [0, 1, 5, None])])
def test_a_query_ends_or_runs_on_whenever_its_reader_hears_of_it(
    tmp_path: Path, takes_at: int, answers_after: int | None
) -> None:
    play = Play(tmp_path, Reader(tmp_path, "r1", takes_at, answers_after))
    try:
        assert play.run() == (answers_after is not None)
        assert not play.isActive
    except StopTimeout:
        assert play.isActive
        assert play.now <= TIMEOUT_MS / 1000 + 2 * LOOK_SECONDS
    play.check()
    assert play.now <= TIMEOUT_MS / 1000 + TAKEN_SECONDS + 2 * LOOK_SECONDS


@pytest.mark.parametrize(("takes_at", "answers_after"), [*product(STEPS, [0, 1, 5])])
def test_a_query_that_ends_with_the_answer_of_its_reader_has_committed(
    tmp_path: Path, takes_at: int, answers_after: int
) -> None:
    play = Play(tmp_path, Reader(tmp_path, "r1", takes_at, answers_after), ends_by_itself=True)
    try:
        assert play.run()
        assert not play.isActive
    except StopTimeout:
        assert play.isActive
    play.check()


@pytest.mark.parametrize("takes_at", STEPS)
def test_a_query_that_ends_with_the_answers_of_both_its_readers_has_committed(tmp_path: Path, takes_at: int) -> None:
    readers = (Reader(tmp_path, "r1", 0, 1), Reader(tmp_path, "r2", takes_at, 1))
    play = Play(tmp_path, *readers, ends_by_itself=True)
    assert play.run()
    assert not play.isActive


@pytest.mark.parametrize(("one", "other"), [*product(STEPS, STEPS)])
def test_of_two_readers_one_may_hear_of_it_alone(tmp_path: Path, one: int, other: int) -> None:
    play = Play(tmp_path, Reader(tmp_path, "r1", one, 1), Reader(tmp_path, "r2", other, 1))
    try:
        play.run()
    except StopTimeout:
        assert play.isActive
    play.check()


@pytest.mark.parametrize("takes_at", STEPS)
def test_an_interrupt_leaves_no_query_that_reads_nothing(tmp_path: Path, takes_at: int) -> None:
    play = Play(tmp_path, Reader(tmp_path, "r1", takes_at, None))
    play.interrupted_at = 0.15
    with pytest.raises(KeyboardInterrupt):
        play.run()
    play.check()


@pytest.mark.parametrize("takes_at", range(2 * STEPS.stop))
def test_a_shorter_stop_takes_nothing_back_from_a_longer_one(tmp_path: Path, takes_at: int) -> None:
    """A second thread gives up while the first waits on, as two handlers of one program do."""
    play = Play(tmp_path, Reader(tmp_path, "r1", takes_at, 1))
    play.begins_another_at = 2 * LOOK_SECONDS
    assert play.run(20 * TIMEOUT_MS)
    assert not play.isActive
    play.check()


def test_what_a_stop_beside_returns_or_raises_is_its_callers() -> None:
    main = threading.current_thread()
    assert run_beside(lambda sleep, say: threading.current_thread() is not main)

    def fail(sleep: Callable[[float], None], say: Callable[[str], None]) -> bool:
        raise StopTimeout("too late")

    with pytest.raises(StopTimeout, match="too late"):
        run_beside(fail)


def test_a_stop_beside_logs_in_its_callers_thread(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Who waits may hold the log's lock: its handler of a signal interrupted a call of the log."""
    directory = tmp_path / "control"
    play = Play(directory, Reader(directory, "r1", 3, 1, problem="refused"), Reader(directory, "r2", 3, None))

    def attempt(sleep: Callable[[float], None], say: Callable[[str], None]) -> bool:
        return Stop(play, play, lambda: ["r1", "r2"], clock=lambda: play.now, sleep=play.sleep, say=say).run(TIMEOUT_MS)

    assert not run_beside(attempt)
    play.remove()
    said = [(record.getMessage(), record.thread) for record in caplog.records]
    again = "the last batch may be read again by its next owner: "
    assert [message for message, _ in said] == [
        f"{directory} was deleted while this driver runs; it is created again",
        f"{again}refused",
        f"{again}its reader did not say what it committed",
    ]
    assert {thread for _, thread in said} == {threading.get_ident()}


def is_in_the_wait(thread: int) -> bool:
    """Whether the thread waits for an attempt beside it, which has begun."""
    frame: FrameType | None = sys._current_frames()[thread]
    names = []
    while frame is not None:
        names.append(frame.f_code.co_name)
        frame = frame.f_back
    return {"wait", "run_beside"} <= set(names) and "start" not in names


@pytest.mark.parametrize("takes_seconds", [0.0, 0.5])
def test_an_interrupt_of_the_wait_ends_the_stop_beside_first(takes_seconds: float) -> None:
    ended = threading.Event()
    waiting = threading.get_ident()

    def wait(sleep: Callable[[float], None], say: Callable[[str], None]) -> bool:
        try:
            while not is_in_the_wait(waiting):  # else the interrupt comes while this thread begins
                time.sleep(0.01)
            signal.pthread_kill(waiting, signal.SIGINT)
            sleep(60)
        finally:
            time.sleep(takes_seconds)
            ended.set()
        return True

    with pytest.raises(KeyboardInterrupt):
        run_beside(wait)
    assert ended.is_set()


def test_a_stop_beside_runs_while_the_interpreter_ends() -> None:
    """From Python 3.12 on no thread begins then."""
    program = (
        "import atexit\n"
        "from rallypoint.spark_bridge.stopping import run_beside\n"
        "atexit.register(lambda: print(run_beside(lambda sleep, say: say('said') or True)))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert (done.stdout, done.stderr) == ("True\n", "said\n")


def test_a_query_that_ended_by_itself_is_said_to_be_incomplete(tmp_path: Path) -> None:
    play = Play(tmp_path, Reader(tmp_path, "r1", 99, None))
    play.stop()
    assert play.run() is False
