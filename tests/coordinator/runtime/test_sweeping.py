"""Chunks of a change that never came to its end are invisible after a load, and swept; damage makes a shard fail."""

from rallypoint.coordinator.core.records import MemberRecord
from rallypoint.coordinator.storage.codec import decode, encode, group_prefix
from rallypoint.coordinator.storage.contract import BatchLimits, Keyspace, shard_keyspace
from rallypoint.coordinator.storage.memory import MemoryStore
from rallypoint.protocol import messages as m
from rallypoint.protocol.errors import ErrorCode
from rallypoint.protocol.group_hash import shard_of_group
from rallypoint.protocol.opaque import OpaqueJson
from tests.fakes.service_harness import SHARDS, ServiceHarness, code, heartbeat


def keyspace_of(group_id: str) -> str:
    return shard_keyspace(shard_of_group(group_id, SHARDS))


def chunk(group_id: str, member_id: str, generation_id: int) -> MemberRecord:
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


async def records_of(keyspace: Keyspace, group_id: str) -> set[str]:
    found = [decode(key, value) async for page in keyspace.scan(group_prefix(group_id)) for key, value in page]
    return {f"{r.member_id}/{r.generation_id}" for r in found if isinstance(r, MemberRecord)}


async def test_chunks_of_an_unfinished_change_are_invisible_and_swept() -> None:
    limits = BatchLimits(writes_max=10, bytes_max=100_000)
    store = MemoryStore(limits=limits)
    before = await ServiceHarness(store=store).start()
    ids = await before.form("g", "a", "b")
    keyspace = await store.acquire(keyspace_of("g"))
    chunks = [chunk("g", f"new-{number}", 2) for number in range(25)] + [chunk("g", ids["a"], 2)]
    for start in range(0, len(chunks), 5):
        await keyspace.append([encode(record) for record in chunks[start : start + 5]])
    after = await ServiceHarness(store=store, clock=before.clock).start()
    for member_id in ids.values():
        assert isinstance(await after.now("g", heartbeat(member_id, 1)), m.HeartbeatAnswer)
    assert code(await after.now("g", heartbeat("new-0", 2))) is ErrorCode.UNKNOWN_MEMBER_ID
    assert after.service.view.summaries["g"].member_count == 2
    left = await records_of(await store.acquire(keyspace_of("g")), "g")
    assert left == {f"{member_id}/1" for member_id in ids.values()}
