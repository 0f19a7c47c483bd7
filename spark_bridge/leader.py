"""What goes on besides reading: each query looks which topics match, the group's leader also whether one has grown, and
tells the service where they end.

A thread of its own, since both must go on while a batch runs for minutes. The service's registry of topics is only
told; the partition counts that the assignor uses come from the source itself. Nothing here is needed to read
correctly: what fails is logged and tried again at the next turn.
"""

import logging
import threading
import time
from collections.abc import Callable, Mapping
from typing import Protocol
from urllib.parse import quote

from member.errors import MemberError
from spark_bridge.coordinator_calls import Coordinators, NotAnswered
from spark_bridge.errors import SourceError
from spark_bridge.membership import Membership
from spark_bridge.options import BridgeOptions
from spark_bridge.sources.contract import Source
from spark_bridge.subscription import Subscription

log = logging.getLogger("rallypoint.spark")

TURN_SECONDS = 1.0


class Registry(Protocol):
    """Takes what is known of a topic."""

    def put(self, topic: str, partitions: int, end_offsets: Mapping[int, int]) -> None:
        """Store it. Raises `NotAnswered`."""


class HttpRegistry:
    """`PUT /v1/topics/{topic}`."""

    def __init__(self, coordinators: Coordinators) -> None:
        self._coordinators = coordinators

    def put(self, topic: str, partitions: int, end_offsets: Mapping[int, int]) -> None:
        """Report a topic. Raises `NotAnswered`."""
        ends = {str(partition): offset for partition, offset in sorted(end_offsets.items())}
        body = {"partitions": partitions, "end_offsets": ends}
        self._coordinators.ask("PUT", f"/v1/topics/{quote(topic, safe='')}", body)


class LeaderDuties:
    """Runs from `start` to `stop`. Only what any member does for itself is done while this one does not lead."""

    def __init__(
        self,
        options: BridgeOptions,
        source: Source,
        registry: Registry,
        subscription: Subscription,
        *,
        now_ms: Callable[[], float] = lambda: time.monotonic() * 1000,
    ) -> None:
        self._options = options
        self._source = source
        self._registry = registry
        self._subscription = subscription
        self._now_ms = now_ms
        self._reporting = options.report_end_offsets
        self._watched = frozenset(subscription.topics)
        self._assigned_counts: dict[str, int] | None = None
        self._checked_at_ms = self._reported_at_ms = now_ms()
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    def partition_counts(self, topics: frozenset[str]) -> dict[str, int]:
        """What the assignor of this member works with when it leads; remembered, to notice growth later."""
        counts = self._source.partitions(sorted(topics))
        self._watched, self._assigned_counts = topics, counts
        return counts

    def introduce(self) -> None:
        """Report the topics before joining, so that their first registration changes nothing for a running group."""
        self._report(self._source.partitions(self._subscription.topics))

    def start(self, membership: Membership) -> None:
        """Take turns in a thread of its own until `stop`."""
        self._thread = threading.Thread(target=self._run, args=(membership,), name="rallypoint-leader", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the thread; a request in flight is not waited for."""
        self._ended.set()

    def take_turn(self, membership: Membership) -> None:
        """Do what is due. Raises SourceError, MemberError."""
        present = membership.present
        leads = present is not None and present.leader
        now = self._now_ms()
        if now - self._checked_at_ms >= self._options.partition_check_interval_ms:
            self._checked_at_ms = now
            if self._subscription.refresh():
                membership.subscribe(self._subscription.topics)
            elif leads:
                self._check_growth(membership)
        if leads and self._reporting and now - self._reported_at_ms >= self._options.report_interval_ms:
            self._reported_at_ms = now
            self._report(self._source.partitions(self._subscription.topics))

    def _run(self, membership: Membership) -> None:
        while not self._ended.wait(TURN_SECONDS):
            try:
                self.take_turn(membership)
            except (SourceError, MemberError) as error:
                log.warning("group %s: the leader's turn failed: %s", self._options.group_id, error)

    def _check_growth(self, membership: Membership) -> None:
        assigned = self._assigned_counts
        counts = self._source.partitions(sorted(self._watched))
        self._assigned_counts = counts
        if assigned is None or assigned == counts:
            return
        changes = [
            f"{topic} from {assigned.get(topic, 0)} to {counts.get(topic, 0)}"
            for topic in sorted(self._watched)
            if assigned.get(topic, 0) != counts.get(topic, 0)
        ]
        membership.request_rejoin(f"the number of partitions changed: {', '.join(changes)}")

    def _report(self, counts: Mapping[str, int]) -> None:
        for topic, count in counts.items():
            ends = self._source.latest([(topic, partition) for partition in range(count)])
            if not self._reporting:
                return
            try:
                self._registry.put(topic, count, {partition: offset for (_, partition), offset in ends.items()})
            except NotAnswered as error:
                self._reporting = not error.final
                log.warning(
                    "group %s: the coordinator does not take where %s ends, so lag is unknown there%s: %s",
                    self._options.group_id,
                    topic,
                    "; it is not tried again" if error.final else "",
                    error,
                )
