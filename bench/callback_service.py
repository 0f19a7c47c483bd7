"""The service on an event loop that measures the processor time of its callbacks, and keeps the longest.

A line on standard input ends a stretch: the longest callback since the line before is written as JSON, and that of the
last stretch at the end. It runs on asyncio's own loop, whose callbacks can be told apart; they do the same on uvloop.
"""

import asyncio
import json
import sys
import threading
from collections import deque
from functools import partial
from time import thread_time
from typing import Any

from rallypoint.coordinator.main import raise_file_limit, serve
from rallypoint.coordinator.settings import Settings, load_settings

TOLD_S = 0.001
"""Of shorter callbacks nobody is told what they were."""


class Longest:
    """The longest callback of a stretch, in seconds of the loop's thread, and what it was."""

    def __init__(self) -> None:
        self._began_s: float | None = None
        self._handle: Any = None
        self.longest_s = 0.0
        self.what = ""

    def begin(self, handle: Any) -> None:
        """The loop takes up this callback, and has ended the one before."""
        self.end()
        self._began_s, self._handle = thread_time(), handle

    def forget(self) -> None:
        """A stretch begins here, in the middle of the callback."""
        self.longest_s, self.what = 0.0, ""
        self._began_s = None if self._began_s is None else thread_time()

    def end(self) -> None:
        """The loop has ended the callback."""
        if self._began_s is None:
            return
        taken_s = thread_time() - self._began_s
        if taken_s > self.longest_s:
            self.longest_s = taken_s
            self.what = repr(self._handle) if taken_s > TOLD_S else ""
        self._began_s = self._handle = None


class _Ready(deque[Any]):
    """The loop's queue of callbacks, which says when one is taken up."""

    longest: Longest

    def popleft(self) -> Any:
        """Called by the loop for each callback, just before it is run."""
        handle = super().popleft()
        self.longest.begin(handle)
        return handle


class MeasuredLoop(asyncio.SelectorEventLoop):
    """An event loop that knows its longest callback."""

    def __init__(self) -> None:
        super().__init__()
        self.longest = Longest()
        ready = _Ready()
        ready.longest = self.longest
        self._ready = ready

    async def create_server(self, *given: Any, **named: Any) -> asyncio.Server:
        """From now on somebody may wait: what came before, such as to make the API, has kept nobody waiting."""
        self.longest.forget()
        return await super().create_server(*given, **named)

    def _run_once(self) -> None:
        super()._run_once()  # type: ignore[misc]
        self.longest.end()


def _answer_lines(loop: MeasuredLoop) -> None:
    for _ in sys.stdin:
        loop.call_soon_threadsafe(_tell, loop.longest)


def _tell(longest: Longest) -> None:
    print(json.dumps({"longest_ms": longest.longest_s * 1000, "what": longest.what}), flush=True)
    longest.forget()


def main(arguments: list[str]) -> None:
    """Serve, with settings and limits as NAME=VALUE."""
    given = dict(argument.split("=", 1) for argument in arguments)
    settings = load_settings({name: value for name, value in given.items() if name in Settings.model_fields})
    limits = {name: int(value) for name, value in given.items() if name not in Settings.model_fields}
    loop = MeasuredLoop()
    threading.Thread(target=_answer_lines, args=(loop,), daemon=True).start()
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        announce = partial(print, "listening on", flush=True)
        runner.run(serve(settings, "bench", announce, raise_file_limit(), limits))
    _tell(loop.longest)


if __name__ == "__main__":
    main(sys.argv[1:])
