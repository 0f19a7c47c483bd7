"""The gate between the member's threads and Spark's planning thread."""

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace

import pytest

from rallypoint import Assignment
from rallypoint.member.errors import (
    CommitFailed,
    CoordinatorUnavailable,
    Fenced,
    IllegalGeneration,
    MemberError,
    PartitionError,
    RebalanceInProgress,
    UnknownMember,
)
from rallypoint.protocol.messages import CommittedOffset, OffsetCommit
from rallypoint.spark_bridge.membership import Callbacks, Membership
from rallypoint.spark_bridge.offsets import CommitNote, TopicPartition
from rallypoint.spark_bridge.plan import CommitOutcome, Committed

TP = ("clicks", 0)
OTHER = ("clicks", 1)


def assignment(generation_id: int, *partitions: TopicPartition) -> Assignment:
    return Assignment(generation_id, "m-1", False, "range", frozenset(partitions or {TP}))


class FakeMember:
    """A member whose life the test moves by hand."""

    def __init__(self, callbacks: Callbacks) -> None:
        self.callbacks = callbacks
        self.error: Exception | None = None
        self.assignment: Assignment | None = None
        self.is_heard = True
        self.committing: Callable[[], None] = lambda: None
        self.calls: list[str] = []
        self.offsets: dict[TopicPartition, CommittedOffset] = {}

    def start(self) -> None:
        """The tests begin with a member that has started."""

    def holds(self, topic_partition: TopicPartition) -> bool:
        return self.is_heard and self.assignment is not None and topic_partition in self.assignment.partitions

    def commit(self, offsets: Mapping[TopicPartition, OffsetCommit], *, generation_id: int) -> None:
        self.committing()
        self.calls.append(f"commit under {generation_id}")
        for tp, one in offsets.items():
            self.offsets[tp] = CommittedOffset(offset=one.offset, metadata=one.metadata)

    def committed(self) -> Mapping[TopicPartition, CommittedOffset]:
        return self.offsets

    def leave(self, reason: str | None = None, *, stay: bool = False) -> None:
        if self.assignment is not None:
            self.callbacks.on_revoked(self.assignment)
        self.calls.append(f"leave: {reason}, stay {stay}")

    def begin_rebalance(self, *part: TopicPartition) -> threading.Thread:
        """What the member's threads do: revoke all or a part, then hold what is left."""
        old = self.assignment
        assert old is not None

        def run() -> None:
            gone = frozenset(part) or old.partitions
            self.callbacks.on_revoked(replace(old, partitions=gone, kept=old.partitions - gone))
            self.calls.append("joins again")
            left = old.partitions - gone
            self.assignment = replace(old, partitions=left) if left else None

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        return thread

    def assign(self, new: Assignment) -> None:
        self.assignment = new
        self.callbacks.on_assigned(new)


def make(
    *, rebalance_timeout_ms: int = 10_000, static: bool = False, cooperative: bool = False
) -> tuple[Membership, FakeMember]:
    made: list[FakeMember] = []

    def connect(callbacks: Callbacks, group_instance_id: str | None) -> FakeMember:
        made.append(FakeMember(callbacks))
        return made[0]

    membership = Membership(connect, rebalance_timeout_ms=rebalance_timeout_ms, cooperative=cooperative)
    membership.start("name" if static else None)
    return membership, made[0]


@contextmanager
def at_the_gate(membership: Membership, member: FakeMember, *part: TopicPartition) -> Iterator[threading.Thread]:
    thread = member.begin_rebalance(*part)
    deadline = time.monotonic() + 30
    while membership.revocation is None:
        assert time.monotonic() < deadline
        time.sleep(0.001)
    yield thread
    thread.join(30)
    assert not thread.is_alive()


def test_the_member_joins_again_only_after_the_acknowledgement() -> None:
    membership, member = make()
    member.assignment = assignment(5)
    with at_the_gate(membership, member):
        assert membership.revocation == frozenset({TP})
        assert membership.assignment(0) == assignment(5)
        assert membership.commit({TP: Committed(7)}, assignment(5)) is CommitOutcome.STORED
        membership.acknowledge()
    assert member.calls == ["commit under 5", "joins again"]
    assert membership.revocation is None


def test_what_is_acknowledged_is_not_an_assignment_any_more() -> None:
    membership, member = make()
    member.assignment = assignment(5)
    with at_the_gate(membership, member):
        membership.acknowledge()
        assert membership.assignment(0) is None
    member.assign(assignment(6))
    assert membership.assignment(0) == assignment(6)


def test_of_a_part_the_rest_is_left() -> None:
    membership, member = make(cooperative=True)
    member.assignment = assignment(5, TP, OTHER)
    with at_the_gate(membership, member, OTHER):
        assert membership.revocation == frozenset({OTHER})
        assert membership.assignment(0) == assignment(5, TP, OTHER)
        # Also before the member's own thread has passed the gate.
        membership.acknowledge()
        assert membership.assignment(0) == assignment(5, TP)
    member.assign(assignment(6, TP, OTHER))
    assert membership.assignment(0) == assignment(6, TP, OTHER)


def test_a_member_that_gave_up_all_it_had_waits_for_the_next_assignment() -> None:
    membership, member = make(cooperative=True)
    member.assignment = assignment(5)
    with at_the_gate(membership, member):
        membership.acknowledge()
    member.assignment = replace(assignment(5), partitions=frozenset())
    assert membership.assignment(0) is None
    member.assign(replace(assignment(6), partitions=frozenset()))
    assert membership.assignment(0) == replace(assignment(6), partitions=frozenset())


def test_what_stopped_the_member_is_raised() -> None:
    membership, member = make()
    member.error = Fenced("another process has this name")
    with pytest.raises(Fenced):
        membership.assignment(60_000)


def test_an_acknowledgement_without_a_revocation_gives_nothing_up() -> None:
    membership, member = make()
    member.assignment = assignment(5)
    membership.acknowledge()
    assert membership.assignment(0) == assignment(5)


def test_a_lost_session_closes_the_gate_without_an_acknowledgement() -> None:
    membership, member = make()
    member.assignment = assignment(5)
    with at_the_gate(membership, member):
        member.callbacks.on_lost(assignment(5))
        assert membership.revocation is None


def test_an_assignment_lasts_as_long_as_its_session_also_at_the_gate() -> None:
    membership, member = make()
    member.assign(assignment(5))
    with at_the_gate(membership, member):
        assert membership.lasts(assignment(5))
        assert not membership.lasts(assignment(6))
        member.is_heard = False
        assert membership.present == assignment(5)
        assert not membership.lasts(assignment(5))
        membership.acknowledge()


def test_the_gate_does_not_hold_longer_than_the_group_waits() -> None:
    membership, member = make(rebalance_timeout_ms=20)
    member.assignment = assignment(5)
    with at_the_gate(membership, member) as thread:
        thread.join(30)
    assert membership.revocation is None


def test_leaving_opens_the_gate_and_commits_nothing() -> None:
    membership, member = make()
    member.assignment = assignment(5)
    with at_the_gate(membership, member):
        membership.leave("done")
    assert "leave: done, stay False" in member.calls
    assert not member.offsets


def test_a_static_member_keeps_its_place() -> None:
    membership, member = make(static=True)
    membership.leave("done")
    assert member.calls == ["leave: done, stay True"]


@pytest.mark.parametrize(
    ("error", "cooperative", "expected"),
    [
        (IllegalGeneration("no"), False, CommitOutcome.LOST),
        (IllegalGeneration("no"), True, CommitOutcome.LOST),
        (UnknownMember("no"), True, CommitOutcome.LOST),
        (RebalanceInProgress("no"), False, CommitOutcome.LOST),
        (RebalanceInProgress("no"), True, CommitOutcome.LATER),
        (CoordinatorUnavailable("no"), False, CommitOutcome.LATER),
        (CommitFailed("no", retriable=True), False, CommitOutcome.LATER),
    ],
)
def test_what_a_refused_commit_says_of_the_assignment(
    error: MemberError, cooperative: bool, expected: CommitOutcome
) -> None:
    membership, member = make(cooperative=cooperative)
    member.assignment = assignment(5)

    def refuse() -> None:
        raise error

    member.committing = refuse
    assert membership.commit({TP: Committed(7)}, assignment(5)) is expected
    if expected is CommitOutcome.LATER:
        assert membership.assignment(0) == assignment(5)
        return
    # It is not planned under again, until a wait has shown that the member knows better.
    assert membership.assignment(0) is None
    assert membership.assignment(0) == assignment(5)


def test_a_commit_refused_for_a_partition_is_raised_with_its_name() -> None:
    membership, member = make()

    def refuse() -> None:
        raise CommitFailed("no", partitions={TP: PartitionError(3, "UNKNOWN_TOPIC_OR_PARTITION")})

    member.committing = refuse
    with pytest.raises(CommitFailed, match="offsets of clicks-0: UNKNOWN_TOPIC_OR_PARTITION"):
        membership.commit({TP: Committed(7)}, assignment(5))


def test_notes_travel_as_metadata_and_nothing_is_sent_for_nothing() -> None:
    membership, member = make()
    note = CommitNote("checkpoint", 5, 4)
    assert membership.commit({}, assignment(5)) is CommitOutcome.STORED
    assert member.calls == []
    assert membership.commit({TP: Committed(7, note)}, assignment(5)) is CommitOutcome.STORED
    member.offsets["clicks", 1] = CommittedOffset(offset=3, metadata="by hand")
    assert membership.committed() == {TP: Committed(7, note), ("clicks", 1): Committed(3)}


def test_a_wait_ends_when_it_is_interrupted() -> None:
    membership, _ = make()
    answers = iter([False, True])
    assert membership.assignment(60_000, interrupted=lambda: next(answers)) is None


def test_an_assignment_may_be_wanted_of_a_later_generation() -> None:
    membership, member = make()
    member.assignment = assignment(5)
    assert membership.assignment(0, newer_than=5) is None
    member.assign(assignment(6))
    assert membership.assignment(0, newer_than=5) == assignment(6)


def test_leaving_before_the_start_is_nothing() -> None:
    Membership(lambda callbacks, name: FakeMember(callbacks), rebalance_timeout_ms=1).leave("done")
