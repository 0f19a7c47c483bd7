"""From stored writes to groups: decode, collect the records of each group, drop those that no header names.

A group becomes a `DamagedGroup` if one of its records cannot be read, or if they cannot be those of one group. Nothing
of it is swept. A record whose key names no group becomes a `StrayRecord`.

A change that is larger than a batch is written in chunks (`chunks.py`): members of the new generation first, then the
header that names it, then the deletions of what a load would drop anyway. So a record that no header names belongs to a
change that was cut off, or whose deletions were. Either way it does not count. It must be swept before the group goes
on, because the next header would name it.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import dataclass

from rallypoint.coordinator.core.apply import apply
from rallypoint.coordinator.core.group import Group
from rallypoint.coordinator.core.records import (
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
from rallypoint.coordinator.core.soundness import why_unsound
from rallypoint.coordinator.runtime.loading.damage import DamagedGroup, PassedOver, StrayRecord
from rallypoint.coordinator.storage.codec import (
    RUNNING_TIME_KEY,
    UnknownKind,
    decode,
    encode,
    group_of,
    group_prefix,
)
from rallypoint.coordinator.storage.contract import Keyspace, StoredDataInvalid

Beside = RebalanceRecord | HoldRecord | DeletionsRecord
CountedRecord = GroupRecord | MemberRecord | OffsetRecord | Beside
StoredRecord = CountedRecord | MemberGone
APPLIED_AT_ONCE_MAX = 10_000
"""Records of which a group is made before others have their turn: some 5 ms."""
CHARACTERS_PER_RECORD = 100
"""What of members' metadata takes as long as another record: topics are read from it."""
READ_AT_ONCE_BYTES = 262_144
"""What of the stored values is read before others have their turn: some 10 ms."""
Leftover = MemberForgotten | RebalanceForgotten | HoldForgotten | DeletionsForgotten


@dataclass(frozen=True, slots=True)
class StoredGroup:
    """What the store holds of a group. `leftovers` are the records that count for nothing.

    They are to be swept in their order, in as many batches as it takes: a load after any of them finds the same group.
    """

    group_id: str
    records: tuple[CountedRecord, ...]
    leftovers: tuple[Leftover, ...]

    async def restore(self) -> Group:
        """The group as its records say; it goes on with `GroupLoaded`. Others have their turns between many records."""
        group = Group(self.group_id)
        left = APPLIED_AT_ONCE_MAX
        for record in self.records:
            apply(group, record)
            left -= 1
            if isinstance(record, MemberRecord):
                # Its topics are read from it.
                left -= len(record.metadata.text) // CHARACTERS_PER_RECORD
            if left <= 0:
                left = APPLIED_AT_ONCE_MAX
                await asyncio.sleep(0)
        return group


LoadedEntry = StoredGroup | DamagedGroup | StrayRecord | PassedOver


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


class _Gathering:
    """The records of one group, as they come."""

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.prefix = group_prefix(group_id)
        self._records: list[StoredRecord] = []
        self._faulty: list[bytes] = []
        self._reason = ""

    def take(self, key: bytes, value: bytes, of_newer_minor: bool) -> PassedOver | None:
        """One more; it may be none that can be read, or one to be passed over."""
        try:
            self._records.append(_of_a_group(key, value, of_newer_minor))
        except UnknownKind:
            return PassedOver(key)
        except StoredDataInvalid as error:
            self._faulty.append(key)
            self._reason = self._reason or str(error)
        return None

    async def result(self) -> StoredGroup | DamagedGroup:
        """What they come to. Of many records, others have their turn between."""
        if self._faulty:
            return DamagedGroup(self.group_id, self._reason, tuple(self._faulty))
        is_large = len(self._records) > APPLIED_AT_ONCE_MAX
        if is_large:
            await asyncio.sleep(0)
        stored = sort_out(self.group_id, self._records)
        if is_large:
            await asyncio.sleep(0)
        unsound = why_unsound(stored.records)
        if unsound is None:
            return stored
        keys = tuple(encode(record).key for record in unsound.records)
        return DamagedGroup(self.group_id, f"by the stored record {keys[0]!r}, {unsound.reason}", keys)


async def stored_groups(
    keyspace: Keyspace, prefix: bytes, is_here: Callable[[str], bool], *, of_newer_minor: bool = False
) -> AsyncIterator[list[LoadedEntry]]:
    """The groups under the prefix, as many at a time as a page of the store completes, and what belongs to none.

    `is_here` says whether a group of that id would be kept in this keyspace; `of_newer_minor` is as in `decode`. Raises
    whatever the scan raises, and nothing for what is stored, whatever it is.
    """
    stray: str | None = None
    gathering: _Gathering | None = None
    async for page in keyspace.scan(prefix):
        found: list[LoadedEntry] = []
        read_bytes = 0
        for key, value in page:
            if key == RUNNING_TIME_KEY:
                continue
            if read_bytes and read_bytes + len(value) > READ_AT_ONCE_BYTES:
                read_bytes = 0
                await asyncio.sleep(0)
            read_bytes += len(value)
            # The keys of a group share a prefix, so its records come together.
            if gathering is None or not key.startswith(gathering.prefix):
                group_id = group_of(key)
                if of_newer_minor and group_id is None and not key.startswith(b"g/"):
                    found.append(PassedOver(key))
                    continue
                if group_id is None or group_id == stray or not is_here(group_id):
                    stray = group_id
                    found.append(StrayRecord(key, f"the stored record {key!r} belongs to no group of this shard"))
                    continue
                if gathering is not None:
                    found.append(await gathering.result())
                gathering = _Gathering(group_id)
            passed_over = gathering.take(key, value, of_newer_minor)
            if passed_over is not None:
                found.append(passed_over)
        yield found
    if gathering is not None:
        yield [await gathering.result()]


def _of_a_group(key: bytes, value: bytes, of_newer_minor: bool) -> StoredRecord:
    record = decode(key, value, of_newer_minor=of_newer_minor)
    if not isinstance(record, StoredRecord):
        raise StoredDataInvalid(f"the stored record {key!r} is none of a group")
    return record
