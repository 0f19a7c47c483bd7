"""One streaming query's place in its group: what it may plan, and when it has given up what the group wants back.

The member lives in threads of its own and keeps the session alive while Spark runs a batch. Its `on_revoked` waits
here, at a gate, until the planner has committed the end of the batch in flight and opens it with `acknowledge`; then
the member joins again. That only happens inside `latestOffset`, the one moment at which Spark is known to have
completed what was planned.

A cooperative member is asked for the part that others are to have, and keeps the rest:

    batch N runs │ latestOffset(N+1): commit end of N → acknowledge the part → plan the rest
    ─────────────┼──────────────────────────────────────────────────────────────────────────
    member:      on_revoked waits at the gate ......... joins ... syncs ... assigned

An eager one is asked for everything, and the planner waits for the new assignment before it plans. Nothing here decides
what is read or committed.
"""

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Protocol

from member import Assignment
from member.errors import CommitFailed, CoordinatorUnavailable, IllegalGeneration, RebalanceInProgress, UnknownMember
from protocol.messages import CommittedOffset, OffsetCommit
from spark_bridge.offsets import CommitNote, TopicPartition
from spark_bridge.plan import Committed, Verdict

POLL_MS = 200
"""How long one wait for an assignment lasts before `interrupted` is asked again, and whether the member has failed."""


class Member(Protocol):
    """What is used of `member.BlockingGroupMember`."""

    @property
    def assignment(self) -> Assignment | None:
        """All that is held, also what is being given up; None while there is nothing."""

    @property
    def error(self) -> Exception | None:
        """What stopped the member for good."""

    def start(self) -> None:
        """Join in the background."""

    def commit(self, offsets: Mapping[TopicPartition, OffsetCommit], *, generation_id: int) -> None:
        """Store offsets that were read under a generation."""

    def committed(self) -> Mapping[TopicPartition, CommittedOffset]:
        """All committed offsets of the group."""

    def request_rejoin(self, reason: str) -> None:
        """Start a rebalance."""

    def subscribe(self, topics: Iterable[str]) -> None:
        """Change the subscription, and join again."""

    def leave(self, reason: str | None = None, *, stay: bool = False) -> None:
        """Leave the group and stop; `stay` keeps the place for a restart of a static member."""


class Callbacks(Protocol):
    """What the member is to call, one at a time, from a thread of its own."""

    def on_assigned(self, assignment: Assignment) -> None:
        """In each generation, also where it adds nothing."""

    def on_revoked(self, assignment: Assignment) -> None:
        """The group waits until this returns."""

    def on_lost(self, assignment: Assignment) -> None:
        """The group went on without this member."""


Connect = Callable[[Callbacks, str | None], Member]
"""Makes a member, not yet started, from what it is to call and the name that makes it static."""


class Membership:
    """Wraps one member for its whole life. Called from Spark's planning thread, except for the callbacks.

    `cooperative`: whether the member keeps the rest when it gives up a part. Before `start` only `leave` may be called.
    """

    def __init__(self, connect: Connect, *, rebalance_timeout_ms: int, cooperative: bool = False) -> None:
        self._connect = connect
        self._static = False
        self._cooperative = cooperative
        self._rebalance_timeout_ms = rebalance_timeout_ms
        self._changed = threading.Condition()
        self._at_gate: frozenset[TopicPartition] | None = None
        self._given_up: frozenset[TopicPartition] = frozenset()
        """Behind the open gate, from the acknowledgement until the member's next callback: by then it has let go."""
        self._refused: Assignment | None = None
        """Under which a commit was refused: the member will hear of it, and then have another one or none."""
        self._leaving = False
        self._started: Member | None = None

    def start(self, group_instance_id: str | None = None) -> None:
        """Join the group in the background; with a name, as a static member."""
        self._static = group_instance_id is not None
        self._started = self._connect(self, group_instance_id)
        self._started.start()

    @property
    def revocation(self) -> frozenset[TopicPartition] | None:
        """What the group wants back and `acknowledge` would give up; None where it wants nothing."""
        with self._changed:
            return self._at_gate

    @property
    def present(self) -> Assignment | None:
        """What is held at this moment, also what the group wants back; None while there is nothing, or where all of it
        was acknowledged. It may be an assignment of no partitions.
        """
        held = self._member.assignment
        with self._changed:
            given_up = self._given_up
        if held is None or not given_up:
            return held
        left = held.partitions - given_up
        return replace(held, partitions=left) if left else None

    def assignment(
        self, wait_ms: int, *, newer_than: int = -1, interrupted: Callable[[], bool] = lambda: False
    ) -> Assignment | None:
        """The assignment to plan under, of a generation above `newer_than`, waiting up to `wait_ms` for one; None if
        there is still none.

        What was acknowledged is never in it. One under which a commit was refused is not returned before the wait is
        over without another. Raises what made the member stop for good. `interrupted` is asked five times a second and
        ends the wait.
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
        """Open the gate: what the group wants back is given up, its completed end is committed. Without a revocation
        it does nothing.
        """
        with self._changed:
            if self._at_gate is not None:
                self._pass()

    def commit(self, offsets: Mapping[TopicPartition, Committed], assignment: Assignment) -> Verdict:
        """Store offsets under the assignment they were planned in, not one the member has moved on to.

        LOST: some of it is no longer this member's. LATER: nobody took it now, and the assignment may well be held
        still; it may have been stored all the same. Raises CommitFailed where a partition is refused for good.
        """
        if not offsets:
            return Verdict.STORED
        wanted = {
            tp: OffsetCommit(offset=one.offset, metadata="" if one.note is None else one.note.to_text())
            for tp, one in offsets.items()
        }
        try:
            self._member.commit(wanted, generation_id=assignment.generation_id)
        except CoordinatorUnavailable:
            return Verdict.LATER
        except RebalanceInProgress:
            # An eager member has joined again by then; a cooperative one owns what it owned.
            return Verdict.LATER if self._cooperative else self._lost(assignment)
        except (IllegalGeneration, UnknownMember):
            return self._lost(assignment)
        except CommitFailed as error:
            if error.retriable:
                return Verdict.LATER
            raise _with_names(error) from error
        return Verdict.STORED

    def committed(self) -> dict[TopicPartition, Committed]:
        """What the group has committed, with the notes of the bridge. Raises CoordinatorUnavailable."""
        return {
            tp: Committed(entry.offset, CommitNote.from_text(entry.metadata))
            for tp, entry in self._member.committed().items()
        }

    def request_rejoin(self, reason: str) -> None:
        """Ask the group for a new assignment."""
        self._member.request_rejoin(reason)

    def subscribe(self, topics: Iterable[str]) -> None:
        """Read other topics from the next assignment on."""
        self._member.subscribe(topics)

    def leave(self, reason: str) -> None:
        """Give everything up **without** committing, and leave. May be called twice.

        A static member does not tell the group, so that it finds its partitions again after a quick restart.
        """
        with self._changed:
            self._leaving = True
            self._changed.notify_all()
        if self._started is not None:
            self._started.leave(reason, stay=self._static)

    # --- called by the member ----------------------------------------------------------------------------------------

    def on_assigned(self, assignment: Assignment) -> None:
        """A new generation: what was given up is gone by now, and may come back with it."""
        with self._changed:
            self._given_up = frozenset()
            self._changed.notify_all()

    def on_revoked(self, assignment: Assignment) -> None:
        """Wait at the gate, no longer than the group would."""
        with self._changed:
            part = self._at_gate = assignment.partitions
            self._changed.notify_all()
            self._changed.wait_for(
                lambda: self._leaving or self._at_gate is not part, self._rebalance_timeout_ms / 1000
            )
            if self._at_gate is part:
                self._pass()

    def on_lost(self, assignment: Assignment) -> None:
        """All that was held is gone."""
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

    def _lost(self, assignment: Assignment) -> Verdict:
        self._refused = assignment
        return Verdict.LOST


def _with_names(error: CommitFailed) -> CommitFailed:
    """The same error, with the partitions that were refused in its sentence."""
    names = ", ".join(f"{topic}-{p}: {one.error_name}" for (topic, p), one in error.partitions.items())
    return CommitFailed(
        f"the coordinator refuses offsets of {names}" if names else str(error),
        error_code=error.error_code,
        error_name=error.error_name,
        retriable=error.retriable,
        partitions=error.partitions,
    )
