"""Who has just connected and has not called a group yet: a join phase waits a moment for such (`core/newcomers.py`)."""

from coordinator.runtime.carriers import Carrier
from coordinator.runtime.clock import Clock

NEW_MS = 250
"""Who has said nothing for so long after it came is awaited no more: a member joins as soon as it can."""


class Newcomers:
    """The connections that have not called a group yet, by the time they came. Belongs to one event loop.

    Coming, calling and asking cost the same however many there are.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._came_at_ms: dict[Carrier, int] = {}

    def came(self, carrier: Carrier) -> None:
        """It may call from now on."""
        self._came_at_ms[carrier] = self._clock.now_ms()

    def called(self, carrier: Carrier) -> None:
        """It has called a group, or will not any more; not to be told of one that never came is no error."""
        self._came_at_ms.pop(carrier, None)

    def are_there(self, now_ms: int) -> bool:
        """Whether somebody is new."""
        came_at_ms = self._came_at_ms
        if not came_at_ms:
            return False
        if now_ms < next(reversed(came_at_ms.values())) + NEW_MS:
            return True
        # The last to come is new no more, so nobody is.
        came_at_ms.clear()
        return False
