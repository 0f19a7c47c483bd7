"""Members with a group_instance_id (C50-C52 and what follows from them)."""

from base64 import b64encode
from typing import Any

import pytest

from rallypoint.coordinator.core.group import State
from rallypoint.protocol.errors import ErrorCode
from rallypoint.protocol.opaque import OpaqueJson
from tests.conformance.group_harness import GroupHarness, consumer
from tests.judges.codec import encode
from tests.judges.opaque_bytes import SUBSCRIPTION


def in_bytes(**subscription: Any) -> OpaqueJson:
    """As Kafka's clients write it."""
    data = b"\0\3" + encode(SUBSCRIPTION, 3, subscription)
    return OpaqueJson.of({"base64": b64encode(data).decode()})


def test_c50_a_static_member_is_added_at_once() -> None:
    harness = GroupHarness()
    call = harness.join(instance="b")
    assert harness.waits(call)
    harness.advance(3_000)
    assert harness.answer(call).member_id.startswith("b-")


def test_c51_c52_a_static_member_comes_back_and_its_old_id_is_fenced() -> None:
    harness = GroupHarness()
    leader, old = harness.stable(instance="b")
    held = harness.answer(harness.sync(old, instance="b")).assignment
    answer = harness.answer(harness.join(instance="b"))
    assert answer.member_id != old
    assert (answer.generation_id, answer.leader, answer.skip_assignment) == (1, leader, False)
    assert harness.state() is State.STABLE
    assert harness.answer(harness.sync(answer.member_id, instance="b")).assignment == held

    for call in (
        harness.heartbeat(old, instance="b"),
        harness.sync(old, instance="b"),
        harness.commit(old, instance="b"),
        harness.join(old, instance="b"),
    ):
        assert harness.code(call) is ErrorCode.FENCED_INSTANCE_ID
        assert harness.answer(call).member_id == old
    for call in (harness.heartbeat(old), harness.sync(old), harness.commit(old), harness.join(old)):
        assert harness.code(call) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_static_leader_that_comes_back_leads_and_skips_the_assignment() -> None:
    harness = GroupHarness()
    first = harness.join(instance="a")
    other = harness.join(instance="b")
    harness.advance(10_000)
    old = harness.answer(first).member_id
    harness.settle_generation(old, harness.answer(other).member_id)
    answer = harness.answer(harness.join(instance="a", request_id="x"))
    assert answer.leader == answer.member_id == harness.group.leader
    assert answer.skip_assignment
    assert [x.group_instance_id for x in answer.members] == ["a", "b"]
    # The same request again takes nothing over again.
    assert harness.answer(harness.join(instance="a", request_id="x")) == answer


def test_a_static_member_that_comes_back_with_other_topics_rebalances() -> None:
    """KAFKA-12759: Kafka compares the protocol's name alone."""
    harness = GroupHarness()
    harness.stable(instance="b")
    harness.join(instance="b", protocols=(("range", consumer("u")),))
    assert harness.state() is State.PREPARING_REBALANCE


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (consumer("t", owned_partitions={"t": [1]}, generation_id=4), consumer("t")),
        (consumer("t", "u"), consumer("u", "t")),
        (
            in_bytes(topics=["t"], user_data=b"what I own"),
            in_bytes(topics=["t"], owned_partitions=[], generation_id=-1),
        ),
        (in_bytes(topics=["t"]), consumer("t")),
        (OpaqueJson.of("anything"), OpaqueJson.of("anything else")),
    ],
    ids=["owned", "order", "bytes", "another-form", "unreadable"],
)
def test_a_static_member_that_comes_back_and_wants_the_same_moves_nothing(
    before: OpaqueJson, after: OpaqueJson
) -> None:
    """Kafka compares the protocol's name; a client's metadata says also what it owned, and it owns nothing any more."""
    harness, _, old = returning(before)
    again = harness.answer(harness.join(instance="b", protocols=(("range", after),)))
    assert (again.generation_id, harness.state()) == (1, State.STABLE)
    assert again.member_id != old


@pytest.mark.parametrize(
    "after",
    [consumer("t", "u"), in_bytes(topics=["u"]), consumer("t", rack_id="r"), consumer("t", user_data={"weight": 2})],
    ids=["topics", "topics-in-bytes", "rack", "user-data"],
)
def test_a_static_member_that_comes_back_and_wants_something_else_rebalances(after: OpaqueJson) -> None:
    harness, leader, _ = returning(consumer("t"))
    waiting = harness.join(instance="b", protocols=(("range", after),))
    assert harness.state() is State.PREPARING_REBALANCE
    harness.join(leader)
    assert harness.answer(waiting).generation_id == 2


def test_a_static_member_of_another_type_comes_back_with_any_metadata() -> None:
    harness = GroupHarness()
    first = harness.join(instance="a", protocol_type="connect", protocols=(("eager", OpaqueJson.of([1])),))
    harness.advance(10_000)
    leader = harness.answer(first).member_id
    harness.sync(leader, instance="a", protocol_type="connect", protocol_name="eager", assignments={leader: [1]})
    again = harness.answer(
        harness.join(instance="a", protocol_type="connect", protocols=(("eager", OpaqueJson.of([2])),))
    )
    assert (again.generation_id, again.skip_assignment) == (1, True)


def returning(metadata: OpaqueJson) -> tuple[GroupHarness, str, str]:
    """A stable group of a leader and the static member b, which said this; b's id is the last."""
    harness = GroupHarness()
    leader, first = harness.join_new()
    static = harness.join(instance="b", protocols=(("range", metadata),))
    harness.advance_until_answered(first, static)
    old = harness.answer(static).member_id
    harness.settle_generation(leader, old)
    return harness, leader, old


def test_a_take_over_while_completing_always_rebalances() -> None:
    """KAFKA-9801: the leader may be assigning to the old id."""
    harness = GroupHarness()
    leader, first = harness.join_new()
    static = harness.join(instance="b")
    harness.advance_until_answered(first, static)
    assert harness.answer(first).leader == leader
    old = harness.answer(static).member_id
    waiting = harness.sync(old, instance="b")
    new = harness.join(instance="b")
    assert harness.code(waiting) is ErrorCode.FENCED_INSTANCE_ID
    harness.join(leader)
    assert harness.answer(new).generation_id == 2


def test_the_new_id_is_the_right_one_after_a_crash() -> None:
    """KAFKA-10284: the new id was not stored, and the live one was fenced."""
    harness = GroupHarness()
    _, old = harness.stable(instance="b")
    new = harness.answer(harness.join(instance="b")).member_id
    harness.crash()
    assert harness.code(harness.heartbeat(new, instance="b")) is ErrorCode.NONE
    assert harness.code(harness.heartbeat(old, instance="b")) is ErrorCode.FENCED_INSTANCE_ID


def test_the_new_id_is_the_right_one_after_a_crash_in_the_middle_of_a_rebalance() -> None:
    """The same failure in a rebalance whose assignment was never stored: the slot is the new id's all the same."""
    harness = GroupHarness()
    leader, old = harness.stable(instance="b")
    held = harness.answer(harness.sync(old, instance="b")).assignment
    harness.join_new()
    assert harness.state() is State.PREPARING_REBALANCE
    waiting = harness.join(instance="b", max_wait_ms=0)
    harness.advance(0)
    new = harness.answer(waiting).member_id
    harness.crash()
    assert harness.group.members.keys() == {leader, new}
    assert harness.answer(harness.sync(new, instance="b")).assignment == held
    assert harness.answer(harness.join(new, instance="b")).generation_id == 1
    assert harness.code(harness.heartbeat(old, instance="b")) is ErrorCode.FENCED_INSTANCE_ID


def test_a_static_leader_replaced_in_the_middle_of_a_rebalance_leads_after_a_crash() -> None:
    harness = GroupHarness()
    first = harness.join(instance="a")
    other = harness.join(instance="b")
    harness.advance(10_000)
    harness.settle_generation(harness.answer(first).member_id, harness.answer(other).member_id)
    harness.join_new()
    waiting = harness.join(instance="a", max_wait_ms=0, protocols=(("range", consumer("u")),))
    harness.advance(0)
    new = harness.answer(waiting).member_id
    harness.crash()
    assert (harness.group.leader, harness.state()) == (new, State.STABLE)
    harness.join(new, instance="a", protocols=(("range", consumer("u")),))
    assert harness.state() is State.PREPARING_REBALANCE


def test_a_static_member_that_joins_anew_after_its_old_id_left_is_not_fenced_by_it_after_a_crash() -> None:
    """That a member left is stored with the next assignment; until then its stored slot must not come back."""
    harness = GroupHarness()
    leader, old = harness.stable(instance="b")
    harness.leave(old)
    assert harness.group.members.keys() == {leader}
    waiting = harness.join(instance="b", max_wait_ms=0)
    harness.advance(0)
    new = harness.answer(waiting).member_id
    harness.crash()
    assert harness.group.members.keys() == {leader, new}
    assert harness.code(harness.join(new, instance="b")) is ErrorCode.NONE


def test_an_absent_static_member_keeps_its_slot_and_the_eldest_present_leads() -> None:
    harness = GroupHarness()
    first = harness.join(instance="a", rebalance_ms=5_000, session_ms=60_000)
    other, second = harness.join_new(rebalance_ms=5_000, session_ms=60_000)
    harness.advance_until_answered(first, second)
    static = harness.answer(first).member_id
    assert harness.answer(second).leader == static
    harness.settle_generation(static, other)
    call = harness.join(other, rebalance_ms=5_000, protocols=(("range", consumer("u")),))
    harness.advance(5_000)
    assert harness.answer(call).leader == other
    assert [x.member_id for x in harness.answer(call).members] == [static, other]


def test_an_administrator_removes_a_static_member_by_its_instance_id() -> None:
    harness = GroupHarness()
    leader, static = harness.stable(instance="b")
    answer = harness.answer(harness.leave("", instance="b"))
    assert [x.error_code for x in answer.members] == [ErrorCode.NONE]
    assert harness.group.members.keys() == {leader}
    assert static not in harness.group.static_members.values()
