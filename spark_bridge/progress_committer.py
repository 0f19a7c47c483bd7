"""Commits the ends of a query's batches for a group without members, in a background thread."""

import logging
import threading
from collections.abc import Mapping
from typing import Protocol

from rallypoint.protocol import messages as m
from rallypoint.protocol.parts import parts_of
from rallypoint.spark_bridge.coordinator_calls import NotAnswered
from rallypoint.spark_bridge.periodic_thread import PeriodicThread
from rallypoint.spark_bridge.topic_ends import HttpRegistry, TopicEnds

log = logging.getLogger("rallypoint.spark")

Ends = Mapping[str, Mapping[str, int]]
"""Topic → partition, as text → the next offset."""

RETRY_SECONDS = 1.0


class Calls(Protocol):
    """The part of `coordinator_calls.Coordinators` that is used here. The methods raise `NotAnswered`."""

    def commit(self, group_id: str, body: m.CommitRequest) -> m.CommitAnswer:
        """Commit. The answer contains a result for each partition."""
        ...

    def put_topic(self, topic: str, body: m.PutTopicRequest) -> None:
        """Report to the topic registry."""
        ...


class ProgressCommitter:
    """Commits for one query, from construction until `close`.

    `coordinators`: receives the commits and the end offsets.
    `group`: the group to commit to.
    `query_name`: the query's name in log lines.
    `retry_seconds`: the pause before a failed commit is tried again. A failure is logged.
    """

    def __init__(
        self, coordinators: Calls, group: str, query_name: str, *, retry_seconds: float = RETRY_SECONDS
    ) -> None:
        self._coordinators = coordinators
        self._topic_ends = TopicEnds(HttpRegistry(coordinators), f"group {group}")
        self._group = group
        self._query_name = query_name
        self._pending: tuple[Ends, Ends] | None = None
        self._lock = threading.Lock()
        self._last_logged: str | None = None
        about = f"group {group}: the progress of {query_name}"
        self._thread = PeriodicThread("rallypoint-progress", self._run_once, retry_seconds, about=about)
        self._thread.start()

    def note(self, ends: Ends, latest: Ends) -> None:
        """Queue these ends for the thread, replacing earlier ones, and `latest` as the end offsets to report."""
        if ends:
            with self._lock:
                self._pending = (ends, latest)
            self._thread.wake()

    def close(self, timeout_ms: int) -> bool:
        """Commit what is left. Returns False if that was not possible in time."""
        return self._thread.end(timeout_ms / 1000, final_run=True)

    def _run_once(self) -> bool:
        with self._lock:
            pending, self._pending = self._pending, None
        if pending is None:
            return True
        is_committed = False
        try:
            is_committed = self._tell(*pending)
        finally:
            with self._lock:
                if not is_committed:
                    self._pending = self._pending or pending
                is_all = self._pending is None
        return is_all

    def _tell(self, ends: Ends, latest: Ends) -> bool:
        try:
            # First, because the service refuses commits for partitions that a topic does not have as far as it knows.
            for topic, partitions in latest.items():
                by_number = {int(partition): end for partition, end in partitions.items()}
                self._topic_ends.tell(topic, 1 + max(by_number), by_number)
            refused = [name for part in parts_of(ends) for name in self._commit(part)]
        except NotAnswered as error:
            self._say(str(error))
            return False
        self._say("; ".join(refused) or None)
        return not refused

    def _commit(self, ends: Ends) -> list[str]:
        offsets = {
            topic: {partition: {"offset": offset} for partition, offset in partitions.items()}
            for topic, partitions in ends.items()
        }
        body = m.CommitRequest.model_validate({"generation_id": -1, "offsets": offsets})
        answer = self._coordinators.commit(self._group, body)
        return [
            f"{topic}-{partition}: {result.error_name}"
            for topic, partitions in answer.offsets.items()
            for partition, result in partitions.items()
            if result.error_code != 0
        ]

    def _say(self, problem: str | None) -> None:
        if problem != self._last_logged and problem is not None:
            log.warning("group %s: the progress of %s is not committed: %s", self._group, self._query_name, problem)
        self._last_logged = problem
