"""Nothing is seen before it is durable; and what failed is forgotten, by everyone who could have seen it."""

import asyncio
import logging

import pytest

from rallypoint.coordinator.core.effects import Failure, GroupChanged, GroupCreated, OffsetsCommitted
from rallypoint.coordinator.runtime.condition import ShardState, why_not_ready
from rallypoint.coordinator.runtime.shard import SLICE
from rallypoint.coordinator.storage.contract import BatchLimits, Fenced, StorageUnavailable
from rallypoint.coordinator.storage.memory import MemoryContents, MemoryStore
from rallypoint.protocol import admin_messages as admin
from rallypoint.protocol import messages as m
from rallypoint.protocol.errors import ErrorCode
from rallypoint.protocol.group_hash import shard_of_group
from tests.fakes.faulty_store import Fault
from tests.fakes.manual_clock import settle
from tests.fakes.service_harness import DESCRIBE, ServiceHarness, code, commit, committed, heartbeat, join, sync


@pytest.fixture
async def harness() -> ServiceHarness:
    return await ServiceHarness().start()


async def test_an_answer_never_leaves_before_its_append_returned(harness: ServiceHarness) -> None:
    harness.store.append_gate.shut()
    task = harness.ask("g", commit(7))
    await harness.clock.run(4_900)
    assert harness.store.append_gate.waiting == 1
    assert not task.done()
    assert harness.watcher.events == []
    assert harness.service.view.summaries == {}
    harness.store.append_gate.let_go()
    await settle()
    assert isinstance(task.result(), m.CommitAnswer)
    assert {type(event) for event in harness.watcher.events} == {GroupCreated, GroupChanged, OffsetsCommitted}
    assert set(harness.service.view.summaries) == {"g"}


async def test_a_read_waits_for_the_write_before_it(harness: ServiceHarness) -> None:
    await harness.now("g", commit(1))
    harness.store.append_gate.shut()
    writing = harness.ask("g", commit(2))
    await settle()
    reading = harness.ask("g", m.FetchRequest())
    await settle()
    assert not writing.done()
    assert not reading.done(), "it would show the old offset, or one that may never be stored"
    harness.store.append_gate.let_go()
    await settle()
    answer = reading.result()
    assert isinstance(answer, m.FetchAnswer)
    assert answer.offsets["clicks"][0].offset == 2


async def test_what_waits_while_an_append_is_under_way_goes_out_as_one(harness: ServiceHarness) -> None:
    harness.store.append_gate.shut()
    first = harness.ask("g", commit(0))
    await settle()
    others = [harness.ask("g", commit(number, partition=number)) for number in range(1, 21)]
    await settle()
    assert harness.store.append_gate.waiting == 1
    harness.store.append_gate.let_go()
    await settle()
    assert all(isinstance(task.result(), m.CommitAnswer) for task in (first, *others))
    assert [len(writes) for _, writes in harness.store.appends] == [3, 20], (
        "when the shard is served, a header and an offset; then all the others"
    )


async def test_appends_of_many_groups_are_joined_by_their_shards_writer(harness: ServiceHarness) -> None:
    shard_of = harness.service.find_coordinators(m.CoordinatorRequest(group_ids=tuple(f"g{n}" for n in range(80))))
    ours = [entry.group_id for entry in shard_of.coordinators if entry.shard == 1]
    assert len(ours) >= 10
    tasks = [harness.ask(group_id, commit(1)) for group_id in ours]
    await settle()
    assert all(isinstance(task.result(), m.CommitAnswer) for task in tasks)
    assert [len(writes) for _, writes in harness.store.appends] == [1 + 2 * len(ours)]


async def test_heartbeats_write_nothing_and_are_answered_at_once(harness: ServiceHarness) -> None:
    ids = await harness.form("g", "a", "b")
    before = len(harness.store.appends)
    harness.store.append_gate.shut()
    for member_id in ids.values():
        assert isinstance(await harness.now("g", heartbeat(member_id, 1)), m.HeartbeatAnswer)
    assert len(harness.store.appends) == before


# --- a definite failure ----------------------------------------------------------------------------------------------


async def test_after_a_definite_failure_everyone_is_told_to_retry_and_the_stored_state_stands(
    harness: ServiceHarness,
) -> None:
    ids = await harness.form("g", "a", "b")
    await harness.now("g", commit(5, ids["a"], 1))
    parked = harness.ask("g", heartbeat(ids["b"], 1, wait_ms=4_000))
    await settle()
    assert harness.service.parked_calls == 1
    harness.store.append_gate.shut()
    harness.store.faults.append(Fault.NOT_STORED)
    failing = harness.ask("g", commit(6, ids["a"], 1))
    await settle()
    queued = harness.ask("g", commit(7, ids["a"], 1))
    await settle()
    assert not parked.done()
    harness.store.append_gate.let_go()
    await settle()
    assert [code(task.result()) for task in (parked, failing, queued)] == [ErrorCode.COORDINATOR_NOT_AVAILABLE] * 3
    assert await committed(harness, "g") == {0: 5}
    assert isinstance(await harness.now("g", heartbeat(ids["b"], 1)), m.HeartbeatAnswer)
    assert isinstance(await harness.now("g", commit(8, ids["a"], 1)), m.CommitAnswer)
    assert await committed(harness, "g") == {0: 8}
    harness.assert_nothing_waits()


async def test_a_failed_group_is_loaded_anew_though_nobody_asks_and_its_members_can_expire(
    harness: ServiceHarness,
) -> None:
    ids = await harness.form("g", "a", "b")
    harness.store.faults.append(Fault.NOT_STORED)
    await harness.now("g", commit(6, ids["a"], 1))
    assert len(harness.service._timers) == 3, "one session each, and the next look at what has expired"
    await harness.clock.run(10_100)
    summary = harness.service.view.summaries["g"]
    assert (summary.state, summary.member_count) == ("Empty", 0)
    assert len(harness.service._timers) == 1


async def test_the_failure_of_one_groups_append_leaves_other_groups_alone(harness: ServiceHarness) -> None:
    ids = await harness.form("g", "a")
    others = await harness.form("other", "b")
    parked = harness.ask("other", heartbeat(others["b"], 1, wait_ms=4_000))
    harness.store.faults.append(Fault.NOT_STORED)
    assert code(await harness.now("g", commit(1, ids["a"], 1))) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert not parked.done()
    await harness.clock.run(4_000)
    assert isinstance(parked.result(), m.HeartbeatAnswer)


async def test_a_group_that_was_never_stored_is_gone_after_the_failure(harness: ServiceHarness) -> None:
    harness.store.faults.append(Fault.NOT_STORED)
    assert code(await harness.now("g", join("a", ""))) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert code(await harness.now("g", DESCRIBE)) is ErrorCode.GROUP_ID_NOT_FOUND
    assert harness.service.view.summaries == {}
    assert len(harness.service._timers) == 0
    ids = await harness.form("g", "a")
    assert ids


async def test_a_lost_generation_is_not_used_again(harness: ServiceHarness) -> None:
    ids = await harness.form("g", "a")
    joining = harness.ask("g", join("a", ids["a"]))
    await settle()
    answer = joining.result()
    assert isinstance(answer, m.JoinAnswer)
    assert answer.generation_id == 2
    harness.store.faults.append(Fault.NOT_STORED)
    share = m.SyncAssignment(member_id=ids["a"])
    assert code(await harness.now("g", sync(ids["a"], 2, (share,)))) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert code(await harness.now("g", heartbeat(ids["a"], 2))) is ErrorCode.ILLEGAL_GENERATION
    assert isinstance(await harness.now("g", heartbeat(ids["a"], 1)), m.HeartbeatAnswer)
    again = await harness.now("g", join("a", ids["a"]))
    assert isinstance(again, m.JoinAnswer)
    assert again.generation_id == 3


async def test_a_store_that_goes_on_failing_is_not_asked_in_a_hurry(
    harness: ServiceHarness, caplog: pytest.LogCaptureFixture
) -> None:
    await harness.now("g", commit(1))
    harness.store.scan_errors.extend(StorageUnavailable("planted") for _ in range(5))
    harness.store.faults.append(Fault.NOT_STORED)
    await harness.now("g", commit(2))
    assert code(await harness.now("g", DESCRIBE)) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert isinstance(await harness.now("g", heartbeat("x", 1)), m.HeartbeatAnswer), "nobody can say yet"
    assert len(harness.store.scan_errors) >= 3
    await harness.clock.run(5_000)
    assert not harness.store.scan_errors
    told = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
    assert told == ["group 'g' cannot be reloaded: planted"], "once, however often it is tried"
    assert await committed(harness, "g") == {0: 1}


async def test_topics_that_cannot_be_stored_are_told_once_until_one_can(
    harness: ServiceHarness, caplog: pytest.LogCaptureFixture
) -> None:
    for partitions in range(1, 4):
        harness.store.faults.append(Fault.NOT_STORED)
        failure = await harness.service.put_topic("clicks", m.PutTopicRequest(partitions=partitions))
        assert isinstance(failure, Failure)
    told = ["a change of the topic registry failed: planted: not stored (AppendFailed)"]
    assert [record.getMessage() for record in caplog.records if record.levelname == "ERROR"] == told
    assert not isinstance(await harness.service.put_topic("clicks", m.PutTopicRequest(partitions=4)), Failure)
    harness.store.faults.append(Fault.NOT_STORED)
    await harness.service.put_topic("clicks", m.PutTopicRequest(partitions=5))
    assert [record.getMessage() for record in caplog.records if record.levelname == "ERROR"] == told * 2


# --- doubt and fencing -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fault", "wanted", "offset"),
    [
        (Fault.STORED_UNSURE, ErrorCode.COORDINATOR_NOT_AVAILABLE, 6),
        (Fault.NOT_STORED_UNSURE, ErrorCode.COORDINATOR_NOT_AVAILABLE, 5),
        (Fault.FENCED, ErrorCode.NOT_COORDINATOR, 5),
    ],
)
async def test_a_shard_in_doubt_is_dropped_and_taken_anew(
    harness: ServiceHarness, fault: Fault, wanted: ErrorCode, offset: int
) -> None:
    ids = await harness.form("g", "a")
    await harness.now("g", commit(5, ids["a"], 1))
    parked = harness.ask("g", heartbeat(ids["a"], 1, wait_ms=4_000))
    await settle()
    acquired = len(harness.store.acquired)
    harness.store.append_gate.shut()
    harness.store.faults.append(fault)
    unsure = harness.ask("g", commit(6, ids["a"], 1))
    await settle()
    queued = harness.ask("g", commit(7, ids["a"], 1))
    await settle()
    harness.store.append_gate.let_go()
    await settle()
    assert [code(task.result()) for task in (parked, unsure, queued)] == [wanted] * 3
    assert len(harness.store.acquired) == acquired + 1
    assert await committed(harness, "g") == {0: offset}
    assert isinstance(await harness.now("g", commit(9, ids["a"], 1)), m.CommitAnswer)
    harness.assert_nothing_waits()


async def test_an_append_that_ends_after_its_shard_was_lost_does_not_lose_the_shard_again(
    harness: ServiceHarness,
) -> None:
    store = harness.store
    one, other = [f"g{n}" for n in range(50) if shard_of_group(f"g{n}", 4) == 1][:2]
    await harness.now(one, commit(1))
    store.scan_gate.shut()
    store.faults.append(Fault.NOT_STORED)
    await harness.now(one, commit(2))
    assert store.scan_gate.waiting == 1, "the group is read again"
    store.append_gate.shut()
    store.faults.append(Fault.FENCED)
    harness.ask(other, commit(1))
    await settle()
    store.acquire_gate.shut()
    store.scan_errors.append(Fenced("planted: fenced"))
    store.scan_gate.let_go()
    await settle()
    assert store.acquire_gate.waiting == 1, "the shard is taken again"
    store.append_gate.let_go()
    await settle()
    store.acquire_gate.let_go()
    await settle()
    assert isinstance(await harness.now(other, commit(2)), m.CommitAnswer)
    harness.assert_nothing_waits()


async def test_a_shard_that_cannot_be_taken_again_says_so_and_goes_on_trying(harness: ServiceHarness) -> None:
    await harness.now("g", commit(5))
    harness.store.acquire_errors.extend(StorageUnavailable("planted") for _ in range(4))
    harness.store.faults.append(Fault.NOT_STORED_UNSURE)
    await harness.now("g", commit(6))
    assert code(await harness.now("g", commit(7))) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert code(await harness.now("g", heartbeat("x", 1))) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    listed = await harness.service.list_groups(admin.ListGroupsRequest())
    assert isinstance(listed, admin.ListGroupsAnswer)
    (unavailable,) = listed.unavailable_shards
    assert (unavailable.shard, unavailable.error_name) == (shard_of_group("g", 4), "COORDINATOR_NOT_AVAILABLE")
    assert "planted" in unavailable.detail
    assert harness.service.condition().shards[ShardState.FAILED] == 1
    assert why_not_ready(harness.service.condition()) is None
    await harness.clock.run(5_000)
    assert await committed(harness, "g") == {0: 5}
    assert harness.service.condition().unavailable == ()


async def test_a_list_has_what_can_be_told_and_every_page_names_what_cannot(harness: ServiceHarness) -> None:
    groups = sorted(f"g{number}" for number in range(12))
    for group_id in groups:
        await harness.now(group_id, commit(5))
    lost = shard_of_group("g0", 4)
    others = [group_id for group_id in groups if shard_of_group(group_id, 4) != lost]
    harness.store.acquire_errors.extend(StorageUnavailable("planted") for _ in range(4))
    harness.store.faults.append(Fault.NOT_STORED_UNSURE)
    await harness.now("g0", commit(6))
    found: list[str] = []
    cursor: str | None = None
    while True:
        page = await harness.service.list_groups(admin.ListGroupsRequest(limit=2, cursor=cursor))
        assert isinstance(page, admin.ListGroupsAnswer)
        assert [shard.shard for shard in page.unavailable_shards] == [lost]
        found += [listing.group_id for listing in page.groups]
        cursor = page.next_cursor
        if cursor is None:
            break
    assert found == others
    await harness.clock.run(5_000)
    whole = await harness.service.list_groups(admin.ListGroupsRequest())
    assert isinstance(whole, admin.ListGroupsAnswer)
    assert ([listing.group_id for listing in whole.groups], whole.unavailable_shards) == (groups, ())


async def test_where_no_shard_is_served_a_list_is_refused_and_the_node_is_not_ready(harness: ServiceHarness) -> None:
    harness.store.acquire_errors.extend(StorageUnavailable("planted") for _ in range(16))
    one_of_each = {shard_of_group(f"g{number}", 4): f"g{number}" for number in range(50)}
    for group_id in one_of_each.values():
        harness.store.faults.append(Fault.NOT_STORED_UNSURE)
        await harness.now(group_id, commit(6))
    refused = await harness.service.list_groups(admin.ListGroupsRequest())
    assert isinstance(refused, Failure)
    assert (refused.code, "planted" in refused.detail) == (ErrorCode.COORDINATOR_NOT_AVAILABLE, True)
    failure = why_not_ready(harness.service.condition())
    assert failure is not None
    assert failure.code is ErrorCode.COORDINATOR_NOT_AVAILABLE
    await harness.clock.run(60_000)
    assert why_not_ready(harness.service.condition()) is None


async def test_a_list_leaves_nothing_out_without_a_word_while_the_groups_of_a_shard_begin(
    harness: ServiceHarness,
) -> None:
    groups = [f"g{number}" for number in range(4 * 2 * SLICE)]
    for group_id in groups:
        await harness.now(group_id, commit(5))
    harness.store.faults.append(Fault.NOT_STORED_UNSURE)
    losing = harness.begin(harness.service.call("g0", commit(6), host=""))
    passing = harness.begin(harness.clock.run(5_000))
    while not passing.done():
        await asyncio.sleep(0)
        listed = await harness.service.list_groups(admin.ListGroupsRequest(limit=1000))
        assert isinstance(listed, admin.ListGroupsAnswer)
        named = {shard.shard for shard in listed.unavailable_shards}
        left_out = set(groups) - {listing.group_id for listing in listed.groups}
        assert {shard_of_group(group_id, 4) for group_id in left_out} <= named
    assert losing.done()
    assert not left_out


async def test_two_services_over_one_store_never_both_write(harness: ServiceHarness) -> None:
    ids = await harness.form("g", "a")
    latter = await ServiceHarness(harness.contents, clock=harness.clock).start()
    assert code(await harness.now("g", commit(1, ids["a"], 1))) is ErrorCode.NOT_COORDINATOR
    assert isinstance(latter, ServiceHarness)


# --- too large -------------------------------------------------------------------------------------------------------


async def test_a_commit_with_a_record_over_the_limit_is_refused_for_good_and_nothing_of_it_is_kept() -> None:
    harness = await ServiceHarness(store=MemoryStore(limits=BatchLimits(writes_max=10, bytes_max=1_000))).start()
    await harness.now("g", commit(1))
    offsets = {number: m.OffsetCommit(offset=9) for number in range(20)}
    offsets[15] = m.OffsetCommit(offset=9, metadata="x" * 1_000)
    long = m.CommitRequest(generation_id=-1, offsets={"clicks": offsets})
    assert code(await harness.now("g", long)) is ErrorCode.INVALID_COMMIT_OFFSET_SIZE
    assert await committed(harness, "g") == {0: 1}
    assert isinstance(await harness.now("g", commit(2)), m.CommitAnswer)


async def test_small_commits_that_are_too_many_for_one_append_are_stored_in_several() -> None:
    harness = await ServiceHarness(store=MemoryStore(limits=BatchLimits(writes_max=10, bytes_max=100_000))).start()
    harness.store.append_gate.shut()
    tasks = [harness.ask("g", commit(number, partition=number)) for number in range(40)]
    others = [harness.ask("h", commit(number, partition=number)) for number in range(40)]
    await settle()
    harness.store.append_gate.let_go()
    await settle()
    assert all(isinstance(task.result(), m.CommitAnswer) for task in (*tasks, *others))
    assert all(len(writes) <= 10 for _, writes in harness.store.appends)
    assert await committed(harness, "g") == {number: number for number in range(40)}


@pytest.mark.parametrize("limits", [BatchLimits(10, 1_000_000), BatchLimits(10_000, 1_000)])
async def test_batches_of_several_groups_are_joined_only_as_far_as_one_append_takes_them(limits: BatchLimits) -> None:
    harness = await ServiceHarness(store=MemoryStore(limits=limits)).start()
    entries = harness.service.find_coordinators(m.CoordinatorRequest(group_ids=tuple(f"g{n}" for n in range(80))))
    neighbours = [entry.group_id for entry in entries.coordinators if entry.shard == 1]
    tasks = [harness.ask(group_id, commit(1)) for group_id in neighbours]
    await settle()
    assert all(isinstance(task.result(), m.CommitAnswer) for task in tasks)
    sizes = [len(writes) for _, writes in harness.store.appends]
    assert sum(sizes) == 1 + 2 * len(neighbours)
    assert 1 < len(sizes) < len(neighbours)


async def test_when_a_later_part_fails_the_parts_before_it_stand_and_their_answers_too() -> None:
    harness = await ServiceHarness(store=MemoryStore(limits=BatchLimits(writes_max=10, bytes_max=100_000))).start()
    harness.store.faults.extend([Fault.NONE, Fault.NONE, Fault.NOT_STORED])
    harness.store.append_gate.shut()
    tasks = [harness.ask("g", commit(number, partition=number)) for number in range(30)]
    await settle()
    harness.store.append_gate.let_go()
    await settle()
    stored = {number for number, task in enumerate(tasks) if isinstance(task.result(), m.CommitAnswer)}
    refused = {number for number, task in enumerate(tasks) if isinstance(task.result(), Failure)}
    assert stored
    assert refused
    assert stored | refused == set(range(30))
    assert set(await committed(harness, "g")) == stored


# --- faults of ours --------------------------------------------------------------------------------------------------


async def test_a_fault_of_the_rules_is_logged_once_and_the_group_loaded_anew(
    harness: ServiceHarness, caplog: pytest.LogCaptureFixture
) -> None:
    ids = await harness.form("g", "a", "b")
    parked = harness.ask("g", heartbeat(ids["b"], 1, wait_ms=4_000))
    await settle()
    executor = next(shard.executors["g"] for shard in harness.service._shards if "g" in shard.executors)
    executor._group.members[ids["a"]].terms = ()  # type: ignore[assignment]
    with caplog.at_level(logging.ERROR):
        assert code(await harness.now("g", heartbeat(ids["a"], 1))) is ErrorCode.UNKNOWN_SERVER_ERROR
    assert code(parked.result()) is ErrorCode.UNKNOWN_SERVER_ERROR
    assert len([record for record in caplog.records if record.exc_info]) == 1
    assert isinstance(await harness.now("g", heartbeat(ids["a"], 1)), m.HeartbeatAnswer)
    harness.assert_nothing_waits()


async def test_an_engine_that_breaks_its_contract_leaves_the_shard_in_doubt(harness: ServiceHarness) -> None:
    await harness.now("g", commit(1))

    async def broken(writes: object) -> None:
        raise ZeroDivisionError

    shard = next(shard for shard in harness.service._shards if "g" in shard.executors)
    assert shard._keyspace is not None
    shard._keyspace.append = broken  # type: ignore[method-assign]
    assert code(await harness.now("g", commit(2))) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert await committed(harness, "g") == {0: 1}


# --- restarts --------------------------------------------------------------------------------------------------------


async def test_a_restart_keeps_commits_assignments_and_generations() -> None:
    contents = MemoryContents()
    before = await ServiceHarness(contents).start()
    ids = await before.form("g", "a", "b")
    await before.now("g", commit(5, ids["a"], 1))
    after = await ServiceHarness(contents, clock=before.clock).start()
    for name, member_id in ids.items():
        assert isinstance(await after.now("g", heartbeat(member_id, 1)), m.HeartbeatAnswer)
        answer = await after.now("g", sync(member_id, 1))
        assert isinstance(answer, m.SyncAnswer)
        assert answer.assignment.value == name
    assert await committed(after, "g") == {0: 5}
    assert after.service.view.summaries["g"].state == "Stable"
    assert not any(isinstance(event, OffsetsCommitted) for event in after.watcher.events)


async def test_after_a_restart_each_member_has_one_full_session() -> None:
    before = await ServiceHarness().start()
    ids = await before.form("g", "a", "b")
    await before.clock.run(9_000)
    # Else the one before would go on, expire its members, and take the shard back to store the rebalance.
    await before.service.drain()
    after = await ServiceHarness(before.contents, clock=before.clock).start()
    await after.clock.run(9_000)
    assert isinstance(await after.now("g", heartbeat(ids["a"], 1)), m.HeartbeatAnswer)
    await after.clock.run(1_100)
    assert code(await after.now("g", heartbeat(ids["a"], 1))) is ErrorCode.REBALANCE_IN_PROGRESS
    assert code(await after.now("g", heartbeat(ids["b"], 1))) is ErrorCode.UNKNOWN_MEMBER_ID


async def test_waiting_is_cancelled_but_the_step_is_not(harness: ServiceHarness) -> None:
    harness.store.append_gate.shut()
    task = harness.ask("g", commit(7))
    await settle()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    harness.store.append_gate.let_go()
    await settle()
    assert await committed(harness, "g") == {0: 7}
    harness.assert_nothing_waits()
