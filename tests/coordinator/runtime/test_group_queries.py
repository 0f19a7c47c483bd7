"""What is remembered of a group: its partitions with their owners, the lag of the last hour, who had what before."""

import sys
from typing import Any

import pytest

from rallypoint.coordinator.core.effects import OwnersLoaded, PartitionsMoved
from rallypoint.coordinator.core.moves import Move, OwnerNames
from rallypoint.coordinator.runtime.history.ownership import (
    ENTRIES_MAX,
    ENTRIES_MIN,
    ENTRIES_OF_A_GROUP,
    GroupOwnership,
    entries_max_of,
)
from rallypoint.protocol import admin_messages as admin
from rallypoint.protocol import messages as m
from rallypoint.protocol.errors import ErrorCode
from rallypoint.protocol.opaque import OpaqueJson
from tests.fakes.manual_clock import settle
from tests.fakes.service_harness import ServiceHarness, code, commit, join, sync


@pytest.fixture
async def harness() -> ServiceHarness:
    return await ServiceHarness().start()


async def assigned(harness: ServiceHarness, ids: dict[str, str], generation_id: int, **parts: Any) -> None:
    """Let all join, and the leader give each these partitions of the topic."""
    joins = {name: harness.ask("g", join(name, ids[name])) for name in parts}
    await settle()
    answers = {name: task.result() for name, task in joins.items()}
    leader = next(name for name, one in answers.items() if isinstance(one, m.JoinAnswer) and one.members)
    shares = tuple(
        m.SyncAssignment(member_id=ids[name], assignment=OpaqueJson.of({"partitions": {"clicks": part}}))
        for name, part in parts.items()
    )
    for name in (leader, *(name for name in parts if name != leader)):
        answer = await harness.now("g", sync(ids[name], generation_id, shares if name == leader else ()))
        assert isinstance(answer, m.SyncAnswer), answer


async def of_two(harness: ServiceHarness) -> dict[str, str]:
    """Members a and b with partitions 0, 1 and 2."""
    ids = {name: await harness.new_id("g", name) for name in ("a", "b")}
    await assigned(harness, ids, 1, a=[0, 1], b=[2])
    return ids


async def partitions(harness: ServiceHarness, **asked: Any) -> admin.ListPartitionsAnswer:
    answer = await harness.service.list_partitions("g", admin.ListPartitionsRequest(**asked))
    assert isinstance(answer, admin.ListPartitionsAnswer), answer
    return answer


async def changes(harness: ServiceHarness, **asked: Any) -> admin.OwnershipHistoryAnswer:
    answer = await harness.service.ownership_history("g", admin.OwnershipHistoryRequest(**asked))
    assert isinstance(answer, admin.OwnershipHistoryAnswer), answer
    return answer


def moves_of(answer: admin.OwnershipHistoryAnswer) -> list[tuple[int, Any, Any]]:
    return [
        (one.partition, one.from_member and one.from_member.client_id, one.to_member and one.to_member.client_id)
        for one in answer.changes
    ]


async def listed(harness: ServiceHarness) -> admin.GroupListing:
    answer = await harness.service.list_groups(admin.ListGroupsRequest())
    assert isinstance(answer, admin.ListGroupsAnswer)
    return answer.groups[0]


async def test_every_partition_stands_there_committed_or_not(harness: ServiceHarness) -> None:
    await harness.service.put_topic("clicks", m.PutTopicRequest(partitions=4, end_offsets={0: 50, 1: 7, 3: 9}))
    ids = await of_two(harness)
    await harness.now("g", commit(40, ids["a"], 1))
    await harness.now("g", commit(5, ids["b"], 1, partition=2))
    answer = await partitions(harness)
    assert [(row.partition, row.owner and row.owner.client_id, row.offset, row.end_offset, row.lag, row.status)
            for row in answer.partitions] == [
        (0, "a", 40, 50, 10, "OK"), (1, "a", None, 7, None, None),
        (2, "b", 5, None, None, None), (3, None, None, 9, None, None),
    ]  # fmt: skip
    assert [row.status_rule for row in answer.partitions[1:3]] == [
        "Nothing was committed.",
        "The end of the partition was not reported.",
    ]
    assert answer.partitions[0].owner_since_ms == harness.clock.now_ms()
    assert answer.partitions[3].owner_since_ms is None
    assert [row.partition for row in (await partitions(harness, owned=False)).partitions] == [3]
    assert [row.partition for row in (await partitions(harness, owned=True, status="ok")).partitions] == [0]
    assert (await partitions(harness, topic="other")).partitions == ()


async def test_where_nobody_commits_any_more_nobody_says_when_the_lag_is_gone(harness: ServiceHarness) -> None:
    await harness.service.put_topic("clicks", m.PutTopicRequest(partitions=1, end_offsets={0: 500}))
    ids = {"a": await harness.new_id("g", "a")}
    await assigned(harness, ids, 1, a=[0])
    for offset in (10, 20, 30):
        await harness.now("g", commit(offset, ids["a"], 1))
        await harness.now("g", m.HeartbeatRequest(generation_id=1, member_id=ids["a"]))
        await harness.clock.run(7_000)
    working = (await partitions(harness)).partitions[0]
    assert working.eta_ms is not None
    assert (working.status, working.lag) == ("OK", 470)
    await harness.now("g", m.LeaveRequest(members=(m.LeaveMember(member_id=ids["a"]),)))
    await harness.clock.run(120_000)
    stopped = (await partitions(harness)).partitions[0]
    assert (stopped.status, stopped.lag, stopped.eta_ms) == ("STOP", 470, None)


@pytest.mark.parametrize("limit", [1, 2, 3, 5])
async def test_the_pages_of_partitions_are_the_whole_list(harness: ServiceHarness, limit: int) -> None:
    await harness.service.put_topic("clicks", m.PutTopicRequest(partitions=4))
    await of_two(harness)
    whole = (await partitions(harness)).partitions
    found: list[admin.PartitionListing] = []
    cursor: str | None = None
    for _ in range(5):
        page = await partitions(harness, limit=limit, cursor=cursor)
        assert len(page.partitions) <= limit
        found += page.partitions
        cursor = page.next_cursor
        if cursor is None:
            break
    assert (tuple(found), cursor) == (whole, None)


async def test_who_had_a_partition_before_is_known_and_when_it_came(harness: ServiceHarness) -> None:
    await harness.service.put_topic("clicks", m.PutTopicRequest(partitions=3))
    ids = await of_two(harness)
    await harness.clock.run(1_000)
    left_ms = harness.clock.now_ms()
    await harness.now("g", m.LeaveRequest(members=(m.LeaveMember(member_id=ids["a"]),)))
    assert [(row.owner, row.owner_since_ms, row.previous_owner and row.previous_owner.client_id)
            for row in (await partitions(harness, owned=False)).partitions] == [
        (None, left_ms, "a"), (None, left_ms, "a"),
    ]  # fmt: skip
    row = await listed(harness)
    assert (row.idle_member_count, row.unowned_partition_count) == (0, 2)
    await harness.clock.run(1_000)
    await assigned(harness, ids, 2, b=[0, 1, 2])
    row = await listed(harness)
    assert (row.idle_member_count, row.unowned_partition_count, row.useful_member_count) == (0, 0, 3)
    now_ms = harness.clock.now_ms()
    assert [(row.owner and row.owner.client_id, row.owner_since_ms, row.previous_owner and row.previous_owner.client_id)
            for row in (await partitions(harness)).partitions] == [
        ("b", now_ms, "a"), ("b", now_ms, "a"), ("b", now_ms - 2_000, None),
    ]  # fmt: skip
    told = await changes(harness)
    assert sorted(moves_of(told)[:2]) == [(0, None, "b"), (1, None, "b")]
    assert sorted(moves_of(told)[2:4]) == [(0, "a", None), (1, "a", None)]
    assert sorted(moves_of(told)[4:]) == [(0, None, "a"), (1, None, "a"), (2, None, "b")]
    assert [one.rebalance_id for one in told.changes] == [2, 2, 1, 1, 1, 1, 1]
    assert moves_of(await changes(harness, topic="clicks", partition=0)) == [
        (0, None, "b"), (0, "a", None), (0, None, "a"),
    ]  # fmt: skip
    pages: list[admin.OwnershipChange] = []
    cursor: str | None = None
    for _ in range(8):
        page = await changes(harness, limit=2, cursor=cursor)
        pages += page.changes
        cursor = page.next_cursor
        if cursor is None:
            break
    assert tuple(pages) == told.changes
    events = [event for event in harness.watcher.events if isinstance(event, PartitionsMoved)]
    assert [event.move_count for event in events] == [3, 2, 2]


async def test_after_a_restart_owners_and_counts_are_known(harness: ServiceHarness) -> None:
    await harness.service.put_topic("clicks", m.PutTopicRequest(partitions=4))
    await of_two(harness)
    await harness.service.drain()
    after = await ServiceHarness(harness.contents, clock=harness.clock).start()
    row = await listed(after)
    assert (row.idle_member_count, row.unowned_partition_count) == (0, 1)
    answer = await partitions(after)
    assert [one.owner and one.owner.client_id for one in answer.partitions] == ["a", "a", "b", None]
    assert {one.owner_since_ms for one in answer.partitions} == {None}
    assert not any(isinstance(event, OwnersLoaded) for event in after.watcher.events)


async def test_what_no_consumer_wrote_has_no_owners(harness: ServiceHarness) -> None:
    await harness.form("g", "a", "b")
    row = await listed(harness)
    assert (row.idle_member_count, row.unowned_partition_count, row.useful_member_count) == (2, None, None)
    assert (await partitions(harness)).partitions == ()


async def test_the_lag_of_the_last_hour_is_kept(harness: ServiceHarness) -> None:
    await harness.now("g", commit(0))
    answer = await harness.service.lag_history("g")
    assert isinstance(answer, admin.LagHistoryAnswer)
    assert (answer.lag, answer.samples) == (None, ())
    await harness.service.put_topic("clicks", m.PutTopicRequest(partitions=1, end_offsets={0: 100_000}))
    for number in range(1, 150):
        await harness.now("g", commit(300 * number))
        await harness.clock.run(30_000)
    answer = await harness.service.lag_history("g")
    assert isinstance(answer, admin.LagHistoryAnswer)
    assert answer.lag == 100_000 - 149 * 300
    assert len(answer.samples) in (120, 121)
    assert answer.samples[-1].at_ms == harness.clock.now_ms()
    assert answer.samples[0].at_ms >= harness.clock.now_ms() - 3_600_000
    assert answer.slope_per_second == pytest.approx(-10, rel=0.1)
    assert answer.eta_sentence.startswith("At this pace the lag is gone in 1 h 3")


@pytest.mark.parametrize("cursor", ["x", "%%", "WzFd", "W1tb" * 512, "WyJ0IiwtNV0", "1-", "-1", "é"])
async def test_a_cursor_of_something_else_is_refused(harness: ServiceHarness, cursor: str) -> None:
    await harness.now("g", commit(0))
    for refused in (
        await harness.service.list_partitions("g", admin.ListPartitionsRequest(cursor=cursor)),
        await harness.service.ownership_history("g", admin.OwnershipHistoryRequest(cursor=cursor)),
    ):
        assert code(refused) is ErrorCode.INVALID_REQUEST


async def test_a_group_that_is_not_there_has_nothing(harness: ServiceHarness) -> None:
    for answer in (
        await harness.service.list_partitions("no", admin.ListPartitionsRequest()),
        await harness.service.lag_history("no"),
        await harness.service.ownership_history("no", admin.OwnershipHistoryRequest()),
    ):
        assert code(answer) is ErrorCode.GROUP_ID_NOT_FOUND
    await harness.service.drain()
    assert code(await harness.service.lag_history("no")) is ErrorCode.COORDINATOR_NOT_AVAILABLE


def test_what_is_kept_of_former_owners_is_bounded() -> None:
    ownership = GroupOwnership(0)
    names = [OwnerNames(f"m{number}", None, "c", "h") for number in range(2)]
    parts = tuple(range(500))
    for at_ms in range(1, 100):
        move = Move("t", parts, names[at_ms % 2], names[1 - at_ms % 2])
        ownership.move(PartitionsMoved("g", at_ms, at_ms, (move,), 500), at_ms, ENTRIES_MIN)
    kept = list(ownership.newest_first())
    assert len(kept) == ENTRIES_MIN // 575
    assert ownership.since_ms == 100 - len(kept)
    assert sum(sys.getsizeof(change.partitions) for change in kept) < 5 * ENTRIES_MIN
    assert entries_max_of(1) == ENTRIES_OF_A_GROUP
    assert entries_max_of(400) == ENTRIES_MAX // 400
    assert entries_max_of(100_000) == ENTRIES_MIN
