"""Members that an operator removes.

Sources are names of Apache Kafka's own code. There `Admin.removeMembersFromConsumerGroup` sends a LeaveGroup for each
member, named by its instance id, so what is true of a leave is true of a removal. What goes beyond Kafka says so.
"""

import pytest

from rallypoint.coordinator.core.commands import Trigger
from rallypoint.coordinator.core.effects import MembersRemoved, RebalanceBegan, RebalanceHeld
from rallypoint.coordinator.core.group import State
from rallypoint.protocol import admin_messages as admin
from rallypoint.protocol.errors import ErrorCode
from tests.conformance.group_harness import GroupHarness

ABSENT = ErrorCode.UNKNOWN_MEMBER_ID.name


def answered(harness: GroupHarness, call: int) -> admin.RemoveMembersAnswer:
    answer = harness.answer(call)
    assert isinstance(answer, admin.RemoveMembersAnswer)
    return answer


def test_a_static_member_is_removed_by_its_instance_id() -> None:
    """Source: `RemoveMembersFromConsumerGroupHandler`, `GroupMetadataManager.classicGroupLeaveToClassicGroup`."""
    harness = GroupHarness()
    leader, static = harness.stable(instance="i")
    answer = answered(harness, harness.remove("i", reason="gone"))
    assert answer.members == (
        admin.RemovedMember(
            member_id=static, group_instance_id="i", client_id="c", error_code=0, error_name="NONE"
        ),
    )  # fmt: skip
    assert harness.code(harness.heartbeat(static, instance="i")) is ErrorCode.UNKNOWN_MEMBER_ID
    assert harness.state() is State.PREPARING_REBALANCE
    newcomer = harness.join(instance="i")
    harness.join(leader)
    assert harness.answer(newcomer).member_id != static
    assert harness.code(harness.heartbeat(static, instance="i")) is ErrorCode.FENCED_INSTANCE_ID


def test_an_unknown_instance_has_its_own_error_and_the_others_go() -> None:
    """Source: LeaveGroup by batch, `LeaveGroupResponse.MemberResponse`: each member has a result of its own."""
    harness = GroupHarness()
    _, follower = harness.stable()
    call = harness.remove("nobody", follower, follower)
    assert harness.removed(call) == [ABSENT, "NONE", ABSENT]
    assert follower not in harness.group.members
    assert answered(harness, call).members[0].member_id == "nobody"


def test_many_that_go_at_once_are_one_rebalance() -> None:
    """Source: `classicGroupLeaveToClassicGroup`: the group prepares to rebalance once, after the whole batch."""
    harness = GroupHarness()
    leader, follower = harness.stable()
    third, waiting = harness.join_new()
    harness.join(leader)
    harness.join(follower)
    assert not harness.waits(waiting)
    harness.settle_generation(leader, follower, third)
    harness.events.clear()
    answer = answered(harness, harness.remove(follower, third, reason="both hang"))
    began = [event for event in harness.events if isinstance(event, RebalanceBegan)]
    assert [(x.trigger, x.rebalance_id) for x in began] == [(Trigger.MEMBER_REMOVED, answer.rebalance_id)]
    assert began[0].reason == f"an operator removed {follower}, {third}: both hang"
    assert MembersRemoved("g", Trigger.MEMBER_REMOVED, (follower, third), 2, "both hang") in harness.events
    assert harness.rebalances()[0].trigger == "member_removed"


def test_all_of_them_leave_an_empty_group() -> None:
    """Source: `removeMembersFromConsumerGroup` without members removes all; the group is then Empty."""
    harness = GroupHarness()
    leader, follower = harness.stable()
    generation = harness.group.generation_id
    answered(harness, harness.remove(leader, follower))
    assert (harness.state(), harness.group.generation_id) == (State.EMPTY, generation + 1)
    assert harness.code(harness.join(leader)) is ErrorCode.UNKNOWN_MEMBER_ID
    harness.crash()
    assert harness.state() is State.EMPTY


def test_of_no_group_nobody_is_removed() -> None:
    """Ours: a group that is not there is told apart, as in each of an operator's calls."""
    harness = GroupHarness()
    assert harness.code(harness.remove("a")) is ErrorCode.GROUP_ID_NOT_FOUND
    assert harness.state() is State.DEAD


@pytest.mark.parametrize("kind", ["join", "sync", "heartbeat"])
def test_whatever_the_removed_one_waits_for_is_answered_once(kind: str) -> None:
    """Source: `classicGroupLeaveToClassicGroup` answers a pending join with UNKNOWN_MEMBER_ID and no id."""
    harness = GroupHarness()
    leader, follower = harness.stable()
    if kind == "heartbeat":
        call = harness.heartbeat(follower, wait_ms=4_000)
    else:
        harness.join(leader)
        call = harness.join(follower)
        if kind == "join":
            harness.join_new()
            call = harness.join(follower)
        else:
            call = harness.sync(follower)
    assert harness.waits(call)
    assert harness.removed(harness.remove(follower)) == ["NONE"]
    assert (harness.code(call), harness.answer(call).member_id) == (ErrorCode.UNKNOWN_MEMBER_ID, "")


def test_an_id_that_was_handed_out_is_void() -> None:
    """Source: `classicGroupLeaveToClassicGroup` removes a pending member; no rebalance follows."""
    harness = GroupHarness()
    leader, _ = harness.stable()
    handed_out = harness.answer(harness.join()).member_id
    answer = answered(harness, harness.remove(handed_out))
    assert ([x.error_name for x in answer.members], answer.rebalance_id) == (["NONE"], None)
    assert harness.state() is State.STABLE
    assert harness.code(harness.join(handed_out)) is ErrorCode.UNKNOWN_MEMBER_ID
    assert harness.code(harness.heartbeat(leader)) is ErrorCode.NONE


def test_a_removal_in_a_join_phase_is_waited_for_no_longer() -> None:
    """Source: `classicGroupLeaveToClassicGroup` in PreparingRebalance: `maybeCompleteJoinPhase`."""
    harness = GroupHarness()
    leader, follower = harness.stable()
    call = harness.join(leader)
    under_way = harness.group.rebalance_id
    answer = answered(harness, harness.remove(follower))
    assert answer.rebalance_id == under_way
    assert harness.answer(call).generation_id == harness.group.generation_id
    assert harness.state() is State.COMPLETING_REBALANCE


def test_a_dry_run_says_the_same_and_changes_nothing() -> None:
    """Ours."""
    harness = GroupHarness()
    _, follower = harness.stable()
    waiting = harness.heartbeat(follower, wait_ms=4_000)
    before, log = list(harness.events), dict(harness.log)
    answer = answered(harness, harness.remove(follower, "nobody", dry_run=True))
    assert [x.error_name for x in answer.members] == ["NONE", ABSENT]
    assert (answer.dry_run, answer.rebalance_id) == (True, None)
    assert (harness.state(), harness.events, harness.log) == (State.STABLE, before, log)
    assert harness.waits(waiting)


@pytest.mark.parametrize("is_leader", [False, True])
def test_a_crash_does_not_bring_the_removed_one_back(is_leader: bool) -> None:
    """Ours: in Kafka a member that left comes back with a load, until its session ends."""
    harness = GroupHarness()
    leader, follower = harness.stable()
    gone, stays = (leader, follower) if is_leader else (follower, leader)
    harness.remove(gone)
    harness.crash()
    assert harness.state() is State.PREPARING_REBALANCE, "what it owned is nobody's"
    assert list(harness.group.members) == [stays]
    assert harness.code(harness.heartbeat(gone)) is ErrorCode.UNKNOWN_MEMBER_ID
    harness.join(stays)
    harness.settle_generation(stays)
    assert any(key[:2] == ("member", stays) for key in harness.log)
    assert not any(key[0] == "member" and key[1] == gone for key in harness.log)


def test_a_crash_does_not_fence_the_process_that_took_the_place_of_the_removed_one() -> None:
    """Ours."""
    harness = GroupHarness()
    leader, static = harness.stable(instance="i")
    harness.remove("i")
    newcomer = harness.join(instance="i")
    harness.join(leader)
    new_id = harness.answer(newcomer).member_id
    harness.crash()
    assert list(harness.group.members) == [leader]
    assert harness.code(harness.join(new_id, instance="i")) is ErrorCode.UNKNOWN_MEMBER_ID
    again = harness.join(instance="i")
    harness.join(leader)
    again_id = harness.answer(again).member_id
    assert again_id not in {static, new_id}
    harness.settle_generation(leader, again_id)
    harness.crash()
    assert (harness.state(), set(harness.group.members)) == (State.STABLE, {leader, again_id})


def test_a_freeze_holds_the_rebalance_and_the_member_is_out_at_once() -> None:
    """Ours: removing is an operator's word, but not the word to rebalance now."""
    harness = GroupHarness()
    leader, follower = harness.stable()
    harness.freeze(5_000)
    answer = answered(harness, harness.remove(follower))
    assert (answer.rebalance_id, answer.held_until_ms) == (None, harness.now_ms + 5_000)
    assert [x.trigger for x in harness.events if isinstance(x, RebalanceHeld)] == [Trigger.MEMBER_REMOVED]
    assert (harness.state(), list(harness.group.members)) == (State.STABLE, [leader])
    harness.crash()
    assert [cause.trigger for cause in harness.group.held] == ["member_removed"]
    harness.advance(5_000)
    assert harness.state() is State.PREPARING_REBALANCE


def test_a_freeze_that_protects_nobody_holds_nothing() -> None:
    """Ours: as where the last member of the generation leaves."""
    harness = GroupHarness()
    leader, follower = harness.stable()
    harness.freeze(5_000)
    answer = answered(harness, harness.remove(leader, follower))
    assert (answer.held_until_ms, answer.rebalance_id) == (None, 2)
    assert harness.state() is State.EMPTY
