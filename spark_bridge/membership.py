"""One streaming query's membership in its group: what it may plan, and when it gives up revoked partitions.

The member runs in its own threads and keeps the session alive while Spark runs a batch. Its `on_revoked` callback waits
here, at a gate, until the planner has committed the end of the batch in flight and opens the gate with `acknowledge`.
Then the member joins again. This happens only inside `latestOffset`, the only call in which Spark is known to have
completed what was planned.

The group revokes a part of a cooperative member's partitions, and the member keeps the rest:

    batch N runs │ latestOffset(N+1): commit end of N → acknowledge the part → plan the rest
    ─────────────┼──────────────────────────────────────────────────────────────────────────
    member:      on_revoked waits at the gate ......... joins ... syncs ... assigned

It revokes all partitions of an eager member, and the planner waits for the new assignment before it plans. Nothing here
decides what is read or committed.
"""

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Protocol

from rallypoint import Assignment
from rallypoint.member.errors import (
    CommitFailed,
    CoordinatorUnavailable,
    IllegalGeneration,
    RebalanceInProgress,
    UnknownMember,
)
from rallypoint.protocol.messages import CommittedOffset, OffsetCommit
from rallypoint.spark_bridge.background_calls import BackgroundCalls
from rallypoint.spark_bridge.offsets import CommitNote, TopicPartition
from rallypoint.spark_bridge.plan import CommitOutcome, Committed

POLL_MS = 200
"""How long one wait for an assignment lasts before `interrupted` and the member's error are checked again."""


class Member(Protocol):
    """What is used of `member.BlockingGroupMember`."""

    @property
    def assignment(self) -> Assignment | None:
        """All partitions that the member owns, including those being revoked; None while there is no assignment."""

    @property
    def error(self) -> Exception | None:
        """What stopped the member for good."""

    def holds(self, topic_partition: TopicPartition) -> bool:
        """Whether it owns the partition, and its session goes on by the clock."""

    def start(self) -> None:
        """Join in the background."""

    def commit(self, offsets: Mapping[TopicPartition, OffsetCommit], *, generation_id: int) -> None:
        """Store offsets that were read under a generation."""

    def committed(self) -> Mapping[TopicPartition, CommittedOffset]:
        """All committed offsets of the group."""

    def leave(self, reason: str | None = None, *, stay: bool = False) -> None:
        """Leave the group and stop. `stay`: a static member only stops, to keep its partitions for a restart."""


class Callbacks(Protocol):
    """The member's callbacks. It calls them one at a time, from its own thread."""

    def on_assigned(self, assignment: Assignment) -> None:
        """Called in each generation, even if it adds no partition."""

    def on_revoked(self, assignment: Assignment) -> None:
        """Called before partitions are revoked. The group waits until it returns."""

    def on_lost(self, assignment: Assignment) -> None:
        """Called when the group has continued without this member."""


Connect = Callable[[Callbacks, str | None], Member]
"""Creates a member, not yet started, from its callbacks and the name of a static member (None for a dynamic one)."""


class Membership:
    """Wraps one member for its whole life. Called from Spark's planning thread, except for the callbacks.

    `connect`: creates the member.
    `rebalance_timeout_ms`: the longest wait of `on_revoked`.
    `cooperative`: whether the member keeps its other partitions in a rebalance.

    Before `start` only `leave` may be called.
    """

    def __init__(self, connect: Connect, *, rebalance_timeout_ms: int, cooperative: bool = False) -> None:
        self._connect = connect
        self._static = False
        self._cooperative = cooperative
        self._rebalance_timeout_ms = rebalance_timeout_ms
        self._changed = threading.Condition()
        self._at_gate: frozenset[TopicPartition] | None = None
        self._given_up: frozenset[TopicPartition] = frozenset()
        """Acknowledged partitions that the member still reports as owned, until its next callback."""
        self._refused: Assignment | None = None
        """The assignment under which a commit was refused. The member will learn of it and get another one, or none."""
        self._leaving = False
        self._started: Member | None = None
        self._calls = BackgroundCalls()

    def start(self, group_instance_id: str | None = None) -> None:
        """Join the group in the background; with a name, as a static member."""
        self._static = group_instance_id is not None
        self._started = self._connect(self, group_instance_id)
        self._started.start()

    def use_blocking_calls(self) -> None:
        """Wait for each call from now on, even if the previous one was not answered."""
        self._calls.blocking = True

    @property
    def revocation(self) -> frozenset[TopicPartition] | None:
        """The revoked partitions that `acknowledge` would give up; None if nothing is revoked."""
        with self._changed:
            return self._at_gate

    @property
    def present(self) -> Assignment | None:
        """The partitions owned now, including those being revoked. It may be an assignment without partitions.

        None while there is no assignment, or once all of it was acknowledged.
        """
        owned = self._member.assignment
        with self._changed:
            given_up = self._given_up
        if owned is None or not given_up:
            return owned
        left = owned.partitions - given_up
        return replace(owned, partitions=left) if left else None

    def lasts(self, assignment: Assignment) -> bool:
        """Whether this is still the present assignment, and the session goes on by the clock.

        While a revocation waits at the gate, a member whose session is over still owns what is revoked.
        """
        return self.present == assignment and all(self._member.holds(tp) for tp in sorted(assignment.partitions)[:1])

    def assignment(
        self, wait_ms: int, *, newer_than: int = -1, interrupted: Callable[[], bool] = lambda: False
    ) -> Assignment | None:
        """Wait for the assignment to plan under; None if there is none in time.

        `wait_ms`: how long to wait.
        `newer_than`: only a later generation counts.
        `interrupted`: polled five times a second; ends the wait.

        Acknowledged partitions are never part of it. An assignment under which a commit was refused is ignored while
        the wait lasts. Raises whatever made the member stop for good.
        """
        deadline = time.monotonic() + wait_ms / 1000
        while not interrupted():
            if (error := self._member.error) is not None:
                raise error
            present = self.present
            if present is not None and present != self._refused and present.generation_id > newer_than:
                self._refused = None
                return present
            remaining = deadline - time.monotonic()
            if remaining <= 0:
                break
            with self._changed:
                self._changed.wait(min(remaining, POLL_MS / 1000))
        self._refused = None
        return None

    def acknowledge(self) -> None:
        """Open the gate: give up the revoked partitions, whose completed ends are committed.

        Does nothing without a revocation.
        """
        with self._changed:
            if self._at_gate is not None:
                self._pass()

    def commit(self, offsets: Mapping[TopicPartition, Committed], assignment: Assignment) -> CommitOutcome:
        """Store offsets under the assignment they were planned in, not a later one.

        While no coordinator answers, only the first commit is waited for; see `background_calls`. Raises CommitFailed
        if a partition is refused for good.
        """
        if not offsets:
            return CommitOutcome.STORED
        wanted = {
            tp: OffsetCommit(offset=one.offset, metadata="" if one.note is None else one.note.to_text())
            for tp, one in offsets.items()
        }
        try:
            self._calls.ask(lambda: self._member.commit(wanted, generation_id=assignment.generation_id))
        except CoordinatorUnavailable:
            return CommitOutcome.LATER
        except RebalanceInProgress:
            # An eager member has joined again by then; a cooperative one still owns its partitions.
            return CommitOutcome.LATER if self._cooperative else self._lost(assignment)
        except (IllegalGeneration, UnknownMember):
            return self._lost(assignment)
        except CommitFailed as error:
            if error.retriable:
                return CommitOutcome.LATER
            raise _with_names(error) from error
        return CommitOutcome.STORED

    def committed(self) -> dict[TopicPartition, Committed]:
        """What the group has committed, with the notes of the bridge. Raises CoordinatorUnavailable."""
        return {
            tp: Committed(entry.offset, CommitNote.from_text(entry.metadata))
            for tp, entry in self._calls.ask(self._member.committed).items()
        }

    def leave(self, reason: str) -> None:
        """Give up all partitions **without** committing, and leave. May be called twice.

        A static member sends no leave request, so it keeps its partitions over a quick restart.
        """
        with self._changed:
            self._leaving = True
            self._changed.notify_all()
        if self._started is not None:
            self._started.leave(reason, stay=self._static)

    # --- called by the member ----------------------------------------------------------------------------------------

    def on_assigned(self, assignment: Assignment) -> None:
        """Begin a new generation, which may assign acknowledged partitions again."""
        with self._changed:
            self._given_up = frozenset()
            self._changed.notify_all()

    def on_revoked(self, assignment: Assignment) -> None:
        """Wait for `acknowledge`, at most the rebalance timeout."""
        with self._changed:
            part = self._at_gate = assignment.partitions
            self._changed.notify_all()
            self._changed.wait_for(
                lambda: self._leaving or self._at_gate is not part, self._rebalance_timeout_ms / 1000
            )
            if self._at_gate is part:
                self._pass()

    def on_lost(self, assignment: Assignment) -> None:
        """Forget the revocation: all partitions are lost."""
        with self._changed:
            self._at_gate = None
            self._given_up = frozenset()
            self._changed.notify_all()

    @property
    def _member(self) -> Member:
        assert self._started is not None, "start comes first"
        return self._started

    def _pass(self) -> None:
        assert self._at_gate is not None
        self._given_up = self._at_gate
        self._at_gate = None
        self._changed.notify_all()

    def _lost(self, assignment: Assignment) -> CommitOutcome:
        self._refused = assignment
        return CommitOutcome.LOST


def _with_names(error: CommitFailed) -> CommitFailed:
    """The same error, with the refused partitions in its message."""
    names = ", ".join(f"{topic}-{p}: {one.error_name}" for (topic, p), one in error.partitions.items())
    return CommitFailed(
        f"the coordinator refuses offsets of {names}" if names else str(error),
        error_code=error.error_code,
        error_name=error.error_name,
        retriable=error.retriable,
        partitions=error.partitions,
    )
