"""What a load keeps of the stored records, and what it sweeps."""

from coordinator.core.records import (
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
from coordinator.runtime.loading import sort_out, stored_groups
from coordinator.storage.codec import encode, group_prefix
from coordinator.storage.contract import BatchLimits
from coordinator.storage.memory import MemoryStore
from protocol.opaque import OpaqueJson


def header(group_id: str, generation_id: int) -> GroupRecord:
    return GroupRecord(group_id, "consumer", "range", generation_id, generation_id + 1, "m1", 5)


def member(member_id: str, generation_id: int, group_id: str = "g") -> MemberRecord:
    return MemberRecord(
        group_id=group_id,
        member_id=member_id,
        generation_id=generation_id,
        seniority=0,
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


def test_rebalances_and_holds_count_for_a_group_that_is_there() -> None:
    rebalance = RebalanceRecord("g", 3, 0, 5, Cause("operator", "why", None, None, None, 5))
    hold = HoldRecord("g", 7, None, None)
    for there in (header("g", 5), offset("g")):
        found = sort_out("g", [hold, rebalance, there])
        assert found.records == (there, hold, rebalance)
        assert found.leftovers == ()
    found = sort_out("g", [hold, rebalance])
    assert found.records == ()
    assert set(found.leftovers) == {RebalanceForgotten("g", 3), HoldForgotten("g")}
    assert found.restore().forgettable


async def test_groups_come_whole_however_the_pages_fall() -> None:
    store = MemoryStore(limits=BatchLimits(10_000, 10_000_000))
    space = await store.acquire("s")
    records: list[GroupRecord | MemberRecord | OffsetRecord] = []
    for number in range(7):
        group_id = f"g{number}/%"
        records += [header(group_id, 5), offset(group_id)]
        records += [member(f"m{of}", 5, group_id) for of in range(170 * (number % 2) + 1)]
    await space.append([encode(record) for record in records])
    found = [stored async for groups in stored_groups(space, b"") for stored in groups]
    assert sorted(stored.group_id for stored in found) == [f"g{number}/%" for number in range(7)]
    assert {record for stored in found for record in stored.records if isinstance(record, MemberRecord)} == {
        record for record in records if isinstance(record, MemberRecord)
    }
    assert all(stored.records[0] == header(stored.group_id, 5) for stored in found)
    one = [stored async for groups in stored_groups(space, group_prefix("g3/%")) for stored in groups]
    assert [stored.group_id for stored in one] == ["g3/%"]
    assert len(one[0].records) == 2 + 171
