"""The partitions that one reader owns: taken by a commit, kept while no other member takes them, given up on request.

    acquire(start):  assignment → revocation: commit what is complete, acknowledge, start over
                     → new assignment: fetch, classify, settle → commit what is complete and what is taken

This module waits and calls; `plan` decides. If a call fails here, the next one, in this process or another, detects and
repairs it: `plan` says why. Nothing here knows how far a batch reads.
"""

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol

from rallypoint import Assignment
from rallypoint.member.errors import CoordinatorUnavailable
from rallypoint.spark_bridge import plan
from rallypoint.spark_bridge.errors import QueryFenced, SourceError
from rallypoint.spark_bridge.offsets import Run, StreamOffset, TopicPartition
from rallypoint.spark_bridge.options import BridgeOptions
from rallypoint.spark_bridge.plan import Acquisition, Bounds, CommitOutcome, Committed, OwnedPartition
from rallypoint.spark_bridge.sources.contract import Source
from rallypoint.spark_bridge.subscription import Subscription

log = logging.getLogger("rallypoint.spark")

NOTES_CHECK_MS = 5_000
"""How often a query checks whether another one uses its checkpoint: one fetch, and only when it plans."""


class GroupMembership(Protocol):
    """The part of `membership.Membership` that is used here."""

    @property
    def revocation(self) -> frozenset[TopicPartition] | None:
        """The revoked partitions that `acknowledge` gives up; None if nothing is revoked."""

    @property
    def present(self) -> Assignment | None:
        """The partitions owned now."""

    def assignment(self, wait_ms: int, *, newer_than: int, interrupted: Callable[[], bool]) -> Assignment | None:
        """The assignment to plan under; None if there is none in time."""

    def lasts(self, assignment: Assignment) -> bool:
        """Whether this is still the present assignment, and the session goes on by the clock."""

    def acknowledge(self) -> None:
        """Give up the revoked partitions."""

    def commit(self, offsets: Mapping[TopicPartition, Committed], assignment: Assignment) -> CommitOutcome:
        """Store offsets."""

    def committed(self) -> dict[TopicPartition, Committed]:
        """The group's committed offsets."""

    def use_blocking_calls(self) -> None:
        """Wait for each call from now on, even if the previous one was not answered."""

    def leave(self, reason: str) -> None:
        """Leave without committing."""


class OwnedPartitions:
    """The partitions that one planning process of a query owns.

    `checkpoint_id`: set before the first call.
    `partitions`: the owned partitions, with the generation and the offset at which they were taken.
    `confirmed_assignment`: the assignment under which they were taken or confirmed. Commits use its generation.
    `revocations`: how often partitions were given up after their completed offsets were committed.
    `commit_error`: why completed offsets are not committed yet; empty if they are.
    """

    def __init__(
        self,
        options: BridgeOptions,
        source: Source,
        membership: GroupMembership,
        reader_id: str,
        *,
        subscription: Subscription,
        now_ms: Callable[[], float] = lambda: time.monotonic() * 1000,
    ) -> None:
        self._options = options
        self._source = source
        self._membership = membership
        self._reader_id = reader_id
        self._subscription = subscription
        self._now_ms = now_ms
        self.checkpoint_id = ""
        self.confirmed_assignment: Assignment | None = None
        self.partitions: dict[TopicPartition, OwnedPartition] = {}
        self.revocations = 0
        self.commit_error = ""
        self._counts: dict[str, int] = {}
        self._stored: dict[TopicPartition, Committed] = {}
        """The last known committed offsets of the group, so that an idle query commits nothing."""
        self._looked_at_ms = 0.0
        self._has_owned = False
        self._run: Run | None = None
        self._older: frozenset[Run] = frozenset()

    def acquire(self, start: StreamOffset, wait_ms: int, interrupted: Callable[[], bool]) -> bool:
        """Take the assigned partitions. Commits completed offsets and the starts of taken partitions.

        While no coordinator answers, the partitions stay owned until the member's session expires. A cooperative group
        assigns nothing to a new member until others have given up its partitions. So a process that never owned a
        partition treats an empty assignment as none, and waits.

        Returns False if there is nothing to plan under yet, or if `interrupted` ended the wait. Raises QueryFenced,
        DataLost, SourceError, whatever stopped the member, and CommitFailed for a final refusal.
        """
        newer_than = -1
        while True:
            assignment = self._membership.assignment(wait_ms, newer_than=newer_than, interrupted=interrupted)
            if assignment is None:
                return False
            revoked = self._membership.revocation
            try:
                outcome = self._give_up(start, assignment) if revoked is not None else self._settle(start, assignment)
            except CoordinatorUnavailable as error:
                outcome = self._later(error)
            if outcome is CommitOutcome.LATER:
                # Checked again, because the session may have expired during the call.
                return self.confirmed_assignment is not None and self._membership.lasts(self.confirmed_assignment)
            self.commit_error = ""
            if outcome is not CommitOutcome.STORED or revoked is not None:
                self.confirmed_assignment = None
            elif assignment.partitions or self._has_owned or not self._options.cooperative:
                self._has_owned = True
                return True
            else:
                newer_than = assignment.generation_id

    def finish(self, start: StreamOffset) -> str:
        """Commit what is complete before the reader leaves.

        Returns why that failed; empty if it did not, or if there was nothing to commit.
        """
        self._membership.use_blocking_calls()
        assignment = self._membership.present
        if assignment is None:
            return "the member has no assignment at the moment" if start.partitions else ""
        settled = assignment == self.confirmed_assignment or self._membership.revocation is not None
        try:
            outcome = self._store_complete(start, assignment) if settled else self._take(start, assignment)
        except CoordinatorUnavailable as error:
            outcome = self._later(error)
        return {
            CommitOutcome.STORED: "",
            CommitOutcome.LATER: self.commit_error,
            CommitOutcome.LOST: "the assignment was lost",
        }[outcome]

    def find_gone(self, partitions: Iterable[TopicPartition], counts: Mapping[str, int]) -> frozenset[TopicPartition]:
        """The partitions that the source no longer has; logs a warning. Raises DataLost if the query must end then."""
        gone = plan.gone(partitions, counts, fail_on_data_loss=self._options.source.fail_on_data_loss)
        if gone:
            names = ", ".join(f"{topic}-{partition}" for topic, partition in sorted(gone))
            log.warning("group %s continues without %s, which no longer exist", self._options.group_id, names)
        return gone

    # --- with the group ----------------------------------------------------------------------------------------------

    def _settle(self, start: StreamOffset, assignment: Assignment) -> CommitOutcome:
        if assignment != self.confirmed_assignment:
            return self._take(start, assignment)
        outcome = self._store(start, self.partitions, assignment)
        if outcome is CommitOutcome.STORED and self._now_ms() - self._looked_at_ms >= NOTES_CHECK_MS:
            return self._take(start, assignment)
        return outcome

    def _give_up(self, start: StreamOffset, assignment: Assignment) -> CommitOutcome:
        """Commit, then give up what the group revokes, even if the commit finds it lost.

        The rest is taken as a new assignment.
        """
        outcome = self._store_complete(start, assignment)
        if outcome is not CommitOutcome.LATER:
            self.revocations += 1
            self._membership.acknowledge()
        return outcome

    def _store_complete(self, start: StreamOffset, assignment: Assignment) -> CommitOutcome:
        """Commit what is complete of an assignment, take nothing."""
        if assignment == self.confirmed_assignment:
            return self._store(start, self.partitions, assignment)
        committed = self._look(assignment)
        acquisitions = plan.classify(start, self.checkpoint_id, assignment.partitions, self.partitions, committed)
        unchanged = {
            tp: self.partitions[tp] for tp, acquisition in acquisitions.items() if acquisition is Acquisition.KEEP
        }
        return self._store(start, unchanged, assignment)

    def _take(self, start: StreamOffset, assignment: Assignment) -> CommitOutcome:
        """Take the partitions that are new to this process, drop those that are gone, find out which ones stay."""
        committed = self._look(assignment)
        present = self._source.partitions(sorted({topic for topic, _ in assignment.partitions}))
        gone = self.find_gone(assignment.partitions, present)
        acquisitions = plan.classify(
            start, self.checkpoint_id, assignment.partitions - gone, self.partitions, committed
        )
        counts = plan.first_counts(committed, present)
        positions = self._positions(start, acquisitions, committed, counts)
        owned = plan.settle(acquisitions, self.partitions, positions, assignment.generation_id)
        self._counts = counts
        outcome = self._store(start, owned, assignment)
        if outcome is CommitOutcome.STORED:
            if assignment != self.confirmed_assignment:
                self._log_taken(assignment, positions)
            self.confirmed_assignment, self.partitions = assignment, owned
        return outcome

    def _store(
        self, start: StreamOffset, owned: Mapping[TopicPartition, OwnedPartition], assignment: Assignment
    ) -> CommitOutcome:
        """Commit what the group does not know yet."""
        assert self._run is not None
        wanted = plan.commits(start, self.checkpoint_id, owned, self._counts, self._run)
        changed = {tp: one for tp, one in wanted.items() if self._stored.get(tp) != one}
        outcome = self._membership.commit(changed, assignment)
        if outcome is CommitOutcome.STORED:
            self._stored = {**self._stored, **changed}
        elif outcome is CommitOutcome.LATER:
            return self._later("the coordinator takes no commits")
        return outcome

    def _look(self, assignment: Assignment) -> dict[TopicPartition, Committed]:
        """Fetch what the group has. QueryFenced if it shows a newer query on this checkpoint."""
        committed = self._membership.committed()
        if self._run is None:
            self._run = Run(assignment.generation_id, self._reader_id)
            self._older = plan.other_runs(committed, self.checkpoint_id, self._run)
        newer = plan.newer_run(self._older, plan.other_runs(committed, self.checkpoint_id, self._run), self._run)
        if newer is not None:
            raise QueryFenced(
                f"another query uses this query's checkpoint since generation {newer.first_generation} of the group"
                f" {self._options.group_id} (reader {newer.reader_id}), so this one stops; give each query a"
                " checkpointLocation of its own"
            )
        self._stored = committed
        self._looked_at_ms = self._now_ms()
        return committed

    def _later(self, why: object) -> CommitOutcome:
        if not self.commit_error:
            log.warning("group %s: what is complete is committed later: %s", self._options.group_id, why)
        self.commit_error = str(why)
        return CommitOutcome.LATER

    # --- with the source ---------------------------------------------------------------------------------------------

    def _positions(
        self,
        start: StreamOffset,
        acquisitions: Mapping[TopicPartition, Acquisition],
        committed: Mapping[TopicPartition, Committed],
        counts: Mapping[str, int],
    ) -> dict[TopicPartition, int]:
        """The start of each partition that this process did not own before."""
        fresh = [tp for tp, acquisition in acquisitions.items() if acquisition is not Acquisition.KEEP]
        if not fresh:
            return {}
        earliest, latest = self._source.earliest(fresh), self._source.latest(fresh)
        beginning = [tp for tp in fresh if acquisitions[tp] is Acquisition.BEGIN]
        late = {tp for tp in beginning if tp[1] >= counts[tp[0]] or self._subscription.is_late(tp[0])}
        at_times = self._at_times([tp for tp in beginning if tp not in late])
        positions: dict[TopicPartition, int] = {}
        for tp in fresh:
            bounds = Bounds(earliest[tp], latest[tp])
            if acquisitions[tp] is Acquisition.RESUME:
                position = plan.resume_at(start, tp, self.partitions.get(tp))
            elif acquisitions[tp] is Acquisition.TAKE:
                position = committed[tp].offset
            else:
                starting = self._options.starting
                position = plan.begin_at(tp, starting, bounds, added_later=tp in late, at_timestamp=at_times.get(tp))
            positions[tp] = plan.within(tp, position, bounds, fail_on_data_loss=self._options.source.fail_on_data_loss)
        return positions

    def _at_times(self, beginning: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        """The start of each partition that begins at a timestamp."""
        starting = self._options.starting
        times = {tp: time_ms for tp in beginning if (time_ms := starting.time_of(tp)) is not None}
        if not times:
            return {}
        found = self._source.offsets_for_times(times)
        # Fetched afterwards, so that a record that arrives meanwhile does not count as missing.
        ends = self._source.latest(list(times))
        too_young = sorted(tp for tp, offset in found.items() if offset >= ends[tp])
        if too_young and starting.too_young == "error":
            names = ", ".join(f"{topic}-{partition} at {times[topic, partition]}" for topic, partition in too_young)
            raise SourceError(
                f"no record is as young as the time to start at: {names}; set startingOffsetsByTimestampStrategy=latest"
                " to start at the end there"
            )
        return found

    def _log_taken(self, assignment: Assignment, positions: Mapping[TopicPartition, int]) -> None:
        log.info(
            "group %s, generation %d: %d partitions%s",
            self._options.group_id,
            assignment.generation_id,
            len(assignment.partitions),
            "".join(f", {topic}-{p} at {positions[topic, p]}" for topic, p in sorted(positions)),
        )
