"""What a copy of a store reads and writes, keyspace by keyspace, through the contract alone; and the marks of a copy
that is not finished.

A store that is being copied to has two marks, each in the place of a record without which no service starts: the format
says `UNFINISHED_COPY` for its major version, and the layout cannot be read. Releases that know no format of the store
refuse the layout; all others refuse both. The layout's mark says how many shards there may be something in. The real
records take the place of the marks when everything else is there and compared.

Memory: a page of each store, and a batch.
"""

import json
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass

from rallypoint.coordinator.core.records import (
    UNFINISHED_COPY,
    FormatRecord,
    GroupRecord,
    LayoutRecord,
    MemberGone,
    MemberRecord,
    OffsetRecord,
    TopicRecord,
)
from rallypoint.coordinator.storage.codec import UnknownKind, decode, encode
from rallypoint.coordinator.storage.contract import BatchLimits, Keyspace, StoredDataInvalid, Write

FORMAT_KEY = encode(FormatRecord(UNFINISHED_COPY, 0, "")).key
LAYOUT_KEY = encode(LayoutRecord(1)).key

WRITES_MAX = 5_000
BYTES_MAX = 4 * 1024 * 1024
"""Of a batch, if the engine takes as much: more would be no faster, and take memory. A larger record goes alone."""

Pair = tuple[bytes, bytes]
Counted = Callable[[int], None]
"""Called with the number of records that were read, written or compared since the last call. It may raise."""


def format_mark(release: str) -> Write:
    """The mark in the keyspace of the format."""
    return encode(FormatRecord(UNFINISHED_COPY, 0, release))


def layout_mark(shards: int) -> Write:
    """The mark in the registry's keyspace. Version 0 of a value has never been one."""
    return Write(LAYOUT_KEY, json.dumps({"v": 0, "shards": shards}).encode())


def marked_shards(value: bytes) -> int | None:
    """How many shards an unfinished copy may have written to; None if the value is no mark."""
    try:
        mark = json.loads(value)
    except (ValueError, RecursionError):
        return None
    match mark:
        case {"v": 0, "shards": int(shards)} if shards > 0:
            return shards
    return None


async def pairs_of(keyspace: Keyspace, but: bytes | None = None) -> AsyncGenerator[Pair, None]:
    """Every key and value in the order of keys, without the key `but`."""
    async for page in keyspace.scan(b""):
        for pair in page:
            if pair[0] != but:
                yield pair


async def value_of(keyspace: Keyspace, key: bytes) -> bytes | None:
    """The value of one key; None where it is not there."""
    async for page in keyspace.scan(key):
        for found, value in page:
            if found == key:
                return value
    return None


async def copy(source: Keyspace, target: Keyspace, counted: Counted, but: bytes | None = None) -> None:
    """Write all of a keyspace to another one, in batches that it takes. Raises what either raises."""
    async with aclosing(pairs_of(source, but)) as pairs, aclosing(_batches(pairs, target.limits)) as batches:
        async for batch in batches:
            await target.append(batch)
            counted(len(batch))


async def clear(keyspace: Keyspace, counted: Counted, but: bytes | None = None) -> None:
    """Delete every key but one, in batches. Raises what the keyspace raises."""
    async with aclosing(_deletions(keyspace, but)) as pairs, aclosing(_batches(pairs, keyspace.limits)) as batches:
        async for batch in batches:
            await keyspace.append(batch)
            counted(len(batch))


async def first_difference(source: Keyspace, target: Keyspace, counted: Counted, but: bytes | None) -> bytes | None:
    """The first key that is not in both with the same value; None where there is none."""
    async with aclosing(pairs_of(source, but)) as wanted, aclosing(pairs_of(target, but)) as found:
        while True:
            here, there = await anext(wanted, None), await anext(found, None)
            if here != there:
                return min(pair[0] for pair in (here, there) if pair is not None)
            if here is None:
                return None
            counted(1)


async def _deletions(keyspace: Keyspace, but: bytes | None) -> AsyncGenerator[tuple[bytes, None], None]:
    async with aclosing(pairs_of(keyspace, but)) as pairs:
        async for key, _ in pairs:
            yield key, None


async def _batches(
    pairs: AsyncGenerator[Pair, None] | AsyncGenerator[tuple[bytes, None], None], limits: BatchLimits
) -> AsyncGenerator[Sequence[Write], None]:
    writes_max, bytes_max = min(limits.writes_max, WRITES_MAX), min(limits.bytes_max, BYTES_MAX)
    batch: list[Write] = []
    batch_bytes = 0
    async for key, value in pairs:
        write_bytes = len(key) + len(value or b"")
        if batch and (len(batch) == writes_max or batch_bytes + write_bytes > bytes_max):
            yield batch
            batch, batch_bytes = [], 0
        batch.append(Write(key, value))
        batch_bytes += write_bytes
    if batch:
        yield batch


@dataclass(slots=True)
class Contents:
    """What a store holds, counted record by record in the order of keys; each shard by `count`, one after the other.

    groups: those with a header or a committed offset.
    members: of the generations that their groups are in; records that a load would drop do not count.
    records, stored_bytes: of all keyspaces, keys included in the bytes.
    unreadable: keys of records that cannot be read.
    largest_key, largest_bytes: of the largest record.
    """

    groups: int = 0
    members: int = 0
    offsets: int = 0
    topics: int = 0
    records: int = 0
    stored_bytes: int = 0
    unreadable: int = 0
    largest_key: bytes = b""
    largest_bytes: int = 0

    async def count(self, keyspace: Keyspace, counted: Counted) -> None:
        """Add what the keyspace holds."""
        current = _CurrentGroup()
        async with aclosing(pairs_of(keyspace)) as pairs:
            async for key, value in pairs:
                self._count(key, value, current)
                counted(1)
        self.members += current.take_member()

    def _count(self, key: bytes, value: bytes, current: "_CurrentGroup") -> None:
        record_bytes = len(key) + len(value)
        self.records += 1
        self.stored_bytes += record_bytes
        if record_bytes > self.largest_bytes:
            self.largest_key, self.largest_bytes = key, record_bytes
        try:
            record = decode(key, value, of_newer_minor=True)
        except UnknownKind:
            return
        except StoredDataInvalid:
            self.unreadable += 1
            return
        match record:
            case TopicRecord():
                self.topics += 1
            case GroupRecord():
                self.members += current.take_member()
                self.groups += current.begin(record.group_id)
                current.generation_id = -1 if record.leader is None else record.generation_id
            case MemberRecord() | MemberGone():
                if not current.is_of(record):
                    self.members += current.take_member()
                current.see(record)
            case OffsetRecord():
                self.offsets += 1
                self.groups += current.begin(record.group_id)


class _CurrentGroup:
    """The group and the member whose records come just now: a header sorts before members, and those before offsets."""

    def __init__(self) -> None:
        self.generation_id = -1
        self._group_id: str | None = None
        self._member: tuple[str, str] | None = None
        self._newest: MemberRecord | MemberGone | None = None

    def begin(self, group_id: str) -> bool:
        """Whether it is another group."""
        is_other = group_id != self._group_id
        if is_other:
            self._group_id, self.generation_id = group_id, -1
        return is_other

    def is_of(self, record: MemberRecord | MemberGone) -> bool:
        """Whether it is of the same member as the last one."""
        return self._member == (record.group_id, record.member_id)

    def see(self, record: MemberRecord | MemberGone) -> None:
        """One of the records of a member. Those behind the group's generation do not count."""
        self._member = (record.group_id, record.member_id)
        generation_id = self.generation_id if record.group_id == self._group_id else -1
        is_newer = self._newest is None or self._newest.generation_id < record.generation_id
        if record.generation_id <= generation_id and is_newer:
            self._newest = record

    def take_member(self) -> bool:
        """Whether the member is there, now that all its records have come."""
        newest, self._member, self._newest = self._newest, None, None
        return isinstance(newest, MemberRecord)
