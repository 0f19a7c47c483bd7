"""A small model of what surrounds the planner: the group, Spark's order of calls, and a source that only counts.

One thread. Time does not pass; what in reality takes time is an event that the test chooses. `World.between` is called
between any two calls of the planner to the outside: there the test may let anything happen, or end the process.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from member import Assignment
from spark_bridge.control import ReaderControl
from spark_bridge.offsets import INITIAL, Range, StreamOffset, TopicPartition, ranges_between
from spark_bridge.options import BridgeOptions, SourceOptions, StartingOffsets
from spark_bridge.plan import Committed
from spark_bridge.planner import Planner
from spark_bridge.sources.contract import Source

TOPIC = "clicks"


class Crash(BaseException):
    """The process is gone. No `Exception`, so that nothing in the planner can catch it."""


class CountedSource(Source):
    """Partitions that hold the offsets from `earliest` to `ends`, and no records."""

    def __init__(self, world: "World") -> None:
        self._world = world

    def partitions(self, topics: Iterable[str]) -> dict[str, int]:
        return {topic: len(self._world.ends) for topic in topics}

    def earliest(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return dict.fromkeys(partitions, 0)

    def latest(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return {tp: self._world.ends[tp[1]] for tp in partitions}

    def offsets_for_times(self, times_ms: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        return dict.fromkeys(times_ms, 0)

    def read(self, records: Range) -> Iterator[pa.RecordBatch]:
        raise AssertionError("the model reads nothing")


@dataclass
class Checkpoint:
    """What Spark writes: the offsets of all batches, and how many of them are complete."""

    name: str
    offsets: list[str] = field(default_factory=list)
    complete: int = 0

    def offset(self, batch: int) -> dict[str, Any]:
        value: dict[str, Any] = json.loads(self.offsets[batch]) if batch >= 0 else dict(INITIAL)
        return value


class Group:
    """An eager group: a join or a loss starts a rebalance, and a generation begins once all members have given up."""

    def __init__(self, world: "World") -> None:
        self._world = world
        self.generation = 0
        self.committed: dict[TopicPartition, Committed] = {}
        self.members: dict[str, Assignment | None] = {}
        self.preparing = False
        self.rejoined: set[str] = set()

    def join(self, member_id: str) -> None:
        self.members.setdefault(member_id, None)
        self.preparing = True
        self.rejoined.add(member_id)
        self.complete_if_ready()

    def remove(self, member_id: str) -> None:
        if member_id in self.members:
            del self.members[member_id]
            self.rejoined.discard(member_id)
            self.preparing = bool(self.members)
            self.complete_if_ready()

    def complete_if_ready(self) -> None:
        if not self.preparing or self.rejoined < self.members.keys():
            return
        self.generation += 1
        owners = self._world.choose_owners(sorted(self.members))
        for member_id in self.members:
            mine = frozenset((TOPIC, p) for p, owner in owners.items() if owner == member_id)
            self.members[member_id] = Assignment(self.generation, member_id, False, "range", mine)
        self.preparing = False
        self.rejoined = set()

    def commit(self, offsets: Mapping[TopicPartition, Committed], assignment: Assignment) -> bool:
        known = self.members.get(assignment.member_id)
        gone = known != assignment or assignment.member_id in self.rejoined
        if gone or assignment.generation_id != self.generation:
            return False
        for tp, one in offsets.items():
            self._world.check_commit(tp, one)
            self.committed[tp] = one
        return True


class ModelPlace:
    """A member's place as the planner sees it. A member that was dropped joins again under a new id."""

    def __init__(self, world: "World", name: str) -> None:
        self._world = world
        self._group = world.group
        self._name = name
        self._lives = 0
        self.member_id = ""
        self.left = False
        self._given_up: Assignment | None = None

    @property
    def present(self) -> Assignment | None:
        return None if self.member_id in self._group.rejoined else self._group.members.get(self.member_id)

    @property
    def revocation(self) -> Assignment | None:
        return self.present if self._group.preparing else None

    def assignment(self, wait_ms: int, *, interrupted: Callable[[], bool]) -> Assignment | None:
        self._world.between(self._name)
        if self.member_id not in self._group.members and not self.left:
            self._lives += 1
            self.member_id = f"{self._name}-{self._lives}"
            self._group.join(self.member_id)
        present = self.present
        return None if present is None or present == self._given_up else present

    def acknowledge(self) -> None:
        self._world.between(self._name)
        if self.revocation is not None:
            self._given_up = self.present
            self._group.join(self.member_id)

    def commit(self, offsets: Mapping[TopicPartition, Committed], assignment: Assignment) -> bool:
        self._world.between(self._name)
        done = self._group.commit(offsets, assignment)
        if not done:
            self._given_up = assignment
        self._world.between(self._name)
        return done

    def committed(self) -> dict[TopicPartition, Committed]:
        self._world.between(self._name)
        return dict(self._group.committed)

    def leave(self, reason: str) -> None:
        self.left = True
        self._group.remove(self.member_id)


class Query:
    """One driver: Spark's micro-batch engine around one planner, on a checkpoint that another driver may share."""

    def __init__(self, world: "World", name: str, checkpoint: Checkpoint, limit: int | None) -> None:
        self._world = world
        self._checkpoint = checkpoint
        self._limit = limit
        self.name = name
        self.place = ModelPlace(world, name)
        self.planner = Planner(
            world.options, CountedSource(world), self.place, ReaderControl(None, name), draw_lineage=world.draw_lineage
        )
        # What an engine knows of its checkpoint it reads once, when it begins.
        self._next = len(checkpoint.offsets)
        self._replay = self._next > checkpoint.complete
        self.dead = False
        self.busy = False

    def trigger(self) -> bool:
        """One trigger, or what is left to do of a batch that an earlier driver logged. True if a batch ran."""
        self.busy = True
        try:
            return self._trigger()
        except Crash:
            self.dead = True
            return False
        finally:
            self.busy = False

    def _trigger(self) -> bool:
        if self._replay:
            self._run(self._next - 1)
            self._replay = False
            return True
        start = self._checkpoint.offset(self._next - 1)
        end = self.planner.latest_offset(start, self._limit)
        text = json.dumps(end)
        if text == json.dumps(start) and self._next > 0:
            return False
        self._world.between(self.name)
        if len(self._checkpoint.offsets) != self._next:
            # Another driver has written this batch: Spark ends the query.
            raise Crash
        self._checkpoint.offsets.append(text)
        self._next += 1
        self._run(self._next - 1)
        return True

    def _run(self, batch: int) -> None:
        start, end = self._checkpoint.offset(batch - 1), self._checkpoint.offset(batch)
        self._world.between(self.name)
        ranges = ranges_between(StreamOffset.from_dict(start), StreamOffset.from_dict(end))
        assert ranges == ranges_between(StreamOffset.from_dict(start), StreamOffset.from_dict(end))
        for records in ranges:
            self._world.write(records, (self._checkpoint.name, batch))
            self._world.between(self.name)
        self._checkpoint.complete = max(self._checkpoint.complete, batch + 1)
        self._world.between(self.name)


class World:
    """Everything there is, with the promises that are checked after each step."""

    def __init__(self, partitions: int, starting: int = -2) -> None:
        self.ends = [0] * partitions
        self.written: list[list[set[tuple[str, int]]]] = [[] for _ in range(partitions)]
        """For each record the batches that wrote it: a replay of a batch is the same batch."""
        self.group = Group(self)
        self.options = BridgeOptions(
            coordinators=("http://model",),
            group_id="g",
            source=SourceOptions("model", (TOPIC,)),
            starting=StartingOffsets(starting),
        )
        self.between: Callable[[str], None] = lambda name: None
        self.choose_owners: Callable[[list[str]], dict[int, str]] = self._in_turn
        self._lineages = 0

    def _in_turn(self, members: list[str]) -> dict[int, str]:
        return {p: members[p % len(members)] for p in range(len(self.ends))}

    def draw_lineage(self) -> str:
        self._lineages += 1
        return f"lineage-{self._lineages}"

    def produce(self, partition: int, records: int) -> None:
        self.ends[partition] += records
        self.written[partition] += [set() for _ in range(records)]

    def write(self, records: Range, batch: tuple[str, int]) -> None:
        """A sink that keeps everything."""
        assert 0 <= records.start < records.end <= self.ends[records.partition]
        for offset in range(records.start, records.end):
            self.written[records.partition][offset].add(batch)

    def reset(self, partition: int, offset: int) -> None:
        """An operator resets an empty group to an earlier offset: what comes after is to be written again."""
        committed = self.group.committed.get((TOPIC, partition))
        if committed is not None and committed.offset >= offset and not self.group.members:
            self.group.committed[TOPIC, partition] = Committed(offset)
            for batches in self.written[partition][offset:]:
                batches.clear()

    def check_commit(self, tp: TopicPartition, one: Committed) -> None:
        """A commit never covers what is not written, and never goes back."""
        missing = [offset for offset in range(one.offset) if not self.written[tp[1]][offset]]
        assert not missing, f"{tp} is committed up to {one.offset}, but {missing} were never written"
        before = self.group.committed.get(tp)
        assert before is None or before.offset <= one.offset, f"{tp} goes back from {before} to {one}"
