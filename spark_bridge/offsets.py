"""The offset that Spark keeps in its checkpoint, and the note in the metadata of each committed offset.

An offset is a plain dict. Spark writes it as JSON and compares it **as text**, so keys are sorted, and the planner
returns the very dict it was given if there is nothing new.

    {"group": "clicks-to-lake", "lineage": "9f…", "partitions": {"clicks": {"0": {"end": 42, "epoch": 7}}},
     "taken": {"clicks": {"0": 17}}, "version": 1}

`group`: the consumer group; earlier versions did not write it.
`lineage`: the checkpoint id. The key is part of the stored form.
`partitions`: up to where a batch reads each partition of this query, and in which generation the query took it.
`taken`: the starts of the partitions that were taken with this batch; all others start where the previous offset ended.
`turn`: optional, a nonce that makes the text differ, so that Spark runs a batch without records and asks all sources of
the query again.

So two neighbouring offsets describe a batch completely, and a replay reads exactly the same ranges. The initial offset
is the empty dict.

Nothing here reads a clock, a source or the coordinator.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from rallypoint.spark_bridge.errors import BridgeError
from rallypoint.spark_bridge.json_text import parse_json

TopicPartition = tuple[str, int]

VERSION = 1
"""The version of the form above. Readers refuse a higher one, whose meaning they do not know."""

INITIAL: dict[str, Any] = {}
"""What `initialOffset` returns. Spark asks for it repeatedly and never logs it, so it is empty."""


class Position(NamedTuple):
    """The next offset to read of a partition, and the generation in which the query took it."""

    end: int
    epoch: int


class Range(NamedTuple):
    """Records of one partition from `start` up to, not including, `end`."""

    topic: str
    partition: int
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class StreamOffset:
    """The typed form. `checkpoint_id` is drawn at the checkpoint's first plan and never changes.

    The initial offset has an empty one. Its key in the JSON form is `lineage`.
    """

    checkpoint_id: str = ""
    partitions: Mapping[TopicPartition, Position] = field(default_factory=dict)
    taken: Mapping[TopicPartition, int] = field(default_factory=dict)
    group: str = ""

    def to_dict(self) -> dict[str, Any]:
        """What Spark logs: keys in a fixed order at every level."""
        positions: dict[str, dict[str, Any]] = {}
        for (topic, partition), position in sorted(self.partitions.items()):
            positions.setdefault(topic, {})[str(partition)] = {"end": position.end, "epoch": position.epoch}
        starts: dict[str, dict[str, int]] = {}
        for (topic, partition), start in sorted(self.taken.items()):
            starts.setdefault(topic, {})[str(partition)] = start
        of = {"group": self.group} if self.group else {}
        return {**of, "lineage": self.checkpoint_id, "partitions": positions, "taken": starts, "version": VERSION}

    @classmethod
    def from_dict(cls, value: Mapping[str, Any]) -> "StreamOffset":
        """Read what `to_dict` wrote. BridgeError for anything else: a checkpoint of another source, or a newer one."""
        if not value:
            return cls()
        if value.get("version") != VERSION:
            raise BridgeError(
                f"the checkpoint holds the offset {json.dumps(dict(value))[:200]}, which this version of the bridge"
                " cannot read; use the version that wrote it, or a new checkpointLocation"
            )
        return cls(
            checkpoint_id=value["lineage"],
            partitions={
                (topic, int(partition)): Position(entry["end"], entry["epoch"])
                for topic, entries in value["partitions"].items()
                for partition, entry in entries.items()
            },
            taken={
                (topic, int(partition)): start
                for topic, starts in value["taken"].items()
                for partition, start in starts.items()
            },
            group=value.get("group", ""),
        )


def with_new_nonce(value: Mapping[str, Any], checkpoint_id: str) -> dict[str, Any]:
    """The same offset in another text; for the initial one, that of a checkpoint without partitions."""
    same = dict(value) or StreamOffset(checkpoint_id).to_dict()
    return dict(sorted({**same, "turn": same.get("turn", 0) + 1}.items()))


def ranges_between(start: StreamOffset, end: StreamOffset) -> list[Range]:
    """The ranges of the batch between two neighbouring offsets, in order of topic and partition, none of them empty.

    Equal offsets make an empty batch: the `taken` of `end` belongs to the batch that led to it. BridgeError if neither
    `start` nor `taken` knows a partition of `end`, because such a pair was never planned.
    """
    if start == end:
        return []
    ranges: list[Range] = []
    for tp, position in sorted(end.partitions.items()):
        if tp in end.taken:
            first = end.taken[tp]
        elif tp in start.partitions:
            first = start.partitions[tp].end
        else:
            raise BridgeError(f"the checkpoint is damaged: nothing says where {tp[0]}-{tp[1]} starts")
        if first > position.end:
            raise BridgeError(f"the checkpoint is damaged: {tp[0]}-{tp[1]} goes back from {first} to {position.end}")
        if first < position.end:
            ranges.append(Range(*tp, first, position.end))
    return ranges


class Run(NamedTuple):
    """One process that plans for a checkpoint.

    `first_generation`: the generation in which it first took a partition.
    `reader_id`: its random id.
    """

    first_generation: int
    reader_id: str


NO_RUN = Run(-1, "")
"""The run of notes that were written by versions without runs."""


@dataclass(frozen=True, slots=True)
class CommitNote:
    """The metadata of a committed offset: which query took the partition, and when.

    `checkpoint_id`: the checkpoint of that query; stored under the key `lineage`.
    `epoch`: the generation in which it took the partition.
    `topic_partitions`: how many partitions the topic had when the group first committed to it. A partition beyond that
    was added later, and starts at its earliest record even if others started at the latest.
    `run`: distinguishes two processes on one checkpoint. It does not affect whether a position counts.
    """

    checkpoint_id: str
    epoch: int
    topic_partitions: int
    run: Run = NO_RUN

    def to_text(self) -> str:
        """Compact JSON, far below the 4,096 characters that a coordinator accepts."""
        value: dict[str, Any] = {
            "epoch": self.epoch,
            "lineage": self.checkpoint_id,
            "topic_partitions": self.topic_partitions,
        }
        if self.run != NO_RUN:
            value["run"] = list(self.run)
        return json.dumps(value, separators=(",", ":"), sort_keys=True)

    @classmethod
    def from_text(cls, text: str) -> "CommitNote | None":
        """The note, or None if another kind of member, an operator's reset, or nobody wrote the metadata."""
        try:
            value = parse_json(text)
        except ValueError:
            return None
        if not isinstance(value, dict):
            return None
        checkpoint_id, epoch, count = value.get("lineage"), value.get("epoch"), value.get("topic_partitions")
        if not isinstance(checkpoint_id, str) or not isinstance(epoch, int) or not isinstance(count, int):
            return None
        return cls(checkpoint_id, epoch, count, _run(value.get("run")))


def _run(value: Any) -> Run:
    match value:
        case [int() as first_generation, str() as reader_id]:
            return Run(first_generation, reader_id)
    return NO_RUN
