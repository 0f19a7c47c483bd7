"""Stores to copy: what is in them, how it gets there and is read again, and one whose writes end at a given one."""

from collections.abc import AsyncIterator, Mapping, Sequence

from rallypoint.coordinator.copies import OpenedStore, StoreCopy
from rallypoint.coordinator.core import records as r
from rallypoint.coordinator.storage.codec import encode
from rallypoint.coordinator.storage.contract import (
    FORMAT_KEYSPACE,
    REGISTRY_KEYSPACE,
    AppendFailed,
    BatchLimits,
    Keyspace,
    Store,
    StoreStatus,
    Write,
    shard_keyspace,
)
from rallypoint.protocol.opaque import OpaqueJson

SHARDS = 3
FORMAT = r.FormatRecord(1, 0, "1.0.0")
Held = dict[str, dict[bytes, bytes]]


def member(member_id: str, generation_id: int) -> r.MemberRecord:
    nothing = OpaqueJson("null")
    return r.MemberRecord("g", member_id, generation_id, 1, None, "c", "h", 1, 1, None, nothing, nothing)


def header(generation_id: int) -> r.GroupRecord:
    return r.GroupRecord("g", "consumer", "range", generation_id, generation_id, "m-1", 5)


GROUP = (
    header(4),
    member("m-1", 4),
    member("m-2", 2),
    r.MemberGone("g", "m-2", 3),
    member("m-3", 3),
    member("m-3", 5),
    member("m-4", 5),
)
"""In generation 4 two members: the second has gone, the last one's generation never came to be."""


def sample(offsets: int = 300, shards: int = SHARDS) -> Held:
    """Three groups, of which one has a header; more offsets than one batch of an etcd takes."""
    registry = (r.LayoutRecord(shards), r.RegistryRecord(2), r.TopicRecord("t", 3, 1), r.GenerationFloorRecord(2))
    many = [r.OffsetRecord("many", "t", partition, 7, None, "", 5) for partition in range(offsets)]
    records: Mapping[str, Sequence[r.Record]] = {
        FORMAT_KEYSPACE: (FORMAT,),
        REGISTRY_KEYSPACE: registry,
        shard_keyspace(0): (*GROUP, r.OffsetRecord("g", "t", 0, 9, None, "", 5)),
        shard_keyspace(1): many,
        shard_keyspace(shards - 1): (r.OffsetRecord("one", "t", 0, 9, None, "", 5),),
    }
    return {name: {write.key: write.value or b"" for write in map(encode, of)} for name, of in records.items()}


async def fill(store: Store, held: Held) -> None:
    for name, values in held.items():
        keyspace = await store.acquire(name)
        writes = [Write(key, value) for key, value in values.items()]
        for first in range(0, len(writes), 40):
            await keyspace.append(writes[first : first + 40])
        await keyspace.release()


async def held_by(store: Store, shards: int = 9) -> Held:
    """All that the store holds, by keyspace."""
    found: Held = {}
    for name in (FORMAT_KEYSPACE, REGISTRY_KEYSPACE, *map(shard_keyspace, range(shards))):
        keyspace = await store.acquire(name)
        values = {key: value async for page in keyspace.scan(b"") for key, value in page}
        if values:
            found[name] = values
        await keyspace.release()
    return found


async def copied(source: OpenedStore, target: OpenedStore, *, replace: bool = False) -> StoreCopy:
    """Copy between open stores. Raises what the copy raises."""
    copy = StoreCopy("sqlite:///from.db", "sqlite:///to.db", replace=replace, release="1.2.3")
    await copy.write(await copy.read(source), target)
    return copy


class CutKeyspace:
    """A keyspace whose store takes so many writes and no more."""

    def __init__(self, store: "CutStore", keyspace: Keyspace) -> None:
        self._store = store
        self._keyspace = keyspace

    @property
    def epoch(self) -> int:
        return self._keyspace.epoch

    @property
    def limits(self) -> BatchLimits:
        return self._keyspace.limits

    def is_current(self) -> bool:
        return self._keyspace.is_current()

    def scan(self, prefix: bytes) -> AsyncIterator[Sequence[tuple[bytes, bytes]]]:
        return self._keyspace.scan(prefix)

    async def append(self, writes: Sequence[Write]) -> None:
        if self._store.appends_left == 0:
            raise AppendFailed("this is where the copy is cut off")
        self._store.appends_left -= 1
        await self._keyspace.append(writes)

    async def release(self) -> None:
        await self._keyspace.release()


class CutStore:
    """A store that takes so many appends; each after them fails."""

    def __init__(self, store: Store, appends: int) -> None:
        self._store = store
        self.appends_left = appends

    async def acquire(self, keyspace: str) -> Keyspace:
        return CutKeyspace(self, await self._store.acquire(keyspace))

    @property
    def status(self) -> StoreStatus:
        return self._store.status

    async def close(self) -> None:
        await self._store.close()
