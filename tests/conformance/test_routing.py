"""C02-C04 of the conformance table: calls that reach a node which cannot serve their group now."""

from typing import Any

import pytest

from rallypoint.coordinator.core.effects import Failure
from rallypoint.coordinator.runtime.contract import NodeAddress, SoleOwner
from rallypoint.protocol import admin_messages as admin
from rallypoint.protocol import messages as m
from rallypoint.protocol.errors import ErrorCode
from rallypoint.protocol.group_hash import shard_of_group
from tests.fakes.manual_clock import settle
from tests.fakes.service_harness import HERE, SHARDS, ServiceHarness, code, commit, committed, heartbeat, join, sync

OTHER = NodeAddress("node-2", "http://198.51.100.2:8000")
EVERY_CALL = {
    "join": join("a", ""),
    "sync": sync("x", 1),
    "heartbeat": heartbeat("x", 1),
    "leave": m.LeaveRequest(members=(m.LeaveMember(member_id="x"),)),
    "commit": commit(1),
}


class SplitOwnership(SoleOwner):
    """The shard of "theirs" is another node's, that of "nobodys" has no owner, all others are ours."""

    def __init__(self) -> None:
        super().__init__(HERE)

    def owner_of(self, shard: int) -> NodeAddress | None:
        if shard == shard_of_group(THEIRS, SHARDS):
            return OTHER
        return None if shard == shard_of_group(NOBODYS, SHARDS) else HERE


OURS, THEIRS, NOBODYS = "group", "a", "polygenelubricants"


def test_the_three_groups_are_in_three_shards() -> None:
    assert len({shard_of_group(group_id, SHARDS) for group_id in (OURS, THEIRS, NOBODYS)}) == 3


@pytest.mark.parametrize("request_", EVERY_CALL.values(), ids=EVERY_CALL)
async def test_c02_a_shard_that_is_owned_elsewhere(request_: Any) -> None:
    harness = await ServiceHarness(ownership=SplitOwnership()).start()
    answer = await harness.now(THEIRS, request_)
    assert isinstance(answer, Failure)
    assert (answer.code, answer.node_id, answer.url) == (ErrorCode.NOT_COORDINATOR, OTHER.node_id, OTHER.url)
    assert code(await harness.now(NOBODYS, request_)) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert harness.store.appends == []


async def test_c03_each_key_of_a_look_up_has_its_own_error() -> None:
    harness = await ServiceHarness(ownership=SplitOwnership()).start()
    answer = harness.service.find_coordinators(m.CoordinatorRequest(group_ids=(OURS, NOBODYS, THEIRS, "")))
    assert [(entry.group_id, entry.node_id, entry.url, entry.error_name) for entry in answer.coordinators] == [
        (OURS, HERE.node_id, HERE.url, "NONE"),
        (NOBODYS, None, None, "COORDINATOR_NOT_AVAILABLE"),
        (THEIRS, OTHER.node_id, OTHER.url, "NONE"),
        ("", None, None, "COORDINATOR_NOT_AVAILABLE"),
    ]
    assert [entry.error_code for entry in answer.coordinators] == [0, 15, 0, 15]
    assert answer.coordinators[0].shard == shard_of_group(OURS, SHARDS)
    assert shard_of_group("", SHARDS) == shard_of_group(NOBODYS, SHARDS)


async def test_only_shards_that_are_ours_are_taken() -> None:
    harness = await ServiceHarness(ownership=SplitOwnership()).start()
    ours = {n for n in range(SHARDS) if SplitOwnership().owner_of(n) == HERE}
    assert sorted(harness.store.acquired) == sorted([*(f"shard-{number}" for number in ours), "topics"])


@pytest.mark.parametrize("gate", ["acquire", "scan"])
@pytest.mark.parametrize(("name", "request_"), EVERY_CALL.items(), ids=EVERY_CALL)
async def test_c04_a_shard_that_is_loading(name: str, request_: Any, gate: str) -> None:
    harness = ServiceHarness()
    gates = {"acquire": harness.store.acquire_gate, "scan": harness.store.scan_gate}
    gates[gate].shut()
    harness.begin(harness.service.start())
    await settle()
    answer = await harness.now(OURS, request_)
    if name == "heartbeat":
        assert isinstance(answer, m.HeartbeatAnswer)
    else:
        assert code(answer) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert harness.phase == "loading"
    assert code(await harness.service.list_groups(admin.ListGroupsRequest())) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert code(harness.service.list_topics()) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    gates[gate].let_go()
    await settle()
    assert harness.phase == "ready"
    assert not isinstance(await harness.now(OURS, commit(1)), Failure)


@pytest.mark.parametrize("request_", [join("a", "", session_timeout_ms=1), join("a", "", session_timeout_ms=2**31 - 1)])
async def test_a_session_timeout_out_of_bounds_is_refused_before_the_load_is_looked_at(request_: Any) -> None:
    harness = ServiceHarness()
    harness.store.acquire_gate.shut()
    harness.begin(harness.service.start())
    await settle()
    assert code(await harness.now(OURS, request_)) is ErrorCode.INVALID_SESSION_TIMEOUT
    harness.store.acquire_gate.let_go()
    await settle()


@pytest.mark.parametrize("name", ["join", "sync", "heartbeat", "leave"])
async def test_an_empty_group_id_is_refused_before_the_load_and_the_owner_are_looked_at(name: str) -> None:
    harness = ServiceHarness(ownership=SplitOwnership())
    harness.store.scan_gate.shut()
    harness.begin(harness.service.start())
    await settle()
    assert code(await harness.now("", EVERY_CALL[name])) is ErrorCode.INVALID_GROUP_ID
    assert code(await harness.now("", commit(1))) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    harness.store.scan_gate.let_go()
    await settle()


async def test_the_group_without_a_name_has_offsets_and_loses_them() -> None:
    """Kafka deletes such a group, too, but refuses to delete its offsets: INVALID_GROUP_ID."""
    harness = await ServiceHarness().start()
    await harness.now("", commit(7))
    assert await committed(harness, "") == {0: 7}
    deleted = await harness.now("", admin.DeleteOffsetsRequest(partitions=("clicks:0",)))
    assert isinstance(deleted, admin.DeleteOffsetsAnswer)
    assert deleted.offsets["clicks"][0].error_code == ErrorCode.NONE
    assert await committed(harness, "") == {}
