"""A connection that its client's side ends while the group is being loaded: the group is told when it is there."""

import pytest

from rallypoint.coordinator.core.effects import SessionExpired
from rallypoint.coordinator.runtime.connection_registry import MemberConnection
from rallypoint.protocol import messages as m
from rallypoint.protocol.errors import ErrorCode
from tests.coordinator.runtime.test_connection_registry import Channel
from tests.fakes.faulty_store import Fault
from tests.fakes.manual_clock import settle
from tests.fakes.room import Room, code, commit, heartbeat

GRACE_MS = 2_000


async def unloaded_room(fault: Fault) -> tuple[Room, str, MemberConnection]:
    """A group of one carried member, that is being loaded anew and comes no further."""
    room = await Room().start()
    ids = await room.form("g", "a")
    room.store.scan_gate.shut()
    room.store.faults.append(fault)
    room.ask("g", commit(1, ids["a"], 1))
    await settle()
    # A shard is tried again after a while, a group at once.
    await room.clock.run(0 if fault is Fault.NOT_STORED else 500)
    assert room.store.scan_gate.waiting == 1
    connection = Channel(1)
    room.service.connections.carry("g", ids["a"], connection)
    return room, ids["a"], connection


async def is_dead_after_its_grace(room: Room, member_id: str) -> bool:
    room.store.scan_gate.let_go()
    await settle()
    await room.clock.run(GRACE_MS - 100)
    assert not [event for event in room.watcher.events if isinstance(event, SessionExpired)]
    await room.clock.run(200)
    return SessionExpired("g", member_id, disconnected=True) in room.watcher.events


@pytest.mark.parametrize("fault", [Fault.NOT_STORED, Fault.FENCED])
async def test_a_loss_while_the_group_is_loaded_is_told_when_it_is_there(fault: Fault) -> None:
    room, member_id, connection = await unloaded_room(fault)
    room.service.end_channel(connection, by_client=True)
    await room.clock.run(5_000)
    assert await is_dead_after_its_grace(room, member_id)
    assert not any(shard._lost for shard in room.service._shards)


@pytest.mark.parametrize("fault", [Fault.NOT_STORED, Fault.FENCED])
async def test_who_calls_while_the_group_is_loaded_has_come_back(fault: Fault) -> None:
    room, member_id, connection = await unloaded_room(fault)
    room.service.end_channel(connection, by_client=True)
    assert isinstance(await room.now("g", heartbeat(member_id, 1)), m.HeartbeatAnswer)
    assert not await is_dead_after_its_grace(room, member_id)


async def test_where_the_service_ended_it_nothing_is_told_later() -> None:
    room, member_id, connection = await unloaded_room(Fault.NOT_STORED)
    room.service.end_channel(connection, by_client=False)
    assert not await is_dead_after_its_grace(room, member_id)


async def test_a_group_that_is_not_there_after_the_load_leaves_nothing_behind() -> None:
    room = await Room().start()
    room.store.scan_gate.shut()
    room.store.faults.append(Fault.NOT_STORED)
    assert code(await room.now("g", commit(1))) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    connection = Channel(1)
    room.service.connections.carry("g", "nobody", connection)
    room.service.end_channel(connection, by_client=True)
    assert any(shard._lost for shard in room.service._shards)
    room.store.scan_gate.let_go()
    await settle()
    assert not any(shard._lost for shard in room.service._shards)
