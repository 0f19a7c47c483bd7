"""From stored writes to groups: decode, put the records of each group together, leave out what no header names.

A change that is larger than a batch is written in pieces (`pieces.py`): members of the new generation first, then the
header that names it, then the deletions of what the load would leave out anyway. So what no header names is part of a
change that did not come to its end, or of one whose end was not tidied up; either way it counts for nothing. It must
be swept before the group goes on, for the next header would name it.
"""

from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass

from coordinator.core.apply import apply
from coordinator.core.group import Group
from coordinator.core.records import (
    DeletionsForgotten,
    DeletionsRecord,
    GroupRecord,
    HoldForgotten,
    HoldRecord,
    MemberForgotten,
    MemberGone,
    MemberRecord,
    OffsetRecord,
    RebalanceForgotten,
    RebalanceRecord,
)
from coordinator.storage.codec import decode
from coordinator.storage.contract import Space, StoredDataInvalid

Beside = RebalanceRecord | HoldRecord | DeletionsRecord
CountedRecord = GroupRecord | MemberRecord | OffsetRecord | Beside
StoredRecord = CountedRecord | MemberGone
Leftover = MemberForgotten | RebalanceForgotten | HoldForgotten | DeletionsForgotten


@dataclass(frozen=True, slots=True)
class StoredGroup:
    """What the store holds of a group. `leftovers` are the records that count for nothing.

    They are to be swept in their order, in as many batches as it takes: a load after any of them finds the same group.
    """

    group_id: str
    records: tuple[CountedRecord, ...]
    leftovers: tuple[Leftover, ...]

    def restore(self) -> Group:
        """The group as its records say; it goes on with `GroupLoaded`."""
        group = Group(self.group_id)
        for record in self.records:
            apply(group, record)
        return group


def sort_out(group_id: str, records: Iterable[StoredRecord]) -> StoredGroup:
    """Keep what counts. Of a member's records it is the one of the highest generation that the header allows.

    Without a header, or with one that names no leader, there are no members. Rebalances, and what is set for them,
    count for a group that is there: one with a header, or with offsets at least.
    """
    header: GroupRecord | None = None
    members: list[MemberRecord | MemberGone] = []
    offsets: list[OffsetRecord] = []
    beside: list[Beside] = []
    for record in records:
        if isinstance(record, GroupRecord):
            header = record
        elif isinstance(record, OffsetRecord):
            offsets.append(record)
        elif isinstance(record, Beside):
            beside.append(record)
        else:
            members.append(record)
    kept, hidden = _newest(members, header)
    headers = () if header is None else (header,)
    leftovers: list[Leftover] = list(map(_forgotten, hidden))
    if header is None and not offsets:
        leftovers.extend(map(_forgotten_beside, beside))
        beside = []
    return StoredGroup(group_id, (*headers, *kept, *offsets, *beside), tuple(leftovers))


def _newest(
    members: list[MemberRecord | MemberGone], header: GroupRecord | None
) -> tuple[list[MemberRecord], list[MemberRecord | MemberGone]]:
    """The records that count, and those that do not, the older ones first: what hides a record goes after it."""
    highest = -1 if header is None or header.leader is None else header.generation_id
    members.sort(key=lambda record: record.generation_id)
    newest = {record.member_id: record for record in members if record.generation_id <= highest}
    kept: list[MemberRecord] = []
    leftovers: list[MemberRecord | MemberGone] = []
    for record in members:
        if isinstance(record, MemberRecord) and newest.get(record.member_id) is record:
            kept.append(record)
        else:
            leftovers.append(record)
    return kept, leftovers


def _forgotten(record: MemberRecord | MemberGone) -> MemberForgotten:
    return MemberForgotten(record.group_id, record.member_id, record.generation_id)


def _forgotten_beside(record: Beside) -> Leftover:
    if isinstance(record, DeletionsRecord):
        return DeletionsForgotten(record.group_id)
    if isinstance(record, HoldRecord):
        return HoldForgotten(record.group_id)
    return RebalanceForgotten(record.group_id, record.rebalance_id)


async def stored_groups(space: Space, prefix: bytes) -> AsyncIterator[list[StoredGroup]]:
    """The groups under the prefix, as many at a time as a page of the store completes.

    Raises StoredDataInvalid, and whatever the scan raises.
    """
    records: list[StoredRecord] = []
    async for page in space.scan(prefix):
        complete: list[StoredGroup] = []
        for key, value in page:
            record = _of_a_group(key, value)
            # The keys of a group share a prefix, so its records come together.
            if records and records[-1].group_id != record.group_id:
                complete.append(sort_out(records[-1].group_id, records))
                records = []
            records.append(record)
        yield complete
    if records:
        yield [sort_out(records[-1].group_id, records)]


def _of_a_group(key: bytes, value: bytes) -> StoredRecord:
    record = decode(key, value)
    if not isinstance(record, StoredRecord):
        raise StoredDataInvalid(f"the stored record {key!r} is none of a group")
    return record
