"""How many partitions a new assignment takes from their owners. Reads consumers' assignments, and changes nothing."""

from collections.abc import Iterable, Mapping

from pydantic import ValidationError

from coordinator.core.group import CONSUMER, Group, Member
from coordinator.core.records import MemberRecord
from protocol.messages import ConsumerAssignment
from protocol.opaque import EMPTY, OpaqueJson

Partitions = frozenset[tuple[str, int]]
NONE: Partitions = frozenset()


def count_moved(group: Group, given: Mapping[str, OpaqueJson]) -> int | None:
    """Partitions that some owner of the stored assignment has no longer under the given one (member id to its part).

    A partition that nobody had is not moved by being given to somebody. A static member is the same owner under a new
    id. None where the group is none of consumers, or where a part that changed cannot be read.
    Cost: parses the parts of members whose text changed, and no others.
    """
    if group.protocol_type != CONSUMER:
        return None
    now = {_seat(member): given.get(member.member_id, EMPTY) for member in group.members.values()}
    moved: set[tuple[str, int]] = set()
    try:
        for stored in group.stored_members.values():
            part = now.get(_seat(stored), EMPTY)
            if part != stored.assignment:
                moved |= read(stored.assignment) - read(part)
    except ValidationError:
        return None
    return len(moved)


def _seat(member: Member | MemberRecord) -> tuple[bool, str]:
    """Who owns: the instance where there is one, else the member."""
    instance = member.group_instance_id
    return (False, member.member_id) if instance is None else (True, instance)


def read(assignment: OpaqueJson) -> Partitions:
    """The partitions of a consumer's assignment; none where it was given nothing. Raises ValidationError."""
    if assignment == EMPTY:
        return NONE
    partitions = ConsumerAssignment.model_validate_json(assignment.text).partitions
    return frozenset(_pairs(partitions.items()))


def _pairs(partitions: Iterable[tuple[str, tuple[int, ...]]]) -> Iterable[tuple[str, int]]:
    return ((topic, number) for topic, numbers in partitions for number in numbers)
