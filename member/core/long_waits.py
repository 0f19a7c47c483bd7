"""Saying for whom the group waits, if this member gets no partitions for long. The service knows, and is asked now
and then; nothing depends on its answer, and none is no trouble.
"""

from rallypoint.member.core.context import MemberContext
from rallypoint.member.core.dispatch import Intent
from rallypoint.member.core.outcomes import Answered, Outcome
from rallypoint.member.core.states import State
from rallypoint.protocol import admin_messages as admin
from rallypoint.protocol import operations as ops

LONG_WAIT = "long_wait"
"""The timer until it is said, and the slot of the question."""
SAY_AFTER_MS = 10_000
"""From the beginning of the wait; then after as long again as it has lasted, at most `SAY_AGAIN_MAX_MS`."""
SAY_AGAIN_MAX_MS = 300_000
NAMED_MAX = 3

_WAITS = frozenset({State.JOINING, State.SYNCING})
_WHAT_FOR = {"join": "to join", "sync": "to ask for its part", "assignment": "to bring the assignment"}


class LongWaits:
    """Of one member."""

    def __init__(self, context: MemberContext) -> None:
        self._context = context
        self._since_ms: int | None = None

    def note(self, now_ms: int) -> None:
        """After each event: whether a wait has begun or ended."""
        context, waits = self._context, self._context.state in _WAITS and self._context.ending is None
        if waits and self._since_ms is None:
            self._since_ms = now_ms
            context.net.set_timer(LONG_WAIT, now_ms + SAY_AFTER_MS)
        elif not waits and self._since_ms is not None and context.state is not State.FINDING:
            self._since_ms = None
            context.net.cancel_timer(LONG_WAIT)
            context.net.close(LONG_WAIT)

    def timer_due(self, now_ms: int) -> None:
        """It has waited for long: ask for whom."""
        context = self._context
        assert self._since_ms is not None
        context.net.set_timer(LONG_WAIT, now_ms + min(now_ms - self._since_ms, SAY_AGAIN_MAX_MS))
        timeout_ms = context.options.request_timeout_ms
        if context.state is not State.FINDING:  # of that it is said already
            question = Intent(ops.LIST_REBALANCES, None, timeout_ms)
            context.net.open(LONG_WAIT, question, now_ms, deadline_ms=now_ms + timeout_ms)

    def answered(self, outcome: Outcome, now_ms: int) -> None:
        """Say it, if it is known."""
        if self._since_ms is None or not isinstance(outcome, Answered):
            return
        assert isinstance(outcome.answer, admin.ListRebalancesAnswer)
        why = _why(outcome.answer, self._context.member_id)
        if why is not None:
            self._context.warn(f"no partitions for {(now_ms - self._since_ms) // 1000} s: {why}")


def _why(answer: admin.ListRebalancesAnswer, own_id: str) -> str | None:
    if not answer.rebalances:
        return None
    newest = answer.rebalances[0]
    if newest.outcome != "in_progress":
        return (
            "no rebalance of the group is in progress; an operator may have frozen it, or it cools down after the last"
        )
    if not newest.awaited:
        return None
    names = [
        f"{_name(one, own_id)} {_WHAT_FOR.get(one.awaited_for, '')}".rstrip() for one in newest.awaited[:NAMED_MAX]
    ]
    more = newest.awaited_count - len(names)
    return f"the group waits for {', '.join(names)}{f', and {more} more' if more > 0 else ''}"


def _name(one: admin.AwaitedListing, own_id: str) -> str:
    if one.member_id == own_id:
        return "this member"
    place = " at ".join(part for part in (one.client_id, one.host) if part)
    return f"{one.group_instance_id or one.member_id}{f' ({place})' if place else ''}"
