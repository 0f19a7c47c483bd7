"""Newcomers at the door: who has just connected is let in before a join phase ends in which new members have come.

A thousand processes that start together each open a connection before they say which group they want. The first of
them have joined while the others still shake hands; a group that made a generation of those would tear it down at once,
again and again. So where everyone has joined, and one who came last is new, the phase goes on

    while somebody has connected a moment ago and has called no group yet (`Moment.newcomers`; the runtime knows)
    and no longer than `WAITED_MAX_MS` from its beginning

which is looked at with each step, and every `LOOK_INTERVAL_MS`. Nobody can know which group a newcomer wants. A phase
in which no member is new never waits, and the initial delay has its own rule.
"""

from coordinator.core import notes as n
from coordinator.core.commands import Moment
from coordinator.core.decision import Draft, newcomers_timer
from coordinator.core.group import Group

WAITED_MAX_MS = 3_000
"""From the beginning of a join phase: as long as an empty group waits by default, whether anybody comes or not."""
LOOK_INTERVAL_MS = 20
"""Newcomers who want something else make no step of this group, so it looks for itself."""


def are_awaited(group: Group, moment: Moment) -> bool:
    """Whether a join phase in which everyone has joined goes on nevertheless."""
    if not moment.newcomers or moment.now_ms >= group.phase_began_ms + WAITED_MAX_MS:
        return False
    newest = next(reversed(group.members.values()), None)
    return newest is not None and newest.is_new


def wait(group: Group, moment: Moment, draft: Draft) -> None:
    """Go on, until the next look at the latest."""
    if not group.awaits_newcomers:
        draft.fact(n.NewcomersAwaited(awaited=True))
        draft.set_timer(newcomers_timer(group), moment.now_ms + LOOK_INTERVAL_MS)


def look_again(group: Group, phase: int, draft: Draft) -> None:
    """The time of the next look is here; what follows is decided as after every change."""
    if group.awaits_newcomers and phase == group.phase:
        draft.fact(n.NewcomersAwaited(awaited=False))


def stop_waiting(group: Group, draft: Draft) -> None:
    """The join phase ends."""
    if group.awaits_newcomers:
        draft.fact(n.NewcomersAwaited(awaited=False))
        draft.cancel_timer(newcomers_timer(group))
