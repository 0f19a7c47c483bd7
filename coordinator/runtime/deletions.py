"""How long the registry remembers that a topic was deleted: until every group has heard of it, and that is durable.

A group hears of deletions in each of its steps, and at its load, from what the registry remembers. Once all of them
have, and none is left that could be loaded from before, the memory of a deletion serves nobody. A shard that is not
here, or cannot be loaded, keeps it: nobody knows what its groups still have.
"""

import asyncio
from collections.abc import Callable

from rallypoint.coordinator.runtime.clock import Clock, sleep
from rallypoint.coordinator.runtime.faults import begin
from rallypoint.coordinator.runtime.registry import RegistryKeeper

FIRST_LOOK_MS = 1_000
LONGEST_WAIT_MS = 60_000


class Deletions:
    """Looks from time to time while something is remembered, less and less often. Belongs to one event loop."""

    def __init__(self, registry: RegistryKeeper, clock: Clock, has_been_seen: Callable[[int], bool]) -> None:
        """`has_been_seen` says whether all groups have heard of the deletions up to a version of the registry."""
        self._registry = registry
        self._clock = clock
        self._has_been_seen = has_been_seen
        self._looking: asyncio.Task[None] | None = None
        self._is_closed = False

    def wake(self) -> None:
        """Something may be remembered now."""
        if not self._is_closed and self._looking is None and self._registry.registry.deleted:
            self._looking = begin(self._look(), self.wake)

    def close(self) -> None:
        """Look no more."""
        self._is_closed = True
        if self._looking is not None:
            self._looking.cancel()

    async def _look(self) -> None:
        wait_ms = FIRST_LOOK_MS
        try:
            while self._registry.registry.deleted:
                await sleep(self._clock, wait_ms)
                wait_ms = min(2 * wait_ms, LONGEST_WAIT_MS)
                version = self._registry.registry.deletions
                if self._has_been_seen(version):
                    await self._registry.forget_deletions(version)
        finally:
            self._looking = None
