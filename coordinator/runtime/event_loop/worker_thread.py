"""Computations that take too long for the event loop: one at a time, on a thread of their own."""

import asyncio
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from rallypoint.coordinator.core.effects import Failure
from rallypoint.protocol.errors import ErrorCode

WAITING_MAX = 16
"""Tasks that may wait for one thread."""

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class _Task:
    work: Callable[[], Any]
    answer: "asyncio.Future[Any]"


class WorkThread:
    """One thread, and those who wait for it. Belongs to one event loop; `close` it at the end."""

    def __init__(self, name: str, waiting_max: int = WAITING_MAX) -> None:
        """`name` is the thread's, for whoever looks at the process."""
        self._pool = ThreadPoolExecutor(1, thread_name_prefix=name)
        self._waiting_max = waiting_max
        self._waiting: deque[_Task] = deque()
        self._at_work: _Task | None = None
        self._is_closed = False

    async def run(self, work: Callable[[], Result]) -> Result | Failure:
        """Do it, in turn. Refused where too many wait, and at the end. What nobody waits for any more is not begun."""
        if self._is_closed:
            return _stopping()
        if len(self._waiting) >= self._waiting_max:
            return Failure(ErrorCode.THROTTLING_QUOTA_EXCEEDED, "Too many questions about assignments wait.")
        task = _Task(work, asyncio.get_running_loop().create_future())
        self._waiting.append(task)
        self._go_on()
        result: Result | Failure = await task.answer
        return result

    def close(self) -> None:
        """Answer everyone who waits. What is being worked out ends by itself, and nobody hears of it."""
        self._is_closed = True
        tasks = [*self._waiting, *([] if self._at_work is None else [self._at_work])]
        self._waiting.clear()
        for task in tasks:
            if not task.answer.done():
                task.answer.set_result(_stopping())
        self._pool.shutdown(wait=False)

    def _go_on(self) -> None:
        while self._waiting and self._at_work is None:
            task = self._waiting.popleft()
            if not task.answer.done():
                self._at_work = task
                done = asyncio.get_running_loop().run_in_executor(self._pool, task.work)
                done.add_done_callback(partial(self._finish, task))

    def _finish(self, task: _Task, done: "asyncio.Future[Any]") -> None:
        self._at_work = None
        fault = None if done.cancelled() else done.exception()
        if not task.answer.done():
            if fault is not None:
                task.answer.set_exception(fault)
            else:
                task.answer.set_result(_stopping() if done.cancelled() else done.result())
        self._go_on()


def _stopping() -> Failure:
    return Failure(ErrorCode.COORDINATOR_NOT_AVAILABLE, "The node is stopping.")
