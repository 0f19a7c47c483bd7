"""Checks whether a query still owns the batch it writes, for sinks that keep no positions.

The checkpoint says which partitions a batch contains and with which epoch its query took them. The group's committed
offsets say who took them last. Nothing here imports Spark: it uses a DataFrame's session, columns and `where`.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from rallypoint.member.tls_files import TlsFiles
from rallypoint.member.tokens import Token
from rallypoint.spark_bridge.coordinator_calls import coordinators_for
from rallypoint.spark_bridge.errors import BridgeError
from rallypoint.spark_bridge.offset_log import offsets_in
from rallypoint.spark_bridge.offsets import CommitNote, Range, StreamOffset, TopicPartition, ranges_between
from rallypoint.spark_bridge.spark_connect import refuse_connect

ReadText = Callable[[Any, str], str | None]


class BatchFenced(BridgeError):  # noqa: N818
    """Other members have taken partitions of this batch: those in `partitions`."""

    def __init__(self, batch_id: int, partitions: Iterable[TopicPartition]) -> None:
        self.batch_id = batch_id
        self.partitions = frozenset(partitions)
        names = ", ".join(f"{topic}-{partition}" for topic, partition in sorted(self.partitions))
        super().__init__(
            f"batch {batch_id} has records of {names}, which another driver has taken since it was planned"
        )

    def __reduce__(self) -> tuple[type["BatchFenced"], tuple[int, frozenset[TopicPartition]]]:
        return BatchFenced, (self.batch_id, self.partitions)


class FencingCheck:
    """Checks the batches of one query for partitions that other members have taken since.

    `coordinator`: one URL, or several separated by commas.
    `group`: the query's own consumer group.
    `checkpoint`: the query's checkpointLocation, in any file system that Spark reads.
    `token`: bearer token for the coordinator, or a function that gives it, such as a `TokenFile`.
    `tls`: files for https.
    `read_text(frame, path)`: reads a file, or returns None if it does not exist; by default through Spark.

    Each call reads two small files and asks the coordinator once. It raises `coordinator_calls.NotAnswered` if no
    coordinator answers, and BridgeError if the checkpoint cannot be read or the batch belongs to another group. Then
    nothing is known, and the batch should fail.
    """

    def __init__(
        self,
        coordinator: str,
        group: str,
        *,
        checkpoint: str,
        token: Token | None = None,
        tls: TlsFiles | None = None,
        read_text: ReadText | None = None,
    ) -> None:
        """Raises OptionError if `coordinator`, `group` or `token` cannot be used."""
        self._coordinators = coordinators_for(coordinator, group, token, tls)
        self._group = group
        self._checkpoint = checkpoint.rstrip("/")
        self._read_text = read_text or read_through_spark

    def lost(self, frame: Any, batch_id: int) -> frozenset[TopicPartition]:
        """The partitions with records in this batch that another member has taken since it was planned.

        The new owner continues at the group's committed offset, which is at or before the beginning of this batch. It
        reads the records again, so a sink can leave them out without losing any.
        """
        lost: set[TopicPartition] = set()
        for start, end in self._planned(frame, batch_id):
            lost |= taken_by_others(end, ranges_between(start, end), self._notes)
        return frozenset(lost)

    def check(self, frame: Any, batch_id: int) -> None:
        """Raise `BatchFenced` if a partition of the batch is lost, which ends the query.

        After a restart the query replays the same batch. Use `only_owned` to get past it.
        """
        if lost := self.lost(frame, batch_id):
            raise BatchFenced(batch_id, lost)

    def only_owned(self, frame: Any, batch_id: int) -> Any:
        """The batch without the records of lost partitions. It needs the columns `topic` and `partition`."""
        return without(frame, self.lost(frame, batch_id))

    def _planned(self, frame: Any, batch_id: int) -> list[tuple[StreamOffset, StreamOffset]]:
        """Where the batch starts and ends, for each source of this bridge in the query."""
        ends = self._of_group(batch_id, self._offsets(frame, batch_id))
        if ends is None:
            raise BridgeError(
                f"the checkpoint {self._checkpoint} has no batch {batch_id}: it must be this query's checkpointLocation"
            )
        starts = self._offsets(frame, batch_id - 1) or {}
        return [(starts.get(name, StreamOffset()), end) for name, end in ends.items()]

    def _of_group(self, batch_id: int, ends: dict[str, StreamOffset] | None) -> dict[str, StreamOffset] | None:
        """The offsets that were planned in this check's group. Checkpoints of earlier versions do not name a group.

        A batch that was planned in another group is refused, even if the query used that group before and replays the
        batch now: only that group knows who has read its records since.
        """
        if not ends:
            return ends
        found = {name: end for name, end in ends.items() if end.group in {"", self._group}}
        if not found:
            groups = " and ".join(sorted({repr(end.group) for end in ends.values()}))
            raise BridgeError(
                f"batch {batch_id} of the checkpoint {self._checkpoint} was planned in the group {groups}, and this"
                f" check is for {self._group!r}: FencingCheck must have the query's own group; if that was changed,"
                f" run the query once more in the group {groups} until it ends in good order, or give it a new"
                " checkpointLocation"
            )
        return found

    def _offsets(self, frame: Any, batch_id: int) -> dict[str, StreamOffset] | None:
        if batch_id < 0:
            return None
        text = self._read_text(frame, f"{self._checkpoint}/offsets/{batch_id}")
        return None if text is None else offsets_in(text)

    def _notes(self, topics: Iterable[str]) -> dict[TopicPartition, CommitNote | None]:
        return {
            (topic, partition): CommitNote.from_text(entry.metadata)
            for topic, partitions in self._coordinators.fetch(self._group, topics).offsets.items()
            for partition, entry in partitions.items()
        }


def without(frame: Any, lost: Iterable[TopicPartition]) -> Any:
    """The rows of all other partitions. Compares columns: a setting of Spark changes how literals in SQL are read."""
    by_topic: dict[str, list[int]] = {}
    for topic, partition in sorted(lost):
        by_topic.setdefault(topic, []).append(partition)
    for topic, partitions in by_topic.items():
        frame = frame.where(~((frame["topic"] == topic) & frame["partition"].isin(partitions)))
    return frame


def taken_by_others(
    end: StreamOffset,
    ranges: Iterable[Range],
    notes_of: Callable[[Iterable[str]], Mapping[TopicPartition, CommitNote | None]],
) -> set[TopicPartition]:
    """The partitions with records in the batch whose note is not the one that this query took them with.

    A reset leaves no note, so its partitions count as taken. A partition without any committed entry does not: its
    entry expired or was deleted, and no other member has one.
    """
    planned = {(one.topic, one.partition) for one in ranges}
    if not planned:
        return set()
    notes = notes_of(sorted({topic for topic, _ in planned}))
    return {tp for tp in planned if tp in notes and not _is_own(end, tp, notes[tp])}


def _is_own(end: StreamOffset, tp: TopicPartition, note: CommitNote | None) -> bool:
    return note is not None and (note.checkpoint_id, note.epoch) == (end.checkpoint_id, end.partitions[tp].epoch)


def read_through_spark(frame: Any, path: str) -> str | None:
    """Read a text file through Hadoop's file systems, which hold every checkpoint. None if it does not exist."""
    refuse_connect(frame, "FencingCheck")
    spark = frame.sparkSession
    location = spark._jvm.org.apache.hadoop.fs.Path(path)
    files = location.getFileSystem(spark._jsparkSession.sessionState().newHadoopConf())
    if not files.exists(location):
        return None
    stream = files.open(location)
    try:
        text: str = spark._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8")
        return text
    finally:
        stream.close()
