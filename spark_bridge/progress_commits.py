"""Commits the progress of a query that keeps using Spark's Kafka source, from a `StreamingQueryListener`.

The query itself does not change, and reads all partitions alone. Its group has no members, but its progress and lag are
visible like those of all other groups. `progress_committer` commits, and `ends_in` parses the progress; neither knows
Spark.
"""

from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

from rallypoint.member.tls_files import TlsFiles
from rallypoint.member.tokens import Token
from rallypoint.spark_bridge.coordinator_calls import coordinators_for
from rallypoint.spark_bridge.json_text import parse_json
from rallypoint.spark_bridge.option_text import INT32_MAX, whole_number
from rallypoint.spark_bridge.progress_committer import Ends, ProgressCommitter


class ProgressCommits(StreamingQueryListener):
    """Commits the end of each batch of one query to a group without members.

    `coordinator`: one URL, or several separated by commas.
    `group`: the group to commit to.
    `query_name`: the query's `queryName`.
    `token`: bearer token for the coordinator, or a function that gives it, such as a `TokenFile`.
    `tls`: files for https.

    It listens from construction on; `close` it when the query has ended. A thread commits 0.1 to 0.5 s after a batch.
    If several batches end before a commit is done, the last one counts. A failure is logged and tried again. End
    offsets of the topics are reported with the commits, so that lag is known.

    The coordinator refuses such commits while the group has members (UNKNOWN_MEMBER_ID): a group has either members or
    a query's progress. Raises OptionError if `coordinator`, `group` or `token` cannot be used.
    """

    def __init__(
        self,
        spark: SparkSession,
        coordinator: str,
        group: str,
        query_name: str,
        *,
        token: Token | None = None,
        tls: TlsFiles | None = None,
    ) -> None:
        self._spark = spark
        self._query_name = query_name
        self._shown = ProgressCommitter(coordinators_for(coordinator, group, token, tls), group, query_name)
        spark.streams.addListener(self)

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802
        """Do nothing: no batch is complete yet."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802
        """Queue the batch's ends for the thread."""
        progress = event.progress
        if progress.name == self._query_name:
            self.note(
                _merged(ends_in(source.endOffset) for source in progress.sources),
                _merged(ends_in(source.latestOffset) for source in progress.sources),
            )

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802
        """Do nothing: no further batch is complete."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802
        """Do nothing: complete batches were reported before."""

    def note(self, ends: Ends, latest: Ends) -> None:
        """Queue these ends for the thread, and report `latest` as the end offsets of the topics."""
        self._shown.note(ends, latest)

    def close(self, timeout_ms: int = 10_000) -> bool:
        """Stop listening, and commit what is left. Returns False if that was not possible in time."""
        self._spark.streams.removeListener(self)
        return self._shown.close(timeout_ms)


def ends_in(offset: str | None) -> Ends:
    """The partitions of an offset of Spark's Kafka source; empty for any other source's, and for none."""
    try:
        value = parse_json(offset or "null")
    except ValueError:
        return {}
    if not isinstance(value, dict):
        return {}
    found = {
        topic: partitions
        for topic, partitions in value.items()
        if isinstance(partitions, dict)
        and partitions
        and all(
            whole_number(name, INT32_MAX) is not None and type(end) is int and end >= 0
            for name, end in partitions.items()
        )
    }
    return found if len(found) == len(value) else {}


def _merged(several: Any) -> Ends:
    merged: dict[str, dict[str, int]] = {}
    for ends in several:
        for topic, partitions in ends.items():
            merged.setdefault(topic, {}).update(partitions)
    return merged
