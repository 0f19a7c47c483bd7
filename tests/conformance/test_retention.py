"""What time takes away: offsets, by the kind of their group, and groups of which nothing is left.

Sources are names of Apache Kafka's own code: `ClassicGroup.offsetExpirationCondition` has the rule, and
`OffsetMetadataManager.cleanupExpiredOffsets` and `GroupMetadataManager.maybeDeleteGroup` apply it.
"""

import pytest

from rallypoint.coordinator.core import invariants
from rallypoint.coordinator.core.commands import Rules, TimerKind
from rallypoint.coordinator.core.effects import GroupRemoved, OffsetsRemoved, Removal
from rallypoint.coordinator.core.group import Group, State
from rallypoint.coordinator.core.retention import EXPIRED_AT_ONCE_MAX
from rallypoint.protocol import messages as m
from rallypoint.protocol.errors import ErrorCode
from rallypoint.protocol.limits import REQUEST_PARTITIONS_MAX
from rallypoint.protocol.opaque import OpaqueJson
from tests.conformance.group_harness import GroupHarness, consumer

KEPT_MS = 100_000
LOOK_MS = 1_000
RULES = Rules(
    group_min_session_timeout_ms=1,
    group_join_linger_ms=0,
    offsets_retention_ms=KEPT_MS,
    offsets_retention_check_interval_ms=LOOK_MS,
)
LONG_MS = 10 * KEPT_MS
"""Of sessions and rebalances that nothing in these tests is to end."""


def group_harness() -> GroupHarness:
    return GroupHarness(rules=RULES)


def stable(harness: GroupHarness) -> tuple[str, str]:
    return harness.stable(session_ms=LONG_MS, rebalance_ms=LONG_MS)


def looks(harness: GroupHarness) -> int:
    return sum(key.kind is TimerKind.RETENTION for key in harness.timers)


@pytest.mark.parametrize("is_loaded_between", [False, True])
def test_a_simple_groups_offsets_count_from_their_commits(is_loaded_between: bool) -> None:
    """Source: `offsetExpirationCondition` without a protocol type. A load changes nothing: KAFKA-8069."""
    harness = group_harness()
    harness.commit("", -1, offset=1, partition=0)
    harness.advance(KEPT_MS // 2)
    harness.commit("", -1, offset=2, partition=1)
    if is_loaded_between:
        harness.crash()
    harness.advance(KEPT_MS // 2 - 1)
    assert harness.fetch() == {"t": {0: 1, 1: 2}}
    harness.advance(LOOK_MS)
    assert harness.fetch() == {"t": {1: 2}}
    assert harness.events[-1] == OffsetsRemoved("g", (("t", 0),), Removal.EXPIRED)
    harness.advance(KEPT_MS // 2 - 2 * LOOK_MS)
    assert harness.fetch() == {"t": {1: 2}}
    harness.advance(2 * LOOK_MS)
    assert (harness.state(), harness.log, harness.timers) == (State.DEAD, {}, {})
    assert harness.events[-3:-1] == [
        OffsetsRemoved("g", (("t", 1),), Removal.EXPIRED),
        GroupRemoved("g", Removal.EXPIRED),
    ]
    invariants.check(harness.group)


def test_a_new_commit_keeps_an_offset() -> None:
    harness = group_harness()
    for offset in range(5):
        harness.commit("", -1, offset=offset)
        harness.advance(KEPT_MS - LOOK_MS)
    assert harness.fetch() == {"t": {0: 4}}


@pytest.mark.parametrize("is_loaded_between", [False, True])
def test_an_emptied_groups_offsets_count_from_the_moment_it_became_empty(is_loaded_between: bool) -> None:
    """Source: `offsetExpirationCondition` of an Empty group with a type. A load changes nothing: KAFKA-8069."""
    harness = group_harness()
    leader, follower = stable(harness)
    harness.commit(leader, 1, offset=7)
    harness.advance(3 * KEPT_MS)
    assert harness.fetch() == {"t": {0: 7}}
    harness.leave(leader, follower)
    assert harness.state() is State.EMPTY
    harness.advance(KEPT_MS // 2)
    if is_loaded_between:
        harness.crash()
    harness.advance(KEPT_MS // 2 - 1)
    assert harness.fetch() == {"t": {0: 7}}
    harness.advance(LOOK_MS)
    assert (harness.state(), harness.log, harness.timers) == (State.DEAD, {}, {})


def test_what_is_committed_to_a_group_that_is_long_empty_is_kept_as_long_as_anything() -> None:
    """Ours: by `offsetExpirationCondition` it would be gone at the next look."""
    harness = group_harness()
    harness.leave(*stable(harness))
    harness.advance(LOOK_MS - 1)
    harness.commit("", -1, offset=5)
    harness.advance(KEPT_MS - 2 * LOOK_MS)
    harness.commit("", -1, offset=6)
    harness.advance(KEPT_MS - 1)
    assert harness.fetch() == {"t": {0: 6}}
    harness.advance(LOOK_MS)
    assert harness.state() is State.DEAD


@pytest.mark.parametrize("is_loaded_between", [False, True])
def test_stable_consumers_lose_topics_that_none_of_them_subscribes_to(is_loaded_between: bool) -> None:
    """Source: `offsetExpirationCondition` of a Stable consumer group."""
    harness = group_harness()
    leader, _ = stable(harness)
    harness.commit(leader, 1, offset=7)
    harness.commit(leader, 1, offset=8, topic="gone")
    if is_loaded_between:
        harness.crash()
    harness.advance(KEPT_MS - 1)
    assert harness.fetch() == {"t": {0: 7}, "gone": {0: 8}}
    harness.advance(LOOK_MS)
    assert harness.fetch() == {"t": {0: 7}}
    harness.advance(3 * KEPT_MS)
    assert harness.fetch() == {"t": {0: 7}}
    assert (harness.state(), harness.group.generation_id, looks(harness)) == (State.STABLE, 1, 1)


def test_nothing_expires_while_a_group_rebalances() -> None:
    """Source: KAFKA-13636, the offsets of a rebalancing group were lost because its subscription looked empty."""
    harness = group_harness()
    leader, follower = stable(harness)
    harness.commit(leader, 1, offset=8, topic="gone")
    other = (("range", consumer("u")),)
    harness.join(leader, protocols=other, session_ms=LONG_MS, rebalance_ms=LONG_MS)
    assert harness.state() is State.PREPARING_REBALANCE
    harness.advance(3 * KEPT_MS)
    assert harness.state() is State.PREPARING_REBALANCE
    assert harness.fetch() == {"gone": {0: 8}}
    harness.join(follower, protocols=other, session_ms=LONG_MS, rebalance_ms=LONG_MS)
    assert harness.state() is State.COMPLETING_REBALANCE
    harness.advance(3 * KEPT_MS)
    assert harness.state() is State.COMPLETING_REBALANCE
    assert harness.fetch() == {"gone": {0: 8}}
    harness.settle_generation(leader, follower)
    harness.advance(LOOK_MS)
    assert harness.fetch() == {}


def test_consumers_whose_subscription_cannot_be_read_keep_everything() -> None:
    """Source: `offsetExpirationCondition` with unknown subscribed topics."""
    harness = group_harness()
    unreadable = (("range", OpaqueJson.of({"topics": 5})),)
    leader, call = harness.join_new(protocols=unreadable, session_ms=LONG_MS)
    harness.advance_until_answered(call)
    harness.settle_generation(leader)
    harness.commit(leader, 1, offset=7)
    harness.advance(3 * KEPT_MS)
    assert harness.fetch() == {"t": {0: 7}}


def test_members_of_another_type_keep_everything() -> None:
    """Source: `offsetExpirationCondition` of a group with members that are no consumers."""
    harness = group_harness()
    leader, call = harness.join_new(protocol_type="connect", session_ms=LONG_MS)
    harness.advance_until_answered(call)
    harness.sync(leader, protocol_type="connect")
    harness.commit(leader, 1, offset=7)
    harness.advance(3 * KEPT_MS)
    assert harness.fetch() == {"t": {0: 7}}
    harness.leave(leader)
    harness.advance(KEPT_MS + LOOK_MS)
    assert harness.state() is State.DEAD


def test_a_group_without_members_and_offsets_goes_at_the_next_look() -> None:
    """Source: `maybeDeleteGroup`. In Kafka too it does not wait for the retention."""
    harness = group_harness()
    harness.leave(*stable(harness))
    harness.advance(LOOK_MS)
    assert (harness.state(), harness.log, harness.timers) == (State.DEAD, {}, {})
    harness.commit("", -1)
    harness.delete_offsets("t")
    harness.advance(LOOK_MS)
    assert harness.state() is State.DEAD


def test_a_group_waits_for_the_ids_it_has_handed_out() -> None:
    """Ours: in Kafka the id is forgotten with the group."""
    harness = group_harness()
    member_id = harness.answer(harness.join(session_ms=5 * LOOK_MS)).member_id
    harness.advance(4 * LOOK_MS)
    assert harness.state() is State.EMPTY
    call = harness.join(member_id, session_ms=5 * LOOK_MS)
    harness.advance_until_answered(call)
    assert harness.code(call) is ErrorCode.NONE
    again = group_harness()
    again.join(session_ms=5 * LOOK_MS)
    again.advance(7 * LOOK_MS)
    assert (again.state(), again.timers) == (State.DEAD, {})


def test_a_group_has_one_timer_for_it_as_long_as_it_exists() -> None:
    harness = group_harness()
    assert harness.code(harness.heartbeat("x", 1)) is ErrorCode.UNKNOWN_MEMBER_ID
    assert looks(harness) == 0
    leader, follower = stable(harness)
    assert looks(harness) == 1
    harness.advance(5 * LOOK_MS)
    assert looks(harness) == 1
    harness.crash()
    assert looks(harness) == 1
    harness.leave(leader, follower)
    assert looks(harness) == 1
    harness.delete_group()
    assert looks(harness) == 0


def test_groups_that_are_loaded_together_are_not_looked_at_together() -> None:
    at: list[int] = []
    for number in range(20):
        harness = GroupHarness(rules=RULES, group=Group(f"g{number}"))
        harness.commit("", -1)
        harness.crash()
        at.extend(deadline - harness.now_ms for deadline in harness.timers.values())
    assert len(at) == 20
    assert all(LOOK_MS // 2 <= wait <= LOOK_MS for wait in at)
    assert len(set(at)) > 10


def test_more_than_one_step_can_take_goes_in_several() -> None:
    harness = group_harness()
    count = 2 * EXPIRED_AT_ONCE_MAX + 5
    for first in range(0, count, REQUEST_PARTITIONS_MAX):
        some = range(first, min(count, first + REQUEST_PARTITIONS_MAX))
        offsets = {partition: m.OffsetCommit(offset=1) for partition in some}
        harness.call(m.CommitRequest(generation_id=-1, offsets={"t": offsets}))
    harness.events.clear()
    harness.advance(KEPT_MS + LOOK_MS)
    taken = [len(event.partitions) for event in harness.events if isinstance(event, OffsetsRemoved)]
    assert taken == [EXPIRED_AT_ONCE_MAX, EXPIRED_AT_ONCE_MAX, 5]
    assert (harness.state(), harness.log, harness.timers) == (State.DEAD, {}, {})
