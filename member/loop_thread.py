"""An event loop in a thread of its own, for the blocking face of what lives in it. Knows nothing of groups."""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import CancelledError
from typing import Any, TypeVar

from member.errors import MemberClosed

T = TypeVar("T")


class LoopThread:
    """Runs from `start` to `finish`. `wait` may be called from any thread but its own."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
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
        """Begin; returns when calls can be made. RuntimeError where it was started before."""
        if self._thread is not None:
            raise RuntimeError("this is started once; make a new one for another life")
        self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
        self._thread.start()
        self._ready.wait()

    def wait(self, call: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Run it in the loop and wait for its result. MemberClosed where the loop does not run, or ends meanwhile."""
        with self._gate:
            if self._loop is None:
                raise MemberClosed("this was not started, or has stopped")
            waiting = asyncio.run_coroutine_threadsafe(call(), self._loop)
        try:
            return waiting.result()
        except CancelledError:
            raise MemberClosed("this was stopped meanwhile") from None
        except BaseException:
            waiting.cancel()  # an interrupt from the keyboard ends the waiting, so the call must end too
            raise

    def tell(self, call: Callable[[], None]) -> None:
        """Have it called in the loop soon; nothing where the loop does not run. May be called from a signal handler."""
        loop = self._loop
        if loop is not None:
            try:
                loop.call_soon_threadsafe(call)
            except RuntimeError:
                return  # it ended at this moment

    def finish(self, end: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Wait for `end`, then end the thread. Again: nothing."""
        with self._ending:
            if self._loop is None or self._thread is None:
                return
            self.wait(end)
            with self._gate:  # whatever was asked before is begun, and cancelled when the loop ends
                self._loop.call_soon_threadsafe(self._stop.set)
                self._loop = None
            self._thread.join()

    def _run(self) -> None:
        asyncio.run(self._live())

    async def _live(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._ready.set()
        await self._stop.wait()
