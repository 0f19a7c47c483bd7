"""Who is the longest-standing member, when members come and go by the hundred."""

from rallypoint.coordinator.core.commands import Rules
from rallypoint.coordinator.core.group import PLACES_MIN
from tests.conformance.desk import Desk


def desk() -> Desk:
    return Desk(rules=Rules(group_min_session_timeout_ms=1, group_join_linger_ms=0, group_initial_rebalance_delay_ms=0))


def test_places_of_those_who_have_gone_do_not_pile_up() -> None:
    d = desk()
    staying, _ = d.join_new()
    for _ in range(3 * PLACES_MIN):
        member_id, _ = d.join_new()
        d.leave(member_id)
        assert len(d.group.places) <= 2 * len(d.group.members) + PLACES_MIN + 2
    assert d.group.eldest() == staying


def test_when_many_leave_at_once_the_next_in_line_leads() -> None:
    d = desk()
    ids = [d.join_new()[0] for _ in range(20)]
    d.leave(*ids[:7], *ids[8:12])
    assert (d.group.leader, d.group.eldest()) == (ids[7], ids[7])
    d.leave(ids[7], ids[12])
    assert (d.group.leader, d.group.eldest()) == (ids[13], ids[13])
