"""Members that come and go in circles, by what a group has seen of each name lately. Pure.

A name is an instance id, or else a client id with its host, which several members may share. A deploy takes each member
away once and brings it back; so it is not how often a name went that counts, but how often for each of the members that
it had at once.
"""

from collections.abc import Sequence
from typing import Literal, NamedTuple

from rallypoint.coordinator.core.durations import duration_text

WINDOW_MS = 600_000
"""What has happened before is forgotten."""
CIRCLES_MIN = 3
"""So often a name has to have gone, for each of its members."""

Kind = Literal["joined", "left", "expired"]


class Seen(NamedTuple):
    """A member of the name came or went."""

    seen_ms: int
    kind: Kind


class Circles(NamedTuple):
    """How often members of a name came and went within the window."""

    join_count: int
    expired_count: int
    left_count: int


def circles(seen: Sequence[Seen], present_max: int, now_ms: int) -> Circles | None:
    """Whether members of the name come and go in circles; None where they do not.

    seen: what happened, the oldest first.
    present_max: the most members of the name that were there at once.
    """
    kinds = [one.kind for one in seen if 0 <= now_ms - one.seen_ms <= WINDOW_MS]
    found = Circles(kinds.count("joined"), kinds.count("expired"), kinds.count("left"))
    went_count = found.expired_count + found.left_count
    is_flapping = min(went_count, found.join_count) >= CIRCLES_MIN * max(present_max, 1)
    return found if is_flapping else None


def circles_sentence(name: str, found: Circles) -> str:
    """What goes on, and what to look at."""
    went = []
    if found.expired_count:
        went.append(f"its session expired {_times(found.expired_count)}")
    if found.left_count:
        went.append(f"it left {_times(found.left_count)}")
    hint = (
        "Look for crashes, or for work between two polls that is longer than the session timeout."
        if found.expired_count
        else "Look for a process that is started again and again."
    )
    span = duration_text(WINDOW_MS)
    return f"{name} joined {_times(found.join_count)} in the last {span}, and {' and '.join(went)}. {hint}"


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"
