"""The judge: what etcd's history and the members' books must not show. Pure.

The history is judged by itself: who owned a keyspace is read from it, and no node is believed. The books are judged
against each other and against what the history ends with.
"""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import NamedTuple

from examples.cluster.books import Commit, Entry, Failed, Fetch, Place
from rallypoint.coordinator.core.records import GroupRecord, OffsetRecord, RebalanceRecord
from rallypoint.coordinator.storage import codec
from rallypoint.coordinator.storage.contract import StoredDataInvalid
from rallypoint.coordinator.storage.etcd.keys import decode


class Change(NamedTuple):
    """A key's new value; None: it was deleted."""

    key: bytes
    value: bytes | None


class Revision(NamedTuple):
    """All that one transaction changed."""

    number: int
    changes: Sequence[Change]


# --- the history -----------------------------------------------------------------------------------------------------


class Owned(NamedTuple):
    """The owner of a keyspace. epoch: the revision at which it became the owner."""

    node_id: str
    epoch: int


class Head(NamedTuple):
    """What stands in a keyspace's head. epoch: 0 where an acquisition wrote it."""

    epoch: int
    sequence: int


@dataclass(slots=True)
class _Parts:
    """What one transaction changed in one keyspace."""

    owner: list[bytes | None] = field(default_factory=list)
    head: list[bytes | None] = field(default_factory=list)
    data: list[Change] = field(default_factory=list)


@dataclass(slots=True)
class _Generations:
    """Of a group. highest: in its header. made: by which rebalance. began: when each rebalance began."""

    highest: int = 0
    made: dict[int, int] = field(default_factory=dict)
    began: dict[int, int] = field(default_factory=dict)


class HistoryAudit:
    """Reads the revisions one after the other, from the first on.

    problems: one sentence for each thing that must not be.
    offsets: what is committed after the last revision that was read.
    regressions: how many of the problems are offsets that went back or are gone.
    """

    def __init__(self, prefix: str, topic: str) -> None:
        self.problems: list[str] = []
        self.offsets: dict[Place, int] = {}
        self.revisions = 0
        self.appends = 0
        self.acquisitions = 0
        self.hand_overs = 0
        self.regressions = 0
        self._prefix = f"{prefix}/".encode()
        self._topic = topic
        self._owners: dict[str, Owned] = {}
        self._sequences: dict[str, int] = {}
        self._places: dict[tuple[str, bytes], Place] = {}
        self._groups: defaultdict[str, _Generations] = defaultdict(_Generations)

    @property
    def generations(self) -> int:
        """How many generations of groups were made."""
        return sum(len(group.made) for group in self._groups.values())

    def read(self, revision: Revision) -> None:
        """Judge the next revision."""
        self.revisions += 1
        for keyspace, parts in self._by_keyspace(revision).items():
            self._judge_fence(revision.number, keyspace, parts)
            for change in parts.data:
                self._judge_data(revision.number, keyspace, change)

    def _by_keyspace(self, revision: Revision) -> Mapping[str, _Parts]:
        found: defaultdict[str, _Parts] = defaultdict(_Parts)
        for key, value in revision.changes:
            kind, _, rest = key.removeprefix(self._prefix).partition(b"/")
            name, _, inner = rest.partition(b"/")
            keyspace = decode(name.decode())
            if kind == b"owner":
                found[keyspace].owner.append(value)
            elif kind == b"head":
                found[keyspace].head.append(value)
            elif kind == b"data":
                found[keyspace].data.append(Change(inner, value))
        return found

    # Who may write.

    def _judge_fence(self, at: int, keyspace: str, parts: _Parts) -> None:
        before = self._owners.get(keyspace)
        head = self._head_of(at, keyspace, parts)
        if head is None:
            if parts.data:
                self._object(at, keyspace, "data were written without the head")
            if any(value is not None for value in parts.owner):
                self._object(at, keyspace, "the owner changed without the head")
        elif head.epoch == 0:
            self._judge_acquisition(at, keyspace, parts, before)
        else:
            self._judge_append(at, keyspace, parts, before, head)
        for value in parts.owner:
            if value is None:
                self._owners.pop(keyspace, None)
            else:
                self._owners[keyspace] = Owned(value.decode(), at)
                self._sequences[keyspace] = 0

    def _head_of(self, at: int, keyspace: str, parts: _Parts) -> Head | None:
        if not parts.head:
            return None
        numbers = (parts.head[0] or b"").split()[:2]
        if len(numbers) < 2 or not all(number.isdigit() for number in numbers):
            self._object(at, keyspace, f"the head is none: {parts.head[0]!r}")
            return None
        return Head(int(numbers[0]), int(numbers[1]))

    def _judge_acquisition(self, at: int, keyspace: str, parts: _Parts, before: Owned | None) -> None:
        self.acquisitions += 1
        after = [value.decode() for value in parts.owner if value is not None]
        if not after:
            self._object(at, keyspace, "an acquisition wrote the head and no owner")
        elif before is not None and before.node_id != after[0]:
            self._object(at, keyspace, f"node {after[0]} took what node {before.node_id} owned")
        if parts.data:
            self._object(at, keyspace, "an acquisition wrote data")

    def _judge_append(self, at: int, keyspace: str, parts: _Parts, before: Owned | None, head: Head) -> None:
        if parts.owner:
            self.hand_overs += 1
        else:
            self.appends += 1
        if before is None:
            self._object(at, keyspace, f"written under the epoch {head.epoch} while nobody owned it")
        elif before.epoch != head.epoch:
            self._object(
                at,
                keyspace,
                f"written under the epoch {head.epoch}, when node {before.node_id} owned it under {before.epoch}",
            )
        else:
            expected = self._sequences.get(keyspace, 0) + 1
            if head.sequence != expected:
                self._object(at, keyspace, f"the write {head.sequence} of its epoch came where {expected} was next")
            self._sequences[keyspace] = head.sequence

    # What is written.

    def _judge_data(self, at: int, keyspace: str, change: Change) -> None:
        if change.value is None:
            place = self._places.pop((keyspace, change.key), None)
            if place is not None:
                self.regressions += 1
                self._object(
                    at, keyspace, f"the offset of {_named(place)} is gone, which was {self.offsets.pop(place)}"
                )
            return
        try:
            record = codec.decode(change.key, change.value)
        except StoredDataInvalid as error:
            self._object(at, keyspace, str(error))
            return
        if isinstance(record, OffsetRecord) and record.topic == self._topic:
            place = (record.group_id, record.partition)
            before = self.offsets.get(place, 0)
            if record.offset < before:
                self.regressions += 1
                self._object(at, keyspace, f"the offset of {_named(place)} went back from {before} to {record.offset}")
            self.offsets[place] = record.offset
            self._places[keyspace, change.key] = place
        elif isinstance(record, GroupRecord):
            self._judge_header(at, keyspace, record)
        elif isinstance(record, RebalanceRecord):
            self._judge_rebalance(at, keyspace, record)

    def _judge_header(self, at: int, keyspace: str, record: GroupRecord) -> None:
        group = self._groups[record.group_id]
        if record.highest_generation_id < group.highest:
            self._object(
                at,
                keyspace,
                f"the highest generation of {record.group_id} went back from {group.highest}"
                f" to {record.highest_generation_id}",
            )
        group.highest = record.highest_generation_id

    def _judge_rebalance(self, at: int, keyspace: str, record: RebalanceRecord) -> None:
        group = self._groups[record.group_id]
        began_ms = group.began.setdefault(record.rebalance_id, record.began_at_ms)
        if began_ms != record.began_at_ms:
            self._object(at, keyspace, f"the rebalance {record.rebalance_id} of {record.group_id} began twice")
        if record.generation_id is None:
            return
        maker = group.made.setdefault(record.generation_id, record.rebalance_id)
        if maker != record.rebalance_id:
            self._object(
                at,
                keyspace,
                f"the generation {record.generation_id} of {record.group_id} was made by the rebalances {maker}"
                f" and {record.rebalance_id}",
            )

    def _object(self, at: int, keyspace: str, sentence: str) -> None:
        self.problems.append(f"revision {at}, {keyspace}: {sentence}")


def _named(place: Place) -> str:
    return f"partition {place[1]} of {place[0]}"


# --- the books -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class BooksFindings:
    """What the members saw.

    acknowledged, refused: commits.
    not_made_good: refused commits whose offsets were never acknowledged afterwards.
    lost: acknowledged offsets that are above what the history ends with.
    gone_back: fetches that said less than was acknowledged before them, or more than anybody had tried.
    failed: members that stopped.
    """

    acknowledged: int
    refused: int
    fetches: int
    not_made_good: Sequence[str]
    lost: Sequence[str]
    gone_back: Sequence[str]
    failed: Sequence[str]

    @property
    def problems(self) -> Sequence[str]:
        """All of them, one sentence each."""
        return [*self.not_made_good, *self.lost, *self.gone_back, *self.failed]


def judge_books(entries: Iterable[Entry], stored: Mapping[Place, int]) -> BooksFindings:
    """Judge all entries of all members. stored: the offsets that the history ends with."""
    commits: list[Commit] = []
    fetches: list[Fetch] = []
    failed: list[str] = []
    for entry in entries:
        if isinstance(entry, Commit):
            commits.append(entry)
        elif isinstance(entry, Fetch):
            fetches.append(entry)
        elif isinstance(entry, Failed):
            failed.append(f"member {entry.member} of {entry.group_id}: {entry.error}")
    acknowledged = [commit for commit in commits if commit.error is None]
    refused = [commit for commit in commits if commit.error is not None]
    highest = _highest(acknowledged)
    return BooksFindings(
        len(acknowledged),
        len(refused),
        len(fetches),
        [sentence for commit in refused for sentence in _not_made_good(commit, highest)],
        [
            f"{_named(place)}: {offset} was acknowledged, and {stored.get(place, 'nothing')} is stored"
            for place, offset in sorted(highest.items())
            if stored.get(place, -1) < offset
        ],
        _judge_fetches(commits, fetches),
        failed,
    )


def _highest(commits: Iterable[Commit]) -> dict[Place, int]:
    found: dict[Place, int] = {}
    for commit in commits:
        for place, offset in commit.places.items():
            found[place] = max(offset, found.get(place, 0))
    return found


def _not_made_good(refused: Commit, highest: Mapping[Place, int]) -> Iterable[str]:
    for place, offset in refused.places.items():
        if highest.get(place, -1) < offset:
            yield f"{_named(place)}: {offset} was refused ({refused.error}) and not acknowledged afterwards"


class _Steps:
    """The highest offset of a place over time."""

    def __init__(self, points: Iterable[tuple[int, int]]) -> None:
        ordered = sorted(points)
        self._times = [at_ms for at_ms, _ in ordered]
        self._highest = list(accumulate((offset for _, offset in ordered), max))

    def at(self, at_ms: int) -> int:
        """Up to that instant; 0 before the first."""
        number = bisect_right(self._times, at_ms)
        return self._highest[number - 1] if number else 0


def _judge_fetches(commits: Iterable[Commit], fetches: Iterable[Fetch]) -> list[str]:
    """A fetch says at least what was acknowledged before it began, and at most what was tried before it ended."""
    acknowledged: defaultdict[Place, list[tuple[int, int]]] = defaultdict(list)
    tried: defaultdict[Place, list[tuple[int, int]]] = defaultdict(list)
    for commit in commits:
        for place, offset in commit.places.items():
            tried[place].append((commit.began_ms, offset))
            if commit.error is None:
                # Acknowledged within a millisecond: only a fetch of a later one has to know.
                acknowledged[place].append((commit.ended_ms + 1, offset))
    floors = {place: _Steps(points) for place, points in acknowledged.items()}
    ceilings = {place: _Steps(points) for place, points in tried.items()}
    found = []
    for fetch in fetches:
        places = {place for place in ceilings if place[0] == fetch.group_id}
        for place in sorted(places | {(fetch.group_id, partition) for partition in fetch.offsets}):
            said = fetch.offsets.get(place[1], 0)
            least = floors[place].at(fetch.began_ms) if place in floors else 0
            most = ceilings[place].at(fetch.ended_ms) if place in ceilings else 0
            if said < least:
                found.append(f"{_named(place)}: {said} was told after {least} was acknowledged")
            elif said > most:
                found.append(f"{_named(place)}: {said} was told when nobody had tried more than {most}")
    return found
