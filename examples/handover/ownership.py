"""Who owned which partition over time: from what the service answered now and then to spans of time. Pure.

A span begins when its owner was first seen and ends when another answer was seen, so it is as exact as the polls are
frequent. While a group rebalances nobody is seen as owner: those who were finish their batch and commit.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

from rallypoint.protocol.admin_messages import DescribeAnswer
from rallypoint.protocol.messages import ConsumerAssignment
from rallypoint.spark import Range


@dataclass(frozen=True, slots=True)
class GroupSnapshot:
    """One look at the group. `members` and `owners` are client ids; `committed` counts records, all partitions."""

    at_ms: int
    generation_id: int = -1
    members: frozenset[str] = frozenset()
    owners: Mapping[int, str] = field(default_factory=dict)
    committed: int = 0


def snapshot_of(answer: DescribeAnswer | None, topic: str, at_ms: int) -> GroupSnapshot:
    """What a description says of one topic; None (there is no group yet) is a look at nothing."""
    if answer is None:
        return GroupSnapshot(at_ms)
    owners: dict[int, str] = {}
    for member in answer.members:
        if member.assignment.value is not None:
            assignment = ConsumerAssignment.model_validate(member.assignment.value)
            owners |= dict.fromkeys(assignment.partitions.get(topic, ()), member.client_id)
    return GroupSnapshot(
        at_ms=at_ms,
        generation_id=answer.generation_id,
        members=frozenset(member.client_id for member in answer.members),
        owners=owners,
        committed=sum(entry.offset for entry in answer.offsets.get(topic, {}).values()),
    )


@dataclass(frozen=True, slots=True)
class Span:
    """`partition` belonged to `owner` from `start_ms` up to `end_ms`. Not `alive`: the owner was dead, which the group
    did not know yet.
    """

    partition: int
    owner: str
    start_ms: int
    end_ms: int
    alive: bool = True


def spans_of(
    snapshots: Sequence[GroupSnapshot], end_ms: int, deaths: Mapping[str, int] | None = None
) -> tuple[Span, ...]:
    """Spans by partition and time; where nobody was the owner there is none. `deaths`: when which owner was killed.

    The last sighting holds until `end_ms`.
    """
    spans: list[Span] = []
    for partition in sorted({partition for one in snapshots for partition in one.owners}):
        owner, since = "", 0
        for at_ms, now in [(one.at_ms, one.owners.get(partition, "")) for one in snapshots] + [(end_ms, "")]:
            if now != owner:
                if owner:
                    spans += _cut(Span(partition, owner, since, at_ms), (deaths or {}).get(owner))
                owner, since = now, at_ms
    return tuple(spans)


def _cut(span: Span, died_ms: int | None) -> Iterable[Span]:
    """The part in which the owner lived, and the part in which it did not."""
    if died_ms is None or died_ms >= span.end_ms:
        return (span,)
    if died_ms <= span.start_ms:
        return (Span(span.partition, span.owner, span.start_ms, span.end_ms, alive=False),)
    return (
        Span(span.partition, span.owner, span.start_ms, died_ms),
        Span(span.partition, span.owner, died_ms, span.end_ms, alive=False),
    )


def are_committed(answer: DescribeAnswer | None, ranges: Iterable[Range]) -> bool:
    """Whether the group knows the ends of these ranges, all of them."""
    offsets = {} if answer is None else answer.offsets
    found = [(offsets.get(part.topic, {}).get(part.partition), part.end) for part in ranges]
    return all(entry is not None and entry.offset >= end for entry, end in found)


class Moves(NamedTuple):
    """How many partitions went from one driver to another: given up in order, or left behind by a dead one."""

    handed_over: int
    taken_over: int


def count_moves(spans: Sequence[Span]) -> Moves:
    """From spans in the order of `spans_of`."""
    changes = [
        before
        for before, after in pairwise(spans)
        if before.partition == after.partition and before.owner != after.owner
    ]
    handed_over = sum(one.alive for one in changes)
    return Moves(handed_over, len(changes) - handed_over)


def span_at(spans: Iterable[Span], partition: int, at_ms: int) -> Span | None:
    """The span of a partition that covers an instant."""
    return next((one for one in spans if one.partition == partition and one.start_ms <= at_ms < one.end_ms), None)


def is_sole(snapshot: GroupSnapshot, member: str, partitions: int) -> bool:
    """Whether one member owns all the partitions."""
    return len(snapshot.owners) == partitions and set(snapshot.owners.values()) == {member}
