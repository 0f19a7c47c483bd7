"""What a blocking class runs on: an event loop in a thread, and threads for the user's code that blocks.

`BlockingGroupMember` and `BlockingConsumer` each have one. The loop carries the heartbeats, so the user's code must
never run in it.
"""

import threading
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any, TypeVar

from rallypoint.member.daemon_threads import DaemonThreads
from rallypoint.member.loop_thread import LoopThread
from rallypoint.member.user_code import check_plain, result_of

A = TypeVar("A")
T = TypeVar("T")


class BlockingRuntime:
    """Runs from `loop.start` to `finish`.

    Args:
        name: The name of the event loop's thread.
        limits: As `DaemonThreads`, for the calls of the user's code.
    """

    def __init__(self, name: str, limits: Mapping[str, int]) -> None:
        self.loop = LoopThread(name)
        self.threads = DaemonThreads(limits)
        self._user_code = threading.local()

    @property
    def in_user_code(self) -> bool:
        """Whether the calling thread runs a function of `awaitable`, which must not wait for its own end."""
        return getattr(self._user_code, "runs", False)

    def ask(self, question: Callable[[], T]) -> T:
        """The result of a plain function that must run in the event loop."""

        async def answer() -> T:
            return question()

        return self.loop.wait(answer)

    def awaitable(self, kind: str, function: Callable[[A], T]) -> Callable[[A], Awaitable[T]]:
        """`function` as a coroutine function that runs it in a thread, among the calls of this kind.

        Raises TypeError if it is a coroutine function: its calls would end at once, and their work would count as done.
        """
        check_plain(function)

        def run(argument: A) -> T:
            self._user_code.runs = True
            try:
                return result_of(function, function(argument))
            finally:
                self._user_code.runs = False

        async def wait(argument: A) -> T:
            return await self.threads.call(kind, lambda: run(argument))

        return wait

    def finish(self, end: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Wait for `end`, then end all threads, but for those whose call does not return."""
        self.loop.finish(end)
        self.threads.close()
