"""Which events leave the runtime besides those of the rounds: what is new, replaced, taken from the store anew."""

import pytest

from coordinator.core.effects import Event, GroupChanged, GroupCreated, GroupUnloaded, MemberReplaced
from protocol import messages as m
from protocol.errors import ErrorCode
from tests.fakes.faulty_store import Fault
from tests.fakes.manual_clock import settle
from tests.fakes.room import Room, code, commit, join, sync


def told(room: Room, *types: type) -> list[Event]:
    return [event for event in room.watcher.events if isinstance(event, types)]


async def test_a_group_is_created_once_and_a_load_creates_none() -> None:
    room = await Room().start()
    await room.now("g", commit(1))
    await room.now("g", commit(2))
    await room.form("h", "a")
    assert told(room, GroupCreated) == [GroupCreated("g"), GroupCreated("h")]
    of_h = [event for event in room.watcher.events if event in (GroupCreated("h"),) or isinstance(event, GroupChanged)]
    assert of_h[1] == GroupCreated("h"), "it is told before its first change"
    after = await Room(room.contents, clock=room.clock).start()
    assert told(after, GroupCreated) == []
    assert {event.summary.group_id for event in told(after, GroupChanged) if isinstance(event, GroupChanged)} == {
        "g",
        "h",
    }


async def test_a_refused_creation_is_not_told() -> None:
    room = await Room().start()
    room.store.faults.append(Fault.NOT_STORED)
    assert code(await room.now("g", commit(1))) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert told(room, GroupCreated, GroupChanged) == []


async def test_a_static_member_that_comes_back_is_told_to_have_replaced_itself() -> None:
    room = await Room().start()
    first = await room.now("g", join("one", "", group_instance_id="one"))
    assert isinstance(first, m.JoinAnswer)
    await room.now("g", sync(first.member_id, 1).model_copy(update={"group_instance_id": "one"}))
    for back_under in ("stable", "changed"):
        more = {} if back_under == "stable" else {"protocols": (m.JoinProtocol(name="range"),)}
        second = await room.now("g", join("one", "", group_instance_id="one", **more))
        assert isinstance(second, m.JoinAnswer)
        [*_, event] = told(room, MemberReplaced)
        assert event == MemberReplaced("g", "one", first.member_id, second.member_id)
        first = second
    assert len(told(room, MemberReplaced)) == 2


@pytest.mark.parametrize("fault", [Fault.NOT_STORED, Fault.STORED_UNSURE, Fault.FENCED])
async def test_a_write_that_failed_or_is_in_doubt_is_told_and_then_what_stands(fault: Fault) -> None:
    room = await Room().start()
    await room.now("g", commit(1))
    room.watcher.events.clear()
    room.store.faults.append(fault)
    room.ask("g", commit(2))
    await settle()
    await room.clock.run(1_000)
    assert told(room, GroupUnloaded) == [GroupUnloaded("g")]
    assert isinstance(room.watcher.events[0], GroupUnloaded)
    [changed] = told(room, GroupChanged)
    assert isinstance(changed, GroupChanged)
    assert changed.summary.state == "Empty"


async def test_a_drain_unloads_nothing() -> None:
    room = await Room().start()
    await room.form("g", "a")
    await room.service.drain()
    assert told(room, GroupUnloaded) == []
