"""Background work of a query: the group's leader reports end offsets, and each member looks for missing topics.

The reports let the service compute lag. The work runs in its own thread, because a batch can run for minutes. The
service's topic registry only receives reports; the partition counts for the assignor come from the source. Nothing here
is needed to read correctly, so a failure is logged and tried again at the next run. The member itself checks whether a
topic has grown or another one matches.
"""

import logging
import time
from collections.abc import Callable, Mapping

from rallypoint.member.errors import MemberError
from rallypoint.spark_bridge.coordinator_calls import NotAnswered
from rallypoint.spark_bridge.errors import SourceError
from rallypoint.spark_bridge.membership import Membership
from rallypoint.spark_bridge.options import BridgeOptions
from rallypoint.spark_bridge.periodic_thread import PeriodicThread
from rallypoint.spark_bridge.sources.contract import Source
from rallypoint.spark_bridge.subscription import Subscription
from rallypoint.spark_bridge.topic_ends import Registry, TopicEnds

log = logging.getLogger("rallypoint.spark")

INTERVAL_SECONDS = 1.0


class LeaderDuties:
    """Runs from `start` to `stop`. A member that does not lead only looks for missing topics."""

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
        self._ends = TopicEnds(registry, f"group {options.group_id}")
        self._subscription = subscription
        self._now_ms = now_ms
        self._reported_at_ms = self._looked_at_ms = now_ms()
        self._unanswered = False
        """Whether nobody has answered since the last report."""
        self._thread: PeriodicThread | None = None

    def register_topics(self) -> None:
        """Report the topics before joining, so that their first registration does not rebalance a running group."""
        try:
            self._report(self._source.partitions(self._subscription.topics))
        except NotAnswered as error:
            log.warning(
                "group %s: the topics could not be registered before joining: %s", self._options.group_id, error
            )

    def start(self, membership: Membership) -> None:
        """Run periodically in a thread until `stop`."""
        about = f"group {self._options.group_id}: the leader's duties"
        self._thread = PeriodicThread(
            "rallypoint-leader", lambda: self.run_and_log(membership), INTERVAL_SECONDS, about=about
        )
        self._thread.start()

    def stop(self) -> None:
        """End the thread without waiting for a request in flight."""
        if self._thread is not None:
            self._thread.end(0, final_run=False)

    def run_once(self, membership: Membership) -> None:
        """Do what is due. Raises SourceError, MemberError, NotAnswered."""
        present = membership.present
        leads = present is not None and present.leader
        now = self._now_ms()
        # At the same interval at which the member looks for new partitions.
        if self._subscription.missing and now - self._looked_at_ms >= self._options.partition_check_interval_ms:
            self._looked_at_ms = now
            self._subscription.look_for_missing()
        if leads and now - self._reported_at_ms >= self._options.report_interval_ms:
            self._reported_at_ms = now
            self._report(self._source.partitions(self._subscription.topics))

    def run_and_log(self, membership: Membership) -> bool:
        """Do what is due, and log what fails. Returns True: what failed is due again after its interval.

        A report that nobody answers is logged from the second in a row on. When a node is lost, its shards may be with
        no node for longer than a call waits, and the member logs the loss.
        """
        try:
            self.run_once(membership)
        except NotAnswered as error:
            if self._unanswered:
                self._warn(error)
            self._unanswered = True
        except (SourceError, MemberError) as error:
            self._warn(error)
        return True

    def _warn(self, error: Exception) -> None:
        log.warning("group %s: the leader's duties failed: %s", self._options.group_id, error)

    def _report(self, counts: Mapping[str, int]) -> None:
        if not self._options.report_end_offsets:
            return
        for topic, count in counts.items():
            ends = self._source.latest([(topic, partition) for partition in range(count)])
            self._ends.tell(topic, count, {partition: offset for (_, partition), offset in ends.items()})
        self._unanswered = False
