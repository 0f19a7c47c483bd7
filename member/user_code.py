"""What the user's code raises, as an error to fail with. Knows nothing of groups."""

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

T = TypeVar("T")


async def called(what: str, call: Awaitable[T]) -> T:
    """Its result. `what`: whose code it is, for the error.

    RuntimeError, with the cause, if it raises what is no Exception, or a CancelledError though nobody has cancelled
    this task: a task that ended with one of them would end unseen. KeyboardInterrupt and SystemExit end the event loop,
    as everywhere.
    """
    task = asyncio.current_task()
    try:
        return await call
    except (Exception, KeyboardInterrupt, SystemExit):
        raise
    except asyncio.CancelledError as error:
        if task is not None and task.cancelling():
            raise
        raise RuntimeError(f"{what} was cancelled from within") from error
    except BaseException as error:
        if not _is_current(task):  # the event loop is gone, and this is closed with what is left of it
            raise
        raise RuntimeError(f"{what} raised {type(error).__name__}: {error}") from error


def _is_current(task: "asyncio.Task[object] | None") -> bool:
    try:
        return asyncio.current_task() is task
    except RuntimeError:
        return False
