"""Which partitions one reader holds: taken with a commit, kept while nobody else takes them, given up when asked.

    hold(start):  assignment → the group wants some of it back? commit what is complete, acknowledge, over again
                  → a new one: fetch, classify, settle → commit what is complete and what is taken

It waits and calls; `plan` decides. Whatever goes wrong in here changes nothing that the next call, in this process or
in another, would not find and put right: `plan` says why. Nothing here knows how far a batch reads.
"""

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol

from member import Assignment
from member.errors import CoordinatorUnavailable
from spark_bridge import plan
from spark_bridge.errors import QueryFenced, SourceError
from spark_bridge.offsets import Run, StreamOffset, TopicPartition
from spark_bridge.options import BridgeOptions
from spark_bridge.plan import Bounds, Claim, Committed, Held, Verdict
from spark_bridge.sources.contract import Source
from spark_bridge.subscription import Subscription

log = logging.getLogger("rallypoint.spark")

NOTES_CHECK_MS = 5_000
"""How often a query looks whether another one goes on with its checkpoint: one fetch, and only when it plans."""


class Place(Protocol):
    """What is used of `membership.Membership`, which says what each does."""

    @property
    def revocation(self) -> frozenset[TopicPartition] | None:
        """What the group wants back."""

    @property
    def present(self) -> Assignment | None:
        """The assignment at this moment."""

    def assignment(self, wait_ms: int, *, newer_than: int, interrupted: Callable[[], bool]) -> Assignment | None:
        """The assignment to plan under, None if there is none in time."""

    def acknowledge(self) -> None:
        """Give up what the group wants back."""

    def commit(self, offsets: Mapping[TopicPartition, Committed], assignment: Assignment) -> Verdict:
        """Store offsets."""

    def committed(self) -> dict[TopicPartition, Committed]:
        """What the group has."""

    def leave(self, reason: str) -> None:
        """Leave without committing."""


class Holding:
    """Of one life of one query's reader. `lineage` is its checkpoint's, and is set before the first call.

    `partitions`: what is held, since when and from where. `under`: the assignment they were taken or confirmed under;
    what is committed is committed under its generation. `trouble`: why the group has not got what is complete, in
    words; empty if it has.
    """

    def __init__(
        self,
        options: BridgeOptions,
        source: Source,
        membership: Place,
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
        self.lineage = ""
        self.under: Assignment | None = None
        self.partitions: dict[TopicPartition, Held] = {}
        self.handovers = 0
        self.trouble = ""
        self._counts: dict[str, int] = {}
        self._stored: dict[TopicPartition, Committed] = {}
        """What the group is known to have, so that an idle query commits nothing."""
        self._looked_at_ms = 0.0
        self._has_held = False
        self._run: Run | None = None
        self._older: frozenset[Run] = frozenset()

    def hold(self, start: StreamOffset, wait_ms: int, interrupted: Callable[[], bool]) -> bool:
        """Come to hold what the group assigns, with everything complete and everything taken committed.

        Where no coordinator answers, what is held is held on as long as the member has it: its session is its right.
        A cooperative group first gives a newcomer nothing, until others have given up what is to be its own: as long as
        it never had anything, an empty assignment is waited out like none at all.
        False: there is nothing to plan under yet, or `interrupted` ended the wait. Raises QueryFenced, DataLost,
        SourceError, what stopped the member, CommitFailed for what is refused for good.
        """
        newer_than = -1
        while True:
            assignment = self._membership.assignment(wait_ms, newer_than=newer_than, interrupted=interrupted)
            if assignment is None:
                return False
            revoked = self._membership.revocation
            try:
                verdict = self._give_up(start, assignment) if revoked is not None else self._settle(start, assignment)
            except CoordinatorUnavailable as error:
                verdict = self._later(error)
            if verdict is Verdict.LATER:
                # Asked again, for the call may have taken longer than what was left of the session.
                return self.under is not None and self._membership.present == self.under
            self.trouble = ""
            if verdict is not Verdict.STORED or revoked is not None:
                self.under = None
            elif assignment.partitions or self._has_held or not self._options.cooperative:
                self._has_held = True
                return True
            else:
                newer_than = assignment.generation_id

    def finish(self, start: StreamOffset) -> str:
        """Commit what is complete, before the reader leaves. Why it could not be done; empty if it was, or if there was
        nothing to commit.
        """
        assignment = self._membership.present
        if assignment is None:
            return "the member has no assignment at the moment" if start.partitions else ""
        settled = assignment == self.under or self._membership.revocation is not None
        try:
            verdict = self._store_complete(start, assignment) if settled else self._take(start, assignment)
        except CoordinatorUnavailable as error:
            verdict = self._later(error)
        return {Verdict.STORED: "", Verdict.LATER: self.trouble, Verdict.LOST: "the assignment was lost"}[verdict]

    def find_gone(self, partitions: Iterable[TopicPartition], counts: Mapping[str, int]) -> frozenset[TopicPartition]:
        """Those that the source has no more, which is worth a warning. DataLost where the query is to end then."""
        gone = plan.gone(partitions, counts, fail_on_data_loss=self._options.source.fail_on_data_loss)
        if gone:
            names = ", ".join(f"{topic}-{partition}" for topic, partition in sorted(gone))
            log.warning("group %s goes on without %s, which the source has no more", self._options.group_id, names)
        return gone

    # --- with the group ----------------------------------------------------------------------------------------------

    def _settle(self, start: StreamOffset, assignment: Assignment) -> Verdict:
        if assignment != self.under:
            return self._take(start, assignment)
        verdict = self._store(start, self.partitions, assignment)
        if verdict is Verdict.STORED and self._now_ms() - self._looked_at_ms >= NOTES_CHECK_MS:
            return self._take(start, assignment)
        return verdict

    def _give_up(self, start: StreamOffset, assignment: Assignment) -> Verdict:
        """Commit, then let the group have what it wants back: also where the commit finds it lost. What is left is
        taken as a new assignment.
        """
        verdict = self._store_complete(start, assignment)
        if verdict is not Verdict.LATER:
            self.handovers += 1
            self._membership.acknowledge()
        return verdict

    def _store_complete(self, start: StreamOffset, assignment: Assignment) -> Verdict:
        """Commit what is complete of an assignment, take nothing."""
        if assignment == self.under:
            return self._store(start, self.partitions, assignment)
        committed = self._look(assignment)
        claims = plan.classify(start, self.lineage, assignment.partitions, self.partitions, committed)
        kept = {tp: self.partitions[tp] for tp, claim in claims.items() if claim is Claim.KEEP}
        return self._store(start, kept, assignment)

    def _take(self, start: StreamOffset, assignment: Assignment) -> Verdict:
        """Take what this process has not planned before, drop what is gone, find out what is kept."""
        committed = self._look(assignment)
        present = self._source.partitions(sorted({topic for topic, _ in assignment.partitions}))
        gone = self.find_gone(assignment.partitions, present)
        claims = plan.classify(start, self.lineage, assignment.partitions - gone, self.partitions, committed)
        counts = plan.first_counts(committed, present)
        positions = self._positions(start, claims, committed, counts)
        held = plan.settle(claims, self.partitions, positions, assignment.generation_id)
        self._counts = counts
        verdict = self._store(start, held, assignment)
        if verdict is Verdict.STORED:
            if assignment != self.under:
                self._log_taken(assignment, positions)
            self.under, self.partitions = assignment, held
        return verdict

    def _store(self, start: StreamOffset, held: Mapping[TopicPartition, Held], assignment: Assignment) -> Verdict:
        """Commit what the group does not know yet."""
        assert self._run is not None
        wanted = plan.commits(start, self.lineage, held, self._counts, self._run)
        news = {tp: one for tp, one in wanted.items() if self._stored.get(tp) != one}
        verdict = self._membership.commit(news, assignment)
        if verdict is Verdict.STORED:
            self._stored = {**self._stored, **news}
        elif verdict is Verdict.LATER:
            return self._later("the coordinator takes no commits")
        return verdict

    def _look(self, assignment: Assignment) -> dict[TopicPartition, Committed]:
        """Fetch what the group has. QueryFenced if it shows a newer query on this checkpoint."""
        committed = self._membership.committed()
        if self._run is None:
            self._run = Run(assignment.generation_id, self._reader_id)
            self._older = plan.other_runs(committed, self.lineage, self._run)
        newer = plan.newer_run(self._older, plan.other_runs(committed, self.lineage, self._run), self._run)
        if newer is not None:
            raise QueryFenced(
                f"another query goes on with this query's checkpoint since generation {newer.begun} of the group"
                f" {self._options.group_id} (reader {newer.reader_id}), so this one stops; give each query a"
                " checkpointLocation of its own"
            )
        self._stored = committed
        self._looked_at_ms = self._now_ms()
        return committed

    def _later(self, why: object) -> Verdict:
        if not self.trouble:
            log.warning("group %s: what is complete is committed later: %s", self._options.group_id, why)
        self.trouble = str(why)
        return Verdict.LATER

    # --- with the source ---------------------------------------------------------------------------------------------

    def _positions(
        self,
        start: StreamOffset,
        claims: Mapping[TopicPartition, Claim],
        committed: Mapping[TopicPartition, Committed],
        counts: Mapping[str, int],
    ) -> dict[TopicPartition, int]:
        """Where each partition begins that is not simply kept."""
        fresh = [tp for tp, claim in claims.items() if claim is not Claim.KEEP]
        if not fresh:
            return {}
        earliest, latest = self._source.earliest(fresh), self._source.latest(fresh)
        begun = [tp for tp in fresh if claims[tp] is Claim.BEGIN]
        late = {tp for tp in begun if tp[1] >= counts[tp[0]] or self._subscription.is_late(tp[0])}
        at_times = self._at_times([tp for tp in begun if tp not in late])
        positions: dict[TopicPartition, int] = {}
        for tp in fresh:
            bounds = Bounds(earliest[tp], latest[tp])
            if claims[tp] is Claim.RESUME:
                position = plan.resume_at(start, tp, self.partitions.get(tp))
            elif claims[tp] is Claim.TAKE:
                position = committed[tp].offset
            else:
                starting = self._options.starting
                position = plan.begin_at(tp, starting, bounds, added_later=tp in late, at_timestamp=at_times.get(tp))
            positions[tp] = plan.within(tp, position, bounds, fail_on_data_loss=self._options.source.fail_on_data_loss)
        return positions

    def _at_times(self, begun: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        """Where the partitions begin that are to begin at a time."""
        starting = self._options.starting
        times = {tp: time_ms for tp in begun if (time_ms := starting.time_of(tp)) is not None}
        if not times:
            return {}
        found = self._source.offsets_for_times(times)
        # Asked afterwards: a record that came meanwhile is after what was found, not young enough to be refused.
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
