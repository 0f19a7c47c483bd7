"""From stored writes to groups: decode, put the records of each group together, leave out what no header names.

A change that is larger than a batch is written in pieces, members of the new generation first and the header that
names it last. So members above the header's generation are pieces of a change that never came to its end.
"""

from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass

from coordinator.core.apply import apply
from coordinator.core.group import Group
from coordinator.core.records import (
    GroupRecord,
    HoldForgotten,
    HoldRecord,
    MemberForgotten,
    MemberRecord,
    OffsetRecord,
    RebalanceForgotten,
    RebalanceRecord,
)
from coordinator.storage.codec import decode
from coordinator.storage.contract import Space, StoredDataInvalid

StoredRecord = GroupRecord | MemberRecord | OffsetRecord | RebalanceRecord | HoldRecord
Leftover = MemberForgotten | RebalanceForgotten | HoldForgotten


@dataclass(frozen=True, slots=True)
class StoredGroup:
    """What the store holds of a group. `leftovers` are the records that count for nothing and can be swept."""

    group_id: str
    records: tuple[StoredRecord, ...]
    leftovers: tuple[Leftover, ...]

    def restore(self) -> Group:
        """The group as its records say; it goes on with `GroupLoaded`."""
        group = Group(self.group_id)
        for record in self.records:
            apply(group, record)
        return group


def sort_out(group_id: str, records: Iterable[StoredRecord]) -> StoredGroup:
    """Keep what counts. Of a member's records it is the one of the highest generation that the header allows.

    Rebalances, and what is set for them, count for a group that is there: one with a header, or with offsets at least.
    """
    header: GroupRecord | None = None
    members: dict[str, MemberRecord] = {}
    offsets: list[OffsetRecord] = []
    beside: list[RebalanceRecord | HoldRecord] = []
    leftovers: list[Leftover] = []
    for record in sorted(records, key=_header_first):
        if isinstance(record, GroupRecord):
            header = record
        elif isinstance(record, OffsetRecord):
            offsets.append(record)
        elif isinstance(record, RebalanceRecord | HoldRecord):
            beside.append(record)
        elif header is None or record.generation_id > header.generation_id:
            leftovers.append(_forgotten(record))
        else:
            kept = members.get(record.member_id)
            if kept is not None:
                older, record = sorted((kept, record), key=lambda member: member.generation_id)  # noqa: PLW2901
                leftovers.append(_forgotten(older))
            members[record.member_id] = record
    headers = () if header is None else (header,)
    if header is None and not offsets:
        leftovers.extend(map(_forgotten_beside, beside))
        beside = []
    return StoredGroup(group_id, (*headers, *members.values(), *offsets, *beside), tuple(leftovers))


def _header_first(record: StoredRecord) -> bool:
    return not isinstance(record, GroupRecord)


def _forgotten(record: MemberRecord) -> MemberForgotten:
    return MemberForgotten(record.group_id, record.member_id, record.generation_id)


def _forgotten_beside(record: RebalanceRecord | HoldRecord) -> RebalanceForgotten | HoldForgotten:
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
