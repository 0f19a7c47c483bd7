"""Which partitions an assignment takes from whom and gives to whom. Reads consumers' assignments, changes nothing."""

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from typing import NoReturn, cast

from pydantic import JsonValue

from rallypoint.coordinator.core.group import Group, Member
from rallypoint.coordinator.core.moves import Move, Moves, OwnerNames
from rallypoint.coordinator.core.records import MemberRecord
from rallypoint.coordinator.core.subscription import CONSUMER
from rallypoint.protocol.consumer_bytes import partitions_of_bytes
from rallypoint.protocol.limits import PARTITION_MAX
from rallypoint.protocol.opaque import EMPTY, OpaqueJson

_Parts = list[tuple[int, set[int]]]
"""Of one topic: the owner, by its place, and its partitions."""


def moves_to(group: Group, given: Mapping[str, OpaqueJson]) -> Moves | None:
    """What the given assignment (member id to its part) changes of the stored one.

    A static member is the same owner under a new id, for what is stored of a slot passes to its new id at once. None
    where the group is none of consumers, or where a part that changed cannot be read; what a new member gets that
    cannot be read is left out.
    Cost: parses the parts of members whose text changed, and no others; 0.2 µs for each partition that moves.
    """
    if group.protocol_type != CONSUMER:
        return None
    owners: list[OwnerNames | None] = []
    changed: list[str] = []
    for member_id, stored in group.stored_members.items():
        member = group.members.get(member_id)
        after = EMPTY if member is None else given.get(member_id, EMPTY)
        if stored.assignment.text != after.text:
            owners.append(None if member is None else names_of(member))
            changed += (stored.assignment.text, after.text)
    # One text, for to begin a parse costs more than to read what a member has.
    found = _all_partitions(json.loads(f"[{','.join(changed)}]"))
    if found is None:
        return None
    new = [member for member_id, member in group.members.items() if member_id not in group.stored_members]
    for member, part in zip(new, _readable([given.get(one.member_id, EMPTY) for one in new]), strict=True):
        owners.append(names_of(member))
        found += ({}, part)
    lost: defaultdict[str, _Parts] = defaultdict(list)
    gained: defaultdict[str, _Parts] = defaultdict(list)
    gone: defaultdict[str, set[int]] = defaultdict(set)
    for place, (before_part, after_part) in enumerate(zip(found[::2], found[1::2], strict=True)):
        for topic, numbers in before_part.items():
            less = set(numbers).difference(after_part.get(topic, ()))
            gone[topic].update(less)
            if less and owners[place] is not None:
                lost[topic].append((place, less))
        for topic, numbers in after_part.items():
            more = set(numbers).difference(before_part.get(topic, ()))
            if more:
                gained[topic].append((place, more))
    moves = (
        move
        for topic in sorted(lost.keys() | gained.keys())
        for move in _moves_of(topic, lost.get(topic, []), gained.get(topic, []), owners)
    )
    return Moves(sum(map(len, gone.values())), tuple(moves))


def given_up(members: Iterable[Member]) -> tuple[Move, ...]:
    """What the members had, as it passes to nobody. What cannot be read is left out."""
    having = [member for member in members if member.assignment != EMPTY]
    found = _readable([member.assignment for member in having])
    return tuple(
        Move(topic, partitions, names_of(member), None)
        for member, part in zip(having, found, strict=True)
        for topic, numbers in sorted(part.items())
        if (partitions := _in_order(set(numbers)))
    )


def _readable(assignments: list[OpaqueJson]) -> list[dict[str, list[int]]]:
    """Of each what `_partitions` reads; nothing where it refuses."""
    found = _all_partitions(json.loads(f"[{','.join(one.text for one in assignments)}]"))
    if found is None:
        found = [next(iter(_all_partitions([one.value]) or ({},))) for one in assignments]
    return found


def names_of(member: Member | MemberRecord) -> OwnerNames:
    """The member as an owner."""
    return OwnerNames(member.member_id, member.group_instance_id, member.client_id, member.host)


def count_of(moves: Iterable[Move]) -> int:
    """How many partitions move."""
    return sum(len(move.partitions) for move in moves)


def _moves_of(topic: str, lost: _Parts, gained: _Parts, owners: list[OwnerNames | None]) -> Iterator[Move]:
    from_of: dict[int, int] = {}
    for place, numbers in lost:
        from_of.update(dict.fromkeys(numbers, place))
    for place, numbers in gained:
        if not from_of:
            yield from _move(topic, numbers, None, owners[place])
            continue
        by_owner: defaultdict[int, set[int]] = defaultdict(set)
        for number in numbers:
            by_owner[from_of.pop(number, -1)].add(number)
        for before, some in by_owner.items():
            yield from _move(topic, some, None if before < 0 else owners[before], owners[place])
    left: defaultdict[int, set[int]] = defaultdict(set)
    for number, place in from_of.items():
        left[place].add(number)
    for place, some in left.items():
        yield from _move(topic, some, owners[place], None)


def _move(topic: str, numbers: set[int], before: OwnerNames | None, after: OwnerNames | None) -> Iterator[Move]:
    partitions = _in_order(numbers)
    if partitions:
        yield Move(topic, partitions, before, after)


def _in_order(numbers: set[int]) -> tuple[int, ...]:
    """Without what is no partition, whatever a leader may have written."""
    found = sorted(numbers)
    if found and (found[0] < 0 or found[-1] > PARTITION_MAX):
        found = [number for number in found if 0 <= number <= PARTITION_MAX]
    return tuple(found)


def _all_partitions(values: list[JsonValue]) -> list[dict[str, list[int]]] | None:
    """Of each value what `_partitions` reads; None where it refuses one. Checked together, which takes half the time:
    all parts of a large group may change in one step.
    """
    if not _DICT_OR_NONE.issuperset(map(type, values)):
        return None
    found = [value.get("partitions", _NOTHING) if value else _NOTHING for value in cast(list[_Object], values)]
    if any(part is _NOTHING for part in found):
        try:
            of_bytes = [
                partitions_of_bytes(value) if part is _NOTHING else None
                for value, part in zip(values, found, strict=True)
            ]
        except ValueError:
            return None
        found = [part if read is None else cast(_Object, read) for part, read in zip(found, of_bytes, strict=True)]
    if not _DICT_ALONE.issuperset(map(type, found)):
        return None
    parts = cast(list[dict[str, list[int]]], found)
    lists = [numbers for part in parts for numbers in part.values()]
    if not _LIST_ALONE.issuperset(map(type, lists)) or not _INT_ALONE.issuperset(map(type, chain.from_iterable(lists))):
        return None
    return parts


def read(assignment: OpaqueJson) -> dict[str, set[int]]:
    """The partitions of a `ConsumerAssignment` by topic; none where it was given nothing.

    Raises ValueError for anything else.
    By hand, for the model takes five times as long, and every changed part of a large group is read in one step.
    """
    if assignment is EMPTY:
        return {}
    return {topic: set(numbers) for topic, numbers in _partitions(assignment.value).items()}


def _partitions(value: JsonValue) -> dict[str, list[int]]:
    if value is None:
        return {}
    try:
        of_bytes = partitions_of_bytes(value)
    except ValueError:
        _refuse(value)
    if of_bytes is not None:
        return of_bytes
    partitions = value.get("partitions", {}) if isinstance(value, dict) else None
    if not isinstance(partitions, dict):
        _refuse(value)
    for numbers in partitions.values():
        if not isinstance(numbers, list) or not _INT_ALONE.issuperset(map(type, numbers)):
            _refuse(value)
    return cast(dict[str, list[int]], partitions)


_INT_ALONE = frozenset((int,))
"""Not bool, which is one of its kinds."""
_LIST_ALONE = frozenset((list,))
_DICT_ALONE = frozenset((dict,))
_DICT_OR_NONE = frozenset((dict, type(None)))
_NOTHING: dict[str, JsonValue] = {}
_Object = dict[str, JsonValue] | None


def _refuse(value: JsonValue) -> NoReturn:
    raise ValueError(f"no consumer's assignment: {str(value)[:80]}")
