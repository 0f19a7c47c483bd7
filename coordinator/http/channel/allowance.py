"""What a channel may send before others go first: enough for its members, refilled as fast as they need it.

A host of many members says more than a client that floods gets through where many flood. So what counts is not how much
a channel says, but whether that is more than its members have to say. Units are those of `turn_share`.
"""

CHANNEL_UNITS = 32
"""What any channel may say at once, and a new one."""
CHANNEL_UNITS_PER_S = 16
"""How fast that is refilled."""
MEMBER_UNITS = 8
"""What a channel may say at once, for each member it carries: a join, a sync, a fetch, commits, a heartbeat."""
MEMBER_UNITS_PER_S = 2
"""How fast that is refilled: several times what heartbeats and commits of a member with default settings take."""


class Allowance:
    """What was spent of it. One channel's; knows no clock."""

    __slots__ = ("_at_s", "_spent_units")

    def __init__(self, now_s: float) -> None:
        self._spent_units: float = 0
        self._at_s = now_s

    def spend(self, units: int) -> None:
        """So much was taken, whether or not it was left."""
        self._spent_units += units

    def has_some(self, member_count: int, now_s: float) -> bool:
        """Whether something is left now, for a channel that carries so many members. Time does not go back.

        Each new member brings its part at once. A debt of more than a full allowance is forgotten.
        """
        full = CHANNEL_UNITS + MEMBER_UNITS * member_count
        refilled = (now_s - self._at_s) * (CHANNEL_UNITS_PER_S + MEMBER_UNITS_PER_S * member_count)
        self._at_s = now_s
        self._spent_units = max(0.0, min(2 * full, self._spent_units) - refilled)
        return self._spent_units < full


class FrameRate:
    """So many frames in a second, and no more."""

    __slots__ = ("_count", "_count_max", "_until_s")

    def __init__(self, count_max: int) -> None:
        self._count_max = count_max
        self._count = 0
        self._until_s = 0.0

    def has_room(self, now_s: float) -> bool:
        """One more has come. False where it is too many of the second that the first of them began."""
        if now_s >= self._until_s:
            self._until_s = now_s + 1.0
            self._count = 0
        self._count += 1
        return self._count <= self._count_max
