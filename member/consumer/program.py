"""A consumer as a program: it runs until the process is asked to end, and then ends in order."""

import asyncio
import logging
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from rallypoint.member.consumer.blocking import BlockingConsumer
from rallypoint.member.consumer.consumer import Consumer
from rallypoint.member.loop_thread import WAKE_SECONDS

SIGNALS = (signal.SIGTERM, signal.SIGINT)

log = logging.getLogger("rallypoint.member")


def run(consumer: Consumer[Any] | BlockingConsumer[Any]) -> None:
    """Consume until SIGTERM or SIGINT, then stop in order: finish the batches in hand, commit, leave, and return.

    A static member stays in the group. A second signal ends the process at once. When this returns, the previous signal
    handlers are set again. Raises the error that stops the consumer, if one does, and RuntimeError outside the main
    thread, and for a `Consumer` if an event loop runs already, as in a notebook.

    Args:
        consumer: A consumer that was not started. A `Consumer` gets an event loop of its own.
    """
    if threading.current_thread() is not threading.main_thread():
        raise RuntimeError(
            "run() belongs to the main thread, which alone hears of signals; use the method run elsewhere"
        )
    if isinstance(consumer, BlockingConsumer):
        with _stopping(consumer.request_stop):
            consumer.run()
    elif _a_loop_runs():
        raise RuntimeError("an event loop runs here already, as in a notebook: use `await consumer.run()` in its place")
    else:
        asyncio.run(_run(consumer))


def _a_loop_runs() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


async def _run(consumer: Consumer[Any]) -> None:
    loop = asyncio.get_running_loop()
    running = asyncio.create_task(consumer.run())
    # Not at once: a signal comes while the loop waits for its sockets, and must wake it.
    with _stopping(lambda: loop.call_soon_threadsafe(consumer.request_stop)):
        # One that another thread was given wakes no loop: its handler is called when this one runs next.
        while not (await asyncio.wait((running,), timeout=WAKE_SECONDS))[0]:
            continue
    await running


@contextmanager
def _stopping(stop: Callable[[], object]) -> Iterator[None]:
    """Call `stop` at the first signal, end the process with the second."""
    heard = False

    def hear(number: int, frame: FrameType | None) -> None:
        nonlocal heard
        if heard:
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)
        heard = True
        stop()

    before = {number: signal.signal(number, hear) for number in SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
        if heard:
            log.info("stopped in order, as a signal asked for")
