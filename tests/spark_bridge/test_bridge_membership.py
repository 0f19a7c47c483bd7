"""The gate between the member's threads and Spark's planning thread."""

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import pytest

from member import Assignment
from member.errors import CommitFailed, IllegalGeneration, PartitionError, RebalanceInProgress, UnknownMember
from protocol.messages import CommittedOffset, OffsetCommit
from spark_bridge.membership import Gate, Membership
from spark_bridge.offsets import CommitNote, TopicPartition
from spark_bridge.plan import Committed

TP = ("clicks", 0)


def assignment(generation_id: int) -> Assignment:
    return Assignment(generation_id, "m-1", False, "range", frozenset({TP}))


class FakeMember:
    """A member whose life the test moves by hand."""

    def __init__(self, on_revoked: Gate, on_lost: Gate) -> None:
        self.on_revoked = on_revoked
        self.on_lost = on_lost
        self.assignment: Assignment | None = None
        self.committing: Callable[[], None] = lambda: None
        self.calls: list[str] = []
        self.offsets: dict[TopicPartition, CommittedOffset] = {}

    def start(self) -> None:
        self.calls.append("start")

    def wait_assigned(self, timeout_ms: int | None = None) -> Assignment:
        if self.assignment is None:
            time.sleep(0.001)
            raise TimeoutError
        return self.assignment

    def commit(self, offsets: Mapping[TopicPartition, OffsetCommit], *, generation_id: int) -> None:
        self.committing()
        self.calls.append(f"commit under {generation_id}")
        for tp, one in offsets.items():
            self.offsets[tp] = CommittedOffset(offset=one.offset, metadata=one.metadata)

    def committed(self) -> Mapping[TopicPartition, CommittedOffset]:
        return self.offsets

    def request_rejoin(self, reason: str) -> None:
        self.calls.append(f"rejoin: {reason}")

    def leave(self, reason: str | None = None, *, stay: bool = False) -> None:
        if self.assignment is not None:
            self.on_revoked(self.assignment)
        self.calls.append(f"leave: {reason}, stay {stay}")

    def begin_rebalance(self) -> threading.Thread:
        """What the member's threads do: revoke, then hold nothing."""
        old = self.assignment
        assert old is not None

        def run() -> None:
            self.on_revoked(old)
            self.calls.append("joins again")
            self.assignment = None

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        return thread


def make(*, rebalance_timeout_ms: int = 10_000, static: bool = False) -> tuple[Membership, FakeMember]:
    made: list[FakeMember] = []

    def connect(on_revoked: Gate, on_lost: Gate) -> FakeMember:
        made.append(FakeMember(on_revoked, on_lost))
        return made[0]

    membership = Membership(connect, rebalance_timeout_ms=rebalance_timeout_ms, static=static)
    return membership, made[0]


@contextmanager
def at_the_gate(membership: Membership, member: FakeMember) -> Iterator[threading.Thread]:
    thread = member.begin_rebalance()
    deadline = time.monotonic() + 5
    while membership.revocation is None:
        assert time.monotonic() < deadline
        time.sleep(0.001)
    yield thread
    thread.join(5)
    assert not thread.is_alive()


def test_the_member_joins_again_only_after_the_acknowledgement() -> None:
    membership, member = make()
    member.assignment = assignment(5)
    with at_the_gate(membership, member):
        assert membership.revocation == assignment(5)
        assert membership.assignment(0) == assignment(5)
        assert membership.commit({TP: Committed(7)}, assignment(5))
        membership.acknowledge()
    assert member.calls == ["commit under 5", "joins again"]
    assert membership.revocation is None


def test_what_is_acknowledged_is_not_an_assignment_any_more() -> None:
    membership, member = make()
    member.assignment = assignment(5)
    with at_the_gate(membership, member):
        membership.acknowledge()
        assert membership.assignment(0) is None
    member.assignment = assignment(6)
    assert membership.assignment(0) == assignment(6)


def test_an_acknowledgement_without_a_revocation_gives_nothing_up() -> None:
    membership, member = make()
    member.assignment = assignment(5)
    membership.acknowledge()
    assert membership.assignment(0) == assignment(5)


def test_a_lost_session_closes_the_gate_without_an_acknowledgement() -> None:
    membership, member = make()
    member.assignment = assignment(5)
    with at_the_gate(membership, member):
        member.on_lost(assignment(5))
        assert membership.revocation is None


def test_the_gate_does_not_hold_longer_than_the_group_waits() -> None:
    membership, member = make(rebalance_timeout_ms=20)
    member.assignment = assignment(5)
    with at_the_gate(membership, member) as thread:
        thread.join(5)
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


@pytest.mark.parametrize("error", [IllegalGeneration, UnknownMember, RebalanceInProgress])
def test_a_refused_commit_ends_the_assignment_it_was_made_under(error: type[CommitFailed]) -> None:
    membership, member = make()
    member.assignment = assignment(5)

    def refuse() -> None:
        raise error("no")

    member.committing = refuse
    assert not membership.commit({TP: Committed(7)}, assignment(5))
    assert membership.assignment(0) is None


def test_a_commit_refused_for_a_partition_is_raised_with_its_name() -> None:
    membership, member = make()

    def refuse() -> None:
        raise CommitFailed("no", partitions={TP: PartitionError(3, "UNKNOWN_TOPIC_OR_PARTITION")})

    member.committing = refuse
    with pytest.raises(CommitFailed, match="offsets of clicks-0: UNKNOWN_TOPIC_OR_PARTITION"):
        membership.commit({TP: Committed(7)}, assignment(5))


def test_notes_travel_as_metadata_and_nothing_is_sent_for_nothing() -> None:
    membership, member = make()
    note = CommitNote("lineage", 5, 4)
    assert membership.commit({}, assignment(5))
    assert member.calls == []
    assert membership.commit({TP: Committed(7, note)}, assignment(5))
    member.offsets["clicks", 1] = CommittedOffset(offset=3, metadata="by hand")
    assert membership.committed() == {TP: Committed(7, note), ("clicks", 1): Committed(3)}


def test_a_wait_ends_when_it_is_interrupted() -> None:
    membership, _ = make()
    answers = iter([False, True])
    assert membership.assignment(60_000, interrupted=lambda: next(answers)) is None
