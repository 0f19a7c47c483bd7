"""Requests that have come and are not read yet, or wait for their turn: each is a sign that its sender lives.

The group hears of a request when it is its turn. Where many others send much, that is seconds later, and the member
that waits for the answer may say nothing else meanwhile.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count

from rallypoint.coordinator.runtime.clock import Clock


class Arrivals:
    """Of all groups of a node. Belongs to one event loop."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._numbers = count()
        self._waiting: dict[tuple[str, str], dict[int, int]] = {}

    @contextmanager
    def waiting(self, group_id: str, member_id: str) -> Iterator[None]:
        """A request of the member has just come, and waits until the block ends. Then the group is told at once."""
        number = next(self._numbers)
        came = self._waiting.setdefault((group_id, member_id), {})
        came[number] = self._clock.now_ms()
        try:
            yield
        finally:
            del came[number]
            if not came:
                del self._waiting[group_id, member_id]

    def last_ms(self, group_id: str, member_id: str) -> int | None:
        """When the last of the member's requests came that wait; None where none does."""
        came = self._waiting.get((group_id, member_id))
        return None if came is None else max(came.values())
