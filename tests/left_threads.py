"""Fails a test whose threads of members do not end with it.

Left alone they run on beside other tests, and those that count threads find them instead of their own.
"""

import threading
from collections.abc import Generator
from time import monotonic

import pytest

NAMES = frozenset({"rallypoint-member", "rallypoint-callback", "rallypoint-counts"})
"""Threads of members. Those of a source that is used from asyncio rest for a while before they end."""
ENDING_SECONDS = 20.0
"""How long they may take."""
BEFORE = pytest.StashKey[set[threading.Thread]]()
"""The threads of members that ran before the test."""


def of_members() -> set[threading.Thread]:
    """Those that run now."""
    return {thread for thread in threading.enumerate() if thread.name in NAMES}


def wait_ended(threads: set[threading.Thread], seconds: float) -> list[str]:
    """The names of those that run still after so long."""
    deadline = monotonic() + seconds
    for thread in threads:
        thread.join(max(0.0, deadline - monotonic()))
    return sorted(thread.name for thread in threads if thread.is_alive())


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Note what runs before the test and its fixtures."""
    item.stash[BEFORE] = of_members()
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, None, None]:
    """When the fixtures of the test are gone, too."""
    yield
    before = item.stash[BEFORE]
    if left := wait_ended(of_members() - before, ENDING_SECONDS):
        pytest.fail(f"{item.nodeid} leaves threads: {', '.join(left)}", pytrace=False)
