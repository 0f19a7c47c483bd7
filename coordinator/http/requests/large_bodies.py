"""The memory of all large bodies and messages that are being read, and the threads that parse them.

A small body comes with the head of its request and is gone within its turn. A large one is held until it is complete
and parsed, which a client may draw out. So all of them together have a limit, over HTTP and on channels.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from rallypoint.coordinator.core.effects import Failure
from rallypoint.protocol.errors import ErrorCode

LARGE_BYTES = 65_536
"""Bytes above which a body is large: it counts, and is parsed beside the event loop."""
TURNS_BETWEEN = 4
"""Turns of the event loop that pass before the next one is parsed: a small request takes four, from the socket to its
answer (`work_turns`)."""
OF_GROUP_MAX = 2
"""Assignments of one group that are read at the same time: those of its leader, and of one whose line was cut."""

Parsed = TypeVar("Parsed")


class LargeBodies:
    """One for all of an API. Belongs to one event loop. `total_bytes`: what is held now."""

    def __init__(self, bytes_max: int) -> None:
        self.total_bytes = 0
        self._bytes_max = bytes_max
        self._held: dict[object, int] = {}
        self._syncs: dict[str, int] = {}
        self._parsing = asyncio.Lock()
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="rallypoint-parse")

    def hold(self, holder: object, size_bytes: int, *, half: bool = False) -> bool:
        """The holder has so much now; False where that is more than there is room for, or than half of it. Then it has
        what it had.
        """
        if size_bytes <= LARGE_BYTES:
            self.release(holder)
            return True
        total_bytes = self.total_bytes - self._held.get(holder, 0) + size_bytes
        if total_bytes > (self._bytes_max // 2 if half else self._bytes_max):
            return False
        self.total_bytes = total_bytes
        self._held[holder] = size_bytes
        return True

    def release(self, holder: object) -> None:
        """The holder has nothing more, if it had."""
        self.total_bytes -= self._held.pop(holder, 0)

    def refusal(self) -> Failure:
        """The answer to whom there is no room for."""
        limit = self._bytes_max
        detail = f"The bodies that are being read take what bodies_max_bytes allows ({limit} bytes together"
        return Failure(
            ErrorCode.THROTTLING_QUOTA_EXCEEDED,
            f"{detail}, half of it but for large syncs). Try again in a moment.",
            limit=limit,
            limit_name="bodies_max_bytes",
        )

    def begin_sync(self, group_id: str) -> bool:
        """A large sync of the group is about to be read; False where as many are as may be. `end_sync` ends it."""
        count = self._syncs.get(group_id, 0)
        if count >= OF_GROUP_MAX:
            return False
        self._syncs[group_id] = count + 1
        return True

    def end_sync(self, group_id: str) -> None:
        """It was read, or not."""
        count = self._syncs.pop(group_id) - 1
        if count:
            self._syncs[group_id] = count

    async def parse(self, parse: Callable[[], Parsed]) -> Parsed:
        """Parse a large text on a thread, and raise what it raises. Others have their turn meanwhile.

        The parser keeps the interpreter's lock for up to some 30 ms, for which the event loop waits wherever it has to
        take it again. So one is parsed at a time, and between two of them there are turns in which none is.
        """
        async with self._parsing:
            try:
                return await asyncio.get_running_loop().run_in_executor(self._pool, parse)
            finally:
                for _ in range(TURNS_BETWEEN):
                    await asyncio.sleep(0)

    def close(self) -> None:
        """Nothing is parsed any more."""
        self._pool.shutdown(wait=False, cancel_futures=True)
