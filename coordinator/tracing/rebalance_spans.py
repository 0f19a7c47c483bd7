"""One span for each rebalance: from what began it to the last sync of its generation.

It is linked to the span of each join and sync that took part, if their clients have named one. It has no parent: many
clients cause a rebalance together, and none of them contains it.

Made of the events that the runtime publishes, and of the joins and syncs that it tells of. Nothing of a group is held
here but the span of the rebalance that is under way.
"""

from collections import deque
from collections.abc import Callable

from opentelemetry.context import Context
from opentelemetry.trace import Link, Span, SpanKind, Tracer

from rallypoint.coordinator.core.effects import (
    Event,
    Failure,
    GroupAnswer,
    GroupRemoved,
    GroupUnloaded,
    JoinPhaseEnded,
    RebalanceBegan,
    SyncPhaseEnded,
)
from rallypoint.coordinator.runtime.origin import ORIGIN
from rallypoint.coordinator.storage.contract import AppendMetrics
from rallypoint.coordinator.tracing.links import span_context_of
from rallypoint.protocol import messages as m

REBALANCE = "rebalance"
GROUP_ID = "rallypoint.group_id"
GENERATION_ID = "rallypoint.generation_id"
REBALANCE_ID = "rallypoint.rebalance_id"
TRIGGER = "rallypoint.trigger"
REASON = "rallypoint.reason"
MEMBER_ID = "rallypoint.member_id"
MEMBER_COUNT = "rallypoint.member_count"
LEADER = "rallypoint.leader"
PARTITIONS_MOVED = "rallypoint.partitions_moved"
OUTCOME = "rallypoint.outcome"
JOIN_PHASE_ENDED = "join_phase_ended"
SYNC_PHASE_ENDED = "sync_phase_ended"

EARLY_MAX = 16
"""Joins of a group that may be the beginning of a rebalance, and wait to be told."""
EARLY_GROUPS_MAX = 1_000
SYNCS_WAIT_NS = 60_000_000_000
"""How long the span of an assigned generation is kept for the syncs that are still to come."""


class Round:
    """The rebalance of a group that is under way."""

    def __init__(self, span: Span) -> None:
        self.span = span
        self.generation_id: int | None = None
        self.member_count = 0
        self.synced: set[str] = set()
        self.last_sync_ns: int | None = None
        self.assigned_ns: int | None = None
        self.leader: str | None = None

    def led_by(self, answer: m.JoinAnswer) -> None:
        """A join is answered, each of the generation's with the same leader."""
        if self.generation_id in (None, answer.generation_id) and answer.leader != self.leader:
            self.leader = answer.leader
            self.span.set_attribute(LEADER, answer.leader)

    def link(self, traceparent: str) -> None:
        """Someone takes part. The SDK keeps as many links as OTEL_SPAN_LINK_COUNT_LIMIT allows."""
        context = span_context_of(traceparent)
        if context is not None:
            self.span.add_link(context)

    @property
    def is_over(self) -> bool:
        """Whether each member of the generation has its assignment."""
        return self.assigned_ns is not None and len(self.synced) >= self.member_count

    def end(self, outcome: str, now_ns: int) -> None:
        """Once. A rebalance that came to its assignment ended with the last sync, whenever that is noticed."""
        if self.assigned_ns is not None:
            outcome, now_ns = "assigned", max(self.assigned_ns, self.last_sync_ns or 0)
        self.span.set_attribute(OUTCOME, outcome)
        self.span.end(now_ns)


class RebalanceSpans:
    """Makes the spans. An observer of the runtime, and of its joins and syncs."""

    def __init__(self, tracer: Tracer, now_ns: Callable[[], int]) -> None:
        """`now_ns`: the wall clock, which spans go by."""
        self._tracer = tracer
        self._now_ns = now_ns
        self._rounds: dict[str, Round] = {}
        self._assigned: dict[str, None] = {}
        self._early: dict[str, deque[tuple[m.JoinRequest, str]]] = {}

    # --- an observer -------------------------------------------------------------------------------------------------

    def event(self, event: Event) -> None:
        """Something happened to a group."""
        if isinstance(event, RebalanceBegan):
            self._begin(event)
        elif isinstance(event, JoinPhaseEnded):
            self._join_phase_ended(event)
        elif isinstance(event, SyncPhaseEnded):
            self._sync_phase_ended(event)
        elif isinstance(event, GroupRemoved | GroupUnloaded):
            self._end(event.group_id, "removed" if isinstance(event, GroupRemoved) else "unloaded")
            self._early.pop(event.group_id, None)

    def appended(self, append_metrics: AppendMetrics) -> None:
        """No span is of that."""

    def _begin(self, event: RebalanceBegan) -> None:
        self._end(event.group_id, "superseded")
        self._end_what_is_late()
        early = self._early.pop(event.group_id, ())
        contexts = (span_context_of(traceparent) for _, traceparent in early)
        attributes: dict[str, str | int] = {
            GROUP_ID: event.group_id,
            REBALANCE_ID: event.rebalance_id,
            TRIGGER: event.trigger.value,
            REASON: event.reason,
        }
        if event.member_id is not None:
            attributes[MEMBER_ID] = event.member_id
        span = self._tracer.start_span(
            REBALANCE,
            context=Context(),
            kind=SpanKind.INTERNAL,
            attributes=attributes,
            links=[Link(context) for context in contexts if context is not None],
            start_time=self._now_ns(),
        )
        self._rounds[event.group_id] = Round(span)

    def _join_phase_ended(self, event: JoinPhaseEnded) -> None:
        known = self._rounds.get(event.group_id)
        if known is None:
            return  # it began before the service did
        known.generation_id, known.member_count = event.generation_id, event.member_count
        known.span.set_attribute(GENERATION_ID, event.generation_id)
        known.span.set_attribute(MEMBER_COUNT, event.member_count)
        known.span.add_event(JOIN_PHASE_ENDED, {"duration_ms": event.duration_ms}, self._now_ns())
        if event.member_count == 0:
            self._end(event.group_id, "empty")

    def _sync_phase_ended(self, event: SyncPhaseEnded) -> None:
        known = self._rounds.get(event.group_id)
        if known is None:
            return
        known.assigned_ns = self._now_ns()
        if event.partitions_moved is not None:
            known.span.set_attribute(PARTITIONS_MOVED, event.partitions_moved)
        known.span.add_event(SYNC_PHASE_ENDED, {"duration_ms": event.duration_ms}, known.assigned_ns)
        self._assigned[event.group_id] = None
        self._end_what_is_over(event.group_id, known)

    # --- joins and syncs ---------------------------------------------------------------------------------------------

    def called(self, group_id: str, request: m.JoinRequest | m.SyncRequest) -> None:
        """A member joins or syncs: the one who may have begun the rebalance, too, which is told after its call."""
        origin = ORIGIN.get()
        if origin is None or origin.traceparent is None:
            return
        known = self._rounds.get(group_id)
        if isinstance(request, m.SyncRequest):
            if known is not None and request.generation_id == known.generation_id:
                known.link(origin.traceparent)
        elif known is not None and known.generation_id is None:
            known.link(origin.traceparent)
        else:
            # It may begin the next rebalance, while this one is still without its assignment, too.
            if group_id not in self._early and len(self._early) >= EARLY_GROUPS_MAX:
                del self._early[next(iter(self._early))]
            self._early.setdefault(group_id, deque(maxlen=EARLY_MAX)).append((request, origin.traceparent))

    def answered(self, group_id: str, request: m.JoinRequest | m.SyncRequest, answer: GroupAnswer | Failure) -> None:
        """The same call has its answer, which leaves before what it ends is told."""
        known = self._rounds.get(group_id)
        if isinstance(request, m.SyncRequest):
            if known is not None and isinstance(answer, m.SyncAnswer):
                self._synced(group_id, known, request)
            return
        if known is not None and isinstance(answer, m.JoinAnswer):
            known.led_by(answer)
        if known is None or known.generation_id is not None:
            self._forget_early(group_id, request)

    def _forget_early(self, group_id: str, request: m.JoinRequest) -> None:
        """It has begun nothing. Other joins of the group may still be on their way to a rebalance."""
        early = self._early.pop(group_id, None)
        rest = [one for one in early or () if one[0] is not request]
        if rest:
            self._early[group_id] = deque(rest, maxlen=EARLY_MAX)

    def _synced(self, group_id: str, known: Round, request: m.SyncRequest) -> None:
        if request.generation_id == known.generation_id:
            known.synced.add(request.member_id)
            known.last_sync_ns = self._now_ns()
            self._end_what_is_over(group_id, known)

    # --- the end -----------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """The service stops: what is under way ends here."""
        for group_id in list(self._rounds):
            self._end(group_id, "unfinished")

    def _end_what_is_over(self, group_id: str, known: Round) -> None:
        if known.is_over:
            self._end(group_id, "assigned")

    def _end_what_is_late(self) -> None:
        """Members that have died after their join never sync, and may be missed only much later."""
        while self._assigned:
            group_id = next(iter(self._assigned))
            assigned_ns = self._rounds[group_id].assigned_ns
            if assigned_ns is not None and self._now_ns() - assigned_ns < SYNCS_WAIT_NS:
                return
            self._end(group_id, "assigned")

    def _end(self, group_id: str, outcome: str) -> None:
        self._assigned.pop(group_id, None)
        known = self._rounds.pop(group_id, None)
        if known is not None:
            known.end(outcome, self._now_ns())
