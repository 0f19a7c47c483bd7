"""How many bytes an event takes while the feed keeps it: the event itself, and its text for readers.

The measure of a class follows from the types of its fields. A field of a type without a measure is refused when the
class is first measured, so the feed counts every byte of every event.
"""

from collections.abc import Callable, Iterable
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import cache
from sys import getsizeof
from typing import Any, get_type_hints

from rallypoint.coordinator.core.effects import Event
from rallypoint.coordinator.core.moves import Move

FIXED_BYTES = 700
"""Of any event: its objects, its place in a ring, its numbers, and the names in its text."""
ENTRY_BYTES = 200
"""Of a partition with its offset: a tuple of numbers, and as much text as the largest of them take."""
MOVE_BYTES = 240
"""Of a partition that moves: its numbers, the names of the fields in its text, and its part of a `Move`."""
TIME_BYTES = 80
"""Of the time of a commit beside it."""

Measure = Callable[[Any], int]


def size_of(event: Event) -> int:
    """An upper bound. Cost: a look at each text, and at each partition."""
    kind: Any = type(event)
    return FIXED_BYTES + _measure(kind)(event)


def _text_bytes(value: str | None) -> int:
    """In memory, and escaped in ASCII."""
    if value is None:
        return 0
    return getsizeof(value) + len(value) * (6 if value.isascii() else 12)


def _nothing(value: object) -> int:
    """A number or a word of a few: part of what is fixed."""
    return 0


def _partitions_bytes(value: Iterable[tuple[Any, ...]]) -> int:
    entries = tuple(value)
    if len(entries) == 1:
        return ENTRY_BYTES + _text_bytes(entries[0][0])
    return len(entries) * ENTRY_BYTES + sum(map(_text_bytes, {entry[0] for entry in entries}))


def _timed_bytes(value: Iterable[tuple[Any, ...]]) -> int:
    entries = tuple(value)
    return _partitions_bytes(entries) + len(entries) * TIME_BYTES


def _texts_bytes(value: tuple[str, ...]) -> int:
    return getsizeof(value) + sum(map(_text_bytes, value))


def _moves_bytes(value: Iterable[Move]) -> int:
    """In the text each partition stands with its topic and the names of both members."""
    size = 0
    for move in value:
        owners = [owner for owner in (move.from_owner, move.to_owner) if owner is not None]
        named = _text_bytes(move.topic) + sum(_text_bytes(one.member_id) + _text_bytes(one.client_id) for one in owners)
        kept = sum(_text_bytes(text) for owner in owners for text in owner)
        size += len(move.partitions) * (MOVE_BYTES + named) + MOVE_BYTES + named + kept
    return size


def _sets_bytes(value: frozenset[frozenset[str]] | None) -> int:
    if not value:
        return 0
    return getsizeof(value) + sum(getsizeof(texts) + sum(map(_text_bytes, texts)) for texts in value)


_MEASURES: dict[Any, Measure] = {
    str: _text_bytes,
    str | None: _text_bytes,
    int: _nothing,
    int | None: _nothing,
    bool: _nothing,
    tuple[str, ...]: _texts_bytes,
    tuple[tuple[str, int], ...]: _partitions_bytes,
    tuple[tuple[str, int, int], ...]: _partitions_bytes,
    tuple[Move, ...]: _moves_bytes,
    tuple[tuple[str, int, int, int], ...]: _timed_bytes,
    frozenset[frozenset[str]] | None: _sets_bytes,
}


@cache
def _measure(kept: type) -> Measure:
    """The measure of a dataclass. Raises TypeError for a field that has none."""
    hints = get_type_hints(kept)
    parts = [(field.name, _measure_of(kept, field.name, hints[field.name])) for field in fields(kept)]
    parts = [(name, measure) for name, measure in parts if measure is not _nothing]

    def measure(value: Any) -> int:
        size = 0  # a loop, since each commit comes by
        for name, of_part in parts:
            size += of_part(getattr(value, name))
        return size

    return measure


def _measure_of(kept: type, name: str, hint: Any) -> Measure:
    if hint in _MEASURES:
        return _MEASURES[hint]
    if isinstance(hint, type) and issubclass(hint, Enum):
        return _nothing
    if isinstance(hint, type) and is_dataclass(hint):
        return _measure(hint)
    raise TypeError(f"nobody knows how large {kept.__name__}.{name} is: {hint}")
