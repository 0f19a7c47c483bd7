"""The group of a query that keeps its own source: what Spark's Kafka source has completed, committed and shown.

For a query that stays as it is. It reads all partitions, alone; its group has no members, but its progress and its lag
are seen where those of all other groups are. `StreamingQueryListener` is Spark's; what a progress says is read in
`ends_in`, which knows no Spark.
"""

import json
import logging
import threading
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

from spark_bridge.coordinator_calls import Coordinators, NotAnswered

log = logging.getLogger("rallypoint.spark")

Ends = Mapping[str, Mapping[str, int]]
"""Topic → partition, as text → the next offset."""

RETRY_SECONDS = 1.0


class ProgressCommits(StreamingQueryListener):
    """Commits the end of each batch of one query, `query_name` (its `queryName`), as the group `group`.

    Make one, and it listens; `close` it when the query has ended. Commits come 0.1 to 0.5 s after a batch, in a thread
    of their own; where several batches end before one is through, the last counts. What fails is logged and tried
    again. Where topics end is told to the registry of topics with it, so that lag is known.

    The coordinator refuses such commits while the group has members (UNKNOWN_MEMBER_ID): a group is either shared or
    shown, not both.
    """

    def __init__(
        self, spark: SparkSession, coordinator: str, group: str, query_name: str, *, token: str | None = None
    ) -> None:
        urls = tuple(url.strip() for url in coordinator.split(",") if url.strip())
        self._spark = spark
        self._coordinators = Coordinators(urls, token)
        self._group = group
        self._query_name = query_name
        self._pending: tuple[Ends, Ends] | None = None
        self._changed = threading.Condition()
        self._closing = False
        self._given_up = False
        self._said: str | None = None
        self._thread = threading.Thread(target=self._run, name="rallypoint-progress", daemon=True)
        self._thread.start()
        spark.streams.addListener(self)

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802
        """Nothing is complete yet."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802
        """A batch is over, or none was there."""
        progress = event.progress
        if progress.name == self._query_name:
            self.note(
                _merged(ends_in(source.endOffset) for source in progress.sources),
                _merged(ends_in(source.latestOffset) for source in progress.sources),
            )

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802
        """Nothing new is complete."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802
        """What was complete was told before."""

    def note(self, ends: Ends, latest: Ends) -> None:
        """Commit these ends when the thread gets to it, and tell where the topics end."""
        if ends:
            with self._changed:
                self._pending = (ends, latest)
                self._changed.notify()

    def close(self, timeout_ms: int = 10_000) -> bool:
        """Listen no longer, and commit what is left. False where that was not possible in time: it is given up."""
        self._spark.streams.removeListener(self)
        with self._changed:
            self._closing = True
            self._changed.notify()
        self._thread.join(timeout_ms / 1000)
        if not self._thread.is_alive():
            return True
        with self._changed:
            self._given_up = True
            self._changed.notify()
        return False

    def _run(self) -> None:
        while (pending := self._next()) is not None:
            if not self._tell(*pending):
                with self._changed:
                    self._pending = self._pending or pending
                    self._changed.wait_for(lambda: self._given_up or self._pending is not pending, RETRY_SECONDS)
                    if self._given_up:
                        return

    def _next(self) -> tuple[Ends, Ends] | None:
        """The newest ends, once there are some; None when closing and all is told."""
        with self._changed:
            self._changed.wait_for(lambda: self._pending is not None or self._closing)
            pending, self._pending = self._pending, None
            return pending

    def _tell(self, ends: Ends, latest: Ends) -> bool:
        try:
            for topic, partitions in latest.items():
                self._coordinators.ask(
                    "PUT",
                    f"/v1/topics/{quote(topic, safe='')}",
                    {"partitions": 1 + max(map(int, partitions)), "end_offsets": partitions},
                )
            refused = self._commit(ends)
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
        body: dict[str, Any] = {"generation_id": -1, "member_id": "", "offsets": offsets}
        answer = self._coordinators.ask("POST", f"/v1/groups/{quote(self._group, safe='')}/offsets", body)
        return [
            f"{topic}-{partition}: {result['error_name']}"
            for topic, partitions in answer["offsets"].items()
            for partition, result in partitions.items()
            if result["error_code"] != 0
        ]

    def _say(self, trouble: str | None) -> None:
        if trouble != self._said and trouble is not None:
            log.warning("group %s: the progress of %s is not committed: %s", self._group, self._query_name, trouble)
        self._said = trouble


def ends_in(offset: str | None) -> Ends:
    """The partitions of an offset of Spark's Kafka source; empty for any other source's, and for none."""
    try:
        value = json.loads(offset or "null")
    except ValueError:
        return {}
    if not isinstance(value, dict):
        return {}
    found = {
        topic: partitions
        for topic, partitions in value.items()
        if isinstance(partitions, dict)
        and partitions
        and all(name.isdecimal() and type(end) is int and end >= 0 for name, end in partitions.items())
    }
    return found if len(found) == len(value) else {}


def _merged(several: Any) -> Ends:
    merged: dict[str, dict[str, int]] = {}
    for ends in several:
        for topic, partitions in ends.items():
            merged.setdefault(topic, {}).update(partitions)
    return merged
