"""What happens in the planning process each time Spark asks for new data. It waits and calls; `plan` decides.

    latestOffset(start):  request? → hold what the group assigns, with everything complete committed (`holding`)
                          → ask the source → advance

Spark calls one after the other on one thread, and asks for new data only once the batch before is complete: that is
what `start` means here. Whatever goes wrong before the offset is returned changes nothing that the next call, in this
process or in another, would not find and put right: `plan` says why.
"""

import logging
import secrets
import time
from collections.abc import Callable, Collection, Mapping
from typing import Any

from member.errors import CoordinatorUnavailable
from spark_bridge import plan
from spark_bridge.control import Answer, ReaderControl
from spark_bridge.errors import NotAssigned, QueryRefused, SourceError
from spark_bridge.holding import Holding, Place
from spark_bridge.offsets import StreamOffset, TopicPartition, ranges_between
from spark_bridge.options import BridgeOptions
from spark_bridge.plan import Bounds
from spark_bridge.sources.contract import Source
from spark_bridge.splitting import size
from spark_bridge.subscription import Subscription

log = logging.getLogger("rallypoint.spark")

ASSIGNMENT_WAIT_MS = 10_000
"""How long one call waits for an assignment before it answers "nothing new", so that Spark stays responsive."""

COMMIT_ATTEMPTS_MAX = 8
"""How often an `availableNow` run tries in vain to commit, before it fails; each takes as long as a call may take."""

BATCH_WARNING_PERCENT = 80
"""A batch that takes this part of the rebalance timeout is worth a warning."""


def new_lineage() -> str:
    """A random name for the history that a checkpoint holds."""
    return secrets.token_hex(8)


class Planner:
    """One life of one query's reader. Not for several threads: Spark uses one.

    `at_begin` is called with the checkpoint's lineage before anything is asked of `membership`, `at_end` before it
    leaves.
    """

    def __init__(
        self,
        options: BridgeOptions,
        source: Source,
        membership: Place,
        control: ReaderControl,
        *,
        subscription: Subscription,
        at_begin: Callable[[str], None] = lambda lineage: None,
        at_end: Callable[[], None] = lambda: None,
        draw_lineage: Callable[[], str] = new_lineage,
        now_ms: Callable[[], float] = lambda: time.monotonic() * 1000,
        assignment_wait_ms: int = ASSIGNMENT_WAIT_MS,
    ) -> None:
        self._options = options
        self._source = source
        self._membership = membership
        self._control = control
        self._at_begin = at_begin
        self._at_end = at_end
        self._draw_lineage = draw_lineage
        self._now_ms = now_ms
        self._assignment_wait_ms = assignment_wait_ms

        self._subscription = subscription
        self._holding = Holding(
            options, source, membership, control.reader_id, subscription=subscription, now_ms=now_ms
        )
        self._target: Mapping[TopicPartition, int] | None = None
        self._latest: Mapping[TopicPartition, int] = {}
        self._next_position: dict[TopicPartition, int] = {}
        self._planned_at_ms: float | None = None
        self._last_batch_at_ms: float | None = None
        self._begun = self._stopped = False
        self._refused = ""

    # --- Spark's calls -----------------------------------------------------------------------------------------------

    def prepare_available_now(self) -> None:
        """From now on nothing counts that the source gets later."""
        counts = self._source.partitions(self._subscription.topics)
        self._target = self._source.latest([(topic, p) for topic, count in counts.items() for p in range(count)])

    def latest_offset(
        self, start_dict: Mapping[str, Any], limit: int | None, least: int | None = None
    ) -> Mapping[str, Any]:
        """The end of the next batch, or `start_dict` itself if there is nothing to read (yet).

        Everything up to `start_dict` is complete. `limit`: the most offsets in the batch. `least`: fewer are not worth
        one, until the last is `max_trigger_delay_ms` ago; an `availableNow` run does not wait. Errors end the query:
        QueryRefused, QueryFenced, DataLost, NotAssigned, a member's fatal error, a commit that is refused for good.
        """
        self._warn_of_long_batch()
        start = StreamOffset.from_dict(start_dict)
        self._holding.lineage = start.lineage or self._holding.lineage or self._draw_lineage()
        if self._stopped:
            return start_dict
        if not self._begun:
            self._begun = True
            self._at_begin(self._holding.lineage)
        request = self._control.request()
        if request is not None and request.action == "refuse":
            raise QueryRefused(request.reason)
        if request is not None:
            self._stop_as_asked(start)
            return start_dict
        if not self._hold(start):
            return self._nothing_yet(start_dict)
        end = self._advance(start, limit, least)
        if end is None:
            return start_dict
        self._planned_at_ms = self._last_batch_at_ms = self._now_ms()
        return end.to_dict()

    def report(self) -> dict[str, Any]:
        """What a query's progress shows under `latestOffset`: its place in the group, and how far behind it is."""
        under = self._holding.under
        assigned: dict[str, list[int]] = {}
        for topic, partition in sorted(self._holding.partitions):
            assigned.setdefault(topic, []).append(partition)
        ends: dict[str, dict[str, int]] = {}
        for (topic, partition), latest in sorted(self._latest.items()):
            ends.setdefault(topic, {})[str(partition)] = latest
        return {
            "rallypoint": {
                "allow_stateful": self._options.allow_stateful,
                "assigned": assigned,
                "generation_id": -1 if under is None else under.generation_id,
                "group_id": self._options.group_id,
                "handovers": self._holding.handovers,
                "lag": sum(max(latest - self._next_position.get(tp, latest), 0) for tp, latest in self._latest.items()),
                "leader": under is not None and under.leader,
                "member_id": "" if under is None else under.member_id,
                "reader_id": self._control.reader_id,
                "protocol_name": "" if under is None else under.protocol_name,
                "refused": self._refused,
                "trouble": self._holding.trouble,
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

    # --- planning ----------------------------------------------------------------------------------------------------

    def _hold(self, start: StreamOffset) -> bool:
        """Whether there is something to plan under, with everything complete committed.

        A run that ends by itself must have committed its last batch, so it does not go on without.
        """
        attempts = COMMIT_ATTEMPTS_MAX if self._target is not None else 1
        for _ in range(attempts):
            held = self._holding.hold(start, self._wait_ms(), self._has_request)
            if self._target is None or not self._holding.trouble:
                return held
        raise CoordinatorUnavailable(f"this availableNow run cannot commit what is complete: {self._holding.trouble}")

    def _advance(self, start: StreamOffset, limit: int | None, least: int | None) -> StreamOffset | None:
        held, lineage = self._holding.partitions, self._holding.lineage
        self._latest = self._ends(held)
        held = {tp: one for tp, one in held.items() if tp in self._latest}
        firsts = {tp: plan.position_of(start, tp, one) for tp, one in held.items()}
        rewound = self._rewound(firsts)
        bound = self._latest
        if self._target is not None:
            # A partition that the target does not know was added since; this run does not read it.
            bound = {tp: min(latest, self._target.get(tp, 0)) for tp, latest in self._latest.items()}
        end = plan.advance(start, lineage, held, bound, limit=limit, rewound=rewound)
        if end is not None and least is not None and self._waits_for_more(start, end, least):
            end = None
        self._next_position = firsts if end is None else {tp: position.end for tp, position in end.partitions.items()}
        return end

    def _ends(self, held: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Where the partitions end that the source still has. DataLost, SourceError."""
        try:
            return self._source.latest(held)
        except SourceError:
            counts = self._source.partitions(sorted({topic for topic, _ in held}))
            gone = self._holding.find_gone(held, counts)
            if not gone:
                raise
            return self._source.latest([tp for tp in held if tp not in gone])

    def _waits_for_more(self, start: StreamOffset, end: StreamOffset, least: int) -> bool:
        """Whether a batch is put off for want of offsets. The first look of a process counts as a batch before."""
        if self._target is not None or size(ranges_between(start, end)) >= least:
            return False
        now = self._now_ms()
        if self._last_batch_at_ms is None:
            self._last_batch_at_ms = now
        return now - self._last_batch_at_ms < self._options.max_trigger_delay_ms

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
        problem = self._holding.finish(start)
        self._end("stop was asked for")
        self._control.answer(Answer(committed=not problem, detail=problem))

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
