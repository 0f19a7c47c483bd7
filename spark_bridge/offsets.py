"""The offset that Spark keeps in its checkpoint, and the note that stands beside each committed offset.

An offset is a plain dict, for Spark writes it as JSON and compares it **as text**: keys are sorted, and whoever has
nothing new hands back the very dict it was given.

    {"lineage": "9f…", "partitions": {"clicks": {"0": {"end": 42, "epoch": 7}}}, "taken": {"clicks": {"0": 17}},
     "version": 1}

`partitions` says up to where a batch reads each partition of this query, and in which generation the query took it.
`taken` holds the starts of the partitions that were taken with this very batch; all others start where the offset
before ended. So two neighbouring offsets describe a batch completely, and a replay reads exactly the same ranges.
The initial offset is the empty dict. Nothing here reads a clock, a source or the coordinator.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from spark_bridge.errors import BridgeError

TopicPartition = tuple[str, int]

VERSION = 1
"""Of the form above. A reader refuses a higher one: its writer knew something that must not be ignored."""

INITIAL: dict[str, Any] = {}
"""What `initialOffset` returns. It is asked for again and again and never logged, so it says nothing."""


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
    """The typed form. `lineage` is drawn at the checkpoint's first plan and never changes; empty in the initial one."""

    lineage: str = ""
    partitions: Mapping[TopicPartition, Position] = field(default_factory=dict)
    taken: Mapping[TopicPartition, int] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """What Spark logs: keys in a fixed order at every level."""
        positions: dict[str, dict[str, Any]] = {}
        for (topic, partition), position in sorted(self.partitions.items()):
            positions.setdefault(topic, {})[str(partition)] = {"end": position.end, "epoch": position.epoch}
        starts: dict[str, dict[str, int]] = {}
        for (topic, partition), start in sorted(self.taken.items()):
            starts.setdefault(topic, {})[str(partition)] = start
        return {"lineage": self.lineage, "partitions": positions, "taken": starts, "version": VERSION}

    @classmethod
    def from_dict(cls, value: Mapping[str, Any]) -> "StreamOffset":
        """Read what `to_dict` wrote. BridgeError if it is something else: a checkpoint of another source, or newer."""
        if not value:
            return cls()
        if value.get("version") != VERSION:
            raise BridgeError(
                f"the checkpoint holds the offset {json.dumps(dict(value))[:200]}, which this version of the bridge"
                " cannot read; use the version that wrote it, or a new checkpointLocation"
            )
        return cls(
            lineage=value["lineage"],
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
        )


def ranges_between(start: StreamOffset, end: StreamOffset) -> list[Range]:
    """The ranges of the batch between two neighbouring offsets, in order of topic and partition, none of them empty.

    Pure, so that a replay gives the same answer. Equal offsets make an empty batch: the `taken` of `end` belongs to
    the batch that led to it. A partition of `end` that neither `start` nor `taken` knows is a BridgeError, for such a
    pair was never planned.
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
    """One process that plans for a checkpoint: the generation in which it first took something, and a random name."""

    begun: int
    reader_id: str


NO_RUN = Run(-1, "")
"""Of notes that were written before runs were noted."""


@dataclass(frozen=True, slots=True)
class CommitNote:
    """The metadata beside a committed offset: who took the partition, and when.

    `topic_partitions` is the number of partitions the topic had when the group first committed to it: a partition
    beyond was added later, and starts at its earliest record even where others started at the latest. `run` tells two
    processes on one checkpoint from each other; whether a position counts does not depend on it.
    """

    lineage: str
    epoch: int
    topic_partitions: int
    run: Run = NO_RUN

    def to_text(self) -> str:
        """Compact, far below the 4,096 characters that a coordinator takes."""
        value: dict[str, Any] = {
            "epoch": self.epoch,
            "lineage": self.lineage,
            "topic_partitions": self.topic_partitions,
        }
        if self.run != NO_RUN:
            value["run"] = list(self.run)
        return json.dumps(value, separators=(",", ":"), sort_keys=True)

    @classmethod
    def from_text(cls, text: str) -> "CommitNote | None":
        """The note, or None where another kind of member, an operator's reset, or nobody wrote the metadata."""
        try:
            value = json.loads(text)
        except ValueError:
            return None
        if not isinstance(value, dict):
            return None
        lineage, epoch, count = value.get("lineage"), value.get("epoch"), value.get("topic_partitions")
        if not isinstance(lineage, str) or not isinstance(epoch, int) or not isinstance(count, int):
            return None
        return cls(lineage, epoch, count, _run(value.get("run")))


def _run(value: Any) -> Run:
    match value:
        case [int() as begun, str() as reader_id]:
            return Run(begun, reader_id)
    return NO_RUN
