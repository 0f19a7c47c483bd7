"""An event loop in a thread of its own, for the blocking face of what lives in it. Knows nothing of groups."""

import asyncio
import concurrent.futures
import logging
import os
import threading
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, TypeVar

from rallypoint.member.errors import MemberClosed

T = TypeVar("T")

END_SECONDS = 10.0
"""How long the thread's end is waited for, once all is done that was asked for. What is left then may be a look-up of
a name, which the system does not cut short."""
WAKE_SECONDS = 0.25
"""How long a wait lasts at a time. The system may deliver a signal to any thread, while Python calls its handler in the
main one, as soon as that runs: asleep in a wait without end it would never hear of it."""

CUT_SECONDS = 1.0
"""For what is cancelled at the loop's end to come to its own."""

log = logging.getLogger("rallypoint.member")


class LoopThread:
    """Runs from `start` to `finish`. `wait` and `finish` may be called from any thread of this process but its own,
    which they would wait for: RuntimeError there, and in a process forked off, where the thread does not exist.

    If the loop ends by itself, as by a `sys.exit()` in it, that is logged, and callers that wait get MemberClosed.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._is_finished = False
        self._process_id = 0
        self._failure: BaseException | None = None
        self._ready = threading.Event()
        self._stop = asyncio.Event()
        self._ending = threading.Lock()
        self._gate = threading.Lock()

    @property
    def started(self) -> bool:
        """Whether `start` was called, also when it has finished since."""
        return self._thread is not None

    @property
    def running(self) -> bool:
        """Whether calls can be made."""
        return self._loop is not None

    def start(self) -> None:
        """Begin; returns when calls can be made. RuntimeError where it was started or finished before."""
        if self._thread is not None or self._is_finished:
            raise RuntimeError("this is started once; make a new one for another life")
        self._process_id = os.getpid()
        self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
        self._thread.start()
        self._ready.wait()
        if (failure := self._failure) is not None:
            self._thread = self._failure = None
            self._ready.clear()  # another try may do better
            raise RuntimeError(f"no event loop could be made: {failure}") from failure

    def wait(self, call: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Run it in the loop and wait for its result. MemberClosed if the loop does not run, or ends meanwhile."""
        self._check_caller()
        with self._gate:
            if self._loop is None:
                raise MemberClosed("this was not started, or has stopped")
            waiting = asyncio.run_coroutine_threadsafe(call(), self._loop)
        try:
            while concurrent.futures.wait((waiting,), WAKE_SECONDS).not_done:
                continue
            return waiting.result()
        except concurrent.futures.CancelledError:
            raise MemberClosed("this was stopped meanwhile") from None
        except BaseException:
            waiting.cancel()  # an interrupt from the keyboard ends the waiting, so the call must end too
            raise

    def call_soon(self, call: Callable[[], None]) -> None:
        """Have it called in the loop soon; nothing if the loop does not run. May be called from a signal handler."""
        loop = self._loop
        if loop is not None and os.getpid() == self._process_id:
            try:
                loop.call_soon_threadsafe(call)
            except RuntimeError:
                return  # it ended at this moment

    def finish(self, end: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Wait for `end`, then end the thread, which is waited for `END_SECONDS` at the most. Again: nothing. If two
        threads do it at once, whichever `end` comes first ends it for both.
        """
        self._check_caller()
        self._is_finished = True
        if self._thread is None:
            return
        if self._loop is not None:
            with suppress(MemberClosed):  # by the other one
                self.wait(end)
        with self._ending:
            with self._gate:  # whatever was asked before is begun, and cancelled when the loop ends
                if self._loop is not None:
                    self._loop.call_soon_threadsafe(self._stop.set)
                    self._loop = None
            self._thread.join(END_SECONDS)
            if self._thread.is_alive():
                log.warning("%s: its thread has not ended %g s after all was done", self._name, END_SECONDS)

    def _check_caller(self) -> None:
        if self._thread is None:
            return
        if threading.current_thread() is self._thread:
            raise RuntimeError(
                f"this was called in the event loop of {self._name}, which it would wait for; call it in another thread"
            )
        if os.getpid() != self._process_id:
            raise RuntimeError(
                f"{self._name} runs in process {self._process_id}, from which this one was forked: make one of its own"
                " here, after the fork"
            )

    def _run(self) -> None:
        try:
            with asyncio.Runner() as runner:
                try:
                    runner.run(self._live(runner.get_loop()))
                finally:
                    with self._gate:
                        self._loop = None
                    runner.run(_cancel_rest())
        except BaseException as error:
            if not self._ready.is_set():  # `start` says so
                self._failure = error
                self._ready.set()
                return
            log.critical("%s: its event loop has ended by itself, and all that ran in it", self._name, exc_info=True)

    async def _live(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._ready.set()
        await self._stop.wait()


async def _cancel_rest() -> None:
    """Cancel what is left, for the first time: what then waits on, as for a read in a thread, is cancelled for good
    when the loop ends, so that nobody waits for a thread that hangs.
    """
    await asyncio.sleep(0)  # what was asked for before is begun, so that it can be cancelled
    rest = asyncio.all_tasks() - {asyncio.current_task()}
    for task in rest:
        task.cancel()
    if rest:
        await asyncio.wait(rest, timeout=CUT_SECONDS)


def run_in_thread(call: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """The result of one call, which gets an event loop for itself: also for a thread that has one already."""
    loop = LoopThread("rallypoint-call")
    loop.start()
    try:
        return loop.wait(call)
    finally:
        loop.finish(_nothing)


async def _nothing() -> None:
    """All is done."""
