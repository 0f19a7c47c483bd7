"""Commits, and what a crash leaves (C53-C56)."""

import pytest

from rallypoint.coordinator.core.group import State
from rallypoint.protocol import messages as m
from rallypoint.protocol.errors import ErrorCode
from rallypoint.protocol.opaque import OpaqueJson
from tests.conformance.group_harness import GroupHarness, consumer


def test_c53_who_may_commit() -> None:
    harness = GroupHarness()
    leader, follower = harness.stable()
    assert harness.commit_code(harness.commit(leader, 1, offset=7)) == ErrorCode.NONE
    assert harness.code(harness.commit("stranger", 1)) is ErrorCode.UNKNOWN_MEMBER_ID
    assert harness.code(harness.commit("", -1)) is ErrorCode.UNKNOWN_MEMBER_ID
    assert harness.code(harness.commit(leader, -1)) is ErrorCode.ILLEGAL_GENERATION
    harness.leave(leader, follower)
    assert harness.commit_code(harness.commit("", -1, offset=9)) == ErrorCode.NONE
    assert harness.fetch() == {"t": {0: 9}}


def test_c54_metadata_over_the_limit_fails_alone() -> None:
    harness = GroupHarness()
    leader, _ = harness.stable()
    call = harness.call(
        m.CommitRequest(
            generation_id=1,
            member_id=leader,
            offsets={"t": {0: m.OffsetCommit(offset=1, metadata="x" * 4_096)}, "u": {0: _long()}},
        )
    )
    assert harness.commit_code(call, "t") == ErrorCode.NONE
    assert harness.commit_code(call, "u") == ErrorCode.OFFSET_METADATA_TOO_LARGE
    assert harness.fetch() == {"t": {0: 1}}


def _long() -> m.OffsetCommit:
    return m.OffsetCommit(offset=1, metadata="x" * 4_097)


def test_c55_commits_around_a_rebalance() -> None:
    harness = GroupHarness()
    leader, follower = harness.stable()
    harness.join(follower, protocols=(("range", OpaqueJson.of({"topics": ["u"]})),))
    assert harness.state() is State.PREPARING_REBALANCE
    assert harness.commit_code(harness.commit(leader, 1)) == ErrorCode.NONE
    harness.join(leader)
    assert harness.state() is State.COMPLETING_REBALANCE
    assert harness.code(harness.commit(leader, 2)) is ErrorCode.REBALANCE_IN_PROGRESS
    assert harness.code(harness.commit(leader, 1)) is ErrorCode.ILLEGAL_GENERATION


def test_c56_a_lost_generation_is_never_used_again() -> None:
    harness = GroupHarness()
    leader, follower = harness.stable()
    harness.join(leader)
    harness.join(follower)
    assert (harness.state(), harness.group.generation_id) == (State.COMPLETING_REBALANCE, 2)
    harness.crash()
    assert (harness.state(), harness.group.generation_id) == (State.STABLE, 1)
    assert harness.code(harness.heartbeat(leader, 2)) is ErrorCode.ILLEGAL_GENERATION
    assert harness.code(harness.heartbeat(leader, 1)) is ErrorCode.NONE
    call = harness.join(leader)
    harness.join(follower)
    assert harness.answer(call).generation_id == 3
    assert harness.code(harness.sync(leader, 2)) is ErrorCode.ILLEGAL_GENERATION
    assert harness.code(harness.commit(leader, 2)) is ErrorCode.ILLEGAL_GENERATION


def test_commits_and_assignments_survive_a_crash_and_nobody_rejoins() -> None:
    harness = GroupHarness(partition_counts={"t": 2})
    leader, follower = harness.stable()
    held = {member: harness.answer(harness.sync(member)).assignment for member in (leader, follower)}
    harness.commit(follower, 1, offset=42, metadata="note")
    harness.crash()
    assert (harness.state(), harness.group.generation_id, harness.group.leader) == (State.STABLE, 1, leader)
    assert {member: harness.answer(harness.sync(member)).assignment for member in (leader, follower)} == held
    assert harness.fetch() == {"t": {0: 42}}
    for _ in range(5):
        harness.advance(9_000)
        assert harness.code(harness.heartbeat(leader)) is ErrorCode.NONE
        assert harness.code(harness.heartbeat(follower)) is ErrorCode.NONE
    assert harness.group.generation_id == 1


def test_each_member_has_a_full_session_after_a_load() -> None:
    harness = GroupHarness()
    leader, follower = harness.stable(session_ms=2_000)
    harness.advance(1_900)
    harness.crash()
    harness.advance(1_999)
    assert harness.group.members.keys() == {leader, follower}
    harness.advance(1)
    assert harness.state() is not State.STABLE


def test_a_topic_that_grew_just_before_a_crash_rebalances_after_it() -> None:
    harness = GroupHarness(partition_counts={"t": 2})
    harness.stable()
    harness.partition_counts = {"t": 4}
    harness.crash()
    assert harness.state() is State.PREPARING_REBALANCE


def test_a_crash_before_the_first_sync_leaves_an_empty_group() -> None:
    harness = GroupHarness()
    member, call = harness.join_new()
    harness.advance(3_000)
    assert harness.answer(call).generation_id == 1
    harness.crash()
    assert harness.state() is State.EMPTY
    assert harness.code(harness.heartbeat(member, 1)) is ErrorCode.UNKNOWN_MEMBER_ID
    again, second = harness.join_new()
    harness.advance(3_000)
    assert harness.answer(second).generation_id == 2
    assert again != member


def test_a_simple_commit_creates_a_group_and_a_fenced_one_does_not() -> None:
    harness = GroupHarness()
    assert harness.code(harness.commit("m", 1)) is ErrorCode.ILLEGAL_GENERATION
    assert harness.state() is State.DEAD
    harness.commit("", -1, offset=5)
    assert harness.state() is State.EMPTY
    harness.crash()
    assert harness.state() is State.EMPTY
    assert harness.fetch() == {"t": {0: 5}}


@pytest.mark.parametrize("partition", [4, 2**31 - 1])
def test_a_partition_that_a_registered_topic_lacks_is_refused(partition: int) -> None:
    harness = GroupHarness(partition_counts={"t": 4})
    leader, _ = harness.stable()
    call = harness.commit(leader, 1, partition=partition)
    assert harness.commit_code(call, partition=partition) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    unregistered = harness.commit(leader, 1, topic="elsewhere", partition=partition)
    assert harness.commit_code(unregistered, "elsewhere", partition) == ErrorCode.NONE


def test_the_record_of_an_unchanged_member_is_not_written_again() -> None:
    """What is stored grows with the change, not with the group."""
    harness = GroupHarness()
    leader, follower = harness.stable()
    newcomer = harness.answer(harness.join()).member_id
    harness.join(newcomer)
    harness.join(leader)
    harness.join(follower)
    harness.settle_generation(leader, follower, newcomer)
    written = {key[2] for key in harness.log if key[0] == "member" and key[1] in (leader, follower)}
    assert written == {1}
    assert ("member", newcomer, 2) in harness.log
    harness.crash()
    assert harness.group.members.keys() == {leader, follower, newcomer}
    assert harness.group.generation_id == 2


def test_describe_shows_what_they_said_only_when_stable() -> None:
    harness = GroupHarness()
    assert harness.code(harness.describe()) is ErrorCode.GROUP_ID_NOT_FOUND
    leader, follower = harness.stable()
    answer = harness.answer(harness.describe())
    assert answer.protocol_name == "range"
    assert [x.assignment.value for x in answer.members] == [{"partitions": {"t": [0]}}, {"partitions": {"t": [1]}}]
    harness.join(leader)
    answer = harness.answer(harness.describe())
    assert answer.protocol_name == ""
    assert [x.assignment.value for x in answer.members] == [None, None]
    assert {x.member_id for x in answer.members} == {leader, follower}


def test_describe_shows_what_they_said_under_the_protocol_that_was_chosen() -> None:
    """Source: `ClassicGroupMember.metadata(protocolName)` in the description of a Stable group."""
    harness = GroupHarness()
    leader, first = harness.join_new(protocols=(("A", consumer("a")), ("B", consumer("b"))))
    _, second = harness.join_new(protocols=(("B", consumer("c")),))
    harness.advance_until_answered(first, second)
    harness.sync(leader, protocol_name="B", assignments={})
    answer = harness.answer(harness.describe())
    assert (answer.protocol_name, [x.metadata for x in answer.members]) == ("B", [consumer("b"), consumer("c")])
