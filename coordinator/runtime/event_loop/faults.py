"""Bounds a fault of ours: the rest of a loop goes on, and a task that somebody relies on is restarted.

A fault is an exception that no rule provides for. It is logged once, in full, where it is caught, and `FaultCounter`
counts it. Then the service repairs what the fault broke: it reloads a group or ends a channel. Everything else goes on.

The coordinator calls `asyncio.create_task` here, and otherwise only where the caller awaits the task at once.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable, Sequence
from contextvars import Context
from functools import partial
from typing import Any, TypeVar

logger = logging.getLogger(__name__)

Member = TypeVar("Member")
Result = TypeVar("Result")


def survives(do: Callable[..., object], *given: object) -> bool:
    """Do it. False where it met a fault, which is logged."""
    try:
        do(*given)
    except Exception:
        logger.exception("a fault of the service, in %s", _name_of(do))
        return False
    return True


def each(
    members: Iterable[Member], do: Callable[[Member], object], treat: Callable[[Member], object] | None = None
) -> None:
    """Do it to all of them, whatever becomes of one. `treat` is done to those with which it met a fault."""
    for member in members:
        if not survives(do, member) and treat is not None:
            survives(treat, member)


async def each_in_turns(
    members: Sequence[Member],
    do: Callable[[Member], object],
    treat: Callable[[Member], object] | None = None,
    *,
    at_once_max: int,
) -> None:
    """The same, so many at a time; between them others have their turn."""
    for start in range(0, len(members), at_once_max):
        if start:
            await asyncio.sleep(0)
        each(members[start : start + at_once_max], do, treat)


def begin(
    work: Coroutine[Any, Any, Result], on_fault: Callable[[], object], *, is_of_request: bool = False
) -> "asyncio.Task[Result]":
    """Begin a task that somebody relies on. Where it ends by a fault, that is logged, and `on_fault` makes good.

    `is_of_request`: it works for the request that begins it alone, and what it logs names that.

    That reloads what the task served, or begins it again, but never without a wait: a fault that stays would keep
    the event loop busy. A task that is cancelled has no fault.
    """
    task = asyncio.get_running_loop().create_task(work, context=None if is_of_request else Context())
    task.add_done_callback(partial(_look_at_end, on_fault, _name_of(work)))
    return task


def _look_at_end(on_fault: Callable[[], object], name: str, task: "asyncio.Task[Any]") -> None:
    fault = None if task.cancelled() else task.exception()
    if fault is not None:
        logger.error("a fault of the service ended %s", name, exc_info=fault)
        survives(on_fault)


def _name_of(work: object) -> str:
    """Of a partial, what it calls. A compiled coroutine has no name; that of its class says as much."""
    named = getattr(work, "func", work)
    return str(getattr(named, "__qualname__", None) or type(named).__qualname__)
