"""One streaming query's place in its group: when it may plan, and when it has given up what it had.

The member lives in threads of its own and keeps the session alive while Spark runs a batch. Its `on_revoked` waits
here, at a gate, until the planner has committed the end of the batch in flight and opens it with `acknowledge`; then
the member joins again. That only happens inside `latestOffset`, the one moment at which Spark is known to have
completed what was planned.

    batch N runs │ latestOffset(N+1): commit end of N → acknowledge → wait for the new assignment → take, plan
    ─────────────┼─────────────────────────────────────────────────────────────────────────────────────────────
    member:      on_revoked waits at the gate ............... joins ... syncs ... assigned

With a cooperative assignor the gate would be the same, with a smaller assignment behind it: the planner commits and
acknowledges what is revoked, and plans on with the rest. Nothing here decides what is read or committed.
"""

import threading
import time
from collections.abc import Callable, Mapping
from typing import Protocol

from member import Assignment
from member.errors import CommitFailed, IllegalGeneration, RebalanceInProgress, UnknownMember
from protocol.messages import CommittedOffset, OffsetCommit
from spark_bridge.offsets import CommitNote, TopicPartition
from spark_bridge.plan import Committed

POLL_MS = 500
"""How long one wait for an assignment lasts before `interrupted` is asked again."""


class Member(Protocol):
    """What is used of `member.BlockingGroupMember`."""

    @property
    def assignment(self) -> Assignment | None:
        """The present assignment, None while there is none."""

    def start(self) -> None:
        """Join in the background."""

    def wait_assigned(self, timeout_ms: int | None = None) -> Assignment:
        """The present assignment, or the next one; TimeoutError, or what made the member stop."""

    def commit(self, offsets: Mapping[TopicPartition, OffsetCommit], *, generation_id: int) -> None:
        """Store offsets under a generation."""

    def committed(self) -> Mapping[TopicPartition, CommittedOffset]:
        """All committed offsets of the group."""

    def request_rejoin(self, reason: str) -> None:
        """Start a rebalance."""

    def leave(self, reason: str | None = None, *, stay: bool = False) -> None:
        """Leave the group and stop; `stay` keeps the place for a restart of a static member."""


Gate = Callable[[Assignment], None]
Connect = Callable[[Gate, Gate], Member]
"""Makes a member, not yet started, from `on_revoked` and `on_lost`."""


class Membership:
    """Wraps one member for its whole life. Called from Spark's planning thread, except for the two callbacks."""

    def __init__(self, connect: Connect, *, rebalance_timeout_ms: int, static: bool = False) -> None:
        self._static = static
        self._rebalance_timeout_ms = rebalance_timeout_ms
        self._changed = threading.Condition()
        self._at_gate: Assignment | None = None
        self._given_up: Assignment | None = None
        self._leaving = False
        self._member = connect(self._on_revoked, self._on_lost)

    def start(self) -> None:
        """Join the group in the background."""
        self._member.start()

    @property
    def revocation(self) -> Assignment | None:
        """The assignment that the group wants back and that `acknowledge` would give up."""
        with self._changed:
            return self._at_gate

    @property
    def present(self) -> Assignment | None:
        """The assignment at this moment, also one the group wants back."""
        return self._member.assignment

    def assignment(self, wait_ms: int, *, interrupted: Callable[[], bool] = lambda: False) -> Assignment | None:
        """The assignment to plan under, waiting up to `wait_ms` for one; None if there is still none.

        What was acknowledged, or found lost, is never returned again. Raises what made the member stop for good.
        `interrupted` is asked every half a second and ends the wait.
        """
        deadline = time.monotonic() + wait_ms / 1000
        while not interrupted():
            remaining_ms = int((deadline - time.monotonic()) * 1000)
            try:
                assignment = self._member.wait_assigned(min(max(remaining_ms, 1), POLL_MS))
            except TimeoutError:
                assignment = None
            if assignment is not None and assignment != self._given_up:
                return assignment
            if remaining_ms <= 0:
                return None
            if assignment is not None:
                # The gate is open, but the member's thread has not passed it yet.
                time.sleep(0.005)
        return None

    def acknowledge(self) -> None:
        """Open the gate: what was assigned is given up, its completed end is committed. Without a revocation it does
        nothing.
        """
        with self._changed:
            if self._at_gate is not None:
                self._given_up = self._at_gate
                self._at_gate = None
                self._changed.notify_all()

    def commit(self, offsets: Mapping[TopicPartition, Committed], assignment: Assignment) -> bool:
        """Store offsets under the generation they were planned in, not one the member has moved on to.

        False: the assignment is no longer this member's, and `assignment` never returns it again.

        Raises CoordinatorUnavailable where no coordinator answers, CommitFailed where it refuses a partition.
        """
        if not offsets:
            return True
        wanted = {
            tp: OffsetCommit(offset=one.offset, metadata="" if one.note is None else one.note.to_text())
            for tp, one in offsets.items()
        }
        try:
            self._member.commit(wanted, generation_id=assignment.generation_id)
        except (IllegalGeneration, UnknownMember, RebalanceInProgress):
            self._given_up = assignment
            return False
        except CommitFailed as error:
            if error.partitions:
                names = ", ".join(f"{topic}-{p}: {one.error_name}" for (topic, p), one in error.partitions.items())
                raise CommitFailed(
                    f"the coordinator refuses offsets of {names}",
                    error_code=error.error_code,
                    error_name=error.error_name,
                    retriable=error.retriable,
                    partitions=error.partitions,
                ) from error
            raise
        return True

    def committed(self) -> dict[TopicPartition, Committed]:
        """What the group has committed, with the notes of the bridge. Raises CoordinatorUnavailable."""
        return {
            tp: Committed(entry.offset, CommitNote.from_text(entry.metadata))
            for tp, entry in self._member.committed().items()
        }

    def request_rejoin(self, reason: str) -> None:
        """Ask the group for a new assignment."""
        self._member.request_rejoin(reason)

    def leave(self, reason: str) -> None:
        """Give everything up **without** committing, and leave. May be called twice.

        A static member does not tell the group, so that it finds its partitions again after a quick restart.
        """
        with self._changed:
            self._leaving = True
            self._changed.notify_all()
        self._member.leave(reason, stay=self._static)

    def _on_revoked(self, assignment: Assignment) -> None:
        with self._changed:
            self._at_gate = assignment
            self._changed.wait_for(
                lambda: self._leaving or self._at_gate is not assignment, self._rebalance_timeout_ms / 1000
            )
            if self._at_gate is assignment:
                self._at_gate = None

    def _on_lost(self, assignment: Assignment) -> None:
        with self._changed:
            if self._at_gate == assignment:
                self._at_gate = None
            self._changed.notify_all()
