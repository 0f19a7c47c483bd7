"""A static member comes back without its id, in each state; and what its old id and wrong pairs of ids are told.

Sources are names of Apache Kafka's own code, of `GroupMetadataManager` where nothing else stands before the dot.
"""

from dataclasses import replace

import pytest

from rallypoint.coordinator.core.group import State
from rallypoint.protocol.errors import ErrorCode
from rallypoint.protocol.opaque import OpaqueJson
from tests.conformance.desk import Desk, consumer

LONG_MS = 60_000


def offers(*names: str) -> tuple[tuple[str, OpaqueJson], ...]:
    return tuple((name, consumer("t")) for name in names)


def test_in_preparing_the_old_join_is_fenced_by_name_and_the_new_one_waits_in_its_place() -> None:
    """Source: `ClassicGroup.replaceStaticMember` answers what waits; then the phase is tested for its end."""
    d = Desk()
    leader, old = d.stable(instance="b", session_ms=LONG_MS)
    d.topics(t=1)
    waiting = d.join(old, instance="b", session_ms=LONG_MS)
    new = d.join(instance="b", session_ms=LONG_MS)
    assert (d.code(waiting), d.answer(waiting).member_id) == (ErrorCode.FENCED_INSTANCE_ID, old)
    assert (d.waits(new), d.state(), len(d.group.members)) == (True, State.PREPARING_REBALANCE, 2)
    d.join(leader)
    assert d.answer(new).generation_id == 2
    assert d.answer(new).member_id == d.group.static_members["b"]


def test_in_preparing_the_new_join_may_be_the_one_that_was_awaited() -> None:
    """Source: `updateStaticMemberThenRebalanceOrCompleteJoin`, PreparingRebalance."""
    d = Desk()
    leader, _ = d.stable(instance="b")
    waiting = d.join(leader)
    assert d.waits(waiting)
    new = d.join(instance="b")
    assert [d.answer(call).generation_id for call in (waiting, new)] == [2, 2]


def test_leadership_follows_the_seat_while_the_leader_assigns() -> None:
    """Source: `ClassicGroup.replaceStaticMember`; in CompletingRebalance another round begins, whatever was said."""
    d = Desk()
    eldest, first = d.join_new(session_ms=LONG_MS)
    static = d.join(instance="b", session_ms=LONG_MS)
    d.advance_until_answered(first, static)
    old = d.answer(static).member_id
    d.settle_generation(eldest, old)
    call = d.join(old, instance="b", protocols=(("range", consumer("u")),), session_ms=LONG_MS)
    d.leave(eldest)
    third = d.answer(call)
    assert (third.leader, d.state()) == (old, State.COMPLETING_REBALANCE)
    d.join_new(session_ms=LONG_MS)
    d.join(old, instance="b", session_ms=LONG_MS)
    assert (d.group.leader, d.state()) == (old, State.COMPLETING_REBALANCE)
    new = d.join(instance="b", session_ms=LONG_MS)
    assert d.state() is State.PREPARING_REBALANCE
    assert d.group.leader == d.group.static_members["b"] != old
    assert d.waits(new)


@pytest.mark.parametrize("state", [State.COMPLETING_REBALANCE, State.STABLE])
def test_leadership_follows_the_seat_and_does_not_go_to_the_eldest(state: State) -> None:
    """Source: `ClassicGroup.replaceStaticMember`: who led under the old id leads under the new one."""
    d = Desk()
    first, second = d.join(instance="a", session_ms=LONG_MS), d.join(instance="b", session_ms=LONG_MS)
    d.advance_until_answered(first, second)
    eldest, old = d.answer(first).member_id, d.answer(second).member_id
    d.settle_generation(eldest, old)
    call = d.join(old, instance="b", protocols=(("range", consumer("u")),), session_ms=LONG_MS)
    d.advance_until_answered(call)
    assert d.answer(call).leader == old
    if state is State.STABLE:
        d.sync(old, instance="b", assignments={})
    d.join(instance="b", protocols=(("range", consumer("u")),), session_ms=LONG_MS)
    assert d.group.leader == d.group.static_members["b"] != old


def test_in_stable_votes_that_would_choose_another_protocol_begin_a_round() -> None:
    """Source: `updateStaticMemberThenRebalanceOrCompleteJoin`, Stable: the protocol is chosen anew and compared."""
    d = Desk()
    leader, first = d.join_new(protocols=offers("A", "B"))
    static = d.join(instance="b", protocols=offers("A", "B"))
    _, third = d.join_new(protocols=offers("B", "A"))
    d.advance_until_answered(first, static, third)
    assert d.answer(first).protocol_name == "A"
    for member in (leader, d.answer(static).member_id, d.answer(third).member_id):
        d.sync(member, protocol_name="A")
    assert d.state() is State.STABLE
    same = d.join(instance="b", protocols=offers("A", "B"))
    assert (d.answer(same).generation_id, d.state()) == (1, State.STABLE)
    other = d.join(instance="b", protocols=offers("B", "A"))
    assert (d.waits(other), d.state()) == (True, State.PREPARING_REBALANCE)


def test_a_full_group_lets_a_static_member_take_its_own_seat() -> None:
    """Source: `ClassicGroup.acceptJoiningMember`. Ours: the seat is its own, so that the group grows by nobody."""
    d = Desk()
    d.stable(instance="b")
    d.rules = replace(d.rules, group_max_size=2)
    assert d.answer(d.join(instance="b")).generation_id == 1
    assert d.code(d.join(instance="c")) is ErrorCode.GROUP_MAX_SIZE_REACHED


def test_a_seat_is_taken_over_although_newcomers_took_every_place_of_the_round() -> None:
    """Ours: an absent static member stays in the group in any case, so that its own seat is no place too many."""
    d = Desk()
    leader, _ = d.stable(instance="b", session_ms=LONG_MS)
    d.rules = replace(d.rules, group_max_size=2)
    d.topics(t=1)
    pending = d.answer(d.join(session_ms=LONG_MS)).member_id
    calls = [d.join(leader, session_ms=LONG_MS), d.join(pending, session_ms=LONG_MS)]
    calls.append(d.join(instance="b", session_ms=LONG_MS))
    assert [d.answer(call).generation_id for call in calls] == [2, 2, 2]


@pytest.mark.parametrize("state", [State.STABLE, State.PREPARING_REBALANCE])
def test_an_instance_that_nobody_has_and_one_that_another_has(state: State) -> None:
    """Source: `ClassicGroup.validateMember`: the instance id is looked at first, then whose it is, then the member."""
    d = Desk()
    leader, static = d.stable(instance="b")
    if state is State.PREPARING_REBALANCE:
        d.join(leader)
    for instance, code in (("nobody's", ErrorCode.UNKNOWN_MEMBER_ID), ("b", ErrorCode.FENCED_INSTANCE_ID)):
        for member in (leader, "stranger"):
            for call in (
                d.heartbeat(member, 99, instance=instance),
                d.sync(member, 99, instance=instance),
                d.commit(member, 99, instance=instance),
                d.join(member, instance=instance),
            ):
                assert d.code(call) is code
            left = d.answer(d.leave(member, instance=instance)).members[0]
            assert left.error_code == code
    assert d.code(d.heartbeat("stranger", 99)) is ErrorCode.UNKNOWN_MEMBER_ID
    assert d.group.members.keys() == {leader, static}


def test_with_its_own_id_a_static_member_joins_as_any_other() -> None:
    """Source: `classicGroupJoinExistingMember`, which asks for no instance id but in the check of members."""
    d = Desk()
    first, second = d.join(instance="a"), d.join(instance="b")
    d.advance_until_answered(first, second)
    leader, follower = d.answer(first).member_id, d.answer(second).member_id
    d.settle_generation(leader, follower)
    answer = d.answer(d.join(follower, instance="b"))
    assert (answer.generation_id, answer.member_id, answer.members) == (1, follower, ())
    assert d.waits(d.join(leader, instance="a"))
    assert d.state() is State.PREPARING_REBALANCE
    assert d.group.static_members == {"a": leader, "b": follower}


def test_a_leave_without_an_id_names_an_instance_that_is_there() -> None:
    """Source: `classicGroupLeave`: an empty member id with an instance id is an administrator's."""
    d = Desk()
    leader, static = d.stable(instance="b")
    left = d.answer(d.leave("", instance="nobody's")).members[0]
    assert left.error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert d.answer(d.leave("")).members[0].error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert d.group.members.keys() == {leader, static}
