"""How many partitions a new assignment takes from their owners. Reads consumers' assignments, and changes nothing."""

from collections.abc import Iterator, Mapping
from typing import NoReturn, cast

from pydantic import JsonValue

from coordinator.core.group import CONSUMER, Group
from protocol.opaque import EMPTY, OpaqueJson

Partition = tuple[str, int]


def count_moved(group: Group, given: Mapping[str, OpaqueJson]) -> int | None:
    """Partitions that some owner of the stored assignment has no longer under the given one (member id to its part).

    A partition that nobody had is not moved by being given to somebody. A static member is the same owner under a new
    id, for what is stored of a seat passes to its new id at once. None where the group is none of consumers, or where
    a part that changed cannot be read.
    Cost: parses the parts of members whose text changed, and no others.
    """
    if group.protocol_type != CONSUMER:
        return None
    moved: set[Partition] = set()
    try:
        for stored in group.stored_members.values():
            part = given.get(stored.member_id, EMPTY) if stored.member_id in group.members else EMPTY
            if part != stored.assignment:
                moved.update(_lost(stored.assignment, part))
    except ValueError:
        return None
    return len(moved)


def _lost(before: OpaqueJson, after: OpaqueJson) -> Iterator[Partition]:
    """What stands in the one part and not in the other. Raises ValueError where one of them cannot be read."""
    kept = read(after)
    for topic, numbers in read(before).items():
        for number in numbers.difference(kept.get(topic, ())):
            yield topic, number


def read(assignment: OpaqueJson) -> dict[str, set[int]]:
    """The partitions of a `ConsumerAssignment` by topic; none where it was given nothing.

    Raises ValueError for anything else.
    By hand, for the model takes five times as long, and every changed part of a large group is read in one step.
    """
    if assignment is EMPTY or assignment == EMPTY:
        return {}
    value = assignment.value
    partitions = value.get("partitions", {}) if isinstance(value, dict) else None
    if not isinstance(partitions, dict):
        _refuse(assignment)
    return {topic: _numbers(numbers, assignment) for topic, numbers in partitions.items()}


def _numbers(value: JsonValue, assignment: OpaqueJson) -> set[int]:
    if not isinstance(value, list) or not _INT_ALONE.issuperset(map(type, value)):
        _refuse(assignment)
    return set(cast(list[int], value))


_INT_ALONE = frozenset((int,))
"""Not bool, which is one of its kinds."""


def _refuse(assignment: OpaqueJson) -> NoReturn:
    raise ValueError(f"no consumer's assignment: {assignment.text[:80]}")
