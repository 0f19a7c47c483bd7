"""A join phase lingers for new members that are about to join: processes that start together make one generation.

They don't arrive at the same instant. The first have joined while others still connect, and a generation of those would
be torn down at once, again and again. So if everyone has joined, the phase still goes on

    while ids are out that were handed out and have not joined yet
        and no longer than `group_pending_timeout_ms` from its beginning
    else until nobody new has come to this group for `QUIET_MS`, or for half as long as they have been coming
        and no longer than `group_join_linger_ms` from its beginning

and never beyond the rebalance timeout. So whoever asks for ids and uses none lengthens a phase by the first of the two
times, however many it asks for and whenever.

While a freeze waits for members (`roster`), a phase that everyone has joined goes on for those that are still missing,
to the end of the freeze at most: they would begin the next rebalance.

New to the group is whoever asks for an id, or takes part without having asked. To join with an id that was handed out
is expected of its owner, and tells of nobody else. Only what happens to this group counts: who else is connected to the
node, or calls other groups, is no matter of it. A phase that nobody new has come to does not linger, nor does one that
nobody is left in, unless ids are out; and the initial delay of an Empty group has its own rule.
"""

from rallypoint.coordinator.core import holding, roster
from rallypoint.coordinator.core import transient_facts as t
from rallypoint.coordinator.core.commands import DecisionContext
from rallypoint.coordinator.core.decision import Draft, linger_timer
from rallypoint.coordinator.core.group import Group

QUIET_MS = 20
"""Members that start together come closer upon each other, unless the machine is busy; a lone one waits no longer."""


def linger(group: Group, context: DecisionContext, draft: Draft) -> bool:
    """Let the phase go on although everyone has joined; false: it ends now."""
    until_ms = _lingers_until(group, context)
    if context.now_ms >= until_ms:
        return False
    if group.lingers_until_ms != until_ms:
        draft.fact(t.LingerSet(until_ms))
        draft.set_timer(linger_timer(group), until_ms)
    return True


def _lingers_until(group: Group, context: DecisionContext) -> int:
    frozen_until_ms = holding.frozen_until(group)
    if frozen_until_ms is not None and group.members and roster.missing(group):
        return frozen_until_ms
    if group.pending:
        return group.phase_began_ms + context.rules.group_pending_timeout_ms
    if not group.members:
        return group.phase_began_ms
    coming_ms = group.came_at_ms - group.phase_began_ms
    # On a busy machine they come slower, and with longer gaps.
    quiet_at_ms = group.came_at_ms + max(QUIET_MS, coming_ms // 2)
    return min(quiet_at_ms, group.phase_began_ms + context.rules.group_join_linger_ms)


def linger_fired(group: Group, phase: int, draft: Draft) -> None:
    """The time is over; whether the phase ends is tested as after every change."""
    if group.lingers_until_ms is not None and phase == group.phase:
        draft.fact(t.LingerSet(None))


def stop(group: Group, draft: Draft) -> None:
    """The join phase ends."""
    if group.lingers_until_ms is not None:
        draft.fact(t.LingerSet(None))
        draft.cancel_timer(linger_timer(group))
