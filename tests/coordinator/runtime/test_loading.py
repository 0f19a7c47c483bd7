"""What a load keeps of the stored records, and what it sweeps."""

import asyncio

from rallypoint.coordinator.core.records import (
    Cause,
    GroupRecord,
    HoldForgotten,
    HoldRecord,
    MemberForgotten,
    MemberRecord,
    OffsetRecord,
    RebalanceForgotten,
    RebalanceRecord,
)
from rallypoint.coordinator.runtime.loading.stored_groups import (
    APPLIED_AT_ONCE_MAX,
    StoredGroup,
    sort_out,
    stored_groups,
)
from rallypoint.coordinator.storage.codec import encode, group_prefix
from rallypoint.coordinator.storage.contract import BatchLimits, Keyspace
from rallypoint.coordinator.storage.memory import MemoryStore
from rallypoint.protocol.opaque import OpaqueJson


def header(group_id: str, generation_id: int) -> GroupRecord:
    return GroupRecord(group_id, "consumer", "range", generation_id, generation_id + 1, "m0", 5)


def member(member_id: str, generation_id: int, group_id: str = "g", seniority: int = 0) -> MemberRecord:
    return MemberRecord(
        group_id=group_id,
        member_id=member_id,
        generation_id=generation_id,
        seniority=seniority,
        group_instance_id=None,
        client_id="c",
        host="h",
        session_timeout_ms=1,
        rebalance_timeout_ms=1,
        disconnect_grace_ms=None,
        metadata=OpaqueJson("1"),
        assignment=OpaqueJson(str(generation_id)),
    )


def offset(group_id: str) -> OffsetRecord:
    return OffsetRecord(group_id, "t", 0, 7, None, "", 1)


def test_members_above_the_headers_generation_count_for_nothing() -> None:
    found = sort_out("g", [member("m1", 6), member("m2", 5), header("g", 5), offset("g")])
    assert found.records == (header("g", 5), member("m2", 5), offset("g"))
    assert found.leftovers == (MemberForgotten("g", "m1", 6),)


def test_of_a_members_records_the_highest_that_is_allowed_counts() -> None:
    found = sort_out("g", [header("g", 10), member("m", 9), member("m", 10), member("m", 11), member("m", 2)])
    assert found.records == (header("g", 10), member("m", 10))
    assert set(found.leftovers) == {MemberForgotten("g", "m", number) for number in (2, 9, 11)}


def test_a_member_that_did_not_change_keeps_its_older_record() -> None:
    found = sort_out("g", [header("g", 10), member("m", 3)])
    assert found.records == (header("g", 10), member("m", 3))
    assert found.leftovers == ()


def test_without_a_header_there_are_no_members() -> None:
    found = sort_out("g", [member("m", 0), offset("g")])
    assert found.records == (offset("g"),)
    assert found.leftovers == (MemberForgotten("g", "m", 0),)


async def test_rebalances_and_holds_count_for_a_group_that_is_there() -> None:
    rebalance = RebalanceRecord("g", 3, 0, 5, Cause("operator", "why", None, None, None, 5))
    hold = HoldRecord("g", 7, None, None)
    for there in (header("g", 5), offset("g")):
        found = sort_out("g", [hold, rebalance, there])
        assert found.records == (there, hold, rebalance)
        assert found.leftovers == ()
    found = sort_out("g", [hold, rebalance])
    assert found.records == ()
    assert set(found.leftovers) == {RebalanceForgotten("g", 3), HoldForgotten("g")}
    assert (await found.restore()).forgettable


async def read(keyspace: Keyspace, prefix: bytes) -> list[StoredGroup]:
    found = [one async for page in stored_groups(keyspace, prefix, lambda _: True) for one in page]
    groups = [one for one in found if isinstance(one, StoredGroup)]
    assert groups == found
    return groups


async def test_groups_come_whole_however_the_pages_fall() -> None:
    store = MemoryStore(limits=BatchLimits(10_000, 10_000_000))
    keyspace = await store.acquire("s")
    records: list[GroupRecord | MemberRecord | OffsetRecord] = []
    for number in range(7):
        group_id = f"g{number}/%"
        records += [header(group_id, 5), offset(group_id)]
        records += [member(f"m{of}", 5, group_id, of) for of in range(170 * (number % 2) + 1)]
    await keyspace.append([encode(record) for record in records])
    found = await read(keyspace, b"")
    assert sorted(stored.group_id for stored in found) == [f"g{number}/%" for number in range(7)]
    assert {record for stored in found for record in stored.records if isinstance(record, MemberRecord)} == {
        record for record in records if isinstance(record, MemberRecord)
    }
    assert all(stored.records[0] == header(stored.group_id, 5) for stored in found)
    one = await read(keyspace, group_prefix("g3/%"))
    assert [stored.group_id for stored in one] == ["g3/%"]
    assert len(one[0].records) == 2 + 171


async def test_a_group_of_many_records_is_made_in_turns() -> None:
    """Others go on between: a callback that puts itself in line again counts the turns."""
    count = 2 * APPLIED_AT_ONCE_MAX + 1
    turns = 0
    is_over = False

    def turn() -> None:
        nonlocal turns
        turns += 1
        if not is_over:
            loop.call_soon(turn)

    loop = asyncio.get_running_loop()
    records = tuple(OffsetRecord("g", "t", number, 5, None, "", 1) for number in range(count))
    loop.call_soon(turn)
    group = await StoredGroup("g", records, ()).restore()
    is_over = True
    assert (group.offset_count, len(group.offsets["t"])) == (count, count)
    assert turns == 2
