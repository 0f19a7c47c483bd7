"""How the driver stops a query gracefully: it asks the readers, waits for their answers, and stops the query.

A reader that has taken the request plans nothing more, even if the driver stops waiting. So a stop that times out
either withdraws its request, and the query keeps running, or ends the query. Nothing here knows Spark.
"""

import logging
import threading
import time
import uuid
from collections.abc import Callable, Iterable
from typing import Protocol

from rallypoint.spark_bridge.control import Answer, Request
from rallypoint.spark_bridge.errors import StopTimeout

log = logging.getLogger("rallypoint.spark")

LOOK_SECONDS = 0.1

TAKEN_SECONDS = 60.0
"""How much longer than the caller's timeout to wait once a request is taken: enough to commit and leave the group."""


class Query(Protocol):
    """The part of a `StreamingQuery` that is used here."""

    @property
    def isActive(self) -> bool:  # noqa: N802 - Spark's name
        """Whether it runs."""

    def stop(self) -> None:
        """End it at once."""


class Control(Protocol):
    """The part of `control.ControlDirectory` that is used here."""

    def ask(self, reader_id: str, request: Request, *, say: Callable[[str], None]) -> None:
        """Leave a request."""

    def withdraw(self, reader_id: str, attempt: str) -> bool:
        """Withdraw a request. Returns whether that was in time."""

    def answer(self, reader_id: str) -> Answer | None:
        """The reader's answer; None until there is one."""


class Stop:
    """One attempt to stop a query.

    `readers`: the ids of the query's readers that are known so far.
    `say`: receives the lines to log; nothing else is logged here.
    """

    def __init__(
        self,
        query: Query,
        control: Control,
        readers: Callable[[], Iterable[str]],
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
        say: Callable[[str], None] = log.warning,
    ) -> None:
        self._query = query
        self._control = control
        self._readers = readers
        self._clock = clock
        self._sleep = sleep
        self._say = say
        self._attempt = uuid.uuid4().hex
        self._asked: dict[str, bool | None] = {}
        """Whether each reader has committed; None while it has not answered."""

    def run(self, timeout_ms: int) -> bool:
        """Returns True if everything that the query completed is committed.

        Returns False if it has ended without that, or before its readers received the request. Raises StopTimeout if no
        reader received it; the query then keeps running. If the wait ends in another way, such as Ctrl-C, no query that
        has left its group keeps running.
        """
        try:
            if self._wait(timeout_ms / 1000, ask=True):
                return self._end()
            if not self._query.isActive:
                self._hear()
                return self._is_committed()
            if not self._withdraw():
                raise StopTimeout(
                    f"Spark did not ask for new data within {timeout_ms} ms, so the query could not end in good order;"
                    " give stop() more time than a batch and a trigger interval take"
                )
            self._wait(TAKEN_SECONDS, ask=False)
            return self._end()
        except StopTimeout:
            raise
        except BaseException:
            if self._withdraw():
                self._query.stop()
            raise

    def _wait(self, seconds: float, *, ask: bool) -> bool:
        """Whether all have answered. False once the time is over, or if the query has ended without their answers."""
        deadline = self._clock() + seconds
        while True:
            # Before the answers are read: an `availableNow` run ends right after its reader has answered.
            is_over = not self._query.isActive
            if ask and not is_over:
                self._ask()
            self._hear()
            if self._asked and all(committed is not None for committed in self._asked.values()):
                return True
            if is_over or self._clock() > deadline:
                return False
            self._sleep(LOOK_SECONDS)

    def _ask(self) -> None:
        for reader_id in self._readers():
            if reader_id not in self._asked:
                self._control.ask(reader_id, Request("stop", attempt=self._attempt), say=self._say)
                self._asked[reader_id] = None

    def _hear(self) -> None:
        for reader_id, committed in self._asked.items():
            answer = self._control.answer(reader_id) if committed is None else None
            if answer is not None:
                self._asked[reader_id] = answer.committed
                if not answer.committed:
                    self._say(f"the last batch may be read again by its next owner: {answer.detail}")

    def _withdraw(self) -> bool:
        """Withdraw the requests. Returns whether a reader has already taken one, so that the query must end."""
        in_time = [self._control.withdraw(reader_id, self._attempt) for reader_id in self._asked]
        return not all(in_time)

    def _end(self) -> bool:
        self._query.stop()
        if None in self._asked.values():
            self._say("the last batch may be read again by its next owner: its reader did not say what it committed")
        return self._is_committed()

    def _is_committed(self) -> bool:
        return bool(self._asked) and all(committed is True for committed in self._asked.values())


class Interrupted(BaseException):
    """The caller no longer waits for the attempt."""


def run_beside(attempt: Callable[[Callable[[float], None], Callable[[str], None]], bool]) -> bool:
    """Run `attempt(sleep, say)` in a thread of its own, and return or raise what it does. Logs its lines at the end.

    A signal handler interrupts its thread anywhere. If the thread is inside a call to the JVM, such as
    `awaitTermination`, a second call by it would break the connection. If it is inside a logging call, it holds the
    logging lock, and any other thread that logs would deadlock. If this wait is interrupted, `sleep` raises in the
    attempt, and the interrupt continues once the attempt has ended. While the interpreter shuts down no thread can be
    started, so the attempt runs in the caller's thread.
    """
    outcome: list[bool] = []
    problem: list[BaseException] = []
    lines: list[str] = []
    run_lock = threading.Lock()
    """Held by the thread that runs the attempt, or by the caller once it has to prevent that."""
    interrupted, ended = threading.Event(), threading.Event()

    def sleep(seconds: float) -> None:
        if interrupted.wait(seconds):
            raise Interrupted

    def run() -> None:
        if not run_lock.acquire(blocking=False):
            return
        try:
            outcome.append(attempt(sleep, lines.append))
        except BaseException as error:
            problem.append(error)
        finally:
            ended.set()

    try:
        try:
            threading.Thread(target=run, name="rallypoint-stop", daemon=True).start()
        except RuntimeError:
            run()
        # Not `join`: up to Python 3.12, a thread counts as ended after an interrupted `join`.
        ended.wait()
    except BaseException:
        interrupted.set()
        if not run_lock.acquire(blocking=False):
            ended.wait()
        raise
    finally:
        for line in lines:
            log.warning("%s", line)
    if problem:
        raise problem[0]
    return outcome[0]
