"""What members say takes so much memory on a node, and no more; who is there goes on."""

from typing import Any

import pytest
from pydantic import JsonValue

from rallypoint.coordinator.core.capacity import KNOWN_METADATA_SHARE
from rallypoint.coordinator.core.effects import Failure
from rallypoint.coordinator.runtime.contract import NodeCapacity
from rallypoint.protocol import admin_messages as admin
from rallypoint.protocol import messages as m
from rallypoint.protocol.errors import ErrorCode
from rallypoint.protocol.opaque import OpaqueJson
from tests.fakes.faulty_store import Fault
from tests.fakes.manual_clock import settle
from tests.fakes.service_harness import ServiceHarness, heartbeat, join


def says(topics: int, *, letters: int = 20) -> dict[str, Any]:
    """A subscription to so many topics."""
    names: list[JsonValue] = [f"{number:0{letters}}" for number in range(topics)]
    return {"protocols": (m.JoinProtocol(name="range", metadata=OpaqueJson.of({"topics": names})),)}


async def room_for(budget_bytes: int) -> ServiceHarness:
    return await ServiceHarness(capacity=NodeCapacity(node_metadata_max_bytes=budget_bytes)).start()


def check_refused(answer: object, limit: int) -> None:
    assert isinstance(answer, Failure), answer
    assert (answer.code, answer.limit_name) == (ErrorCode.THROTTLING_QUOTA_EXCEEDED, "node_metadata_max_bytes")
    assert (answer.limit, answer.field) == (limit, "protocols")


async def test_a_member_too_many_is_refused_and_those_that_are_there_go_on() -> None:
    harness = await room_for(10_000)
    first = await harness.now("g", join("a", "", group_instance_id="a", **says(75)))
    assert isinstance(first, m.JoinAnswer)
    assert 5_000 < harness.service.metadata_bytes < 10_000
    for group_id in ("g", "other"):
        check_refused(await harness.now(group_id, join("b", "", group_instance_id="b", **says(500))), 10_000)
        check_refused(await harness.now(group_id, join("b", "", **says(500))), 10_000)
    small = await harness.now("other", join("b", "", group_instance_id="b", **says(1)))
    assert isinstance(small, m.JoinAnswer), "there is room for one that says little"
    assert isinstance(await harness.now("g", heartbeat(first.member_id, 1)), m.HeartbeatAnswer)
    again = await harness.now("g", join("a", first.member_id, group_instance_id="a", **says(75, letters=35)))
    assert isinstance(again, m.JoinAnswer), "who is there may say more"
    assert harness.service.metadata_bytes > 10_000
    check_refused(await harness.now("other", join("c", "", group_instance_id="c", **says(1))), 10_000)
    huge = join("a", first.member_id, group_instance_id="a", **says(2_000, letters=40))
    check_refused(await harness.now("g", huge), 10_000)


@pytest.mark.parametrize("letters", [1, 4, 20])
async def test_members_that_are_there_come_to_say_a_quarter_more_than_the_limit_and_no_more(letters: int) -> None:
    limit = 100_000
    harness = await room_for(limit)
    joined = {}
    for number in range(40):
        answer = await harness.now(f"g{number}", join("a", "", group_instance_id="a", **says(1)))
        assert isinstance(answer, m.JoinAnswer)
        joined[f"g{number}"] = answer.member_id
    refused = 0
    for count in (100, 1_000, 9_000):
        more = says(count, letters=letters)
        for group_id, member_id in joined.items():
            answer = await harness.now(group_id, join("a", member_id, group_instance_id="a", **more))
            refused += isinstance(answer, Failure)
            assert harness.service.metadata_bytes <= limit + limit // KNOWN_METADATA_SHARE
    assert refused
    for group_id, member_id in joined.items():
        less = await harness.now(group_id, join("a", member_id, group_instance_id="a", **says(1)))
        assert isinstance(less, m.JoinAnswer), "who says no more than it said always goes on"


async def test_a_new_member_counts_with_its_topics() -> None:
    harness = await room_for(100_000)
    check_refused(await harness.now("g", join("a", "", group_instance_id="a", **says(1_500, letters=4))), 100_000)
    assert harness.service.metadata_bytes == 0


async def test_whoever_goes_gives_the_room_back_and_a_load_counts_the_same() -> None:
    harness = await room_for(10_000)
    joined = await harness.now("g", join("a", "", group_instance_id="a", **says(50)))
    assert isinstance(joined, m.JoinAnswer)
    share = m.SyncAssignment(member_id=joined.member_id)
    await harness.now("g", sync_of(joined, share))
    counted = harness.service.metadata_bytes
    harness.store.faults.append(Fault.NOT_STORED)
    await harness.now("g", admin.CooldownRequest(cooldown_ms=500))
    await settle()
    assert harness.service.metadata_bytes == counted, "the group was reloaded"
    leaver = m.LeaveMember(member_id=joined.member_id, group_instance_id="a")
    await harness.now("g", m.LeaveRequest(members=(leaver,)))
    assert harness.service.metadata_bytes == 0
    assert isinstance(await harness.now("h", join("b", "", group_instance_id="b", **says(50))), m.JoinAnswer)


async def test_joins_that_wait_for_a_write_of_their_group_count_as_they_come() -> None:
    """A burst of them is decided when the write is over, and must not be beyond the limit by then."""
    limit = 20_000
    harness = await room_for(limit)
    member = await harness.now("g", join("a", "", group_instance_id="a", **says(1)))
    assert isinstance(member, m.JoinAnswer)
    said_bytes = harness.service.metadata_bytes
    harness.store.append_gate.shut()
    writing = harness.ask("g", admin.CooldownRequest(cooldown_ms=500))
    await settle()
    asked = [harness.ask("g", join(f"b{n}", "", group_instance_id=f"b{n}", **says(75))) for n in range(20)]
    more = harness.ask("g", join("a", member.member_id, group_instance_id="a", **says(400)))
    less = harness.ask("g", join("a", member.member_id, group_instance_id="a", **says(1)))
    await settle()
    assert limit - 6_000 < harness.service.metadata_bytes <= limit
    refused = [task.result() for task in (*asked, more) if task.done()]
    assert len(refused) == 19
    for answer in refused:
        check_refused(answer, limit)
    harness.store.append_gate.let_go()
    await settle()
    assert writing.done()
    counted = harness.service.metadata_bytes
    assert said_bytes < counted <= limit, "what was weighed as it came is what it came to"
    for task in (*asked, less):
        if not task.done():
            task.cancel()
    await settle()
    await harness.service.drain()


async def test_joins_that_never_come_to_their_step_give_the_room_back() -> None:
    harness = await room_for(20_000)
    harness.store.append_gate.shut()
    harness.store.faults.append(Fault.NOT_STORED)
    writing = harness.ask("g", m.CommitRequest(generation_id=-1, offsets={"t": {0: m.OffsetCommit(offset=1)}}))
    await settle()
    waiting = harness.ask("g", join("b", "", group_instance_id="b", **says(75)))
    await settle()
    assert harness.service.metadata_bytes > 4_000
    harness.store.append_gate.let_go()
    await settle()
    assert (writing.done(), waiting.done()) == (True, True)
    assert harness.service.metadata_bytes == 0


def sync_of(joined: m.JoinAnswer, share: m.SyncAssignment) -> m.SyncRequest:
    return m.SyncRequest(
        generation_id=joined.generation_id,
        member_id=joined.member_id,
        group_instance_id="a",
        protocol_type="consumer",
        protocol_name="range",
        assignments=(share,),
    )


async def test_a_store_with_more_than_the_budget_is_served() -> None:
    before = await ServiceHarness().start()
    joined = await before.now("g", join("a", "", group_instance_id="a", **says(50)))
    assert isinstance(joined, m.JoinAnswer)
    await before.now("g", sync_of(joined, m.SyncAssignment(member_id=joined.member_id)))
    await before.service.drain()
    harness = await ServiceHarness(before.contents, capacity=NodeCapacity(node_metadata_max_bytes=1)).start()
    assert harness.service.condition().metadata_bytes > 5_000
    again = join("a", joined.member_id, group_instance_id="a", **says(50))
    assert isinstance(await harness.now("g", again), m.JoinAnswer)
    check_refused(await harness.now("g", join("b", "", group_instance_id="b", **says(1))), 1)
