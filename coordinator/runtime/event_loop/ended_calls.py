"""Calls of groups that end. They are answered some at a time.

Each answer lets a request go on. Thousands of calls may wait for one group, and a lost shard ends all its groups at
once. So the calls are counted over all groups together.
"""

import asyncio
from collections import deque
from collections.abc import Callable

from rallypoint.coordinator.runtime.event_loop.faults import survives

ENDED_AT_ONCE_MAX = 200
"""Calls that are answered before others have their turn."""


class EndedCalls:
    """What is left to be answered. Belongs to one event loop."""

    def __init__(self) -> None:
        self._due: deque[Callable[[], None]] = deque()
        self._left = ENDED_AT_ONCE_MAX
        self._is_planned = False
        self._are_all_settled = asyncio.Event()

    def add(self, settle: Callable[[], None]) -> None:
        """Settle a call, by now where few were settled in this turn of the loop; else in its order."""
        self._due.append(settle)
        self._settle_some()

    async def finish(self) -> None:
        """Return when all that were added are settled."""
        if self._due:
            self._are_all_settled.clear()
            await self._are_all_settled.wait()

    def _settle_some(self) -> None:
        while self._due and self._left:
            self._left -= 1
            survives(self._due.popleft())
        if not self._due:
            self._are_all_settled.set()
        if not self._is_planned:
            self._is_planned = True
            asyncio.get_running_loop().call_soon(self._go_on)

    def _go_on(self) -> None:
        """Others have had their turn."""
        self._is_planned = False
        self._left = ENDED_AT_ONCE_MAX
        if self._due:
            self._settle_some()
