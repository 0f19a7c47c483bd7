"""A static member comes back without its id, in each state; and what its old id and wrong pairs of ids are told.

Sources are names of Apache Kafka's own code, of `GroupMetadataManager` where nothing else stands before the dot.
"""

from dataclasses import replace

import pytest

from rallypoint.coordinator.core.group import State
from rallypoint.protocol.errors import ErrorCode
from rallypoint.protocol.opaque import OpaqueJson
from tests.conformance.group_harness import GroupHarness, consumer

LONG_MS = 60_000


def offers(*names: str) -> tuple[tuple[str, OpaqueJson], ...]:
    return tuple((name, consumer("t")) for name in names)


def test_in_preparing_the_old_join_is_fenced_by_name_and_the_new_one_waits_in_its_place() -> None:
    """Source: `ClassicGroup.replaceStaticMember` answers what waits; then the phase is tested for its end."""
    harness = GroupHarness()
    leader, old = harness.stable(instance="b", session_ms=LONG_MS)
    harness.topics(t=1)
    waiting = harness.join(old, instance="b", session_ms=LONG_MS)
    new = harness.join(instance="b", session_ms=LONG_MS)
    assert (harness.code(waiting), harness.answer(waiting).member_id) == (ErrorCode.FENCED_INSTANCE_ID, old)
    assert (harness.waits(new), harness.state(), len(harness.group.members)) == (True, State.PREPARING_REBALANCE, 2)
    harness.join(leader)
    assert harness.answer(new).generation_id == 2
    assert harness.answer(new).member_id == harness.group.static_members["b"]


def test_in_preparing_the_new_join_may_be_the_one_that_was_awaited() -> None:
    """Source: `updateStaticMemberThenRebalanceOrCompleteJoin`, PreparingRebalance."""
    harness = GroupHarness()
    leader, _ = harness.stable(instance="b")
    waiting = harness.join(leader)
    assert harness.waits(waiting)
    new = harness.join(instance="b")
    assert [harness.answer(call).generation_id for call in (waiting, new)] == [2, 2]


def test_leadership_follows_the_slot_while_the_leader_assigns() -> None:
    """Source: `ClassicGroup.replaceStaticMember`; in CompletingRebalance another one begins, whatever was said."""
    harness = GroupHarness()
    eldest, first = harness.join_new(session_ms=LONG_MS)
    static = harness.join(instance="b", session_ms=LONG_MS)
    harness.advance_until_answered(first, static)
    old = harness.answer(static).member_id
    harness.settle_generation(eldest, old)
    call = harness.join(old, instance="b", protocols=(("range", consumer("u")),), session_ms=LONG_MS)
    harness.leave(eldest)
    third = harness.answer(call)
    assert (third.leader, harness.state()) == (old, State.COMPLETING_REBALANCE)
    harness.join_new(session_ms=LONG_MS)
    harness.join(old, instance="b", session_ms=LONG_MS)
    assert (harness.group.leader, harness.state()) == (old, State.COMPLETING_REBALANCE)
    new = harness.join(instance="b", session_ms=LONG_MS)
    assert harness.state() is State.PREPARING_REBALANCE
    assert harness.group.leader == harness.group.static_members["b"] != old
    assert harness.waits(new)


@pytest.mark.parametrize("state", [State.COMPLETING_REBALANCE, State.STABLE])
def test_leadership_follows_the_slot_and_does_not_go_to_the_eldest(state: State) -> None:
    """Source: `ClassicGroup.replaceStaticMember`: who led under the old id leads under the new one."""
    harness = GroupHarness()
    first, second = harness.join(instance="a", session_ms=LONG_MS), harness.join(instance="b", session_ms=LONG_MS)
    harness.advance_until_answered(first, second)
    eldest, old = harness.answer(first).member_id, harness.answer(second).member_id
    harness.settle_generation(eldest, old)
    call = harness.join(old, instance="b", protocols=(("range", consumer("u")),), session_ms=LONG_MS)
    harness.advance_until_answered(call)
    assert harness.answer(call).leader == old
    if state is State.STABLE:
        harness.sync(old, instance="b", assignments={})
    harness.join(instance="b", protocols=(("range", consumer("u")),), session_ms=LONG_MS)
    assert harness.group.leader == harness.group.static_members["b"] != old


def test_in_stable_votes_that_would_choose_another_protocol_begin_a_rebalance() -> None:
    """Source: `updateStaticMemberThenRebalanceOrCompleteJoin`, Stable: the protocol is chosen again and compared."""
    harness = GroupHarness()
    leader, first = harness.join_new(protocols=offers("A", "B"))
    static = harness.join(instance="b", protocols=offers("A", "B"))
    _, third = harness.join_new(protocols=offers("B", "A"))
    harness.advance_until_answered(first, static, third)
    assert harness.answer(first).protocol_name == "A"
    for member in (leader, harness.answer(static).member_id, harness.answer(third).member_id):
        harness.sync(member, protocol_name="A")
    assert harness.state() is State.STABLE
    same = harness.join(instance="b", protocols=offers("A", "B"))
    assert (harness.answer(same).generation_id, harness.state()) == (1, State.STABLE)
    other = harness.join(instance="b", protocols=offers("B", "A"))
    assert (harness.waits(other), harness.state()) == (True, State.PREPARING_REBALANCE)


def test_a_full_group_lets_a_static_member_take_its_own_slot() -> None:
    """Source: `ClassicGroup.acceptJoiningMember`. Ours: the slot is its own, so that the group grows by nobody."""
    harness = GroupHarness()
    harness.stable(instance="b")
    harness.rules = replace(harness.rules, group_max_size=2)
    assert harness.answer(harness.join(instance="b")).generation_id == 1
    assert harness.code(harness.join(instance="c")) is ErrorCode.GROUP_MAX_SIZE_REACHED


def test_a_slot_is_taken_over_although_newcomers_took_every_place_of_the_rebalance() -> None:
    """Ours: an absent static member stays in the group in any case, so that its own slot is no place too many."""
    harness = GroupHarness()
    leader, _ = harness.stable(instance="b", session_ms=LONG_MS)
    harness.rules = replace(harness.rules, group_max_size=2)
    harness.topics(t=1)
    pending = harness.answer(harness.join(session_ms=LONG_MS)).member_id
    calls = [harness.join(leader, session_ms=LONG_MS), harness.join(pending, session_ms=LONG_MS)]
    calls.append(harness.join(instance="b", session_ms=LONG_MS))
    assert [harness.answer(call).generation_id for call in calls] == [2, 2, 2]


@pytest.mark.parametrize("state", [State.STABLE, State.PREPARING_REBALANCE])
def test_an_instance_that_nobody_has_and_one_that_another_has(state: State) -> None:
    """Source: `ClassicGroup.validateMember`: the instance id is looked at first, then whose it is, then the member."""
    harness = GroupHarness()
    leader, static = harness.stable(instance="b")
    if state is State.PREPARING_REBALANCE:
        harness.join(leader)
    for instance, code in (("nobody's", ErrorCode.UNKNOWN_MEMBER_ID), ("b", ErrorCode.FENCED_INSTANCE_ID)):
        for member in (leader, "stranger"):
            for call in (
                harness.heartbeat(member, 99, instance=instance),
                harness.sync(member, 99, instance=instance),
                harness.commit(member, 99, instance=instance),
                harness.join(member, instance=instance),
            ):
                assert harness.code(call) is code
            left = harness.answer(harness.leave(member, instance=instance)).members[0]
            assert left.error_code == code
    assert harness.code(harness.heartbeat("stranger", 99)) is ErrorCode.UNKNOWN_MEMBER_ID
    assert harness.group.members.keys() == {leader, static}


def test_with_its_own_id_a_static_member_joins_as_any_other() -> None:
    """Source: `classicGroupJoinExistingMember`, which asks for no instance id but in the check of members."""
    harness = GroupHarness()
    first, second = harness.join(instance="a"), harness.join(instance="b")
    harness.advance_until_answered(first, second)
    leader, follower = harness.answer(first).member_id, harness.answer(second).member_id
    harness.settle_generation(leader, follower)
    answer = harness.answer(harness.join(follower, instance="b"))
    assert (answer.generation_id, answer.member_id, answer.members) == (1, follower, ())
    assert harness.waits(harness.join(leader, instance="a"))
    assert harness.state() is State.PREPARING_REBALANCE
    assert harness.group.static_members == {"a": leader, "b": follower}


def test_a_leave_without_an_id_names_an_instance_that_is_there() -> None:
    """Source: `classicGroupLeave`: an empty member id with an instance id is an administrator's."""
    harness = GroupHarness()
    leader, static = harness.stable(instance="b")
    left = harness.answer(harness.leave("", instance="nobody's")).members[0]
    assert left.error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert harness.answer(harness.leave("")).members[0].error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert harness.group.members.keys() == {leader, static}
