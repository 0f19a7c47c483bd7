"""What is counted, and how Prometheus sees it. Nothing is decided by a figure of this room.

`Metrics` stands on two sides: the runtime tells it events (its `Observer`), the door tells it requests and asks for the
page. Counters and histograms are fed as things happen; what belongs to a group is read at the scrape from the
service's view, so that a group that is gone leaves no series behind.
"""

import platform
from collections import Counter as Tally
from collections.abc import Iterable, Iterator, Mapping
from heapq import nsmallest
from typing import Protocol

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    GCCollector,
    Histogram,
    ProcessCollector,
    disable_created_metrics,
)
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.exposition import choose_encoder

from coordinator.core.commands import Trigger
from coordinator.core.effects import (
    Event,
    GroupSummary,
    JoinPhaseEnded,
    OffsetsCommitted,
    OffsetsRemoved,
    RebalanceBegan,
    RebalanceHeld,
    Removal,
    SessionExpired,
    SyncPhaseEnded,
)
from coordinator.storage.contract import AppendFigures

GROUP_STATES = ("Empty", "PreparingRebalance", "CompletingRebalance", "Stable", "Dead")

REQUEST_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
"""Seconds. A held call counts with its waiting, so they reach to the longest one."""
PHASE_BUCKETS = (0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)
"""Seconds: from a rebalance nobody notices to Kafka's default rebalance timeout."""
APPEND_BUCKETS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 5)
SIZE_BUCKETS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 4096)


class GroupView(Protocol):
    """What a scrape reads of the groups; `coordinator.runtime` has the real one."""

    @property
    def summaries(self) -> Mapping[str, GroupSummary]:
        """Every group that exists, by its id."""

    def lag(self, group_id: str) -> int | None:
        """End offsets minus committed offsets, summed; None where no end offset is known."""


class Watched(Protocol):
    """The service, as a scrape sees it."""

    @property
    def phase(self) -> str:
        """ "ready" when groups are served."""

    @property
    def view(self) -> GroupView:
        """Its groups, as far as they may be seen."""


class Metrics:
    """All figures of one service, in a registry of its own. Not for use from several threads."""

    def __init__(self, version: str, groups_max: int) -> None:
        """`groups_max`: how many groups get series of their own."""
        # The library would add a second series to each counter, which nobody asks for. It has one switch for all.
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self._registry = registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        GCCollector(registry=registry)
        build = Gauge(
            "rallypoint_build_info", "Always 1; the labels say what runs.", ("version", "python"), registry=registry
        )
        build.labels(version, platform.python_version()).set(1)
        self._requests = Counter(
            "rallypoint_requests",
            "Requests answered, by operation and outcome: NONE, WAITING (202) or the name of the error.",
            ("operation", "outcome"),
            registry=registry,
        )
        self._request_seconds = Histogram(
            "rallypoint_request_seconds",
            "Time from a request's head to its answer, waiting included.",
            ("operation",),
            buckets=REQUEST_BUCKETS,
            registry=registry,
        )
        # Children are kept here: looking one up by its labels costs more than counting.
        self._request_children: dict[tuple[str, str], tuple[Counter, Histogram]] = {}
        self._parked = Gauge("rallypoint_parked_calls", "Calls whose answer is held back now.", registry=registry)
        self._streams = Gauge("rallypoint_event_streams", "Event streams that are open now.", registry=registry)
        self._sessions = Gauge("rallypoint_sessions", "Sessions that are open now.", registry=registry)
        self._session_calls = Counter(
            "rallypoint_session_calls",
            "Calls answered on sessions, by operation and outcome, as of requests.",
            ("operation", "outcome"),
            registry=registry,
        )
        # What comes by the thousand is counted here, and handed on when somebody looks: the library takes a lock.
        self._session_calls_tally: Tally[tuple[str, str]] = Tally()
        self._commits_tally = self._committed_partitions_tally = 0
        self._session_pushes = Counter(
            "rallypoint_session_pushes", "What sessions were told unasked, by event.", ("event",), registry=registry
        )
        self._sessions_closed = Counter(
            "rallypoint_sessions_closed", "Sessions that have ended, by why.", ("reason",), registry=registry
        )
        self._events_lost = Counter(
            "rallypoint_events_lost",
            "Events that streams did not get because they were read too slowly.",
            registry=registry,
        )
        rebalances = Counter(
            "rallypoint_rebalances", "Rebalances begun, by what triggered them.", ("trigger",), registry=registry
        )
        self._rebalances = {trigger: rebalances.labels(trigger.value) for trigger in Trigger}
        held = Counter(
            "rallypoint_rebalances_held",
            "Causes of a rebalance that were held back by a freeze or a cool-down, by trigger.",
            ("trigger",),
            registry=registry,
        )
        # An operator's word is never held.
        self._held: dict[Trigger, Counter] = {
            trigger: held.labels(trigger.value) for trigger in Trigger if trigger is not Trigger.OPERATOR
        }
        self._moved = Counter(
            "rallypoint_partitions_moved",
            "Partitions that rebalances took from their owners, where assignments can be read.",
            registry=registry,
        )
        self._join_phase = Histogram(
            "rallypoint_join_phase_seconds",
            "Length of join phases that completed.",
            buckets=PHASE_BUCKETS,
            registry=registry,
        )
        self._sync_phase = Histogram(
            "rallypoint_sync_phase_seconds",
            "Length of sync phases that ended with a stored assignment.",
            buckets=PHASE_BUCKETS,
            registry=registry,
        )
        expired = Counter(
            "rallypoint_sessions_expired",
            "Sessions that ran out: of members, of ids handed out and never used (pending), and of members whose "
            "connection was lost and who did not come back (disconnected).",
            ("kind",),
            registry=registry,
        )
        self._expired = {kind: expired.labels(kind) for kind in ("member", "pending", "disconnected")}
        self._offsets_expired = Counter(
            "rallypoint_offsets_expired",
            "Committed offsets that were forgotten because nobody used them for so long.",
            registry=registry,
        )
        self._commits = Counter(
            "rallypoint_commits", "Commits of which at least one partition was stored.", registry=registry
        )
        self._committed_partitions = Counter(
            "rallypoint_committed_partitions", "Partitions whose offset was stored.", registry=registry
        )
        self._append_seconds = Histogram(
            "rallypoint_append_seconds", "Time of durable writes.", buckets=APPEND_BUCKETS, registry=registry
        )
        self._append_batches = Histogram(
            "rallypoint_append_batches",
            "Batches joined in one durable write.",
            buckets=SIZE_BUCKETS,
            registry=registry,
        )
        self._append_writes = Histogram(
            "rallypoint_append_writes", "Keys in one durable write.", buckets=SIZE_BUCKETS, registry=registry
        )
        self._groups_max = groups_max

    def watch(self, service: Watched) -> None:
        """Show this service's groups from now on. To be called once: the service is made after its observer."""
        self._registry.register(GroupCollector(service, self._groups_max))

    # --- told by the runtime

    def event(self, event: Event) -> None:
        """Something happened to a group, and is durable."""
        if isinstance(event, OffsetsCommitted):
            self._commits_tally += 1
            self._committed_partitions_tally += len(event.offsets)
        elif isinstance(event, RebalanceBegan):
            self._rebalances[event.trigger].inc()
        elif isinstance(event, RebalanceHeld):
            self._held[event.trigger].inc()
        elif isinstance(event, JoinPhaseEnded):
            self._join_phase.observe(event.duration_ms / 1000)
        elif isinstance(event, SyncPhaseEnded):
            self._sync_phase.observe(event.duration_ms / 1000)
            self._moved.inc(event.partitions_moved or 0)
        elif isinstance(event, SessionExpired):
            kind = "pending" if event.pending else "disconnected" if event.disconnected else "member"
            self._expired[kind].inc()
        elif isinstance(event, OffsetsRemoved) and event.cause is Removal.EXPIRED:
            self._offsets_expired.inc(len(event.partitions))

    def appended(self, figures: AppendFigures) -> None:
        """The store wrote something durably."""
        self._append_seconds.observe(figures.seconds)
        self._append_batches.observe(figures.batches)
        self._append_writes.observe(figures.writes)

    def parked(self, delta: int) -> None:
        """So many more calls are held back, or fewer."""
        self._parked.inc(delta)

    # --- told and asked by the door

    def request_answered(self, operation: str, outcome: str, seconds: float) -> None:
        """One request was answered."""
        children = self._request_children.get((operation, outcome))
        if children is None:
            children = self._requests.labels(operation, outcome), self._request_seconds.labels(operation)
            self._request_children[operation, outcome] = children
        children[0].inc()
        children[1].observe(seconds)

    def streams_open(self, delta: int) -> None:
        """So many more event streams are open, or fewer."""
        self._streams.inc(delta)

    def events_lost(self, count: int) -> None:
        """A stream was so slow that it lost so many events."""
        self._events_lost.inc(count)

    def sessions_open(self, delta: int) -> None:
        """So many more sessions are open, or fewer."""
        self._sessions.inc(delta)

    def session_call(self, operation: str, outcome: str) -> None:
        """A call on a session was answered."""
        self._session_calls_tally[operation, outcome] += 1

    def session_pushed(self, event: str) -> None:
        """Something was pushed on a session."""
        self._session_pushes.labels(event).inc()

    def session_closed(self, reason: str) -> None:
        """A session has ended."""
        self._sessions_closed.labels(reason).inc()

    def expose(self, accept: str) -> tuple[bytes, str]:
        """The page and its content type: OpenMetrics where `accept` asks for it, else Prometheus' text format."""
        for (operation, outcome), count in self._session_calls_tally.items():
            self._session_calls.labels(operation, outcome).inc(count)
        self._session_calls_tally.clear()
        self._commits.inc(self._commits_tally)
        self._committed_partitions.inc(self._committed_partitions_tally)
        self._commits_tally = self._committed_partitions_tally = 0
        encode, content_type = choose_encoder(accept)
        return encode(self._registry), content_type


class GroupCollector:
    """Series of the groups, made at each scrape.

    Cost: O(groups) for the count by state; lag is computed for the groups shown alone.
    """

    def __init__(self, service: Watched, groups_max: int) -> None:
        self._service = service
        self._groups_max = groups_max

    def describe(self) -> Iterable[Metric]:
        """Called at registration, in place of `collect`."""
        return ()

    def collect(self) -> Iterator[Metric]:
        """All series that are read rather than counted."""
        yield GaugeMetricFamily(
            "rallypoint_ready", "1 while groups are served, else 0.", value=float(self._service.phase == "ready")
        )
        view = self._service.view
        yield self._states(view)
        shown = nsmallest(self._groups_max, view.summaries)
        yield GaugeMetricFamily(
            "rallypoint_groups_without_series",
            "Groups beyond the setting metrics_groups_max, which have no series of their own.",
            value=len(view.summaries) - len(shown),
        )
        yield from self._series(view, shown)

    def _states(self, view: GroupView) -> Metric:
        states = GaugeMetricFamily("rallypoint_groups", "Groups by state.", labels=("state",))
        tally = Tally(summary.state for summary in view.summaries.values())
        for state in GROUP_STATES:
            states.add_metric((state,), tally[state])
        return states

    def _series(self, view: GroupView, shown: Iterable[str]) -> Iterator[Metric]:
        labels = ("group_id",)
        members = GaugeMetricFamily("rallypoint_group_members", "Members of the group.", labels=labels)
        generation = GaugeMetricFamily(
            "rallypoint_group_generation", "Generation of the group; it grows with each rebalance.", labels=labels
        )
        lag = GaugeMetricFamily(
            "rallypoint_group_lag",
            "End offsets minus committed offsets of the group, summed over the partitions of registered topics.",
            labels=labels,
        )
        frozen = GaugeMetricFamily("rallypoint_group_frozen", "1 while the group is frozen, else 0.", labels=labels)
        held = GaugeMetricFamily(
            "rallypoint_group_held",
            "Causes of a rebalance of the group that a freeze or a cool-down holds back now.",
            labels=labels,
        )
        for group_id in shown:
            summary = view.summaries[group_id]
            frozen.add_metric((group_id,), float(summary.frozen_until_ms is not None))
            held.add_metric((group_id,), summary.held_count)
            members.add_metric((group_id,), summary.member_count)
            generation.add_metric((group_id,), summary.generation_id)
            behind = view.lag(group_id)
            if behind is not None:
                lag.add_metric((group_id,), behind)
        yield from (members, generation, lag, frozen, held)
