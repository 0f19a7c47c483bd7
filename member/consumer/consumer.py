"""A consumer: a member of a group that reads what it is assigned, hands it to a handler, and commits.

Theory of operation. The consumer lives as one member after another: usually one, and a new one after a handler was
stuck, for a member that has left is not used again. The member's callbacks begin and end a `Lane` for each partition;
the lanes do the work. `on_revoked` waits for the batches in hand and commits before it returns, so that the next owner
begins where this one ended. Everything runs in one event loop; what is committed under which generation is `progress`.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

from member.assignment import Assignment
from member.client import GroupMember
from member.consumer.batch import Batch
from member.consumer.contract import (
    AssignmentHook,
    CountedSource,
    Counts,
    MakeMember,
    Member,
    Offsets,
    Source,
    TopicPartition,
)
from member.consumer.lane import Handler, Lane, Workshop
from member.consumer.options import ConsumerOptions
from member.consumer.progress import Progress, ahead
from member.errors import CommitFailed, CoordinatorUnavailable, IllegalGeneration, MemberClosed, MemberError
from member.observer import Observer

R = TypeVar("R")

log = logging.getLogger("rallypoint.member")

STUCK = "a handler ran for longer than max_poll_interval_ms"


class Consumer(Generic[R]):
    """Reads the partitions it is assigned, for one life: `run` it once, or start it once and then stop it.

    `handler` is awaited with each `Batch`, at most `concurrency` of them at once, those of one partition one after
    another. All methods belong to one event loop.

    `partition_counts`: as `GroupMember`'s, and asked with None for every topic where a pattern is subscribed to; None
    asks the source where it is a `CountedSource`, else the service's registry. `on_assigned` is awaited before the
    first read of what was added, `on_revoked` when the batches in hand have ended and what was handled is committed,
    `on_lost` when nothing can be committed any more; a handler may then still run. None of them may wait for `stop`.
    `observer`: is told what happens, as `member.metrics` wants it. `make_member`: for tests, see `member.testing`.
    """

    def __init__(
        self,
        options: ConsumerOptions,
        source: Source[R],
        handler: Handler[R],
        *,
        partition_counts: Counts | Mapping[str, int] | None = None,
        on_assigned: AssignmentHook | None = None,
        on_revoked: AssignmentHook | None = None,
        on_lost: AssignmentHook | None = None,
        observer: Observer | None = None,
        make_member: MakeMember = GroupMember,
    ) -> None:
        if partition_counts is None and isinstance(source, CountedSource):
            partition_counts = source.partition_counts
        self._options = options
        self._counts = partition_counts
        self._on_assigned = on_assigned
        self._on_revoked = on_revoked
        self._on_lost = on_lost
        self._observer = observer
        self._make_member = make_member
        self._shop = Workshop(
            options, source, handler, asyncio.Semaphore(options.concurrency), self._commit_one, self._batch_ended
        )
        self._lanes: dict[TopicPartition, Lane[R]] = {}
        self._progress: dict[TopicPartition, Progress] = {}
        self._running: dict[TopicPartition, Lane[R]] = {}
        self._lookups: set[asyncio.Task[Mapping[TopicPartition, int]]] = set()
        self._timed_commit = asyncio.Lock()
        self._member: Member | None = None
        self._life: asyncio.Task[None] | None = None
        self._hook: asyncio.Task[Any] | None = None
        self._stop_wanted = False
        self._news = asyncio.Event()
        self._error: Exception | None = None

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    # --- the life ----------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Consume until `request_stop` or an error, which is raised: the handler's own, the source's, or the member's.

        Cancelled, it stops in order before it ends.
        """
        await self.start()
        try:
            await self.wait_ended()
        finally:
            await self.stop()

    async def start(self) -> None:
        """Begin; returns at once. RuntimeError where it was started before."""
        if self._life is not None or self._stop_wanted:
            raise RuntimeError("a consumer is started once; make a new one for another life")
        self._life = asyncio.create_task(self._live())

    def request_stop(self) -> None:
        """Begin to stop; returns at once. Again: nothing."""
        self._stop_wanted = True
        self._news.set()

    async def stop(self) -> None:
        """Finish the batches in hand, commit, leave; a static member stays. Raises nothing of the group's or the
        handler's: `error` has it. RuntimeError in a handler or a hook, which it would wait for.
        """
        inside = {self._hook, *(lane.task for lane in self._running.values())}
        if asyncio.current_task() in inside:
            raise RuntimeError("a handler or hook cannot wait for stop(), which waits for it; call request_stop()")
        self.request_stop()
        if self._life is not None:
            await asyncio.wait({self._life})

    async def wait_ended(self) -> None:
        """Wait until it has stopped, by whatever. Raises the error that stopped it, if one did."""
        if self._life is not None:
            await asyncio.shield(self._life)
        if self._error is not None:
            raise self._error

    @property
    def error(self) -> Exception | None:
        """What stops or stopped the consumer; None while it runs, and after a stop without one."""
        return self._error

    @property
    def options(self) -> ConsumerOptions:
        """As it was made."""
        return self._options

    @property
    def in_hand_ms(self) -> float:
        """For how long the slowest batch in hand has been handled by now; 0 where there is none."""
        now = time.monotonic()
        begun = [lane.in_hand_since for lane in list(self._running.values()) if lane.in_hand is not None]
        return max((now - since for since in begun), default=0.0) * 1000

    @property
    def member_id(self) -> str:
        """The id that the group gave; empty while there is none."""
        return "" if self._member is None else self._member.member_id

    # --- partitions --------------------------------------------------------------------------------------------------

    @property
    def assignment(self) -> frozenset[TopicPartition]:
        """What is worked on now."""
        return frozenset(self._lanes)

    @property
    def positions(self) -> dict[TopicPartition, int]:
        """The offset of the next record to hand over, by partition; one whose beginning is not known yet is absent."""
        return {tp: one.position for tp, one in self._progress.items() if one.position is not None}

    @property
    def paused(self) -> frozenset[TopicPartition]:
        """What is paused of the assignment."""
        return frozenset(tp for tp, lane in list(self._lanes.items()) if lane.paused)

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """Hand over nothing of these until `resume`. A batch in hand is finished. A partition stays paused while it is
        assigned, and begins unpaused when it comes back. ValueError for one that is not assigned; then none is paused.
        """
        for lane in self._lanes_of(partitions):
            lane.pause()

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        """Go on with these. ValueError for one that is not assigned; then none is resumed."""
        for lane in self._lanes_of(partitions):
            lane.resume()

    async def commit(self, offsets: Offsets | None = None, *, generation_id: int | None = None) -> None:
        """Commit these offsets, or for None what was handled of every partition; returns once it is on disk.

        Within a handler, None does not include the batch in hand; `{(topic, partition): offset}` with
        `batch.generation_id` may. Raises as `GroupMember.commit`, and IllegalGeneration for a partition that is not
        assigned, or has come in another generation than `generation_id`.
        """
        if offsets is None:
            await self._commit_ahead(self._progress.values())
            return
        taken = {tp: self._owned(tp, generation_id) for tp in offsets}
        for generation in sorted({one.generation_id for one in taken.values()}):
            part = {tp: offsets[tp] for tp, one in taken.items() if one.generation_id == generation}
            await self._present.commit(part, generation_id=generation)
            for topic_partition, offset in part.items():
                taken[topic_partition].committed = offset if isinstance(offset, int) else offset.offset

    # --- inside: one life after another ------------------------------------------------------------------------------

    async def _live(self) -> None:
        if self._observer is not None:
            self._observer.consumer_began(self)
        try:
            while not self._stop_wanted:
                await self._live_as_member()
                await self._wait_for_stuck()
        except Exception as error:
            self._fail(error)
        finally:
            for lane in self._running.values():
                lane.task.cancel()
            if self._running:
                self._log(logging.WARNING, f"{len(self._running)} handlers still run, and are not waited for")
                await asyncio.wait([lane.task for lane in self._running.values()])
            if self._observer is not None:
                self._observer.consumer_ended(self)

    async def _live_as_member(self) -> None:
        """One member's life, from its start until it has ended."""
        member = self._member = self._make_member(
            self._options,
            partition_counts=self._counts,
            on_assigned=self._take,
            on_revoked=self._give_up,
            on_lost=self._lose,
            observer=self._observer,
        )
        self._news.clear()
        if self._stop_wanted:
            return
        await member.start()
        background: list[asyncio.Task[Any]] = [
            asyncio.create_task(member.wait_ended()),
            asyncio.create_task(self._news.wait()),
        ]
        if self._options.commit_mode == "interval":
            background.append(asyncio.create_task(self._commit_by_time()))
        try:
            await asyncio.wait(background, return_when=asyncio.FIRST_COMPLETED)
            is_static = self._options.group_instance_id is not None
            await member.leave(self._why_leaving(), stay=is_static)
            await member.wait_ended()
        except MemberError as error:
            self._fail(error)
        finally:
            await _end((*background, *self._lookups))
            for lane in self._forget(list(self._lanes)):
                lane.stop()

    def _why_leaving(self) -> str | None:
        if self._error is not None:
            return f"it stops: {type(self._error).__name__}"
        return None if self._stop_wanted else STUCK

    async def _wait_for_stuck(self) -> None:
        """A stuck handler holds back the next life until it returns, or the consumer is to stop."""
        while self._running and not self._stop_wanted:
            self._news.clear()
            news = asyncio.create_task(self._news.wait())
            tasks = [lane.task for lane in self._running.values()]
            await asyncio.wait([news, *tasks], return_when=asyncio.FIRST_COMPLETED)
            news.cancel()
        if not self._stop_wanted:
            self._log(logging.INFO, "the stuck handler has returned; joining again. What it did then is not committed")

    def _fail(self, error: Exception) -> None:
        if self._error is None:
            self._error = error
            self._log(logging.ERROR, f"the consumer stops: {type(error).__name__}: {error}")
        self.request_stop()

    def _note_stuck(self, lane: Lane[R]) -> None:
        topic, partition = lane.progress.topic_partition
        limit_ms = self._options.max_poll_interval_ms
        self._log(
            logging.WARNING,
            f"the handler of {topic}-{partition} has run for {limit_ms} ms (max_poll_interval_ms): leaving the group"
            " until it returns, so that others may have the partitions",
        )
        self._news.set()
        if self._observer is not None:
            self._observer.handler_stuck(self)

    # --- inside: partitions come and go ------------------------------------------------------------------------------

    async def _take(self, added: Assignment) -> None:
        await self._call_hook(self._on_assigned, added)
        if not added.partitions:
            return
        lookup = self._begin_look_up(frozenset(topic for topic, _ in added.partitions))
        for topic_partition in sorted(added.partitions):
            progress = self._progress[topic_partition] = Progress(topic_partition, added.generation_id)
            lane = Lane(
                self._shop,
                progress,
                lookup,
                self._task_of(topic_partition),
                failed=self._fail,
                stuck=self._note_stuck,
            )
            self._lanes[topic_partition] = lane
            self._running[topic_partition] = lane
            lane.task.add_done_callback(self._forget_task_of(topic_partition, lane))

    async def _call_hook(self, hook: AssignmentHook | None, held: Assignment) -> None:
        if hook is None:
            return
        self._hook = asyncio.current_task()
        try:
            await hook(held)
        finally:
            self._hook = None

    def _task_of(self, topic_partition: TopicPartition) -> asyncio.Task[None] | None:
        """Of the lane that had the partition before, while its handler runs."""
        before = self._running.get(topic_partition)
        return None if before is None else before.task

    def _forget_task_of(self, topic_partition: TopicPartition, lane: Lane[R]) -> Callable[[asyncio.Task[None]], None]:
        def forget(task: asyncio.Task[None]) -> None:
            if self._running.get(topic_partition) is lane:
                del self._running[topic_partition]

        return forget

    def _begin_look_up(self, topics: frozenset[str]) -> asyncio.Task[Mapping[TopicPartition, int]]:
        lookup = asyncio.create_task(self._look_up(topics))
        self._lookups.add(lookup)
        lookup.add_done_callback(self._looked_up)
        return lookup

    async def _look_up(self, topics: frozenset[str]) -> Mapping[TopicPartition, int]:
        """Where the group stands; asked until there is an answer."""
        while True:
            try:
                committed = await self._present.committed(topics)
            except CoordinatorUnavailable as error:
                self._log(logging.WARNING, f"the committed offsets cannot be had yet: {error}")
            else:
                return {tp: offset.offset for tp, offset in committed.items()}

    def _looked_up(self, lookup: asyncio.Task[Mapping[TopicPartition, int]]) -> None:
        self._lookups.discard(lookup)
        if not lookup.cancelled():
            lookup.exception()  # the lanes that wait for it raise it, if there are any left

    async def _give_up(self, held: Assignment) -> None:
        lanes = [self._lanes[tp] for tp in sorted(held.partitions) if tp in self._lanes]
        for lane in lanes:
            lane.stop()
        await self._wait_for_batches(lanes)
        try:
            if self._options.commit_mode != "manual":
                await self._commit_at_the_end(lanes)
            await self._call_hook(self._on_revoked, held)
        finally:
            self._forget(held.partitions)

    async def _wait_for_batches(self, lanes: Collection[Lane[R]]) -> None:
        """For the batches in hand, but not for stuck handlers, nor for longer than the group waits."""
        waits = [asyncio.create_task(lane.ended.wait()) for lane in lanes]
        if not waits:
            return
        _, late = await asyncio.wait(waits, timeout=self._options.rebalance_timeout_ms / 1000)
        for wait in late:
            wait.cancel()
        if late:
            self._log(logging.WARNING, f"{len(late)} handlers ran for longer than the group waits for this member")

    async def _commit_at_the_end(self, lanes: Collection[Lane[R]]) -> None:
        try:
            async with self._timed_commit:  # an older one must not arrive after this one
                await self._commit_ahead([lane.progress for lane in lanes])
        except (CommitFailed, CoordinatorUnavailable) as error:
            self._log(logging.WARNING, f"what was handled last could not be committed, and is repeated: {error}")

    async def _lose(self, held: Assignment) -> None:
        for lane in self._forget(held.partitions):
            lane.stop()
        await self._call_hook(self._on_lost, held)

    def _forget(self, partitions: Iterable[TopicPartition]) -> list[Lane[R]]:
        """Nothing of these is committed from now on. Their tasks stay known while they run."""
        gone = list(partitions)
        for topic_partition in gone:
            self._progress.pop(topic_partition, None)
        return [self._lanes.pop(tp) for tp in gone if tp in self._lanes]

    def _lanes_of(self, partitions: Iterable[TopicPartition]) -> list[Lane[R]]:
        wanted = list(partitions)
        for topic_partition in wanted:
            if topic_partition not in self._lanes:
                raise ValueError("{}-{} is not assigned to this consumer".format(*topic_partition))
        return [self._lanes[tp] for tp in wanted]

    # --- inside: commits ---------------------------------------------------------------------------------------------

    @property
    def _present(self) -> Member:
        if self._member is None:
            raise MemberClosed("the consumer was not started")
        return self._member

    def _owned(self, topic_partition: TopicPartition, generation_id: int | None) -> Progress:
        one = self._progress.get(topic_partition)
        if one is None or generation_id not in {None, one.generation_id}:
            raise IllegalGeneration("{}-{} is not this consumer's any more".format(*topic_partition))
        return one

    async def _commit_one(self, progress: Progress) -> None:
        await self._commit_ahead([progress])

    async def _commit_ahead(self, progress: Iterable[Progress]) -> None:
        """Commit what was handled and is not committed yet."""
        taken = {one.topic_partition: one for one in progress}
        for generation_id, offsets in ahead(taken.values()).items():
            await self._present.commit(offsets, generation_id=generation_id)
            for topic_partition, offset in offsets.items():
                taken[topic_partition].committed = offset

    async def _commit_by_time(self) -> None:
        while True:
            await asyncio.sleep(self._options.auto_commit_interval_ms / 1000)
            try:
                async with self._timed_commit:
                    await self._commit_ahead(self._progress.values())
            except (CommitFailed, CoordinatorUnavailable) as error:
                if not error.retriable and not isinstance(error, IllegalGeneration):
                    self._fail(error)
                    return
                self._log(logging.WARNING, f"a commit failed, the next one is due in its turn: {error}")

    def _batch_ended(self, batch: Batch[R], seconds: float, error: Exception | None) -> None:
        if self._observer is not None:
            self._observer.batch_ended(self, len(batch.records), seconds, failed=error is not None)

    def _log(self, level: int, text: str) -> None:
        group_id = self._options.group_id
        fields = {"group_id": group_id, "client_id": self._options.client_id, "member_id": self.member_id}
        log.log(level, "%s: %s", group_id, text, extra=fields)


async def _end(tasks: Iterable[asyncio.Task[Any]]) -> None:
    ending = list(tasks)
    for task in ending:
        task.cancel()
    await asyncio.gather(*ending, return_exceptions=True)
