"""A small model of what surrounds the planner: the group, Spark's order of calls, and a source that only counts.

One thread. Time does not pass; what in reality takes time is an event that the test chooses. `World.between` is called
between any two calls of the planner to the outside: there the test may let anything happen, or end the process.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any

import pyarrow as pa

from rallypoint import Assignment
from rallypoint.member.errors import CoordinatorUnavailable
from rallypoint.spark_bridge.control import ReaderControl
from rallypoint.spark_bridge.errors import QueryFenced
from rallypoint.spark_bridge.offsets import INITIAL, Range, StreamOffset, TopicPartition, ranges_between
from rallypoint.spark_bridge.options import BridgeOptions, SourceOptions, StartingOffsets
from rallypoint.spark_bridge.plan import CommitOutcome, Committed
from rallypoint.spark_bridge.planner import Planner
from rallypoint.spark_bridge.sources.contract import Source
from rallypoint.spark_bridge.subscription import Subscription

TOPIC = "clicks"


class Crash(BaseException):
    """The process is gone. No `Exception`, so that nothing in the planner can catch it."""


class CallFault(Enum):
    """What becomes of one call to the coordinator."""

    NONE = "it is answered"
    UNSENT = "it never arrives"
    UNANSWERED = "it is done, and the answer is lost"


class CountedSource(Source):
    """Partitions that hold the offsets from `earliest` to `ends`, and no records."""

    name = "model"

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


@dataclass
class ModelMember:
    """A member as the group and as its own process see it, which may differ for a while.

    `known`: the group counts it in. `held`: what it owns as far as it knows; `since`: in which generation it got each.
    `joined`: it has joined for the round that is being prepared. `gate`: what it is asked to give up. `promised`: what
    it is to own after that.
    """

    member_id: str
    held: Assignment | None = None
    since: dict[TopicPartition, int] = field(default_factory=dict)
    began: int = 0
    joined: bool = False
    gate: frozenset[TopicPartition] | None = None
    promised: frozenset[TopicPartition] | None = None
    known: bool = True

    @property
    def owned(self) -> frozenset[TopicPartition]:
        return frozenset() if self.held is None else self.held.partitions

    def take(self, generation: int, partitions: frozenset[TopicPartition], protocol: str) -> None:
        if self.held is None:
            self.began = generation
        self.since = {tp: self.since.get(tp, generation) for tp in partitions}
        self.held = Assignment(generation, self.member_id, False, protocol, partitions)

    def lose(self) -> None:
        """The member hears that the group went on without it: only what it is giving up stays, to the end of that."""
        self.promised = None
        if self.gate is None:
            self.held = None
        elif self.held is not None:
            self.held = replace(self.held, partitions=self.gate)
        self.since = {tp: at for tp, at in self.since.items() if tp in self.owned}


class Group:
    """A join or a loss starts a round; a generation begins once all members have joined for it.

    Eager members give up everything first. Cooperative ones join with what they own when they hear of the round, give
    up what the new generation takes from them, and join again.
    """

    def __init__(self, world: "World") -> None:
        self._world = world
        self.generation = 0
        self.committed: dict[TopicPartition, Committed] = {}
        self.members: dict[str, ModelMember] = {}
        self.preparing = False

    @property
    def settled(self) -> bool:
        return not self.preparing and not any(member.gate or member.promised for member in self.members.values())

    def join(self, member: ModelMember) -> None:
        self.members[member.member_id] = member
        if not self.preparing:
            self._prepare()
        member.joined = True
        self._complete_if_ready()

    def remove(self, member_id: str, *, heard: bool = True) -> None:
        """Drop a member. `heard`: it knows at once, else it goes on as before until it does."""
        member = self.members.pop(member_id, None)
        if member is not None:
            member.known = False
            if heard:
                member.lose()
            if self.members:
                self._prepare()
                self._complete_if_ready()
            else:
                self.preparing = False

    def hear(self, member: ModelMember) -> None:
        """A heartbeat of the member."""
        if not member.known:
            member.lose()
        elif member.gate is None and member.promised is not None:
            member.take(self.generation, member.promised, self._protocol)
            member.promised = None
            self.join(member)
        elif self.preparing and member.gate is None and not member.joined:
            self._join_again(member)

    def acknowledge(self, member: ModelMember) -> None:
        """The member gives up what it is asked for."""
        gate, member.gate = member.gate, None
        if gate is None or member.held is None:
            return
        left = member.owned - gate
        member.since = {tp: at for tp, at in member.since.items() if tp in left}
        if not member.known or not self._world.cooperative:
            member.held = None
            if member.known:
                self.join(member)
        else:
            member.held = replace(member.held, partitions=left)

    def commit(
        self, member: ModelMember, offsets: Mapping[TopicPartition, Committed], assignment: Assignment
    ) -> CommitOutcome:
        held = member.held
        if held is None or not member.known:
            return CommitOutcome.LOST
        if not self._world.cooperative and held != assignment:
            return CommitOutcome.LOST
        generation = assignment.generation_id
        if not member.began <= generation <= held.generation_id:
            return CommitOutcome.LOST
        if any(member.since.get(tp, generation + 1) > generation for tp in offsets):
            return CommitOutcome.LOST
        for tp, one in offsets.items():
            self._world.check_commit(tp, one)
            self.committed[tp] = one
        return CommitOutcome.STORED

    @property
    def _protocol(self) -> str:
        return "cooperative-sticky" if self._world.cooperative else "range"

    def _prepare(self) -> None:
        self.preparing = True
        for member in self.members.values():
            member.joined = False
        for member in list(self.members.values()):
            if not self._world.cooperative or not self._world.lazy():
                self._join_again(member)

    def _join_again(self, member: ModelMember) -> None:
        if member.joined or member.gate is not None or member.promised is not None:
            return
        if not self._world.cooperative and member.held is not None:
            member.gate = member.owned
            return
        member.joined = True
        self._complete_if_ready()

    def _complete_if_ready(self) -> None:
        if not self.preparing or not all(member.joined for member in self.members.values()):
            return
        self.preparing = False
        self.generation += 1
        owners = self._world.choose_owners(sorted(self.members))
        claimed = {tp: member.member_id for member in self.members.values() for tp in member.owned}
        for member in self.members.values():
            wanted = frozenset((TOPIC, p) for p, owner in owners.items() if owner == member.member_id)
            mine = frozenset(tp for tp in wanted if claimed.get(tp, member.member_id) == member.member_id)
            revoked = member.owned - mine
            if revoked and member.held is not None:
                member.held = replace(member.held, generation_id=self.generation)
                member.gate, member.promised = revoked, mine
            else:
                member.take(self.generation, mine, self._protocol)


class ModelMembership:
    """A member's place as the planner sees it. A member that was dropped joins again under a new id."""

    def __init__(self, world: "World", name: str) -> None:
        self._world = world
        self._group = world.group
        self._name = name
        self._lives = 0
        self.member = ModelMember("", known=False)
        self.left = False
        self.seen: frozenset[TopicPartition] = frozenset()
        """What the member owned when the planner last looked."""
        self._refused: Assignment | None = None

    @property
    def present(self) -> Assignment | None:
        held = self.member.held
        self.seen = self.member.owned
        if held is None or (not held.partitions and self.member.promised is not None):
            return None
        return held

    def wake(self) -> None:
        """What the member does by itself, while its process lives: it hears, and joins again where it was dropped."""
        if self.left:
            return
        self._group.hear(self.member)
        if not self.member.known and self.member.held is None:
            self._lives += 1
            self.member = ModelMember(f"{self._name}-{self._lives}")
            self._group.join(self.member)

    @property
    def revocation(self) -> frozenset[TopicPartition] | None:
        return self.member.gate

    def assignment(self, wait_ms: int, *, newer_than: int, interrupted: Callable[[], bool]) -> Assignment | None:
        self._world.between(self._name)
        if self._lives == 0 or not self._world.lazy():
            self.wake()
        present = self.present
        if present == self._refused:
            # The wait is over, and the member has heard of what had happened.
            self._refused = None
            self.wake()
            return None
        return None if present is None or present.generation_id <= newer_than else present

    def lasts(self, assignment: Assignment) -> bool:
        return self.present == assignment

    def acknowledge(self) -> None:
        self._world.between(self._name)
        self._group.acknowledge(self.member)

    def commit(self, offsets: Mapping[TopicPartition, Committed], assignment: Assignment) -> CommitOutcome:
        self._world.between(self._name)
        if not offsets:
            return CommitOutcome.STORED
        trouble = self._world.trouble()
        if trouble is CallFault.UNSENT:
            return CommitOutcome.LATER
        outcome = self._group.commit(self.member, offsets, assignment)
        if outcome is CommitOutcome.LOST:
            self._refused = assignment
        self._world.between(self._name)
        return CommitOutcome.LATER if trouble is CallFault.UNANSWERED else outcome

    def committed(self) -> dict[TopicPartition, Committed]:
        self._world.between(self._name)
        if self._world.trouble() is not CallFault.NONE:
            raise CoordinatorUnavailable("nobody answers")
        return dict(self._group.committed)

    def use_blocking_calls(self) -> None:
        """Time does not pass here."""

    def leave(self, reason: str) -> None:
        self.left = True
        self._group.remove(self.member.member_id)
        self.member.held = self.member.gate = None


class Query:
    """One driver: Spark's micro-batch engine around one planner, on a checkpoint that another driver may share."""

    def __init__(
        self,
        world: "World",
        name: str,
        checkpoint: Checkpoint,
        limit: int | None,
        control: ReaderControl | None = None,
    ) -> None:
        self._world = world
        self._checkpoint = checkpoint
        self._limit = limit
        self.name = name
        self.membership = ModelMembership(world, name)
        source = CountedSource(world)
        self.planner = Planner(
            world.options,
            source,
            self.membership,
            control or ReaderControl(None, name),
            subscription=Subscription(world.options, source),
            draw_checkpoint_id=world.draw_checkpoint_id,
            now_ms=world.now_ms,
        )
        # What an engine knows of its checkpoint it reads once, when it begins.
        self._next = len(checkpoint.offsets)
        self._replay = self._next > checkpoint.complete
        self.dead = self.fenced = False
        self.busy = False

    def trigger(self) -> bool:
        """One trigger, or what is left to do of a batch that an earlier driver logged. True if a batch ran."""
        self.busy = True
        try:
            return self._trigger()
        except Crash:
            self.dead = True
            return False
        except QueryFenced:
            self.dead = self.fenced = True
            self.planner.close()
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
        if end is not start:
            planned = ranges_between(StreamOffset.from_dict(start), StreamOffset.from_dict(end))
            assert {records[:2] for records in planned} <= self.membership.seen, "planned what the member does not own"
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

    def __init__(self, partitions: int, starting: int = -2, *, cooperative: bool = False) -> None:
        self.cooperative = cooperative
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
        self.lazy: Callable[[], bool] = lambda: False
        self.trouble: Callable[[], CallFault] = lambda: CallFault.NONE
        self.now_ms: Callable[[], float] = lambda: 0.0
        self._checkpoint_ids = 0

    def _in_turn(self, members: list[str]) -> dict[int, str]:
        return {p: members[p % len(members)] for p in range(len(self.ends))}

    def draw_checkpoint_id(self) -> str:
        self._checkpoint_ids += 1
        return f"checkpoint-{self._checkpoint_ids}"

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
