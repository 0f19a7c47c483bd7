"""The metrics, as Prometheus sees them. No metric decides anything.

`Metrics` has two callers: the runtime reports events (it is an `Observer`), and the HTTP server reports requests and
renders the page. Counters and histograms are updated as things happen. The series of a group are read from the
service's view at each scrape, so a group that is gone leaves no series behind.
"""

import asyncio
import math
import platform
import re
from collections import Counter as Tally
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from heapq import nsmallest
from typing import NamedTuple, Protocol

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    GCCollector,
    Histogram,
    ProcessCollector,
    disable_created_metrics,
)
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from rallypoint.coordinator.core.commands import Trigger
from rallypoint.coordinator.core.effects import (
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
from rallypoint.coordinator.runtime.condition import Condition, why_not_ready
from rallypoint.coordinator.runtime.group_table import GroupMetrics
from rallypoint.coordinator.storage.contract import AppendMetrics
from rallypoint.coordinator.storage.shared_contract import LeaseStatus

GROUP_STATES = ("Empty", "PreparingRebalance", "CompletingRebalance", "Stable", "Dead")

REQUEST_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
"""Seconds. A held call counts with its waiting, so they reach to the longest one."""
PHASE_BUCKETS = (0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)
"""Seconds: from a rebalance nobody notices to Kafka's default rebalance timeout."""
APPEND_BUCKETS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 5)
CUT_REASONS = ("head_timeout", "made_place", "open_files", "tls_handshake")
"""Why a connection is cut."""
ACCESS_FILES = ("policy", "tokens")
"""What is read again when it changes."""
STATUSES = ("OK", "WARN", "ERR")
TOPICS_OF_A_GROUP_MAX = 50
"""Topics of a group that have series of their own."""
STALL_BUCKETS = (0.5, 1, 2.5, 5, 10, 30, 60, 300)
LAGS_AT_ONCE_MAX = 20_000
"""Committed offsets of which the lag is summed before others have their turn, if they are of several groups."""
SIZE_BUCKETS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 4096)


class GroupView(Protocol):
    """What a scrape reads of the groups; `coordinator.runtime` has the real one."""

    @property
    def summaries(self) -> Mapping[str, GroupSummary]:
        """Every group that exists, by its id."""

    def committed_count(self, group_id: str) -> int:
        """How many committed offsets the group's lag is summed over."""

    def lag(self, group_id: str) -> int | None:
        """End offsets minus committed offsets, summed; None where no end offset is known."""


class Watched(Protocol):
    """The service, as a scrape sees it."""

    def condition(self) -> Condition:
        """What the node can do now."""

    @property
    def view(self) -> GroupView:
        """Its groups, as far as they may be seen."""

    @property
    def parked_calls(self) -> int:
        """Calls whose answers are held back."""

    async def group_metrics(self, group_ids: Iterable[str]) -> Mapping[str, GroupMetrics]:
        """What is known of these groups besides, worked out in turns of the loop."""


class OwnershipCounts(Protocol):
    """How often the node did what; `coordinator.runtime.cluster` has the real ones."""

    @property
    def taken(self) -> int:
        """Keyspaces acquired."""

    @property
    def handed_over(self) -> int:
        """Hand-overs to other nodes."""

    @property
    def not_handed_over(self) -> int:
        """Hand-overs that failed."""

    @property
    def lost(self) -> int:
        """Keyspaces that were lost."""


class Node(Protocol):
    """This node among others, as a scrape sees it; `coordinator.runtime.cluster` has the real one."""

    @property
    def counts(self) -> OwnershipCounts:
        """What it did, since it started."""

    @property
    def lease(self) -> LeaseStatus:
        """How its lease stands."""

    @property
    def live_count(self) -> int:
        """How many nodes run, as this one sees it."""

    def owned_shards(self) -> int:
        """How many shards it has, loads or tries to load."""


class Certificates(Protocol):
    """The TLS files, as a scrape sees them; `coordinator.http.tls.certificates` has the real ones."""

    @property
    def not_after_s(self) -> int:
        """When the certificate expires, in seconds since 1970."""

    @property
    def is_outdated(self) -> bool:
        """The files have changed and cannot be used."""

    @property
    def reload_count(self) -> int:
        """Changes that were used."""

    @property
    def failure_count(self) -> int:
        """Changes that could not be used."""


class Connections(Protocol):
    """The connections of the API, as a scrape sees them; `coordinator.http.limits.admission` has the real ones."""

    @property
    def authenticated_max(self) -> int:
        """Most of those that have authenticated."""

    @property
    def unauthenticated_max(self) -> int:
        """Most of those that have not."""

    @property
    def authenticated_count(self) -> int:
        """Those that have authenticated."""

    @property
    def unauthenticated_count(self) -> int:
        """Those that have not."""


class IssuerStatus(Protocol):
    """How it stands with one issuer. age_ms: of its keys; None: there are none."""

    age_ms: int | None
    fetched: int
    failed: int


class Metrics:
    """All append_metrics of one service, in a registry of its own. Not for use from several threads."""

    def __init__(self, version: str, groups_max: int, engine: str = "memory") -> None:
        """Count from 0.

        version: the release.
        groups_max: how many groups get series of their own.
        engine: what stores the groups: the scheme of the storage's URL.
        """
        # The library would add a second series to each counter, which nobody asks for. It has one switch for all.
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self._registry = registry = CollectorRegistry()
        self._of_groups = CollectorRegistry()
        ProcessCollector(registry=registry)
        GCCollector(registry=registry)
        build = Gauge(
            "rallypoint_build_info", "Always 1; the labels say what runs.", ("version", "python"), registry=registry
        )
        build.labels(version, platform.python_version()).set(1)
        storage = Gauge(
            "rallypoint_storage_info",
            "Always 1; the label says what stores the groups.",
            ("engine",),
            registry=registry,
        )
        storage.labels(engine).set(1)
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
        self._connections = Gauge(
            "rallypoint_connections", "Connections that are open now, by state.", ("state",), registry=registry
        )
        self._connections_max = Gauge(
            "rallypoint_connections_max",
            "Most connections by state: as set, or as many as the limit of open files allows.",
            ("state",),
            registry=registry,
        )
        self._connections_cut = Counter(
            "rallypoint_connections_cut", "Connections that the service cut, by why.", ("reason",), registry=registry
        )
        for reason in CUT_REASONS:  # from 0, or `increase()` would not see the first
            self._connections_cut.labels(reason)
        self._access_refused = Gauge(
            "rallypoint_access_file_refused",
            "1 while a file about access cannot be used as it is, and what it said before holds, by file.",
            ("file",),
            registry=registry,
        )
        for kind in ACCESS_FILES:
            self._access_refused.labels(kind)
        self._channels = Gauge("rallypoint_channels", "Channels that are open now.", registry=registry)
        self._channel_calls = Counter(
            "rallypoint_channel_calls",
            "Calls answered on channels, by operation and outcome, as of requests.",
            ("operation", "outcome"),
            registry=registry,
        )
        # What comes by the thousand is counted here, and handed on when somebody looks: the library takes a lock.
        self._channel_calls_tally: Tally[tuple[str, str]] = Tally()
        self._commits_tally = self._committed_partitions_tally = 0
        self._channel_pushes = Counter(
            "rallypoint_channel_pushes", "What channels were told unasked, by event.", ("event",), registry=registry
        )
        self._channels_closed = Counter(
            "rallypoint_channels_closed", "Channels that have ended, by why.", ("reason",), registry=registry
        )
        self._events_lost = Counter(
            "rallypoint_events_lost",
            "Events that streams did not get because they were read too slowly.",
            registry=registry,
        )
        self._peer_streams = Gauge(
            "rallypoint_event_peer_streams", "Event streams of other nodes that this node follows.", registry=registry
        )
        self._gaps = Counter(
            "rallypoint_event_gaps", "Gaps that event streams were told, by reason.", ("reason",), registry=registry
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
        self._stalls = Histogram(
            "rallypoint_stall_seconds",
            "Times in which the service stood still and then read what had come, which no deadline counts.",
            buckets=STALL_BUCKETS,
            registry=registry,
        )
        self._faults = Counter(
            "rallypoint_faults",
            "Faults of the service itself that it survived; each stands in the log, in full.",
            registry=registry,
        )
        self._groups_max = groups_max
        self._groups: GroupCollector | None = None

    def watch(self, service: Watched) -> None:
        """Show this service's groups from now on. To be called once: the service is made after its observer."""
        self._groups = GroupCollector(service, self._groups_max)
        # Every call that waits is one more and one less: the service counts them, and the library takes a lock.
        self._parked.set_function(lambda: service.parked_calls)
        self._registry.register(self._groups)
        self._of_groups.register(self._groups)

    def watch_certificates(self, certificates: Certificates) -> None:
        """Show the TLS files."""
        self._registry.register(CertificateCollector(certificates))

    def watch_node(self, node: Node) -> None:
        """Show how this node of a cluster stands, from now on. To be called once; a single node has none of it."""
        self._registry.register(NodeCollector(node))

    def watch_access(self, refused: Callable[[], Mapping[str, bool]]) -> None:
        """Show which of the files about access cannot be used as they are now, from now on."""
        for kind in ACCESS_FILES:
            self._access_refused.labels(kind).set_function(partial(_is_refused, refused, kind))

    def watch_issuers(self, statuses: Callable[[], Mapping[str, IssuerStatus]]) -> None:
        """Show how it stands with the issuers of signed tokens, from now on. To be called once."""
        self._registry.register(IssuerCollector(statuses))

    def watch_connections(self, admission: Connections) -> None:
        """Show how many connections there are, and may be, from now on."""
        self._connections_max.labels("authenticated").set(admission.authenticated_max)
        self._connections_max.labels("unauthenticated").set(admission.unauthenticated_max)
        self._connections.labels("authenticated").set_function(lambda: admission.authenticated_count)
        self._connections.labels("unauthenticated").set_function(lambda: admission.unauthenticated_count)

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

    def appended(self, append_metrics: AppendMetrics) -> None:
        """The store wrote something durably."""
        self._append_seconds.observe(append_metrics.seconds)
        self._append_batches.observe(append_metrics.batches)
        self._append_writes.observe(append_metrics.writes)

    def stalled(self, stalled_ms: int) -> None:
        """So much time did not count: the service stood still, and then read what had come."""
        self._stalls.observe(stalled_ms / 1000)

    def met_fault(self) -> None:
        """The service met a fault of its own, which is in the log."""
        self._faults.inc()

    # --- told and asked by the API

    def request_answered(self, operation: str, outcome: str, seconds: float) -> None:
        """One request was answered."""
        children = self._request_children.get((operation, outcome))
        if children is None:
            children = self._requests.labels(operation, outcome), self._request_seconds.labels(operation)
            self._request_children[operation, outcome] = children
        children[0].inc()
        children[1].observe(seconds)

    def connection_cut(self, reason: str) -> None:
        """A connection was cut."""
        self._connections_cut.labels(reason).inc()

    def streams_open(self, delta: int) -> None:
        """So many more event streams are open, or fewer."""
        self._streams.inc(delta)

    def events_lost(self, count: int) -> None:
        """A stream was so slow that it lost so many events."""
        self._events_lost.inc(count)

    def peer_streams_open(self, delta: int) -> None:
        """So many more event streams of other nodes are followed, or fewer."""
        self._peer_streams.inc(delta)

    def gap_told(self, reason: str) -> None:
        """An event stream was told that events are missing."""
        self._gaps.labels(reason).inc()

    def channels_open(self, delta: int) -> None:
        """So many more channels are open, or fewer."""
        self._channels.inc(delta)

    def channel_call(self, operation: str, outcome: str) -> None:
        """A call on a channel was answered."""
        self._channel_calls_tally[operation, outcome] += 1

    def channel_pushed(self, event: str) -> None:
        """Something was pushed on a channel."""
        self._channel_pushes.labels(event).inc()

    def channel_closed(self, reason: str) -> None:
        """A channel has ended."""
        self._channels_closed.labels(reason).inc()

    async def page(
        self, accept: str, sees: Callable[[str], bool] | None = None, *, of_node: bool = True
    ) -> tuple[bytes, str]:
        """As `expose`; what takes long with many groups is done before it, in turns of the loop.

        sees: which groups may be shown and counted; None: all. of_node: also what is not of a group.
        """
        groups = self._groups
        if groups is None:
            return self.expose(accept)
        groups.looked = await groups.look(sees)
        groups.sees, groups.shows_node = sees, of_node
        try:
            return self.expose(accept, of_node=of_node)
        finally:
            groups.looked = groups.sees = None
            groups.shows_node = True

    def expose(self, accept: str, *, of_node: bool = True) -> tuple[bytes, str]:
        """The page and its content type: OpenMetrics where `accept` asks for it, else Prometheus' text format.

        of_node: False: the series of groups alone.
        """
        for (operation, outcome), count in self._channel_calls_tally.items():
            self._channel_calls.labels(operation, outcome).inc(count)
        self._channel_calls_tally.clear()
        self._commits.inc(self._commits_tally)
        self._committed_partitions.inc(self._committed_partitions_tally)
        self._commits_tally = self._committed_partitions_tally = 0
        encode, content_type = _encoder_for(accept)
        return encode(self._registry if of_node else self._of_groups), content_type


_VERSION = re.compile(r"version=([^,;]*)")
_NUMBERS = re.compile(r"[0-9]{1,9}(\.[0-9]{1,9}){0,3}")


def _encoder_for(accept: str) -> tuple[Callable[[Collector], bytes], str]:
    """A version that is no number cannot be compared with one, nor stand in the content type: it asks for nothing."""
    is_sane = all(_NUMBERS.fullmatch(version.strip()) for version in _VERSION.findall(accept))
    return choose_encoder(accept if is_sane else "")


def _is_refused(refused: Callable[[], Mapping[str, bool]], kind: str) -> float:
    return float(refused().get(kind, False))


class Looked(NamedTuple):
    """What was looked at for a scrape: the groups that have series, the lag of each, None where it is not known, and
    what else is known of each.
    """

    shown: list[str]
    lags: dict[str, int | None]
    more: Mapping[str, GroupMetrics] = {}


class GroupCollector:
    """Series of the groups, made at each scrape.

    Cost: O(groups) for the count by state; lag is computed for the groups shown alone. `looked`: what was looked at
    before, in slices; without it, all is in one go. `sees`: which groups this scrape may show and count; None: all.
    """

    def __init__(self, service: Watched, groups_max: int) -> None:
        self.looked: Looked | None = None
        self.sees: Callable[[str], bool] | None = None
        self.shows_node = True
        self._service = service
        self._groups_max = groups_max

    async def look(self, sees: Callable[[str], bool] | None = None) -> Looked:
        """Which groups have series, and the lag of each. A group's is computed in one go: some 30 ms for 200,000."""
        view = self._service.view
        looked = Looked(nsmallest(self._groups_max, filter(sees, view.summaries) if sees else view.summaries), {})
        await asyncio.sleep(0)
        count = 0
        for group_id in looked.shown:
            of_group = 1 + view.committed_count(group_id)
            count += of_group
            if count > LAGS_AT_ONCE_MAX:
                count = of_group
                await asyncio.sleep(0)
            looked.lags[group_id] = view.lag(group_id)
        await asyncio.sleep(0)
        return looked._replace(more=await self._service.group_metrics(looked.shown))

    def describe(self) -> Iterable[Metric]:
        """Called at registration, in place of `collect`."""
        return ()

    def collect(self) -> Iterator[Metric]:
        """All series that are read rather than counted."""
        if self.shows_node:
            yield from self._of_node()
        yield from self._of_groups()

    def _of_node(self) -> Iterator[Metric]:
        condition = self._service.condition()
        yield GaugeMetricFamily(
            "rallypoint_ready",
            "1 while the node serves groups, as its readiness says, else 0.",
            value=float(why_not_ready(condition) is None),
        )
        shards = GaugeMetricFamily("rallypoint_shards", "Shards by state on this node.", labels=("state",))
        for state, count in condition.shards.items():
            shards.add_metric((state.value,), count)
        yield shards
        yield GaugeMetricFamily(
            "rallypoint_damaged_groups",
            "Groups that are shut off because what is stored of them is damaged.",
            value=condition.damaged_groups,
        )
        yield GaugeMetricFamily(
            "rallypoint_stray_records",
            "Stored records of which nobody can say to which group or topic they belong.",
            value=condition.stray_records,
        )
        yield GaugeMetricFamily(
            "rallypoint_unreadable_topics",
            "Registered topics whose stored record is damaged.",
            value=condition.unreadable_topics,
        )
        yield GaugeMetricFamily(
            "rallypoint_records_passed_over",
            "Stored records of kinds that only a newer release knows.",
            value=condition.records_passed_over,
        )
        yield GaugeMetricFamily(
            "rallypoint_metadata_bytes",
            "Memory that the metadata of all members takes.",
            value=condition.metadata_bytes,
        )
        yield GaugeMetricFamily(
            "rallypoint_append_age_seconds",
            "For how long the oldest durable write has been under way, 0 where none is.",
            value=condition.append_age_ms / 1000,
        )
        yield GaugeMetricFamily(
            "rallypoint_storage_writable",
            "1 while something can be stored, 0 after a failure until it can again.",
            value=float(condition.store.trouble is None),
        )
        yield GaugeMetricFamily(
            "rallypoint_storage_log_bytes",
            "Size of the write-ahead log of the store.",
            value=condition.store.log_bytes,
        )

    def _of_groups(self) -> Iterator[Metric]:
        view, sees = self._service.view, self.sees
        summaries = (
            view.summaries if sees is None else {one: view.summaries[one] for one in view.summaries if sees(one)}
        )
        yield self._states(summaries)
        looked = self.looked
        if looked is None:
            looked = Looked(nsmallest(self._groups_max, summaries), {})
        shown = [group_id for group_id in looked.shown if group_id in summaries]
        yield GaugeMetricFamily(
            "rallypoint_groups_without_series",
            "Groups beyond the setting metrics_groups_max, which have no series of their own.",
            value=len(summaries) - len(shown),
        )
        yield from self._series(view, shown, looked.lags)
        yield from _history_series({group_id: looked.more[group_id] for group_id in shown if group_id in looked.more})

    def _states(self, summaries: Mapping[str, GroupSummary]) -> Metric:
        states = GaugeMetricFamily("rallypoint_groups", "Groups by state.", labels=("state",))
        tally = Tally(summary.state for summary in summaries.values())
        for state in GROUP_STATES:
            states.add_metric((state,), tally[state])
        return states

    def _series(self, view: GroupView, shown: Iterable[str], lags: Mapping[str, int | None]) -> Iterator[Metric]:
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
            behind = lags[group_id] if group_id in lags else view.lag(group_id)
            if behind is not None:
                lag.add_metric((group_id,), behind)
        yield from (members, generation, lag, frozen, held)


def _history_series(groups: Mapping[str, GroupMetrics]) -> Iterator[Metric]:
    """What the node remembers of the groups that have series."""
    topic_lag = GaugeMetricFamily(
        "rallypoint_group_topic_lag",
        "The lag of the group in one topic, of the first topics in the order of their names.",
        labels=("group_id", "topic"),
    )
    status = GaugeMetricFamily(
        "rallypoint_group_status",
        "1 for the status that the group has, else 0; none where no end is known.",
        labels=("group_id", "status"),
    )
    rebalances = CounterMetricFamily(
        "rallypoint_group_rebalances",
        "Rebalances of the group that began since the node loaded it, by trigger.",
        labels=("group_id", "trigger"),
    )
    gauges = {name: GaugeMetricFamily(name, text, labels=("group_id",)) for name, (text, _) in _GAUGES.items()}
    for group_id, found in groups.items():
        for topic in nsmallest(TOPICS_OF_A_GROUP_MAX, found.topic_lags):
            topic_lag.add_metric((group_id, topic), found.topic_lags[topic])
        for name in STATUSES if found.row.status is not None else ():
            status.add_metric((group_id, name), float(found.row.status == name))
        for trigger, count in found.rebalances.items():
            rebalances.add_metric((group_id, trigger), count)
        for name, (_, read) in _GAUGES.items():
            value = read(found)
            if value is not None:
                gauges[name].add_metric((group_id,), value)
    yield from (topic_lag, status, rebalances, *gauges.values())


def _seconds(duration_ms: int | None) -> float | None:
    return None if duration_ms is None else duration_ms / 1000


_GAUGES: Mapping[str, tuple[str, Callable[[GroupMetrics], float | None]]] = {
    "rallypoint_group_idle_members": (
        "Members of the group without a partition.",
        lambda found: found.row.idle_member_count,
    ),
    "rallypoint_group_unowned_partitions": (
        "Partitions of subscribed registered topics that no member of the group owns.",
        lambda found: found.row.unowned_partition_count,
    ),
    "rallypoint_group_useful_members": (
        "How many members of the group would have something to read, for autoscalers.",
        lambda found: found.row.useful_member_count,
    ),
    "rallypoint_group_flapping_members": (
        "Names of members of the group that come and go in circles.",
        lambda found: found.row.flapping_member_count,
    ),
    "rallypoint_group_awaited_members": (
        "Members that a rebalance of the group waits for.",
        lambda found: found.row.awaited_count,
    ),
    "rallypoint_group_last_commit_age_seconds": (
        "Time since the group's last commit.",
        lambda found: _seconds(found.commit_age_ms),
    ),
    "rallypoint_group_lag_eta_seconds": (
        "Time until the group's lag is gone at the pace of the last ten minutes.",
        lambda found: _seconds(found.eta_ms),
    ),
}
"""By the name of a gauge of a group: its text, and what it reads; None: no series."""


class IssuerCollector:
    """Series of the issuers of signed tokens, read at each scrape."""

    def __init__(self, statuses: Callable[[], Mapping[str, IssuerStatus]]) -> None:
        self._statuses = statuses

    def describe(self) -> Iterable[Metric]:
        """Called at registration, in place of `collect`."""
        return ()

    def collect(self) -> Iterator[Metric]:
        """How old their keys are, and what became of the fetches. Nothing where there are no issuers."""
        statuses = self._statuses()
        if not statuses:
            return
        ages = GaugeMetricFamily(
            "rallypoint_issuer_keys_age_seconds",
            "Time since the keys of an issuer were fetched; +Inf while it has none that count.",
            labels=("issuer",),
        )
        fetches = CounterMetricFamily(
            "rallypoint_issuer_fetches",
            "Fetches of an issuer's keys, by what became of them.",
            labels=("issuer", "outcome"),
        )
        for issuer, status in statuses.items():
            ages.add_metric((issuer,), math.inf if status.age_ms is None else status.age_ms / 1000)
            fetches.add_metric((issuer, "fetched"), status.fetched)
            fetches.add_metric((issuer, "failed"), status.failed)
        yield ages
        yield fetches


class NodeCollector:
    """Series of this node of a cluster, read at each scrape."""

    def __init__(self, node: Node) -> None:
        self._node = node

    def describe(self) -> Iterable[Metric]:
        """Called at registration, in place of `collect`."""
        return ()

    def collect(self) -> Iterator[Metric]:
        """How it stands, and what it did since it started."""
        node, counts, lease = self._node, self._node.counts, self._node.lease
        yield GaugeMetricFamily(
            "rallypoint_live_nodes", "Nodes of the cluster that run, as this one sees it.", value=node.live_count
        )
        yield GaugeMetricFamily(
            "rallypoint_shards_owned", "Shards that this node has, loads or tries to load.", value=node.owned_shards()
        )
        yield GaugeMetricFamily(
            "rallypoint_lease_age_seconds",
            "Time since the last renewal of the lease that succeeded was sent.",
            value=lease.age_ms / 1000,
        )
        yield GaugeMetricFamily(
            "rallypoint_lease_remaining_seconds",
            "Time until the deadline of the lease, when answers from memory end; 0 once it has passed.",
            value=max(lease.remaining_ms, 0) / 1000,
        )
        yield CounterMetricFamily("rallypoint_leases_lost", "Leases that this node has lost.", value=lease.lost_count)
        yield CounterMetricFamily(
            "rallypoint_keyspaces_taken", "Shards, and the topic registry, that this node took.", value=counts.taken
        )
        hand_overs = CounterMetricFamily(
            "rallypoint_hand_overs",
            "Shards, and the topic registry, that this node was to hand over to another, by what became of it.",
            labels=("outcome",),
        )
        hand_overs.add_metric(("done",), counts.handed_over)
        hand_overs.add_metric(("failed",), counts.not_handed_over)
        yield hand_overs
        yield CounterMetricFamily(
            "rallypoint_keyspaces_lost",
            "Shards, and the topic registry, that this node lost to another one, or with its lease.",
            value=counts.lost,
        )


class CertificateCollector:
    """Series of the TLS files, read at each scrape."""

    def __init__(self, certificates: Certificates) -> None:
        self._certificates = certificates

    def describe(self) -> Iterable[Metric]:
        """Called at registration, in place of `collect`."""
        return ()

    def collect(self) -> Iterator[Metric]:
        """Until when the certificate is good, and what became of changed files."""
        found = self._certificates
        yield GaugeMetricFamily(
            "rallypoint_tls_certificate_not_after_timestamp_seconds",
            "When the certificate of this node expires, in seconds since 1970.",
            value=found.not_after_s,
        )
        yield GaugeMetricFamily(
            "rallypoint_tls_files_outdated",
            "1 while the TLS files have changed and cannot be used, so that those of before are, else 0.",
            value=float(found.is_outdated),
        )
        reloads = CounterMetricFamily(
            "rallypoint_tls_reloads", "Changes of the TLS files, by what became of them.", labels=("outcome",)
        )
        reloads.add_metric(("used",), found.reload_count)
        reloads.add_metric(("failed",), found.failure_count)
        yield reloads
