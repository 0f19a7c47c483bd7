"""Members and consumers as Prometheus sees them. Imported by programs that want it; nothing is registered before.

What is now (states, partitions, ages) is read at the scrape, from those that run; what has happened is counted as it
happens. Labels are the group and `client_id`: ids that the service draws would make new series with each start.
"""

import time
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from prometheus_client import REGISTRY, CollectorRegistry, Counter, Histogram
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from rallypoint.member.core.states import ENDED, State
from rallypoint.member.observer import ObservedConsumer, ObservedMember

LABELS = ("group_id", "client_id")
CALL_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
REBALANCE_BUCKETS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300)
BATCH_BUCKETS = (0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1, 5, 10, 30, 60, 120, 300)
SIGNS_OF_LIFE = frozenset({"join", "sync", "heartbeat"})

W = TypeVar("W", ObservedMember, ObservedConsumer)
Key = tuple[str, str]


class MemberMetrics(Collector):
    """An `Observer` for any number of members and consumers: pass it to each as `observer`.

    Args:
        registry: Where the metrics are registered. A second `MemberMetrics` in the same registry raises ValueError.
        now_seconds: For tests: a clock that never goes back.
    """

    def __init__(
        self, registry: CollectorRegistry = REGISTRY, *, now_seconds: Callable[[], float] = time.monotonic
    ) -> None:
        self._now = now_seconds
        self._members: list[ObservedMember] = []
        self._failed: dict[Key, int] = {}
        self._consumers: list[ObservedConsumer] = []
        self._answered_at: dict[int, float] = {}
        self._unsettled: dict[int, float] = {}

        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(f"rallypoint_member_{name}", text, (*LABELS, *labels), registry=registry)

        def histogram(name: str, text: str, buckets: Iterable[float], *labels: str) -> Histogram:
            full = f"rallypoint_member_{name}"
            return Histogram(full, text, (*LABELS, *labels), buckets=tuple(buckets), registry=registry)

        self._rebalances = counter("rebalances", "Rebalances that ended with an assignment.")
        self._rebalance_seconds = histogram(
            "rebalance_seconds", "From the end of an assignment, or the start, to the next one.", REBALANCE_BUCKETS
        )
        self._calls = counter("calls", "Calls to the service.", "operation", "outcome")
        self._call_seconds = histogram("call_seconds", "Time until a call's answer.", CALL_BUCKETS, "operation")
        self._channels_lost = counter("channels_lost", "Channels whose connection broke.")
        self._records = counter("records", "Records handled.")
        self._batches = counter("batches", "Batches handed over.", "outcome")
        self._batch_seconds = histogram("batch_seconds", "Time that a handler took for a batch.", BATCH_BUCKETS)
        self._stuck = counter("stuck_handlers", "Handlers that ran for longer than max_poll_interval_ms.")
        registry.register(self)

    # --- what happens ------------------------------------------------------------------------------------------------

    def moved(self, member: ObservedMember, old: State, new: State) -> None:
        """As `Observer.moved`."""
        if old is State.UNJOINED and new not in ENDED:
            self._members.append(member)
            self._replace_failed(_key(member))
        if new is State.STABLE:
            began = self._unsettled.pop(id(member), None)
            if began is not None:
                self._rebalances.labels(*_key(member)).inc()
                self._rebalance_seconds.labels(*_key(member)).observe(self._now() - began)
        elif old in {State.UNJOINED, State.STABLE}:
            self._unsettled[id(member)] = self._now()
        if new in ENDED:
            self._unsettled.pop(id(member), None)
            self._answered_at.pop(id(member), None)
            if member in self._members:
                self._members.remove(member)
        if new is State.FAILED:
            self._failed[_key(member)] = self._failed.get(_key(member), 0) + 1

    def _replace_failed(self, key: Key) -> None:
        """A member that starts after one of its group and client id has failed replaces it."""
        if key in self._failed:
            self._failed[key] -= 1
            if self._failed[key] == 0:
                del self._failed[key]

    def called(self, member: ObservedMember, operation: str, outcome: str, seconds: float) -> None:
        """As `Observer.called`."""
        self._calls.labels(*_key(member), operation, outcome).inc()
        self._call_seconds.labels(*_key(member), operation).observe(seconds)
        if operation in SIGNS_OF_LIFE and outcome in {"NONE", "WAITING"}:
            self._answered_at[id(member)] = self._now()

    def channel_lost(self, member: ObservedMember) -> None:
        """As `Observer.channel_lost`."""
        self._channels_lost.labels(*_key(member)).inc()

    def consumer_began(self, consumer: ObservedConsumer) -> None:
        """As `Observer.consumer_began`."""
        self._consumers.append(consumer)

    def consumer_ended(self, consumer: ObservedConsumer) -> None:
        """As `Observer.consumer_ended`."""
        self._consumers.remove(consumer)

    def batch_ended(self, consumer: ObservedConsumer, record_count: int, seconds: float, *, failed: bool) -> None:
        """As `Observer.batch_ended`."""
        self._batches.labels(*_key(consumer), "failed" if failed else "handled").inc()
        self._batch_seconds.labels(*_key(consumer)).observe(seconds)
        if not failed:
            self._records.labels(*_key(consumer)).inc(record_count)

    def handler_stuck(self, consumer: ObservedConsumer) -> None:
        """As `Observer.handler_stuck`."""
        self._stuck.labels(*_key(consumer)).inc()

    # --- what is now -------------------------------------------------------------------------------------------------

    def collect(self) -> Iterator[Metric]:
        """The gauges, read now; from the scraper's thread."""
        members, consumers = _by_key(self._members), _by_key(self._consumers)
        now = self._now()
        states = GaugeMetricFamily("rallypoint_member_state", "Members in this state.", labels=(*LABELS, "state"))
        failed = dict(self._failed)
        for key in members.keys() | failed.keys():
            for state in State:
                if state not in {State.UNJOINED, *ENDED}:
                    count = sum(member.state is state for member in members.get(key, ()))
                    states.add_metric((*key, state.value), count)
            states.add_metric((*key, State.FAILED.value), failed.get(key, 0))
        yield states
        yield _gauge(
            "generation",
            "Generation of the assignment, -1 without one.",
            {key: max(_generation(member) for member in group) for key, group in members.items()},
        )
        yield _gauge(
            "assigned_partitions",
            "Partitions that are assigned.",
            {key: sum(_partition_count(member) for member in group) for key, group in members.items()},
        )
        yield _gauge(
            "heartbeat_age_seconds",
            "Since the service last answered a sign of life.",
            {
                key: max(now - heard for heard in ages)
                for key, group in members.items()
                if (ages := [self._answered_at[id(member)] for member in group if id(member) in self._answered_at])
            },
        )
        yield _gauge(
            "paused_partitions",
            "Assigned partitions that are paused.",
            {key: sum(len(consumer.paused) for consumer in group) for key, group in consumers.items()},
        )
        yield _gauge(
            "in_hand_seconds",
            "For how long the slowest batch in hand has been handled.",
            {key: max(consumer.in_hand_ms for consumer in group) / 1000 for key, group in consumers.items()},
        )


def _key(watched: ObservedMember | ObservedConsumer) -> Key:
    return watched.options.group_id, watched.options.client_id


def _by_key(watched: list[W]) -> dict[Key, list[W]]:
    by_key: dict[Key, list[W]] = {}
    for one in list(watched):
        by_key.setdefault(_key(one), []).append(one)
    return by_key


def _gauge(name: str, text: str, values: dict[Key, float]) -> GaugeMetricFamily:
    family = GaugeMetricFamily(f"rallypoint_member_{name}", text, labels=LABELS)
    for key, value in values.items():
        family.add_metric(key, value)
    return family


def _generation(member: ObservedMember) -> int:
    held = member.assignment
    return -1 if held is None else held.generation_id


def _partition_count(member: ObservedMember) -> int:
    held = member.assignment
    return 0 if held is None else len(held.partitions)
