"""Which partitions a query continues with, which it must take first, and how far its next batch reads. Pure functions.

They reconcile Spark's checkpoint (`start`), the group's committed offsets, and the current assignment.

- **Taking a partition is a commit.** A process that plans a partition for the first time commits its start, with a note
  of its checkpoint id and the generation. The coordinator fences members and generations, not partitions; the note does
  the rest: a position in a checkpoint counts only while the committed note is the one it was taken with.
- A process that continues an earlier process's checkpoint takes the partitions again, at the checkpoint's positions. So
  if two processes run on one checkpoint, the older finds another note and no longer trusts its own positions.
- An operator's reset clears the note, so it overrides every checkpoint. If the group has no committed offset at all
  (expired, deleted, a lost store), the checkpoint's position is the best there is.
- Nothing but taken starts and completed ends is ever committed.

The order of calls is the planner's: `classify`, ask the source about what `classify` could not know, `settle`, commit,
and only then `advance`.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum

from rallypoint.spark_bridge.errors import DataLost
from rallypoint.spark_bridge.offsets import NO_RUN, CommitNote, Position, Run, StreamOffset, TopicPartition
from rallypoint.spark_bridge.options import EARLIEST, LATEST, StartingOffsets


@dataclass(frozen=True, slots=True)
class OwnedPartition:
    """A partition that this process has taken: `epoch` is the generation in which it did, `first` the offset."""

    epoch: int
    first: int


@dataclass(frozen=True, slots=True)
class Committed:
    """What the group has committed for a partition. `note` is None if no query of the bridge wrote the entry."""

    offset: int
    note: CommitNote | None = None


class CommitOutcome(Enum):
    """The result of a commit."""

    STORED = "the group has it"
    LATER = "not acknowledged; the partitions may still be owned, and the commit may have been stored"
    LOST = "some of the partitions are no longer this member's"


class Acquisition(Enum):
    """How a process acquires an assigned partition."""

    KEEP = "this process took it, and no other since"
    RESUME = "an earlier process on this checkpoint took it, and no other since: continue at the checkpoint"
    TAKE = "continue at the group's committed offset"
    BEGIN = "never committed: the starting offsets decide"


def classify(
    start: StreamOffset,
    checkpoint_id: str,
    assigned: Iterable[TopicPartition],
    owned: Mapping[TopicPartition, OwnedPartition],
    committed: Mapping[TopicPartition, Committed],
) -> dict[TopicPartition, Acquisition]:
    """Decide for every assigned partition how this process acquires it.

    `checkpoint_id`: that of `start`, or the one just drawn if `start` is the initial offset.
    `owned`: what this process took before; empty in a process that has just started.
    """
    return {tp: _acquisition(start, checkpoint_id, tp, owned.get(tp), committed.get(tp)) for tp in assigned}


def _acquisition(
    start: StreamOffset,
    checkpoint_id: str,
    tp: TopicPartition,
    owned: OwnedPartition | None,
    committed: Committed | None,
) -> Acquisition:
    if committed is None:
        return Acquisition.BEGIN if owned is None and tp not in start.partitions else Acquisition.RESUME
    note = committed.note
    if note is None or note.checkpoint_id != checkpoint_id:
        return Acquisition.TAKE
    if owned is not None:
        return Acquisition.KEEP if note.epoch == owned.epoch else Acquisition.TAKE
    position = start.partitions.get(tp)
    if position is None or note.epoch != position.epoch:
        return Acquisition.TAKE
    # Behind the group: another driver on this checkpoint has gone on since this one read it.
    return Acquisition.RESUME if position.end >= committed.offset else Acquisition.TAKE


def position_of(start: StreamOffset, tp: TopicPartition, owned: OwnedPartition) -> int:
    """The next offset to read of an owned partition: the end of `start` if it was taken with the same epoch."""
    return start.partitions[tp].end if _goes_on(start, tp, owned) else owned.first


def _goes_on(start: StreamOffset, tp: TopicPartition, owned: OwnedPartition) -> bool:
    position = start.partitions.get(tp)
    return position is not None and position.epoch == owned.epoch


def resume_at(start: StreamOffset, tp: TopicPartition, owned: OwnedPartition | None) -> int:
    """The position behind `Acquisition.RESUME`: that of this process if it has one, else the checkpoint's."""
    return start.partitions[tp].end if owned is None else position_of(start, tp, owned)


@dataclass(frozen=True, slots=True)
class Bounds:
    """The two ends of a partition: its first record, and the offset after its last."""

    earliest: int
    latest: int


def begin_at(
    tp: TopicPartition, starting: StartingOffsets, bounds: Bounds, *, added_later: bool, at_timestamp: int | None = None
) -> int:
    """The start of a partition that was never committed.

    `added_later`: the topic grew after the group had started. Then the partition starts at its earliest record, or the
    records written before the growth was noticed would be lost.
    `at_timestamp`: the offset that the source found for `starting.timestamp_ms`.
    """
    if added_later:
        return bounds.earliest
    if at_timestamp is not None:
        return at_timestamp
    offset = starting.of(tp)
    return {EARLIEST: bounds.earliest, LATEST: bounds.latest}.get(offset, offset)


def gone(
    partitions: Iterable[TopicPartition], counts: Mapping[str, int], *, fail_on_data_loss: bool
) -> frozenset[TopicPartition]:
    """The partitions that no longer exist: their topic was deleted, or recreated with fewer. DataLost unless accepted.

    `counts`: the number of partitions of each topic that exists.
    """
    missing = sorted(tp for tp in partitions if tp[1] >= counts.get(tp[0], 0))
    if missing and fail_on_data_loss:
        names = ", ".join(f"{topic}-{partition}" for topic, partition in missing)
        raise DataLost(
            f"the source has no partition {names} any more: its topic was deleted, or recreated with fewer; set"
            " failOnDataLoss=false to continue without it"
        )
    return frozenset(missing)


def within(tp: TopicPartition, position: int, bounds: Bounds, *, fail_on_data_loss: bool) -> int:
    """The position if the source still has it; else DataLost, or the earliest offset if the user accepts a loss."""
    if bounds.earliest <= position <= bounds.latest:
        return position
    if fail_on_data_loss:
        raise DataLost(
            f"{tp[0]}-{tp[1]} must continue at {position}, but holds the offsets {bounds.earliest} to {bounds.latest}:"
            " records are gone, or the topic was recreated; set failOnDataLoss=false to continue at the earliest"
        )
    return bounds.earliest


def settle(
    acquisitions: Mapping[TopicPartition, Acquisition],
    owned: Mapping[TopicPartition, OwnedPartition],
    positions: Mapping[TopicPartition, int],
    generation_id: int,
) -> dict[TopicPartition, OwnedPartition]:
    """What the process owns once its `commits` are stored. Partitions that are no longer assigned are dropped.

    `positions`: the start of each partition that it does not keep.
    """
    return {
        tp: owned[tp] if acquisition is Acquisition.KEEP else OwnedPartition(generation_id, positions[tp])
        for tp, acquisition in acquisitions.items()
    }


def first_counts(committed: Mapping[TopicPartition, Committed], counts: Mapping[str, int]) -> dict[str, int]:
    """For each topic, its number of partitions when the group first committed to it; else the number it has now."""
    known: dict[str, int] = {}
    for (topic, _), entry in committed.items():
        if entry.note is not None:
            known[topic] = min(entry.note.topic_partitions, known.get(topic, entry.note.topic_partitions))
    return {**counts, **known}


def commits(
    start: StreamOffset,
    checkpoint_id: str,
    owned: Mapping[TopicPartition, OwnedPartition],
    counts: Mapping[str, int],
    run: Run = NO_RUN,
) -> dict[TopicPartition, Committed]:
    """The offsets to commit for the owned partitions, once everything up to `start` is complete."""
    return {
        tp: Committed(
            position_of(start, tp, one), CommitNote(checkpoint_id, one.epoch, counts.get(tp[0], tp[1] + 1), run)
        )
        for tp, one in owned.items()
    }


def other_runs(committed: Mapping[TopicPartition, Committed], checkpoint_id: str, run: Run) -> frozenset[Run]:
    """The other processes that took partitions for the same checkpoint, as far as the notes still show them."""
    notes = [entry.note for entry in committed.values() if entry.note is not None]
    return frozenset(
        note.run for note in notes if note.checkpoint_id == checkpoint_id and note.run not in {run, NO_RUN}
    )


def newer_run(known: frozenset[Run], others: frozenset[Run], run: Run) -> Run | None:
    """A process that uses this process's checkpoint and started after it; None if there is none.

    `known`: the processes whose notes existed at this process's first look; they are older. If two started in one
    generation, the larger name counts as newer, so that exactly one of them gives way.
    """
    return max((one for one in others - known if one > run), default=None)


def advance(
    start: StreamOffset,
    checkpoint_id: str,
    owned: Mapping[TopicPartition, OwnedPartition],
    latest: Mapping[TopicPartition, int],
    *,
    limit: int | None = None,
    rewound: Mapping[TopicPartition, int] | None = None,
) -> StreamOffset | None:
    """The end of the next batch over the owned partitions, or None if it would be empty.

    `latest`: an entry for each owned partition. It may lie before a position (an `availableNow` run that is done with
    the partition), which then does not move.
    `limit`: the most offsets in the batch.
    `rewound`: recreated partitions, with the offset at which to read them from their beginning.
    """
    rewound = rewound or {}
    firsts = {tp: rewound.get(tp, position_of(start, tp, one)) for tp, one in owned.items()}
    backlog = {tp: max(latest[tp] - first, 0) for tp, first in firsts.items()}
    counts = distribute(backlog, limit)
    if not any(counts.values()):
        return None
    return StreamOffset(
        checkpoint_id=checkpoint_id,
        partitions={tp: Position(first + counts[tp], owned[tp].epoch) for tp, first in firsts.items()},
        taken={tp: first for tp, first in firsts.items() if tp in rewound or not _goes_on(start, tp, owned[tp])},
    )


def distribute(backlog: Mapping[TopicPartition, int], limit: int | None) -> dict[TopicPartition, int]:
    """Distribute at most `limit` offsets in proportion to the backlog, without starving any partition.

    Each partition with a backlog gets one offset if there are enough. The rest is distributed in proportion to the
    backlog, and the remainder of the rounding goes to the largest backlogs. If there are fewer offsets than partitions,
    the largest backlogs get them. Ties are broken by name. The sum is `limit`, or the whole backlog if that is less.
    """
    total = sum(backlog.values())
    if limit is None or total <= limit:
        return dict(backlog)
    by_size = sorted(backlog, key=lambda tp: (-backlog[tp], tp))
    waiting = [tp for tp in by_size if backlog[tp] > 0]
    counts = dict.fromkeys(backlog, 0)
    for tp in waiting[:limit]:
        counts[tp] = 1
    rest, open_backlog = limit - min(limit, len(waiting)), total - len(waiting)
    if rest:
        for tp in waiting:
            counts[tp] += rest * (backlog[tp] - 1) // open_backlog
        left = limit - sum(counts.values())
        for tp in waiting:
            extra = min(left, backlog[tp] - counts[tp], 1)
            counts[tp] += extra
            left -= extra
    return counts
