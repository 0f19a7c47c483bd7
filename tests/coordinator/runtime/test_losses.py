"""A connection that its client's side ends while the group is being loaded: the group is told when it is there."""

import pytest

from rallypoint.coordinator.core.effects import SessionExpired
from rallypoint.coordinator.runtime.members.connection_registry import MemberConnection
from rallypoint.protocol import messages as m
from rallypoint.protocol.errors import ErrorCode
from tests.coordinator.runtime.test_connection_registry import Channel
from tests.fakes.faulty_store import Fault
from tests.fakes.manual_clock import settle
from tests.fakes.service_harness import ServiceHarness, code, commit, heartbeat

GRACE_MS = 2_000
SESSION_MS = 10_000


async def unloaded_room(fault: Fault) -> tuple[ServiceHarness, str, MemberConnection]:
    """A group of one carried member, that is being reloaded and comes no further."""
    harness = await ServiceHarness().start()
    ids = await harness.form("g", "a")
    harness.store.scan_gate.shut()
    harness.store.faults.append(fault)
    harness.ask("g", commit(1, ids["a"], 1))
    await settle()
    # A shard is tried again after a while, a group at once.
    await harness.clock.run(0 if fault is Fault.NOT_STORED else 500)
    assert harness.store.scan_gate.waiting == 1
    connection = Channel(1)
    harness.service.connections.carry("g", ids["a"], connection)
    return harness, ids["a"], connection


async def is_dead_after_its_grace(harness: ServiceHarness, member_id: str) -> bool:
    harness.store.scan_gate.let_go()
    await settle()
    await harness.clock.run(GRACE_MS - 100)
    assert not [event for event in harness.watcher.events if isinstance(event, SessionExpired)]
    await harness.clock.run(200)
    return SessionExpired("g", member_id, disconnected=True) in harness.watcher.events


@pytest.mark.parametrize("fault", [Fault.NOT_STORED, Fault.FENCED])
async def test_a_loss_while_the_group_is_loaded_is_told_when_it_is_there(fault: Fault) -> None:
    harness, member_id, connection = await unloaded_room(fault)
    harness.service.end_channel(connection, by_client=True)
    await harness.clock.run(5_000)
    assert await is_dead_after_its_grace(harness, member_id)
    assert not any(shard._lost for shard in harness.service._shards)


@pytest.mark.parametrize("fault", [Fault.NOT_STORED, Fault.FENCED])
async def test_who_calls_while_the_group_is_loaded_has_come_back(fault: Fault) -> None:
    harness, member_id, connection = await unloaded_room(fault)
    harness.service.end_channel(connection, by_client=True)
    assert isinstance(await harness.now("g", heartbeat(member_id, 1)), m.HeartbeatAnswer)
    assert not await is_dead_after_its_grace(harness, member_id)


async def test_where_the_service_ended_it_nothing_is_told_later() -> None:
    harness, member_id, connection = await unloaded_room(Fault.NOT_STORED)
    harness.service.end_channel(connection, by_client=False)
    assert not await is_dead_after_its_grace(harness, member_id)


async def test_a_group_that_is_not_there_after_the_load_leaves_nothing_behind() -> None:
    harness = await ServiceHarness().start()
    harness.store.scan_gate.shut()
    harness.store.faults.append(Fault.NOT_STORED)
    assert code(await harness.now("g", commit(1))) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    connection = Channel(1)
    harness.service.connections.carry("g", "nobody", connection)
    harness.service.end_channel(connection, by_client=True)
    assert any(shard._lost for shard in harness.service._shards)
    harness.store.scan_gate.let_go()
    await settle()
    assert not any(shard._lost for shard in harness.service._shards)


async def test_what_came_on_an_old_channel_counts_though_a_newer_one_carries_on() -> None:
    """What a client sent on a channel that it left may be read long after, and the end of that channel with it."""
    harness = await ServiceHarness().start()
    member_id = (await harness.form("g", "a"))["a"]
    old, new = Channel(1), Channel(2, heard_at_ms=harness.clock.now_ms())
    harness.service.connections.carry("g", member_id, new)
    await harness.clock.run(5_000)
    old.heard_at_ms = harness.clock.now_ms()
    harness.service.connections.carry("g", member_id, old)
    harness.service.end_channel(old, by_client=True)
    assert harness.service.connections.connection_of("g", member_id) is new
    await harness.clock.run(SESSION_MS - 100)
    assert not [event for event in harness.watcher.events if isinstance(event, SessionExpired)]
    await harness.clock.run(200)
    assert SessionExpired("g", member_id) in harness.watcher.events
