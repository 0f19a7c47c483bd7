"""A consumer as a program: it runs until the process is asked to end, and then ends in order."""

import asyncio
import logging
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from member.consumer.blocking import BlockingConsumer
from member.consumer.consumer import Consumer

SIGNALS = (signal.SIGTERM, signal.SIGINT)

log = logging.getLogger("rallypoint.member")


def run(consumer: Consumer[Any] | BlockingConsumer[Any]) -> None:
    """Consume until SIGTERM or SIGINT: then finish the batches in hand, commit, leave (a static member stays), return.

    A second signal ends the process at once. The handlers of signals that were there before are there again when it
    returns. For the main thread; RuntimeError in any other. A `Consumer` gets an event loop of its own. Raises the
    error that stops the consumer, if one does.
    """
    if threading.current_thread() is not threading.main_thread():
        raise RuntimeError(
            "run() belongs to the main thread, which alone hears of signals; use the method run elsewhere"
        )
    if isinstance(consumer, BlockingConsumer):
        with _stopping(consumer.request_stop):
            consumer.run()
    else:
        asyncio.run(_run(consumer))


async def _run(consumer: Consumer[Any]) -> None:
    loop = asyncio.get_running_loop()
    # Not at once: a signal comes while the loop waits for its sockets, and must wake it.
    with _stopping(lambda: loop.call_soon_threadsafe(consumer.request_stop)):
        await consumer.run()


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
