"""What the user's code raises, as an error to fail with, and what would not run at all. Knows nothing of groups."""

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")

_OF_ANOTHER_KIND = (inspect.iscoroutinefunction, inspect.isasyncgenfunction, inspect.isgeneratorfunction)


def check_plain(function: Callable[..., object]) -> None:
    """Raises TypeError if a call of this function would run nothing of it: it is a coroutine or generator function."""
    if any(is_so(function) for is_so in _OF_ANOTHER_KIND):
        raise TypeError(_not_plain(function))


def result_of(function: Callable[..., T], result: T) -> T:
    """The result of a plain function. Raises TypeError if it is a coroutine or a generator: nothing of it has run."""
    if inspect.isawaitable(result) or inspect.isgenerator(result) or inspect.isasyncgen(result):
        if inspect.iscoroutine(result):
            result.close()  # or Python warns that nobody has awaited it
        raise TypeError(_not_plain(function))
    return result


def _not_plain(function: Callable[..., object]) -> str:
    name = getattr(function, "__qualname__", repr(function))
    return (
        f"{name} is no plain function: a call runs nothing of a coroutine function or a generator function."
        " Consumer and GroupMember take coroutine functions"
    )


async def called(what: str, call: Awaitable[T]) -> T:
    """Its result. `what`: whose code it is, for the error. TypeError if it was no coroutine function that was called.

    RuntimeError, with the cause, if it raises what is no Exception, or a CancelledError though nobody has cancelled
    this task: a task that ended with one of them would end unseen. KeyboardInterrupt and SystemExit end the event loop,
    as everywhere.
    """
    task = asyncio.current_task()
    if not inspect.isawaitable(call):
        raise TypeError(
            f"{what} returned {type(call).__name__}, which cannot be awaited: it has to be a coroutine function."
            " BlockingConsumer and BlockingGroupMember take plain functions"
        )
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
