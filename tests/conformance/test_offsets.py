"""Commits, and what a crash leaves (C53-C56)."""

import pytest

from rallypoint.coordinator.core.group import State
from rallypoint.protocol import messages as m
from rallypoint.protocol.errors import ErrorCode
from rallypoint.protocol.opaque import OpaqueJson
from tests.conformance.desk import Desk, consumer


def test_c53_who_may_commit() -> None:
    d = Desk()
    leader, follower = d.stable()
    assert d.commit_code(d.commit(leader, 1, offset=7)) == ErrorCode.NONE
    assert d.code(d.commit("stranger", 1)) is ErrorCode.UNKNOWN_MEMBER_ID
    assert d.code(d.commit("", -1)) is ErrorCode.UNKNOWN_MEMBER_ID
    assert d.code(d.commit(leader, -1)) is ErrorCode.ILLEGAL_GENERATION
    d.leave(leader, follower)
    assert d.commit_code(d.commit("", -1, offset=9)) == ErrorCode.NONE
    assert d.fetch() == {"t": {0: 9}}


def test_c54_metadata_over_the_limit_fails_alone() -> None:
    d = Desk()
    leader, _ = d.stable()
    call = d.call(
        m.CommitRequest(
            generation_id=1,
            member_id=leader,
            offsets={"t": {0: m.OffsetCommit(offset=1, metadata="x" * 4_096)}, "u": {0: _long()}},
        )
    )
    assert d.commit_code(call, "t") == ErrorCode.NONE
    assert d.commit_code(call, "u") == ErrorCode.OFFSET_METADATA_TOO_LARGE
    assert d.fetch() == {"t": {0: 1}}


def _long() -> m.OffsetCommit:
    return m.OffsetCommit(offset=1, metadata="x" * 4_097)


def test_c55_commits_around_a_rebalance() -> None:
    d = Desk()
    leader, follower = d.stable()
    d.join(follower, protocols=(("range", OpaqueJson.of({"topics": ["u"]})),))
    assert d.state() is State.PREPARING_REBALANCE
    assert d.commit_code(d.commit(leader, 1)) == ErrorCode.NONE
    d.join(leader)
    assert d.state() is State.COMPLETING_REBALANCE
    assert d.code(d.commit(leader, 2)) is ErrorCode.REBALANCE_IN_PROGRESS
    assert d.code(d.commit(leader, 1)) is ErrorCode.ILLEGAL_GENERATION


def test_c56_a_lost_generation_is_never_used_again() -> None:
    d = Desk()
    leader, follower = d.stable()
    d.join(leader)
    d.join(follower)
    assert (d.state(), d.group.generation_id) == (State.COMPLETING_REBALANCE, 2)
    d.crash()
    assert (d.state(), d.group.generation_id) == (State.STABLE, 1)
    assert d.code(d.heartbeat(leader, 2)) is ErrorCode.ILLEGAL_GENERATION
    assert d.code(d.heartbeat(leader, 1)) is ErrorCode.NONE
    call = d.join(leader)
    d.join(follower)
    assert d.answer(call).generation_id == 3
    assert d.code(d.sync(leader, 2)) is ErrorCode.ILLEGAL_GENERATION
    assert d.code(d.commit(leader, 2)) is ErrorCode.ILLEGAL_GENERATION


def test_commits_and_assignments_survive_a_crash_and_nobody_rejoins() -> None:
    d = Desk(partition_counts={"t": 2})
    leader, follower = d.stable()
    held = {member: d.answer(d.sync(member)).assignment for member in (leader, follower)}
    d.commit(follower, 1, offset=42, metadata="note")
    d.crash()
    assert (d.state(), d.group.generation_id, d.group.leader) == (State.STABLE, 1, leader)
    assert {member: d.answer(d.sync(member)).assignment for member in (leader, follower)} == held
    assert d.fetch() == {"t": {0: 42}}
    for _ in range(5):
        d.advance(9_000)
        assert d.code(d.heartbeat(leader)) is ErrorCode.NONE
        assert d.code(d.heartbeat(follower)) is ErrorCode.NONE
    assert d.group.generation_id == 1


def test_each_member_has_a_full_session_after_a_load() -> None:
    d = Desk()
    leader, follower = d.stable(session_ms=2_000)
    d.advance(1_900)
    d.crash()
    d.advance(1_999)
    assert d.group.members.keys() == {leader, follower}
    d.advance(1)
    assert d.state() is not State.STABLE


def test_a_topic_that_grew_just_before_a_crash_rebalances_after_it() -> None:
    d = Desk(partition_counts={"t": 2})
    d.stable()
    d.partition_counts = {"t": 4}
    d.crash()
    assert d.state() is State.PREPARING_REBALANCE


def test_a_crash_before_the_first_sync_leaves_an_empty_group() -> None:
    d = Desk()
    member, call = d.join_new()
    d.advance(3_000)
    assert d.answer(call).generation_id == 1
    d.crash()
    assert d.state() is State.EMPTY
    assert d.code(d.heartbeat(member, 1)) is ErrorCode.UNKNOWN_MEMBER_ID
    again, second = d.join_new()
    d.advance(3_000)
    assert d.answer(second).generation_id == 2
    assert again != member


def test_a_simple_commit_creates_a_group_and_a_fenced_one_does_not() -> None:
    d = Desk()
    assert d.code(d.commit("m", 1)) is ErrorCode.ILLEGAL_GENERATION
    assert d.state() is State.DEAD
    d.commit("", -1, offset=5)
    assert d.state() is State.EMPTY
    d.crash()
    assert d.state() is State.EMPTY
    assert d.fetch() == {"t": {0: 5}}


@pytest.mark.parametrize("partition", [4, 2**31 - 1])
def test_a_partition_that_a_registered_topic_lacks_is_refused(partition: int) -> None:
    d = Desk(partition_counts={"t": 4})
    leader, _ = d.stable()
    call = d.commit(leader, 1, partition=partition)
    assert d.commit_code(call, partition=partition) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    unregistered = d.commit(leader, 1, topic="elsewhere", partition=partition)
    assert d.commit_code(unregistered, "elsewhere", partition) == ErrorCode.NONE


def test_the_record_of_an_unchanged_member_is_not_written_again() -> None:
    """What is stored grows with the change, not with the group."""
    d = Desk()
    leader, follower = d.stable()
    newcomer = d.answer(d.join()).member_id
    d.join(newcomer)
    d.join(leader)
    d.join(follower)
    d.settle_generation(leader, follower, newcomer)
    written = {key[2] for key in d.log if key[0] == "member" and key[1] in (leader, follower)}
    assert written == {1}
    assert ("member", newcomer, 2) in d.log
    d.crash()
    assert d.group.members.keys() == {leader, follower, newcomer}
    assert d.group.generation_id == 2


def test_describe_shows_what_they_said_only_when_stable() -> None:
    d = Desk()
    assert d.code(d.describe()) is ErrorCode.GROUP_ID_NOT_FOUND
    leader, follower = d.stable()
    answer = d.answer(d.describe())
    assert answer.protocol_name == "range"
    assert [x.assignment.value for x in answer.members] == [{"partitions": {"t": [0]}}, {"partitions": {"t": [1]}}]
    d.join(leader)
    answer = d.answer(d.describe())
    assert answer.protocol_name == ""
    assert [x.assignment.value for x in answer.members] == [None, None]
    assert {x.member_id for x in answer.members} == {leader, follower}


def test_describe_shows_what_they_said_under_the_protocol_that_was_chosen() -> None:
    """Source: `ClassicGroupMember.metadata(protocolName)` in the description of a Stable group."""
    d = Desk()
    leader, first = d.join_new(protocols=(("A", consumer("a")), ("B", consumer("b"))))
    _, second = d.join_new(protocols=(("B", consumer("c")),))
    d.advance_until_answered(first, second)
    d.sync(leader, protocol_name="B", assignments={})
    answer = d.answer(d.describe())
    assert (answer.protocol_name, [x.metadata for x in answer.members]) == ("B", [consumer("b"), consumer("c")])
