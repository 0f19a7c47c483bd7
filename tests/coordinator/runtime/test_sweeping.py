"""Pieces of a change that never came to its end are invisible after a load, and swept; damage makes a shard fail."""

import pytest

from coordinator.core.effects import Failure
from coordinator.core.records import MemberRecord
from coordinator.storage.codec import decode, encode, group_prefix
from coordinator.storage.contract import BatchLimits, Space, StoredDataInvalid, Write, shard_space
from coordinator.storage.memory import MemoryStore
from protocol import messages as m
from protocol.errors import ErrorCode
from protocol.group_hash import shard_of_group
from protocol.opaque import OpaqueJson
from tests.fakes.room import SHARDS, Room, code, commit, committed, heartbeat


def space_of(group_id: str) -> str:
    return shard_space(shard_of_group(group_id, SHARDS))


def piece(group_id: str, member_id: str, generation_id: int) -> MemberRecord:
    return MemberRecord(
        group_id=group_id,
        member_id=member_id,
        generation_id=generation_id,
        seniority=99,
        group_instance_id=None,
        client_id="c",
        host="h",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        disconnect_grace_ms=None,
        metadata=OpaqueJson("null"),
        assignment=OpaqueJson('"never"'),
    )


async def records_of(space: Space, group_id: str) -> set[str]:
    found = [decode(key, value) async for page in space.scan(group_prefix(group_id)) for key, value in page]
    return {f"{r.member_id}/{r.generation_id}" for r in found if isinstance(r, MemberRecord)}


async def test_pieces_of_an_unfinished_change_are_invisible_and_swept() -> None:
    limits = BatchLimits(writes_max=10, bytes_max=100_000)
    store = MemoryStore(limits=limits)
    before = await Room(store=store).start()
    ids = await before.form("g", "a", "b")
    space = await store.acquire(space_of("g"))
    pieces = [piece("g", f"new-{number}", 2) for number in range(25)] + [piece("g", ids["a"], 2)]
    for start in range(0, len(pieces), 5):
        await space.append([encode(record) for record in pieces[start : start + 5]])
    after = await Room(store=store, clock=before.clock).start()
    for member_id in ids.values():
        assert isinstance(await after.now("g", heartbeat(member_id, 1)), m.HeartbeatAnswer)
    assert code(await after.now("g", heartbeat("new-0", 2))) is ErrorCode.UNKNOWN_MEMBER_ID
    assert after.service.view.summaries["g"].member_count == 2
    left = await records_of(await store.acquire(space_of("g")), "g")
    assert left == {f"{member_id}/1" for member_id in ids.values()}


@pytest.mark.parametrize("damage", [Write(b"g/g/h", b'{"v":2}'), Write(b"g/zzz/h", b"\xff"), Write(b"r", b"{}")])
async def test_a_shard_with_damaged_records_fails_alone_and_says_which_record(damage: Write) -> None:
    before = await Room().start()
    await before.now("g", commit(1))
    other = next(f"g{n}" for n in range(50) if space_of(f"g{n}") != space_of("g"))
    await before.now(other, commit(2))
    space = await before.store.acquire(space_of("g"))
    await space.append([damage])
    after = await Room(before.contents, clock=before.clock).start()
    assert after.phase == "ready"
    assert code(await after.now("g", commit(3))) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert await committed(after, other) == {0: 2}
    refused = after.service.list_groups(m.ListGroupsRequest())
    assert isinstance(refused, Failure)
    assert repr(damage.key) in refused.detail
    mended = await before.store.store.acquire(space_of("g"))
    await mended.append([Write(damage.key, None)])
    await after.clock.run(10_000)
    assert isinstance(await after.now("g", commit(4)), m.CommitAnswer)
    await after.service.drain()


async def test_a_registry_that_cannot_be_read_stops_the_start() -> None:
    room = Room()
    space = await room.store.acquire("topics")
    await space.append([Write(b"t/clicks", b"{}")])
    with pytest.raises(StoredDataInvalid, match="t/clicks"):
        await room.service.start()
