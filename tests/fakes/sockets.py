"""What a test leaves open in its event loop."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

SECONDS = 30.0
PAUSE_SECONDS = 0.005


def _watched() -> set[int]:
    selector = asyncio.get_running_loop()._selector  # type: ignore[attr-defined]
    return set(selector.get_map())


def _tasks() -> set["asyncio.Task[object]"]:
    return {task for task in asyncio.all_tasks() if task is not asyncio.current_task()}


@asynccontextmanager
async def nothing_left() -> AsyncIterator[None]:
    """No task and no socket of the block outlives it for long. AssertionError names what does."""
    tasks, sockets = _tasks() | {asyncio.current_task()}, _watched()
    yield
    for _ in range(int(SECONDS / PAUSE_SECONDS)):
        if _tasks() <= tasks and _watched() <= sockets:
            return
        await asyncio.sleep(PAUSE_SECONDS)
    assert _tasks() - tasks == set()
    assert _watched() - sockets == set()
