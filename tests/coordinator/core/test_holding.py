"""Until when a group is held, by the clock alone."""

import pytest

from rallypoint.coordinator.core.commands import DecisionContext, Rules
from rallypoint.coordinator.core.group import Group, Member, MemberTerms, State
from rallypoint.coordinator.core.holding import held_until
from rallypoint.coordinator.core.records import HoldRecord

TERMS = MemberTerms(
    protocols=(),
    session_timeout_ms=10_000,
    rebalance_timeout_ms=10_000,
    disconnect_grace_ms=None,
    request_id=None,
    attempt=None,
)


@pytest.mark.parametrize("now_ms", [-300_000_000_000, -5_000, 0, 1_700_000_000_000])
def test_nothing_holds_a_group_where_nothing_was_asked_for_whatever_the_year(now_ms: int) -> None:
    """A machine without a battery may believe that it is 1961."""
    group = Group("g")
    group.state = State.STABLE
    group.state_at_ms = now_ms - 60_000
    group.members["m"] = Member("m", None, "c", "h", 1, TERMS, frozenset(), is_new=False)
    context = DecisionContext(now_ms, Rules(), {})
    assert held_until(group, context) is None
    group.hold = HoldRecord("g", frozen_until_ms=now_ms + 4_000, freeze_reason=None, cooldown_ms=None)
    assert held_until(group, context) == now_ms + 4_000
    group.state_at_ms = now_ms
    group.hold = HoldRecord("g", frozen_until_ms=now_ms + 500, freeze_reason=None, cooldown_ms=2_000)
    assert held_until(group, context) == now_ms + 2_000
