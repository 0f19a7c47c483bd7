"""The join phase: how long it lasts, what ends it early, who is left out.

Sources are names of Apache Kafka's own code, of `GroupMetadataManager` where nothing else stands before the dot.
"""

import pytest

from rallypoint.coordinator.core.commands import Rules, TimerFired, TimerKey, TimerKind
from rallypoint.coordinator.core.decision import session_timer
from rallypoint.coordinator.core.group import State
from rallypoint.protocol.errors import ErrorCode
from tests.conformance.group_harness import GroupHarness, consumer

LONG_MS = 60_000
"""Of sessions that nothing in these tests is to end."""


def group_harness(**rules: int) -> GroupHarness:
    return GroupHarness(
        rules=Rules(
            **{
                "group_min_session_timeout_ms": 1,
                "group_join_linger_ms": 0,
                "group_initial_rebalance_delay_ms": 3_000,
                **rules,
            }
        )
    )


@pytest.mark.parametrize("who", ["a newcomer", "a member again"])
def test_whoever_joins_later_does_not_lengthen_the_phase(who: str) -> None:
    """Source: `prepareRebalance`, which schedules the end of the phase once, by the timeouts of that moment."""
    harness = group_harness()
    leader, follower = harness.stable(rebalance_ms=2_000, session_ms=LONG_MS)
    first = harness.join(leader, rebalance_ms=2_000, session_ms=LONG_MS)
    harness.advance(500)
    if who == "a newcomer":
        late, call = harness.join_new(rebalance_ms=LONG_MS, session_ms=LONG_MS)
    else:
        late, call = leader, harness.join(leader, rebalance_ms=LONG_MS, session_ms=LONG_MS)
        assert harness.answer(first).superseded
    harness.advance(1_499)
    assert harness.waits(call)
    harness.advance(1)
    assert harness.answer(call).generation_id == 2
    assert harness.group.members.keys() == {leader, late}
    assert harness.code(harness.heartbeat(follower)) is ErrorCode.UNKNOWN_MEMBER_ID


def test_the_timeout_of_the_newcomer_that_begins_a_rebalance_counts_for_it() -> None:
    """Source: `addMemberThenRebalanceOrCompleteJoin` adds the member first, and prepares the rebalance then."""
    harness = group_harness()
    harness.stable(rebalance_ms=2_000, session_ms=LONG_MS)
    _, call = harness.join_new(rebalance_ms=5_000, session_ms=LONG_MS)
    harness.advance(4_999)
    assert harness.waits(call)
    harness.advance(1)
    assert harness.answer(call).generation_id == 2


def test_a_session_that_ends_completes_the_phase_long_before_its_time() -> None:
    """Source: `expireClassicGroupMemberHeartbeat`, which tests whether everyone who is left has joined."""
    harness = group_harness()
    leader, follower = harness.stable(rebalance_ms=LONG_MS, session_ms=2_000)
    call = harness.join(leader, rebalance_ms=LONG_MS, session_ms=2_000)
    harness.advance(1_999)
    assert harness.waits(call)
    harness.advance(1)
    assert [x.member_id for x in harness.answer(call).members] == [leader]
    assert follower not in harness.group.members


def test_a_rebalance_timeout_below_the_initial_delay_does_not_shorten_it() -> None:
    """Source: `InitialDelayedJoin`: the delay, and then what is left of the rebalance timeout, which is nothing."""
    harness = group_harness()
    _, first = harness.join_new(rebalance_ms=1_000)
    harness.advance(500)
    _, second = harness.join_new(rebalance_ms=1_000)
    harness.advance(2_499)
    assert harness.waits(first)
    harness.advance(1)
    assert [harness.answer(call).generation_id for call in (first, second)] == [1, 1]


def test_the_initial_delay_does_not_wait_for_ids_that_were_handed_out() -> None:
    """Source: `tryCompleteInitialRebalanceElseSchedule`, which looks at members alone."""
    harness = group_harness()
    pending = harness.answer(harness.join(session_ms=LONG_MS)).member_id
    member, call = harness.join_new()
    harness.advance(3_000)
    assert harness.answer(call).generation_id == 1
    assert harness.group.members.keys() == {member}
    harness.join(pending, session_ms=LONG_MS)
    assert harness.state() is State.PREPARING_REBALANCE


def test_the_initial_delay_comes_again_with_each_new_beginning_and_newcomers_lengthen_it_again() -> None:
    """Source: `addMemberThenRebalanceOrCompleteJoin`: whenever the state before was Empty, in any generation."""
    harness = group_harness()
    harness.leave(*harness.stable())
    assert (harness.state(), harness.group.generation_id) == (State.EMPTY, 2)
    _, first = harness.join_new()
    harness.advance(2_000)
    _, second = harness.join_new()
    harness.advance(3_999)
    assert harness.waits(first)
    harness.advance(1)
    assert [harness.answer(call).generation_id for call in (first, second)] == [3, 3]


def test_the_only_member_leaves_during_the_initial_delay_and_its_time_still_runs() -> None:
    """Source: `InitialDelayedJoin` is not forced by a leave; `completeClassicGroupJoin` then finds nobody."""
    harness = group_harness()
    member, call = harness.join_new()
    harness.advance(1_000)
    harness.leave(member)
    assert harness.code(call) is ErrorCode.UNKNOWN_MEMBER_ID
    harness.advance(1_999)
    assert (harness.state(), harness.group.members) == (State.PREPARING_REBALANCE, {})
    harness.advance(1)
    assert (harness.state(), harness.group.generation_id, harness.group.protocol_name) == (State.EMPTY, 1, None)


def test_where_nobody_came_dynamic_members_are_out_and_static_ones_are_waited_for_again() -> None:
    """Source: `completeClassicGroupJoin` removes dynamic members first; then, with nobody who could lead, it waits."""
    harness = group_harness()
    harness.topics(t=2)
    dynamic, static = harness.stable(instance="b", session_ms=LONG_MS)
    harness.topics(t=3)
    harness.advance(9_999)
    assert harness.group.members.keys() == {dynamic, static}
    harness.advance(1)
    assert harness.group.members.keys() == {static}
    assert session_timer(dynamic) not in harness.timers
    assert (harness.state(), harness.group.generation_id) == (State.PREPARING_REBALANCE, 1)
    assert harness.code(harness.join(dynamic)) is ErrorCode.UNKNOWN_MEMBER_ID
    harness.advance(15_000)
    assert (harness.state(), harness.group.generation_id) == (State.PREPARING_REBALANCE, 1)
    answer = harness.answer(harness.join(static, instance="b", session_ms=LONG_MS))
    assert (answer.generation_id, answer.leader) == (2, static)


def test_an_absent_static_member_has_part_in_the_generation_and_is_out_when_it_does_not_sync() -> None:
    """Source: `completeClassicGroupJoin` adds all members to the pending syncs, `expirePendingSync` removes all."""
    harness = group_harness()
    leader, static = harness.stable(instance="b", session_ms=LONG_MS)
    call = harness.join(leader, session_ms=LONG_MS)
    harness.advance(10_000)
    assert [x.member_id for x in harness.answer(call).members] == [leader, static]
    harness.sync(leader, assignments={leader: [0], static: [1]})
    assert harness.state() is State.STABLE
    harness.advance(9_999)
    assert harness.group.members.keys() == {leader, static}
    harness.advance(1)
    assert (set(harness.group.members), harness.state()) == ({leader}, State.PREPARING_REBALANCE)


def test_a_list_that_is_changed_while_others_are_awaited_is_the_one_that_counts() -> None:
    """Source: `updateMemberThenRebalanceOrCompleteJoin`, in PreparingRebalance whatever the member says."""
    harness = group_harness()
    leader, follower = harness.stable(session_ms=LONG_MS)
    pending = harness.answer(harness.join()).member_id
    waiting = harness.join(leader, session_ms=LONG_MS)
    for topic in ("u", "v"):
        harness.join(follower, protocols=(("range", consumer(topic)),), session_ms=LONG_MS, rebalance_ms=20_000)
    harness.join(pending)
    said = {x.member_id: x.metadata for x in harness.answer(waiting).members}
    assert said[follower] == consumer("v")
    assert harness.group.rebalance_timeout_ms == 20_000, "its timeouts are the new ones too"


@pytest.mark.parametrize("kind", [TimerKind.JOIN, TimerKind.SYNC])
def test_a_timer_of_an_older_phase_that_fires_late_does_nothing(kind: TimerKind) -> None:
    """Source: `schedulePendingSync` and the join's timer: what fires looks at the generation it was made for."""
    harness = group_harness()
    leader, follower = harness.stable(session_ms=LONG_MS)
    old = harness.group.phase
    call = harness.join(leader, session_ms=LONG_MS)
    if kind is TimerKind.SYNC:
        harness.join(follower, session_ms=LONG_MS)
    harness.tell(TimerFired(TimerKey(kind, phase=old)))
    assert harness.group.members.keys() == {leader, follower}
    assert harness.waits(call) == (kind is TimerKind.JOIN)


def test_a_newcomer_whose_time_to_join_is_over_is_told_to_forget_its_id() -> None:
    """Source: `expireClassicGroupMemberHeartbeat` of a new member, which is removed although its join waits."""
    harness = group_harness(new_member_join_timeout_ms=7_000)
    harness.stable(rebalance_ms=20_000, session_ms=LONG_MS)
    newcomer, call = harness.join_new(rebalance_ms=20_000, session_ms=LONG_MS)
    harness.advance(6_999)
    assert harness.waits(call)
    harness.advance(1)
    assert (harness.code(call), harness.answer(call).member_id) == (ErrorCode.UNKNOWN_MEMBER_ID, "")
    assert newcomer not in harness.group.members
