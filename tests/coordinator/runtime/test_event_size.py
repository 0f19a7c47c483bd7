"""What the feed keeps takes no more memory than its bound says, whatever the events are: measured with real objects."""

import gc
import tracemalloc
from dataclasses import dataclass, fields
from enum import Enum
from itertools import count
from typing import Any, get_args, get_type_hints

import pytest

from rallypoint.coordinator.core.effects import Event, GroupChanged, GroupSummary
from rallypoint.coordinator.core.moves import Move, OwnerNames
from rallypoint.coordinator.http.events.codec import text_of
from rallypoint.coordinator.runtime.events.event_size import size_of
from rallypoint.coordinator.runtime.events.feed import WEIGHT_BYTES, EventFeed, Ring
from rallypoint.protocol.limits import ID_LENGTH_MAX, REASON_LENGTH_MAX
from tests.sizes import by_size

KEPT_MAX = 64
ALPHABETS = ("a", "\U0001f600", "\u00fc", "\u6f22", '"')[: by_size(2, 3, 5)]
_NUMBERS = count(10**18)


def text(letter: str, length: int = ID_LENGTH_MAX) -> str:
    """A new one each time."""
    return f"{next(_NUMBERS)}" + letter * (length - 19)


def filled(hint: Any, name: str, letter: str, size: int) -> Any:
    """A value of the type, as large as the limits of requests let it be."""
    if hint in (str, str | None):
        return text(letter, 2 * REASON_LENGTH_MAX if name == "reason" else ID_LENGTH_MAX)
    if hint in (int, int | None):
        return next(_NUMBERS)
    if hint is bool:
        return True
    if isinstance(hint, type) and issubclass(hint, Enum):
        return next(iter(hint))
    if hint == frozenset[frozenset[str]] | None:
        return frozenset({frozenset(text(letter) for _ in range(size))})
    if hint is GroupSummary:
        return event_of(hint, letter, size)
    if hint == tuple[str, ...]:
        return tuple(text(letter) for _ in range(size))
    if hint == tuple[Move, ...]:
        names = [OwnerNames(*(text(letter) for _ in OwnerNames._fields)) for _ in range(2)]
        return tuple(Move(text(letter), (next(_NUMBERS),), *names) for _ in range(size))
    if hint == tuple[tuple[str, int, int, int], ...]:
        return tuple((text(letter), next(_NUMBERS), next(_NUMBERS), next(_NUMBERS)) for _ in range(size))
    assert hint in (tuple[tuple[str, int], ...], tuple[tuple[str, int, int], ...]), hint
    width = len(get_args(get_args(hint)[0])) - 1
    topic = text(letter)
    return tuple((topic, *(next(_NUMBERS) for _ in range(width))) for _ in range(size))


def event_of(kind: type, letter: str, size: int) -> Any:
    hints = get_type_hints(kind)
    return kind(**{field.name: filled(hints[field.name], field.name, letter, size) for field in fields(kind)})


@pytest.mark.parametrize("kind", get_args(Event), ids=lambda kind: kind.__name__)
def test_a_full_ring_takes_what_its_bound_says(kind: type) -> None:
    for letter in ALPHABETS:
        for size in (1, 100):
            feed = EventFeed("life", KEPT_MAX, lambda: 7)
            tracemalloc.start()
            try:
                for _ in range(KEPT_MAX):
                    feed.event(event_of(kind, letter, size))
                    ring = _ring_of(feed)
                    if ring.total > ring.gone:
                        text_of(ring.at(ring.total - 1))
                gc.collect()  # the encoders of JSON leave cycles
                taken_bytes, _ = tracemalloc.get_traced_memory()
            finally:
                tracemalloc.stop()
            assert feed.last_number == KEPT_MAX
            assert taken_bytes <= KEPT_MAX * WEIGHT_BYTES * 1.05, (letter, size)


def _ring_of(feed: EventFeed) -> Ring:
    return feed.commits if feed.commits.total else feed.changes


def test_what_a_group_subscribes_to_is_not_kept() -> None:
    feed = EventFeed("life", 10, lambda: 7)
    subscription = frozenset(f"t{n}" for n in range(10_000))
    feed.event(GroupChanged(GroupSummary("g", "Stable", "consumer", 1, 1, frozenset({subscription}))))
    kept = feed.changes.at(0).event
    assert isinstance(kept, GroupChanged)
    assert kept.summary == GroupSummary("g", "Stable", "consumer", 1, 1)
    assert size_of(kept) < WEIGHT_BYTES


@dataclass(frozen=True, slots=True)
class Unmeasured:
    group_id: str
    members: list[str]


def test_an_event_of_which_nobody_knows_the_size_is_refused() -> None:
    event: Any = Unmeasured("g", [])
    with pytest.raises(TypeError, match=r"Unmeasured\.members"):
        size_of(event)
