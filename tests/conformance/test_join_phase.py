"""The join phase: how long it lasts, what ends it early, who is left out.

Sources are names of Apache Kafka's own code, of `GroupMetadataManager` where nothing else stands before the dot.
"""

import pytest

from rallypoint.coordinator.core.commands import Rules, TimerFired, TimerKey, TimerKind
from rallypoint.coordinator.core.decision import session_timer
from rallypoint.coordinator.core.group import State
from rallypoint.protocol.errors import ErrorCode
from tests.conformance.desk import Desk, consumer

LONG_MS = 60_000
"""Of sessions that nothing in these tests is to end."""


def desk(**rules: int) -> Desk:
    return Desk(
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
    d = desk()
    leader, follower = d.stable(rebalance_ms=2_000, session_ms=LONG_MS)
    first = d.join(leader, rebalance_ms=2_000, session_ms=LONG_MS)
    d.advance(500)
    if who == "a newcomer":
        late, call = d.join_new(rebalance_ms=LONG_MS, session_ms=LONG_MS)
    else:
        late, call = leader, d.join(leader, rebalance_ms=LONG_MS, session_ms=LONG_MS)
        assert d.answer(first).superseded
    d.advance(1_499)
    assert d.waits(call)
    d.advance(1)
    assert d.answer(call).generation_id == 2
    assert d.group.members.keys() == {leader, late}
    assert d.code(d.heartbeat(follower)) is ErrorCode.UNKNOWN_MEMBER_ID


def test_the_timeout_of_the_newcomer_that_begins_a_round_counts_for_it() -> None:
    """Source: `addMemberThenRebalanceOrCompleteJoin` adds the member first, and prepares the rebalance then."""
    d = desk()
    d.stable(rebalance_ms=2_000, session_ms=LONG_MS)
    _, call = d.join_new(rebalance_ms=5_000, session_ms=LONG_MS)
    d.advance(4_999)
    assert d.waits(call)
    d.advance(1)
    assert d.answer(call).generation_id == 2


def test_a_session_that_ends_completes_the_phase_long_before_its_time() -> None:
    """Source: `expireClassicGroupMemberHeartbeat`, which tests whether everyone who is left has joined."""
    d = desk()
    leader, follower = d.stable(rebalance_ms=LONG_MS, session_ms=2_000)
    call = d.join(leader, rebalance_ms=LONG_MS, session_ms=2_000)
    d.advance(1_999)
    assert d.waits(call)
    d.advance(1)
    assert [x.member_id for x in d.answer(call).members] == [leader]
    assert follower not in d.group.members


def test_a_rebalance_timeout_below_the_initial_delay_does_not_shorten_it() -> None:
    """Source: `InitialDelayedJoin`: the delay, and then what is left of the rebalance timeout, which is nothing."""
    d = desk()
    _, first = d.join_new(rebalance_ms=1_000)
    d.advance(500)
    _, second = d.join_new(rebalance_ms=1_000)
    d.advance(2_499)
    assert d.waits(first)
    d.advance(1)
    assert [d.answer(call).generation_id for call in (first, second)] == [1, 1]


def test_the_initial_delay_does_not_wait_for_ids_that_were_handed_out() -> None:
    """Source: `tryCompleteInitialRebalanceElseSchedule`, which looks at members alone."""
    d = desk()
    pending = d.answer(d.join(session_ms=LONG_MS)).member_id
    member, call = d.join_new()
    d.advance(3_000)
    assert d.answer(call).generation_id == 1
    assert d.group.members.keys() == {member}
    d.join(pending, session_ms=LONG_MS)
    assert d.state() is State.PREPARING_REBALANCE


def test_the_initial_delay_comes_again_with_each_new_beginning_and_newcomers_lengthen_it_again() -> None:
    """Source: `addMemberThenRebalanceOrCompleteJoin`: whenever the state before was Empty, in any generation."""
    d = desk()
    d.leave(*d.stable())
    assert (d.state(), d.group.generation_id) == (State.EMPTY, 2)
    _, first = d.join_new()
    d.advance(2_000)
    _, second = d.join_new()
    d.advance(3_999)
    assert d.waits(first)
    d.advance(1)
    assert [d.answer(call).generation_id for call in (first, second)] == [3, 3]


def test_the_only_member_leaves_during_the_initial_delay_and_its_time_still_runs() -> None:
    """Source: `InitialDelayedJoin` is not forced by a leave; `completeClassicGroupJoin` then finds nobody."""
    d = desk()
    member, call = d.join_new()
    d.advance(1_000)
    d.leave(member)
    assert d.code(call) is ErrorCode.UNKNOWN_MEMBER_ID
    d.advance(1_999)
    assert (d.state(), d.group.members) == (State.PREPARING_REBALANCE, {})
    d.advance(1)
    assert (d.state(), d.group.generation_id, d.group.protocol_name) == (State.EMPTY, 1, None)


def test_where_nobody_came_dynamic_members_are_out_and_static_ones_are_waited_for_again() -> None:
    """Source: `completeClassicGroupJoin` removes dynamic members first; then, with nobody who could lead, it waits."""
    d = desk()
    d.topics(t=2)
    dynamic, static = d.stable(instance="b", session_ms=LONG_MS)
    d.topics(t=3)
    d.advance(9_999)
    assert d.group.members.keys() == {dynamic, static}
    d.advance(1)
    assert d.group.members.keys() == {static}
    assert session_timer(dynamic) not in d.timers
    assert (d.state(), d.group.generation_id) == (State.PREPARING_REBALANCE, 1)
    assert d.code(d.join(dynamic)) is ErrorCode.UNKNOWN_MEMBER_ID
    d.advance(15_000)
    assert (d.state(), d.group.generation_id) == (State.PREPARING_REBALANCE, 1)
    answer = d.answer(d.join(static, instance="b", session_ms=LONG_MS))
    assert (answer.generation_id, answer.leader) == (2, static)


def test_an_absent_static_member_has_part_in_the_generation_and_is_out_when_it_does_not_sync() -> None:
    """Source: `completeClassicGroupJoin` adds all members to the pending syncs, `expirePendingSync` removes all."""
    d = desk()
    leader, static = d.stable(instance="b", session_ms=LONG_MS)
    call = d.join(leader, session_ms=LONG_MS)
    d.advance(10_000)
    assert [x.member_id for x in d.answer(call).members] == [leader, static]
    d.sync(leader, assignments={leader: [0], static: [1]})
    assert d.state() is State.STABLE
    d.advance(9_999)
    assert d.group.members.keys() == {leader, static}
    d.advance(1)
    assert (set(d.group.members), d.state()) == ({leader}, State.PREPARING_REBALANCE)


def test_a_list_that_is_changed_while_others_are_awaited_is_the_one_that_counts() -> None:
    """Source: `updateMemberThenRebalanceOrCompleteJoin`, in PreparingRebalance whatever the member says."""
    d = desk()
    leader, follower = d.stable(session_ms=LONG_MS)
    pending = d.answer(d.join()).member_id
    waiting = d.join(leader, session_ms=LONG_MS)
    for topic in ("u", "v"):
        d.join(follower, protocols=(("range", consumer(topic)),), session_ms=LONG_MS, rebalance_ms=20_000)
    d.join(pending)
    said = {x.member_id: x.metadata for x in d.answer(waiting).members}
    assert said[follower] == consumer("v")
    assert d.group.rebalance_timeout_ms == 20_000, "its timeouts are the new ones too"


@pytest.mark.parametrize("kind", [TimerKind.JOIN, TimerKind.SYNC])
def test_a_timer_of_an_older_phase_that_fires_late_does_nothing(kind: TimerKind) -> None:
    """Source: `schedulePendingSync` and the join's timer: what fires looks at the generation it was made for."""
    d = desk()
    leader, follower = d.stable(session_ms=LONG_MS)
    old = d.group.phase
    call = d.join(leader, session_ms=LONG_MS)
    if kind is TimerKind.SYNC:
        d.join(follower, session_ms=LONG_MS)
    d.tell(TimerFired(TimerKey(kind, phase=old)))
    assert d.group.members.keys() == {leader, follower}
    assert d.waits(call) == (kind is TimerKind.JOIN)


def test_a_newcomer_whose_time_to_join_is_over_is_told_to_forget_its_id() -> None:
    """Source: `expireClassicGroupMemberHeartbeat` of a new member, which is removed although its join waits."""
    d = desk(new_member_join_timeout_ms=7_000)
    d.stable(rebalance_ms=20_000, session_ms=LONG_MS)
    newcomer, call = d.join_new(rebalance_ms=20_000, session_ms=LONG_MS)
    d.advance(6_999)
    assert d.waits(call)
    d.advance(1)
    assert (d.code(call), d.answer(call).member_id) == (ErrorCode.UNKNOWN_MEMBER_ID, "")
    assert newcomer not in d.group.members
