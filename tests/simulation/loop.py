"""An event loop whose time is a number: nothing sleeps, and what is ready runs in an order that a seed decides.

When nothing is ready, time jumps to the next deadline. There is no selector, no socket, no thread and no signal.
"""

import asyncio
import random
from collections import deque
from collections.abc import Callable
from typing import Any

TURNS_AT_ONCE_MAX = 200_000
"""Nothing that is here takes so many turns without waiting for anything. A real loop would be as busy as can be."""


class Stuck(Exception):  # noqa: N818 - a state of the run, not a fault of the loop
    """The run is not over, and nothing is ready and nothing is planned; or turn comes after turn at one moment."""


class VirtualLoop(asyncio.BaseEventLoop):
    """`after_turn` is called when a turn is over; what it raises ends the run, and so does what a callback raised.

    `chance`: shuffle what is ready before each turn. Programs may rely on the order of callbacks only where they made
    it themselves; None keeps asyncio's order, first come first served.
    """

    def __init__(self, chance: random.Random | None = None) -> None:
        super().__init__()
        self._ready: deque[asyncio.Handle]
        self._scheduled: list[asyncio.TimerHandle]
        self._selector = _Jump(self)
        self._chance = chance
        self._now = 0.0
        self.turns = 0
        self._turns_at_once = 0
        self.after_turn: Callable[[], None] | None = None
        self.fault: BaseException | None = None
        self.set_debug(False)
        self.set_exception_handler(_note_fault)

    def time(self) -> float:
        """Virtual seconds since the loop was made."""
        return self._now

    def jump(self, timeout: float | None) -> None:
        """Let the time pass for which a real loop would sleep."""
        if timeout is None:
            raise Stuck("nothing is ready and nothing is planned")
        if timeout > 0:
            self._turns_at_once = 0
            # Exactly there, and not by adding up fractions.
            self._now = max(self._now, self._scheduled[0].when())

    def _run_once(self) -> None:
        ready = self._ready
        if self._chance is not None and len(ready) > 1:
            shuffled = list(ready)
            self._chance.shuffle(shuffled)
            ready.clear()
            ready.extend(shuffled)
        super()._run_once()  # type: ignore[misc]
        self.turns += 1
        self._turns_at_once += 1
        if self._turns_at_once > TURNS_AT_ONCE_MAX:
            self._turns_at_once = 0  # whoever ends the run takes a few more
            raise Stuck(f"{TURNS_AT_ONCE_MAX} turns, and it is {self._now} s still")
        if self.fault is not None:
            raise self.fault
        if self.after_turn is not None:
            self.after_turn()

    def _process_events(self, event_list: Any) -> None:
        """There are none."""

    def _write_to_self(self) -> None:
        """Nothing has to be woken up."""


class _Jump:
    """What stands where a real loop has its selector."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop

    def select(self, timeout: float | None) -> list[Any]:
        self._loop.jump(timeout)
        return []


def _note_fault(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    assert isinstance(loop, VirtualLoop)
    if loop.fault is None:
        loop.fault = context.get("exception") or RuntimeError(context["message"])
