"""What happens in the planning process each time Spark asks for new data. It waits and calls; `plan` decides.

    latestOffset(start):  request? → assignment → (new one: fetch, classify, settle) → commit what is complete and what
                          is taken → the group wants it back? acknowledge, and over again → ask the source → advance

Spark calls one after the other on one thread, and asks for new data only once the batch before is complete: that is
what `start` means here. Whatever goes wrong before the offset is returned changes nothing that the next call, in this
process or in another, would not find and put right: `plan` says why.
"""

import logging
import secrets
import time
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from member import Assignment
from member.errors import CoordinatorUnavailable
from spark_bridge import plan
from spark_bridge.control import Answer, ReaderControl
from spark_bridge.errors import NotAssigned, QueryRefused
from spark_bridge.offsets import StreamOffset, TopicPartition
from spark_bridge.options import BridgeOptions
from spark_bridge.plan import Bounds, Claim, Committed, Held
from spark_bridge.sources.contract import Source

log = logging.getLogger("rallypoint.spark")

ASSIGNMENT_WAIT_MS = 10_000
"""How long one call waits for an assignment before it answers "nothing new", so that Spark stays responsive."""

BATCH_WARNING_PERCENT = 80
"""A batch that takes this part of the rebalance timeout is worth a warning."""


def new_lineage() -> str:
    """A random name for the history that a checkpoint holds."""
    return secrets.token_hex(8)


class Place(Protocol):
    """What is used of `membership.Membership`, which says what each does."""

    @property
    def revocation(self) -> Assignment | None:
        """The assignment that the group wants back."""

    @property
    def present(self) -> Assignment | None:
        """The assignment at this moment."""

    def assignment(self, wait_ms: int, *, interrupted: Callable[[], bool]) -> Assignment | None:
        """The assignment to plan under, None if there is none in time."""

    def acknowledge(self) -> None:
        """Give up what the group wants back."""

    def commit(self, offsets: Mapping[TopicPartition, Committed], assignment: Assignment) -> bool:
        """Store offsets; False if the assignment is lost."""

    def committed(self) -> dict[TopicPartition, Committed]:
        """What the group has."""

    def leave(self, reason: str) -> None:
        """Leave without committing."""


class Planner:
    """One life of one query's reader. Not for several threads: Spark uses one."""

    def __init__(
        self,
        options: BridgeOptions,
        source: Source,
        membership: Place,
        control: ReaderControl,
        *,
        at_end: Callable[[], None] = lambda: None,
        draw_lineage: Callable[[], str] = new_lineage,
        now_ms: Callable[[], float] = lambda: time.monotonic() * 1000,
        assignment_wait_ms: int = ASSIGNMENT_WAIT_MS,
    ) -> None:
        self._options = options
        self._source = source
        self._membership = membership
        self._control = control
        self._at_end = at_end
        self._draw_lineage = draw_lineage
        self._now_ms = now_ms
        self._assignment_wait_ms = assignment_wait_ms

        self._under: Assignment | None = None
        """The assignment that `_held` was taken under; what is committed is committed under its generation."""
        self._held: dict[TopicPartition, Held] = {}
        self._counts: dict[str, int] = {}
        self._stored: dict[TopicPartition, Committed] = {}
        """What the group is known to have, so that an idle query commits nothing."""
        self._lineage = ""
        self._target: Mapping[TopicPartition, int] | None = None
        self._latest: Mapping[TopicPartition, int] = {}
        self._next_position: dict[TopicPartition, int] = {}
        self._handovers = 0
        self._planned_at_ms: float | None = None
        self._stopped = False
        self._refused = ""

    # --- Spark's calls -----------------------------------------------------------------------------------------------

    def prepare_available_now(self) -> None:
        """From now on nothing counts that the source gets later."""
        counts = self._source.partitions(self._options.topics)
        self._target = self._source.latest([(topic, p) for topic, count in counts.items() for p in range(count)])

    def latest_offset(self, start_dict: Mapping[str, Any], limit: int | None) -> Mapping[str, Any]:
        """The end of the next batch, or `start_dict` itself if there is nothing to read (yet).

        Everything up to `start_dict` is complete. `limit`: the most offsets in the batch. Errors end the query:
        QueryRefused, DataLost, NotAssigned, a member's fatal error, a commit that is refused for good.
        """
        self._warn_of_long_batch()
        start = StreamOffset.from_dict(start_dict)
        self._lineage = start.lineage or self._lineage or self._draw_lineage()
        if self._stopped:
            return start_dict
        request = self._control.request()
        if request is not None and request.action == "refuse":
            raise QueryRefused(request.reason)
        if request is not None:
            self._stop_as_asked(start)
            return start_dict
        try:
            if not self._hold(start):
                return self._nothing_yet(start_dict)
            end = self._advance(start, limit)
        except CoordinatorUnavailable as error:
            if self._target is not None:
                raise
            log.warning("group %s: no coordinator answers, so nothing is planned: %s", self._options.group_id, error)
            return start_dict
        if end is None:
            return start_dict
        self._planned_at_ms = self._now_ms()
        return end.to_dict()

    def report(self) -> dict[str, Any]:
        """What a query's progress shows under `latestOffset`: its place in the group, and how far behind it is."""
        under = self._under
        ends: dict[str, dict[str, int]] = {}
        for (topic, partition), latest in sorted(self._latest.items()):
            ends.setdefault(topic, {})[str(partition)] = latest
        return {
            "rallypoint": {
                "allow_stateful": self._options.allow_stateful,
                "generation_id": -1 if under is None else under.generation_id,
                "group_id": self._options.group_id,
                "handovers": self._handovers,
                "lag": sum(max(latest - self._next_position.get(tp, latest), 0) for tp, latest in self._latest.items()),
                "leader": under is not None and under.leader,
                "member_id": "" if under is None else under.member_id,
                "reader_id": self._control.reader_id,
                "refused": self._refused,
            },
            "end_offsets": ends,
        }

    def withdraw(self, reason: str) -> None:
        """Leave the group and plan nothing more, without an error: under asynchronous progress tracking a reader that
        fails makes Spark's own thread die and the query look alive for ever. `report` carries the reason.
        """
        if not self._stopped:
            self._refused = reason
            log.error("group %s: %s", self._options.group_id, reason)
            self._end("the query cannot be kept right")

    def close(self) -> None:
        """Leave the group. Commits nothing: whether the batch in flight is complete cannot be known here."""
        self._end("the query ended")

    # --- holding partitions ------------------------------------------------------------------------------------------

    def _hold(self, start: StreamOffset) -> bool:
        """Come to hold what the group assigns, with everything complete and everything taken committed.

        False: there is no assignment yet, or a request came in.
        """
        while True:
            assignment = self._membership.assignment(self._wait_ms(), interrupted=self._has_request)
            if assignment is None:
                return False
            if self._membership.revocation is not None:
                # Given up at once, whether or not the commit finds it still ours.
                self._store_complete(start, assignment)
                self._under = None
                self._handovers += 1
                self._membership.acknowledge()
            elif (
                self._store_complete(start, assignment) if assignment == self._under else self._take(start, assignment)
            ):
                return True
            else:
                self._under = None

    def _store_complete(self, start: StreamOffset, assignment: Assignment) -> bool:
        """Commit what is complete of an assignment, take nothing. False: it is no longer this member's."""
        if assignment == self._under:
            return self._store(start, self._held, assignment)
        committed = self._membership.committed()
        claims = plan.classify(start, self._lineage, assignment.partitions, self._held, committed)
        self._stored = committed
        return self._store(start, {tp: self._held[tp] for tp, one in claims.items() if one is Claim.KEEP}, assignment)

    def _take(self, start: StreamOffset, assignment: Assignment) -> bool:
        """Take an assignment that this process has not planned under. False: it is no longer this member's."""
        committed = self._membership.committed()
        claims = plan.classify(start, self._lineage, assignment.partitions, self._held, committed)
        counts = plan.first_counts(committed, self._source.partitions(self._options.topics))
        positions = self._positions(start, claims, committed, counts)
        held = plan.settle(claims, self._held, positions, assignment.generation_id)
        self._stored, self._counts = committed, counts
        if not self._store(start, held, assignment):
            return False
        self._under, self._held = assignment, held
        log.info(
            "group %s, generation %d: %d partitions%s",
            self._options.group_id,
            assignment.generation_id,
            len(held),
            "".join(f", {topic}-{p} at {positions[topic, p]}" for topic, p in sorted(positions)),
        )
        return True

    def _store(self, start: StreamOffset, held: Mapping[TopicPartition, Held], assignment: Assignment) -> bool:
        """Commit what the group does not know yet. False: the assignment is no longer this member's."""
        wanted = plan.commits(start, self._lineage, held, self._counts)
        news = {tp: one for tp, one in wanted.items() if self._stored.get(tp) != one}
        if not self._membership.commit(news, assignment):
            return False
        self._stored = {**self._stored, **news}
        return True

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
        starting = self._options.starting
        times = {}
        if starting.timestamp_ms is not None and begun:
            times = self._source.offsets_for_times(dict.fromkeys(begun, starting.timestamp_ms))
        positions: dict[TopicPartition, int] = {}
        for tp in fresh:
            bounds = Bounds(earliest[tp], latest[tp])
            if claims[tp] is Claim.RESUME:
                position = plan.resume_at(start, tp, self._held.get(tp))
            elif claims[tp] is Claim.TAKE:
                position = committed[tp].offset
            else:
                position = plan.begin_at(
                    tp, starting, bounds, added_later=tp[1] >= counts[tp[0]], at_timestamp=times.get(tp)
                )
            positions[tp] = plan.within(tp, position, bounds, fail_on_data_loss=self._options.source.fail_on_data_loss)
        return positions

    # --- planning ----------------------------------------------------------------------------------------------------

    def _advance(self, start: StreamOffset, limit: int | None) -> StreamOffset | None:
        firsts = {tp: plan.position_of(start, tp, one) for tp, one in self._held.items()}
        self._latest = self._source.latest(list(self._held))
        rewound = self._rewound(firsts)
        bound = self._latest
        if self._target is not None:
            # A partition that the target does not know was added since; this run does not read it.
            bound = {tp: min(latest, self._target.get(tp, 0)) for tp, latest in self._latest.items()}
        end = plan.advance(start, self._lineage, self._held, bound, limit=limit, rewound=rewound)
        self._next_position = firsts if end is None else {tp: position.end for tp, position in end.partitions.items()}
        return end

    def _rewound(self, firsts: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Partitions that end before their position: lost, or made anew and read from their beginning."""
        short = [tp for tp, first in firsts.items() if self._latest[tp] < first]
        if not short:
            return {}
        earliest = self._source.earliest(short)
        return {
            tp: plan.within(
                tp,
                firsts[tp],
                Bounds(earliest[tp], self._latest[tp]),
                fail_on_data_loss=self._options.source.fail_on_data_loss,
            )
            for tp in short
        }

    def _wait_ms(self) -> int:
        return self._assignment_wait_ms if self._target is None else self._options.assignment_timeout_ms

    def _has_request(self) -> bool:
        return self._control.request() is not None

    def _nothing_yet(self, start_dict: Mapping[str, Any]) -> Mapping[str, Any]:
        """Spark may ask again later, except in an `availableNow` run, where "nothing new" would mean "done"."""
        if self._target is None or self._has_request():
            return start_dict
        raise NotAssigned(
            f"the group {self._options.group_id} assigned nothing within {self._options.assignment_timeout_ms} ms"
            " (assignmentTimeoutMs), so this availableNow run would end without having read"
        )

    # --- ending ------------------------------------------------------------------------------------------------------

    def _stop_as_asked(self, start: StreamOffset) -> None:
        """Commit what is complete, leave, and tell the driver."""
        assignment = self._membership.present
        settled = assignment == self._under or self._membership.revocation is not None
        answer = Answer(committed=True)
        if assignment is None:
            if start.partitions:
                answer = Answer(committed=False, detail="the member has no assignment at the moment")
        elif not (self._store_complete(start, assignment) if settled else self._take(start, assignment)):
            answer = Answer(committed=False, detail="the assignment was lost")
        self._end("stop was asked for")
        self._control.answer(answer)

    def _end(self, reason: str) -> None:
        self._stopped = True
        self._at_end()
        self._membership.leave(reason)

    def _warn_of_long_batch(self) -> None:
        if self._planned_at_ms is None:
            return
        took_ms = self._now_ms() - self._planned_at_ms
        self._planned_at_ms = None
        if took_ms * 100 >= self._options.rebalance_timeout_ms * BATCH_WARNING_PERCENT:
            log.warning(
                "group %s: a batch took %d ms of the %d ms that the group waits for it (rebalanceTimeoutMs); a longer"
                " one loses its partitions, and is read again by their next owner",
                self._options.group_id,
                took_ms,
                self._options.rebalance_timeout_ms,
            )
