"""Fails a test that leaves connections open when its event loop is closed.

Left alone they are found by the collector, in the middle of some later test that has nothing to do with them. Loops in
threads count as well, for the test that runs when they are closed; so do those of a fixture, for its last test.
"""

import asyncio
from asyncio.selector_events import BaseSelectorEventLoop
from collections.abc import Generator
from contextlib import suppress

import pytest

LEFT_OPEN: list[str] = []
"""What the loops that were closed since the last look had open still."""

_close = BaseSelectorEventLoop.close


def _close_and_look(loop: asyncio.BaseEventLoop) -> None:
    """Close the loop, and note what its connections are that nobody has closed; they are closed here."""
    # The loop keeps them for its own use, and nothing public names them. An end that was begun takes a turn.
    known = getattr(loop, "_transports", {})
    if known and not loop.is_closed() and not loop.is_running() and _is_free():
        loop.run_until_complete(asyncio.sleep(0))
        for transport in list(known.values()):
            if transport.get_extra_info("socket").fileno() != -1:
                LEFT_OPEN.append(repr(transport))
                transport.abort()
        loop.run_until_complete(asyncio.sleep(0))
    _close(loop)


def _is_free() -> bool:
    """Whether no loop runs in this thread, so that this one can take a turn."""
    with suppress(RuntimeError):
        asyncio.get_running_loop()
        return False
    return True


def take_left_open() -> list[str]:
    """What was left open since the last look."""
    found = LEFT_OPEN.copy()
    LEFT_OPEN.clear()
    return found


def pytest_configure() -> None:
    """Look from now on."""
    BaseSelectorEventLoop.close = _close_and_look  # type: ignore[method-assign, assignment]


def pytest_unconfigure() -> None:
    """Look no longer."""
    BaseSelectorEventLoop.close = _close  # type: ignore[method-assign]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, None, None]:
    """When the test's own loop is closed, too."""
    yield
    if found := take_left_open():
        pytest.fail(f"{item.nodeid} leaves connections open: {', '.join(found)}", pytrace=False)
