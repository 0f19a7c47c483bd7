"""How many partitions a new assignment takes from their owners. Reads consumers' assignments, and changes nothing."""

import json
from collections import defaultdict
from collections.abc import Mapping
from itertools import chain
from typing import NoReturn, cast

from pydantic import JsonValue

from rallypoint.coordinator.core.group import CONSUMER, Group
from rallypoint.protocol.opaque import EMPTY, OpaqueJson


def count_moved(group: Group, given: Mapping[str, OpaqueJson]) -> int | None:
    """Partitions that some owner of the stored assignment has no longer under the given one (member id to its part).

    A partition that nobody had is not moved by being given to somebody. A static member is the same owner under a new
    id, for what is stored of a slot passes to its new id at once. None where the group is none of consumers, or where
    a part that changed cannot be read.
    Cost: parses the parts of members whose text changed, and no others.
    """
    if group.protocol_type != CONSUMER:
        return None
    changed: list[str] = []
    for stored in group.stored_members.values():
        part = given.get(stored.member_id, EMPTY) if stored.member_id in group.members else EMPTY
        if part.text != stored.assignment.text:
            changed += (stored.assignment.text, part.text)
    # One text, for to begin a parse costs more than to read what a member has.
    found = _all_partitions(json.loads(f"[{','.join(changed)}]"))
    if found is None:
        return None
    moved: defaultdict[str, set[int]] = defaultdict(set)
    for before, after in zip(found[::2], found[1::2], strict=True):
        for topic, numbers in before.items():
            moved[topic].update(set(numbers).difference(after.get(topic, ())))
    return sum(map(len, moved.values()))


def _all_partitions(values: list[JsonValue]) -> list[dict[str, list[int]]] | None:
    """Of each value what `_partitions` reads; None where it refuses one. Checked together, which takes half the time:
    all parts of a large group may change in one step.
    """
    if not _DICT_OR_NONE.issuperset(map(type, values)):
        return None
    found = [value.get("partitions", _NOTHING) if value else _NOTHING for value in cast(list[_Object], values)]
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
