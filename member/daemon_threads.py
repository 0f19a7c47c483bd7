"""Calls that block, awaited from the event loop. The threads are daemons: a call that never returns must not keep the
process from ending, as the threads of `concurrent.futures` would.
"""

import asyncio
import queue
import threading
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

T = TypeVar("T")

IDLE_SECONDS = 10.0
"""How long a thread without work waits for some before it ends."""

CLOSE_SECONDS = 1.0
"""How long each idle thread is waited for, which ends as soon as the machine lets it."""

_Work = tuple[Callable[[], Any], str, "asyncio.AbstractEventLoop", "asyncio.Future[Any]"]


class DaemonThreads:
    """One pool of threads. Calls of one kind wait for each other, never for calls of another kind.

    Args:
        limits: The kinds, each with the most calls of it that are waited for at once. A thread bears the name of the
            kind whose call it runs. The pool has no more threads than the sum of the limits, and one for each call
            that still runs though its caller was cancelled.
    """

    def __init__(self, limits: Mapping[str, int]) -> None:
        self._limits = {kind: asyncio.Semaphore(limit) for kind, limit in limits.items()}
        self._work: queue.SimpleQueue[_Work | None] = queue.SimpleQueue()
        self._idle = 0
        self._resting: set[threading.Thread] = set()
        self._running: dict[asyncio.Future[Any], str] = {}
        self._closed = False
        self._lock = threading.Lock()

    async def call(self, kind: str, function: Callable[[], T], *, to_the_end: bool = False) -> T:
        """The result of `function`, run in a thread. Cancelled, the waiting ends; the thread goes on for nobody.

        `to_the_end`: if this is cancelled, it still waits for the end of the call, unless it is cancelled again; for
        calls of which there must not be two at once.
        """
        async with self._limits[kind]:
            answer = self._begin(kind, function)
            try:
                await asyncio.wait({answer})
            except asyncio.CancelledError:
                if to_the_end:
                    await asyncio.wait({answer})
                raise
            return answer.result()

    async def wait_idle(self, *kinds: str) -> None:
        """Wait until no call of these kinds runs, not even one whose caller was cancelled."""
        while running := {answer for answer, kind in self._running.items() if kind in kinds}:
            await asyncio.wait(running)

    def close(self) -> None:
        """Let the threads end: idle ones at once, and they are waited for; the others when their call returns. No call
        may follow.
        """
        with self._lock:
            self._closed = True
            for _ in range(self._idle):
                self._work.put(None)
            self._idle = 0
            resting = list(self._resting)
        for thread in resting:
            thread.join(CLOSE_SECONDS)

    def _begin(self, kind: str, function: Callable[[], T]) -> "asyncio.Future[T]":
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[T] = loop.create_future()
        work: _Work = (function, kind, loop, answer)
        with self._lock:
            begins = self._idle == 0
            self._idle -= not begins
        if begins:  # with its work, which must not stay behind for another thread if the system has none to give
            threading.Thread(target=self._serve, args=(work,), name=kind, daemon=True).start()
        else:
            self._work.put(work)
        self._running[answer] = kind
        answer.add_done_callback(self._forget)
        return answer

    def _forget(self, answer: "asyncio.Future[Any]") -> None:
        """The call has ended. Its error counts as seen, for its caller may have been cancelled."""
        del self._running[answer]
        if not answer.cancelled():
            answer.exception()

    def _serve(self, first: _Work) -> None:
        thread = threading.current_thread()
        work: _Work | None = first
        while work is not None:
            function, thread.name, loop, answer = work
            with self._lock:
                self._resting.discard(thread)
            result, error = _outcome(function)
            with self._lock:  # before the result is delivered, so that a close after it waits for this thread
                self._resting.add(thread)
            _deliver(loop, answer, result, error)
            with self._lock:
                if self._closed:
                    return
                self._idle += 1
            work = self._next_work()
        with self._lock:
            self._resting.discard(thread)

    def _next_work(self) -> _Work | None:
        """None if there is none for a while, or any more."""
        while True:
            try:
                return self._work.get(timeout=IDLE_SECONDS)
            except queue.Empty:
                with self._lock:
                    if self._idle > 0:  # else the next call counts on this thread
                        self._idle -= 1
                        return None


def _outcome(function: Callable[[], Any]) -> tuple[Any, BaseException | None]:
    try:
        return function(), None
    except BaseException as raised:
        return None, raised


def _deliver(
    loop: asyncio.AbstractEventLoop, answer: "asyncio.Future[Any]", result: Any, error: BaseException | None
) -> None:
    try:
        loop.call_soon_threadsafe(_settle, answer, result, error)
    except RuntimeError:
        return  # the loop was closed meanwhile: nobody waits


def _settle(answer: "asyncio.Future[Any]", result: Any, error: BaseException | None) -> None:
    if answer.done():
        return
    if error is None:
        answer.set_result(result)
    elif isinstance(error, Exception) and not isinstance(error, StopIteration):
        answer.set_exception(error)
    else:  # what no future may carry, or what would end the event loop in place of the thread
        failure = RuntimeError(f"{type(error).__name__}: {error}")
        failure.__cause__ = error
        answer.set_exception(failure)
