"""What a query may go on with, what it must take first, and how far its next batch reads. Pure functions, no waiting.

Three truths meet here: Spark's checkpoint (`start`), the group's committed offsets, and the present assignment.

- **Taking a partition is a commit.** Whoever plans a partition for the first time first commits its start, with a note
  of its lineage and of the generation. The coordinator fences members and generations, not partitions; the note does
  the rest: a position in a checkpoint counts only while the committed note is the one it was taken with.
- A process takes afresh, at the checkpoint's position, what it goes on with from an earlier process. So of two
  processes on one checkpoint, the older finds a strange note and stops counting on its own positions.
- An operator's reset clears the note, hence wins over every checkpoint. Where the group has no committed offset at all
  (expired, deleted, a store that was lost) the checkpoint's position is the best there is.
- Nothing but taken starts and completed ends is ever committed.

The order of calls is the planner's: `classify`, ask the source about what `classify` could not know, `settle`, commit,
and only then `advance`.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum

from spark_bridge.errors import DataLost
from spark_bridge.offsets import NO_RUN, CommitNote, Position, Run, StreamOffset, TopicPartition
from spark_bridge.options import EARLIEST, LATEST, StartingOffsets


@dataclass(frozen=True, slots=True)
class Held:
    """A partition that this process has taken: in which generation, and where."""

    epoch: int
    first: int


@dataclass(frozen=True, slots=True)
class Committed:
    """What the group knows of a partition. `note` is None where no query of the bridge wrote the entry."""

    offset: int
    note: CommitNote | None = None


class Verdict(Enum):
    """What came of a commit."""

    STORED = "the group has it"
    LATER = "nobody took it now; the partitions may well be held still, and it may have been stored all the same"
    LOST = "some of the partitions are no longer this member's"


class Claim(Enum):
    """How a process comes to an assigned partition."""

    KEEP = "this process took it and nobody took it since"
    RESUME = "an earlier process on this checkpoint took it and nobody took it since: go on where the checkpoint is"
    TAKE = "go on where the group is"
    BEGIN = "nobody ever committed it: starting offsets decide"


def classify(
    start: StreamOffset,
    lineage: str,
    assigned: Iterable[TopicPartition],
    held: Mapping[TopicPartition, Held],
    committed: Mapping[TopicPartition, Committed],
) -> dict[TopicPartition, Claim]:
    """Say for every assigned partition how this process comes to it.

    `lineage` is that of `start`, or the one just drawn if `start` is the initial offset. `held` is what this process
    took before, so it is empty in a process that has just begun.
    """
    return {tp: _claim(start, lineage, tp, held.get(tp), committed.get(tp)) for tp in assigned}


def _claim(
    start: StreamOffset, lineage: str, tp: TopicPartition, held: Held | None, committed: Committed | None
) -> Claim:
    if committed is None:
        return Claim.BEGIN if held is None and tp not in start.partitions else Claim.RESUME
    note = committed.note
    if note is None or note.lineage != lineage:
        return Claim.TAKE
    if held is not None:
        return Claim.KEEP if note.epoch == held.epoch else Claim.TAKE
    position = start.partitions.get(tp)
    if position is None or note.epoch != position.epoch:
        return Claim.TAKE
    # Behind the group: another driver on this checkpoint has gone on since this one read it.
    return Claim.RESUME if position.end >= committed.offset else Claim.TAKE


def position_of(start: StreamOffset, tp: TopicPartition, held: Held) -> int:
    """The next offset to read of a held partition: the end of `start` if that was taken with the same epoch."""
    return start.partitions[tp].end if _goes_on(start, tp, held) else held.first


def _goes_on(start: StreamOffset, tp: TopicPartition, held: Held) -> bool:
    position = start.partitions.get(tp)
    return position is not None and position.epoch == held.epoch


def resume_at(start: StreamOffset, tp: TopicPartition, held: Held | None) -> int:
    """The position behind `Claim.RESUME`: that of this process if it has one, else the checkpoint's."""
    return start.partitions[tp].end if held is None else position_of(start, tp, held)


@dataclass(frozen=True, slots=True)
class Bounds:
    """The two ends of a partition: its first record, and the offset after its last."""

    earliest: int
    latest: int


def begin_at(
    tp: TopicPartition, starting: StartingOffsets, bounds: Bounds, *, added_later: bool, at_timestamp: int | None = None
) -> int:
    """Where a partition starts that nobody ever committed.

    `added_later`: the topic grew after the group had begun with it; then the earliest record, or those written before
    the growth was noticed would be lost. `at_timestamp` is what the source found for `starting.timestamp_ms`.
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
    """Those that the source has no more, the topic deleted or made anew with fewer. DataLost unless that is accepted.

    `counts`: how many partitions each topic has that exists.
    """
    missing = sorted(tp for tp in partitions if tp[1] >= counts.get(tp[0], 0))
    if missing and fail_on_data_loss:
        names = ", ".join(f"{topic}-{partition}" for topic, partition in missing)
        raise DataLost(
            f"the source has no partition {names} any more: its topic was deleted, or made anew with fewer; set"
            " failOnDataLoss=false to go on without"
        )
    return frozenset(missing)


def within(tp: TopicPartition, position: int, bounds: Bounds, *, fail_on_data_loss: bool) -> int:
    """The position itself where it can be read from; else DataLost, or the earliest if the user accepts a loss."""
    if bounds.earliest <= position <= bounds.latest:
        return position
    if fail_on_data_loss:
        raise DataLost(
            f"{tp[0]}-{tp[1]} is to go on at {position}, but holds the offsets {bounds.earliest} to {bounds.latest}:"
            " records are gone, or the topic was made anew; set failOnDataLoss=false to go on at the earliest"
        )
    return bounds.earliest


def settle(
    claims: Mapping[TopicPartition, Claim],
    held: Mapping[TopicPartition, Held],
    positions: Mapping[TopicPartition, int],
    generation_id: int,
) -> dict[TopicPartition, Held]:
    """What the process holds once `commits` of it are stored. `positions`: where the partitions begin that it does not
    keep. What was held and is assigned no more is gone.
    """
    return {tp: held[tp] if claim is Claim.KEEP else Held(generation_id, positions[tp]) for tp, claim in claims.items()}


def first_counts(committed: Mapping[TopicPartition, Committed], counts: Mapping[str, int]) -> dict[str, int]:
    """For each topic, its number of partitions when the group first committed to it; else the number it has now."""
    known: dict[str, int] = {}
    for (topic, _), entry in committed.items():
        if entry.note is not None:
            known[topic] = min(entry.note.topic_partitions, known.get(topic, entry.note.topic_partitions))
    return {**counts, **known}


def commits(
    start: StreamOffset,
    lineage: str,
    held: Mapping[TopicPartition, Held],
    counts: Mapping[str, int],
    run: Run = NO_RUN,
) -> dict[TopicPartition, Committed]:
    """What the group is to know of the partitions held, once all up to `start` is complete."""
    return {
        tp: Committed(position_of(start, tp, one), CommitNote(lineage, one.epoch, counts.get(tp[0], tp[1] + 1), run))
        for tp, one in held.items()
    }


def other_runs(committed: Mapping[TopicPartition, Committed], lineage: str, run: Run) -> frozenset[Run]:
    """The processes besides this one that took partitions for the same checkpoint, as far as the notes still say so."""
    notes = [entry.note for entry in committed.values() if entry.note is not None]
    return frozenset(note.run for note in notes if note.lineage == lineage and note.run not in {run, NO_RUN})


def newer_run(known: frozenset[Run], others: frozenset[Run], run: Run) -> Run | None:
    """A process that went on with this process's checkpoint after it; None if there is none.

    `known`: those whose notes were there when this process first looked, hence older ones. Of two that began in one
    generation the larger name counts as the newer, so that not both of them give way.
    """
    return max((one for one in others - known if one > run), default=None)


def advance(
    start: StreamOffset,
    lineage: str,
    held: Mapping[TopicPartition, Held],
    latest: Mapping[TopicPartition, int],
    *,
    limit: int | None = None,
    rewound: Mapping[TopicPartition, int] | None = None,
) -> StreamOffset | None:
    """The next batch's end over the partitions held, or None if it would be empty.

    `latest` has an entry for each partition held; it may lie before a position (an `availableNow` run that is done
    with it), which then does not move. `limit`: the most offsets in the batch. `rewound`: partitions that were made
    anew, with the offset at which to read them from their beginning.
    """
    rewound = rewound or {}
    firsts = {tp: rewound.get(tp, position_of(start, tp, one)) for tp, one in held.items()}
    backlog = {tp: max(latest[tp] - first, 0) for tp, first in firsts.items()}
    counts = share(backlog, limit)
    if not any(counts.values()):
        return None
    return StreamOffset(
        lineage=lineage,
        partitions={tp: Position(first + counts[tp], held[tp].epoch) for tp, first in firsts.items()},
        taken={tp: first for tp, first in firsts.items() if tp in rewound or not _goes_on(start, tp, held[tp])},
    )


def share(backlog: Mapping[TopicPartition, int], limit: int | None) -> dict[TopicPartition, int]:
    """Share out at most `limit` offsets by backlog, so that no partition with a backlog waits for ever.

    Each partition that has a backlog gets one if there are enough, then the rest goes by backlog; what rounding leaves
    over goes to the largest backlogs. The sum is `limit`, or the whole backlog if that is less. Ties go by name.
    With fewer than one each, the largest backlogs are served.
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
