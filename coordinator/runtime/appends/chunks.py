"""How a change that no append can hold is cut, so that a load after any chunk of it finds the old group or the new one.

Pure: from the records of one step to batches of writes. Nothing here waits or stores. The order is

    0  a header where there was none, and nothing but offsets beside it: an empty group
    1  what a load does not see before the header names its generation: members of it, and that some are gone in it;
       offsets, and that an operator has removed a member, each of which is a change of its own
    2  what decides, in one batch: the header, and whatever shows at once
    3  what a load leaves out by now: the members' older records, and that members are gone; and the oldest of the
       rebalances that are kept, of which one more does no harm

A member that goes leaves its older record behind, and the new header would still let it count. Its deletion belongs to
what decides; where there are too many of them for one batch, a `MemberGone` of the new generation hides each, from
before the header until the record that it hides is away. A header without a leader, or none, hides all members by
itself: after it, deletions have no hurry.

Offsets go before what decides, so that of a group that is deleted no offsets are left without their header, and those
of a deleted topic are gone before it is written down that they are.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from rallypoint.coordinator.core.records import (
    DeletionsForgotten,
    GroupFact,
    GroupForgotten,
    GroupRecord,
    HoldForgotten,
    MemberForgotten,
    MemberGone,
    MemberRecord,
    OffsetForgotten,
    OffsetRecord,
    RebalanceForgotten,
)
from rallypoint.coordinator.storage.codec import encode
from rallypoint.coordinator.storage.contract import BatchLimits, Write, size_of

Change = tuple[GroupFact, Write]
"""A record with the write that stores it."""


@dataclass(slots=True)
class _Order:
    """The writes of a change by when they may be stored. Between any two of `before` and `after` may be a cut."""

    before: list[Write] = field(default_factory=list)
    deciding: list[Write] = field(default_factory=list)
    after: list[Write] = field(default_factory=list)


def cut(changes: Iterable[Change], stored: GroupRecord | None, limits: BatchLimits) -> list[list[Write]]:
    """The batches of a step's writes, to be stored one after the other. `stored`: the header before the step.

    Raises BatchTooLarge, before anything is stored, where what decides does not fit in one batch, or one write does
    not. Cost: O(writes).
    """
    last = {change[1].key: change for change in changes}
    writes = [write for _, write in last.values()]
    if _fits(writes, limits):
        limits.check(writes)
        return [writes]
    order = _sort(list(last.values()), stored, limits)
    batches = _pack(
        [*([write] for write in order.before), order.deciding, *([write] for write in order.after)],
        limits,
    )
    for batch in batches:
        limits.check(batch)
    return batches


def _sort(changes: list[Change], stored: GroupRecord | None, limits: BatchLimits) -> _Order:
    header = next((record for record, _ in changes if isinstance(record, GroupRecord | GroupForgotten)), None)
    order = _Order()
    leaving: list[tuple[MemberForgotten, Write]] = []
    for record, write in changes:
        match record:
            case OffsetRecord() | OffsetForgotten():
                order.before.append(write)
            case MemberRecord() if record.removed or _is_hidden(record, stored, header):
                order.before.append(write)
            case MemberForgotten() if header is not None:
                leaving.append((record, write))
            case RebalanceForgotten():
                order.after.append(write)
            case HoldForgotten() | DeletionsForgotten() if isinstance(header, GroupForgotten):
                order.after.append(write)
            case _:
                order.deciding.append(write)
    if isinstance(header, GroupRecord) and stored is None and not leaving:
        _put_header_first(changes, order)
    elif header is not None:
        _place_leaving(leaving, changes, stored, header, order, limits)
    return order


def _is_hidden(record: MemberRecord, stored: GroupRecord | None, header: GroupRecord | GroupForgotten | None) -> bool:
    """No load sees the record before the new header, because it is of a later generation than the stored one."""
    return isinstance(header, GroupRecord) and record.generation_id > _seen_up_to(stored)


def _seen_up_to(header: GroupRecord | None) -> int:
    return -1 if header is None else header.generation_id


def _put_header_first(changes: list[Change], order: _Order) -> None:
    """A group is made: it is there before its first offset is, which alone would make it a group without a type."""
    if any(isinstance(record, MemberRecord) for record, _ in changes):
        return
    first = [write for record, write in changes if isinstance(record, GroupRecord)]
    order.deciding = [write for write in order.deciding if write not in first]
    order.before[:0] = first


def _place_leaving(
    leaving: list[tuple[MemberForgotten, Write]],
    changes: list[Change],
    stored: GroupRecord | None,
    header: GroupRecord | GroupForgotten,
    order: _Order,
    limits: BatchLimits,
) -> None:
    """The batches that the deletions of members' records go into."""
    if isinstance(header, GroupForgotten) or header.leader is None:
        order.after.extend(write for _, write in leaving)
        return
    renewed = {record.member_id for record, _ in changes if isinstance(record, MemberRecord)}
    going = [(record, write) for record, write in leaving if record.member_id not in renewed]
    order.after.extend(write for record, write in leaving if record.member_id in renewed)
    deletions = [write for _, write in going]
    if header.generation_id <= _seen_up_to(stored) or _fits([*order.deciding, *deletions], limits):
        order.deciding.extend(deletions)
        return
    for record, write in going:
        gone = encode(MemberGone(record.group_id, record.member_id, header.generation_id))
        order.before.append(gone)
        order.after.extend((write, Write(gone.key, None)))


def _fits(writes: Sequence[Write], limits: BatchLimits) -> bool:
    return len(writes) <= limits.writes_max and size_of(writes) <= limits.bytes_max


def _pack(units: Iterable[list[Write]], limits: BatchLimits) -> list[list[Write]]:
    """As few batches as the order of the units allows; a unit is in one batch."""
    batches: list[list[Write]] = []
    count = size_bytes = 0
    for unit in filter(None, units):
        unit_bytes = size_of(unit)
        count += len(unit)
        size_bytes += unit_bytes
        if not batches or count > limits.writes_max or size_bytes > limits.bytes_max:
            batches.append([])
            count, size_bytes = len(unit), unit_bytes
        batches[-1].extend(unit)
    return batches


def cut_anywhere(writes: Sequence[Write], limits: BatchLimits) -> list[list[Write]]:
    """Batches of writes in their order, where it does not matter what is stored first."""
    return _pack([[write] for write in writes], limits)
