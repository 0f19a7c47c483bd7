"""Members with a group_instance_id (C50-C52 and what follows from them)."""

from rallypoint.coordinator.core.group import State
from rallypoint.protocol.errors import ErrorCode
from tests.conformance.desk import Desk, consumer


def test_c50_a_static_member_is_added_at_once() -> None:
    d = Desk()
    call = d.join(instance="b")
    assert d.waits(call)
    d.advance(3_000)
    assert d.answer(call).member_id.startswith("b-")


def test_c51_c52_a_static_member_comes_back_and_its_old_id_is_fenced() -> None:
    d = Desk()
    leader, old = d.stable(instance="b")
    held = d.answer(d.sync(old, instance="b")).assignment
    answer = d.answer(d.join(instance="b"))
    assert answer.member_id != old
    assert (answer.generation_id, answer.leader, answer.skip_assignment) == (1, leader, False)
    assert d.state() is State.STABLE
    assert d.answer(d.sync(answer.member_id, instance="b")).assignment == held

    for call in (
        d.heartbeat(old, instance="b"),
        d.sync(old, instance="b"),
        d.commit(old, instance="b"),
        d.join(old, instance="b"),
    ):
        assert d.code(call) is ErrorCode.FENCED_INSTANCE_ID
        assert d.answer(call).member_id == old
    for call in (d.heartbeat(old), d.sync(old), d.commit(old), d.join(old)):
        assert d.code(call) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_static_leader_that_comes_back_leads_and_skips_the_assignment() -> None:
    d = Desk()
    first = d.join(instance="a")
    other = d.join(instance="b")
    d.advance(10_000)
    old = d.answer(first).member_id
    d.settle_generation(old, d.answer(other).member_id)
    answer = d.answer(d.join(instance="a", request_id="x"))
    assert answer.leader == answer.member_id == d.group.leader
    assert answer.skip_assignment
    assert [x.group_instance_id for x in answer.members] == ["a", "b"]
    # The same request again takes nothing over again.
    assert d.answer(d.join(instance="a", request_id="x")) == answer


def test_a_static_member_that_comes_back_with_other_topics_rebalances() -> None:
    """KAFKA-12759: Kafka compares the protocol's name alone."""
    d = Desk()
    d.stable(instance="b")
    d.join(instance="b", protocols=(("range", consumer("u")),))
    assert d.state() is State.PREPARING_REBALANCE


def test_a_take_over_while_completing_always_rebalances() -> None:
    """KAFKA-9801: the leader may be assigning to the old id."""
    d = Desk()
    leader, first = d.join_new()
    static = d.join(instance="b")
    d.advance_until_answered(first, static)
    assert d.answer(first).leader == leader
    old = d.answer(static).member_id
    waiting = d.sync(old, instance="b")
    new = d.join(instance="b")
    assert d.code(waiting) is ErrorCode.FENCED_INSTANCE_ID
    d.join(leader)
    assert d.answer(new).generation_id == 2


def test_the_new_id_is_the_right_one_after_a_crash() -> None:
    """KAFKA-10284: the new id was not stored, and the live one was fenced."""
    d = Desk()
    _, old = d.stable(instance="b")
    new = d.answer(d.join(instance="b")).member_id
    d.crash()
    assert d.code(d.heartbeat(new, instance="b")) is ErrorCode.NONE
    assert d.code(d.heartbeat(old, instance="b")) is ErrorCode.FENCED_INSTANCE_ID


def test_the_new_id_is_the_right_one_after_a_crash_in_the_middle_of_a_rebalance() -> None:
    """The same failure in a rebalance whose assignment was never stored: the seat is the new id's all the same."""
    d = Desk()
    leader, old = d.stable(instance="b")
    held = d.answer(d.sync(old, instance="b")).assignment
    d.join_new()
    assert d.state() is State.PREPARING_REBALANCE
    waiting = d.join(instance="b", max_wait_ms=0)
    d.advance(0)
    new = d.answer(waiting).member_id
    d.crash()
    assert d.group.members.keys() == {leader, new}
    assert d.answer(d.sync(new, instance="b")).assignment == held
    assert d.answer(d.join(new, instance="b")).generation_id == 1
    assert d.code(d.heartbeat(old, instance="b")) is ErrorCode.FENCED_INSTANCE_ID


def test_a_static_leader_replaced_in_the_middle_of_a_rebalance_leads_after_a_crash() -> None:
    d = Desk()
    first = d.join(instance="a")
    other = d.join(instance="b")
    d.advance(10_000)
    d.settle_generation(d.answer(first).member_id, d.answer(other).member_id)
    d.join_new()
    waiting = d.join(instance="a", max_wait_ms=0, protocols=(("range", consumer("u")),))
    d.advance(0)
    new = d.answer(waiting).member_id
    d.crash()
    assert (d.group.leader, d.state()) == (new, State.STABLE)
    d.join(new, instance="a", protocols=(("range", consumer("u")),))
    assert d.state() is State.PREPARING_REBALANCE


def test_a_static_member_that_joins_anew_after_its_old_id_left_is_not_fenced_by_it_after_a_crash() -> None:
    """That a member left is stored with the next assignment; until then its stored seat must not come back."""
    d = Desk()
    leader, old = d.stable(instance="b")
    d.leave(old)
    assert d.group.members.keys() == {leader}
    waiting = d.join(instance="b", max_wait_ms=0)
    d.advance(0)
    new = d.answer(waiting).member_id
    d.crash()
    assert d.group.members.keys() == {leader, new}
    assert d.code(d.join(new, instance="b")) is ErrorCode.NONE


def test_an_absent_static_member_keeps_its_seat_and_the_eldest_present_leads() -> None:
    d = Desk()
    first = d.join(instance="a", rebalance_ms=5_000, session_ms=60_000)
    other, second = d.join_new(rebalance_ms=5_000, session_ms=60_000)
    d.advance_until_answered(first, second)
    static = d.answer(first).member_id
    assert d.answer(second).leader == static
    d.settle_generation(static, other)
    call = d.join(other, rebalance_ms=5_000, protocols=(("range", consumer("u")),))
    d.advance(5_000)
    assert d.answer(call).leader == other
    assert [x.member_id for x in d.answer(call).members] == [static, other]


def test_an_administrator_removes_a_static_member_by_its_instance_id() -> None:
    d = Desk()
    leader, static = d.stable(instance="b")
    answer = d.answer(d.leave("", instance="b"))
    assert [x.error_code for x in answer.members] == [ErrorCode.NONE]
    assert d.group.members.keys() == {leader}
    assert static not in d.group.static_members.values()
