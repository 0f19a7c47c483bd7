"""Work on paper that takes too long for the event loop: one piece at a time, on a thread of its own."""

import asyncio
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from coordinator.core.effects import Failure
from protocol.errors import ErrorCode

WAITING_MAX = 16
"""Pieces that may wait for one thread."""

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class _Piece:
    work: Callable[[], Any]
    answer: "asyncio.Future[Any]"


class WorkThread:
    """One thread, and those who wait for it. Belongs to one event loop; `close` it at the end."""

    def __init__(self, name: str, waiting_max: int = WAITING_MAX) -> None:
        """`name` is the thread's, for whoever looks at the process."""
        self._pool = ThreadPoolExecutor(1, thread_name_prefix=name)
        self._waiting_max = waiting_max
        self._waiting: deque[_Piece] = deque()
        self._at_work: _Piece | None = None
        self._is_closed = False

    async def run(self, work: Callable[[], Result]) -> Result | Failure:
        """Do it, in turn. Refused where too many wait, and at the end. What nobody waits for any more is not begun."""
        if self._is_closed:
            return _stopping()
        if len(self._waiting) >= self._waiting_max:
            return Failure(ErrorCode.THROTTLING_QUOTA_EXCEEDED, "Too many questions about assignments wait.")
        piece = _Piece(work, asyncio.get_running_loop().create_future())
        self._waiting.append(piece)
        self._go_on()
        result: Result | Failure = await piece.answer
        return result

    def close(self) -> None:
        """Answer everyone who waits. What is being worked out ends by itself, and nobody hears of it."""
        self._is_closed = True
        pieces = [*self._waiting, *([] if self._at_work is None else [self._at_work])]
        self._waiting.clear()
        for piece in pieces:
            if not piece.answer.done():
                piece.answer.set_result(_stopping())
        self._pool.shutdown(wait=False)

    def _go_on(self) -> None:
        while self._waiting and self._at_work is None:
            piece = self._waiting.popleft()
            if not piece.answer.done():
                self._at_work = piece
                done = asyncio.get_running_loop().run_in_executor(self._pool, piece.work)
                done.add_done_callback(partial(self._finish, piece))

    def _finish(self, piece: _Piece, done: "asyncio.Future[Any]") -> None:
        self._at_work = None
        fault = None if done.cancelled() else done.exception()
        if not piece.answer.done():
            if fault is not None:
                piece.answer.set_exception(fault)
            else:
                piece.answer.set_result(_stopping() if done.cancelled() else done.result())
        self._go_on()


def _stopping() -> Failure:
    return Failure(ErrorCode.COORDINATOR_NOT_AVAILABLE, "The node is stopping.")
