"""Seniority: the longest-standing member leads, when members come and go by the hundred."""

from rallypoint.coordinator.core.commands import Rules
from rallypoint.coordinator.core.group import PLACES_MIN
from tests.conformance.group_harness import GroupHarness


def group_harness() -> GroupHarness:
    return GroupHarness(
        rules=Rules(group_min_session_timeout_ms=1, group_join_linger_ms=0, group_initial_rebalance_delay_ms=0)
    )


def test_places_of_those_who_have_gone_do_not_pile_up() -> None:
    harness = group_harness()
    staying, _ = harness.join_new()
    for _ in range(3 * PLACES_MIN):
        member_id, _ = harness.join_new()
        harness.leave(member_id)
        assert len(harness.group.places) <= 2 * len(harness.group.members) + PLACES_MIN + 2
    assert harness.group.eldest() == staying


def test_when_many_leave_at_once_the_next_in_line_leads() -> None:
    harness = group_harness()
    ids = [harness.join_new()[0] for _ in range(20)]
    harness.leave(*ids[:7], *ids[8:12])
    assert (harness.group.leader, harness.group.eldest()) == (ids[7], ids[7])
    harness.leave(ids[7], ids[12])
    assert (harness.group.leader, harness.group.eldest()) == (ids[13], ids[13])
