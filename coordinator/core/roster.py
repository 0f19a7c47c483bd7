"""The roster of a freeze: the members that were there when it began, and which of them are still missing.

A member is known by name: its instance id, or else its client id. A process that is started again comes under the same
name and another member id. So everything here follows from the ids of then and the members of now; nothing is counted
along the way, and a load finds what was there before it.
"""

from collections import Counter
from collections.abc import Mapping

from rallypoint.coordinator.core.group import Group, Member
from rallypoint.coordinator.core.records import HoldRecord

PRESENT, REPLACED = "members_present", "members_replaced"
"""A freeze until members of all names are there again, once one of them had gone; until each is there anew."""

ROSTER_MAX_CHARACTERS = 262_144
"""Names and ids that a freeze remembers: a group of five thousand with usual names. They are stored in one record."""


def roster_of(group: Group) -> dict[str, str]:
    """Member id to name, the longest-standing first."""
    return {member.member_id: _name(member) for member in group.by_seniority()}


def _name(member: Member) -> str:
    return member.group_instance_id or member.client_id


def is_too_large(roster: Mapping[str, str]) -> bool:
    """Whether it is more than one record should hold."""
    return sum([len(member_id) + len(name) for member_id, name in roster.items()]) > ROSTER_MAX_CHARACTERS


def is_waited_for(hold: HoldRecord | None) -> bool:
    """A freeze that members can end."""
    return hold is not None and bool(hold.freeze_roster)


def missing(group: Group) -> Counter[str]:
    """How many members of each name the freeze still waits for; empty where it waits for none.

    Cost: a look at each member, and at each of then.
    """
    hold = group.hold
    if hold is None or not is_waited_for(hold):
        return Counter()
    then = hold.freeze_roster
    there = Counter(
        [_name(x) for x in group.members.values() if hold.freeze_until == PRESENT or x.member_id not in then]
    )
    return Counter(then.values()) - there


def has_come(group: Group) -> bool:
    """Those whom the freeze waits for are all there, so it is over.

    Cost: a look at those of then, up to the first that is still there or has gone; else as `missing`.
    """
    hold = group.hold
    if hold is None or not is_waited_for(hold):
        return False
    still_there = (member_id in group.members for member_id in hold.freeze_roster)
    if hold.freeze_until == PRESENT and all(still_there):
        return False
    if hold.freeze_until == REPLACED and any(still_there):
        return False
    return not missing(group)
