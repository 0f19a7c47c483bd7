"""Plans a batch each time Spark asks for new data. This module waits and calls; `plan` decides.

    latestOffset(start):  request? → own what the group assigns, with everything complete committed (`owned_partitions`)
                          → ask the source → advance

Spark makes its calls one after another on one thread. It asks for new data only once the previous batch is complete, so
everything up to `start` is. If a call fails before the offset is returned, the next one, in this process or another,
detects and repairs it: `plan` says why.
"""

import logging
import secrets
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import Any

from rallypoint.member.errors import CoordinatorUnavailable
from rallypoint.spark_bridge import plan
from rallypoint.spark_bridge.control import Answer, ReaderControl
from rallypoint.spark_bridge.errors import NotAssigned, QueryRefused, SourceError
from rallypoint.spark_bridge.offsets import StreamOffset, TopicPartition, ranges_between, with_new_nonce
from rallypoint.spark_bridge.options import CHECKPOINT_ID_BYTES, BridgeOptions
from rallypoint.spark_bridge.owned_partitions import GroupMembership, OwnedPartitions
from rallypoint.spark_bridge.plan import Bounds
from rallypoint.spark_bridge.sources.contract import Source
from rallypoint.spark_bridge.splitting import size
from rallypoint.spark_bridge.subscription import Subscription

log = logging.getLogger("rallypoint.spark")

ASSIGNMENT_WAIT_MS = 10_000
"""How long one call waits for an assignment before it answers "nothing new", so that Spark stays responsive."""

SIBLING_WAIT_MS = 1_000
"""How long one call of an `availableNow` run waits while another source of this driver reads for the same group. That
source may belong to the same query, and Spark does not ask it to give anything up before this call is over."""

COMMIT_ATTEMPTS_MAX = 8
"""How often an `availableNow` run tries to commit before it fails; each attempt takes up to the call timeout."""

BATCH_WARNING_PERCENT = 80
"""A batch that takes this part of the rebalance timeout is worth a warning."""


def new_checkpoint_id() -> str:
    """A random id for a checkpoint."""
    return secrets.token_hex(CHECKPOINT_ID_BYTES)


class Planner:
    """Plans the batches of one query, for the life of one process. Not thread-safe: Spark uses one thread.

    `at_begin`: called with the checkpoint id before the first use of `membership`.
    `at_first_batch`: called when the first batch that was planned here is complete.
    `at_end`: called before `membership` leaves the group.
    """

    def __init__(
        self,
        options: BridgeOptions,
        source: Source,
        membership: GroupMembership,
        control: ReaderControl,
        *,
        subscription: Subscription,
        at_begin: Callable[[str], None] = lambda checkpoint_id: None,
        at_first_batch: Callable[[], None] = lambda: None,
        at_end: Callable[[], None] = lambda: None,
        draw_checkpoint_id: Callable[[], str] = new_checkpoint_id,
        now_ms: Callable[[], float] = lambda: time.monotonic() * 1000,
        assignment_wait_ms: int = ASSIGNMENT_WAIT_MS,
    ) -> None:
        self._options = options
        self._source = source
        self._membership = membership
        self._control = control
        self._at_begin = at_begin
        self._at_first_batch = at_first_batch
        self._at_end = at_end
        self._draw_checkpoint_id = draw_checkpoint_id
        self._now_ms = now_ms
        self._assignment_wait_ms = assignment_wait_ms

        self._subscription = subscription
        self._owned = OwnedPartitions(
            options, source, membership, control.reader_id, subscription=subscription, now_ms=now_ms
        )
        self._target: Mapping[TopicPartition, int] | None = None
        self._latest: Mapping[TopicPartition, int] = {}
        self._next_position: dict[TopicPartition, int] = {}
        self._planned_at_ms: float | None = None
        self._last_batch_at_ms: float | None = None
        self._nothing_since_ms: float | None = None
        self._begun = self._has_completed = self._stopped = False
        self._refused = ""

    # --- Spark's calls -----------------------------------------------------------------------------------------------

    def prepare_available_now(self) -> None:
        """Fix the end of this run: records that arrive later are not read.

        Spark calls this for all sources of a query before it asks any of them for data.
        """
        self._control.enter(self._options.group_id)
        self._membership.use_blocking_calls()
        counts = self._source.partitions(self._subscription.topics)
        self._target = self._source.latest([(topic, p) for topic, count in counts.items() for p in range(count)])

    def latest_offset(
        self, start_dict: Mapping[str, Any], limit: int | None, least: int | None = None
    ) -> Mapping[str, Any]:
        """The end of the next batch, or `start_dict` itself if there is nothing to read (yet).

        `start_dict`: everything up to it is complete.
        `limit`: the most offsets in the batch.
        `least`: a batch waits for this many offsets, until the last batch is `max_trigger_delay_ms` old. An
        `availableNow` run does not wait.

        Errors end the query: QueryRefused, QueryFenced, DataLost, NotAssigned, a fatal error of the member, a commit
        that is refused for good.
        """
        self._note_complete()
        start = StreamOffset.from_dict(start_dict)
        self._owned.checkpoint_id = start.checkpoint_id or self._owned.checkpoint_id or self._draw_checkpoint_id()
        if self._refused:
            self._control.tell("stop", self._refused)
        if self._stopped:
            return start_dict
        if not self._begun:
            self._begun = True
            self._at_begin(self._owned.checkpoint_id)
        request = self._control.take()
        if request is not None and request.action == "refuse":
            raise QueryRefused(request.reason)
        if request is not None:
            self._stop_as_asked(start)
            return start_dict
        if not self._acquire(start):
            return self._nothing_yet(start_dict)
        self._nothing_since_ms = None
        end = self._advance(start, limit, least)
        if end is None:
            return start_dict
        self._planned_at_ms = self._last_batch_at_ms = self._now_ms()
        return replace(end, group=self._options.group_id).to_dict()

    def report(self) -> dict[str, Any]:
        """The `latestOffset` of a query's progress: its membership in the group, and its lag."""
        confirmed_assignment = self._owned.confirmed_assignment
        assigned: dict[str, list[int]] = {}
        for topic, partition in sorted(self._owned.partitions):
            assigned.setdefault(topic, []).append(partition)
        ends: dict[str, dict[str, int]] = {}
        for (topic, partition), latest in sorted(self._latest.items()):
            ends.setdefault(topic, {})[str(partition)] = latest
        return {
            "rallypoint": {
                "allow_stateful": self._options.allow_stateful,
                "assigned": assigned,
                "generation_id": -1 if confirmed_assignment is None else confirmed_assignment.generation_id,
                "group_id": self._options.group_id,
                "revocations": self._owned.revocations,
                "lag": sum(max(latest - self._next_position.get(tp, latest), 0) for tp, latest in self._latest.items()),
                "leader": confirmed_assignment is not None and confirmed_assignment.leader,
                "member_id": "" if confirmed_assignment is None else confirmed_assignment.member_id,
                "missing_topics": list(self._subscription.missing),
                "reader_id": self._control.reader_id,
                "protocol_name": "" if confirmed_assignment is None else confirmed_assignment.protocol_name,
                "refused": self._refused,
                "commit_error": self._owned.commit_error,
            },
            "end_offsets": ends,
        }

    def withdraw(self, reason: str) -> None:
        """Leave the group and stop planning, without raising an error.

        Under asynchronous progress tracking an error in the reader kills Spark's own thread, and the query looks active
        for ever. So from the next call on the driver is asked to stop the query.
        """
        if not self._stopped:
            self._refused = reason
            log.error("group %s: %s", self._options.group_id, reason)
            self._end("the query was refused")

    def close(self) -> None:
        """Leave the group. Commits nothing, because it is unknown whether the batch in flight is complete."""
        self._end("the query ended")

    # --- planning ----------------------------------------------------------------------------------------------------

    def _acquire(self, start: StreamOffset) -> bool:
        """Whether there is an assignment to plan under, with everything complete committed.

        An `availableNow` run must commit its last batch, so it tries several times. It handles requests in between.
        """
        attempts = COMMIT_ATTEMPTS_MAX if self._target is not None else 1
        for _ in range(attempts):
            owned = self._owned.acquire(start, self._wait_ms(), self._has_request)
            if self._target is None or not self._owned.commit_error:
                return owned
            if self._has_request():
                return False
        raise CoordinatorUnavailable(
            f"this availableNow run cannot commit what is complete: {self._owned.commit_error}"
        )

    def _advance(self, start: StreamOffset, limit: int | None, least: int | None) -> StreamOffset | None:
        owned, checkpoint_id = self._owned.partitions, self._owned.checkpoint_id
        self._latest = self._ends(owned)
        owned = {tp: one for tp, one in owned.items() if tp in self._latest}
        firsts = {tp: plan.position_of(start, tp, one) for tp, one in owned.items()}
        rewound = self._rewound(firsts)
        bound = self._latest
        if self._target is not None:
            # A partition that the target does not know was added since; this run does not read it.
            bound = {tp: min(latest, self._target.get(tp, 0)) for tp, latest in self._latest.items()}
        end = plan.advance(start, checkpoint_id, owned, bound, limit=limit, rewound=rewound)
        if end is not None and least is not None and self._waits_for_more(start, end, least):
            end = None
        self._next_position = firsts if end is None else {tp: position.end for tp, position in end.partitions.items()}
        return end

    def _ends(self, owned: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """The ends of the partitions that the source still has. Raises DataLost, SourceError."""
        try:
            return self._source.latest(owned)
        except SourceError:
            counts = self._source.partitions(sorted({topic for topic, _ in owned}))
            gone = self._owned.find_gone(owned, counts)
            if not gone:
                raise
            return self._source.latest([tp for tp in owned if tp not in gone])

    def _waits_for_more(self, start: StreamOffset, end: StreamOffset, least: int) -> bool:
        """Whether a batch waits for more offsets. The first call of a process counts as a previous batch."""
        if self._target is not None or size(ranges_between(start, end)) >= least:
            return False
        now = self._now_ms()
        if self._last_batch_at_ms is None:
            self._last_batch_at_ms = now
        return now - self._last_batch_at_ms < self._options.max_trigger_delay_ms

    def _rewound(self, firsts: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Partitions that end before their position: records are lost, or the topic was recreated and is read again."""
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
        if self._target is None:
            return self._assignment_wait_ms
        return SIBLING_WAIT_MS if self._has_siblings() else self._options.assignment_timeout_ms

    def _has_siblings(self) -> bool:
        return self._control.has_siblings(self._options.group_id)

    def _has_request(self) -> bool:
        return self._control.request() is not None

    def _nothing_yet(self, start_dict: Mapping[str, Any]) -> Mapping[str, Any]:
        """Spark asks again later, except in an `availableNow` run, which would end: "nothing new" means "done" there.

        If another source of the same query may have to give something up first, this returns a batch without records.
        Then Spark asks the other source, and this one again.
        """
        if self._target is None or self._has_request():
            return start_dict
        now = self._now_ms()
        if self._nothing_since_ms is None:
            self._nothing_since_ms = now
        if self._has_siblings() and now - self._nothing_since_ms < self._options.assignment_timeout_ms:
            return with_new_nonce(start_dict, self._owned.checkpoint_id)
        raise NotAssigned(
            f"the group {self._options.group_id} assigned nothing within {self._options.assignment_timeout_ms} ms"
            " (assignmentTimeoutMs), so this availableNow run would end without having read"
        )

    # --- ending ------------------------------------------------------------------------------------------------------

    def _stop_as_asked(self, start: StreamOffset) -> None:
        """Commit what is complete, leave, and tell the driver."""
        problem = self._owned.finish(start)
        self._end("stop was asked for")
        self._control.answer(Answer(committed=not problem, detail=problem))

    def _end(self, reason: str) -> None:
        self._stopped = True
        self._control.leave()
        self._at_end()
        self._membership.leave(reason)

    def _note_complete(self) -> None:
        """Note that a batch that was planned here is complete, and warn if it took long."""
        if self._planned_at_ms is None:
            return
        if not self._has_completed:
            self._has_completed = True
            self._at_first_batch()
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
