"""A group of one member without a service. A test moves it by hand; ownership is that of the real member.

Nothing here knows a clock or a socket.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from rallypoint.member.assignment import Assignment
from rallypoint.member.committable import checked
from rallypoint.member.consumer.contract import AssignmentHook, Counts, Offsets, TopicPartition
from rallypoint.member.core.ownership import Ownership
from rallypoint.member.errors import CallbackFailed, FatalError, IllegalGeneration, MemberClosed, MemberError
from rallypoint.member.observer import Observer
from rallypoint.member.options import MemberOptions
from rallypoint.protocol.messages import CommittedOffset, OffsetCommit

WAIT_SECONDS = 10.0
"""How long the waiting methods wait before they give up with a TimeoutError."""


class FakeGroup:
    """A group of one member, which a test moves by hand. Pass its `make_member` to a `Consumer`.

    Args:
        cooperative: Whether the member keeps its partitions over a rebalance, as with cooperative assignors.

    Attributes:
        offsets: The committed offsets. A test may set them before the start.
        topics: The topics that the consumer has registered, with their numbers of partitions.
        end_offsets: The end offsets that the consumer has reported.
        generation_id: The generation of the last rebalance.
        lives: How many members were started. A consumer starts another one after a handler was stuck.
        left: The reason of each member that left the group.
        rejoin_within_ms: For how long the group says that it waits for what is given up. A test may set it.
        stayed_count: How many static members stopped without leaving.
    """

    def __init__(self, *, cooperative: bool = False) -> None:
        self._cooperative = cooperative
        self._present: FakeMember | None = None
        self._refusals: list[MemberError] = []
        self._changed = asyncio.Condition()
        self.offsets: dict[TopicPartition, OffsetCommit] = {}
        self.topics: dict[str, int] = {}
        self.end_offsets: dict[TopicPartition, int] = {}
        self.generation_id = 0
        self.lives = 0
        self.left: list[str | None] = []
        self.stayed_count = 0
        self.rejoin_within_ms: int | None = None

    def make_member(
        self,
        options: MemberOptions,
        *,
        partition_counts: Counts | Mapping[str, int] | None,
        on_assigned: AssignmentHook,
        on_revoked: AssignmentHook,
        on_lost: AssignmentHook,
        observer: Observer | None,
    ) -> "FakeMember":
        """Make a member; pass this method to a consumer. The observer gets nothing from such a member."""
        return FakeMember(self, on_assigned, on_revoked, on_lost, cooperative=self._cooperative)

    # --- what a test does --------------------------------------------------------------------------------------------

    async def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Rebalance, so that the member has exactly these partitions.

        Waits for a member to be started. Returns when `on_revoked`, for what is given up, and `on_assigned` have ended.
        """
        member = await self._member()
        async with member.callbacks:
            await member.rebalance(frozenset(partitions))

    async def lose(self) -> None:
        """Let the group remove the member, which then calls `on_lost`. Commits are refused from before that call."""
        member = await self._member()
        async with member.callbacks:
            await member.lose()

    async def fail(self, error: FatalError) -> None:
        """Let the member call `on_lost` and stop with this error."""
        member = await self._member()
        async with member.callbacks:
            await member.lose()
        member.end(error)
        await self.note_change()

    def refuse_commits(self, *errors: MemberError) -> None:
        """Let the next commits raise these errors, one each."""
        self._refusals.extend(errors)

    async def wait_committed(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Wait until exactly these offsets are committed. Raises TimeoutError after 10 s."""
        await self._wait_for(lambda: offsets.items() <= {tp: one.offset for tp, one in self.offsets.items()}.items())

    async def wait_lives(self, count: int) -> None:
        """Wait until so many members were started. Raises TimeoutError after 10 s."""
        await self._wait_for(lambda: self.lives >= count)

    # --- what its members do -----------------------------------------------------------------------------------------

    async def enter(self, member: "FakeMember") -> str:
        """Start a member. Returns its id."""
        self._present = member
        self.lives += 1
        await self.note_change()
        return f"member-{self.lives}"

    async def store(self, offsets: Mapping[TopicPartition, OffsetCommit]) -> None:
        """Commit what the member itself did not refuse."""
        if self._refusals:
            raise self._refusals.pop(0)
        self.offsets |= offsets
        await self.note_change()

    async def note_change(self) -> None:
        """Wake the waiting methods."""
        async with self._changed:
            self._changed.notify_all()

    async def _member(self) -> "FakeMember":
        await self._wait_for(lambda: self._present is not None and not self._present.has_ended)
        assert self._present is not None
        return self._present

    async def _wait_for(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(WAIT_SECONDS), self._changed:
            await self._changed.wait_for(condition)


class FakeMember:
    """One life in a `FakeGroup`, with the methods that a consumer asks of its member."""

    def __init__(
        self,
        group: FakeGroup,
        on_assigned: AssignmentHook,
        on_revoked: AssignmentHook,
        on_lost: AssignmentHook,
        *,
        cooperative: bool,
    ) -> None:
        self._group = group
        self._on_assigned = on_assigned
        self._on_revoked = on_revoked
        self._on_lost = on_lost
        self._owned = Ownership(cooperative=cooperative)
        self._cooperative = cooperative
        self._error: MemberError | None = None
        self._ended = asyncio.Event()
        self._leaving: asyncio.Task[None] | None = None
        self.callbacks = asyncio.Lock()
        self.member_id = ""

    @property
    def has_ended(self) -> bool:
        """Whether it has left, or stopped with an error."""
        return self._ended.is_set()

    def holds(self, topic_partition: TopicPartition) -> bool:
        """As `GroupMember.holds`. Its session never ends by the clock."""
        return topic_partition in self._held

    async def start(self) -> None:
        """As `GroupMember.start`. The member holds nothing until the test assigns something."""
        self.member_id = await self._group.enter(self)

    async def commit(self, offsets: Offsets, *, generation_id: int | None = None) -> None:
        """As `GroupMember.commit`."""
        self._check_running()
        wanted = checked(offsets)
        objection = self._owned.objection_to(wanted, generation_id)
        if objection is not None:
            raise IllegalGeneration(objection)
        await self._group.store(wanted)

    async def committed(self, topics: Iterable[str] | None = None) -> Mapping[TopicPartition, CommittedOffset]:
        """As `GroupMember.committed`."""
        self._check_running()
        wanted = None if topics is None else set(topics)
        return {
            tp: CommittedOffset(offset=one.offset, leader_epoch=one.leader_epoch, metadata=one.metadata)
            for tp, one in self._group.offsets.items()
            if wanted is None or tp[0] in wanted
        }

    async def topics(self) -> Mapping[str, int]:
        """As `GroupMember.topics`: none are registered but those that were put."""
        return dict(self._group.topics)

    async def put_topic(self, topic: str, partitions: int, end_offsets: Mapping[int, int]) -> None:
        """As `GroupMember.put_topic`."""
        self._group.topics[topic] = partitions
        self._group.end_offsets |= {(topic, partition): offset for partition, offset in end_offsets.items()}
        await self._group.note_change()

    async def leave(self, reason: str | None = None, *, stay: bool = False, timeout_ms: int | None = None) -> None:
        """As `GroupMember.leave`; None: without a limit."""
        if self._leaving is None and not self.has_ended:
            self._leaving = asyncio.create_task(self._leave(reason, stay=stay))
        if self._leaving is not None:
            await asyncio.wait({self._leaving}, timeout=None if timeout_ms is None else timeout_ms / 1000)
            self._leaving.cancel()
            await asyncio.wait({self._leaving})
            if not self._leaving.cancelled():
                self._leaving.result()
        await self._group.note_change()

    async def _leave(self, reason: str | None, *, stay: bool) -> None:
        async with self.callbacks:
            try:
                await self._give_up(self._held)
            finally:
                if stay:
                    self._group.stayed_count += 1
                else:
                    self._group.left.append(reason)
                self.end(None)

    async def close(self) -> None:
        """As `GroupMember.close`."""
        self.end(None)
        await self._group.note_change()

    async def wait_ended(self) -> None:
        """As `GroupMember.wait_ended`."""
        await self._ended.wait()
        if self._error is not None:
            raise self._error

    # --- what the group does with it ---------------------------------------------------------------------------------

    async def rebalance(self, partitions: frozenset[TopicPartition]) -> None:
        """Give up what is not among these, take the rest."""
        held = self._held
        await self._give_up(held - partitions if self._cooperative else held)
        if self.has_ended:
            return
        self._group.generation_id += 1
        new = Assignment(self._group.generation_id, self.member_id, True, "fake", partitions)
        try:
            await self._on_assigned(self._owned.take(new))
        except Exception as error:
            failure = CallbackFailed(f"on_assigned raised {type(error).__name__}: {error}")
            failure.__cause__ = error
            self.end(failure)

    async def lose(self) -> None:
        """Lose everything, and call `on_lost`."""
        if (lost := self._owned.lose()) is not None:
            await self._on_lost(lost)

    def end(self, error: MemberError | None) -> None:
        """Stop, with this error if it is one."""
        if not self.has_ended:
            self._owned.clear()
            self._error = error
            self._ended.set()

    @property
    def _held(self) -> frozenset[TopicPartition]:
        return frozenset() if self._owned.assignment is None else self._owned.assignment.partitions

    async def _give_up(self, partitions: frozenset[TopicPartition]) -> None:
        if partitions:
            given_up = replace(self._owned.give_up(partitions), rejoin_within_ms=self._group.rejoin_within_ms)
            await self._on_revoked(given_up)
            if not self.has_ended:
                self._owned.gave_up()

    def _check_running(self) -> None:
        if self._error is not None:
            raise self._error
        if self.has_ended:
            raise MemberClosed("the member has left the group or was closed")
