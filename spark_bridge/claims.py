"""Whether the batch that a query writes is still its own: a look at the group, for sinks that keep no positions.

The checkpoint says which partitions a batch has and with which epoch its query took them; the group's committed offsets
say who took them last. Nothing here imports Spark: of a DataFrame it needs the session behind it, and `where`.
"""

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any
from urllib.parse import quote, urlencode

from spark_bridge.coordinator_calls import Coordinators
from spark_bridge.errors import BridgeError
from spark_bridge.offsets import CommitNote, Range, StreamOffset, TopicPartition, ranges_between

ReadText = Callable[[Any, str], str | None]


class NotMine(BridgeError):  # noqa: N818
    """Others have taken partitions of this batch. `partitions` says which."""

    def __init__(self, batch_id: int, partitions: Iterable[TopicPartition]) -> None:
        self.batch_id = batch_id
        self.partitions = frozenset(partitions)
        names = ", ".join(f"{topic}-{partition}" for topic, partition in sorted(self.partitions))
        super().__init__(
            f"batch {batch_id} has records of {names}, which another driver has taken since it was planned"
        )

    def __reduce__(self) -> tuple[type["NotMine"], tuple[int, frozenset[TopicPartition]]]:
        return NotMine, (self.batch_id, self.partitions)


class Claims:
    """The claims of one query: `group` at `coordinator` (one URL or several, with commas between), and its
    `checkpoint`, in any file system that Spark reads.

    Each call reads two small files and asks the coordinator once. It raises `coordinator_calls.NotAnswered` where no
    coordinator answers: then nothing is known, and the batch should fail.
    """

    def __init__(
        self,
        coordinator: str,
        group: str,
        *,
        checkpoint: str,
        token: str | None = None,
        read_text: ReadText | None = None,
    ) -> None:
        """`read_text(frame, path)` reads a file, or gives None where there is none; by default through Spark."""
        urls = tuple(url.strip() for url in coordinator.split(",") if url.strip())
        self._coordinators = Coordinators(urls, token)
        self._group = group
        self._checkpoint = checkpoint.rstrip("/")
        self._read_text = read_text or read_through_spark

    def lost(self, frame: Any, batch_id: int) -> frozenset[TopicPartition]:
        """The partitions with records in this batch that somebody else has taken since it was planned.

        Whoever took one goes on at the group's committed offset, which is at or before the beginning of this batch: so
        its records are read there again, and a sink may leave them out without a loss.
        """
        lost: set[TopicPartition] = set()
        for start, end in self._planned(frame, batch_id):
            lost |= taken_by_others(end, ranges_between(start, end), self._notes)
        return frozenset(lost)

    def check(self, frame: Any, batch_id: int) -> None:
        """Raise `NotMine` where a partition of the batch is lost. The query ends by that; started again, it comes back
        with the same batch, and gets past it only with `only_mine`, or once the sink knows better.
        """
        if lost := self.lost(frame, batch_id):
            raise NotMine(batch_id, lost)

    def only_mine(self, frame: Any, batch_id: int) -> Any:
        """The batch without the records that now are others' to write. It needs its columns `topic` and `partition`."""
        by_topic: dict[str, list[int]] = {}
        for topic, partition in sorted(self.lost(frame, batch_id)):
            by_topic.setdefault(topic, []).append(partition)
        for topic, partitions in by_topic.items():
            quoted = topic.replace("\\", "\\\\").replace("'", "\\'")
            frame = frame.where(f"NOT (topic = '{quoted}' AND partition IN ({', '.join(map(str, partitions))}))")
        return frame

    def _planned(self, frame: Any, batch_id: int) -> list[tuple[StreamOffset, StreamOffset]]:
        """Where the batch starts and ends, for each source of this bridge in the query."""
        ends = self._offsets(frame, batch_id)
        if ends is None:
            raise BridgeError(
                f"the checkpoint {self._checkpoint} has no batch {batch_id}: it must be this query's checkpointLocation"
            )
        starts = self._offsets(frame, batch_id - 1) or {}
        return [(starts.get(place, StreamOffset()), end) for place, end in ends.items()]

    def _offsets(self, frame: Any, batch_id: int) -> dict[int, StreamOffset] | None:
        if batch_id < 0:
            return None
        text = self._read_text(frame, f"{self._checkpoint}/offsets/{batch_id}")
        return None if text is None else offsets_in(text)

    def _notes(self, topics: Iterable[str]) -> dict[TopicPartition, CommitNote | None]:
        query = urlencode([("topic", topic) for topic in topics])
        answer = self._coordinators.ask("GET", f"/v1/groups/{quote(self._group, safe='')}/offsets?{query}")
        return {
            (topic, int(partition)): CommitNote.from_text(entry.get("metadata") or "")
            for topic, partitions in answer["offsets"].items()
            for partition, entry in partitions.items()
        }


def offsets_in(text: str) -> dict[int, StreamOffset]:
    """The offsets of this bridge's sources in a file of Spark's offset log, by the source's place in the query.

    A version, a line of metadata, then one line a source: its offset, or a dash.
    """
    found: dict[int, StreamOffset] = {}
    for place, line in enumerate(text.splitlines()[2:]):
        try:
            value = json.loads(line)
        except ValueError:
            continue
        if isinstance(value, dict) and {"lineage", "partitions", "taken"} <= value.keys():
            found[place] = StreamOffset.from_dict(value)
    return found


def taken_by_others(
    end: StreamOffset,
    ranges: Iterable[Range],
    notes_of: Callable[[Iterable[str]], Mapping[TopicPartition, CommitNote | None]],
) -> set[TopicPartition]:
    """Of the partitions with records in the batch, those whose note is not the one with which this query took them.

    A reset has no note, so what it is about counts as taken. A partition that the group does not know at all does not:
    its entry expired or was deleted, and nobody else has one.
    """
    planned = {(one.topic, one.partition) for one in ranges}
    if not planned:
        return set()
    notes = notes_of(sorted({topic for topic, _ in planned}))
    return {tp for tp in planned if tp in notes and not _is_own(end, tp, notes[tp])}


def _is_own(end: StreamOffset, tp: TopicPartition, note: CommitNote | None) -> bool:
    return note is not None and (note.lineage, note.epoch) == (end.lineage, end.partitions[tp].epoch)


def read_through_spark(frame: Any, path: str) -> str | None:
    """A text file by Hadoop's file systems, hence wherever a checkpoint may be."""
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
