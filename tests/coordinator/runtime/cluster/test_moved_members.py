"""A group goes to another node and comes back: a channel that carried its members before says nothing of them."""

from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from rallypoint.coordinator.core.cluster.decide import TURN_MS
from rallypoint.coordinator.core.commands import DescribeRequest
from rallypoint.coordinator.core.effects import Failure, GroupUnloaded
from rallypoint.coordinator.runtime.group_executor import Waiting
from rallypoint.coordinator.storage.contract import AppendDoubtful, shard_keyspace
from rallypoint.coordinator.storage.shared_contract import Owner
from rallypoint.protocol import admin_messages as admin
from rallypoint.protocol import messages as m
from rallypoint.protocol.group_hash import shard_of_group
from tests.coordinator.runtime.test_connection_registry import Channel
from tests.fakes.cluster_harness import SHARDS, Cluster, beat
from tests.fakes.manual_clock import settle
from tests.fakes.service_harness import RULES, commit

SESSION_MS = 10_000
"""Of a join of the harness."""
FAR_MS = 10**15
"""After all that happens: something comes on the channel all the time."""


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    made = Cluster()
    await made.start("n1", "n2")
    yield made
    await made.end()


async def hand_over(cluster: Cluster, group_id: str, to: str) -> None:
    """An operator wants it there."""
    shard = shard_of_group(group_id, SHARDS)
    assert isinstance(await cluster[to].member.move_shard(shard, to), admin.ClusterShard)
    await cluster.clock.run(1_000)
    assert cluster.coordinator_of(group_id) is cluster[to]


async def lose(cluster: Cluster, group_id: str, to: str) -> None:
    """The lease of n1, which has it, runs out while that node is cut off from the store."""
    away = cluster["n1"]
    away.store.is_cut = True
    cluster.contents.run_out("n1")
    await cluster.clock.run(TURN_MS)
    await hand_over(cluster, group_id, to)
    away.store.is_cut = False
    away.store.take_new_lease()
    await cluster.clock.run(1_000)
    assert cluster.coordinator_of(group_id) is cluster[to]


Move = Callable[[Cluster, str, str], Awaitable[None]]


async def carried(cluster: Cluster, group_id: str, channel: Channel) -> tuple[str, int]:
    """A member at rest on a channel with n1."""
    member_id, generation_id = await cluster.form(group_id)
    service = cluster["n1"].service
    answer = service.ask(group_id, beat(member_id, generation_id), host="", connection=channel)
    assert isinstance(answer, m.HeartbeatAnswer)
    assert service.session_kept_ms(channel, group_id, member_id) == SESSION_MS
    return member_id, generation_id


async def members_at(cluster: Cluster, node_id: str, group_id: str) -> int:
    described = await cluster[node_id].ask(group_id, DescribeRequest())
    assert isinstance(described, admin.DescribeAnswer)
    return len(described.members)


@pytest.mark.parametrize("move", [hand_over, lose])
async def test_a_channel_that_goes_on_does_not_vouch_for_members_of_a_group_that_was_away(
    cluster: Cluster, move: Move
) -> None:
    group_id, first, second = cluster.group_on("n1"), Channel(1, heard_at_ms=FAR_MS), Channel(2, heard_at_ms=FAR_MS)
    member_id, generation_id = await carried(cluster, group_id, first)
    await move(cluster, group_id, "n2")
    unloaded = GroupUnloaded(group_id, "http://n2" if move is hand_over else None)
    assert first.heard == [unloaded], "who takes a group from this node tells it nothing"
    assert (cluster["n1"].service.carried_count(first), cluster["n1"].service.connections.group_count) == (0, 0)
    there = cluster["n2"].service
    assert isinstance(
        there.ask(group_id, beat(member_id, generation_id), host="", connection=second), m.HeartbeatAnswer
    )
    # The process goes on with others, on both channels. The member in it has ended.
    second.heard_at_ms = cluster.clock.now_ms()
    there.drop_member(second, group_id, member_id)
    await hand_over(cluster, group_id, "n1")
    assert await members_at(cluster, "n1", group_id) == 1
    await cluster.clock.run(SESSION_MS + 1_000)
    assert await members_at(cluster, "n1", group_id) == 0
    assert first.heard == [unloaded], "what happened since is nothing to it"


@pytest.mark.parametrize("move", [hand_over, lose])
async def test_the_end_of_such_a_channel_is_no_end_of_a_member_that_has_gone_elsewhere(
    cluster: Cluster, move: Move
) -> None:
    group_id, first = cluster.group_on("n1"), Channel(1, heard_at_ms=FAR_MS)
    await carried(cluster, group_id, first)
    await move(cluster, group_id, "n2")
    await hand_over(cluster, group_id, "n1")
    cluster["n1"].service.end_channel(first, by_client=True)
    await cluster.clock.run(RULES.disconnect_grace_ms + 1_000)
    assert await members_at(cluster, "n1", group_id) == 1


@pytest.mark.parametrize("finds_it_held", [False, True])
async def test_a_loss_while_a_group_loads_is_forgotten_if_another_node_has_the_group_then(
    cluster: Cluster, finds_it_held: bool
) -> None:
    group_id, first = cluster.group_on("n1"), Channel(1, heard_at_ms=FAR_MS)
    member_id, generation_id = await carried(cluster, group_id, first)
    n1 = cluster["n1"]
    n1.store.next_append_fails_with = AppendDoubtful("nobody knows")
    n1.store.acquiring.clear()
    waiting = n1.service.ask(group_id, commit(1, member_id, generation_id), host="", connection=first)
    assert isinstance(waiting, Waiting)
    await settle()
    assert isinstance(waiting.answer, Failure)
    n1.service.end_channel(first, by_client=True)
    if finds_it_held:
        shard = shard_keyspace(shard_of_group(group_id, SHARDS))
        cluster.contents.owners[shard] = Owner("n2", cluster.contents.revision + 1)
        n1.store.acquiring.set()
        await settle()
        cluster.contents.change()
        await settle()
    else:
        await lose(cluster, group_id, "n2")
    n1.store.acquiring.set()
    await hand_over(cluster, group_id, "n1")
    await cluster.clock.run(RULES.disconnect_grace_ms + 1_000)
    assert await members_at(cluster, "n1", group_id) == 1


async def test_groups_that_have_gone_take_no_room_on_a_channel(cluster: Cluster) -> None:
    first = Channel(1, groups_max=1, heard_at_ms=FAR_MS)
    gone = cluster.group_on("n1")
    await carried(cluster, gone, first)
    await hand_over(cluster, gone, "n2")
    await carried(cluster, cluster.group_on("n1"), first)
    assert cluster["n1"].service.carried_count(first) == 1
