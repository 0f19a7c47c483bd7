"""How a call travels: answered at once, parked with a deadline, superseded, hung up, drained; and what has no
executor.
"""

import asyncio

import pytest

from rallypoint.coordinator.core.commands import Rules
from rallypoint.coordinator.core.effects import Failure, GroupChanged, RebalanceBegan
from rallypoint.coordinator.core.records import RegistryRecord, TopicRecord
from rallypoint.coordinator.runtime import group_executor as executors
from rallypoint.coordinator.runtime.contract import NodeCapacity, SoleOwner
from rallypoint.coordinator.runtime.service import Service
from rallypoint.coordinator.storage.codec import encode
from rallypoint.coordinator.storage.contract import StoredDataInvalid
from rallypoint.coordinator.storage.memory import MemoryStore
from rallypoint.protocol import admin_messages as admin
from rallypoint.protocol import messages as m
from rallypoint.protocol.errors import ErrorCode
from rallypoint.protocol.group_hash import shard_of_group
from tests.fakes.faulty_store import Fault
from tests.fakes.manual_clock import settle
from tests.fakes.service_harness import (
    DESCRIBE,
    HERE,
    RULES,
    SHARDS,
    ServiceHarness,
    Watcher,
    code,
    commit,
    committed,
    heartbeat,
    join,
    sync,
)


@pytest.fixture
async def harness() -> ServiceHarness:
    return await ServiceHarness().start()


# --- what is told ----------------------------------------------------------------------------------------------------


async def test_changes_that_are_released_together_are_told_once(harness: ServiceHarness) -> None:
    for name in "abc":  # the first makes the group, and the others wait until that is stored
        harness.ask("g", join(name, "", group_instance_id=name))
    await settle()
    told = [event for event in harness.watcher.events if isinstance(event, GroupChanged | RebalanceBegan)]
    counts = [event.summary.member_count for event in told if isinstance(event, GroupChanged)]
    assert counts == [1, 3]
    assert isinstance(told[0], RebalanceBegan), "in its order among all that is told"
    assert harness.service.view.summaries["g"].member_count == 3


# --- parked calls ----------------------------------------------------------------------------------------------------


async def test_a_parked_call_ends_at_its_deadline_and_the_same_call_goes_on_waiting(harness: ServiceHarness) -> None:
    ids = await harness.form("g", "a", "b")
    joining = harness.ask("g", join("a", ids["a"], max_wait_ms=3_000))
    await settle()
    assert harness.service.parked_calls == 1
    await harness.clock.run(2_999)
    assert not joining.done()
    await harness.clock.run(1)
    assert isinstance(joining.result(), m.WaitingAnswer)
    harness.assert_nothing_waits()
    again = harness.ask("g", join("a", ids["a"]))
    await settle()
    assert not again.done()
    other = harness.ask("g", join("b", ids["b"]))
    await settle()
    for task in (again, other):
        answer = task.result()
        assert isinstance(answer, m.JoinAnswer)
        assert answer.generation_id == 2
    harness.assert_nothing_waits()


async def test_without_a_wait_of_its_own_a_call_is_parked_as_long_as_the_service_allows() -> None:
    rules = Rules(group_initial_rebalance_delay_ms=100_000, parked_call_max_wait_ms=5_000)
    harness = await ServiceHarness(rules=rules).start()
    member_id = await harness.new_id("g", "a")
    task = harness.ask("g", join("a", member_id))
    await harness.clock.run(4_900)
    assert not task.done()
    await harness.clock.run(100)
    assert isinstance(task.result(), m.WaitingAnswer)


async def test_a_second_call_of_a_member_takes_over_and_the_first_is_answered_at_once(harness: ServiceHarness) -> None:
    ids = await harness.form("g", "a", "b")
    first = harness.ask("g", join("a", ids["a"]))
    await settle()
    second = harness.ask("g", join("a", ids["a"]))
    await settle()
    answer = first.result()
    assert isinstance(answer, Failure)
    assert answer.superseded
    assert not second.done()
    assert harness.service.parked_calls == 1


async def test_hanging_up_takes_away_the_letter_kind_and_not_the_membership(harness: ServiceHarness) -> None:
    ids = await harness.form("g", "a", "b")
    joining = harness.ask("g", join("a", ids["a"]))
    await settle()
    joining.cancel()
    await settle()
    assert harness.service.parked_calls == 0
    other = await harness.now("g", join("b", ids["b"]))
    assert isinstance(other, m.JoinAnswer)
    assert other.generation_id == 2, "a has joined, though nobody reads its answer"
    again = await harness.now("g", join("a", ids["a"]))
    assert isinstance(again, m.JoinAnswer)
    assert again.generation_id == 2
    harness.assert_nothing_waits()


async def test_hanging_up_before_the_call_was_stepped_or_after_it_was_answered_is_no_harm(
    harness: ServiceHarness,
) -> None:
    ids = await harness.form("g", "a", "b")
    harness.store.append_gate.shut()
    writing = harness.ask("g", commit(1, ids["a"], 1))
    await settle()
    waiting_in_the_mailbox = harness.ask("g", heartbeat(ids["b"], 1, wait_ms=4_000))
    await settle()
    waiting_in_the_mailbox.cancel()
    writing.cancel()
    await settle()
    harness.store.append_gate.let_go()
    await settle()
    assert await committed(harness, "g") == {0: 1}
    harness.assert_nothing_waits()
    await harness.clock.run(4_500)
    assert isinstance(await harness.now("g", heartbeat(ids["a"], 1)), m.HeartbeatAnswer)


async def test_a_rebalance_is_told_to_whoever_waits_for_it(harness: ServiceHarness) -> None:
    ids = await harness.form("g", "a", "b")
    waiting = harness.ask("g", heartbeat(ids["b"], 1, wait_ms=4_000))
    await settle()
    await harness.now("g", m.LeaveRequest(members=(m.LeaveMember(member_id=ids["a"]),)))
    assert code(waiting.result()) is ErrorCode.REBALANCE_IN_PROGRESS
    assert isinstance(harness.watcher.events[-2], RebalanceBegan)


async def test_a_group_that_is_not_there_leaves_nothing_behind(harness: ServiceHarness) -> None:
    for request in (heartbeat("x", 1), sync("x", 1), DESCRIBE, m.FetchRequest(), join("a", "x")):
        await harness.now("nobody", request)
    assert not any(shard.executors for shard in harness.service._shards)
    assert len(harness.service._timers) == 0
    assert harness.service.view.summaries == {}
    assert harness.store.appends == []


async def test_the_mailbox_of_a_group_is_bounded() -> None:
    harness = await ServiceHarness(capacity=NodeCapacity(group_mailbox_max=5)).start()
    harness.store.append_gate.shut()
    tasks = [harness.ask("g", commit(number)) for number in range(10)]
    await settle()
    refused = [task.result() for task in tasks if task.done()]
    assert [code(answer) for answer in refused] == [ErrorCode.THROTTLING_QUOTA_EXCEEDED] * 4, "one is under way, 5 wait"
    assert {(answer.limit_name, answer.limit) for answer in refused if isinstance(answer, Failure)} == {
        ("group_mailbox_max", 5)
    }
    harness.store.append_gate.let_go()
    await settle()
    assert await committed(harness, "g") == {0: 5}


async def test_a_long_mailbox_is_done_in_slices_and_in_order() -> None:
    harness = await ServiceHarness(capacity=NodeCapacity(group_mailbox_max=100_000)).start()
    harness.store.append_gate.shut()
    count = 8 * executors.STEPS_MAX + 10
    writing = harness.ask("g", commit(0))
    await settle()
    tasks = [harness.ask("g", commit(number)) for number in range(1, count)]
    tasks += [harness.ask("g", m.FetchRequest()) for _ in range(count)]
    await settle()
    harness.store.append_gate.let_go()
    await writing
    turns = 0
    while not all(task.done() for task in tasks):
        await asyncio.sleep(0)
        turns += 1
    assert turns > 2 * count / executors.RELEASED_AT_ONCE_MAX, "their answers are released in slices"
    assert max(len(writes) for _, writes in harness.store.appends) == executors.STEPS_MAX
    last = tasks[-1].result()
    assert isinstance(last, m.FetchAnswer)
    assert last.offsets["clicks"][0].offset == count - 1


async def test_an_answer_to_a_call_that_does_not_wait_is_found_out(
    harness: ServiceHarness, caplog: pytest.LogCaptureFixture
) -> None:
    ids = await harness.form("g", "a")
    executor = next(shard.executors["g"] for shard in harness.service._shards if "g" in shard.executors)
    waiting = harness.ask("g", heartbeat(ids["a"], 1, wait_ms=4_000))
    await settle()
    call_id = next(iter(executor._waiting))
    forgotten = executor._waiting.pop(call_id)
    await harness.clock.run(5_000)
    assert f"call {call_id} does not wait, and yet it is answered" in caplog.text
    assert forgotten.answer is None
    waiting.cancel()
    assert isinstance(await harness.now("g", heartbeat(ids["a"], 1)), m.HeartbeatAnswer)


# --- starting and stopping -------------------------------------------------------------------------------------------


async def test_before_the_start_and_after_the_drain_nothing_is_served() -> None:
    harness = ServiceHarness()
    for phase in ("starting", "stopped"):
        assert harness.phase == phase
        for request in (join("a", ""), heartbeat("x", 1), commit(1), DESCRIBE):
            assert code(await harness.now("g", request)) is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert code(await harness.service.list_groups(admin.ListGroupsRequest())) is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert code(harness.service.list_topics()) is ErrorCode.COORDINATOR_NOT_AVAILABLE
        put = await harness.service.put_topic("t", m.PutTopicRequest(partitions=1))
        assert code(put) is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert code(await harness.service.delete_topic("t")) is ErrorCode.COORDINATOR_NOT_AVAILABLE
        found = harness.service.find_coordinators(m.CoordinatorRequest(group_ids=("g",))).coordinators[0]
        assert (found.node_id, found.error_name) == (None, "COORDINATOR_NOT_AVAILABLE")
        if phase == "starting":
            await harness.start()
            assert harness.phase == "ready"
            await harness.service.drain()


async def test_a_drain_answers_what_is_parked_finishes_what_is_under_way_and_gives_everything_up(
    harness: ServiceHarness,
) -> None:
    ids = await harness.form("g", "a", "b")
    parked = harness.ask("g", heartbeat(ids["b"], 1, wait_ms=4_000))
    parked_elsewhere = harness.ask("h", join("c", await harness.new_id("h", "c")))
    harness.store.append_gate.shut()
    under_way = harness.ask("g", commit(5, ids["a"], 1))
    await settle()
    queued = harness.ask("g", commit(6, ids["a"], 1))
    await settle()
    draining = harness.begin(harness.service.drain())
    await settle()
    assert code(parked.result()) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert code(queued.result()) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert not under_way.done()
    assert not draining.done()
    assert code(await harness.now("g", commit(7, ids["a"], 1))) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    harness.store.append_gate.let_go()
    await settle()
    assert isinstance(under_way.result(), m.CommitAnswer)
    assert draining.done()
    assert parked_elsewhere.done()
    assert len(harness.store.released) == SHARDS + 1
    assert (len(harness.service._timers), harness.clock.planned) == (0, 0)
    harness.assert_nothing_waits()
    await harness.service.drain()
    again = await ServiceHarness(harness.contents, clock=harness.clock).start()
    assert await committed(again, "g") == {0: 5}


@pytest.mark.parametrize("fault", [Fault.NOT_STORED, Fault.NOT_STORED_UNSURE, Fault.FENCED])
async def test_a_drain_while_the_append_under_way_fails_answers_all_the_same(
    harness: ServiceHarness, fault: Fault
) -> None:
    harness.store.append_gate.shut()
    harness.store.faults.append(fault)
    under_way = harness.ask("g", commit(5))
    await settle()
    draining = harness.begin(harness.service.drain())
    await settle()
    harness.store.append_gate.let_go()
    await settle()
    assert isinstance(under_way.result(), Failure)
    assert draining.done()
    assert harness.phase == "stopped"
    assert len(harness.store.acquired) == SHARDS + 1, "it is not taken again"
    assert harness.clock.planned == 0
    harness.assert_nothing_waits()


async def test_a_drain_during_the_load_ends_the_load() -> None:
    harness = ServiceHarness()
    harness.store.scan_gate.shut()
    starting = harness.begin(harness.service.start())
    await settle()
    assert harness.phase == "loading"
    harness.store.scan_gate.let_go()
    harness.store.acquire_gate.shut()
    await settle()
    draining = harness.begin(harness.service.drain())
    await settle()
    assert starting.done()
    assert draining.done()
    assert harness.phase == "stopped"


# --- lists -----------------------------------------------------------------------------------------------------------


async def test_the_list_comes_by_pages_in_order_and_filtered(harness: ServiceHarness) -> None:
    for name in ("b/2", "a/1", "b/1", "c", "b/3"):
        await harness.now(name, commit(1))
    await harness.form("live", "x")

    async def page(**wanted: object) -> tuple[list[str], str | None]:
        answer = await harness.service.list_groups(admin.ListGroupsRequest.model_validate(wanted))
        assert isinstance(answer, admin.ListGroupsAnswer)
        return [group.group_id for group in answer.groups], answer.next_cursor

    assert await page() == (["a/1", "b/1", "b/2", "b/3", "c", "live"], None)
    assert await page(limit=4) == (["a/1", "b/1", "b/2", "b/3"], "b/3")
    assert await page(limit=4, cursor="b/3") == (["c", "live"], None)
    assert await page(limit=2, prefix="b/") == (["b/1", "b/2"], "b/2")
    assert await page(limit=1, prefix="b/", cursor="b/2") == (["b/3"], None)
    assert await page(state="sTABLE") == (["live"], None)
    assert await page(state="dead") == ([], None)
    refused = await harness.service.list_groups(admin.ListGroupsRequest(state="nonsense"))
    assert code(refused) is ErrorCode.INVALID_REQUEST
    assert isinstance(refused, Failure)
    assert refused.field == "state"
    assert "PreparingRebalance" in refused.detail
    assert await page(limit=6) == (["a/1", "b/1", "b/2", "b/3", "c", "live"], None)


async def test_the_registry_comes_by_pages_in_order_and_filtered(harness: ServiceHarness) -> None:
    for name in ("b/2", "a/1", "b/1", "c", "b/3"):
        await harness.service.put_topic(name, m.PutTopicRequest(partitions=1))

    def page(**wanted: object) -> tuple[list[str], str | None]:
        answer = harness.service.list_topics(m.ListTopicsRequest.model_validate(wanted))
        assert isinstance(answer, m.ListTopicsAnswer)
        assert answer.version == 5
        return [topic.topic for topic in answer.topics], answer.next_cursor

    assert page() == (["a/1", "b/1", "b/2", "b/3", "c"], None)
    assert page(limit=4) == (["a/1", "b/1", "b/2", "b/3"], "b/3")
    assert page(limit=4, cursor="b/3") == (["c"], None)
    assert page(limit=2, prefix="b/") == (["b/1", "b/2"], "b/2")
    assert page(limit=1, prefix="b/", cursor="b/2") == (["b/3"], None)
    assert page(limit=5) == (["a/1", "b/1", "b/2", "b/3", "c"], None)
    assert page(prefix="x") == ([], None)


async def test_a_listing_says_what_the_group_is(harness: ServiceHarness) -> None:
    await harness.form("live", "x", "y")
    answer = await harness.service.list_groups(admin.ListGroupsRequest())
    assert isinstance(answer, admin.ListGroupsAnswer)
    assert answer.groups == (
        admin.GroupListing(
            group_id="live",
            state="Stable",
            protocol_type="consumer",
            member_count=2,
            generation_id=1,
            topics=("clicks",),
            topic_count=1,
            rebalance_id=1,
            last_rebalance_at_ms=harness.clock.now_ms(),
            idle_member_count=2,
        ),
    )


# --- topics ----------------------------------------------------------------------------------------------------------


async def test_a_grown_topic_rebalances_its_subscribers_and_nobody_else(harness: ServiceHarness) -> None:
    await harness.service.put_topic("clicks", m.PutTopicRequest(partitions=4))
    ids = await harness.form("g", "a")
    await harness.now("simple", commit(1))
    waiting = harness.ask("g", heartbeat(ids["a"], 1, wait_ms=4_000))
    await settle()
    await harness.service.put_topic("orders", m.PutTopicRequest(partitions=4))
    await harness.service.put_topic("clicks", m.PutTopicRequest(partitions=4, end_offsets={0: 9}))
    await settle()
    assert not waiting.done()
    grown = await harness.service.put_topic("clicks", m.PutTopicRequest(partitions=5))
    assert isinstance(grown, m.Topic)
    assert (grown.partitions, grown.version, grown.end_offsets) == (5, 4, {0: 9})
    await settle()
    assert code(waiting.result()) is ErrorCode.REBALANCE_IN_PROGRESS
    assert [type(event) for event in harness.watcher.events].count(RebalanceBegan) == 2


async def test_racks_alone_rebalance_nobody_and_outlive_a_restart(harness: ServiceHarness) -> None:
    await harness.service.put_topic("clicks", m.PutTopicRequest(partitions=2))
    ids = await harness.form("g", "a")
    waiting = harness.ask("g", heartbeat(ids["a"], 1, wait_ms=4_000))
    await settle()
    put = await harness.service.put_topic("clicks", m.PutTopicRequest(partitions=2, replica_racks=(("x",), ("y",))))
    assert isinstance(put, m.Topic)
    await settle()
    assert not waiting.done()
    assert [type(event) for event in harness.watcher.events].count(RebalanceBegan) == 1
    after = await ServiceHarness(harness.contents).start()
    listed = after.service.list_topics()
    assert isinstance(listed, m.ListTopicsAnswer)
    assert listed.topics == (put,)
    assert put.replica_racks == (("x",), ("y",))


async def test_the_registry_outlives_a_restart_and_a_change_that_failed_leaves_no_trace(
    harness: ServiceHarness,
) -> None:
    await harness.service.put_topic("clicks", m.PutTopicRequest(partitions=4))
    for fault in (Fault.NOT_STORED, Fault.NOT_STORED_UNSURE, Fault.FENCED):
        harness.store.faults.append(fault)
        refused = await harness.service.put_topic("x", m.PutTopicRequest(partitions=1))
        assert code(refused) is ErrorCode.COORDINATOR_NOT_AVAILABLE
        await harness.clock.run(1_000)
        listed = harness.service.list_topics()
        assert isinstance(listed, m.ListTopicsAnswer)
        assert [topic.topic for topic in listed.topics] == ["clicks"]
    harness.store.faults.append(Fault.STORED_UNSURE)
    assert (
        code(await harness.service.put_topic("x", m.PutTopicRequest(partitions=1)))
        is ErrorCode.COORDINATOR_NOT_AVAILABLE
    )
    await harness.clock.run(1_000)
    after = await ServiceHarness(harness.contents).start()
    for service in (harness.service, after.service):
        listed = service.list_topics()
        assert isinstance(listed, m.ListTopicsAnswer)
        assert [(topic.topic, topic.version) for topic in listed.topics] == [("clicks", 1), ("x", 2)]
        assert listed.version == 2
    assert isinstance(await after.service.delete_topic("x"), m.DeletedTopic)
    assert code(await after.service.delete_topic("x")) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_a_change_of_the_registry_is_answered_when_it_is_durable_and_is_not_undone_by_hanging_up(
    harness: ServiceHarness,
) -> None:
    harness.store.append_gate.shut()
    task = harness.begin(harness.service.put_topic("clicks", m.PutTopicRequest(partitions=4)))
    await settle()
    assert not task.done()
    listed = harness.service.list_topics()
    assert isinstance(listed, m.ListTopicsAnswer)
    assert listed.topics == ()
    task.cancel()
    harness.store.append_gate.let_go()
    await settle()
    listed = harness.service.list_topics()
    assert isinstance(listed, m.ListTopicsAnswer)
    assert [topic.topic for topic in listed.topics] == ["clicks"]


async def test_a_topic_that_grew_just_before_a_crash_is_still_noticed_after_the_load(harness: ServiceHarness) -> None:
    await harness.service.put_topic("clicks", m.PutTopicRequest(partitions=4))
    ids = await harness.form("g", "a")
    store = harness.store.store
    keyspace = await store.acquire("topics")
    await keyspace.append([encode(TopicRecord("clicks", 6, 2)), encode(RegistryRecord(2))])
    after = await ServiceHarness(harness.contents, clock=harness.clock).start()
    assert code(await after.now("g", heartbeat(ids["a"], 1))) is ErrorCode.REBALANCE_IN_PROGRESS


async def test_a_topic_that_grows_while_a_shard_is_loaded_is_noticed_by_its_groups(harness: ServiceHarness) -> None:
    """Those that are read already cannot be written yet, so they are told nothing: they look when they begin."""
    await harness.service.put_topic("clicks", m.PutTopicRequest(partitions=4))
    first, second = [name for name in map(str, range(100)) if shard_of_group(name, SHARDS) == 0][:2]
    ids = {group_id: (await harness.form(group_id, "a"))["a"] for group_id in (first, second)}
    after = ServiceHarness(harness.contents, clock=harness.clock)
    after.store.page_rows = 1
    after.store.page_gate.shut()
    starting = after.begin(after.service.start())
    await settle()
    # A header and a member each: with the header of the second group the first one is there.
    for _ in range(2):
        after.store.page_gate.let_one_by()
        await settle()
    await after.service.put_topic("clicks", m.PutTopicRequest(partitions=5))
    await settle()
    after.store.page_gate.let_go()
    await starting
    for group_id, member_id in ids.items():
        assert code(await after.now(group_id, heartbeat(member_id, 1))) is ErrorCode.REBALANCE_IN_PROGRESS


async def test_a_store_is_refused_to_a_service_with_another_number_of_shards(harness: ServiceHarness) -> None:
    await harness.now("g", commit(5))
    store = MemoryStore(harness.contents)
    other = Service(
        store,
        clock=harness.clock,
        ownership=SoleOwner(HERE),
        address=HERE,
        rules=RULES,
        shards=SHARDS + 1,
        draw_id=lambda: "x",
        observer=Watcher(),
    )
    with pytest.raises(StoredDataInvalid, match="made with 4 shards, and the setting is 5"):
        await other.start()
    after = await ServiceHarness(harness.contents).start()
    fetched = await after.now("g", m.FetchRequest())
    assert isinstance(fetched, m.FetchAnswer)
    assert fetched.offsets["clicks"][0].offset == 5


async def test_lag_is_the_end_minus_the_commit_where_both_are_known(harness: ServiceHarness) -> None:
    await harness.now("g", commit(5, partition=0))
    await harness.now("g", commit(50, partition=1))
    await harness.now("g", commit(7, partition=2))
    assert harness.service.view.lag("g") is None
    await harness.service.put_topic("clicks", m.PutTopicRequest(partitions=3, end_offsets={0: 12, 1: 40}))
    assert harness.service.view.lag("g") == 7
    assert harness.service.view.lag("nobody") is None
    answer = await harness.now("g", DESCRIBE)
    assert isinstance(answer, admin.DescribeAnswer)
    shown = {p: (o.offset, o.end_offset, o.lag) for p, o in answer.offsets["clicks"].items()}
    assert shown == {0: (5, 12, 7), 1: (50, 40, 0), 2: (7, None, None)}
    fetched = await harness.now("g", m.FetchRequest())
    assert isinstance(fetched, m.FetchAnswer)
    assert fetched.offsets["clicks"][0].lag is None
    after = await ServiceHarness(harness.contents).start()
    assert after.service.view.lag("g") == 7


async def test_two_calls_at_once_have_one_order(harness: ServiceHarness) -> None:
    answers = await asyncio.gather(*(harness.service.call("g", commit(n), host="h") for n in range(20)))
    assert all(isinstance(answer, m.CommitAnswer) for answer in answers)
    assert await committed(harness, "g") == {0: 19}


# --- what is known before a call is read -----------------------------------------------------------------------------


async def test_a_large_sync_is_wanted_only_where_the_group_has_a_generation_for_it() -> None:
    harness = ServiceHarness()
    asked = harness.service.refuse_assignments

    def refusal() -> ErrorCode | None:
        failure = asked("g")
        return None if failure is None else failure.code

    assert refusal() is ErrorCode.COORDINATOR_NOT_AVAILABLE
    await harness.start()
    assert refusal() is ErrorCode.UNKNOWN_MEMBER_ID
    ids = await harness.form("g", "a", "b")
    assert refusal() is None
    joining = harness.ask("g", join("a", ids["a"]))
    await settle()
    assert not joining.done()
    assert refusal() is ErrorCode.REBALANCE_IN_PROGRESS
    other = harness.ask("g", join("b", ids["b"]))
    await settle()
    assert other.done()
    assert refusal() is None
    await harness.service.drain()
    assert refusal() is ErrorCode.COORDINATOR_NOT_AVAILABLE
