"""Several nodes share the groups: each group is served by one, and goes on when that one stops, dies or is cut off."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from itertools import count

import pytest

from rallypoint.coordinator.core.cluster.decide import (
    HAND_OVERS_AT_ONCE_MAX,
    MOVED_MEMBER_MS,
    SETTLE_MS,
    TRIED_AGAIN_MS,
    TURN_MS,
)
from rallypoint.coordinator.core.effects import Failure, GroupUnloaded
from rallypoint.coordinator.main import drain, give_up_everything, hand_over_everything
from rallypoint.coordinator.runtime.cluster.member_node import LEASE_LOOKED_AT_MS, OPENING_MAX_MS
from rallypoint.coordinator.runtime.condition import ShardState
from rallypoint.coordinator.runtime.contract import NodeAddress, NodeCapacity
from rallypoint.coordinator.runtime.shard import SLICE
from rallypoint.coordinator.storage.cluster_codec import decode_announcement
from rallypoint.coordinator.storage.contract import AppendDoubtful, Fenced, StoredDataInvalid, shard_keyspace
from rallypoint.coordinator.storage.shared_contract import Owner
from rallypoint.protocol import admin_messages as admin
from rallypoint.protocol import messages as m
from rallypoint.protocol.errors import ErrorCode
from rallypoint.protocol.group_hash import shard_of_group
from tests.coordinator.runtime.test_connection_registry import Channel
from tests.fakes.cluster_harness import SHARDS, Cluster, ClusterNode, beat
from tests.fakes.manual_clock import settle
from tests.fakes.service_harness import commit, join


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    made = Cluster()
    yield made
    await made.end()


async def test_one_node_takes_everything(cluster: Cluster) -> None:
    await cluster.start("n1", quiet_ms=0)
    cluster.check_owned_once()
    assert cluster["n1"].service.phase == "ready"


async def test_a_node_is_ready_when_every_shard_has_an_owner_or_it_has_waited_for_long(cluster: Cluster) -> None:
    cluster.contents.owners["shard-3"] = Owner("stranger", 1)
    cluster.contents.leases["stranger"] = 0
    await cluster.start("n1", quiet_ms=0)
    assert cluster["n1"].service.phase == "ready", "somebody owns the shard"
    await cluster["n1"].cut_short()
    await cluster.start("n1", "n2", quiet_ms=0)
    cluster.contents.owners.pop("shard-3")
    cluster["n1"].store.is_cut = True
    await cluster.start("n3", quiet_ms=OPENING_MAX_MS - 100)
    assert cluster["n3"].service.phase in {"loading", "ready"}
    await cluster.clock.run(100)
    assert cluster["n3"].service.phase == "ready"


async def test_nodes_share_the_shards_evenly(cluster: Cluster) -> None:
    await cluster.start("n1", "n2", "n3")
    cluster.check_owned_once()
    assert sorted(len(node.shards) for node in cluster.nodes.values()) == [4, 4, 4]


@pytest.mark.parametrize("late", [None, b"an earlier announcement"])
async def test_a_node_announces_itself_again_if_an_earlier_write_takes_effect_late(
    cluster: Cluster, late: bytes | None
) -> None:
    await cluster.start("n1", "n2")
    announced = cluster.contents.nodes["n1"]
    if late is None:
        del cluster.contents.nodes["n1"]
    else:
        cluster.contents.nodes["n1"] = late
    cluster.contents.change()
    await cluster.clock.run(1_000)
    assert cluster.contents.nodes["n1"] == announced
    revision = cluster.contents.revision
    await cluster.clock.run(10_000)
    assert cluster.contents.revision == revision, "it announces itself once"


async def test_a_group_goes_on_when_its_node_dies(cluster: Cluster) -> None:
    await cluster.start("n1", "n2", "n3")
    group_id = cluster.group_on("n2")
    member_id, generation_id = await cluster.form(group_id)
    assert isinstance(await cluster["n2"].ask(group_id, commit(7, member_id, generation_id)), m.CommitAnswer)
    dead = cluster.nodes.pop("n2")
    dead.store.is_cut = True
    cluster.contents.run_out("n2")
    await cluster.clock.run(TURN_MS)
    cluster.check_owned_once()
    owner = cluster.coordinator_of(group_id)
    assert isinstance(await owner.ask(group_id, beat(member_id, generation_id)), m.HeartbeatAnswer)
    fetched = await owner.ask(group_id, m.FetchRequest())
    assert fetched.offsets["clicks"][0].offset == 7
    await dead.member.close()
    await dead.store.close()


async def test_a_stop_hands_everything_over_without_a_rebalance(cluster: Cluster) -> None:
    await cluster.start("n1", "n2", "n3")
    group_id = cluster.group_on("n2")
    member_id, generation_id = await cluster.form(group_id)
    before = cluster.contents.revision
    await cluster["n2"].stop()
    cluster.check_owned_once()
    owner = cluster.coordinator_of(group_id)
    assert isinstance(await owner.ask(group_id, beat(member_id, generation_id)), m.HeartbeatAnswer)
    assert cluster.contents.revision > before


async def test_who_calls_the_former_owner_is_sent_to_the_new_one(cluster: Cluster) -> None:
    await cluster.start("n1", "n2")
    group_id = cluster.group_on("n2")
    member_id, generation_id = await cluster.form(group_id)
    shard = next(shard for shard in cluster["n2"].shards if shard in cluster["n2"].shards)
    assert isinstance(await cluster["n1"].member.drain_node("n2", draining=True), admin.ClusterNode)
    await cluster.clock.run(1_000)
    assert shard in cluster["n1"].shards
    assert cluster["n2"].shards == set()
    answer = await cluster["n2"].ask(group_id, beat(member_id, generation_id))
    assert isinstance(answer, Failure)
    assert (answer.code, answer.node_id, answer.url) == (ErrorCode.NOT_COORDINATOR, "n1", "http://n1")
    described = cluster["n2"].member.describe_cluster()
    assert isinstance(described, admin.ClusterAnswer)
    assert [(node.node_id, node.state, node.shards) for node in described.nodes] == [
        ("n1", "live", SHARDS),
        ("n2", "draining", 0),
    ]
    assert isinstance(await cluster["n2"].member.drain_node("n2", draining=False), admin.ClusterNode)
    await cluster.clock.run(10_000)
    assert len(cluster["n2"].shards) == SHARDS // 2


async def test_a_call_that_waits_is_told_where_its_group_went(cluster: Cluster) -> None:
    await cluster.start("n1", "n2")
    group_id = cluster.group_on("n2")
    member_id, generation_id = await cluster.form(group_id)
    waiting = asyncio.create_task(
        cluster["n2"].service.call(
            group_id,
            m.HeartbeatRequest(generation_id=generation_id, member_id=member_id, wait_ms=3_000),
            host="198.51.100.7",
        )
    )
    await settle()
    assert not waiting.done()
    await cluster["n2"].member.drain_node("n2", draining=True)
    await cluster.clock.run(500)
    answer = waiting.result()
    assert isinstance(answer, Failure)
    assert (answer.code, answer.url) == (ErrorCode.NOT_COORDINATOR, "http://n1")


async def test_nothing_is_told_from_memory_past_the_deadline(cluster: Cluster) -> None:
    await cluster.start("n1")
    group_id = cluster.group_on("n1")
    member_id, generation_id = await cluster.form(group_id)
    store = cluster["n1"].store
    store.is_cut = store.is_past_deadline = True
    for request in (beat(member_id, generation_id), beat("stranger", 1), m.FetchRequest()):
        answer = await cluster["n1"].ask(group_id, request)
        assert isinstance(answer, Failure)
        assert answer.code is ErrorCode.COORDINATOR_NOT_AVAILABLE
    store.is_cut = store.is_past_deadline = False
    assert isinstance(await cluster["n1"].ask(group_id, beat(member_id, generation_id)), m.HeartbeatAnswer)


async def test_a_node_that_was_away_for_too_long_drops_what_it_had(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    await cluster.start("n1", "n2")
    group_id = cluster.group_on("n2")
    member_id, generation_id = await cluster.form(group_id)
    away = cluster["n2"]
    away.store.is_cut = away.store.is_past_deadline = True
    cluster.contents.run_out("n2")
    await cluster.clock.run(1_000)
    owner = cluster.coordinator_of(group_id)
    assert owner.node_id == "n1"
    away.store.is_cut = False
    cluster.contents.change()
    away.store.take_new_lease()
    await cluster.clock.run(SETTLE_MS - 100)
    assert away.shards == set()
    assert away.member.counts.lost > 0
    assert [record.getMessage() for record in caplog.records if record.levelname == "ERROR"] == []
    await cluster.clock.run(5_000)
    cluster.check_owned_once()
    assert cluster.coordinator_of(group_id) is away
    assert isinstance(await away.ask(group_id, beat(member_id, generation_id)), m.HeartbeatAnswer)


async def test_a_node_that_joins_moves_its_share_and_no_more(cluster: Cluster) -> None:
    await cluster.start("n1", "n2", "n3")
    before = {shard: node.node_id for node in cluster.nodes.values() for shard in node.shards}
    await cluster.start("n4")
    cluster.check_owned_once()
    after = {shard: node.node_id for node in cluster.nodes.values() for shard in node.shards}
    moved = {shard for shard in after if after[shard] != before[shard]}
    assert {after[shard] for shard in moved} == {"n4"}
    assert len(moved) == SHARDS // 4


async def test_a_shard_is_moved_by_hand(cluster: Cluster) -> None:
    await cluster.start("n1", "n2")
    shard = min(cluster["n1"].shards)
    moved = await cluster["n1"].member.move_shard(shard, "n2")
    assert isinstance(moved, admin.ClusterShard)
    assert moved.nodes == ("n2", "n1")
    await cluster.clock.run(1_000)
    assert shard in cluster["n2"].shards
    cluster.check_owned_once()


@pytest.mark.parametrize("node_id", ["n1", "n2"])
async def test_what_cannot_be_moved_drained_or_removed_is_refused(cluster: Cluster, node_id: str) -> None:
    await cluster.start("n1", "n2")
    member = cluster[node_id].member
    for answer in (
        await member.move_shard(0, "n9"),
        await member.drain_node("n9", draining=True),
        await member.remove_node("n9"),
    ):
        assert isinstance(answer, Failure)
        assert (answer.code, answer.field) == (ErrorCode.BROKER_ID_NOT_REGISTERED, "node_id")
    running = await member.remove_node("n1")
    assert isinstance(running, Failure)
    assert (running.code, running.field) == (ErrorCode.INVALID_REQUEST, "node_id")
    beyond = await member.move_shard(SHARDS, "n1")
    assert isinstance(beyond, Failure)
    assert (beyond.code, beyond.field) == (ErrorCode.INVALID_REQUEST, "shard")


async def test_a_node_that_is_gone_can_be_removed(cluster: Cluster) -> None:
    await cluster.start("n1", "n2", "n3")
    await cluster["n3"].stop()
    gone = await cluster["n1"].member.remove_node("n3")
    assert isinstance(gone, admin.ClusterNode)
    await cluster.clock.run(5_000)
    described = cluster["n2"].member.describe_cluster()
    assert isinstance(described, admin.ClusterAnswer)
    assert [node.node_id for node in described.nodes] == ["n1", "n2"]
    assert all(set(shard.nodes) == {"n1", "n2"} for shard in described.shards)
    assert sorted(len(node.shards) for node in cluster.nodes.values()) == [6, 6]


async def test_topics_are_changed_by_one_node_and_known_to_all(cluster: Cluster) -> None:
    await cluster.start("n1", "n2", "n3")
    (owner,) = (node for node in cluster.nodes.values() if node.has_registry)
    for node in cluster.nodes.values():
        if node is not owner:
            answer = await node.service.put_topic("clicks", m.PutTopicRequest(partitions=3))
            assert isinstance(answer, Failure)
            assert (answer.code, answer.url) == (ErrorCode.NOT_COORDINATOR, f"http://{owner.node_id}")
    assert isinstance(await owner.service.put_topic("clicks", m.PutTopicRequest(partitions=3)), m.Topic)
    await settle()
    for node in cluster.nodes.values():
        listed = node.service.list_topics()
        assert isinstance(listed, m.ListTopicsAnswer)
        assert [(topic.topic, topic.partitions) for topic in listed.topics] == [("clicks", 3)]
    await owner.stop()
    (successor,) = (node for node in cluster.nodes.values() if node.has_registry)
    assert isinstance(await successor.service.put_topic("clicks", m.PutTopicRequest(partitions=5)), m.Topic)
    assert isinstance(await successor.service.delete_topic("clicks"), m.DeletedTopic)
    await settle()
    for node in cluster.nodes.values():
        listed = node.service.list_topics()
        assert isinstance(listed, m.ListTopicsAnswer)
        assert listed.topics == ()


async def test_a_deletion_is_remembered_until_every_node_has_seen_it(cluster: Cluster) -> None:
    await cluster.start("n1", "n2")
    (owner,) = (node for node in cluster.nodes.values() if node.has_registry)
    (other,) = (node for node in cluster.nodes.values() if node is not owner)
    group_id = cluster.group_on(other.node_id)
    member_id, generation_id = await cluster.form(group_id)
    await owner.service.put_topic("clicks", m.PutTopicRequest(partitions=1))
    await settle()
    await other.ask(group_id, commit(7, member_id, generation_id))
    other.store.is_cut = True
    await owner.service.delete_topic("clicks")
    await cluster.clock.run(120_000)
    assert b"x/clicks" in cluster.contents.values["topics"], "a node that is cut off has not seen it"
    other.store.is_cut = False
    cluster.contents.change()
    await cluster.clock.run(180_000)
    assert b"x/clicks" not in cluster.contents.values["topics"]
    fetched = await other.ask(group_id, m.FetchRequest())
    assert "clicks" not in fetched.offsets


async def test_a_node_of_a_newer_format_does_not_make_its_records_damage(cluster: Cluster) -> None:
    await cluster.start("n1")
    assert cluster["n1"].service.is_store_newer is False
    await cluster.start("n2", format_minor=99)
    assert cluster["n1"].service.is_store_newer is True


async def test_a_node_with_another_number_of_shards_says_so_once_and_is_not_in_the_placement(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    await cluster.start("n1")
    cluster.nodes["n2"] = stranger = ClusterNode(cluster, "n2", shards=SHARDS + 1)
    await stranger.start()
    for _ in range(3):
        cluster.contents.change()
        await cluster.clock.run(2_000)
    assert stranger.starting is not None
    with pytest.raises(StoredDataInvalid, match=f"made with {SHARDS} shards"):
        await stranger.starting
    told = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
    assert told == [
        f"this node takes nothing: The cluster has {SHARDS} shards, and this node is set to {SHARDS + 1};"
        " each node needs the same number."
    ]
    described = cluster["n1"].member.describe_cluster()
    assert isinstance(described, admin.ClusterAnswer)
    assert [(node.node_id, node.preferred_shards) for node in described.nodes] == [("n1", SHARDS), ("n2", 0)]
    assert all(shard.nodes == ("n1",) for shard in described.shards)


async def test_the_metadata_of_members_counts_at_the_node_that_has_their_group_alone(cluster: Cluster) -> None:
    await cluster.start("n1", "n2")
    await cluster.form(cluster.group_on("n2"))
    counted_bytes = cluster["n2"].service.metadata_bytes
    assert counted_bytes > 0
    assert isinstance(await cluster["n1"].member.drain_node("n2", draining=True), admin.ClusterNode)
    await cluster.clock.run(3_000)
    assert (cluster["n1"].service.metadata_bytes, cluster["n2"].service.metadata_bytes) == (counted_bytes, 0)


async def fill(cluster: Cluster, shards: Iterable[int]) -> None:
    """Let each have a group with a member."""
    group_ids = (f"group-{number}" for number in count())
    for shard in shards:
        await cluster.form(next(group_id for group_id in group_ids if shard_of_group(group_id, SHARDS) == shard))


async def test_a_drain_leaves_the_members_of_a_shard_their_time_before_the_next(cluster: Cluster) -> None:
    await cluster.start("n1", "n2")
    node = cluster["n2"]
    first = sorted(node.shards)[:HAND_OVERS_AT_ONCE_MAX]
    await fill(cluster, first)
    assert node.service.member_counts() == {shard_keyspace(shard): 1 for shard in first}
    left = node.shards.difference(first)
    assert isinstance(await cluster["n1"].member.drain_node("n2", draining=True), admin.ClusterNode)
    await settle()
    assert node.shards == left
    await cluster.clock.run(round(HAND_OVERS_AT_ONCE_MAX * MOVED_MEMBER_MS) - 1)
    assert node.shards == left
    await cluster.clock.run(1)
    assert node.shards == set()


@pytest.mark.parametrize("is_drained_before", [False, True])
async def test_a_stop_whose_time_is_over_waits_for_no_members(cluster: Cluster, is_drained_before: bool) -> None:
    await cluster.start("n1", "n2")
    node = cluster["n2"]
    assert len(node.shards) > HAND_OVERS_AT_ONCE_MAX
    await fill(cluster, node.shards)
    if is_drained_before:
        assert isinstance(await cluster["n1"].member.drain_node("n2", draining=True), admin.ClusterNode)
        await settle()
        assert node.shards, "the rest waits for the members of the first"
    draining = asyncio.create_task(node.member.drain(within_ms=0))
    await settle()
    assert draining.done()
    assert node.shards == set()


async def test_a_drain_waits_for_the_last_hand_overs_too(cluster: Cluster) -> None:
    await cluster.start("n1", "n2", "n3")
    node = cluster["n3"]
    count = len(node.shards)
    assert 0 < count <= HAND_OVERS_AT_ONCE_MAX
    node.store.handing_over.clear()
    draining = asyncio.create_task(node.member.drain(within_ms=0))
    await settle()
    cluster.contents.change()
    await cluster.clock.run(1_000)
    assert (node.member.owned_shards(), node.member.shards_left()) == (0, count)
    assert not draining.done()
    node.store.handing_over.set()
    await settle()
    assert draining.done()
    assert node.member.shards_left() == 0


async def test_what_hangs_in_a_hand_over_at_a_stop_is_taken_by_others_before_the_lease_runs_out(
    cluster: Cluster,
) -> None:
    await cluster.start("n1", "n2")
    node = cluster["n1"]
    assert node.has_registry
    node.store.handing_over.clear()
    assert not await hand_over_everything(node.member, timeout_ms=20)
    assert await drain(node.service, timeout_ms=60_000)
    hanging = [name for name, owner in cluster.contents.owners.items() if owner.node_id == "n1"]
    assert len(hanging) == HAND_OVERS_AT_ONCE_MAX
    assert node.member.shards_left() == HAND_OVERS_AT_ONCE_MAX - 1, "the registry is no shard"
    await give_up_everything(node.member, node.store)
    await cluster.clock.run(TURN_MS)
    assert (cluster["n2"].shards, cluster["n2"].has_registry) == (set(range(SHARDS)), True)
    await node.cut_short()


async def test_a_shard_that_is_lost_while_its_groups_begin_is_taken_again(cluster: Cluster) -> None:
    await cluster.start("n1")
    node = cluster["n1"]
    in_shard = (group_id for group_id in map("g-{}".format, count()) if shard_of_group(group_id, SHARDS) == 3)
    group_ids = [next(in_shard) for _ in range(4 * SLICE)]
    for group_id in group_ids:
        assert isinstance(await node.service.call(group_id, commit(1), host=""), m.CommitAnswer)
    cluster.contents.run_out("n1")
    await settle()
    node.store.take_new_lease()
    shard = node.service._shards[3]
    async with asyncio.timeout(30):
        while shard.state is not ShardState.ACTIVE:
            await asyncio.sleep(0)
            cluster.clock.move(1)
    cluster.contents.run_out("n1")
    assert not isinstance(await node.service.call(group_ids[-1], commit(2), host=""), m.CommitAnswer)
    assert not shard._is_listed
    node.store.take_new_lease()
    await cluster.clock.run(10_000)
    cluster.check_owned_once()


async def test_a_shard_that_cannot_be_loaded_is_dropped_once_when_another_node_has_it(cluster: Cluster) -> None:
    await cluster.start("n1", "n2")
    away = cluster["n2"]
    group_id = cluster.group_on("n2")
    await cluster.form(group_id)
    shard = shard_of_group(group_id, SHARDS)
    cluster["n1"].store.is_cut = True
    away.store.refuses_appends = True
    cluster.contents.run_out("n2")
    away.store.take_new_lease()
    await cluster.clock.run(3_000)
    assert shard in {unavailable.number for unavailable in away.service.condition().unavailable}
    lost = away.member.counts.lost
    cluster.contents.owners[shard_keyspace(shard)] = Owner("n1", cluster.contents.revision + 1)
    cluster.contents.change()
    await settle()
    assert away.member.counts.lost == lost + 1
    assert shard not in away.shards
    cluster["n1"].store.is_cut = away.store.refuses_appends = False
    cluster.contents.change()
    await cluster.clock.run(10_000)
    cluster.check_owned_once()


async def test_a_shard_that_is_loaded_at_a_later_try_goes_to_the_node_that_should_have_it(cluster: Cluster) -> None:
    """Also where the state that shows its new owner was read before that owner had the answer to its acquisition."""
    await cluster.start("n1", "n2")
    wrong, shard = cluster["n2"], min(cluster["n1"].shards)
    wrong.store.refuses_acquisitions = True
    cluster.contents.owners[shard_keyspace(shard)] = Owner("n2", cluster.contents.revision + 1)
    cluster.contents.change()
    await settle()
    assert shard in {unavailable.number for unavailable in wrong.service.condition().unavailable}
    wrong.store.refuses_acquisitions = False
    wrong.store.answering.clear()
    await cluster.clock.run(2_000)
    wrong.store.answering.set()
    await cluster.clock.run(2 * TRIED_AGAIN_MS)
    assert shard in cluster["n1"].shards
    cluster.check_owned_once()


async def test_a_drain_waits_for_a_change_after_a_wait_for_one_was_in_vain(cluster: Cluster) -> None:
    await cluster.start("n1", "n2")
    node = cluster["n1"]
    # As if what n1 has read were out of date: its change is refused, and it waits for what it has not read.
    node.store.refuses_facts = node.store.is_cut = True
    moving = asyncio.create_task(node.member.move_shard(min(node.shards), "n2"))
    await cluster.clock.run(5_000)
    assert isinstance(await moving, Failure)
    draining = asyncio.create_task(node.member.drain())
    async with asyncio.timeout(30):
        await cluster.clock.run(1_000)
    assert not draining.done()
    draining.cancel()
    node.store.refuses_facts = False


async def test_a_drain_waits_for_a_change_after_a_start_that_waited_for_too_long(cluster: Cluster) -> None:
    await cluster.start("n2", quiet_ms=0)
    cluster["n2"].store.is_cut = True
    cluster.contents.owners.pop("shard-3")
    node = ClusterNode(cluster, "n1")
    await node.member.start(LoadingKeyspaces())
    opening = asyncio.create_task(node.member.open_shards())
    await cluster.clock.run(OPENING_MAX_MS - 1)
    assert not opening.done()
    await cluster.clock.run(1)
    assert opening.done()
    draining = asyncio.create_task(node.member.drain())
    async with asyncio.timeout(30):
        await cluster.clock.run(1_000)
    assert not draining.done()
    draining.cancel()
    await node.member.close()
    await node.store.close()


class LoadingKeyspaces:
    """Loads for longer than anybody waits."""

    is_registry_loaded = True

    def meet_newer_format(self) -> None:
        raise AssertionError("both nodes are of one format")

    def open_keyspaces(self) -> dict[str, int | None]:
        return {"shard-3": None}

    def member_counts(self) -> dict[str, int]:
        return {}

    async def take(self, keyspace: str) -> None:
        await asyncio.Event().wait()

    async def hand_over(self, keyspace: str, node: NodeAddress) -> bool:
        raise AssertionError("what is being loaded is not handed over")

    async def lose(self, keyspace: str) -> None:
        raise AssertionError("nobody else takes it")

    async def tell_doubt(self) -> None:
        raise AssertionError("its lease holds")


async def test_a_step_that_meets_a_fault_is_tried_again_after_a_wait(cluster: Cluster) -> None:
    node = ClusterNode(cluster, "n1", None, 0)
    taking = FaultyKeyspaces()
    await node.member.start(taking)
    await settle()
    assert taking.tries == 1
    await cluster.clock.run(5 * TRIED_AGAIN_MS)
    assert taking.tries == 6
    await node.member.close()
    await node.store.close()


class FaultyKeyspaces:
    """Fails in a way that nobody provides for."""

    is_registry_loaded = False

    def __init__(self) -> None:
        self.tries = 0

    def meet_newer_format(self) -> None:
        raise AssertionError("there is one node")

    def open_keyspaces(self) -> dict[str, int | None]:
        return {}

    def member_counts(self) -> dict[str, int]:
        return {}

    async def take(self, keyspace: str) -> None:
        self.tries += 1
        raise ZeroDivisionError("planted")

    async def hand_over(self, keyspace: str, node: NodeAddress) -> bool:
        raise AssertionError("it has nothing")

    async def lose(self, keyspace: str) -> None:
        raise AssertionError("it has nothing")

    async def tell_doubt(self) -> None:
        """It has no members."""


@pytest.mark.parametrize("shards", [SHARDS - 4, SHARDS + 4])
async def test_a_node_of_another_number_of_shards_ends_and_leaves_no_trace(
    cluster: Cluster, shards: int, caplog: pytest.LogCaptureFixture
) -> None:
    await cluster.start("n1")
    stored = dict(cluster.contents.facts)
    wrong = await ClusterNode(cluster, "n2", None, 0, shards=shards).start()
    await cluster.clock.run(5_000)
    assert wrong.starting is not None
    assert isinstance(wrong.starting.exception(), StoredDataInvalid)
    assert cluster.contents.facts == stored
    assert "fault" not in caplog.text
    await wrong.member.close()
    await wrong.store.close()
    await cluster.clock.run(5_000)
    cluster.check_owned_once()


async def test_what_was_dropped_and_is_still_of_this_node_is_taken_again(cluster: Cluster) -> None:
    await cluster.start("n1")
    node = cluster["n1"]
    assert isinstance(await node.service.put_topic("clicks", m.PutTopicRequest(partitions=1)), m.Topic)
    group_id = cluster.group_on("n1")
    member_id, generation_id = await cluster.form(group_id)
    node.store.next_append_fails_with = AppendDoubtful("nobody knows")
    assert isinstance(await node.service.put_topic("clicks", m.PutTopicRequest(partitions=2)), Failure)
    node.store.next_append_fails_with = Fenced("something else was written to its head")
    assert isinstance(await node.ask(group_id, commit(7, member_id, generation_id)), Failure)
    await cluster.clock.run(2 * TRIED_AGAIN_MS)
    assert isinstance(await node.service.put_topic("clicks", m.PutTopicRequest(partitions=2)), m.Topic)
    assert isinstance(await node.ask(group_id, commit(7, member_id, generation_id)), m.CommitAnswer)


async def test_a_node_that_cannot_tell_names_itself_as_no_owner_and_takes_no_heartbeat(cluster: Cluster) -> None:
    await cluster.start("n1", "n2")
    away = cluster["n2"]
    group_id = cluster.group_on("n2")
    member_id, generation_id = await cluster.form(group_id)
    away.store.next_append_fails_with = Fenced("another node has it")
    assert isinstance(await away.ask(group_id, commit(7, member_id, generation_id)), Failure)
    away.store.is_cut = away.store.is_past_deadline = True
    cluster.contents.run_out("n2")
    await cluster.clock.run(30_000)
    answer = await away.ask(group_id, beat(member_id, generation_id))
    assert isinstance(answer, Failure)
    assert answer.code is ErrorCode.COORDINATOR_NOT_AVAILABLE
    found = away.service.find_coordinators(m.CoordinatorRequest(group_ids=(group_id,))).coordinators[0]
    assert found.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE


async def test_a_node_that_is_full_sends_a_join_to_the_node_that_has_the_group(cluster: Cluster) -> None:
    cluster.capacity = NodeCapacity(groups_max=0)
    await cluster.start("n1", "n2")
    answer = await cluster["n2"].ask(cluster.group_on("n1"), join("a", ""))
    assert isinstance(answer, Failure)
    assert (answer.code, answer.url) == (ErrorCode.NOT_COORDINATOR, "http://n1")


async def test_a_hand_over_to_a_node_that_goes_at_that_instant_is_left_out(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    await cluster.start("n1")
    await cluster.start("n2", quiet_ms=SETTLE_MS - 1)
    assert cluster["n2"].shards == set()
    gone = cluster.nodes.pop("n2")
    gone.store.is_cut = True
    cluster.contents.run_out("n2")
    cluster.clock.move(1)
    await settle()
    cluster.check_owned_once()
    assert "fault" not in caplog.text
    await gone.member.close()
    await gone.store.close()


async def test_whoever_is_carried_hears_of_a_hand_over_that_failed(cluster: Cluster) -> None:
    await cluster.start("n1", "n2")
    node = cluster["n2"]
    group_id = cluster.group_on("n2")
    await cluster.form(group_id)
    keyspace = shard_keyspace(shard_of_group(group_id, SHARDS))
    assert not await node.service.hand_over(keyspace, NodeAddress("n9", "http://n9"))
    assert GroupUnloaded(group_id) in node.watcher.events
    await node.service.take(keyspace)


async def test_a_node_does_not_speak_for_a_shard_that_it_was_handed_and_has_not_opened(cluster: Cluster) -> None:
    node = ClusterNode(cluster, "n1", None, 0)
    handed, later = shard_keyspace(0), shard_keyspace(1)
    cluster.contents.owners = {handed: Owner("n1", 10), later: Owner("n1", 11)}
    cluster.contents.revision = 20
    keyspaces = SlowKeyspaces({later: 11})
    await node.member.start(keyspaces)
    await settle()
    node.member.saw_deletions(7)
    await settle()
    assert decode_announcement("n1", cluster.contents.nodes["n1"]).deletions_seen == 0
    keyspaces.opened[handed] = 21
    cluster.contents.owners[handed] = Owner("n1", 21)
    cluster.contents.change()
    await settle()
    node.member.saw_deletions(7)
    await settle()
    announced = decode_announcement("n1", cluster.contents.nodes["n1"])
    assert (announced.deletions_seen, announced.seen_epoch) == (7, 21)
    await node.member.close()
    await node.store.close()


class SlowKeyspaces(FaultyKeyspaces):
    """Takes nothing in all the time of a test."""

    is_registry_loaded = True

    def __init__(self, opened: dict[str, int | None]) -> None:
        super().__init__()
        self.opened = opened

    def open_keyspaces(self) -> dict[str, int | None]:
        return self.opened

    async def take(self, keyspace: str) -> None:
        await asyncio.Event().wait()


async def test_without_a_lease_nothing_is_tried_to_be_taken(cluster: Cluster) -> None:
    node = ClusterNode(cluster, "n1", None, 0)
    keyspaces = FaultyKeyspaces()
    node.store.is_past_deadline = True
    await node.member.start(keyspaces)
    await cluster.clock.run(5 * TRIED_AGAIN_MS)
    assert keyspaces.tries == 0
    node.store.is_past_deadline = False
    await cluster.clock.run(TRIED_AGAIN_MS)
    assert keyspaces.tries == 1
    await node.member.close()
    await node.store.close()


async def test_members_at_rest_hear_that_a_node_cannot_tell_any_more_whether_it_has_their_group(
    cluster: Cluster,
) -> None:
    await cluster.start("n1", "n2")
    away = cluster["n2"]
    channels: dict[str, Channel] = {}
    for node_id in ("n1", "n2"):
        group_id = cluster.group_on(node_id)
        member_id, generation_id = await cluster.form(group_id)
        channel = channels[node_id] = Channel(len(channels), heard_at_ms=2 * cluster.clock.now_ms())
        service = cluster[node_id].service
        answer = service.ask(group_id, beat(member_id, generation_id), host="", connection=channel)
        assert isinstance(answer, m.HeartbeatAnswer)
        assert service.session_kept_ms(channel, group_id, member_id) is not None
    group_id = cluster.group_on("n2")
    away.store.is_cut = True
    await cluster.clock.run(5_000)
    assert channels["n2"].heard == [], "its lease goes on"
    away.store.is_past_deadline = True
    await cluster.clock.run(LEASE_LOOKED_AT_MS)
    assert channels["n2"].heard == [GroupUnloaded(group_id)]
    await cluster.clock.run(60_000)
    assert channels["n2"].heard == [GroupUnloaded(group_id)], "it is said once"
    assert not any(isinstance(event, GroupUnloaded) for event in away.watcher.events), "nothing is unloaded"
    away.store.is_cut = away.store.is_past_deadline = False
    await cluster.clock.run(5_000)
    away.store.is_past_deadline = True
    await cluster.clock.run(LEASE_LOOKED_AT_MS)
    assert channels["n2"].heard == [GroupUnloaded(group_id)] * 2, "for each doubt"
    assert channels["n1"].heard == []
    away.store.is_past_deadline = False


async def test_members_at_rest_hear_it_while_a_hand_over_waits_for_the_store(cluster: Cluster) -> None:
    await cluster.start("n1", "n2")
    group_id = cluster.group_on("n2")
    member_id, generation_id = await cluster.form(group_id)
    away, channel = cluster["n2"], Channel(1, heard_at_ms=2 * cluster.clock.now_ms())
    answer = away.service.ask(group_id, beat(member_id, generation_id), host="", connection=channel)
    assert isinstance(answer, m.HeartbeatAnswer)
    away.store.handing_over.clear()
    shard = shard_of_group(group_id, SHARDS)
    assert isinstance(await cluster["n1"].member.move_shard(shard, "n1"), admin.ClusterShard)
    await settle()
    assert not isinstance(await away.ask(group_id, beat(member_id, generation_id)), m.HeartbeatAnswer), "it has begun"
    away.store.is_cut = True
    await cluster.clock.run(5_000)
    assert channel.heard == [], "the shard is this node's as long as its lease goes on"
    away.store.is_past_deadline = True
    await cluster.clock.run(LEASE_LOOKED_AT_MS)
    assert channel.heard == [GroupUnloaded(group_id)]
    away.store.is_cut = away.store.is_past_deadline = False
    away.store.handing_over.set()
    await cluster.clock.run(1_000)
    cluster.check_owned_once()


async def test_who_handed_a_shard_over_names_the_new_owner_before_it_has_read_of_it(cluster: Cluster) -> None:
    """And answers no heartbeat: the new owner must hear it."""
    await cluster.start("n1", "n2")
    group_id = cluster.group_on("n1")
    member_id, generation_id = await cluster.form(group_id)
    n1, keyspace = cluster["n1"], shard_keyspace(shard_of_group(group_id, SHARDS))
    moving = asyncio.create_task(n1.member.move_shard(shard_of_group(group_id, SHARDS), "n2"))
    for _ in range(1_000):
        await asyncio.sleep(0)
        if cluster.contents.owners[keyspace].node_id == "n2":
            break
    n1.store.is_cut = True
    await settle()
    assert isinstance(await moving, admin.ClusterShard)
    entry = n1.service.find_coordinators(m.CoordinatorRequest(group_ids=(group_id,))).coordinators[0]
    assert entry.node_id == "n2"
    answer = await n1.ask(group_id, beat(member_id, generation_id))
    assert isinstance(answer, Failure)
    assert (answer.code, answer.node_id) == (ErrorCode.NOT_COORDINATOR, "n2")


async def test_a_node_that_may_have_lost_its_lease_keeps_no_member_by_heartbeats(cluster: Cluster) -> None:
    """It is cut off, and the shard it may have lost is not loaded any more: the group may be another node's."""
    await cluster.start("n1", "n2")
    group_id = cluster.group_on("n1")
    member_id, generation_id = await cluster.form(group_id)
    n1 = cluster["n1"]
    n1.store.is_cut = True
    await n1.service.lose(shard_keyspace(shard_of_group(group_id, SHARDS)))
    answer = n1.service.ask(group_id, beat(member_id, generation_id), host="198.51.100.7", connection=None)
    assert isinstance(answer, Failure)
    assert answer.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    n1.store.is_past_deadline = True
    answer = n1.service.ask(group_id, beat(member_id, generation_id), host="198.51.100.7", connection=None)
    assert isinstance(answer, Failure)
    assert answer.code is ErrorCode.COORDINATOR_NOT_AVAILABLE
    entry = n1.service.find_coordinators(m.CoordinatorRequest(group_ids=(group_id,))).coordinators[0]
    assert entry.node_id is None


async def test_a_node_that_is_cut_off_names_no_owner_that_may_be_gone_and_tells_no_topics(cluster: Cluster) -> None:
    """A client that asks it first would go on asking it, and never hear of the node that has the group now."""
    await cluster.start("n1", "n2", "n3")
    group_id = cluster.group_on("n1")
    member_id, generation_id = await cluster.form(group_id)
    n2, n3 = cluster["n2"], cluster["n3"]
    assert isinstance(await put_at_owner(cluster, "clicks"), m.Topic)
    n3.store.is_cut = n3.store.is_past_deadline = True
    dead = cluster.nodes.pop("n1")
    dead.store.is_cut = True
    cluster.contents.run_out("n1")
    cluster.contents.run_out("n3")
    await cluster.clock.run(5_000)
    assert cluster.coordinator_of(group_id) is n2
    entry = n3.service.find_coordinators(m.CoordinatorRequest(group_ids=(group_id,))).coordinators[0]
    assert (entry.url, entry.error_code) == (None, ErrorCode.COORDINATOR_NOT_AVAILABLE)
    refusals = (
        await n3.ask(group_id, beat(member_id, generation_id)),
        n3.service.list_topics(),
        await n3.service.put_topic("views", m.PutTopicRequest(partitions=1)),
        n3.member.describe_cluster(),
        await n3.member.drain_node("n2", draining=False),
        await n3.member.remove_node("n1"),
        await n3.member.move_shard(0, "n2"),
    )
    for refusal in refusals:
        assert isinstance(refusal, Failure)
        assert refusal.code is ErrorCode.COORDINATOR_NOT_AVAILABLE
    await dead.member.close()
    await dead.store.close()


async def put_at_owner(cluster: Cluster, topic: str) -> m.Topic | Failure:
    owner = next(node for node in cluster.nodes.values() if node.has_registry)
    putting = asyncio.create_task(owner.service.put_topic(topic, m.PutTopicRequest(partitions=4)))
    await cluster.clock.run(100)
    return putting.result()
