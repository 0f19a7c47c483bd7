"""How long a program may leave a member alone that holds partitions, as Kafka's `max.poll.interval.ms`. Pure."""

from enum import Enum, auto


class Work(Enum):
    """What the program has to work on."""

    NOTHING = auto()
    """The group has settled, and the member has no partitions."""
    BETWEEN = auto()
    """The group rebalances, or a callback runs: nothing can be said."""
    PARTITIONS = auto()
    """Partitions of an assignment that was announced."""


class PollLimit:
    """Of one member. Times are of a clock that never goes back. `limit_ms`: from one sign of the program to the next.

    Nothing is counted while a call of the program waits, nor while the group rebalances. The count begins again if
    the member gets partitions out of having none; a rebalance alone does not begin it, or a program in a busy group
    could stay away for ever.
    """

    def __init__(self, limit_ms: int) -> None:
        if isinstance(limit_ms, bool) or not isinstance(limit_ms, int) or limit_ms < 1:
            raise ValueError(f"max_poll_interval_ms: {limit_ms!r} is not a whole number above 0")
        self.limit_ms = limit_ms
        self._waiting = 0
        self._since_ms = 0.0
        self._looked_ms = 0.0
        self._had_nothing = True

    def enter(self) -> None:
        """A call of the program begins."""
        self._waiting += 1

    def leave(self, now_ms: float) -> None:
        """It returns: the program has come, and goes on."""
        self._waiting -= 1
        self._since_ms = now_ms

    def is_over(self, now_ms: float, work: Work) -> bool:
        """Whether the program has been away for too long. Asked again and again: what is so when it is asked counts for
        the time since it was asked last.
        """
        if self._waiting or work is Work.NOTHING or (work is Work.PARTITIONS and self._had_nothing):
            self._since_ms = now_ms
        elif work is Work.BETWEEN:
            self._since_ms = min(now_ms, self._since_ms + now_ms - self._looked_ms)
        if work is not Work.BETWEEN:
            self._had_nothing = work is Work.NOTHING
        self._looked_ms = now_ms
        return now_ms - self._since_ms >= self.limit_ms
