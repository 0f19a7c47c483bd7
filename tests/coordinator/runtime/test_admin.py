"""What operators ask of a running service: durable before it is answered, and then gone from everywhere."""

from dataclasses import replace

from rallypoint.coordinator.core.commands import DeleteGroupRequest, ListRebalancesRequest, Trigger
from rallypoint.coordinator.core.effects import GroupRemoved, OffsetsRemoved, RebalanceBegan, Removal
from rallypoint.protocol import admin_messages as admin
from rallypoint.protocol import messages as m
from rallypoint.protocol.errors import ErrorCode
from tests.fakes.faulty_store import Fault
from tests.fakes.manual_clock import settle
from tests.fakes.service_harness import DESCRIBE, RULES, ServiceHarness, code, commit, committed, heartbeat

DELETE = DeleteGroupRequest()


async def test_a_deleted_group_is_gone_from_lists_executors_and_the_store() -> None:
    harness = await ServiceHarness().start()
    await harness.now("g", commit(7))
    await harness.now("h", commit(8))
    harness.store.append_gate.shut()
    deleting = harness.ask("g", DELETE)
    reading = harness.ask("g", m.FetchRequest())
    await settle()
    assert not deleting.done(), "it would be answered before it is durable"
    assert not reading.done()
    assert set(harness.service.view.summaries) == {"g", "h"}
    harness.store.append_gate.let_go()
    await settle()
    assert deleting.result() == admin.DeletedGroup(group_id="g")
    assert reading.result() == m.FetchAnswer(offsets={})
    assert set(harness.service.view.summaries) == {"h"}
    assert [group_id for shard in harness.service._shards for group_id in shard.executors] == ["h"]
    assert code(await harness.now("g", DESCRIBE)) is ErrorCode.GROUP_ID_NOT_FOUND
    assert code(await harness.now("g", DELETE)) is ErrorCode.GROUP_ID_NOT_FOUND
    assert any(isinstance(event, GroupRemoved) for event in harness.watcher.events)
    listed = await harness.service.list_groups(admin.ListGroupsRequest())
    assert isinstance(listed, admin.ListGroupsAnswer)
    assert [group.group_id for group in listed.groups] == ["h"]
    after = await ServiceHarness(harness.contents, clock=harness.clock).start()
    assert set(after.service.view.summaries) == {"h"}
    assert await committed(after, "g") == {}


async def test_a_group_made_while_its_deletion_is_stored_is_there_afterwards() -> None:
    harness = await ServiceHarness().start()
    await harness.now("g", commit(7))
    harness.store.append_gate.shut()
    deleting = harness.ask("g", DELETE)
    await settle()
    writing = harness.ask("g", commit(9, partition=1))
    await settle()
    harness.store.append_gate.let_go()
    await settle()
    assert (type(deleting.result()), type(writing.result())) == (admin.DeletedGroup, m.CommitAnswer)
    assert await committed(harness, "g") == {1: 9}
    assert harness.service.view.summaries["g"].state == "Empty"
    after = await ServiceHarness(harness.contents, clock=harness.clock).start()
    assert await committed(after, "g") == {1: 9}


async def test_between_a_deletion_and_what_follows_nobody_sees_a_dead_group() -> None:
    """The executor has more to do, so it does not end with its group."""
    harness = await ServiceHarness().start()
    await harness.now("g", commit(7))
    harness.store.append_gate.shut()
    deleting = harness.ask("g", DELETE)
    await settle()
    writing = harness.ask("g", commit(9))
    await settle()
    harness.store.append_gate.let_go()
    harness.store.append_gate.shut()
    await settle()
    assert deleting.result() == admin.DeletedGroup(group_id="g")
    assert not writing.done()
    assert harness.service.view.summaries == {}
    harness.store.append_gate.let_go()
    await settle()
    assert harness.service.view.summaries["g"].state == "Empty"


async def test_deleted_offsets_are_gone_from_the_lag_and_the_store() -> None:
    harness = await ServiceHarness().start()
    await harness.service.put_topic("clicks", m.PutTopicRequest(partitions=2, end_offsets={0: 100, 1: 100}))
    await harness.now("g", commit(40, partition=1))
    assert harness.service.view.lag("g") == 60
    harness.store.append_gate.shut()
    deleting = harness.ask("g", admin.DeleteOffsetsRequest(topics=("clicks",)))
    await settle()
    assert not deleting.done()
    assert harness.service.view.lag("g") == 60
    harness.store.append_gate.let_go()
    await settle()
    none = m.PartitionResult(error_code=0, error_name="NONE")
    assert deleting.result() == admin.DeleteOffsetsAnswer(offsets={"clicks": {1: none}})
    assert harness.service.view.lag("g") is None
    after = await ServiceHarness(harness.contents, clock=harness.clock).start()
    assert await committed(after, "g") == {}
    assert set(after.service.view.summaries) == {"g"}, "the group is still there, Empty"


async def test_what_expires_is_stored_before_it_is_seen_and_leaves_no_executor_and_no_timer() -> None:
    rules = replace(RULES, offsets_retention_ms=60_000, offsets_retention_check_interval_ms=1_000)
    harness = await ServiceHarness(rules=rules).start()
    await harness.service.put_topic("clicks", m.PutTopicRequest(partitions=2, end_offsets={0: 100, 1: 100}))
    await harness.now("g", commit(10))
    await harness.clock.run(30_000)
    await harness.now("g", commit(20, partition=1))
    await harness.clock.run(31_000)
    assert await committed(harness, "g") == {1: 20}
    assert harness.service.view.lag("g") == 80
    harness.store.append_gate.shut()
    await harness.clock.run(31_000)
    assert harness.service.view.lag("g") == 80
    assert set(harness.service.view.summaries) == {"g"}
    harness.store.append_gate.let_go()
    await settle()
    assert harness.service.view.summaries == {}
    assert not any(shard.executors for shard in harness.service._shards)
    assert len(harness.service._timers) == 0
    assert [event for event in harness.watcher.events if isinstance(event, OffsetsRemoved | GroupRemoved)] == [
        OffsetsRemoved("g", (("clicks", 0),), Removal.EXPIRED),
        OffsetsRemoved("g", (("clicks", 1),), Removal.EXPIRED),
        GroupRemoved("g", Removal.EXPIRED),
    ]
    after = await ServiceHarness(harness.contents, clock=harness.clock).start()
    assert after.service.view.summaries == {}


async def test_a_reset_goes_by_the_ends_that_were_reported_and_is_durable() -> None:
    harness = await ServiceHarness().start()
    await harness.now("g", commit(10))
    await harness.service.put_topic("clicks", m.PutTopicRequest(partitions=2, end_offsets={0: 100}))
    latest = admin.ResetOffsetsRequest(to="latest", topics={"clicks": (0,)})
    harness.store.append_gate.shut()
    resetting = harness.ask("g", latest)
    await settle()
    assert not resetting.done()
    assert harness.service.view.lag("g") == 90
    harness.store.append_gate.let_go()
    await settle()
    result = admin.PartitionReset(before=10, after=100, error_code=0, error_name="NONE")
    assert resetting.result() == admin.ResetOffsetsAnswer(dry_run=False, offsets={"clicks": {0: result}})
    assert harness.service.view.lag("g") == 0
    appends = len(harness.store.appends)
    trying = await harness.now("g", latest.model_copy(update={"dry_run": True}))
    assert isinstance(trying, admin.ResetOffsetsAnswer)
    assert len(harness.store.appends) == appends, "a dry run stores nothing"
    after = await ServiceHarness(harness.contents, clock=harness.clock).start()
    assert await committed(after, "g") == {0: 100}


async def test_what_is_not_durable_of_a_rebalance_is_not_shown() -> None:
    harness = await ServiceHarness().start()
    ids = await harness.form("g", "a", "b")
    harness.store.append_gate.shut()
    leaving = harness.ask("g", m.LeaveRequest(members=(m.LeaveMember(member_id=ids["b"]),)))
    listing = harness.ask("g", ListRebalancesRequest())
    beating = harness.ask("g", heartbeat(ids["a"], 1))
    await settle()
    assert not any(task.done() for task in (leaving, listing, beating))
    assert not any(isinstance(e, RebalanceBegan) and e.trigger is Trigger.MEMBER_LEFT for e in harness.watcher.events)
    harness.store.append_gate.let_go()
    await settle()
    shown = listing.result()
    assert isinstance(shown, admin.ListRebalancesAnswer)
    assert (shown.rebalances[0].trigger, shown.rebalances[0].outcome) == ("member_left", "in_progress")
    assert [x.member_id for x in shown.rebalances[0].awaited] == [ids["a"]]


async def test_a_restart_does_not_thaw_and_the_list_is_there() -> None:
    harness = await ServiceHarness().start()
    ids = await harness.form("g", "a", "b")
    frozen = await harness.now("g", admin.FreezeRequest(duration_ms=60_000, reason="deploy"))
    assert isinstance(frozen, admin.FreezeAnswer)
    await harness.now("g", m.LeaveRequest(members=(m.LeaveMember(member_id=ids["b"]),)))
    before = await harness.now("g", ListRebalancesRequest())
    assert (harness.service.view.summaries["g"].frozen_until_ms, harness.service.view.summaries["g"].held_count) == (
        frozen.frozen_until_ms,
        1,
    )
    await harness.service.drain()
    after = await ServiceHarness(harness.contents, clock=harness.clock).start()
    assert isinstance(before, admin.ListRebalancesAnswer)
    restored = await after.now("g", ListRebalancesRequest())
    assert isinstance(restored, admin.ListRebalancesAnswer)
    assert [row.rebalance_id for row in restored.rebalances] == [row.rebalance_id for row in before.rebalances]
    assert [row.joined for row in restored.rebalances] == [None]
    assert after.service.view.summaries["g"].frozen_until_ms == frozen.frozen_until_ms
    listed = await after.service.list_groups(admin.ListGroupsRequest())
    assert isinstance(listed, admin.ListGroupsAnswer)
    assert listed.groups[0].frozen_until_ms == frozen.frozen_until_ms
    for _ in range(7):
        assert isinstance(await after.now("g", heartbeat(ids["a"], 1)), m.HeartbeatAnswer)
        await after.clock.run(8_000)
    assert after.service.view.summaries["g"].held_count == 1, "who had left has expired"
    assert isinstance(await after.now("g", heartbeat(ids["a"], 1)), m.HeartbeatAnswer)
    await after.clock.run(4_100)
    assert code(await after.now("g", heartbeat(ids["a"], 1))) is ErrorCode.REBALANCE_IN_PROGRESS
    assert after.service.view.summaries["g"].frozen_until_ms is None


async def test_a_freeze_that_cannot_be_stored_holds_nothing() -> None:
    harness = await ServiceHarness().start()
    ids = await harness.form("g", "a", "b")
    harness.store.faults.append(Fault.NOT_STORED)
    assert code(await harness.now("g", admin.FreezeRequest(duration_ms=60_000))) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    await harness.now("g", m.LeaveRequest(members=(m.LeaveMember(member_id=ids["b"]),)))
    assert harness.service.view.summaries["g"].state == "PreparingRebalance"
