"""The latest events, kept so that a reader that comes back goes on where it stopped.

There are two rings: one for commits, which are many and of which few readers ask, and one for all other events, which
commits must not push out. The events of both are numbered together, from 1, and a number is a reader's cursor. The
bytes of a ring are bounded, so a reader that is slow or away for too long loses events. The feed says so, and says how
many.

Readers pull. The feed keeps nothing for a reader but its position.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import replace

from rallypoint.coordinator.core.effects import (
    Event,
    GroupChanged,
    OffsetsCommitted,
    OffsetsLoaded,
    PartitionsMoved,
)
from rallypoint.coordinator.core.group import State
from rallypoint.coordinator.core.moves import Move
from rallypoint.coordinator.runtime.events.event_size import size_of
from rallypoint.coordinator.storage.contract import AppendMetrics

WEIGHT_BYTES = 2_048
"""Bytes of an event that count as one. Most events have less, and count as one all the same."""

COMMITS = (OffsetsCommitted, OffsetsLoaded)
"""Events that only those get who ask for them."""


class Kept:
    """An event with its number. `text` is for whoever shows it: made once, by the first."""

    __slots__ = ("at_ms", "event", "number", "text", "weight")

    def __init__(self, number: int, at_ms: int, event: Event) -> None:
        self.number = number
        self.at_ms = at_ms
        self.event = event
        self.weight = _weight_of(event)
        self.text: bytes | None = None


class Ring:
    """The last events of one sort, no more than weigh so much together: one that outweighs the ring is gone at once.

    `gone` counts those that it holds no more, `gone_number` is the number of the last of these, 0 where there is none.
    """

    __slots__ = ("_kept", "_weight", "_weight_max", "gone", "gone_number", "waiting")

    def __init__(self, weight_max: int) -> None:
        self.gone = 0
        self.gone_number = 0
        self.waiting: set[asyncio.Future[None]] = set()
        self._kept: deque[Kept] = deque()
        self._weight = 0
        self._weight_max = weight_max

    @property
    def total(self) -> int:
        """Events that it ever held: the place of the next one, counted from 0."""
        return self.gone + len(self._kept)

    def add(self, kept: Kept) -> None:
        """Take the newest event in, the oldest ones out, and wake who waits."""
        self._kept.append(kept)
        self._weight += kept.weight
        while self._weight > self._weight_max:
            oldest = self._kept.popleft()
            self._weight -= oldest.weight
            self.gone += 1
            self.gone_number = oldest.number
        if self.waiting:
            self.wake()

    def wake(self) -> None:
        """Let everyone look who waits here."""
        for future in self.waiting:
            if not future.done():
                future.set_result(None)
        self.waiting.clear()

    def place_after(self, number: int) -> int:
        """The place of the first event with a higher number. Costs a look at each event behind it."""
        newer = 0
        for kept in reversed(self._kept):
            if kept.number <= number:
                break
            newer += 1
        return self.total - newer

    def at(self, place: int) -> Kept:
        """The event at that place, which must be here still."""
        return self._kept[place - self.gone]


def _weight_of(event: Event) -> int:
    return -(-size_of(event) // WEIGHT_BYTES)


MOVES_KEPT_MAX = 1_000
"""Partitions of one event that are told one by one; all are counted."""


def _first(moves: tuple[Move, ...]) -> tuple[Move, ...]:
    kept, room = [], MOVES_KEPT_MAX
    for move in moves:
        if not room:
            break
        kept.append(move._replace(partitions=move.partitions[:room]))
        room -= len(kept[-1].partitions)
    return tuple(kept)


def _kept_of(event: Event) -> Event:
    """What is kept of it. What a group subscribes to may be ten thousand topics, and no stream tells them."""
    if isinstance(event, PartitionsMoved) and event.move_count > MOVES_KEPT_MAX:
        return replace(event, moves=_first(event.moves))
    if isinstance(event, GroupChanged) and event.summary.subscriptions:
        return GroupChanged(replace(event.summary, subscriptions=frozenset()))
    return event


class EventFeed:
    """An observer that keeps the events. Belongs to one event loop.

    `life` names this life of the process: a number means nothing in another one.
    """

    def __init__(self, life: str, kept_max: int, now_ms: Callable[[], int]) -> None:
        """`kept_max`: the weight that each of the two rings holds."""
        self.life = life
        self.last_number = 0
        self.is_closed = False
        self._now_ms = now_ms
        self.changes = Ring(kept_max)
        self.commits = Ring(kept_max)

    def event(self, event: Event) -> None:
        """Something happened to a group, and what it rests on is durable."""
        if isinstance(event, COMMITS):
            self._keep(self.commits, event)
        elif not isinstance(event, GroupChanged) or event.summary.state != State.DEAD:
            self._keep(self.changes, _kept_of(event))
        # Of the end of a group GroupRemoved has said it, with the reason.

    def _keep(self, ring: Ring, event: Event) -> None:
        self.last_number += 1
        ring.add(Kept(self.last_number, self._now_ms(), event))

    def appended(self, append_metrics: AppendMetrics) -> None:
        """No event of a group."""

    def close(self) -> None:
        """Nothing comes any more: readers get what is left, and then the end."""
        self.is_closed = True
        self.changes.wake()
        self.commits.wake()

    def oldest(self, *, commits: bool) -> int:
        """The number after which nothing is gone. `commits`: of those too."""
        return max(self.changes.gone_number, self.commits.gone_number if commits else 0)

    def read(self, *, commits: bool, after: int | None = None) -> "FeedReader":
        """A reader of what comes from now on, or of all that followed the number `after`. `commits`: of those too."""
        rings = (self.changes, self.commits) if commits else (self.changes,)
        return FeedReader(self, rings, self.last_number if after is None else after)


class FeedReader:
    """The position of one reader: `number` is that of the last event it has had, or could have had."""

    def __init__(self, feed: EventFeed, rings: tuple[Ring, ...], after: int) -> None:
        self.number = after
        self._feed = feed
        self._rings = rings
        self._places = {ring: ring.place_after(after) for ring in rings}
        # What was gone before it came, it cannot be said how much of it the reader had not seen; one stands for it.
        self._unseen = sum(ring.gone_number > after for ring in rings)

    @property
    def lost_count(self) -> int:
        """Events that are gone and that it has not had. 0: none is missing up to `number`."""
        return self._unseen + sum(max(0, ring.gone - place) for ring, place in self._places.items())

    @property
    def has_more(self) -> bool:
        """Whether something is there to be read, or to be missed."""
        return self.lost_count > 0 or any(ring.total > place for ring, place in self._places.items())

    @property
    def unread_count(self) -> int:
        """Events that it has not had: those that are there, and those that are gone."""
        return self._unseen + sum(ring.total - place for ring, place in self._places.items())

    def skip(self) -> None:
        """Go on with what comes from now on."""
        self._unseen = 0
        self._places = {ring: ring.total for ring in self._rings}
        self.number = self._feed.last_number

    def take(self) -> Kept | None:
        """The next event; None where there is no more. Not to be used while something is lost: see `skip`."""
        assert not self.lost_count, "a reader that has lost something is to skip, and to say so"
        first: tuple[Kept, Ring] | None = None
        for ring, place in self._places.items():
            if ring.total > place:
                kept = ring.at(place)
                if first is None or kept.number < first[0].number:
                    first = kept, ring
        if first is None:
            self.number = self._feed.last_number
            return None
        kept, ring = first
        self._places[ring] += 1
        self.number = kept.number
        return kept

    async def wait(self) -> None:
        """Return when something is there to be read, or the feed is closed."""
        if self.has_more or self._feed.is_closed:
            return
        future = asyncio.get_running_loop().create_future()
        for ring in self._rings:
            ring.waiting.add(future)
        try:
            await future
        finally:
            for ring in self._rings:
                ring.waiting.discard(future)
