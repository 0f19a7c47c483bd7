"""Whose a partition is: by what is durable, by key, and never by what is not so any more."""

import asyncio
import base64
from typing import Any

import pytest

from rallypoint.assignors.placement.partitioners import partition_for_key
from rallypoint.coordinator.core.effects import Failure
from rallypoint.coordinator.runtime.assignments.partition_owners import OwnerIndex, OwnerIndexes, index_of
from rallypoint.coordinator.runtime.assignments.queries import partition_of
from rallypoint.protocol import admin_messages as admin
from rallypoint.protocol import messages as m
from rallypoint.protocol.errors import ErrorCode
from rallypoint.protocol.opaque import EMPTY, OpaqueJson
from tests.fakes.consumers import form_consumers
from tests.fakes.manual_clock import settle
from tests.fakes.service_harness import ServiceHarness, code, commit, heartbeat, join, sync

SHARES = {"a": {"clicks": [0, 2], "orders": [7]}, "b": {"clicks": [1]}}


@pytest.fixture
async def harness() -> ServiceHarness:
    harness = await ServiceHarness().start()
    await harness.service.put_topic("clicks", m.PutTopicRequest(partitions=4))
    return harness


async def owner(
    harness: ServiceHarness, group_id: str = "g", topic: str = "clicks", **asked: Any
) -> admin.OwnerAnswer | Failure:
    return await harness.service.find_owner(group_id, admin.OwnerRequest(topic=topic, **asked))


async def owner_id(harness: ServiceHarness, partition: int, topic: str = "clicks") -> str | None:
    answer = await owner(harness, topic=topic, partition=partition)
    assert isinstance(answer, admin.OwnerAnswer), answer
    return None if answer.owner is None else answer.owner.member_id


async def test_the_owner_is_told_by_all_its_names_and_nobody_as_null(harness: ServiceHarness) -> None:
    ids = await form_consumers(harness, "g", SHARES)
    assert await owner(harness, partition=2) == admin.OwnerAnswer(
        group_id="g",
        topic="clicks",
        partition=2,
        state="Stable",
        generation_id=1,
        owner=admin.Owner(member_id=ids["a"], group_instance_id=None, client_id="a", host="198.51.100.7"),
    )
    assert [await owner_id(harness, partition) for partition in range(4)] == [ids["a"], ids["b"], ids["a"], None]
    # A topic that nobody registered has the partitions that were given of it.
    assert await owner_id(harness, 7, "orders") == ids["a"]
    assert await owner_id(harness, 6, "orders") is None
    assert await owner_id(harness, 2**31 - 1, "orders") is None


async def test_a_key_is_placed_as_producers_place_it(harness: ServiceHarness) -> None:
    ids = await form_consumers(harness, "g", SHARES)
    owners = [ids["a"], ids["b"], ids["a"], None]
    for key in ("", "user-7", "ключ", "\x00"):
        expected = partition_for_key(key.encode(), 4)
        encoded = base64.b64encode(key.encode()).decode()
        for asked in ({"key": key}, {"key_base64": encoded}, {"key_base64": encoded.rstrip("=")}):
            answer = await owner(harness, **asked)
            assert isinstance(answer, admin.OwnerAnswer)
            assert answer.partition == expected
            assert (answer.owner.member_id if answer.owner else None) == owners[expected]
    raw = bytes([0xFB, 0xFF, 0xFE])
    assert partition_of(admin.OwnerRequest(topic="t", key_base64="-__-"), {"t": 9}) == partition_for_key(raw, 9)


@pytest.mark.parametrize(
    ("asked", "error", "field"),
    [
        ({}, ErrorCode.INVALID_REQUEST, "partition"),
        ({"partition": 0, "key": "k"}, ErrorCode.INVALID_REQUEST, "partition"),
        ({"key": "k", "key_base64": ""}, ErrorCode.INVALID_REQUEST, "partition"),
        ({"key_base64": "*"}, ErrorCode.INVALID_REQUEST, "key_base64"),
        ({"key_base64": "é"}, ErrorCode.INVALID_REQUEST, "key_base64"),
        ({"key_base64": "abcde"}, ErrorCode.INVALID_REQUEST, "key_base64"),
        ({"key_base64": "a b="}, ErrorCode.INVALID_REQUEST, "key_base64"),
        ({"partition": 4}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "partition"),
        ({"topic": "orders", "key": "k"}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "topic"),
    ],
)
async def test_a_wrong_question_is_refused_by_its_field(
    harness: ServiceHarness, asked: dict[str, Any], error: ErrorCode, field: str
) -> None:
    await form_consumers(harness, "g", SHARES)
    answer = await owner(harness, **asked)
    assert isinstance(answer, Failure)
    assert (answer.code, answer.field) == (error, field)


async def test_groups_of_which_nobody_can_tell(harness: ServiceHarness) -> None:
    assert code(await owner(harness, partition=0)) is ErrorCode.GROUP_ID_NOT_FOUND
    await harness.now("simple", commit(1))
    simple = await owner(harness, "simple", partition=0)
    assert isinstance(simple, admin.OwnerAnswer)
    assert (simple.owner, simple.state) == (None, "Empty")
    await harness.form("text", "x")  # each one's assignment is its name
    refused = await owner(harness, "text", partition=0)
    assert isinstance(refused, Failure)
    assert (refused.code, refused.member_id is None) == (ErrorCode.INCONSISTENT_GROUP_PROTOCOL, False)
    await harness.now("connect", join("a", "", group_instance_id="a", protocol_type="connect"))
    assert code(await owner(harness, "connect", partition=0)) is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert len(harness.service.view.owners) == 1, "a refusal is not kept"
    await harness.service.drain()
    assert code(await owner(harness, "simple", partition=0)) is ErrorCode.COORDINATOR_NOT_AVAILABLE


async def test_one_index_serves_a_generation_and_goes_with_it(harness: ServiceHarness) -> None:
    ids = await form_consumers(harness, "g", SHARES)
    assert await owner_id(harness, 0) == ids["a"]
    [made] = harness.service.view.owners._made.values()
    for partition in range(4):
        await owner_id(harness, partition)
    await harness.now("g", heartbeat(ids["a"], 1))
    await harness.now("g", commit(5, ids["a"], 1))
    assert list(harness.service.view.owners._made.values()) == [made], "nothing that changes an owner has happened"
    await harness.now("g", m.LeaveRequest(members=(m.LeaveMember(member_id=ids["a"]),)))
    assert len(harness.service.view.owners) == 0
    during = await owner(harness, partition=0)
    assert isinstance(during, admin.OwnerAnswer)
    assert (during.state, during.generation_id, during.owner) == ("PreparingRebalance", 1, None)
    assert await owner_id(harness, 1) == ids["b"], "who is still there has what it had"
    joining = harness.ask("g", join("b", ids["b"]))
    await settle()
    assert isinstance(joining.result(), m.JoinAnswer)
    making = await owner(harness, partition=1)
    assert isinstance(making, admin.OwnerAnswer)
    assert (making.state, making.generation_id) == ("CompletingRebalance", 1)
    share = OpaqueJson.of({"partitions": {"clicks": [0, 1, 2, 3]}})
    await harness.now("g", sync(ids["b"], 2, (m.SyncAssignment(member_id=ids["b"], assignment=share),)))
    after = await owner(harness, partition=0)
    assert isinstance(after, admin.OwnerAnswer)
    assert (after.state, after.generation_id) == ("Stable", 2)
    assert [await owner_id(harness, partition) for partition in range(4)] == [ids["b"]] * 4


async def test_a_static_member_that_came_back_owns_under_its_new_id(harness: ServiceHarness) -> None:
    """Generation, state and the number of members stay the same."""
    ids = await form_consumers(harness, "g", {"a": {"clicks": [0, 1]}}, static=True)
    assert await owner_id(harness, 0) == ids["a"]
    metadata = OpaqueJson.of({"topics": ["clicks"]})
    protocols = (m.JoinProtocol(name="range", metadata=metadata),)
    back = await harness.now("g", join("a", "", group_instance_id="a", protocols=protocols))
    assert isinstance(back, m.JoinAnswer)
    assert back.member_id != ids["a"]
    assert await owner_id(harness, 0) == back.member_id


async def test_only_what_is_durable_is_told(harness: ServiceHarness) -> None:
    ids = await form_consumers(harness, "g", SHARES)
    await harness.now("g", m.LeaveRequest(members=(m.LeaveMember(member_id=ids["a"]),)))
    await harness.now("g", join("b", ids["b"]))
    harness.store.append_gate.shut()
    share = OpaqueJson.of({"partitions": {"clicks": [0, 1, 2, 3]}})
    storing = harness.ask("g", sync(ids["b"], 2, (m.SyncAssignment(member_id=ids["b"], assignment=share),)))
    await settle()
    asking = harness.begin(owner(harness, partition=0))
    await settle()
    assert not asking.done(), "the store may yet lose it"
    harness.store.append_gate.let_go()
    answer = await asking
    assert isinstance(answer, admin.OwnerAnswer)
    assert (answer.generation_id, storing.done()) == (2, True)


async def test_it_is_the_same_after_a_restart(harness: ServiceHarness) -> None:
    ids = await form_consumers(harness, "g", SHARES)
    after = await ServiceHarness(harness.contents, clock=harness.clock).start()
    assert [await owner_id(after, partition) for partition in range(4)] == [ids["a"], ids["b"], ids["a"], None]


def described(*assignments: object, protocol_type: str = "consumer") -> admin.DescribeAnswer:
    return admin.DescribeAnswer(
        group_id="g",
        state="Stable",
        protocol_type=protocol_type,
        protocol_name="range",
        generation_id=3,
        leader="m0",
        members=tuple(
            admin.DescribedMember(
                member_id=f"m{number}",
                group_instance_id=None,
                client_id="c",
                host="h",
                session_timeout_ms=1,
                rebalance_timeout_ms=1,
                metadata=EMPTY,
                assignment=OpaqueJson.of(assignment),  # type: ignore[arg-type]
            )
            for number, assignment in enumerate(assignments)
        ),
        offsets={},
    )


def test_an_index_takes_whatever_a_leader_gave() -> None:
    index = OwnerIndex(
        described(
            {"partitions": {"t": [5, 5, 1]}, "user_data": [1]}, None, {"partitions": {"t": [5, 2**31 - 1]}, "more": 1}
        )
    )
    found = {partition: index.find("t", partition) for partition in (0, 1, 5, 2**31 - 1)}
    assert {key: value.member_id if value else None for key, value in found.items()} == {
        0: None,
        1: "m0",
        5: "m0",
        2**31 - 1: "m2",
    }
    assert index.find("u", 1) is None
    for wrong in ("text", 7, {"partitions": {"t": [-1]}}, {"partitions": {"t": 1}}, [1]):
        made = index_of(described(wrong))
        assert isinstance(made, Failure)
        assert made.code is ErrorCode.INCONSISTENT_GROUP_PROTOCOL


async def test_those_who_ask_at_once_wait_for_one_index_and_old_ones_make_room() -> None:
    indexes = OwnerIndexes(partitions_max=5)
    made: list[str] = []

    async def get(group_id: str, count: int = 2) -> OwnerIndex:
        async def make() -> OwnerIndex | Failure:
            made.append(group_id)
            await settle()
            return index_of(described({"partitions": {"t": list(range(count))}}))

        index = await indexes.get(group_id, make)
        assert isinstance(index, OwnerIndex)
        return index

    first, second = await asyncio.gather(get("a"), get("a"))
    assert first is second
    await get("b")
    await get("a")
    await get("c")
    assert made == ["a", "b", "c"]
    await get("a")
    assert made == ["a", "b", "c"], "it was asked for after b, so b went"
    await get("b")
    assert made[3:] == ["b"]
    await get("large", 100)
    assert len(indexes) == 1, "one index alone may be larger"


async def test_an_index_in_the_making_is_not_kept_if_the_group_changes_meanwhile() -> None:
    indexes = OwnerIndexes()

    async def make() -> OwnerIndex | Failure:
        indexes.drop("g")
        return index_of(described({"partitions": {"t": [0]}}))

    assert isinstance(await indexes.get("g", make), OwnerIndex)
    assert len(indexes) == 0
